"""Whoever holds most connections makes room, and nobody else does."""

from __future__ import annotations

from random import Random

from thence.node.shares import ConnectionShares


def shares(**held: int) -> ConnectionShares[str]:
    made: ConnectionShares[str] = ConnectionShares()
    for holder, count in held.items():
        for number in range(count):
            made.add(f"{holder} {number}", holder)
    return made


def test_whoever_holds_most_gives_up_its_newest() -> None:
    assert shares(ann=1, mal=5, bob=2).gives_way_to("ann") == "mal 4"


def test_nobody_gives_way_to_whoever_would_have_as_many() -> None:
    held = shares(ann=4, mal=5)
    assert held.gives_way_to("mal") is None
    assert held.gives_way_to("ann") is None, "the two would change places again and again"
    assert held.gives_way_to("new") == "mal 4"
    assert shares(ann=1, bob=1).gives_way_to("new") is None
    assert shares().gives_way_to("new") is None


def test_what_is_dropped_or_counted_for_another_counts_no_longer() -> None:
    held = shares(ann=2, mal=2)
    held.drop("mal 0")
    held.drop("nobody's")
    held.add("mal 1", "ann")
    assert (len(held), held.held_by("mal"), held.held_by("ann"), held.largest()) == (3, 0, 3, "ann")
    assert (held.oldest_of("ann"), held.newest_of("ann"), held.holder("mal 1")) == ("ann 0", "mal 1", "ann")
    assert list(held) == ["ann 0", "ann 1", "mal 1"]


def test_in_the_end_all_who_want_more_than_their_part_have_equal_parts() -> None:
    chance, held, room = Random(3), shares(greedy=30), 30
    for number in range(2_000):
        holder = chance.choice(["greedy", "greedier", "ann"])
        if holder == "ann" and held.held_by("ann") == 4:
            continue  # She wants no more.
        if len(held) == room:
            way = held.gives_way_to(holder)
            if way is None:
                continue
            held.drop(way)
        held.add(f"{holder} more {number}", holder)
    assert [held.held_by(holder) for holder in ("greedy", "greedier", "ann")] == [13, 13, 4]
