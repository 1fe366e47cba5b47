"""Files that programs read: the file of a fabric, and those that a server reads again, certificates and the access file.

Rules:

* The latter are read again when they have changed and stand still between two looks, every ``LOOK_EVERY_S``: half of a file
  may be read without an error, and mean that rights are withdrawn. When the server is told to (SIGHUP), they are read at once.
* What cannot be read, or does not fit together, changes nothing: what was read before stays in force, and the log says why. A
  certificate that is replaced before its key is such a case; it is read when the key has come too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import ConfigError

LOOK_EVERY_S: Final = 1.0

log = logging.getLogger("thence.reloading")

_Mark = tuple[tuple[int, int, int, int] | None, ...]


class Reloading:
    """Some files that belong together, and how to read them."""

    def __init__(self, what: str, files: Sequence[Path], read: Callable[[], None]) -> None:
        """They have been read; ``read`` does it again, and raises ``ConfigError`` without having changed anything."""
        self._what = what
        self._files = files
        self._read = read
        self._mark = self._seen = self._marked()

    def look(self) -> bool:
        """Read the files if they have changed, and not since the last look; return whether they were read."""
        before, self._seen = self._seen, self._marked()
        return self._seen != self._mark and self._seen == before and self.again()

    def again(self) -> bool:
        """Read the files; return whether that could be done."""
        self._mark = self._marked()  # Before: what changes while they are read is seen at the next look.
        try:
            self._read()
        except ConfigError as error:
            log.error("%s: what was read before stays in force: %s", self._what, error)  # noqa: TRY400  The reason says it all.
            return False
        log.info("%s: read again", self._what)
        return True

    def _marked(self) -> _Mark:
        return tuple(_mark_of(file) for file in self._files)


def _mark_of(file: Path) -> tuple[int, int, int, int] | None:
    try:
        seen = file.stat()
    except OSError:
        return None
    return seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def read_topology(path: Path, *, force: bool = False) -> Topology:
    """Return the fabric that a TOML file describes; what is wrong is named with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, str(path), force=force)
