"""The files of one owner: which numbers each of them has, what a block adds to them, and which are done with.

An *owner* is a mailbox (``storage.mailbox_spill``), or the way to a peer (``storage.frame_spill``). Its entries have numbers
without holes, which run through its files in order. ``storage.spill`` reads and writes the files. Here is no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec


class SpillEntry(Protocol):
    """What is in a file: a batch of messages, or a frame."""

    @property
    def count(self) -> int:
        """How many numbers it takes."""

    @property
    def weight(self) -> int:
        """What it counts for in limits by bytes."""


class SpillFile(msgspec.Struct, array_like=True):
    """A file of one owner, as far as it counts: what is behind ``end`` was never part of a snapshot."""

    number: int
    marker: bytes
    """What its blocks begin with (``storage.segments``)."""
    start: int
    """Where its first block begins."""
    end: int
    first: int
    """The number of its first entry."""
    last: int
    weight: int
    """What its entries count for in limits by bytes."""


SpillFiles = tuple[SpillFile, ...]


def add_block(files: SpillFiles, file: SpillFile, block: Sequence[tuple[int, SpillEntry]]) -> SpillFiles:
    """Return the files of an owner, now that a block was written to this one: the last of them, or a new one behind it."""
    number, entry = block[-1]
    file.last = number + entry.count - 1
    file.weight += block_weight(block)
    return files if files and files[-1] is file else (*files, file)


def block_weight(block: Iterable[tuple[int, SpillEntry]]) -> int:
    """Return what a block counts for in limits by bytes."""
    return sum([entry.weight for _, entry in block])


def split_done(files: SpillFiles, upto: int) -> tuple[SpillFiles, SpillFiles]:
    """Return the files whose entries are all done with, up to a number, and those that are still needed."""
    done = 0
    while done < len(files) and files[done].last <= upto:
        done += 1
    return files[:done], files[done:]
