"""Messages of others that a member keeps to repeat them, where whoever has one may be asked for it. See ``core.distributed``.

Rules:

* A copy is kept until all are known to have it.
* Of each stream at least so much is kept as its sender may have on its way, which is ``WINDOW`` messages or ``WINDOW_BYTES``: if
  that one dies, whoever was not behind lacks only some of these. Beside that there are at most ``MAX_COPIES`` in all, of
  ``MAX_COPIES_BYTES``; beyond it the oldest of the stream that grows is dropped, and its sender still has it.
* Only what is before every hole of a stream is dropped for want of room: nothing with a lower number comes later.
"""

from __future__ import annotations

from typing import Any

from thence.core.channel import WINDOW
from thence.core.streams import Message
from thence.core.window import WINDOW_BYTES

MAX_COPIES = 16 * WINDOW
"""How many copies there may be beside the last ``WINDOW`` of each stream,"""

MAX_COPIES_BYTES = 16 * WINDOW_BYTES
"""and of how many bytes beside the last ``WINDOW_BYTES`` of each stream."""


class Copies:
    """See the module's text. Streams are numbered."""

    def __init__(self, kept: list[dict[int, Message[Any]]], taken_upto: list[int]) -> None:
        """Look after what is ``kept`` of each stream, of which all up to a number was taken."""
        self.kept = kept
        self.count = sum(map(len, kept))
        self._bytes = [sum(message.weight for message in copies.values()) for copies in kept]
        self._beside = [0] * len(kept)
        self._beside_bytes = [0] * len(kept)
        self._all_beside = self._all_beside_bytes = 0
        self._gone_upto = [min(upto, min(copies, default=upto + 1) - 1) for copies, upto in zip(kept, taken_upto, strict=True)]
        """Up to which number of each stream no copy is kept any more."""
        for stream in range(len(kept)):
            self._count_beside(stream)

    def add(self, stream: int, number: int, message: Message[Any], taken_upto: int) -> None:
        """Keep a message; all up to a number of its stream were taken."""
        self.kept[stream][number] = message
        self.count += 1
        self._bytes[stream] += message.weight
        self._count_beside(stream)
        while self._too_many and self._drop_oldest(stream, taken_upto):
            self._count_beside(stream)

    def forget(self, stream: int, stable_upto: int, taken_upto: int) -> int:
        """Drop what all have of a stream, up to a number; return how many copies that were."""
        copies = self.kept[stream]
        if not copies:
            self._gone_upto[stream] = taken_upto
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
        return self._all_beside > MAX_COPIES or self._all_beside_bytes > MAX_COPIES_BYTES

    def _count_beside(self, stream: int) -> None:
        """Count anew how much of a stream there is beside what its sender may have on its way."""
        count, size = max(0, len(self.kept[stream]) - WINDOW), max(0, self._bytes[stream] - WINDOW_BYTES)
        self._all_beside += count - self._beside[stream]
        self._all_beside_bytes += size - self._beside_bytes[stream]
        self._beside[stream], self._beside_bytes[stream] = count, size

    def _drop_oldest(self, stream: int, taken_upto: int) -> bool:
        """Drop the copy with the lowest number, if there is enough behind it, and nothing before it is missing."""
        copies = self.kept[stream]
        number = self._gone_upto[stream] + 1
        while number not in copies:
            if number > taken_upto:
                return False
            number += 1
        weight = copies[number].weight
        enough = len(copies) > WINDOW or self._bytes[stream] - weight >= WINDOW_BYTES
        if number > taken_upto or not enough:
            return False
        del copies[number]
        self._gone_upto[stream] = number
        self.count -= 1
        self._bytes[stream] -= weight
        return True
