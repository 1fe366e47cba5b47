"""Waiting frames under the one predecessor that each waits for."""

from __future__ import annotations

import pytest

from thence.core.ordering import pending as holding_module
from thence.core.ordering.fifo import FifoStamp
from thence.core.ordering.pending import Held, Holding
from thence.core.wire.messages import Envelope, Frame
from thence.errors import InternalError


def held(stream: int, number: int, body: bytes = b"") -> Held[FifoStamp]:
    return Held(stream, stream, number, Frame(FifoStamp(number), Envelope("A", number, None, body)), 0)


def test_a_frame_is_taken_out_by_what_it_waits_for_and_by_nothing_else() -> None:
    holding = Holding(10)
    holding.hold(held(0, 2), (0, 1))
    holding.hold(held(1, 1), (0, 1))
    holding.hold(held(1, 2), (1, 1))
    assert holding.take(0, 2) == []
    assert [(frame.stream, frame.number) for frame in holding.take(0, 1)] == [(0, 2), (1, 1)]
    assert holding.take(0, 1) == []


def state(holding: Holding) -> tuple[int, bool, bool]:
    return len(holding), holding.full, holding.holds(0, 2)


def test_what_is_taken_out_still_counts_until_it_is_forgotten() -> None:
    """Nobody may take the place of a frame that is being looked at."""
    holding = Holding(1)
    frame = held(0, 2)
    holding.hold(frame, (0, 1))
    assert state(holding) == (1, True, True)
    holding.take(0, 1)
    assert state(holding) == (1, True, True)
    holding.hold_on(frame, (3, 3))
    assert state(holding) == (1, True, True)
    holding.take(3, 3)
    holding.forget(frame)
    assert state(holding) == (0, False, False)


def test_what_waits_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = held(0, 2, bytes(100)), held(1, 2)
    monkeypatch.setattr(holding_module, "MAX_HELD_BYTES", first.frame.weight + second.frame.weight)
    holding = Holding(10)
    holding.hold(first, (0, 1))
    assert not holding.full
    holding.hold(second, (0, 1))
    twin = holding.empty()
    twin.restore(holding.entries())
    for each in (holding, twin):
        assert each.full
        assert "2 frames of 228 bytes wait; MAX_HELD_BYTES is 228" in each.why_full
        for frame in each.take(0, 1):
            each.hold_on(frame, (0, 3))
        assert each.bytes == 228
        for frame in each.take(0, 3):
            each.forget(frame)
        assert (each.bytes, each.full) == (0, False)


def test_entries_keep_the_order_in_which_frames_will_be_looked_at() -> None:
    holding = Holding(10)
    for frame, missing in ((held(2, 5), (0, 9)), (held(1, 1), (0, 3)), (held(3, 1), (0, 9))):
        holding.hold(frame, missing)
    twin = holding.empty()
    twin.restore(holding.entries())
    assert twin.entries() == holding.entries()
    assert [frame.stream for frame in twin.take(0, 9)] == [2, 3]
    assert len(holding) == 3, "the twin is another one"


def test_the_limit_goes_along() -> None:
    twin = Holding(1).empty()
    twin.hold(held(0, 2), (0, 1))
    assert twin.full


def test_a_marker_has_no_message() -> None:
    with pytest.raises(InternalError):
        Held(0, 0, 1, Frame(FifoStamp(1), None), 0).message  # noqa: B018 - the access is the test
