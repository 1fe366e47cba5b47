"""Packets that arrive: which frames are taken, kept aside or refused, and what is stored of it.

Rules:

* A frame is acknowledged only by a packet that leaves after its record is on disk.
* What cannot be taken for want of room comes again, and what follows it in the packet must not overtake it: the rest of the
  packet waits too. What can never be taken is skipped, so that nobody repeats it.
* A frame that nobody can have sent this way is refused before anything follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thence.core.member.admission import Admission
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Arrived, Ready, as_values
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Cascade, Forwarder
from thence.core.ordering import survival_of
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.protocol import FABRIC, View
from thence.core.reconfig.retention import Retention
from thence.core.stability.accounts import IN_ORDER
from thence.core.stability.safe_turn import Deliverable
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Received, Record, Skipped
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
            here_by_now = any(one is not None and one.id == envelope.id for one in released)  # It may have a new vector.
            waits = not follows or (isinstance(place, DomainPlace) and place.ordering.traits.secures)
            if waits and not here_by_now and (self.will_go_on(place, envelope) or self._has_no_turn_yet(place, envelope)):
                accounts.open(envelope, place.name, IN_ORDER)
            stands_in = self._attachment.topology.uniform and incoming.peer in self._attachment.topology.fellows
            if follows or accounts.is_open(envelope, place.name) or (stands_in and accounts.knows(envelope, place.name)):
                accounts.owe(envelope, (place.name, incoming.peer, incoming.number))
                return
        stable.add(incoming.peer, incoming.number)

    def _has_no_turn_yet(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether a message waits here for what comes first, where that counts: nobody may ever have that.

        Who is told that a message is safe relies on it that all will deliver it.
        """
        here = self._attachment
        if not here.topology.uniform or isinstance(place, LinkPlace) or not place.ordering.traits.direct:
            return False
        takeover = here.takeover
        second = takeover is not None and (takeover.is_copy(place.name, envelope) or takeover.has(envelope))
        return bool(place.ordering.pending.held) and not second

    def will_go_on(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether a message that was not released waits here for its turn and is handed on then."""
        here = self._attachment
        if isinstance(place, LinkPlace):
            return any(one is envelope for one in place.end.state.arrived.values())
        if not place.ordering.pending.held:
            return False
        if place.ordering.traits.passes_on:
            return True
        if place.ordering.traits.secures and not any(one is envelope for one in place.ordering.pending.messages()):
            return False  # It is a copy for others, or was handed on when it was here already.
        if str(envelope.id) in place.echoes or (here.takeover is not None and here.takeover.is_copy(place.name, envelope)):
            return False
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        return bool(plan.into or plan.across)


@dataclass(eq=False)
class Receiver:
    """Takes frames into the places of an attachment, and lets a forwarder do what follows.

    ``_admission`` says for what there is room, and ``_view`` to whom we do not listen any more.
    """

    _attachment: Attachment
    _log: DeliveryLog
    _admission: Admission
    _forwarder: Forwarder
    _view: View
    _retained: Retention | None

    def __post_init__(self) -> None:
        self._accounting = Accounting(self._attachment)

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
        deliver, records, refused = self._take_all(place, frames, now)
        if here.takeover is not None:
            deliver += self._forwarder.share_news(now, records)
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
        """Take one frame; ``stored``: it was taken before, and is read from disk."""
        if place.notice is not None:
            return self._accept_with_notice(place, incoming, now, stored)
        return self._accept(place, incoming, now, stored)

    def _accept_with_notice(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, stored: bool) -> Deliverable:
        """Accept one frame, and note it before anything follows from it (``core.stability.safe_notification``)."""
        notices = self._attachment.notices
        if notices is None:
            raise InternalError(f"{place.name!r} at {self._attachment.name!r} says what is safe, and nobody listens")
        notices.received(place.name, incoming)
        try:
            return self._accept(place, incoming, now, stored)
        except FrameRefused:  # Nothing followed from it. Nor may who sent it hold up notices by what is refused.
            notices.not_received()
            raise

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
        forwarder.secure(output)
        if early and len(place.ordering.pending) > held:
            forwarder.send_body_ahead(place, frame.envelope)
        if output.send:
            forwarder.push(place, output.send, place.name)
        cascade.released = [(place, released) for released in output.deliver]
        return cascade

    def _accept_flat(self, place: DomainPlace, incoming: Incoming, now: int, pending: int) -> Deliverable:
        """Accept one frame where there is one domain: what is released is for us, and nothing is to be forwarded."""
        output = place.ordering.accept(incoming.peer, incoming.frame, now)
        self._forwarder.secure(output)
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
        elif not self._may_come(place, incoming, envelope):
            why = f"message {envelope.id} is forged: {incoming.peer!r} is not on its way here"
        else:
            here.seen.check(envelope)
            return
        raise ImpossibleFrame(f"frame {incoming.number} from {incoming.peer!r} at {here.name!r}: {why}")

    def _may_come(self, place: DomainPlace | LinkPlace, incoming: Incoming, envelope: Envelope) -> bool:
        """Return whether a peer may bring a message: it is on the way from its origin. Ours come back only after we sent them."""
        here = self._attachment
        ours = envelope.origin == here.name
        if ours and envelope.number > self._forwarder.number:
            return False
        if isinstance(place, LinkPlace):
            return True
        if place.ordering.traits.passes_on:
            copied = here.takeover is not None and here.takeover.is_copy(place.name, envelope)  # By another replica.
            return not ours or copied or place.ordering.paths.gets_back
        peer, survival = incoming.peer, survival_of(place.ordering)
        first_sender = peer if survival is None else survival.first_sender(peer, incoming.frame)
        return first_sender in here.routes.entries(place.name, envelope.origin)
