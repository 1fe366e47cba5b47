"""Messages of others that a member keeps to repeat them, where whoever has one may be asked for it. See
``core.transport.ack_all``.

Rules:

* A copy is kept until all are known to have it.
* Of each stream at least so much is kept as its sender may have on its way, which is ``WINDOW`` messages or ``WINDOW_BYTES``: if
  that one dies, whoever was not behind lacks only some of these. Beside that there are at most ``MAX_COPIES`` in all, of
  ``MAX_COPIES_BYTES``; beyond it the oldest of the stream that grows is dropped, and its sender still has it.
* Where a domain spans two sites, some of them go on from us at once (``Onward``): ``core.transport.ack_all.lanes`` says to whom.
* Only what is before every hole of a stream is dropped for want of room: nothing with a lower number comes later.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from thence.core.transport.ack_all.state import AckAllState, AckGroup, Drafts, StreamMessage
from thence.core.transport.acks import Attempt
from thence.core.transport.channel import WINDOW
from thence.core.transport.window import WINDOW_BYTES

MAX_COPIES = 16 * WINDOW
"""How many copies there may be beside the last ``WINDOW`` of each stream."""

MAX_COPIES_BYTES = 16 * WINDOW_BYTES
"""How many bytes of copies there may be beside the last ``WINDOW_BYTES`` of each stream."""


class Copies:
    """Messages of others, by stream and number, within their limits. Streams are numbered."""

    def __init__(
        self, kept: list[dict[int, StreamMessage[Any]]], received_upto: list[int], limit_bytes: int = MAX_COPIES_BYTES
    ) -> None:
        """Look after what is ``kept`` of each stream, of which all up to a number was taken.

        ``limit_bytes`` counts where it is less than ``MAX_COPIES_BYTES``.
        """
        self.limit_bytes = limit_bytes
        self.kept = kept
        self.count = sum(map(len, kept))
        self._bytes = [sum(message.weight for message in copies.values()) for copies in kept]
        self._beside = [0] * len(kept)
        self._beside_bytes = [0] * len(kept)
        self._all_beside = self._all_beside_bytes = 0
        self._gone_upto = [min(upto, min(copies, default=upto + 1) - 1) for copies, upto in zip(kept, received_upto, strict=True)]
        """Up to which number of each stream no copy is kept any more."""
        for stream in range(len(kept)):
            self._count_beside(stream)

    def add(self, stream: int, number: int, message: StreamMessage[Any], received_upto: int) -> None:
        """Keep a message; all up to a number of its stream were taken."""
        self.kept[stream][number] = message
        self.count += 1
        self._bytes[stream] += message.weight
        self._count_beside(stream)
        while self._too_many and self._drop_oldest(stream, received_upto):
            self._count_beside(stream)

    def forget(self, stream: int, stable_upto: int, received_upto: int) -> int:
        """Drop what all have of a stream, up to a number; return how many copies that were."""
        copies = self.kept[stream]
        if not copies:
            self._gone_upto[stream] = received_upto
            return 0
        before = len(copies)
        for number in range(self._gone_upto[stream] + 1, stable_upto + 1):
            message = copies.pop(number, None)
            if message is not None:
                self._bytes[stream] -= message.weight
        self._gone_upto[stream] = max(stable_upto, self._gone_upto[stream])
        dropped = before - len(copies)
        if dropped:
            self.count -= dropped
            self._count_beside(stream)
        return dropped

    @property
    def _too_many(self) -> bool:
        return self._all_beside > MAX_COPIES or self._all_beside_bytes > min(MAX_COPIES_BYTES, self.limit_bytes)

    def _count_beside(self, stream: int) -> None:
        """Count anew how much of a stream there is beside what its sender may have on its way."""
        count, size = max(0, len(self.kept[stream]) - WINDOW), max(0, self._bytes[stream] - WINDOW_BYTES)
        self._all_beside += count - self._beside[stream]
        self._all_beside_bytes += size - self._beside_bytes[stream]
        self._beside[stream], self._beside_bytes[stream] = count, size

    def _drop_oldest(self, stream: int, received_upto: int) -> bool:
        """Drop the copy with the lowest number, if there is enough behind it, and nothing before it is missing."""
        copies = self.kept[stream]
        number = self._gone_upto[stream] + 1
        while number not in copies:
            if number > received_upto:
                return False
            number += 1
        weight = copies[number].weight
        enough = len(copies) > WINDOW or self._bytes[stream] - weight >= WINDOW_BYTES
        if number > received_upto or not enough:
            return False
        del copies[number]
        self._gone_upto[stream] = number
        self.count -= 1
        self._bytes[stream] -= weight
        return True


class KeptCopies:
    """The copies of one member, and what the others are known to have of them."""

    def __init__(self, group: AckGroup, state: AckAllState[Any]) -> None:
        """Go on from a saved state."""
        self._group = group
        self._state = state
        self.held = Copies(state.copies, [received.upto for received in state.received], group.max_copies_bytes)
        self._changed: dict[int, None] = dict.fromkeys(range(len(group.members))) if group.copying else {}
        """Streams of which copies may be dropped by now."""
        self.probe: Attempt | None = None
        """When to ask who has what we keep."""

    def changed(self, stream: int) -> None:
        """Note that we or others have more of a stream."""
        self._changed[stream] = None

    def add(self, stream: int, number: int, message: StreamMessage[Any]) -> None:
        """Keep a message that was taken."""
        self.held.add(stream, number, message, self._state.received[stream].upto)

    def forget(self, now: int) -> None:
        """Drop the copies of what everybody is known to have."""
        dropped = 0
        for stream in self._changed:
            received_upto = self._state.received[stream].upto
            known = [self._state.known_of(other, stream).upto for other in self._group.others if other != stream]
            dropped += self.held.forget(stream, min([received_upto, *known]), received_upto)
        self._changed = {}
        count, wait_ns = self.held.count, self._group.resend_after_ns
        if dropped or (count and self.probe is None):
            self.probe = Attempt.after(now, wait_ns) if count else None

    def ask(self, now: int, drafts: Drafts) -> None:
        """Ask members that are not known to have what we keep, if we have not heard of it for long."""
        if self.probe is None or now < self.probe.due:
            return
        self.probe.again(now)
        for stream, copies in enumerate(self._state.copies):
            if copies:
                newest = max(copies)
                for other in self._group.others:
                    if other != stream and self._state.known_of(other, stream).upto < newest:
                        drafts.to(other).wanted = True


class Onward:
    """Messages of others that go on from us to the rest of a site, or across to the other one."""

    def __init__(self, group: AckGroup, state: AckAllState[Any]) -> None:
        """Nothing goes on yet. Without lanes nothing ever does."""
        self._group = group
        self._state = state
        self.came_by: dict[tuple[int, int], int] = {}
        """From whom each message of this step came."""
        self.targets: dict[tuple[int, int], list[int]] = {}
        """To whom each message that was taken in this step goes."""

    def came(self, stream: int, number: int, source: int) -> None:
        """Note by whom a message came."""
        if self._group.lanes is not None:
            self.came_by[stream, number] = source

    def took(self, stream: int, number: int, suspected: Collection[int]) -> None:
        """Note that a message was taken, and find out to whom it goes on."""
        lanes, came_by = self._group.lanes, self.came_by.get((stream, number))
        if lanes is not None and came_by is not None:
            lanes.came_out(stream, number)
            self.targets[stream, number] = lanes.onward(stream, number, came_by, suspected)

    def hand_on(self, drafts: Drafts) -> None:
        """Send on what was taken in this step."""
        for (stream, number), targets in self.targets.items():
            lacking = [target for target in targets if number not in self._state.known_of(target, stream)]
            drafts.carry_all(lacking, stream, number, self._state.copies[stream].get(number))
        self.targets, self.came_by = {}, {}
