"""What the orderings cost: deliveries per second, the price of a backlog, and ``updates`` against ``full`` matrices.

Only ``accept`` is timed (for the stamps see ``benchmarks.stamps``); frames are made beforehand by real members. The peer is
another ordering, or the same one under another load, in the same run: ``unordered``, which does nothing but tell
replays apart, stands for what a delivery costs anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from benchmarks import stamps
from benchmarks.table import Row, markdown
from thence.core.ordering import ORDERINGS, ArrivalOrder, Ordering, make_ordering, ordering_named
from thence.core.wire.messages import Envelope, Frame

SIZES = (8, 64, 512)
MESSAGES = 2_000
WRITERS = 12
"""How many members write, at most: the receiver's work is the same, and making the frames takes less time."""
BLOCK = 500
"""Badly out of order: the arrivals are cut into blocks of this many, and each block comes backwards."""
REPEATS = 5
OPTIONS: dict[str, dict[str, Any]] = {"flood": {"links": "ring"}}
"""On a ring, since on a full graph of 512 every message is a quarter of a million frames."""
BACKLOGS = (10, 10_000)
PROBES = 2_000

Arrivals = list[tuple[str, Frame[Any]]]


class Group(NamedTuple):
    """Members that exchange messages at once, except for the receiver, whose frames are kept."""

    members: dict[str, Ordering]
    receiver: str
    arrivals: Arrivals

    @classmethod
    def of(cls, name: str, count: int, options: dict[str, Any] | None = None) -> Group:
        """Make a group of ``count``; the last member is the receiver, who is no coordinator or gateway."""
        names = [f"m{number}" for number in range(count)]
        return cls({member: make_ordering(name, member, names, options) for member in names}, names[-1], [])

    def send(self, sender: str, number: int, to: tuple[str, ...] | None) -> None:
        """Let a member send, and let everything arrive at once at everybody but the receiver."""
        pending = [(sender, *hop) for hop in self.members[sender].send(Envelope(sender, number, to, b"x" * 100), to).send]
        for source, target, frame in pending:
            if target == self.receiver:
                self.arrivals.append((source, frame))
            else:
                pending += [(target, *hop) for hop in self.members[target].accept(source, frame, 0).send]


def traffic(name: str, count: int, messages: int = MESSAGES) -> tuple[Group, Arrivals]:
    """Return the frames that reach one member of ``count`` while others write to it and to each other."""
    chance = Random(1)
    group = Group.of(name, count, OPTIONS.get(name))
    others = [member for member in group.members if member != group.receiver]
    writers = others[-WRITERS:]
    for number in range(messages):
        sender = chance.choice(writers)
        to = tuple({*chance.sample(others, 3), group.receiver} - {sender})
        group.send(sender, number + 1, to)
    return group, group.arrivals


def out_of_order(arrivals: Arrivals, arrival: ArrivalOrder) -> Arrivals:
    """Return the arrivals badly shuffled: block by block backwards, or sender by sender where channels are FIFO."""
    shuffled: Arrivals = []
    for at in range(0, len(arrivals), BLOCK):
        block = arrivals[at : at + BLOCK]
        if arrival is ArrivalOrder.ANY:
            shuffled += reversed(block)
        else:
            for sender in sorted({sender for sender, _ in block}, reverse=True):
                shuffled += [entry for entry in block if entry[0] == sender]
    return shuffled


def best(measure: Callable[[], float]) -> float:
    """Return the best of several measurements: noise only ever adds."""
    return min(measure() for _ in range(REPEATS))


def accept_all(receiver: Callable[[], Ordering], arrivals: Arrivals) -> float:
    """Return the seconds that one delivery takes."""
    ordering = receiver()
    accept = ordering.accept
    delivered = 0
    began = time.perf_counter()
    for sender, frame in arrivals:
        delivered += len(accept(sender, frame, 0).deliver)
    seconds = time.perf_counter() - began
    if ordering.waiting() or not delivered:
        raise AssertionError(f"{ordering.traits.name}: {len(ordering.waiting())} frames still wait")
    return seconds / delivered


def fresh(group: Group, name: str) -> Callable[[], Ordering]:
    """Return how to make the receiver anew."""
    return lambda: make_ordering(name, group.receiver, list(group.members), OPTIONS.get(name))


