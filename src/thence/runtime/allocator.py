"""What the C library does with large pieces of memory that are given back.

By default it returns them to the system at once, and every packet or bundle then begins with pages that have to be mapped and
cleared anew: a quarter of the time of a server whose messages have 1 KiB. A server that has needed memory once will need it
again. In a program with a member inside, that is the program's decision, and ``MALLOC_TRIM_THRESHOLD_`` in its environment does
the same.
"""

from __future__ import annotations

import ctypes
from typing import Final

KEPT_BYTES: Final = 64 * 1024 * 1024
"""How much may lie free at the end of the heap before it is given back."""

MAPPED_FROM_BYTES: Final = 32 * 1024 * 1024
"""From this size on a piece is mapped by itself, and given back at once; the C library allows no more."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Keep memory that is given back, up to a limit; return whether the C library knows how to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES))
