"""Sending and forwarding: what follows from a message that is submitted or released, here and beyond us.

Rules:

* Whatever a message brings about is done before anything that is sent or delivered later (``drain``): so what is forwarded keeps
  the order in which it was released.
* Where relays have replicas, the first copy of a message counts, and a replica that does not forward keeps
  (``core.failover.replicas``).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from thence.core.failover.replicas import OriginalFirst
from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment, into, way_of
from thence.core.ordering import Output, Timed, survival_of
from thence.core.places.link_end import LinkOutput
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.border import inside
from thence.core.reconfig.retention import Retention
from thence.core.stability.accounts import IN_ORDER, OURS
from thence.core.stability.layer import AckLayer
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.routing import RoutePlan
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.records import Record, Shared
from thence.errors import InternalError, StorageError


class Cascade(msgspec.Struct):
    """What is still to be done within one step: released messages, in order, and what of it is for the application."""

    released: list[tuple[DomainPlace | LinkPlace, Frame[Any]]] = []
    deliver: Deliverable = []
    came_by: str = OURS
    """By which place the message came that is being dealt with."""


class Forwarder:
    """Puts messages into domains and links, and follows what is released there to its end."""

    def __init__(self, attachment: Attachment, admission: Admission, retained: Retention | None) -> None:
        """Use the places of ``attachment``; ``retained`` gets copies of what goes through here."""
        self._attachment = attachment
        self._admission = admission
        self._retained = retained
        self.number = 0
        """The number of the last message of our own that was accepted."""
        self.forwarded = 0
        """How many messages we have sent on for others, or keep for the replica that does, since we are in memory."""
        self.since = 0
        """With which version of the topology we came in, if not with the first one."""
        self.now = 0
        """When the step began that goes on; of a stored record, when it was made."""

    def fork(self, attachment: Attachment, admission: Admission, retained: Retention | None) -> Forwarder:
        """Return a forwarder that goes on from here on its own."""
        twin = copy.copy(self)
        twin._attachment, twin._admission, twin._retained = attachment, admission, retained
        return twin

    @property
    def stable_upto(self) -> int:
        """Up to which number all messages of our own are on the disks of all their recipients, where that is found out."""
        accounts = self._attachment.accounts
        return 0 if accounts is None else accounts.stable.upto

    def unstable(self) -> list[int]:
        """Return the numbers of our own messages that we keep since not all have them, where that is found out."""
        accounts = self._attachment.accounts
        return [] if accounts is None else accounts.unstable()

    @property
    def unsafe(self) -> int:
        """How many messages that we sent, or sent on, are not safe in the domain they went into, where that is told."""
        notices = self._attachment.notices
        return 0 if notices is None else notices.unsafe

    def send(self, envelope: Envelope) -> Deliverable:
        """Send a message of our own; return what is for us."""
        here, retained = self._attachment, self._retained
        if envelope.to is None:
            envelope = envelope.for_everyone_of(here.topology.version)
        if here.flat:
            (place,) = here.domains.values()
            output = self._stamp(place, envelope, envelope.to)
            self.number = envelope.number
            self.push(place, output.send, OURS)
            self.secure(output, envelope)
            if here.accounts is not None:
                here.accounts.sent(envelope)
            if retained is not None:
                retained.sent(envelope)
            return [(place.name, frame) for frame in output.deliver]
        plan = here.routes.plan(here.name, here.name, envelope.to, None)
        self.number = envelope.number
        envelope = here.seen.write(envelope)
        if retained is not None:
            retained.sent(envelope)
        cascade = Cascade()
        takeover = here.takeover
        local = here.topology.located(here.name)[0]
        # To ourselves at once: whatever caused our own message has been delivered here already.
        if envelope.to is None or here.name in envelope.to:
            cascade.deliver.append((local, Frame(None, envelope)))
        if takeover is not None and takeover.local is not None:
            plan = self._send_in_local_domain(plan, local, envelope, cascade)
        self.carry_out(plan, envelope, cascade)
        if here.secured is not None:
            here.secured.sent(envelope)
        if here.accounts is not None:
            here.accounts.sent(envelope)
        return self.drain(cascade)

    def _send_in_local_domain(self, plan: RoutePlan, local: str, envelope: Envelope, cascade: Cascade) -> RoutePlan:
        """Send a message of our own, though we are a replica, as any member does; return what is left to do as a replica."""
        here, takeover, place = self._attachment, self._attachment.takeover, self._attachment.domains[local]
        if takeover is None:
            raise InternalError(f"{here.name!r} is no replica")
        takeover.delivers(local, envelope)
        takeover.is_first(envelope)
        into = dict(plan.into)
        members = into.pop(local, ())
        if into:
            members = takeover.with_fellows(members)
        if members is None or members:
            self._put_into(place, envelope, None if local in here.whole else members, cascade)
        progress = place.transport.progress(place.transport.peers[0]) if into and local in here.whole else None
        if progress is not None:
            takeover.alone[envelope.number] = progress.sent
        return RoutePlan(into, plan.across)

    def send_body_ahead(self, place: DomainPlace, envelope: Envelope | None) -> None:
        """Send the body of a message ahead to whom we will forward it, while the message waits here for its turn."""
        here = self._attachment
        if place.forward_early is None or envelope is None or here.flat or str(envelope.id) in place.echoes:
            return
        # A replica may hold a copy of what another one forwarded, which is not for it to forward.
        if len(envelope.body) < place.forward_early or here.name in here.topology.fellows:
            return
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        for name, members in plan.into.items():
            here.domains[name].bodies.send(here.domains[name].ordering.paths.first_hop(members), envelope)
        for name in plan.across:
            here.links[name].bodies.send(here.links[name].end.first_hop(), envelope)

    def drain(self, cascade: Cascade) -> Deliverable:
        """Do one thing after the other, in the order in which it came about, until nothing follows any more."""
        for place, frame in cascade.released:
            self.follow(place, frame, cascade)
        return cascade.deliver

    def follow(self, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
        """Deliver and forward a message that a domain has released or a link has passed on, as far as it is for us or others."""
        here, envelope = self._attachment, frame.envelope
        if envelope is None:
            return
        cascade.came_by = place.name
        if here.accounts is not None:
            here.accounts.close(envelope, place.name, IN_ORDER)
        if isinstance(place, DomainPlace):
            echo = place.is_echo(envelope)
            for link_place in here.links.values():
                end = link_place.end
                asked = not isinstance(end.link.mode, str) and end.domain == place.name
                if asked and here.routes.beyond(end.link, place.name, envelope.origin):
                    self.cross(link_place, end.delivered(echo), cascade)
            if echo or not self._is_first(place, envelope, cascade):
                if here.takeover is not None and here.takeover.local == place.name:
                    self._deliver(place, frame, envelope, cascade)
                return
        if self._retained is not None:
            self._retained.keep(envelope)
        self._deliver(place, frame, envelope, cascade)
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        if plan.into or plan.across:
            self.forwarded += 1
        replica = here.takeover is not None and here.takeover.group  # It keeps what waits.
        if here.border.closed and not replica and here.border.stops(place.name, plan):
            here.border.wait(place.name, envelope)
            plan = inside(plan, here.places.keys() - here.border.closed)
        self.carry_out(plan, envelope, cascade)
        if here.takeover is not None:
            self._open_gates(place.name, envelope, cascade)

    def _deliver(self, place: DomainPlace | LinkPlace, frame: Frame[Any], envelope: Envelope, cascade: Cascade) -> None:
        """Deliver a message that has its turn, if it is for us."""
        here, takeover = self._attachment, self._attachment.takeover
        if envelope.is_for(here.name, self.since) and (takeover is None or takeover.delivers(place.name, envelope)):
            here.seen.learn(envelope)
            cascade.deliver.append((place.name, frame))

    # Replicas (``core.failover.replicas``).

    def _is_first(self, place: DomainPlace, envelope: Envelope, cascade: Cascade) -> bool:
        """Return whether a released message is to be delivered and forwarded: it is the first copy, and no other replica's."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is None:
            return True
        if takeover.is_copy(place.name, envelope):
            takeover.seen(place.name, envelope)
            if here.accounts is not None and not takeover.uniform:
                here.accounts.close(envelope, way_of(here, envelope), into(place.name))
            if takeover.alone:  # It may have been one that others waited behind.
                self._forward_kept(place.name, cascade)
            return False
        return takeover.is_first(envelope)

    def heeds(self, peer: str, suspected: bool) -> bool:
        """Return whether it changes what we send or deliver that a peer is suspected, or no longer."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is not None and peer in takeover.fellows and suspected != (peer in takeover.suspected):
            return True
        parts = [survival_of(place.ordering) for place in here.domains.values() if peer in place.peers]
        return any(part is not None and suspected != (peer in part.suspected) for part in parts)

    def suspect(self, peer: str, suspected: bool, safe: Iterable[tuple[str, int]] = ()) -> Deliverable:
        """Suspect a peer, or no longer: hand on what it sent (``core.ordering.resilient``), and forward what we kept for it.

        What it forwarded already goes out again but for what is known to be ``safe``, by origin up to a number.
        """
        here, takeover = self._attachment, self._attachment.takeover
        if not self.heeds(peer, suspected):
            raise StorageError(f"{here.name!r}: a stored record of a suspicion that makes no difference")
        cascade = Cascade()
        for place in here.domains.values():
            survival = survival_of(place.ordering)
            if peer in place.peers and survival is not None:
                output = survival.suspect(peer, suspected)
                self.push(place, output.send, place.name)
                self.secure(output)
                cascade.released += [(place, released) for released in output.deliver]
        if takeover is None or peer not in takeover.fellows:
            return self.drain(cascade)
        takeover.suspect(peer, suspected)
        known = dict(safe)
        for domain, envelope in takeover.forwarded.drop_safe(known, known):
            if here.accounts is not None:
                here.accounts.close(envelope, way_of(here, envelope), into(domain))
        for name in here.domains:
            self._forward_kept(name, cascade, again=True)
        return self.drain(cascade)

    def share_news(self, now: int, records: list[Record]) -> Deliverable:
        """Forward what waited for others to have messages of our own, if they do by now; note it among the records."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is None or not takeover.alone or takeover.local is None:
            return []
        upto = takeover.holders(here.domains[takeover.local].transport, here.suspected)
        if not upto:
            return []
        if here.options.durable:
            records.append(Shared(upto, now))
        return self.share(upto)

    def share(self, upto: int) -> Deliverable:
        """Forward what waited for others to have messages of our own up to a number."""
        takeover, cascade = self._attachment.takeover, Cascade()
        if takeover is None:
            raise StorageError(f"{self._attachment.name!r}: a stored record of who has a message, where no relay has replicas")
        takeover.found_holders(upto)
        for name in self._attachment.domains:
            self._forward_kept(name, cascade)
        return self.drain(cascade)

    def _forward_kept(self, name: str, cascade: Cascade, *, again: bool = False) -> None:
        """Forward what we keep and may forward into a domain, if that is up to us; ``again``: what another one forwarded, too."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is None or not takeover.forwards or is_cut_off(here, name):
            return
        came_by = cascade.came_by
        seen = takeover.forwarded.take(name, lambda origin: takeover.forwards_for(origin, name)) if again else []
        for kept in (*seen, *takeover.take_kept(name)):
            cascade.came_by = way_of(here, kept.envelope)
            self._put_into(here.domains[name], kept.envelope, kept.members, cascade)
            if here.accounts is not None:
                here.accounts.close(kept.envelope, cascade.came_by, into(name))
        cascade.came_by = came_by

    def _open_gates(self, came_by: str, envelope: Envelope, cascade: Cascade) -> None:
        """Release what other replicas made of a message, now that it has come from where it comes from."""
        for name, place in self._attachment.domains.items():
            gate = place.ordering.pending.gate
            if name != came_by and isinstance(gate, OriginalFirst):
                output = place.ordering.open(*gate.awaited(envelope))
                self.push(place, output.send, name)
                cascade.released += [(place, released) for released in output.deliver]

    def open_border(self, closed: Collection[str]) -> Deliverable:
        """Send on what waited to go into places that were closed, or into those that were made in their stead."""
        here, cascade = self._attachment, Cascade()
        crossings = here.border.open()
        for name in here.domains:  # Nobody else has to have a message of ours whose domain has begun anew.
            self._forward_kept(name, cascade)
        for came_by, envelope in crossings:
            cascade.came_by = came_by
            plan = here.routes.plan(here.name, envelope.origin, envelope.to, came_by)
            self.carry_out(inside(plan, closed), envelope, cascade)
        return self.drain(cascade)

    # Into domains and links.

    def carry_out(self, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
        """Forward a message, before anything that is sent or delivered later."""
        here, takeover = self._attachment, self._attachment.takeover
        for name, members in plan.into.items():
            to = None if name in here.whole else members if takeover is None else takeover.with_fellows(members)
            cut_off = is_cut_off(here, name)
            if takeover is None or (takeover.forwards_for(envelope.origin, name) and not takeover.alone and not cut_off):
                self._put_into(here.domains[name], envelope, to, cascade)
                continue
            takeover.keep(name, envelope, to)
            if here.accounts is not None:
                here.accounts.open(envelope, cascade.came_by, into(name))
            if takeover.alone:
                self._forward_kept(name, cascade)
        for name in plan.across:
            link_place = here.links[name]
            end = link_place.end
            self.cross(link_place, end.cross(envelope, here.routes.relay_of(end.link, end.domain, envelope.origin)), cascade)

    def _put_into(self, place: DomainPlace, envelope: Envelope, members: tuple[str, ...] | None, cascade: Cascade) -> None:
        """Send a message within a domain, to these members (None: to all)."""
        name = self._attachment.name
        if members is None or name in members:
            if self._admission.has_room_for_echo(place):
                place.expect_echo(envelope)
            else:  # To all but us: it is here already.
                members = tuple(member for member in members or place.ordering.members if member != name)
        output = self._stamp(place, envelope, members)
        self.push(place, output.send, cascade.came_by)
        self.secure(output)
        cascade.released += [(place, released) for released in output.deliver]

    def _stamp(self, place: DomainPlace, envelope: Envelope, to: tuple[str, ...] | None) -> Output:
        if isinstance(place.ordering, Timed):
            place.ordering.now = self.now
        if self._attachment.secured is not None and place.ordering.traits.secures:
            self._attachment.secured.put_into(envelope)
        return place.ordering.send(envelope, to)

    def secure(self, output: Output, sent: Envelope | None = None) -> None:
        """Note which messages of our own outlive us, and that one was sent."""
        secured = self._attachment.secured
        if secured is not None:
            if sent is not None:
                secured.sent(sent)
            secured.note(output.secured)

    def cross(self, place: LinkPlace, output: LinkOutput, cascade: Cascade) -> None:
        """Do what our end of a link asks for."""
        self.push(place, output.send, cascade.came_by)
        cascade.released += [(place, Frame(None, envelope)) for envelope in output.pass_on]

    def push(self, place: DomainPlace | LinkPlace, frames: list[tuple[str, Frame[Any]]], came_by: str) -> None:
        """Send frames with messages that came by a place."""
        here, transport = self._attachment, place.transport
        queued = transport.queued
        if place.notice is not None and here.notices is not None:
            place.notice.behind = here.notices.behind
            place.notice.ours = (self.number, _body_weight(frames)) if came_by == OURS else (0, 0)
        if here.accounts is not None and isinstance(transport, AckLayer):
            transport.push(frames, came_by)
            # An ordering that passes on what a suspected member sent does so before it is the turn of that.
            early = isinstance(place, DomainPlace) and place.name == came_by and place.ordering.traits.secures
            here.accounts.pushed(frames, came_by, in_turn=not early)
        else:
            transport.push(frames)
        here.in_memory += transport.queued - queued


def is_cut_off(here: Attachment, domain: str) -> bool:
    """Return whether a change replaces a domain into which we send as a replica, and not the other one that we are in.

    What is to go there we keep until then: another replica may have sent it on before it held, and so takes it off us.
    """
    replica = here.takeover is not None and bool(here.takeover.group)
    return replica and domain in here.border.closed and len(here.border.closed) < len(here.places)


def bring_kept_to_border(here: Attachment) -> None:
    """Let what we keep as a replica, since the domain that it goes into is replaced, wait as it does elsewhere."""
    for name in here.domains if here.takeover is not None else ():
        if here.takeover is not None and is_cut_off(here, name):
            for kept in here.takeover.take_kept(name, everything=True):
                ours = kept.envelope.origin == here.name
                here.border.wait(here.topology.local[here.name] if ours else way_of(here, kept.envelope), kept.envelope)


def _body_weight(frames: list[tuple[str, Frame[Any]]]) -> int:
    """Return what the message of these frames counts for, once."""
    return max([frame.weight for _, frame in frames], default=0)
