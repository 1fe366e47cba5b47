"""Members that keep messages until all have them, with a mistake in each, for checking that the tests see it.

Each mistake replaces one method; ``in_place`` puts it where the real one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.stable_runs import Outcome
from thence.core.forwarding import Forwarding
from thence.core.guarding import Guarding, SavedGuarding
from thence.core.messages import Envelope, Frame
from thence.core.noticing import Notices, Noticing, SavedNotices
from thence.core.settling import Settling
from thence.core.stability import OURS, Ledger, SavedLedger
from thence.core.telling import Group
from thence.errors import ThenceError

_pushed, _save, _settle = Ledger.pushed, Ledger.save, Settling.settle
_news, _save_guarding = Guarding.news, Guarding.save_guarding


def _counts_nothing_of_ours(self: Ledger, frames: Iterable[tuple[str, Frame[Any]]], came_by: str) -> None:
    if came_by != OURS:
        _pushed(self, frames, came_by)


def _one_is_enough(self: Ledger, envelope: Envelope, came_by: str) -> None:
    key = (envelope.origin, envelope.number, came_by)
    if key in self._accounts:
        self._accounts[key].pending = 0
        self._touched[key] = None


def _saves_no_accounts(self: Ledger) -> SavedLedger:
    return SavedLedger(_save(self).stable, [])


def _all_before_too(self: Settling, peer: str, number: int) -> None:
    for earlier in range(1, number + 1):
        _settle(self, peer, earlier)


class Planted(NamedTuple):
    """A mistake, where it is made, and whether the explorer sees it, which knows no crashes and no loss."""

    name: str
    where: type
    method: str
    mistake: Any
    explorable: bool = True


def _taken_is_enough(_: Any, place: Any, incoming: Any, *__: Any) -> None:
    place.transport.settle(incoming.peer, incoming.number)


PLANTED: Final = (
    Planted("drops too early: what went out is stable", Ledger, "pushed", _counts_nothing_of_ours),
    Planted("drops too early: one report counts for all", Ledger, "settled", _one_is_enough),
    Planted("reports too early: what is taken is settled", Forwarding, "_account_for", _taken_is_enough),
    Planted("reports too early: what waits for its turn is settled", Forwarding, "_will_go_on", lambda *_: False),
    Planted("reports too early: what came before is settled too", Settling, "settle", _all_before_too),
    Planted("forgets when it restarts what it keeps", Ledger, "save", _saves_no_accounts, explorable=False),
    Planted("asks nobody again", Settling, "_asks", lambda *_: False, explorable=False),
)


def _as_soon_as_it_comes(self: Guarding) -> tuple[tuple[str, int], ...]:
    news = [(peer, state.highest) for peer, state in self._peers.items() if state.highest > state.passed]
    own = self.own + len(self._unsafe)
    return tuple([*news, (self.me, own)] if self._unsafe else news)


def _when_one_has_it(self: Guarding) -> tuple[tuple[str, int], ...]:
    with mock.patch("thence.core.telling.all", any, create=True):
        return _news(self)


def _saves_nothing_aside(self: Guarding) -> SavedGuarding[Any]:
    saved = _save_guarding(self)
    for peer in saved.peers.values():
        peer.aside = {}
    return saved


def _own_at_once(_: Any, deliverable: Any) -> Any:
    return deliverable


def _safe_as_soon_as_it_comes(self: Noticing, sender: str, number: int) -> bool:
    return sender == self.me or number <= self._peers[sender].highest


def _confirmed_by_one(self: Noticing, group: Group) -> bool:
    return any(self.confirmed(peer, number) for peer, number in group)


def _own_at_once_too(self: Notices, position: int, **_: Any) -> None:
    self._note(position)


def _saves_no_log(self: Notices) -> SavedNotices:
    return SavedNotices(self.upto, [])


UNSAFE: Final = (
    Planted("delivers before it is safe: as soon as it comes", Guarding, "news", _as_soon_as_it_comes),
    Planted("delivers before it is safe: when one has it", Guarding, "news", _when_one_has_it),
    Planted("delivers its own before it is safe", Forwarding, "_in_turn", _own_at_once),
    Planted("says once what is safe", Guarding, "_asks", lambda *_: False),
    Planted("forgets when it restarts what it kept aside", Guarding, "save_guarding", _saves_nothing_aside),
)
"""Mistakes in safe delivery."""

UNNOTICED: Final = (
    Planted("tells before it is safe: as soon as it comes", Noticing, "is_safe", _safe_as_soon_as_it_comes),
    Planted("tells before it is safe: when one has it", Noticing, "_have_confirmed", _confirmed_by_one),
    Planted("tells of its own before it is safe", Notices, "delivered", _own_at_once_too),
    Planted("tells of what hangs on what is not safe", Notices, "behind", property(lambda _: 0)),
    Planted("forgets when it restarts what is not safe", Notices, "save", _saves_no_log, explorable=False),
    Planted("says once what is safe", Noticing, "_asks", lambda *_: False, explorable=False),
)
"""Mistakes in notices of what is safe."""


@contextmanager
def in_place(planted: Planted) -> Iterator[None]:
    """Let everybody make this mistake."""
    with mock.patch.object(planted.where, planted.method, planted.mistake):
        yield


EVENTS_ENOUGH: Final = 40_000
"""A run without a mistake has far fewer; one that a mistake keeps from ending need not go on for long."""


def is_found(run: Callable[..., Outcome], seed: int) -> bool:
    """Return whether something is wrong with a run under heavy faults; a member that contradicts itself is wrong too."""
    with mock.patch("tests.stable_runs.MAX_EVENTS", EVENTS_ENOUGH):
        try:
            return bool(run(seed, deaths=0, crashes=8, loss=0.2).wrong)
        except (ThenceError, KeyError, IndexError):
            return True
