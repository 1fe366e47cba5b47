"""Boxes for tests: small limits, and what is kept in a box, in memory or in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from thence.runtime import boxes
from thence.runtime.boxes import Box, Bundle
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
        yield
