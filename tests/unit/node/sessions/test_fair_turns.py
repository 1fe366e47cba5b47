"""Sessions that wait are served in turn, by bytes, and not too much in one turn of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from thence.node.sessions.fair_turns import MESSAGE_BYTES, QUANTUM_BYTES, TURN_BYTES, Rounds

LARGE = 30 * 1024 * 1024


class Store:
    """Takes so many bytes, and then nothing."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.served: list[tuple[str, int]] = []

    @property
    def full(self) -> bool:
        return self.room <= 0


class Waits:
    """A session with messages of these sizes."""

    def __init__(self, name: str, store: Store, *sizes: int, blocked: bool = False) -> None:
        self.name = name
        self.sizes = deque(sizes)
        self.saved_bytes = 0
        self.blocked = blocked
        self._store = store

    @property
    def next_bytes(self) -> int:
        return self.sizes[0] if self.sizes else 0

    def serve(self) -> bool:
        if self._store.full or self.blocked:
            return False
        size = self.sizes.popleft()
        self._store.room -= size
        self._store.served.append((self.name, size))
        return True


def rounds(store: Store, is_here: Callable[[Waits], bool] = lambda _: True) -> Rounds[Waits]:
    return Rounds(is_here, lambda: store.full)


async def turns(count: int) -> None:
    """Let the loop go round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_client_with_small_messages_does_not_wait_for_one_with_large_ones() -> None:
    store = Store(10**12)
    heavy, light = Waits("heavy", store, *[LARGE] * 10), Waits("light", store, *[1_000] * 50)
    rounds(store).wake([heavy, light])
    await turns(2_000)
    order = [name for name, _ in store.served]
    assert order.count("heavy") == 10
    assert order.count("light") == 50
    assert order[:50] == ["light"] * 50, "they are less than what a large message has to save for"


async def test_clients_that_flood_get_the_same_number_of_bytes() -> None:
    store = Store(10**12)
    sizes = {"a": 200_000, "b": 1_000, "c": 50_000}
    sessions = [Waits(name, store, *[size] * (20_000_000 // size)) for name, size in sizes.items()]
    rounds(store).wake(sessions)
    await turns(6)
    assert sum(size for _, size in store.served) > 3 * TURN_BYTES
    got = {name: sum(size for who, size in store.served if who == name) for name in sizes}
    assert max(got.values()) - min(got.values()) <= QUANTUM_BYTES + TURN_BYTES, got


async def test_while_nothing_is_taken_the_turn_stays_where_it_is() -> None:
    store = Store(0)
    sessions = [Waits(name, store, *[10_000] * 1_000) for name in "abc"]
    served = rounds(store)
    for _ in range(300):
        store.room = 10_000  # One message at a time, as where the store is slow.
        served.wake(sessions)
        await turns(2)
    order = [name for name, _ in store.served]
    assert len(order) == 300
    counts = [order.count(name) for name in "abc"]
    assert max(counts) - min(counts) <= QUANTUM_BYTES // 10_000 + 1, counts


async def test_one_that_may_not_go_on_leaves_the_round_until_it_is_told_of_room() -> None:
    store = Store(10**9)
    stuck, free = Waits("stuck", store, 100, blocked=True), Waits("free", store, *[100] * 10)
    served = rounds(store)
    served.wake([stuck, free])
    await turns(5)
    assert [name for name, _ in store.served] == ["free"] * 10
    stuck.blocked = False
    await turns(5)
    assert len(store.served) == 10, "nobody has told it"
    served.wake([stuck])
    await turns(5)
    assert store.served[-1] == ("stuck", 100)


async def test_the_loop_goes_on_after_some_bytes() -> None:
    store = Store(10**12)
    rounds(store).wake([Waits(name, store, *[100_000] * 100) for name in "ab"])
    most = before = 0
    for _ in range(100):
        await asyncio.sleep(0)
        now = sum(size for _, size in store.served)
        most, before = max(most, now - before), now
    assert before == 20_000_000
    assert most <= TURN_BYTES + QUANTUM_BYTES + 100_000


async def test_one_that_has_gone_is_not_served() -> None:
    store = Store(10**9)
    gone = Waits("gone", store, *[MESSAGE_BYTES] * 3)
    rounds(store, lambda session: session is not gone).wake([gone, Waits("here", store, 5)])
    await turns(5)
    assert store.served == [("here", 5)]
