"""How a server uses memory: what the C library does with large pieces that are given back, and how often garbage is looked for.

By default the C library returns large pieces to the system at once, and every packet or batch then begins with pages that have
to be mapped and cleared anew: a quarter of the time of a server whose messages have 1 KiB. A server that has needed memory once
will need it again.

Python looks for garbage in circles after every few hundred new objects, and each time that it looks everywhere it visits all
modules, which are there for ever: a third of the time of such a server. What is there when a server has started is left out of
that, and young objects are looked at in larger numbers.

In a program with a member inside both are the program's decision: ``MALLOC_TRIM_THRESHOLD_`` in its environment, and
``gc.freeze`` and ``gc.set_threshold``.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

KEPT_BYTES: Final = 64 * 1024 * 1024
"""How much may lie free at the end of the heap before it is given back."""

MAPPED_FROM_BYTES: Final = 32 * 1024 * 1024
"""From this size on a piece is mapped by itself, and given back at once; the C library allows no more."""

YOUNG_OBJECTS: Final = 10_000
"""How many more objects than before there must be until the youngest are looked at."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> bool:
    """Keep memory that is given back, up to a limit; return whether the C library knows how to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES))


def look_for_garbage_less_often() -> None:
    """Leave out what is there now, and look at young objects in larger numbers."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
