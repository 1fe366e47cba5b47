"""Matrix clocks: what each says, and what a restart must find again."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import pytest

from thence.core.ordering import matrix_entries
from thence.core.ordering.matrix_clock import FullMatrix, FullMatrixStamp, MatrixState, UpdatesMatrix
from thence.core.ordering.matrix_entries import PackedMatrixStamp, PackedReader
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Frame
from thence.errors import ImpossibleFrame

NAMES = ("A", "B", "C")
A, B, C = range(3)


def key(row: int, column: int) -> int:
    return row * 3 + column


def test_what_was_sent_is_counted() -> None:
    for clock in (UpdatesMatrix(NAMES, A), FullMatrix(NAMES, A)):
        clock.count_sent([B, C])
        clock.count_sent([C])
        assert [clock.value(A, column) for column in (A, B, C)] == [0, 1, 2]


def test_updates_hold_what_changed_since_the_last_time() -> None:
    clock = UpdatesMatrix(NAMES, A)
    clock.count_sent([C])
    clock.count_sent([B])
    assert clock.updates_for(B) == (key(A, C), 1)
    clock.count_sent([B])
    assert clock.updates_for(B) == (), "the number of the message itself is in its stamp"
    clock.count_sent([C])
    clock.count_sent([B])
    assert clock.updates_for(B) == (key(A, C), 2)


def test_what_was_learned_before_the_first_send_is_sent_too() -> None:
    clock = UpdatesMatrix(NAMES, B)
    clock.learn((key(A, C), 1), A)
    clock.count_sent([C])
    assert clock.updates_for(C) == (key(A, C), 1)


def test_nothing_is_echoed_to_who_told_us() -> None:
    clock = UpdatesMatrix(NAMES, B)
    clock.learn((key(A, C), 1), A)
    clock.count_sent([A])
    assert clock.updates_for(A) == ()


def test_what_the_receiver_needs_comes_first_and_then_the_newest() -> None:
    clock = UpdatesMatrix(NAMES, C)
    clock.learn((key(A, B), 1), A)
    clock.learn((key(B, A), 1), B)
    clock.learn((key(A, B), 2), A)
    clock.count_sent([B])
    assert clock.updates_for(B) == (key(A, B), 2), "(B, A) is what B told us itself"
    assert clock.updates_for(A) == (key(B, A), 1, key(C, B), 1), "A looks at its own column before it delivers"


def test_a_receiver_learns_the_last_of_the_list_first() -> None:
    clock = UpdatesMatrix(NAMES, C)
    clock.learn((key(A, B), 1, key(B, A), 4), A)
    clock.count_sent([B])
    assert clock.updates_for(B) == (key(A, B), 1, key(B, A), 4)


def test_old_news_changes_nothing() -> None:
    clock = UpdatesMatrix(NAMES, C)
    clock.learn((key(A, B), 5), A)
    before = clock.save()
    clock.learn((key(A, B), 5), B)
    clock.learn((key(A, B), 4), B)
    assert clock.save() == before


def test_updates_go_on_after_a_restart() -> None:
    clock = UpdatesMatrix(NAMES, A)
    clock.count_sent([B, C])
    clock.updates_for(B)
    clock.learn((key(B, C), 3), B)
    twin = UpdatesMatrix(NAMES, A)
    twin.load(copy.deepcopy(clock.save()))
    for member in (B, C):
        assert twin.updates_for(member) == clock.updates_for(member)
    assert twin.save() == clock.save()


@pytest.mark.parametrize("logged", [1, 10**9])
def test_a_store_from_before_the_log_of_changes_goes_on(logged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There one change had many entries, and a change may have had none."""
    monkeypatch.setattr(matrix_entries, "FEWEST_LOGGED", logged)
    names = [f"m{number}" for number in range(24)]
    entries = [(place, 1 + place % 7, 1 + at // 10, 1 + at // 10 % 3) for at, place in enumerate(range(40, 500))]
    positions = [0, 45, 46, 47, 50, *range(19)]
    clock = UpdatesMatrix(names, 0)
    clock.load(MatrixState([0] * 24, (50, list(entries), list(positions)), None))
    assert clock.save() == MatrixState([0] * 24, (50, entries, positions), None)
    for column in (1, 2, 3, 4):
        clock.count_sent([column])
        stamp = clock.stamp_for(column)
        news = {place: value for place, value, change, source in entries if change > positions[column] and source != column}
        assert isinstance(stamp, PackedMatrixStamp)
        said = dict(PackedReader(24).read(stamp).pairs())
        assert said == {column: 1, **dict.fromkeys(range(1, column), 1), **news}


def test_a_full_matrix_is_written_row_by_row() -> None:
    clock = FullMatrix(NAMES, B)
    clock.count_sent([A, C])
    clock.count_sent([C])
    written = clock.stamp_for(C).matrix
    assert list(written[::4]) == [0, 0, 0, 1, 0, 2, 0, 0, 0]
    assert len(written) == 4 * 9
    assert clock.read(written).tolist() == [[0, 0, 0], [1, 0, 2], [0, 0, 0]]


def test_a_full_matrix_learns_the_greater_of_each() -> None:
    one, other = FullMatrix(NAMES, A), FullMatrix(NAMES, B)
    one.count_sent([B])
    other.count_sent([A])
    other.count_sent([A])
    one.release(HeldFrame(B, B, 2, Frame(other.stamp_for(A), None), 0))
    assert (one.value(A, B), one.value(B, A)) == (1, 2)
    twin = FullMatrix(NAMES, A)
    twin.load(copy.deepcopy(one.save()))
    twin.count_sent([C])
    assert (twin.value(A, C), one.value(A, C)) == (1, 0)


@pytest.mark.parametrize("said", [1, 2, 9])
def test_claims_about_us_are_seen(said: int) -> None:
    mine = FullMatrix(NAMES, A)
    mine.count_sent([C])
    matrix = [0, 0, said, 1, 0, 0, 0, 0, 0]
    stamp = FullMatrixStamp(1, b"".join(value.to_bytes(4, "little") for value in matrix))
    refused = pytest.raises(ImpossibleFrame, match=f"I sent {said} messages to 'C', but I sent 1")
    with nullcontext() if said == 1 else refused:
        mine.check(B, stamp)
