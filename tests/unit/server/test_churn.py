"""All who follow and leave topics again and again share so many credits, in turn: by a clock that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from thence.node.sessions.session import Session
from thence.server.churn import CHURN_BURST, CHURN_PER_S, Churn


class Played:
    """The credits of a server, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now = 0.0
        self.calls: list[Callable[[], None]] = []
        self.woken: list[Any] = []
        monkeypatch.setattr(loop, "time", lambda: self.now)
        monkeypatch.setattr(loop, "call_later", lambda _, call: self.calls.append(call))
        self.churn = Churn(self.woken.extend)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        calls, self.calls = self.calls, []
        for call in calls:
            call()


async def test_with_no_credit_left_each_has_one_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    take = played.churn.take
    ann, bob, cid = (cast("Session", name) for name in ("ann", "bob", "cid"))
    assert all(take(ann) for _ in range(CHURN_BURST))
    assert not any(take(session) for session in (ann, bob, ann, cid))
    played.pass_by(2 / CHURN_PER_S)
    assert played.woken == [ann, bob]
    assert [take(ann), take(ann), take(bob), take(bob)] == [True, False, True, False]
    played.churn.drop(cid)
    played.pass_by(1.5 / CHURN_PER_S)
    assert played.woken[2:] == [ann]
    played.churn.drop(ann)
    played.pass_by(10.0)
    assert played.woken[3:] == [bob]
    assert sum(take(cid) for _ in range(2 * CHURN_BURST)) == CHURN_BURST - 1, "no more are saved up"
