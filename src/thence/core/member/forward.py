"""The part of a member that sends, takes and forwards: what follows from a message that is released, here and beyond us.

This is the lower half of ``core.member.member``, in a file of its own so that each can be read in one go.

Rules:

* Whatever a message brings about is done before anything that is sent or delivered later (``_drain``): so what is forwarded keeps
  the order in which it was released.
* Where relays have replicas, the first copy of a message counts, and a replica that does not forward keeps
  (``core.failover.replicas``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from thence.core.failover.replicas import OriginalFirst
from thence.core.member.reconfigure import Deliverable
from thence.core.member.recover import Restoring
from thence.core.places.link_end import LinkOutput
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.protocol import FABRIC
from thence.core.stability.accounts import IN_ORDER, OURS
from thence.core.stability.layer import AckLayer
from thence.core.stability.safe_notification import Notices, SafeNotification
from thence.core.topology.routing import RoutePlan
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.records import Passed
from thence.errors import FrameRefused, ImpossibleFrame, InternalError, OverflowingFrame, StorageError


class Work(msgspec.Struct):
    """What is still to be done within one step: released messages, in order, and what of it is for the application."""

    domain: list[tuple[DomainPlace | LinkPlace, Frame[Any]]] = []
    deliver: Deliverable = []
    came_by: str = OURS
    """By which place the message came that is being dealt with."""


class Forwarding(Restoring):
    """See the module's text. What is declared here is the member's."""

    forwarded = 0
    """How many messages we have sent on for others, or keep for the replica that does, since we are in memory."""
    _whole: set[str]
    _suspected: dict[str, None]
    _unsafe: dict[int, list[tuple[str, int]]]
    _notices: Notices | None = None

    @abstractmethod
    def _has_room_for_echo(self, place: DomainPlace) -> bool:
        """Return whether one more message that we put into a domain may come back to us."""

    def _send(self, envelope: Envelope) -> Deliverable:
        """Send a message of our own."""
        if self._flat:
            (place,) = self._domains.values()
            output = place.ordering.send(envelope, envelope.to)
            self._number = envelope.number
            self._push(place, output.send, OURS)
            if self._ledger is not None:
                self._ledger.sent(envelope)
            if self._retained is not None:
                self._retained.sent(envelope)
            return [(place.name, frame) for frame in output.deliver]
        plan = self.routes.plan(self.name, self.name, envelope.to, None)
        self._number = envelope.number
        if self._retained is not None:
            self._retained.sent(envelope)
        work = Work()
        # To ourselves at once: whatever caused our own message has been delivered here already.
        if envelope.to is None or self.name in envelope.to:
            work.deliver.append((self.topology.homes[self.name][0], Frame(None, envelope)))
        self._carry_out(plan, envelope, work)
        if self._ledger is not None:
            self._ledger.sent(envelope)
        return self._drain(work)

    def _take(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int) -> Deliverable:
        """Accept one frame, now or when everybody has it."""
        if place.notice is not None:
            return self._accept_notified(place, incoming, now)
        if place.guard is None:
            return self._accept(place, incoming, now)
        place.guard.put_aside(incoming, now)
        return []

    def _accept_notified(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int) -> Deliverable:
        """Accept one frame, and note it before anything follows from it (``core.stability.safe_notification``)."""
        notices = self._notices
        if notices is None:
            raise InternalError(f"{place.name!r} at {self.name!r} tells what is safe, and nobody listens")
        notices.received(place.name, incoming)
        try:
            return self._accept(place, incoming, now)
        except OverflowingFrame:
            notices.not_received()
            raise

    def _pass(self, place: DomainPlace | LinkPlace, passed: Passed) -> tuple[Deliverable, list[FrameRefused]]:
        """Accept what everybody has by now. There may be no room for some of it: that comes again when something else passes.

        Each sender's frames keep their order, and nobody's wait for those of others: the one that all wait for makes room.
        """
        deliver: Deliverable = []
        refused: list[FrameRefused] = []
        if place.guard is None:
            return deliver, refused
        waiting = place.guard.open(passed.upto)
        full: dict[str, OverflowingFrame] = {}
        before = len(waiting) + 1
        while len(waiting) < before:
            before, tried, waiting, full = len(waiting), waiting, [], {}
            for incoming in tried:
                try:
                    if incoming.peer not in full:
                        deliver += self._accept(place, incoming, passed.at)
                except OverflowingFrame as refusal:
                    full[incoming.peer] = refusal
                except FrameRefused as refusal:
                    refused.append(refusal)
                if incoming.peer in full:
                    waiting.append(incoming)
        for incoming in waiting:
            place.guard.put_back(incoming, passed.at)
        return deliver, [*refused, *full.values()]

    def _accept(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int) -> Deliverable:
        """Accept one frame: the ordering or the link first, since it may refuse; then the transport, which then acks it."""
        if self._flat and isinstance(place, DomainPlace):
            return self._take_flat(place, incoming, now)
        work = Work()
        peer, frame = incoming.peer, incoming.frame
        ledger = self._ledger
        pending = 0 if ledger is None else self._pending(place, frame)
        try:
            self._check_envelope(place, incoming)
            if isinstance(place, DomainPlace):
                early = place.forward_early is not None
                held = len(place.ordering.pending) if early else 0
                output = place.ordering.accept(peer, frame, now)
                if early and len(place.ordering.pending) > held:
                    self._forward_early(place, frame.envelope)
                if output.send:
                    self._push(place, output.send, place.name)
                work.domain += [(place, released) for released in output.deliver]
            else:
                work.came_by = place.name
                self._linked(place, place.end.accept(peer, frame, now), work)
        except OverflowingFrame:
            raise  # Not acknowledged: the peer will send it again.
        except FrameRefused:
            place.transport.skip(peer, incoming.number)  # It will never become acceptable: do not ask for it again.
            raise
        place.transport.take(incoming)
        if ledger is None:
            return self._drain(work)
        released = [one.envelope for _, one in work.domain]
        deliver = self._drain(work)
        self._account_for(place, incoming, pending, released)
        return deliver

    def _knows(self, envelope: Envelope) -> bool:
        """Return whether a message comes from and goes to nobody but processes of this fabric, so that there is a way for it."""
        homes = self.topology.homes
        return envelope.origin in homes and all(name in homes for name in envelope.to or ())

    def _check_envelope(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> None:
        """Refuse a message that nobody can have sent this way, before anything follows from it."""
        envelope = incoming.frame.envelope
        if envelope is None or (self._restoring and place.guard is None):  # What was taken before is taken again.
            return
        if envelope.origin == FABRIC:  # Only a member's own part in a change says that (``core.member.reconfigure``).
            why = "claims to be news of the fabric"
        elif not self._knows(envelope):
            named = (envelope.origin, *(envelope.to or ()))
            stranger = next(name for name in named if name not in self.topology.homes)
            why = f"message {envelope.id} names {stranger!r}, and there is no such process in fabric {self.topology.name!r}"
        elif not self._may_come(place, incoming.peer, envelope):
            why = f"message {envelope.id} is forged: {incoming.peer!r} is not on its way here"
        else:
            return
        raise ImpossibleFrame(f"frame {incoming.number} from {incoming.peer!r} at {self.name!r}: {why}")

    def _may_come(self, place: DomainPlace | LinkPlace, peer: str, envelope: Envelope) -> bool:
        """Return whether a peer may bring a message: it is on the way from its origin. Ours come back only after we sent them."""
        ours = envelope.origin == self.name
        if ours and envelope.number > self._number:
            return False
        if isinstance(place, LinkPlace):
            return True
        if place.ordering.traits.passes_on:
            return not ours or place.ordering.paths.gets_back
        return peer in self.routes.entries(place.name, envelope.origin)

    def _take_flat(self, place: DomainPlace, incoming: Incoming, now: int) -> Deliverable:
        """The same where there is one domain: what is released is for us, and nothing is to be forwarded."""
        ledger = self._ledger
        pending = 0 if ledger is None else self._pending(place, incoming.frame)
        try:
            self._check_envelope(place, incoming)
            output = place.ordering.accept(incoming.peer, incoming.frame, now)
        except OverflowingFrame:
            raise
        except FrameRefused:
            place.transport.skip(incoming.peer, incoming.number)
            raise
        if output.send:
            self._push(place, output.send, place.name)
        place.transport.take(incoming)
        if ledger is not None:
            released = [one.envelope for one in output.deliver]
            for envelope in released:
                if envelope is not None:
                    ledger.close(envelope, place.name, IN_ORDER)
            self._account_for(place, incoming, pending, released)
        if self._retained is not None:
            for frame in output.deliver:
                if frame.envelope is not None:
                    self._retained.keep(frame.envelope)
        return [(place.name, released) for released in output.deliver]

    def _forward_early(self, place: DomainPlace, envelope: Envelope | None) -> None:
        """A message has to wait here for its turn. Its body need not: it goes ahead to whom we will forward the message."""
        if place.forward_early is None or envelope is None or self._flat or str(envelope.id) in place.echoes:
            return
        # A replica may hold a copy of what another one forwarded, which is not for it to forward.
        if len(envelope.body) < place.forward_early or self.name in self.topology.fellows:
            return
        plan = self.routes.plan(self.name, envelope.origin, envelope.to, place.name)
        for name, members in plan.into.items():
            self._domains[name].bodies.send(self._domains[name].ordering.paths.first_hop(members), envelope)
        for name in plan.across:
            self._links[name].bodies.send(self._links[name].end.first_hop(), envelope)

    def _drain(self, work: Work) -> Deliverable:
        """Do one thing after the other, in the order in which it came about, until nothing follows any more."""
        for place, frame in work.domain:
            self._released(place, frame, work)
        return work.deliver

    def _released(self, place: DomainPlace | LinkPlace, frame: Frame[Any], work: Work) -> None:
        """A domain has released a message, or a link has passed one on: it is for us, for others beyond us, or both."""
        envelope = frame.envelope
        if envelope is None:
            return
        work.came_by = place.name
        if self._ledger is not None:
            self._ledger.close(envelope, place.name, IN_ORDER)
        if isinstance(place, DomainPlace):
            echo = place.is_echo(envelope)
            for link_place in self._links.values():
                end = link_place.end
                counts = end.domain == place.name and end.link.mode == "printed" and (end.counts_own or not echo)
                if counts and self.routes.beyond(end.link, place.name, envelope.origin):
                    self._linked(link_place, end.delivered(), work)
            if echo or not self._is_news(place, envelope, work):
                return
        if self._retained is not None:
            self._retained.keep(envelope)
        if envelope.to is None or self.name in envelope.to:
            work.deliver.append((place.name, frame))
        plan = self.routes.plan(self.name, envelope.origin, envelope.to, place.name)
        if plan.into or plan.across:
            self.forwarded += 1
        self._carry_out(plan, envelope, work)
        if self._takeover is not None:
            self._open_gates(place.name, envelope, work)

    # Replicas (``core.failover.replicas``).

    def _put_up_gates(self) -> None:
        if self._takeover is not None and self._takeover.group:
            for name, place in self._domains.items():
                place.ordering.pending.gate = OriginalFirst(self._takeover, self.routes, name)

    def _is_news(self, place: DomainPlace, envelope: Envelope, work: Work) -> bool:
        """Return whether a released message is to be delivered and forwarded: it is the first copy, and no other replica's."""
        takeover = self._takeover
        if takeover is None:
            return True
        if takeover.is_copy(place.name, envelope):
            takeover.seen(place.name, envelope)
            if self._ledger is not None:
                self._ledger.close(envelope, self.routes.upstream(self.name, envelope.origin), _into(place.name))
            return False
        return takeover.is_first(envelope)

    def _tell_transports(self, peer: str, suspected: bool) -> None:
        if suspected:
            self._suspected[peer] = None
        else:
            self._suspected.pop(peer, None)
        for place in self._places.values():
            if peer in place.peers:
                place.transport.suspect(peer, suspected)

    def _suspect(self, peer: str, suspected: bool) -> Deliverable:
        """Suspect another replica, or no longer; if it is now up to us to forward, forward what we kept."""
        takeover = self._takeover
        if takeover is None:
            raise StorageError(f"{self.name!r}: a stored record of a suspicion, where no relay has replicas")
        takeover.suspect(peer, suspected)
        work = Work()
        if takeover.forwards:
            for name, place in self._domains.items():
                for kept in takeover.take_kept(name):
                    work.came_by = self.routes.upstream(self.name, kept.envelope.origin)
                    self._put_into(place, kept.envelope, kept.members, work)
                    if self._ledger is not None:
                        self._ledger.close(kept.envelope, work.came_by, _into(name))
        return self._drain(work)

    def _open_gates(self, came_by: str, envelope: Envelope, work: Work) -> None:
        """A message has come from where it comes from: what other replicas made of it may be taken note of."""
        for name, place in self._domains.items():
            gate = place.ordering.pending.gate
            if name != came_by and isinstance(gate, OriginalFirst):
                output = place.ordering.open(*gate.awaited(envelope))
                self._push(place, output.send, name)
                work.domain += [(place, released) for released in output.deliver]

    def _carry_out(self, plan: RoutePlan, envelope: Envelope, work: Work) -> None:
        """Forward a message, before anything that is sent or delivered later."""
        takeover = self._takeover
        for name, members in plan.into.items():
            to = None if name in self._whole else members if takeover is None else takeover.with_fellows(members)
            if takeover is None or takeover.forwards:
                self._put_into(self._domains[name], envelope, to, work)
            else:
                takeover.keep(name, envelope, to)
                if self._ledger is not None:
                    self._ledger.open(envelope, work.came_by, _into(name))
        for name in plan.across:
            link_place = self._links[name]
            end = link_place.end
            self._linked(link_place, end.cross(envelope, self.routes.relay_of(end.link, end.domain, envelope.origin)), work)

    def _put_into(self, place: DomainPlace, envelope: Envelope, members: tuple[str, ...] | None, work: Work) -> None:
        """Send a message within a domain, to these members (None: to all)."""
        if members is None or self.name in members:
            if self._has_room_for_echo(place):
                place.expect_echo(envelope)
            else:  # To all but us: it is here already.
                members = tuple(name for name in members or place.ordering.members if name != self.name)
        output = place.ordering.send(envelope, members)
        self._push(place, output.send, work.came_by)
        work.domain += [(place, released) for released in output.deliver]

    def _linked(self, place: LinkPlace, output: LinkOutput, work: Work) -> None:
        self._push(place, output.send, work.came_by)
        work.domain += [(place, Frame(None, envelope)) for envelope in output.pass_on]

    def _push(self, place: DomainPlace | LinkPlace, frames: list[tuple[str, Frame[Any]]], came_by: str) -> None:
        """Send frames with messages that came by a place."""
        transport = place.transport
        queued = transport.queued
        if place.notice is not None and self._notices is not None:
            place.notice.behind = self._notices.behind
        if self._ledger is not None and isinstance(transport, AckLayer):
            transport.push(frames, came_by)
            self._ledger.pushed(frames, came_by)
        else:
            transport.push(frames)
        if place.guard is not None and came_by == OURS and frames:
            self._note_unsafe(place.name, place.guard.pushed, frames)
        self._queued += transport.queued - queued

    # What is safe (``core.stability.safe_delivery``).

    def _note_unsafe(self, place: str, pushed: int, frames: list[tuple[str, Frame[Any]]]) -> None:
        """A message of our own went out, the ``pushed``-th in a place: if it is for us too, we wait until it is safe there."""
        envelope = next((frame.envelope for _, frame in frames if frame.envelope is not None), None)
        if envelope is not None and (envelope.to is None or self.name in envelope.to):
            self._unsafe.setdefault(envelope.number, []).append((place, pushed))

    def _in_turn(self, deliverable: Deliverable) -> Deliverable:
        """Return what may be delivered now: nothing that comes behind a message of our own that is not safe."""
        late = self._late
        if late is None:
            return deliverable
        for name, frame in deliverable:
            envelope = frame.envelope
            ours = envelope is not None and envelope.origin == self.name
            late.append((name, frame, self._unsafe.pop(envelope.number, []) if envelope is not None and ours else []))
            self._late_bytes += frame.weight
        ready: Deliverable = []
        while late and all(self._is_safe(name, pushed) for name, pushed in late[0][2]):
            name, frame, _ = late.popleft()
            self._late_bytes -= frame.weight
            ready.append((name, frame))
        return ready

    def _is_safe(self, name: str, pushed: int) -> bool:
        guard = self._domains[name].guard
        return guard is None or guard.own >= pushed

    # What is told to be safe (``core.stability.safe_notification``).

    def _begin_notices(self, places: dict[str, SafeNotification]) -> None:
        if places or self._notices is not None:
            self._notices = Notices(places, self._position)

    def _safe_news(self) -> int:
        if self._notices is None:
            return 0
        self._notices.look()
        return self._notices.news()

    @property
    def unsafe(self) -> int:
        """How many deliveries are not known to be safe, where that is told (``core.stability.safe_notification``)."""
        return 0 if self._notices is None else self._position - self._notices.upto

    @property
    def unsafe_sent(self) -> int:
        """How many messages that we sent, or sent on, are not safe in the domain they went into, where that is told."""
        return 0 if self._notices is None else self._notices.unsafe

    # What is settled (``core.stability.accounts``).

    def _pending(self, place: DomainPlace | LinkPlace, frame: Frame[Any]) -> int:
        """Return how many frames have followed from the message of this one that are not settled."""
        envelope, ledger = frame.envelope, self._ledger
        return 0 if ledger is None or envelope is None else ledger.pending(envelope, place.name)

    def _account_for(
        self, place: DomainPlace | LinkPlace, incoming: Incoming, pending: int, released: Sequence[Envelope | None]
    ) -> None:
        """A frame was taken: it is settled, unless something follows from it, now or when it has its turn."""
        ledger, envelope, stable = self._ledger, incoming.frame.envelope, place.stable
        if ledger is None or stable is None:
            return
        if envelope is not None:
            follows = ledger.pending(envelope, place.name) > pending
            if not follows and not any(one is envelope for one in released) and self._will_go_on(place, envelope):
                ledger.open(envelope, place.name, IN_ORDER)
            if follows or ledger.is_open(envelope, place.name):
                ledger.owe(envelope, (place.name, incoming.peer, incoming.number))
                return
        stable.add(incoming.peer, incoming.number)

    def _will_go_on(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether a message that was not released waits here for its turn and is handed on then."""
        if isinstance(place, LinkPlace):
            return any(one is envelope for one in place.end.state.arrived.values())
        if not place.ordering.pending.held:
            return False
        if place.ordering.traits.passes_on:
            return True
        if str(envelope.id) in place.echoes or (self._takeover is not None and self._takeover.is_copy(place.name, envelope)):
            return False
        plan = self.routes.plan(self.name, envelope.origin, envelope.to, place.name)
        return bool(plan.into or plan.across)

    def _note_stable(self, place: DomainPlace | LinkPlace) -> None:
        """Note what others have just reported."""
        if self._ledger is not None and place.stable is not None:
            for envelope, came_by in place.stable.take_news():
                self._ledger.became_stable(envelope, came_by)

    def _balance(self) -> None:
        for name, peer, number in self._ledger.balance() if self._ledger is not None else ():
            stable = self._places[name].stable
            if stable is not None:
                stable.add(peer, number)


def notifying(places: dict[str, DomainPlace | LinkPlace]) -> dict[str, SafeNotification]:
    """Return what tells in each place what is safe, where something does."""
    return {name: place.notice for name, place in places.items() if place.notice is not None}


def _into(domain: str) -> str:
    """What keeps an account open while another replica should forward a message into a domain."""
    return f"into {domain}"
