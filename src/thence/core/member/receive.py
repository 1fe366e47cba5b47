"""Packets that arrive: which frames are taken, kept aside or refused, and what is stored of it.

Rules:

* A frame is acknowledged only by a packet that leaves after its record is on disk.
* What cannot be taken for want of room comes again, and what follows it in the packet must not overtake it: the rest of the
  packet waits too. What can never be taken is skipped, so that nobody repeats it.
* A frame that nobody can have sent this way is refused before anything follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Ready, as_values
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Cascade, Forwarder
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.protocol import FABRIC, View
from thence.core.reconfig.retention import Retention
from thence.core.stability.accounts import IN_ORDER
from thence.core.stability.safe_turn import Deliverable
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Passed, Received, Record, Skipped
from thence.errors import FrameRefused, ImpossibleFrame, InternalError, OverflowingFrame, StrangerFrame


class Accounting:
    """Accounts of what follows from each frame, in a topology that finds out what is stable (``core.stability.accounts``).

    A frame that only arrives here is stable when it is taken. A frame whose message goes on from here is stable when all that
    followed from it is. Where an attachment has no accounts, nothing is done.
    """

    def __init__(self, attachment: Attachment) -> None:
        """Keep the accounts of ``attachment``."""
        self._attachment = attachment

    def pending(self, place: DomainPlace | LinkPlace, envelope: Envelope | None) -> int:
        """Return how many frames have followed from a message that came by a place and are not stable."""
        accounts = self._attachment.accounts
        return 0 if accounts is None or envelope is None else accounts.pending(envelope, place.name)

    def took(self, place: DomainPlace | LinkPlace, incoming: Incoming, pending: int, released: Sequence[Envelope | None]) -> None:
        """Note that a frame was taken: it is stable, unless something follows from it, now or when it has its turn.

        ``pending`` is what had followed before it was taken, and ``released`` which messages were released by it.
        """
        accounts, envelope, stable = self._attachment.accounts, incoming.frame.envelope, place.stable
        if accounts is None or stable is None:
            return
        if envelope is not None:
            follows = accounts.pending(envelope, place.name) > pending
            if not follows and not any(one is envelope for one in released) and self.will_go_on(place, envelope):
                accounts.open(envelope, place.name, IN_ORDER)
            if follows or accounts.is_open(envelope, place.name):
                accounts.owe(envelope, (place.name, incoming.peer, incoming.number))
                return
        stable.add(incoming.peer, incoming.number)

    def will_go_on(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether a message that was not released waits here for its turn and is handed on then."""
        here = self._attachment
        if isinstance(place, LinkPlace):
            return any(one is envelope for one in place.end.state.arrived.values())
        if not place.ordering.pending.held:
            return False
        if place.ordering.traits.passes_on:
            return True
        if str(envelope.id) in place.echoes or (here.takeover is not None and here.takeover.is_copy(place.name, envelope)):
            return False
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        return bool(plan.into or plan.across)

    def note_stable(self, place: DomainPlace | LinkPlace) -> None:
        """Note what others have just reported to be stable."""
        accounts = self._attachment.accounts
        if accounts is not None and place.stable is not None:
            for envelope, came_by in place.stable.take_news():
                accounts.became_stable(envelope, came_by)


