"""Both tables of entries know the same, whatever they are told; and a clock goes from one to the other unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import Run, random_run
from thence.core.ordering import make_ordering, matrix_clock, matrix_entries
from thence.core.ordering.matrix_entries import (
    DenseEntries,
    Entry,
    PackedEntries,
    PackedMatrixStamp,
    PackedReader,
    SparseEntries,
    examine,
)
from thence.core.wire.messages import Envelope, Frame
from thence.errors import FrameRefused, ImpossibleFrame, MalformedFrame

COUNT = 9
ME, PEER = 2, 5
NAMES = [f"m{number}" for number in range(COUNT)]


def some(chance: Random, most: int, highest: int) -> tuple[int, ...]:
    """Return so many different entries at most, those for ``ME`` first."""
    keys = chance.sample(range(COUNT**2), chance.randint(1, most))
    keys.sort(key=lambda key: key % COUNT != ME)
    return tuple(number for key in keys for number in (key, chance.randint(1, highest)))


def told(found: tuple[int, ...]) -> dict[int, int]:
    return dict(zip(found[::2], found[1::2], strict=True))


@given(seed=st.integers(0, 2**32), most=st.sampled_from([3, 25, 60]), highest=st.sampled_from([6, 300, 2**17, 2**62]))
def test_both_tables_say_the_same(seed: int, most: int, highest: int) -> None:
    chance = Random(seed)
    tables: tuple[SparseEntries | DenseEntries, ...] = (SparseEntries(COUNT), DenseEntries(COUNT, ME, 0, ()))
    changes = [0, 0]
    positions = [[0] * COUNT, [0] * COUNT]
    for _ in range(40):
        source, updates, key = chance.randrange(COUNT), some(chance, most, highest), chance.randrange(COUNT**2)
        column = chance.randrange(COUNT)
        found = []
        for at, table in enumerate(tables):
            changes[at] = table.learn(updates, changes[at], source) + 1
            table.count(key, changes[at], ME)
            found.append(table.since(positions[at][column], column, ME * COUNT + column))
            needed = [place % COUNT == column for place in told(found[at])]
            assert needed == sorted(needed, reverse=True)
            positions[at][column] = changes[at]
        assert told(found[0]) == told(found[1])
        everything = [{place: (value, source) for place, value, _, source in table.saved()} for table in tables]
        assert everything[0] == everything[1]
        assert DenseEntries(COUNT, ME, changes[1], tables[1].saved()).saved() == tables[1].saved()


LOGS = {"no log": (10**9, 9, 9), "a log": (1, 9, 9), "a log, sorted": (1, 9, 10**3), "a short log": (1, 27, 0)}
"""From how many members on there is a log, which share of the entries it holds, and how many of them are sorted."""


@given(seed=st.integers(0, 2**32), highest=st.sampled_from([6, 300, 2**17, 2**62]))
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_a_packed_stamp_says_what_an_unpacked_one_does(log: tuple[int, int, int], seed: int, highest: int) -> None:
    """Or more, if it is written as a whole; whoever reads it knows the same afterwards. With a log of changes, and without."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("FEWEST_LOGGED", "LOGGED_SHARE", "FEW_SORTED"), log, strict=True):
            patch.setattr(matrix_entries, name, value)
        compare_stamps(Random(seed), highest)


def compare_stamps(chance: Random, highest: int) -> None:
    dense = DenseEntries(COUNT, PEER, 0, ())
    changes = 0
    positions = [0, 0, 0]
    for at in range(15):
        changes = dense.learn(some(chance, chance.choice([2, 2, 12, 60]), highest), changes, chance.randrange(COUNT))
        if chance.random() < 0.1:
            dense = DenseEntries(COUNT, PEER, changes, dense.saved())
        reader = chance.randrange(len(positions))
        stamp = dense.packed(1, positions[reader], PEER)
        assert stamp == dense.packed(1, positions[reader], PEER), f"step {at}: another one the second time"
        news = told(dense.since(positions[reader], PEER, -1))
        positions[reader] = changes
        if not stamp.values:
            assert not news
            continue
        pairs = dict((said := PackedReader(COUNT).read(stamp)).pairs())
        assert news.items() <= pairs.items()
        assert not stamp.steps or pairs == news
        assert not stamp.steps or len(news) * matrix_entries.WHOLE_SHARE < COUNT**2
        for place in (0, PEER * COUNT + ME, COUNT**2 - 1, *chance.sample(range(COUNT**2), 3)):
            assert said.value(place) == pairs.get(place, 0)
        readers = (SparseEntries(COUNT), DenseEntries(COUNT, ME, 0, ()))
        for table in readers:
            check_reader(table, said, pairs)


