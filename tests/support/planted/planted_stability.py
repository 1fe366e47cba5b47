"""Members that keep messages until all have them, with a mistake in each, for checking that the tests see it.

Each mistake replaces one method; ``in_place`` puts it where the real one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.support.stable_runs import Outcome
from thence.core.member.deliver import DeliveryLog
from thence.core.member.receive import Accounting
from thence.core.stability.accounts import OURS, Accounts, SavedAccounts
from thence.core.stability.policy import AckPolicy
from thence.core.stability.safe import Group, SafeAcks
from thence.core.stability.safe_notification import Notices, SafeNotification, SavedNotices
from thence.core.stability.safe_turn import SafeTurn
from thence.core.stability.stable import StableAcks
from thence.core.stability.stand_ins import Excused, StandIns
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ThenceError

Frames = Iterable[tuple[str, Frame[Any]]]

_pushed, _save, _add = Accounts.pushed, Accounts.save, StableAcks.add
_next = SafeTurn.next
_excused = StandIns.excused


def needs_no_report(self: StandIns) -> Iterator[Excused]:
    """Who is suspected, or has a message, is enough: nobody has to have reported it."""
    for standing in self._standing.values():
        standing.reported = dict.fromkeys(self._groups.values())
    yield from _excused(self)


def _counts_nothing_of_ours(self: Accounts, frames: Frames, came_by: str, *, in_turn: bool = True) -> None:
    if came_by != OURS:
        _pushed(self, frames, came_by, in_turn=in_turn)


def _one_is_enough(self: Accounts, envelope: Envelope, came_by: str) -> None:
    key = (envelope.origin, envelope.number, came_by)
    if key in self._accounts:
        self._accounts[key].pending = 0
        self._touched[key] = None


def _saves_no_accounts(self: Accounts) -> SavedAccounts:
    return SavedAccounts(_save(self).stable, [])


def _all_before_too(self: StableAcks, peer: str, number: int) -> None:
    for earlier in range(1, number + 1):
        _add(self, peer, earlier)


class Planted(NamedTuple):
    """A mistake, where it is made, and whether the explorer sees it, which knows no crashes and no loss."""

    name: str
    where: type
    method: str
    mistake: Any
    explorable: bool = True


def _taken_is_enough(_: Any, place: Any, incoming: Any, *__: Any) -> None:
    place.stable.add(incoming.peer, incoming.number)


PLANTED: Final = (
    Planted("drops too early: what went out is stable", Accounts, "pushed", _counts_nothing_of_ours),
    Planted("drops too early: one report counts for all", Accounts, "became_stable", _one_is_enough),
    Planted("reports too early: what is taken is settled", Accounting, "took", _taken_is_enough),
    Planted("reports too early: what waits for its turn is settled", Accounting, "will_go_on", lambda *_: False),
    Planted("reports too early: what came before is settled too", StableAcks, "add", _all_before_too),
    Planted("forgets when it restarts what it keeps", Accounts, "save", _saves_no_accounts, explorable=False),
    Planted("asks nobody again", AckPolicy, "_asks", lambda *_: False, explorable=False),
)


def _at_once(self: SafeTurn, _: int) -> Any:
    return _next(self, 1 << 60)


def _one_too_many(self: SafeTurn, safe: int) -> Any:
    return _next(self, safe + 1)


def _safe_as_soon_as_it_comes(self: SafeNotification, sender: str, number: int) -> bool:
    return sender == self.acks.inner.me or number <= self.acks.peers[sender].highest


def _when_one_has_it(self: SafeAcks, group: Group) -> bool:
    return any(self.inner.acked(peer, number) for peer, number in group)


def _own_at_once_too(self: Notices, position: int, **_: Any) -> None:
    self._note(position)


def _saves_no_log(self: Notices) -> SavedNotices:
    return SavedNotices(self.upto, [])


UNSAFE: Final = (
    Planted("delivers before it is safe: at once", SafeTurn, "next", _at_once),
    Planted("delivers before it is safe: one too many", SafeTurn, "next", _one_too_many),
    Planted("delivers before it is safe: when its own system has it", SafeNotification, "_all_beyond_have", lambda *_: True),
    Planted("says once what is safe", AckPolicy, "_asks", lambda *_: False),
    Planted("hands up what waited to nobody after a restart", DeliveryLog, "again", lambda _: ()),
)
"""Mistakes in safe delivery."""

UNNOTICED: Final = (
    Planted("tells before it is safe: as soon as it comes", SafeNotification, "is_safe", _safe_as_soon_as_it_comes),
    Planted("tells before it is safe: when its own system has it", SafeNotification, "_all_beyond_have", lambda *_: True),
    Planted("tells before it is safe: when one of its only domain has it", SafeAcks, "all_have", _when_one_has_it),
    Planted("tells of its own before it is safe", Notices, "delivered", _own_at_once_too),
    Planted("tells of what hangs on what is not safe", Notices, "behind", property(lambda _: 0)),
    Planted("forgets when it restarts what is not safe", Notices, "save", _saves_no_log, explorable=False),
    Planted("says once what is safe", AckPolicy, "_asks", lambda *_: False, explorable=False),
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
    with mock.patch("tests.support.stable_runs.MAX_EVENTS", EVENTS_ENOUGH):
        try:
            return bool(run(seed, deaths=0, crashes=8, loss=0.2).wrong)
        except (ThenceError, KeyError, IndexError):
            return True
