"""What moves nothing is slowed, and what is useful never is: by a clock that the test sets."""

from __future__ import annotations

import asyncio

import pytest

from thence.net.framing import Connection
from thence.server import chatter
from thence.server.chatter import BURST_POINTS, IDLE_POINTS, POINTS_PER_S, SLOWED_S, Chatter, ChatterAccounts


class Played:
    """A connection whose chatter is counted, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = 0.0
        self.calls: list[tuple[float, object]] = []
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_later", lambda delay, call: self.calls.append((delay, call)))
        self.connection = Connection()
        self.said: list[str] = []
        self.slowed: list[bool] = []
        self.accounts = ChatterAccounts()
        self.chatter = self.chatter_of("ann")

    def chatter_of(self, client: str) -> Chatter:
        return Chatter(self.accounts, client, self.connection, self.said.append, self.slowed.append)


async def test_so_much_may_be_said_at_once_and_then_the_connection_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    for _ in range(BURST_POINTS // IDLE_POINTS):
        played.chatter.spend(IDLE_POINTS)
    assert played.slowed == []
    played.chatter.spend(IDLE_POINTS)
    assert played.connection.paused
    assert (len(played.said), played.slowed) == (1, [True])
    played.chatter.spend(IDLE_POINTS)
    ((delay, call),) = played.calls
    assert delay >= SLOWED_S
    assert callable(call)
    call()
    assert (played.connection.paused, played.slowed) == (False, [True, False])


async def test_who_says_it_now_and_then_is_never_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    for _ in range(10 * BURST_POINTS // IDLE_POINTS):
        played.now += IDLE_POINTS / POINTS_PER_S
        played.chatter.spend(IDLE_POINTS)
    assert not played.calls
    assert not played.connection.paused


async def test_what_was_told_of_an_earlier_connection_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    played.chatter.free = True
    played.chatter.spend(2 * BURST_POINTS)
    played.chatter.free = False
    played.chatter.spend(BURST_POINTS)
    assert not played.connection.paused


async def test_who_connects_anew_has_no_more_than_before_and_another_name_has(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    played.chatter.spend(BURST_POINTS)
    played.chatter_of("bob").spend(BURST_POINTS)
    assert not played.connection.paused
    played.chatter_of("ann").spend(IDLE_POINTS)
    assert played.connection.paused


async def test_accounts_are_kept_until_all_points_are_back_and_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    monkeypatch.setattr(chatter, "MAX_ACCOUNTS", 3)
    for client in "abcd":
        played.accounts.spend(client, BURST_POINTS)
    assert played.accounts.spend("b", 0) == 0
    assert played.accounts.spend("a", 0) == BURST_POINTS, "the oldest was forgotten"
    played.now = BURST_POINTS / POINTS_PER_S
    assert played.accounts.spend("e", 1) == BURST_POINTS - 1
    assert list(played.accounts.missing) == ["e"]
