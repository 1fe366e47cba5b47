"""What the system says of this process: memory, time, open files. Where it says nothing, nothing is told."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc/self")


class ProcessFigures(NamedTuple):
    """The figures; None: not known on this system."""

    cpu_seconds: float
    resident_bytes: int | None
    open_files: int | None
    max_files: int | None


def look() -> ProcessFigures:
    """Ask the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFigures(
        used.ru_utime + used.ru_stime, _resident(), _open_files(), None if most == resource.RLIM_INFINITY else most
    )


def _resident() -> int | None:
    try:
        return int((_PROC / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _open_files() -> int | None:
    try:
        return len(os.listdir(_PROC / "fd"))  # noqa: PTH208  Names are enough, and there may be many.
    except OSError:
        return None
