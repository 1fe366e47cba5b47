"""The turn of deliveries: nothing is handed up before it is safe."""

from __future__ import annotations

from typing import Any

from thence.core.stability.safe_turn import SafeTurn
from thence.core.wire.messages import Envelope, Frame


def late(position: int, origin: str) -> tuple[int, str, Frame[Any]]:
    return position, "d", Frame(None, Envelope(origin, position, None, b"x"))


def test_what_is_safe_is_handed_up_in_order_and_the_rest_waits() -> None:
    turn = SafeTurn()
    deliveries = [late(1, "a"), late(2, "b"), late(3, "a")]
    turn.put(deliveries)
    weight = deliveries[0][2].weight
    assert (len(turn), turn.bytes, turn.bytes_of) == (3, 3 * weight, {"a": 2 * weight, "b": weight})
    assert [str(wait.message) for wait in turn.waiting()] == ["a:1", "b:2", "a:3"]
    assert turn.next(0) == []
    assert turn.next(2) == deliveries[:2]
    assert (len(turn), turn.bytes, turn.bytes_of) == (1, weight, {"a": weight})


def test_a_fork_goes_on_by_itself() -> None:
    turn = SafeTurn()
    turn.put([late(1, "a")])
    twin = turn.fork()
    assert twin.next(1)
    assert (len(turn), len(twin), twin.bytes_of) == (1, 0, {})
    assert turn.bytes_of
