"""A loop that stays awake: when it does, for how long, and when it gives up. Time is played; the last tests are real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

import thence
from tests.support.servers.running import flat
from thence.runtime.event_loop import FIRST_WINDOW_S, MAX_AWAKE_S, Polling, polling_of

LIMIT_S = 8 * FIRST_WINDOW_S


class Played:
    """A loop and a clock that do what the test says."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.now = 100.0
        self.calls: list[Callable[[], object]] = []
        self.polling = Polling(cast("asyncio.AbstractEventLoop", self), lambda: self.now)
        self.polling.ask(limit_s)

    def call_soon(self, call: Callable[[], object]) -> None:
        self.calls.append(call)

    def awake(self) -> bool:
        return bool(self.calls)

    def after(self, seconds: float) -> None:
        """Let time go by, and the loop look."""
        self.now += seconds
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def came_after(self, seconds: float) -> None:
        self.after(seconds)
        self.polling.came()


def test_what_comes_soon_after_a_sleep_lets_the_window_grow_up_to_the_limit() -> None:
    played = Played()
    played.came_after(LIMIT_S)
    windows = []
    for _ in range(6):
        while played.awake():
            played.after(LIMIT_S)
        played.came_after(0)
        windows.append(played.polling.window)
    assert windows[0] == FIRST_WINDOW_S
    assert windows == sorted(windows)
    assert windows[-1] == LIMIT_S


def test_the_loop_sleeps_when_its_window_is_over() -> None:
    played = Played()
    played.came_after(LIMIT_S / 2)
    played.came_after(LIMIT_S / 2)
    assert played.awake()
    played.after(played.polling.window / 2)
    assert played.awake()
    played.after(played.polling.window)
    assert not played.awake()
    assert played.polling.missed == 1


def test_what_comes_while_it_is_awake_keeps_it_awake() -> None:
    played = Played()
    played.came_after(0)
    played.came_after(0)
    window = played.polling.window
    for _ in range(5):
        played.came_after(window / 2)
        assert played.awake()
    assert played.polling.caught == 5
    assert played.polling.window == window


def test_a_program_that_hears_little_does_not_look_at_all() -> None:
    played = Played()
    for _ in range(8):
        while played.awake():
            played.after(LIMIT_S)
        played.came_after(0)
    assert played.polling.window == LIMIT_S
    for _ in range(8):
        played.came_after(2 * LIMIT_S)
        while played.awake():
            played.after(LIMIT_S)
    assert played.polling.window == 0
    played.came_after(2 * LIMIT_S)
    assert not played.awake()


def test_of_several_wishes_the_longest_is_followed_until_it_is_withdrawn() -> None:
    polling = Played(limit_s=0.001).polling
    polling.ask(0.002)
    assert polling.limit == 0.002
    polling.withdraw(0.002)
    assert polling.limit == 0.001
    polling.withdraw(0.001)
    assert polling.limit == 0


@pytest.mark.parametrize("seconds", [-0.1, 2 * MAX_AWAKE_S])
async def test_a_time_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(thence.UsageError, match=r"can stay awake for 0 to 0\.01 s"), thence.stay_awake(seconds):
        raise AssertionError("it was taken")


async def _exchange(count: int) -> int:
    topology = flat("A", "B")
    async with thence.Member(topology, name="A") as left, thence.Member(topology, name="B") as right:
        right.on_message(lambda message: right.post("A", message.body))
        came = 0
        for number in range(count):
            await left.send("B", str(number).encode())
            came += int((await left.receive(within=30)).body == str(number).encode())
    return came


async def test_members_of_a_loop_that_stays_awake_get_what_they_would_get_otherwise() -> None:
    with thence.stay_awake(MAX_AWAKE_S) as polling:
        assert await _exchange(100) == 100
    assert polling is polling_of(asyncio.get_running_loop())
    assert polling.limit == 0
    assert polling.status()["caught"] > 0


async def test_without_a_wish_a_loop_never_stays_awake() -> None:
    assert await _exchange(20) == 20
    status = polling_of(asyncio.get_running_loop()).status()
    assert status == {"limit_us": 0, "window_us": 0, "caught": 0, "missed": 0}
