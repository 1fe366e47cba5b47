"""What it costs to make a table or a set of keys, found out before it is made.

Rules:

* A table finds a key by its hash: it looks at one place after the other until one is free. The hashes of numbers and lists are no
  secret, so whoever writes the keys can make each look at all before it. That takes hours for 16 MiB, whether the hashes are the
  same (lists) or only lead to the same places (numbers).
* So the places are gone through here as Python does it, by ``Objects/dictobject.c`` and ``Objects/setobject.c``, and no more than
  ``MAX_LOOKS`` for each key. With hashes at random it is one, with those of 100,000 numbers that are far apart up to 24.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_LOOKS: Final = 64
"""How many places may be looked at for each key, on average."""

LEAST: Final = 8
"""How many places there are at first."""
SHIFT: Final = 5
ROW: Final = 9
"""How many places next to one that is taken a set looks at before it goes elsewhere."""
ROW_LOOKS: Final = 3
"""As how many such a row counts: the places are in memory together."""
MANY: Final = 50_000
"""A set with more makes itself twice as large, one with fewer four times."""
_ALL: Final = 2**64 - 1


def is_costly(hashes: Sequence[int], *, as_set: bool = False) -> bool:
    """Say whether too many places are looked at when keys with these hashes are put into a table, or a set, one by one."""
    size, done = LEAST, 0
    places: list[int | None] = [None] * size
    row_length = ROW if as_set else 0
    while True:
        # A table grows before a key that there is no room for, a set behind the one that makes it too full.
        room = -(-3 * (size - 1) // 5) if as_set else 2 * size // 3
        if _fill(places, hashes[done:room], row_length):
            return True
        done = room
        if done >= len(hashes):
            return False
        again = [one for one in places if one is not None] if as_set else hashes[:done]
        wanted = done * (3 if not as_set else 2 if done > MANY else 4)
        size = 1 << (wanted if as_set else wanted - 1).bit_length()
        places = [None] * size
        if _fill(places, again, row_length):
            return True


def _fill(places: list[int | None], hashes: Sequence[int], row_length: int) -> bool:
    """Put hashes into their places; say whether too many were looked at."""
    mask = len(places) - 1
    left = MAX_LOOKS * len(places) // 2  # About half of them are taken in the end.
    for one in hashes:
        at = one & mask
        if places[at] is not None:
            rest = one & _ALL
            while places[at] is not None:
                if row_length and at + row_length <= mask:
                    row = places[at + 1 : at + row_length + 1]
                    if None in row:
                        at += 1 + row.index(None)
                        break
                    left -= ROW_LOOKS - 1
                rest >>= SHIFT
                at = (5 * at + rest + 1) & mask
                left -= 1
                if left < 0:
                    return True
        places[at] = one
    return False
