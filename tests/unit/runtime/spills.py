"""Boxes for tests: small limits, what is kept in a box, in memory or in files, and mistakes to plant in how files come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from thence.runtime import backlog, boxes
from thence.runtime.boxes import Box, Bundle, SpillFile
from thence.runtime.spill import Reader, Spill


def kept_in(box: Box, spill: Spill | None, client: str) -> Iterator[tuple[int, Bundle]]:
    """Give every bundle that is kept in a box, with the position of its first letter, as its receiver would read them."""
    reader = Reader(spill, client)
    first = box.front
    while first <= box.position:
        first, bundle = reader.at(box, first)
        yield first, bundle
        first += bundle.count


@contextmanager
def small_blocks(letters: int = 4, bundles: int = 2) -> Iterator[None]:
    """Let boxes spill behind so many letters, so many bundles at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes, "SPILL_AFTER_LETTERS", letters)
        patch.setattr(boxes, "BLOCK_BUNDLES", bundles)
        patch.setattr(boxes, "MIN_BUNDLE_BYTES", 0)
        patch.setattr(boxes, "MIN_LETTER_BYTES", 0)
        yield


def forget_to_sync(patch: pytest.MonkeyPatch) -> None:
    """Plant a mistake: a snapshot names files that may not be on the disk yet."""
    patch.setattr(backlog, "sync_files", lambda _: None)


def delete_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Plant a mistake: files go while the last snapshot still names them."""
    real = Spill.done_with

    def too_soon(spill: Spill, gone: Iterable[SpillFile]) -> None:
        real(spill, gone)
        spill.delete_done(spill.done)

    patch.setattr(Spill, "done_with", too_soon)
