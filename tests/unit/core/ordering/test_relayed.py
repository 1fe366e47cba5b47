"""What is particular to ``relayed``: relays that carry for one side, several such domains, and what is kept within limits."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import pytest

from tests.support.runs import Run, random_run
from thence.core.ordering import relayed
from thence.core.ordering.relayed import Relayed, RelayedStamp
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import Envelope, Frame
from thence.sim.laws import Exponential
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge

LINKED = Topology(
    "linked",
    [
        Domain("Y", ("y1", "y2", "y3"), "vector"),
        Domain("X", ("x1", "x2", "z1", "z2"), "relayed"),
        Domain("Z", ("z1", "w"), "matrix"),
    ],
    [Link("l", ("Y", "X"), (("y1", "x1"), ("y2", "x2")))],
)
TWIN = Topology(
    "twin",
    [Domain("Y", ("y1", "y2", "r1", "r2"), "matrix"), Domain("X", ("r1", "r2", "z1", "z2"), "relayed")],
    replicas=[("r1", "r2")],
)
TWICE = Topology(
    "twice",
    [
        Domain("A", ("a", "r1"), "vector"),
        Domain("M", ("r1", "r2", "m"), "relayed"),
        Domain("B", ("r2", "b", "r3"), "matrix"),
        Domain("N", ("r3", "r4", "n"), "relayed"),
        Domain("C", ("r4", "c"), "sequenced"),
    ],
)


def violations(where: Topology, seed: int) -> int:
    """Count them in a run in which one way between two relays is slow."""
    slow = {"linked": ("x1", "z2"), "twin": ("r1", "z2"), "twice": ("r1", "m")}[where.name]
    options = SimulationOptions(messages=60, pattern="unicast", gap="exponential:3ms", replies=0.8, suspicions=6, seed=seed)
    events: list[Event] = []
    simulation = Simulation(options, events.append, where=where, delays={slow: Exponential(1_000_000_000)})
    waiting = simulation.run().waiting
    return len(judge(events).violations) + waiting


@pytest.mark.parametrize("where", [LINKED, TWIN, TWICE], ids=["relays of a link", "replicas", "two such domains"])
def test_causal_order_is_kept(where: Topology) -> None:
    assert [violations(where, seed) for seed in range(15)] == [0] * 15


def test_relays_of_one_link_and_replicas_are_fellows_and_others_are_not() -> None:
    assert TWIN.fellow_relays == {"X": {"r1": ("r2",), "r2": ("r1",), "z1": (), "z2": ()}}
    assert LINKED.fellow_relays == {"X": {"x1": ("x2",), "x2": ("x1",), "z1": (), "z2": ()}}


def test_replicas_that_do_not_know_of_each_other_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    join = Relayed.join

    def alone(self: Relayed, first_entry: int, _: Collection[str]) -> None:
        join(self, first_entry, ())

    monkeypatch.setattr(Relayed, "join", alone)
    assert any(violations(TWIN, seed) for seed in range(15))


def test_entries_of_another_domain_that_get_lost_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Relayed, "_elsewhere", lambda *_: ())
    assert any(violations(TWICE, seed) for seed in range(15))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_kept_of_a_stream_is_bounded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayed, "MAX_FACTS", 3)
    run = Run("relayed", "ABCD")
    random_run(run, Random(seed), 120)
    assert run.complaints() == []
    for ordering in run.orderings.values():
        for stream in ordering.state.streams:
            assert len(stream.facts) + len(stream.marks) <= 3 + 2 * 4
    assert any(stream.floor for ordering in run.orderings.values() for stream in ordering.state.streams)


def test_facts_that_come_late_are_shown_anew() -> None:
    """A captured relay claims to have seen very much of a stream; what is learned of it later must still be shown to others."""
    b = Relayed("B", "ABCD")
    assert b.send(Envelope("B", 1, ("C",), b""), ("C",)).send
    lie = RelayedStamp(1, 0, (0, 900, 3, 1), ())
    b.accept("D", Frame(lie, Envelope("D", 1, ("B",), b"")), 1)
    b.send(Envelope("B", 2, ("C",), b""), ("C",))
    b.accept("A", Frame(RelayedStamp(7, 0, (0, 7), (0 * 5 + 2, 6)), Envelope("A", 7, ("B",), b"")), 1)
    ((_, frame),) = b.send(Envelope("B", 3, ("C",), b""), ("C",)).send
    assert frame.stamp.facts[:2] == (0 * 5 + 2, 6), "number 6 of A's stream was for C"
