"""Which numbers of a stream have been seen, exactly.

A bare maximum is not enough where numbers may overtake each other: what was overtaken would look like a repetition
and be lost. So a set is kept as "all up to ``upto``, and these beyond", which is small as long as the holes get
filled.
"""

from __future__ import annotations

import msgspec


class NumberSet(msgspec.Struct, array_like=True):
    """A set of numbers from 1 on: all up to ``upto``, and those in ``beyond``."""

    upto: int = 0
    beyond: dict[int, None] = msgspec.field(default_factory=dict)
    """What lies behind a hole; few, as long as holes get filled. A table and no set, since its order is always the same."""

    def __contains__(self, number: int) -> bool:
        return number <= self.upto or number in self.beyond

    @property
    def count(self) -> int:
        """How many numbers are in it."""
        return self.upto + len(self.beyond)

    @property
    def highest(self) -> int:
        """The highest number in it, or 0."""
        return max(self.beyond, default=self.upto)

    def copy(self) -> NumberSet:
        """Return an independent copy."""
        return NumberSet(self.upto, dict(self.beyond))

    def add_upto(self, number: int) -> None:
        """Add all numbers up to this one."""
        if number > self.upto:
            self.upto = number
            self.beyond = {later: None for later in self.beyond if later > number}
            self._fill()

    def add(self, number: int) -> bool:
        """Add ``number``; return whether it was new."""
        if number in self:
            return False
        if number != self.upto + 1:
            self.beyond[number] = None
            return True
        self.upto = number
        if self.beyond:
            self._fill()
        return True

    def _fill(self) -> None:
        while self.beyond and self.upto + 1 in self.beyond:
            self.upto += 1
            del self.beyond[self.upto]