def check_reader(table: SparseEntries | DenseEntries, said: PackedEntries, pairs: dict[int, int]) -> None:
    """Let a table that knows one entry already learn from a stamp."""
    known = {ME * COUNT + 3: 4}
    changes = table.learn((ME * COUNT + 3, 4), 0, ME)
    news = {place: value for place, value in pairs.items() if value > known.get(place, 0)}
    mine = [(place - ME * COUNT, value) for place, value in news.items() if place // COUNT == ME]
    to_me = [(place // COUNT, value) for place, value in news.items() if place % COUNT == ME and place // COUNT != ME]
    assert table.near(said, ME) == (mine, to_me)
    if isinstance(table, DenseEntries):
        for place, value in pairs.items():
            alone = (mine, to_me) in (([], [(place // COUNT, value)]), ([(place % COUNT, value)], []))
            is_near = place // COUNT == ME or place % COUNT == ME
            assert table.is_all_that_is_near(said, place, value) == (alone and is_near and place in news)
    table.learn_packed(said, changes, PEER)
    assert {place: value for place, value, _, _ in table.saved()} == known | pairs | {
        place: value for place, value in known.items() if value > pairs.get(place, 0)
    }


@given(seed=st.integers(0, 2**32), most=st.sampled_from([3, 25, 60]))
def test_what_a_table_learns_in_one_look_is_what_it_learns_otherwise(seed: int, most: int) -> None:
    """Or it learns nothing of it: where something concerns this member, or cannot be."""
    chance = Random(seed)
    near = frozenset(place for place in range(COUNT**2) if ME in divmod(place, COUNT))
    one, other = SparseEntries(COUNT), SparseEntries(COUNT)
    changes = 0
    for _ in range(20):
        updates = some(chance, most, 6)
        if chance.random() < 0.7:
            updates = tuple(x for key, value in told(updates).items() if key not in near for x in (key, value)) or (0, 1)
        news = {key for key, value in told(updates).items() if value > one.value(key)}
        before = one.saved()
        for broken in (updates[:-1], (*updates, *updates[:2]), (-1, 1), (COUNT**2, 1), (0, 0), (0, 2**62 + 1)):
            assert one.learn_next(broken, near, changes, PEER) is None
        learned = one.learn_next(updates, near, changes, PEER)
        assert (learned is None) == bool(news & near)
        if learned is None:
            assert one.saved() == before
            learned = one.learn(updates, changes, PEER)
        assert other.learn(updates, changes, PEER) == learned
        assert one.saved() == other.saved()
        changes = learned


def swap(first: int, second: int) -> Callable[[list[int]], None]:
    def change(updates: list[int]) -> None:
        updates[first], updates[second] = updates[second], updates[first]

    return change


def put(at: int, value: int) -> Callable[[list[int]], None]:
    return lambda updates: updates.__setitem__(at, value)


BROKEN: dict[str, Callable[[list[int]], None]] = {
    "a place below all": put(10, -1),
    "a place beyond all": put(10, COUNT**2),
    "a value of 0": put(11, 0),
    "a value beyond all": put(11, 2**62 + 1),
    "a value beyond 64 bits": put(11, 2**63),
    "an entry twice": put(40, 1),
    "its own number": put(0, PEER * COUNT + ME),
    "what is for me comes later": swap(0, 60),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_stamp_that_cannot_be_is_refused(broken: Callable[[list[int]], None]) -> None:
    keys = [ME, *(key for key in range(COUNT**2) if key % COUNT != ME)][:40]
    updates = [number for key in keys for number in (key, 3)]
    mine = [(key - ME * COUNT, 3) for key in keys if key // COUNT == ME]
    assert examine(tuple(updates), COUNT, ME, PEER * COUNT + ME) == mine
    broken(updates)
    with pytest.raises(MalformedFrame):
        examine(tuple(updates), COUNT, ME, PEER * COUNT + ME)


def packed(number: int, entries: dict[int, int], width: int = 1) -> PackedMatrixStamp:
    """Return a stamp with these entries, in this order."""
    steps = np.diff(list(entries), prepend=-1).astype("<u1").tobytes()
    return PackedMatrixStamp(number, 1, steps, np.array(list(entries.values()), dtype=f"<u{width}").tobytes())


OWN = PEER * COUNT + ME
WHOLE = PackedMatrixStamp(1, 1, b"", bytes(int(place == OWN) for place in range(COUNT**2)))
BROKEN_PACKED: dict[str, tuple[PackedMatrixStamp, type[FrameRefused]]] = {
    "nothing": (PackedMatrixStamp(1, 1, b"", b""), MalformedFrame),
    "steps of three bytes": (PackedMatrixStamp(1, 3, bytes([OWN + 1, 0, 0]), b"\1"), MalformedFrame),
    "steps of no bytes": (PackedMatrixStamp(1, 0, bytes([OWN + 1]), b"\1"), MalformedFrame),
    "half a step": (PackedMatrixStamp(1, 2, bytes([OWN + 1]), b"\1"), MalformedFrame),
    "a whole matrix of others": (PackedMatrixStamp(1, 1, b"", bytes(COUNT**2 + 1)), MalformedFrame),
    "values of three bytes": (PackedMatrixStamp(1, 1, b"", bytes(3 * COUNT**2)), MalformedFrame),
    "places without values": (PackedMatrixStamp(1, 1, bytes([OWN + 1]), b""), MalformedFrame),
    "more places than values": (PackedMatrixStamp(1, 1, bytes([1, OWN]), b"\1"), MalformedFrame),
    "more places than there are": (PackedMatrixStamp(1, 1, b"\1" * 82, b"\1" * 82), MalformedFrame),
    "a place beyond all": (packed(1, {OWN: 1, COUNT**2: 1}), MalformedFrame),
    "a step beyond all": (PackedMatrixStamp(1, 8, b"\xff" * 16, b"\1\1"), MalformedFrame),
    "no step": (PackedMatrixStamp(1, 1, bytes([OWN + 1, 0]), b"\1\1"), MalformedFrame),
    "a value beyond all": (packed(1, {4: 2**62 + 1, OWN: 1}, 8), MalformedFrame),
    "without its own number": (packed(1, {4: 1}), MalformedFrame),
    "with another number": (packed(1, {OWN: 2}), MalformedFrame),
    "a whole one with another number": (PackedMatrixStamp(2, 1, b"", WHOLE.values), MalformedFrame),
    "what I never sent": (packed(1, {ME * COUNT + 7: 1, OWN: 1}), ImpossibleFrame),
    "a whole one of what I never sent": (PackedMatrixStamp(1, 1, b"", b"\1" * COUNT**2), ImpossibleFrame),
}


@pytest.mark.parametrize(("broken", "error"), BROKEN_PACKED.values(), ids=BROKEN_PACKED)
@pytest.mark.parametrize("crowded", [False, True])
def test_a_packed_stamp_that_cannot_be_is_refused(
    crowded: bool, broken: PackedMatrixStamp, error: type[FrameRefused], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_entries, "FEWEST_DENSE", 1 if crowded else 10**9)
    ordering = make_ordering("matrix", NAMES[ME], NAMES)
    ordering.send(Envelope(NAMES[ME], 1, None, b""), (NAMES[0],))
    before = ordering.snapshot()
    for sound in (packed(1, {4: 9, OWN: 1}), WHOLE):
        ordering.fork().accept(NAMES[PEER], Frame(sound, Envelope(NAMES[PEER], 1, None, b"")), 0)
    with pytest.raises(error):
        ordering.accept(NAMES[PEER], Frame(broken, Envelope(NAMES[PEER], 1, None, b"")), 0)
    assert ordering.snapshot() == before


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0, matrix_entries.WHOLE_SHARE])
def test_a_clock_goes_over_to_arrays_and_nothing_that_is_delivered_changes(
    share: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a restart finds the same table and goes on with the same stamps."""
    made: list[int] = []

    class Counted(DenseEntries):
        def __init__(self, count: int, me: int, changes: int, entries: Iterable[Entry]) -> None:
            super().__init__(count, me, changes, entries)
            made.append(count)

    monkeypatch.setattr(matrix_clock, "DenseEntries", Counted)
    monkeypatch.setattr(matrix_entries, "WHOLE_SHARE", share)
    runs = []
    for fewest in (10**9, 20):
        monkeypatch.setattr(matrix_entries, "FEWEST_DENSE", fewest)
        assert not made
        run = Run("matrix", [f"s{number}" for number in range(7)])
        random_run(run, Random(seed), 150)
        runs.append(run)
    assert len(made) == 7
    assert runs[0].complaints() == runs[1].complaints() == []
    for member in runs[0].members:
        assert sorted(runs[0].deliveries(member)) == sorted(runs[1].deliveries(member))
    for name, ordering in runs[1].orderings.items():
        twin = ordering.fork()
        envelope = Envelope(name, 1000, None, b"")
        assert twin.send(envelope, None) == ordering.send(envelope, None)
        assert twin.snapshot() == ordering.snapshot()
