"""A disk and a clock that misbehave on command, under a real program: the other side of ``faulty_disk.c``, which says how.

Rules:

* The shim is compiled when it is first needed, with the system's ``cc``, into a folder that goes when this program ends.
* Settings count at once, also for a program that runs. ``counts`` says what really happened, not what was ordered.
* ``lose_power`` may be called when the program is dead, and only then. What a sync covered stays. Of what none covered, each
  write is kept, dropped, cut short or garbled, and of the names in a folder those since some moment are as they were before it.
* A write whose sync has failed counts as unsynced for ever: the system may have dropped its pages and call the next sync a
  success.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.support.programs import need

SOURCE: Final = Path(__file__).with_suffix(".c")
COMPILE_WITHIN_S: Final = 120.0
PAGE_BYTES: Final = 4096
SETTINGS: Final = (
    "short_one_in",
    "eio_writes",
    "eio_syncs",
    "no_room",
    "room_bytes",
    "torn_writes",
    "clock_ns",
    "lie",
    "sync_us",
)
"""``short_one_in``: one write in so many is short. ``eio_writes``, ``eio_syncs``: so many of the next ones fail. ``no_room``: no
file grows by more than ``room_bytes`` in all. ``torn_writes``: so many of the next writes get through in part, and then the
program is killed. ``clock_ns``: how far the clock of the calendar is off. ``lie``: syncs do nothing and say that they did.
``sync_us``: how long a sync takes."""
COUNTERS: Final = (
    "short writes",
    "writes with EIO",
    "syncs with EIO",
    "writes without room",
    "torn writes",
    "wrong times read",
    "syncs that lied",
    "writes",
    "syncs",
    "changes of names",
)
_FIRST_COUNTER: Final = 32
_SLOT: Final = struct.Struct("<q")
_RECORD: Final = struct.Struct("<IIQQQQQ")
_MAGIC: Final = 0x4B534944
WRITE, RESULT, CUT, SYNC, SYNC_FAILED, CREATE, RENAME, UNLINK = range(1, 9)


@cache
def compiled() -> Path:
    """Compile the shim, once for this program; return where it is."""
    need("cc")
    folder = tempfile.TemporaryDirectory(prefix="thence-shim-")
    _folders.append(folder)
    target = Path(folder.name) / "faulty_disk.so"
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-o",
        str(target),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=COMPILE_WITHIN_S)
    assert done.returncode == 0, f"{' '.join(command)} failed (Debian and Ubuntu have it in gcc and libc6-dev):\n{done.stderr}"
    return target


_folders: list[tempfile.TemporaryDirectory[str]] = []
"""They go when this program ends."""


class Control:
    """The page of settings and counters that a program with the shim shares with whoever spoils it."""

    def __init__(self, path: Path) -> None:
        """``path`` is made; the program is started with ``environment``."""
        path.write_bytes(bytes(PAGE_BYTES))
        self.path = path
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), PAGE_BYTES)

    def environment(self) -> dict[str, str]:
        """Return what a program must find in its environment."""
        return {"LD_PRELOAD": str(compiled()), "FAULTY_DISK_CONTROL": str(self.path)}

    def set(self, **settings: int) -> None:
        """Let these hold from now on."""
        for name, value in settings.items():
            _SLOT.pack_into(self._page, _SLOT.size * SETTINGS.index(name), value)

    def heal(self) -> None:
        """Let nothing go wrong from now on."""
        self.set(**dict.fromkeys(SETTINGS, 0))

    @property
    def counts(self) -> Counter[str]:
        """How often each thing happened."""
        at = (_SLOT.size * (_FIRST_COUNTER + number) for number in range(len(COUNTERS)))
        return Counter({name: _SLOT.unpack_from(self._page, offset)[0] for name, offset in zip(COUNTERS, at, strict=True)})


class Change(NamedTuple):
    """A write, a cut, or a change of a name; see ``struct record`` in the shim."""

    kind: int
    inode: int
    offset: int
    size: int
    old: bytes
    new: bytes

    @property
    def place(self) -> int:
        """The inode whose sync covers it: of the file, or of the folder that has the name."""
        return self.inode if self.kind in (WRITE, CUT) else self.size


class _Entry:
    """A change, and whether a sync covered it, or failed to."""

    def __init__(self, change: Change, life: int, position: int) -> None:
        self.change = change
        self.at = (life, position)
        self.durable = self.failed = False


class Disk(Control):
    """What is below ``root``, for one program at a time; ``beside`` is a folder for what the shim needs to remember."""

    def __init__(self, root: Path, beside: Path) -> None:
        """``root`` may not be there yet."""
        (beside / "graves").mkdir(parents=True)
        super().__init__(beside / "control")
        self.root = root.parent.resolve() / root.name
        self._beside = beside.resolve()
        self._lives = 0

    def environment(self) -> dict[str, str]:
        """Return what the next life of the program must find in its environment."""
        self._lives += 1
        root, journal, life = str(self.root), str(self._beside), f"{self._lives:06}.journal"
        return {
            **super().environment(),
            "FAULTY_DISK_ROOT": root,
            "FAULTY_DISK_JOURNAL": journal,
            "FAULTY_DISK_LIFE": life,
        }

    def forget(self) -> None:
        """Take everything that is there now for durable: after the folder was changed by somebody else."""
        for journal in self._beside.glob("*.journal"):
            journal.unlink()
        shutil.rmtree(self._beside / "graves")
        (self._beside / "graves").mkdir()

    def unsynced(self) -> dict[int, list[_Entry]]:
        """Return, by inode, the changes from the first on that no sync covered; those behind it may be durable."""
        changes: dict[int, list[_Entry]] = {}
        for life, path in enumerate(sorted(self._beside.glob("*.journal"))):
            for position, record in _records(path.read_bytes()):
                if record.kind in (SYNC, SYNC_FAILED):
                    _cover(changes, record, (life, record.offset))
                elif record.kind == RESULT:
                    last = changes[record.inode][-1]
                    last.change = last.change._replace(new=last.change.new[: record.offset])
                else:
                    changes.setdefault(record.place, []).append(_Entry(record, life, position))
        return changes

    def lose_power(self, chance: Random) -> Counter[str]:
        """Throw away or garble what no sync covered; return how much of that there was."""
        lost: Counter[str] = Counter()
        changes = self.unsynced()
        names = [entry for entries in changes.values() for entry in entries if entry.change.kind in (CREATE, RENAME, UNLINK)]
        if names:
            names.sort(key=lambda entry: entry.at)
            survivors = chance.choice((0, len(names), chance.randint(0, len(names))))
            for entry in reversed(names[survivors:]):
                self._undo_name(entry.change)
                lost["names undone"] += 1
        files = {path.stat().st_ino: path for path in self.root.rglob("*") if path.is_file()} if self.root.exists() else {}
        for inode, entries in changes.items():
            written = [entry for entry in entries if entry.change.kind in (WRITE, CUT)]
            if written and inode in files:
                lost.update(_spoil(files[inode], written, chance))
        self.forget()
        return lost

    def _undo_name(self, change: Change) -> None:
        path = self.root / change.old.decode()
        if change.kind == CREATE:
            path.unlink(missing_ok=True)
        elif change.kind == UNLINK:
            if not path.exists():  # The program may have been killed before it came to that.
                os.link(self._beside / "graves" / str(change.inode), path)
        else:
            renamed = self.root / change.new.decode()
            if renamed.exists() and renamed.stat().st_ino == change.inode:
                renamed.rename(path)
                if change.offset:
                    os.link(self._beside / "graves" / str(change.offset), renamed)


def _records(data: bytes) -> Iterator[tuple[int, Change]]:
    """Go through what one life of a program noted; a kill may have cut the last record short."""
    at = 0
    while at + _RECORD.size <= len(data):
        magic, kind, inode, offset, size, old_bytes, new_bytes = _RECORD.unpack_from(data, at)
        assert magic == _MAGIC, f"the journal is unreadable at {at}"
        start = at + _RECORD.size
        end = start + old_bytes + new_bytes
        if end > len(data):
            return
        yield at, Change(kind, inode, offset, size, data[start : start + old_bytes], data[start + old_bytes : end])
        at = end


def _cover(changes: dict[int, list[_Entry]], sync: Change, until: tuple[int, int]) -> None:
    entries = changes.get(sync.inode, [])
    for entry in entries:
        if entry.at < until and not entry.durable:
            if sync.kind == SYNC_FAILED:
                entry.failed = True
            entry.durable = not entry.failed
    while entries and entries[0].durable:
        del entries[0]


def _spoil(path: Path, entries: list[_Entry], chance: Random) -> Counter[str]:
    """Bring a file to what it may be after a power loss."""
    lost: Counter[str] = Counter()
    data = bytearray(path.read_bytes())
    for entry in reversed(entries):
        _undo(data, entry.change)
    for entry in entries:
        fate = "kept" if entry.durable else chance.choice(("kept", "dropped", "dropped", "torn", "garbled"))
        _redo(data, entry.change, fate, chance)
        if not entry.durable:
            lost[f"unsynced writes {fate}"] += 1
    path.write_bytes(data)
    return lost


def _undo(data: bytearray, change: Change) -> None:
    if change.kind == CUT:
        del data[change.offset :]
        data += change.old
        _resize(data, change.size)
    else:
        _resize(data, change.size)
        data[change.offset : change.offset + len(change.old)] = change.old


def _redo(data: bytearray, change: Change, fate: str, chance: Random) -> None:
    if change.kind == CUT:
        if fate in ("kept", "garbled"):
            _resize(data, change.offset)
        return
    new = change.new
    if fate == "dropped":
        if chance.random() < 0.25:  # The size is on disk, and the bytes are not.
            _resize(data, max(len(data), change.offset + len(new)))
        return
    if fate == "torn":
        new = new[: chance.randint(0, len(new))]
    elif fate == "garbled" and new:
        start = chance.randrange(len(new))
        end = chance.randint(start + 1, len(new))
        new = new[:start] + chance.randbytes(end - start) + new[end:]
    if new:
        _resize(data, max(len(data), change.offset))
        data[change.offset : change.offset + len(new)] = new


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data += bytes(size - len(data))
