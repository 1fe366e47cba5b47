"""Waits between attempts to connect, and the heartbeat of a connection. Time is played."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from thence.net.framing import Connection
from thence.net.reconnect import Backoff, Heartbeat


async def test_each_wait_is_twice_as_long_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    backoff = Backoff(1.0, 5.0)
    for _ in range(5):
        await backoff.wait()
    backoff.reset()
    await backoff.wait(1.5)
    await backoff.wait()
    for wait, most in zip(waits, (1, 2, 4, 5, 5, 1, 1.5), strict=True):
        assert most / 2 <= wait <= most


class PlayedConnection:
    """Writes down what is done with it."""

    def __init__(self, heard_at: float, wrote_at: float) -> None:
        self.heard_at, self.wrote_at = heard_at, wrote_at
        self.writer = self
        self.happened: list[str] = []

    def rest(self) -> None:
        self.happened.append("rest")

    def fail(self, error: Exception) -> None:
        self.happened.append(str(error))

    def send(self, kind: bytes, value: object) -> None:
        self.happened.append(type(value).__name__)


@pytest.mark.parametrize(
    ("heard_at", "wrote_at", "happened"),
    [
        (9.5, 9.5, ["rest"]),
        (9.5, 7.0, ["rest", "Ping"]),
        (1.0, 9.5, ["rest", "s1 is silent for 6 s"]),
        (1.0, 1.0, ["rest", "s1 is silent for 6 s"]),
    ],
)
def test_a_quiet_connection_gets_a_ping_and_a_silent_one_ends(heard_at: float, wrote_at: float, happened: list[str]) -> None:
    connection = PlayedConnection(heard_at, wrote_at)
    Heartbeat(2.0, 6.0).beat(cast("Connection", connection), 10.0, "s1")
    assert connection.happened == happened


async def test_a_connection_is_looked_after_until_it_is_lost() -> None:
    connection = PlayedConnection(float("inf"), float("inf"))
    lost = asyncio.Event()
    connection.rest = lost.set  # type: ignore[method-assign]
    await Heartbeat(0.002, 1.0).watch(cast("Any", connection), lost, "s1")
    assert lost.is_set()
