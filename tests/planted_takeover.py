"""Replicas with a mistake in each, for checking that the explorer and random runs with the judge see it.

Each mistake replaces one method of ``core.takeover``; ``in_place`` puts it where the real one is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from thence.core.takeover import Kept, OriginalFirst, Takeover

_take_kept = Takeover.take_kept


def _forget(self: Takeover, domain: str) -> list[Kept]:
    _take_kept(self, domain)
    return []


def _backwards(self: Takeover, domain: str) -> list[Kept]:
    return _take_kept(self, domain)[::-1]


def _only_the_newest(self: Takeover, domain: str) -> list[Kept]:
    return _take_kept(self, domain)[-1:]


class Planted(NamedTuple):
    """A mistake, where it is made, and what it breaks in the shortest run."""

    name: str
    where: type
    method: str
    mistake: Any
    property: str


PLANTED: Final = (
    Planted("no gate before copies", OriginalFirst, "missing", lambda *_: None, "causal"),
    Planted("second copies count", Takeover, "is_first", lambda *_: True, "duplication"),
    Planted("what was kept is forgotten", Takeover, "take_kept", _forget, "fifo"),
    Planted("what was kept goes out backwards", Takeover, "take_kept", _backwards, "fifo"),
    Planted("only the newest of what was kept goes out", Takeover, "take_kept", _only_the_newest, "fifo"),
    Planted("nothing is kept", Takeover, "keep", lambda *_: None, "fifo"),
    Planted("other replicas do not see what is forwarded", Takeover, "with_fellows", lambda _, members: members, "causal"),
    Planted("a copy of another replica is forwarded back", Takeover, "is_copy", lambda *_: False, "fifo"),
)


@contextmanager
def in_place(planted: Planted) -> Iterator[None]:
    """Let everybody make this mistake."""
    with mock.patch.object(planted.where, planted.method, planted.mistake):
        yield
