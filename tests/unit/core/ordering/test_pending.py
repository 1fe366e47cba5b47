"""Waiting frames under the one predecessor that each waits for."""

from __future__ import annotations

import pytest

from thence.core.ordering import pending as pending_module
from thence.core.ordering.fifo import FifoStamp
from thence.core.ordering.pending import HeldFrame, PendingFrames
from thence.core.wire.messages import Envelope, Frame
from thence.errors import InternalError


def held(stream: int, number: int, body: bytes = b"") -> HeldFrame[FifoStamp]:
    return HeldFrame(stream, stream, number, Frame(FifoStamp(number), Envelope("A", number, None, body)), 0)


def test_a_frame_is_taken_out_by_what_it_waits_for_and_by_nothing_else() -> None:
    pending = PendingFrames(10)
    pending.hold(held(0, 2), (0, 1))
    pending.hold(held(1, 1), (0, 1))
    pending.hold(held(1, 2), (1, 1))
    assert pending.take(0, 2) == []
    assert [(frame.stream, frame.number) for frame in pending.take(0, 1)] == [(0, 2), (1, 1)]
    assert pending.take(0, 1) == []


def state(pending: PendingFrames) -> tuple[int, bool, bool]:
    return len(pending), pending.full, (0, 2) in pending.held


def test_what_still_misses_something_waits_on_and_keeps_its_place() -> None:
    pending = PendingFrames(1)
    frame = held(0, 2)
    pending.hold(frame, (0, 1))
    assert state(pending) == (1, True, True)
    assert pending.freed(0, 1, lambda _: (3, 3)) == []
    assert state(pending) == (1, True, True)
    assert pending.freed(0, 1, lambda _: None) == [], "it waits for another one now"
    assert pending.freed(3, 3, lambda _: None) == [frame]
    assert state(pending) == (0, False, False)


def test_what_waits_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = held(0, 2, bytes(100)), held(1, 2)
    monkeypatch.setattr(pending_module, "MAX_HELD_BYTES", first.frame.weight + second.frame.weight)
    pending = PendingFrames(10)
    pending.hold(first, (0, 1))
    assert not pending.full
    pending.hold(second, (0, 1))
    twin = pending.empty()
    twin.restore(pending.entries())
    for each in (pending, twin):
        assert each.full
        assert "2 frames of 228 bytes wait; MAX_HELD_BYTES is 228" in each.why_full
        assert each.freed(0, 1, lambda _: (0, 3)) == []
        assert each.bytes == 228
        assert len(each.take(0, 3)) == 2
        assert (each.bytes, each.full) == (0, False)


def test_entries_keep_the_order_in_which_frames_will_be_looked_at() -> None:
    pending = PendingFrames(10)
    for frame, missing in ((held(2, 5), (0, 9)), (held(1, 1), (0, 3)), (held(3, 1), (0, 9))):
        pending.hold(frame, missing)
    twin = pending.empty()
    twin.restore(pending.entries())
    assert twin.entries() == pending.entries()
    assert [frame.stream for frame in twin.take(0, 9)] == [2, 3]
    assert len(pending) == 3, "the twin is another one"


def test_the_limit_goes_along() -> None:
    twin = PendingFrames(1).empty()
    twin.hold(held(0, 2), (0, 1))
    assert twin.full


def test_a_marker_has_no_message() -> None:
    with pytest.raises(InternalError):
        HeldFrame(0, 0, 1, Frame(FifoStamp(1), None), 0).message  # noqa: B018 - the access is the test
