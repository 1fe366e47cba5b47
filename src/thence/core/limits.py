"""How much a member takes and accepts: its limits, and which one is reached.

This is the lower half of ``core.member``, below ``core.spilling``, in a file of its own so that each can be read in one go.

Rules:

* What cannot be taken is not acknowledged, so that whoever sent it keeps it and pushes back in turn.
* Nobody may refuse what somebody else waits for, in order to wait for that one itself. So a frame is refused only for want of
  room where it would go from here, never for what goes the other way: domains form no cycle, so waits lead ever further away
  from where they began, and come to an end. Two relays that are full of what each has for the other still take it.
* For want of room for what is not known to be safe (``core.noticing``) no frame is refused: whatever holds that up is not
  acknowledged by somebody, and fills a queue.
* In a domain with safe delivery
  (``core.guarding``) a member waits until all others have taken a message of its own, and whatever it would deliver behind it
  waits too. How much of that there is (``late``) does not keep it from taking the others' frames: they may wait for just
  that. It keeps it from taking frames in other domains, and from accepting more of its own.
* For the same reason each member has a share of the room for what is kept aside. A sender's first message that not all have
  has room wherever it is missing, since all before it have passed there.
"""

from __future__ import annotations

from abc import abstractmethod

import msgspec

from thence.core.channel import RESEND_AFTER_NS
from thence.core.messages import Envelope
from thence.core.ordering import MAX_HELD
from thence.core.overflow import SpillRoom
from thence.core.places import DomainPlace, LinkPlace
from thence.core.spilling import Spilling
from thence.core.takeover import MAX_KEPT, OriginalFirst
from thence.core.transport import Incoming
from thence.errors import Busy

MAX_QUEUED = 100_000
"""How many frames may wait for acknowledgement, on all channels together, before the application's sends are refused as busy."""

MAX_QUEUED_HARD = 16 * MAX_QUEUED
"""The same for frames that we send on for others into one domain or link. Beyond it what would go there is not taken, so that
its senders push back in turn."""

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""How many bytes those frames may take before the application's sends are refused as busy."""

MAX_QUEUED_BYTES_HARD = 4 * MAX_QUEUED_BYTES
"""The same for frames that we send on for others."""

MAX_ECHOES = MAX_QUEUED_HARD
"""How many messages that we put into domains may be on their way back to us, by way of a sequencer: we keep their names."""

MAX_UNCONSUMED = 100_000
"""How many deliveries may wait for the application to be done with them before no more frames are taken."""

MAX_UNCONSUMED_BYTES = 256 * 1024 * 1024
"""How many bytes those deliveries may have."""

MAX_LATE_HARD = 16 * MAX_UNCONSUMED
"""How many may wait until all have a message of our own, before even what follows from deliveries is refused as busy, and frames
of domains in which all wait for each other are not taken."""

