"""Sending and forwarding: what follows from a message that is submitted or released, here and beyond us.

Rules:

* Whatever a message brings about is done before anything that is sent or delivered later (``drain``): so what is forwarded keeps
  the order in which it was released.
* Where relays have replicas, the first copy of a message counts, and a replica that does not forward keeps
  (``core.failover.replicas``).
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from thence.core.failover.replicas import OriginalFirst
from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.places.link_end import LinkOutput
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.retention import Retention
from thence.core.stability.accounts import IN_ORDER, OURS
from thence.core.stability.layer import AckLayer
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.routing import RoutePlan
from thence.core.wire.messages import Envelope, Frame
from thence.errors import StorageError


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
        if here.flat:
            (place,) = here.domains.values()
            output = place.ordering.send(envelope, envelope.to)
            self.number = envelope.number
            self.push(place, output.send, OURS)
            if here.accounts is not None:
                here.accounts.sent(envelope)
            if retained is not None:
                retained.sent(envelope)
            return [(place.name, frame) for frame in output.deliver]
        plan = here.routes.plan(here.name, here.name, envelope.to, None)
        self.number = envelope.number
        if retained is not None:
            retained.sent(envelope)
        cascade = Cascade()
        # To ourselves at once: whatever caused our own message has been delivered here already.
        if envelope.to is None or here.name in envelope.to:
            cascade.deliver.append((here.topology.homes[here.name][0], Frame(None, envelope)))
        self.carry_out(plan, envelope, cascade)
        if here.accounts is not None:
            here.accounts.sent(envelope)
        return self.drain(cascade)

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
                counts = end.domain == place.name and end.link.mode == "printed" and (end.counts_own or not echo)
                if counts and here.routes.beyond(end.link, place.name, envelope.origin):
                    self.cross(link_place, end.delivered(), cascade)
            if echo or not self._is_first(place, envelope):
                return
        if self._retained is not None:
            self._retained.keep(envelope)
        if envelope.to is None or here.name in envelope.to:
            cascade.deliver.append((place.name, frame))
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        if plan.into or plan.across:
            self.forwarded += 1
        self.carry_out(plan, envelope, cascade)
        if here.takeover is not None:
            self._open_gates(place.name, envelope, cascade)

    # Replicas (``core.failover.replicas``).

    def _is_first(self, place: DomainPlace, envelope: Envelope) -> bool:
        """Return whether a released message is to be delivered and forwarded: it is the first copy, and no other replica's."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is None:
            return True
        if takeover.is_copy(place.name, envelope):
            takeover.seen(place.name, envelope)
            if here.accounts is not None:
                here.accounts.close(envelope, here.routes.upstream(here.name, envelope.origin), _into(place.name))
            return False
        return takeover.is_first(envelope)

    def suspect(self, peer: str, suspected: bool) -> Deliverable:
        """Suspect another replica, or no longer; if it is now up to us to forward, forward what we kept."""
        here, takeover = self._attachment, self._attachment.takeover
        if takeover is None:
            raise StorageError(f"{here.name!r}: a stored record of a suspicion, where no relay has replicas")
        takeover.suspect(peer, suspected)
        cascade = Cascade()
        if takeover.forwards:
            for name, place in here.domains.items():
                for kept in takeover.take_kept(name):
                    cascade.came_by = here.routes.upstream(here.name, kept.envelope.origin)
                    self._put_into(place, kept.envelope, kept.members, cascade)
                    if here.accounts is not None:
                        here.accounts.close(kept.envelope, cascade.came_by, _into(name))
        return self.drain(cascade)

    def _open_gates(self, came_by: str, envelope: Envelope, cascade: Cascade) -> None:
        """Release what other replicas made of a message, now that it has come from where it comes from."""
        for name, place in self._attachment.domains.items():
            gate = place.ordering.pending.gate
            if name != came_by and isinstance(gate, OriginalFirst):
                output = place.ordering.open(*gate.awaited(envelope))
                self.push(place, output.send, name)
                cascade.released += [(place, released) for released in output.deliver]

    # Into domains and links.

    def carry_out(self, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
        """Forward a message, before anything that is sent or delivered later."""
        here, takeover = self._attachment, self._attachment.takeover
        for name, members in plan.into.items():
            to = None if name in here.whole else members if takeover is None else takeover.with_fellows(members)
            if takeover is None or takeover.forwards:
                self._put_into(here.domains[name], envelope, to, cascade)
            else:
                takeover.keep(name, envelope, to)
                if here.accounts is not None:
                    here.accounts.open(envelope, cascade.came_by, _into(name))
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
        output = place.ordering.send(envelope, members)
        self.push(place, output.send, cascade.came_by)
        cascade.released += [(place, released) for released in output.deliver]

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
        if here.accounts is not None and isinstance(transport, AckLayer):
            transport.push(frames, came_by)
            here.accounts.pushed(frames, came_by)
        else:
            transport.push(frames)
        if place.guard is not None and here.turn is not None and came_by == OURS and frames:
            here.turn.sent(place.name, place.guard.pushed, frames)
        here.in_memory += transport.queued - queued


def _into(domain: str) -> str:
    """Return what keeps an account open while another replica should forward a message into a domain."""
    return f"into {domain}"