class Receiver:
    """Takes frames into the places of an attachment, and lets a forwarder do what follows."""

    def __init__(
        self,
        attachment: Attachment,
        log: DeliveryLog,
        admission: Admission,
        forwarder: Forwarder,
        view: View,
        retained: Retention | None,
    ) -> None:
        """``admission`` says for what there is room, and ``view`` to whom we do not listen any more."""
        self._attachment = attachment
        self._log = log
        self._admission = admission
        self._forwarder = forwarder
        self._view = view
        self._retained = retained
        self._accounting = Accounting(attachment)

    def arrived(self, arrived: Arrived, now: int) -> Ready:
        """Take the frames of a packet; those that are refused are listed by name, and the others are taken."""
        here, peer, packet = self._attachment, arrived.peer, arrived.packet
        if self._view.state.lost and self._view.deaf_to(peer):
            return Ready(wake=here.wake())
        place = here.places.get(packet.domain)
        try:
            if place is None:
                raise StrangerFrame(
                    f"a packet for {packet.domain!r} from {peer!r} at {here.name!r}, which takes part in {', '.join(here.places)}"
                )
            queued = place.transport.queued
            frames = place.frames_in(peer, packet, now)
        except FrameRefused as refusal:
            return Ready(refused=as_values([refusal]), wake=here.wake())
        if queued:
            here.in_memory += place.transport.queued - queued
        if here.accounts is not None:
            self._accounting.note_stable(place)
        deliver, records, refused = self._take_all(place, frames, now)
        if place.guard is not None and (news := place.guard.news()):
            passed = Passed(packet.domain, news, now)
            more, refusals = self.release(place, passed)
            deliver += more
            refused += refusals
            records += [passed] if here.options.durable else []
        return self._log.ready(deliver, now, records, refused=as_values(refused) if refused else ())

    def _take_all(
        self, place: DomainPlace | LinkPlace, frames: list[Incoming], now: int
    ) -> tuple[Deliverable, list[Record], list[FrameRefused]]:
        """Take frames one after the other; return what is for us, what is to be stored, and what was refused."""
        deliver: Deliverable = []
        records: list[Record] = []
        refused: list[FrameRefused] = []
        options = self._attachment.options
        for incoming in frames:
            if full := self._admission.full_for(place, incoming):
                refused.append(OverflowingFrame(f"frames from {incoming.peer!r} at {self._attachment.name!r}: {full}"))
                break
            try:
                deliver += self.take(place, incoming, now)
            except OverflowingFrame as refusal:
                refused.append(refusal)
                break
            except FrameRefused as refusal:
                refused.append(refusal)
                if options.durable and options.reliable:
                    records.append(Skipped(place.name, incoming.peer, incoming.number))
                continue
            if options.durable:
                records.append(Received(place.name, incoming.peer, incoming.number, incoming.frame, now, incoming.to))
        return deliver, records, refused

    def take(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, *, stored: bool = False) -> Deliverable:
        """Take one frame, now or when everybody has it; ``stored``: it was taken before, and is read from disk."""
        if place.notice is not None:
            return self._accept_with_notice(place, incoming, now, stored)
        if place.guard is None:
            return self._accept(place, incoming, now, stored)
        place.guard.put_aside(incoming, now)
        return []

    def _accept_with_notice(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, stored: bool) -> Deliverable:
        """Accept one frame, and note it before anything follows from it (``core.stability.safe_notification``)."""
        notices = self._attachment.notices
        if notices is None:
            raise InternalError(f"{place.name!r} at {self._attachment.name!r} says what is safe, and nobody listens")
        notices.received(place.name, incoming)
        try:
            return self._accept(place, incoming, now, stored)
        except OverflowingFrame:
            notices.not_received()
            raise

    def release(self, place: DomainPlace | LinkPlace, passed: Passed) -> tuple[Deliverable, list[FrameRefused]]:
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
                        deliver += self._accept(place, incoming, passed.at, stored=False)
                except OverflowingFrame as refusal:
                    full[incoming.peer] = refusal
                except FrameRefused as refusal:
                    refused.append(refusal)
                if incoming.peer in full:
                    waiting.append(incoming)
        for incoming in waiting:
            place.guard.put_back(incoming, passed.at)
        return deliver, [*refused, *full.values()]

    def _accept(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, stored: bool) -> Deliverable:
        """Accept one frame: the ordering or the link first, since it may refuse; then the transport, which then acks it."""
        here = self._attachment
        pending = 0 if here.accounts is None else self._accounting.pending(place, incoming.frame.envelope)
        try:
            if not stored:
                self._check(place, incoming)
            if here.flat and isinstance(place, DomainPlace):
                return self._accept_flat(place, incoming, now, pending)
            cascade = self._put_in_order(place, incoming, now)
        except OverflowingFrame:
            raise  # Not acknowledged: the peer will send it again.
        except FrameRefused:
            place.transport.skip(incoming.peer, incoming.number)  # It will never become acceptable: do not ask for it again.
            raise
        place.transport.take(incoming)
        if here.accounts is None:
            return self._forwarder.drain(cascade)
        released = [one.envelope for _, one in cascade.released]
        deliver = self._forwarder.drain(cascade)
        self._accounting.took(place, incoming, pending, released)
        return deliver

    def _put_in_order(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int) -> Cascade:
        """Give a frame to the ordering of a domain or to our end of a link; return what was released."""
        cascade, forwarder, frame = Cascade(), self._forwarder, incoming.frame
        if isinstance(place, LinkPlace):
            cascade.came_by = place.name
            forwarder.cross(place, place.end.accept(incoming.peer, frame, now), cascade)
            return cascade
        early = place.forward_early is not None
        held = len(place.ordering.pending) if early else 0
        output = place.ordering.accept(incoming.peer, frame, now)
        if early and len(place.ordering.pending) > held:
            forwarder.send_body_ahead(place, frame.envelope)
        if output.send:
            forwarder.push(place, output.send, place.name)
        cascade.released = [(place, released) for released in output.deliver]
        return cascade

    def _accept_flat(self, place: DomainPlace, incoming: Incoming, now: int, pending: int) -> Deliverable:
        """Accept one frame where there is one domain: what is released is for us, and nothing is to be forwarded."""
        output = place.ordering.accept(incoming.peer, incoming.frame, now)
        if output.send:
            self._forwarder.push(place, output.send, place.name)
        place.transport.take(incoming)
        accounts, retained = self._attachment.accounts, self._retained
        if accounts is not None:
            released = [one.envelope for one in output.deliver]
            for envelope in released:
                if envelope is not None:
                    accounts.close(envelope, place.name, IN_ORDER)
            self._accounting.took(place, incoming, pending, released)
        if retained is not None:
            for frame in output.deliver:
                if frame.envelope is not None:
                    retained.keep(frame.envelope)
        return [(place.name, released) for released in output.deliver]

    def _check(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> None:
        """Refuse a message that nobody can have sent this way."""
        here, envelope = self._attachment, incoming.frame.envelope
        if envelope is None:
            return
        if envelope.origin == FABRIC:  # Only a member's own part in a change says that (``core.member.reconfigure``).
            why = "claims to be news of the fabric"
        elif not here.knows(envelope):
            named = (envelope.origin, *(envelope.to or ()))
            stranger = next(name for name in named if name not in here.topology.homes)
            why = f"message {envelope.id} names {stranger!r}, and there is no such process in fabric {here.topology.name!r}"
        elif not self._may_come(place, incoming.peer, envelope):
            why = f"message {envelope.id} is forged: {incoming.peer!r} is not on its way here"
        else:
            return
        raise ImpossibleFrame(f"frame {incoming.number} from {incoming.peer!r} at {here.name!r}: {why}")

    def _may_come(self, place: DomainPlace | LinkPlace, peer: str, envelope: Envelope) -> bool:
        """Return whether a peer may bring a message: it is on the way from its origin. Ours come back only after we sent them."""
        here = self._attachment
        ours = envelope.origin == here.name
        if ours and envelope.number > self._forwarder.number:
            return False
        if isinstance(place, LinkPlace):
            return True
        if place.ordering.traits.passes_on:
            return not ours or place.ordering.paths.gets_back
        return peer in here.routes.entries(place.name, envelope.origin)