MAX_LATE_BYTES_HARD = 16 * MAX_UNCONSUMED_BYTES
"""How many bytes those may have."""


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member works. The defaults are for a real network and a real disk."""

    reliable: bool = True
    """Number, acknowledge and repeat frames. Without it the network is trusted to be exact, as in the explorer."""
    durable: bool = True
    """Ask for records to be made durable, and keep deliveries until they are consumed."""
    max_held: int = MAX_HELD
    max_queued: int = MAX_QUEUED
    max_queued_bytes: int = MAX_QUEUED_BYTES
    max_unconsumed: int = MAX_UNCONSUMED
    max_unconsumed_bytes: int = MAX_UNCONSUMED_BYTES
    resend_after_ns: int = RESEND_AFTER_NS
    confirm_within_ns: int = 0
    """How long a confirmation may wait for a frame that goes the same way, where the domain does not say (``core.channel``)."""
    retain_bytes: int = 0
    """How many bytes of copies of messages to keep, so that members can be lost without harm to others (``core.retention``)."""
    spill: SpillRoom | None = None
    """How much may wait for a peer in memory, where whoever runs the member keeps more of it elsewhere (``core.overflow``)."""


class Limiting(Spilling):
    """See the module's text."""

    @abstractmethod
    def queued(self) -> dict[str, int]:
        """Return how many frames to each peer we keep."""

    @property
    def queued_bytes(self) -> int:
        """How many bytes peers have not acknowledged yet, about; a body counts once for each peer."""
        return sum([place.transport.queued_bytes for place in self._places.values()])

    def _check_room(self, *, hard: bool) -> None:
        most, most_bytes = self.options.max_queued, self.options.max_queued_bytes
        if not self._flat and self._echoes >= MAX_ECHOES:
            raise Busy(self._full())
        if hard and (self._queued >= MAX_QUEUED_HARD or self.queued_bytes >= MAX_QUEUED_BYTES_HARD):
            raise Busy(self._full())
        if not hard and self._queued >= most:
            queued = self.queued()
            slowest = max(queued, key=lambda peer: queued[peer])
            raise Busy(f"{self._queued} frames are not acknowledged, most of them by {slowest!r}; max_queued is {most}")
        if not hard and self.queued_bytes >= most_bytes:
            raise Busy(f"{self.queued_bytes} bytes are not acknowledged; max_queued_bytes is {most_bytes}")
        if self._notices is not None and self._notices.unsafe >= (MAX_QUEUED_HARD if hard else most):
            raise Busy(f"{self._notices.unsafe} messages that were sent from here are not safe; max_queued is {most}")
        if self._late and (too_late := self._too_late(hard=hard)):
            # Messages to ourselves queue for nobody, and yet wait behind those that others have to confirm.
            raise Busy(too_late)

    def _too_late(self, *, hard: bool, beside: tuple[int, int] = (0, 0)) -> str:
        """Say which limit is reached by what waits until all have a message of ours, if one is; so much counts ``beside``."""
        late = self._late
        if not late:
            return ""
        count, size = len(late) + beside[0], self._late_bytes + beside[1]
        most, most_bytes = (MAX_LATE_HARD, MAX_LATE_BYTES_HARD) if hard else self._most_unconsumed
        first = late[0][1].envelope
        waiting = f"{len(late)} deliveries wait until all have {first.id if first else 'a message'}"
        if count >= most:
            return f"{waiting}; {'MAX_LATE_HARD' if hard else 'max_unconsumed'} is {most}"
        if size >= most_bytes:
            limit = "MAX_LATE_BYTES_HARD" if hard else "max_unconsumed_bytes"
            return f"{waiting}, of {self._late_bytes} bytes; {limit} is {most_bytes}"
        return ""

    @property
    def _most_unconsumed(self) -> tuple[int, int]:
        return self.options.max_unconsumed, self.options.max_unconsumed_bytes

    def _full(self) -> str:
        """Say which limit is reached anywhere, if one is."""
        if self._queued >= MAX_QUEUED_HARD:
            return f"{self._queued} are not acknowledged; the limit is MAX_QUEUED_HARD"
        if self.queued_bytes >= MAX_QUEUED_BYTES_HARD:
            return f"{self.queued_bytes} bytes are not acknowledged; the limit is MAX_QUEUED_BYTES_HARD"
        if not self._flat and self._echoes >= MAX_ECHOES:
            return f"{self._echoes} have not come back to us; the limit is MAX_ECHOES"
        if self._takeover is not None and self._takeover.kept >= MAX_KEPT:
            return f"{self._takeover.kept} are kept for the replica that forwards; the limit is MAX_KEPT"
        return ""

    def _full_for(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit keeps us from taking a frame, if one does."""
        unconsumed, unconsumed_bytes = len(self._unconsumed), self._unconsumed_bytes
        most, most_bytes = self._most_unconsumed
        if unconsumed >= most:
            return f"the application has not consumed {unconsumed} deliveries; the limit is max_unconsumed"
        if unconsumed_bytes >= most_bytes:
            return f"the application has not consumed {unconsumed_bytes} bytes of deliveries; the limit is max_unconsumed_bytes"
        hard = place.guard is not None
        if place.guard is not None:
            aside, share = place.guard.aside_of(incoming.peer), max(1, self.options.max_held // len(place.peers))
            if aside >= share:
                return f"{aside} of its frames wait until all members have them; its share of max_held is {share}"
        if too_late := self._too_late(hard=hard, beside=(0, 0) if hard else (unconsumed, unconsumed_bytes)):
            return too_late
        return self._full_ahead(place, incoming) if self._full() else ""

    def _full_ahead(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit is reached where a frame would go from here, if one is."""
        peer, envelope = incoming.peer, incoming.frame.envelope
        within = place.hands_on_to(peer)
        if within:
            queued, weights = place.transport.queued_by_peer(), place.transport.queued_bytes_by_peer()
            full = _too_many(
                place.name, sum(queued.get(name, 0) for name in within), sum(weights.get(name, 0) for name in within)
            )
            if full or isinstance(place, LinkPlace):  # Another relay of the link puts it into the domain.
                return full
        if envelope is None or not self._knows(envelope) or str(envelope.id) in place.echoes:
            return ""
        takeover = self._takeover
        if takeover is not None and (takeover.is_copy(place.name, envelope) or takeover.has(envelope)):
            return ""
        plan = self.routes.plan(self.name, envelope.origin, envelope.to, place.name)
        return next(filter(None, [self._full_in(name, envelope) for name in (*plan.into, *plan.across)]), "")

    def _full_in(self, name: str, envelope: Envelope) -> str:
        """Say which limit keeps us from putting a message into a domain or link, if one does."""
        place = self._places[name]
        if len(place.echoes) >= MAX_ECHOES:
            return f"{name!r}: {len(place.echoes)} have not come back to us; the limit is MAX_ECHOES"
        kept = 0 if self._takeover is None else self._takeover.kept_for(name)
        if kept >= MAX_KEPT and not self._copy_waits(place, envelope):
            return f"{name!r}: {kept} are kept for the replica that forwards; the limit is MAX_KEPT"
        return _too_many(name, place.transport.queued, place.transport.queued_bytes)

    def _copy_waits(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether another replica has forwarded a message already, and what came behind it waits for the original."""
        if not isinstance(place, DomainPlace) or not isinstance(place.ordering.gate, OriginalFirst):
            return False
        return place.ordering.awaits(*place.ordering.gate.awaited(envelope))

    @property
    def _echoes(self) -> int:
        return sum([len(place.echoes) for place in self._domains.values()])


def _too_many(name: str, queued: int, queued_bytes: int) -> str:
    """Say which limit of a domain or link is reached by what is not acknowledged, if one is."""
    if queued >= MAX_QUEUED_HARD:
        return f"{name!r}: {queued} are not acknowledged; the limit is MAX_QUEUED_HARD"
    if queued_bytes >= MAX_QUEUED_BYTES_HARD:
        return f"{name!r}: {queued_bytes} bytes are not acknowledged; the limit is MAX_QUEUED_BYTES_HARD"
    return ""