def rates() -> Iterator[Row]:
    """Deliveries per second at 8, 64 and 512 processes, in order and badly out of order, against ``unordered`` in order."""
    for count in SIZES:
        prepared = {name: traffic(name, count) for name in ORDERINGS}
        cost: dict[str, tuple[float, float]] = {}
        for name, (group, arrivals) in prepared.items():
            shuffled = out_of_order(arrivals, ordering_named(name).traits.arrival)
            cost[name] = (
                best(lambda g=group, a=arrivals, n=name: accept_all(fresh(g, n), a)),  # type: ignore[misc]
                best(lambda g=group, a=shuffled, n=name: accept_all(fresh(g, n), a)),  # type: ignore[misc]
            )
        base = cost["unordered"][0]
        for name, (ordered, shuffled_cost) in cost.items():
            peer = f"unordered {1 / base:,.0f}/s"
            yield Row(f"{name}, {count} processes, in order", f"{1 / ordered:,.0f}/s", peer, base / ordered)
            yield Row(f"{name}, {count} processes, out of order", f"{1 / shuffled_cost:,.0f}/s", peer, base / shuffled_cost)


def backlog_costs() -> Iterator[Row]:
    """What a message costs with 10 and with 10,000 others waiting: within 1.5 times."""
    for name, make in BACKLOG_CASES.items():
        few, many = (best(lambda m=make, w=waiting: _with_backlog(m, w)) for waiting in BACKLOGS)  # type: ignore[misc]
        yield Row(
            f"{name}: a message with {BACKLOGS[1]:,} waiting",
            f"{many * 1e6:.2f} µs",
            f"with {BACKLOGS[0]}: {few * 1e6:.2f} µs",
            few / many,
        )


def _with_backlog(make: Callable[[int], tuple[Ordering, Arrivals, Arrivals]], waiting: int) -> float:
    ordering, backlog, probes = make(waiting)
    for sender, frame in backlog:
        ordering.accept(sender, frame, 0)
    if len(ordering.waiting()) != waiting:
        raise AssertionError(f"{ordering.traits.name}: {len(ordering.waiting())} frames wait instead of {waiting}")
    accept = ordering.accept
    began = time.perf_counter()
    for sender, frame in probes:
        accept(sender, frame, 0)
    return (time.perf_counter() - began) / len(probes)


def _backlog_case(name: str, options: dict[str, Any] | None = None) -> Callable[[int], tuple[Ordering, Arrivals, Arrivals]]:
    """One writer's first message is missing, so all its others wait; another writer's come through, one by one."""

    def make(waiting: int) -> tuple[Ordering, Arrivals, Arrivals]:
        group = Group.of(name, 8, options)
        blocked, free, *_ = (member for member in list(group.members)[1:] if member != group.receiver)
        # Coordinators and gateways are first members: there the requests of others are what waits.
        at = group.receiver if ordering_named(name).traits.direct else "m0"
        names = list(group.members)
        # Each writer by itself, so that neither has heard of the other.
        frames = {
            writer: [_frame_for(at, make_ordering(name, writer, names, options), number) for number in range(1, total + 1)]
            for writer, total in ((blocked, waiting + 1), (free, PROBES))
        }
        backlog = [(blocked, frame) for frame in frames[blocked][1:]]
        return make_ordering(name, at, names, options), backlog, [(free, frame) for frame in frames[free]]

    return make


def _frame_for(at: str, writer: Ordering, number: int) -> Frame[Any]:
    state = _WRITERS.setdefault((writer.traits.name, writer.me, at), {})
    if number == 1:
        state.clear()
        state["ordering"] = writer
    sent = state["ordering"].send(Envelope(writer.me, number, (at,), b"x" * 100), (at,)).send
    return next(frame for target, frame in sent if target == at)


_WRITERS: dict[tuple[str, str, str], dict[str, Any]] = {}
BACKLOG_CASES = {
    "fifo": _backlog_case("fifo"),
    "vector": _backlog_case("vector"),
    "vector, full stamps": _backlog_case("vector", {"stamps": "full"}),
    "matrix": _backlog_case("matrix"),
    "matrix, full stamps": _backlog_case("matrix", {"stamps": "full"}),
    "sequenced, at the coordinator": _backlog_case("sequenced"),
    "grouped, at a gateway": _backlog_case("grouped", {"groups": [[f"m{number}" for number in range(8)]]}),
}


def run() -> list[Row]:
    """Measure everything in this file."""
    return [*rates(), *backlog_costs(), *stamps.rows()]


if __name__ == "__main__":
    print(markdown(run()))
