"""Replicas with a mistake in each, for checking that the explorer and random runs with the judge see it.

Each mistake replaces one method, most of them of ``core.failover.replicas``; ``in_place`` puts it where the real one is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from thence.core.failover.replicas import Kept, OriginalFirst, Takeover
from thence.core.ordering.vector import Vector
from thence.core.wire.messages import Envelope, Frame

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


def _never(self: Takeover, origin: str, domain: str) -> bool:
    return not self.group or self._routes.carriers(self.me, origin, domain)[0] == self.me


def _as_for_any_sender(self: Takeover, domain: str) -> list[Kept]:
    ours = _take_kept(self, domain)
    for kept in list(self._kept[domain].values()):
        self.seen(domain, kept.envelope)
    return ours


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

PLANTED_SHARED_OUT: Final = (
    *(planted for planted in PLANTED if planted.property == "fifo" or planted.method == "is_first"),
    Planted("nobody takes over a sender", Takeover, "forwards_for", _never, "completeness"),
    Planted("what others forward is dropped with what we forward", Takeover, "take_kept", _as_for_any_sender, "fifo"),
)
"""Those of FIFO links, whose relays have senders of their own."""


_delivers = Takeover.delivers


def _wherever_it_comes(self: Takeover, _: str, envelope: Envelope) -> bool:
    return _delivers(self, self.local or "", envelope)


def _each_copy(self: Takeover, domain: str, _: Envelope) -> bool:
    return domain == self.local


PLANTED_LOCAL: Final = (
    Planted("a replica delivers what is for it wherever it comes", Takeover, "delivers", _wherever_it_comes, "causal"),
    Planted("a replica delivers each copy in its domain", Takeover, "delivers", _each_copy, "duplication"),
)
"""Those of replicas that are ordinary members of a domain."""


def _all_at_once(self: Takeover, *_: object) -> int:
    return max(self.alone, default=0)


NO_HOLDER: Final = Planted("what a replica sends leaves before others have it", Takeover, "holders", _all_at_once, "completeness")


@contextmanager
def in_place(planted: Planted) -> Iterator[None]:
    """Let everybody make this mistake."""
    with mock.patch.object(planted.where, planted.method, planted.mistake):
        yield
