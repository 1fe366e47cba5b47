"""Large messages have a part of the time while others send small ones, and all of it otherwise."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import pairwise

import pytest

from thence.node.sessions.large_turns import ACTIVE_S, LARGE_BYTES, LARGE_FOR_S, LARGE_SHARE, LONGEST_S, LargeTurns

STORE_S = 0.1
PEER_S = 0.2
"""How long a large message takes until it is durable, and from then until the peer has acknowledged it."""


class PlayedServer:
    """A server in virtual time, with a client that sends large messages as fast as it may."""

    def __init__(self, senders: int = 1) -> None:
        self.now = 0.0
        self.began: list[tuple[float, str]] = []
        self.queues = {"s2": 0}
        self.peer_s = PEER_S
        self.busy = 0
        self.stalled_s = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._waiting = [f"big{number}" for number in range(senders)]
        self.turns = LargeTurns(lambda: self.now, self.call_later, lambda: self.queues, self.send)

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._number += 1
        heappush(self._calls, (self.now + delay, self._number, call))

    def send(self) -> None:
        """Let everybody send who has nothing on its way to the disk."""
        for name in list(self._waiting):
            if self.turns.may_begin():
                self._waiting.remove(name)
                self._begin(name)

    def _begin(self, name: str) -> None:
        self.turns.begin(name)
        self.began.append((self.now, name))
        self.busy += 1
        self.queues["s2"] += LARGE_BYTES

        def stored() -> None:
            self.call_later(self.peer_s, acknowledged)
            self.turns.stored()
            self._waiting.append(name)
            self.send()

        def acknowledged() -> None:
            self.queues["s2"] -= LARGE_BYTES
            self.busy -= 1

        self.call_later(STORE_S, stored)

    def run(self, seconds: float, *, small_every: float = 0.0) -> None:
        """Let time pass; somebody else sends a small message now and then."""
        until = self.now + seconds

        def small() -> None:
            self.turns.note_small("small")
            if self.now + small_every < until:
                self.call_later(small_every, small)

        if small_every:
            small()
        self.call_later(0.0, self.send)
        while self._calls and self._calls[0][0] <= until:
            at, _, call = heappop(self._calls)
            self.stalled_s += (at - self.now) if self.busy else 0.0
            self.now = at
            call()
        self.now = until


@pytest.mark.parametrize("senders", [1, 5])
def test_all_large_messages_together_have_one_part_of_the_time(senders: int) -> None:
    server = PlayedServer(senders)
    server.run(100.0, small_every=0.01)
    assert server.stalled_s <= 1.05 * 100.0 / LARGE_SHARE, "others have the rest: more than 0.8"
    assert server.stalled_s >= 0.9 * 100.0 / LARGE_SHARE, "and no more than that is left unused"
    assert len({name for _, name in server.began}) == senders


def test_one_is_on_its_way_at_a_time() -> None:
    server = PlayedServer(5)
    server.run(20.0, small_every=0.01)
    between = [later - earlier for (earlier, _), (later, _) in pairwise(server.began)]
    assert min(between) >= LARGE_SHARE * (STORE_S + PEER_S) - 0.01


def test_alone_nobody_is_slowed() -> None:
    server = PlayedServer()
    server.run(10.0)
    assert len(server.began) >= 0.99 * 10.0 / STORE_S


def test_when_others_are_quiet_large_messages_go_on_at_once() -> None:
    server = PlayedServer()
    server.run(10.0, small_every=0.01)
    before = len(server.began)
    server.run(10.0)
    assert len(server.began) - before >= (10.0 - 2 * ACTIVE_S) / STORE_S


def test_small_messages_of_whoever_sends_large_ones_slow_nobody() -> None:
    server = PlayedServer()
    server.run(1.0)
    server.turns.note_small("big0")
    assert server.turns.may_begin()
    server.run(0.0)
    server.now += LARGE_FOR_S
    server.turns.note_small("big0")
    assert not server.turns.may_begin()


def test_a_peer_that_takes_nothing_is_not_waited_for_any_longer() -> None:
    server = PlayedServer()
    server.peer_s = 1e9
    server.run(2 * LARGE_SHARE * LONGEST_S, small_every=0.01)
    first, second, third = [at for at, _ in server.began][:3]
    assert second - first == pytest.approx(LARGE_SHARE * LONGEST_S, rel=0.01)
    assert third - second == pytest.approx(LARGE_SHARE * STORE_S, rel=0.01), "its queue was long before"


def test_what_was_not_taken_costs_nothing() -> None:
    server = PlayedServer()
    server.turns.note_small("small")
    server.turns.begin("big0")
    server.turns.stored()
    assert server.turns.may_begin()


def test_whoever_is_not_read_is_woken_when_it_may_go_on() -> None:
    server = PlayedServer()
    woken: list[float] = []
    server.run(0.05, small_every=0.01)
    server.turns.when_free("big1", lambda: woken.append(server.now))
    server.run(10.0, small_every=0.01)
    assert len(woken) == 1
    assert woken[0] <= ACTIVE_S + 0.06
