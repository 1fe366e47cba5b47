"""Whether a statement shows that its author has forgotten something."""

from __future__ import annotations

import msgspec
import pytest

from thence.core.epochs.epoch import Claim, Epoch, Held
from thence.core.epochs.progress import Progress
from thence.core.epochs.statement import SEAL_BYTES, Statement, goes_beyond, seal

KNOWN = Claim(Held(Epoch(4, "four"), {"A": 10}), Held(Epoch(5, "five")))
PROGRESS = {"A": Progress(20, 7, 30, 30)}


@pytest.mark.parametrize(
    ("stated", "beyond"),
    [
        (Statement(1, 5, {}), False),
        (Statement(1, 6, {}), True),
        (Statement(9, 6, {}), True),
        (Statement(1, 4, {"A": (10, 30)}), False),
        (Statement(1, 4, {"A": (11, 30)}), True),
        (Statement(1, 4, {"A": (10, 31)}), True),
        (Statement(1, 5, {"A": (20, 30)}), False),
        (Statement(1, 5, {"A": (21, 30)}), True),
        (Statement(2, 4, {"A": (99, 99)}), False),
        (Statement(1, 4, {"B": (99, 99)}), False),
        (Statement(1, 3, {"A": (11, 30)}), False),
    ],
    ids=[
        "the same epoch",
        "a later epoch",
        "a later epoch in another version",
        "up to the reach",
        "above the reach",
        "more taken than we have",
        "as much as was sent",
        "more than was sent",
        "numbers of another version",
        "numbers of another place",
        "of an epoch before, where only what was sent counts",
    ],
)
def test_it_goes_beyond(stated: Statement, beyond: bool) -> None:
    assert goes_beyond(stated, 1, KNOWN, PROGRESS) is beyond


def test_a_seal_covers_everything() -> None:
    key, stated = b"k" * 32, Statement(1, 4, {"A": (1, 2), "B": (3, 4)})
    sealed = seal(key, "s2", stated)
    assert len(sealed.seal) == SEAL_BYTES
    assert seal(key, "s2", msgspec.structs.replace(stated, places={"B": (3, 4), "A": (1, 2)})).seal == sealed.seal
    others = [
        seal(b"l" * 32, "s2", stated),
        seal(key, "s3", stated),
        seal(key, "s2", msgspec.structs.replace(stated, version=2)),
        seal(key, "s2", msgspec.structs.replace(stated, epoch=5)),
        seal(key, "s2", msgspec.structs.replace(stated, places={"A": (1, 3), "B": (3, 4)})),
    ]
    assert sealed.seal not in {other.seal for other in others}
