"""Replicas with a mistake in each, for checking that the explorer and random runs with the judge see it.

Each mistake replaces one method of ``core.failover.replicas``; ``in_place`` puts it where the real one is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from thence.core.failover.replicas import Kept, OriginalFirst, Takeover
from thence.core.ordering.vector import Vector
from thence.core.wire.messages import Frame

_take_kept = Takeover.take_kept
_check = Vector._check


def _forget(self: Takeover, domain: str) -> list[Kept]:
    _take_kept(self, domain)
    return []


def _backwards(self: Takeover, domain: str) -> list[Kept]:
    return _take_kept(self, domain)[::-1]


def _only_the_newest(self: Takeover, domain: str) -> list[Kept]:
    return _take_kept(self, domain)[-1:]


def _one_too_late(self: Takeover, domain: str) -> list[Kept]:
    return _take_kept(self, domain)[1:]


def _as_one_stream(self: Vector, sender: int, frame: Frame[Any]) -> tuple[int, int]:
    _, number = _check(self, sender, frame)
    first = self.members[sender].rstrip("0123456789") + "1"
    return self.index.get(first, sender), number


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
    Planted("the oldest of what was kept is left out", Takeover, "take_kept", _one_too_late, "fifo"),
    Planted("nothing is kept", Takeover, "keep", lambda *_: None, "fifo"),
    Planted("other replicas do not see what is forwarded", Takeover, "with_fellows", lambda _, members: members, "causal"),
    Planted("a copy of another replica is forwarded back", Takeover, "is_copy", lambda *_: False, "refused"),
)

PLANTED_AT_LINKS: Final = (
    *PLANTED,
    Planted("the streams of two sequencers are taken for one", Vector, "_check", _as_one_stream, "refused"),
)
"""Those of links whose relays take over: the same, and one more."""


@contextmanager
def in_place(planted: Planted) -> Iterator[None]:
    """Let everybody make this mistake."""
    with mock.patch.object(planted.where, planted.method, planted.mistake):
        yield
