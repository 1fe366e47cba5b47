"""The simulated disk: what a crash takes, what it leaves, and what a sync covers."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import ConfigError, StorageError, UsageError
from thence.sim.disk import Disk, DiskOptions, Tail
from thence.sim.laws import Uniform


def disk(tail: Tail = "lost", seed: int = 1, full_at_records: int = 1_000) -> Disk:
    return Disk(DiskOptions(tail=tail, full_at_records=full_at_records), Random(seed))


def filled(synced: int, volatile: int, tail: Tail = "lost", seed: int = 1) -> Disk:
    """A disk with records 0, 1, 2, … of which the first ``synced`` are durable."""
    made = disk(tail, seed)
    for record in range(synced):
        made.append(record)
    made.sync()
    for record in range(synced, synced + volatile):
        made.append(record)
    return made


def test_what_is_not_synced_is_readable_and_does_not_survive() -> None:
    made = filled(synced=2, volatile=3)
    assert made.records() == (0, 1, 2, 3, 4)
    assert made.crash() == 3
    assert made.records() == (0, 1)
    assert (made.counters.lost, made.counters.crashes) == (3, 1)


def test_a_sync_covers_what_was_appended_before_it_began() -> None:
    made = disk()
    made.append("covered")
    token = made.begin_sync()
    made.append("too late")
    assert made.complete_sync(token)
    assert made.durable_upto == 1
    made.crash()
    assert made.records() == ("covered",)


def test_a_crash_between_begin_and_complete_takes_the_tail_and_the_token() -> None:
    made = disk()
    made.append("a")
    token = made.begin_sync()
    assert made.crash() == 1
    made.append("b")
    assert not made.complete_sync(token)
    assert (made.durable_upto, made.counters.syncs) == (0, 0)
    made.crash()
    assert made.records() == ()


def test_syncs_may_overlap_and_complete_in_any_order_once() -> None:
    made = disk()
    made.append("a")
    first = made.begin_sync()
    made.append("b")
    second = made.begin_sync()
    assert first != second
    assert made.complete_sync(second)
    assert made.complete_sync(first)
    assert made.durable_upto == 2
    assert not made.complete_sync(second)
    assert (made.counters.syncs, made.counters.synced) == (2, 2)


def surviving(tail: Tail) -> set[tuple[int, ...]]:
    """What was left, over many seeds, of two durable records and three that were not."""
    left = set()
    for seed in range(200):
        made = filled(synced=2, volatile=3, tail=tail, seed=seed)
        lost = made.crash()
        assert len(made.records()) + lost == 5
        left.add(tuple(made.records()))
    return left


ANY_PREFIX = {(0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)}


def test_any_prefix_of_the_tail_may_survive() -> None:
    assert surviving("prefix") == ANY_PREFIX
    assert surviving("torn") == ANY_PREFIX
    assert surviving("lost") == {(0, 1)}


def test_a_torn_record_is_noticed_counted_and_lost() -> None:
    torn = [made for made in (filled(0, 3, "torn", seed) for seed in range(50)) if made.crash() and made.counters.torn]
    assert torn
    for made in torn:
        assert made.counters.torn == 1
        assert made.counters.lost >= 1
        assert made.records() == tuple(range(3 - made.counters.lost))


def test_what_survived_one_crash_survives_the_next() -> None:
    for seed in range(30):
        made = filled(synced=1, volatile=4, tail="prefix", seed=seed)
        made.crash()
        left = made.records()
        assert made.crash() == 0
        assert made.records() == left


def test_compaction_replaces_records_by_a_snapshot_and_keeps_positions() -> None:
    made = filled(synced=3, volatile=2)
    made.compact("zero to two", 3)
    assert (made.snapshot, made.records(), made.first, made.end) == ("zero to two", (3, 4), 3, 5)
    assert made.append(5) == 5
    made.crash()
    assert (made.snapshot, made.records(), made.end) == ("zero to two", (), 3)


def test_compaction_of_everything_makes_it_durable() -> None:
    made = filled(synced=1, volatile=2)
    token = made.begin_sync()
    made.compact("all")
    assert (made.records(), made.durable_upto) == ((), 3)
    made.append(3)
    assert made.complete_sync(token)
    assert made.crash() == 1
    assert (made.snapshot, made.counters.compactions) == ("all", 1)


@pytest.mark.parametrize("upto", [1, 6])
def test_compaction_outside_the_log_is_refused(upto: int) -> None:
    made = filled(synced=5, volatile=0)
    made.compact("two", 2)
    with pytest.raises(UsageError, match=f"cannot compact up to {upto}: the log holds 2 up to 5"):
        made.compact("no", upto)
    assert (made.snapshot, made.records()) == ("two", (2, 3, 4))


def test_a_full_disk_refuses_and_compaction_makes_room() -> None:
    made = disk(full_at_records=2)
    made.append("a")
    made.append("b")
    with pytest.raises(StorageError, match=r"full: it holds 2 records \(full_at_records\); nothing was written"):
        made.append("c")
    assert (made.records(), made.counters.refused, made.counters.appended) == (("a", "b"), 1, 2)
    made.compact("ab")
    assert made.append("c") == 2
    with pytest.raises(StorageError, match="full"):
        made.append("d")


def test_the_sync_delay_follows_its_law_and_seed() -> None:
    options = DiskOptions(sync_delay=Uniform(5, 9))
    delays = [Disk(options, Random(seed)).sync_delay_ns() for seed in range(100)]
    assert set(delays) == {5, 6, 7, 8, 9}
    assert delays == [Disk(options, Random(seed)).sync_delay_ns() for seed in range(100)]


@pytest.mark.parametrize("full_at", [0, 10_000_000])
def test_options_that_cannot_be_are_refused_by_name(full_at: int) -> None:
    with pytest.raises(ConfigError, match="full_at_records must be between 1 and 1000000"):
        DiskOptions(full_at_records=full_at)
    with pytest.raises(ConfigError, match="tail must be one of lost, prefix, torn, not 'half'"):
        DiskOptions(tail="half")  # type: ignore[arg-type]


STEPS = st.lists(st.sampled_from(["append", "begin", "complete", "crash", "compact"]), max_size=60)


@given(STEPS, st.sampled_from(["lost", "prefix", "torn"]), st.integers(0, 100))
def test_what_was_synced_is_never_lost(steps: list[str], tail: Tail, seed: int) -> None:
    made, tokens, promised = disk(tail, seed), list[int](), 0
    for step in steps:
        if step == "append":
            made.append(made.end)
        elif step == "begin":
            tokens.append(made.begin_sync())
        elif step == "complete" and tokens:
            made.complete_sync(tokens.pop(0))
        elif step == "crash":
            made.crash()
            assert made.end == made.durable_upto
        elif step == "compact":
            made.compact(made.durable_upto, made.durable_upto)
        assert made.durable_upto >= promised
        promised = made.durable_upto
        assert made.records() == tuple(range(made.first, made.end))
