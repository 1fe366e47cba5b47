"""Wires: real members that are made when they are needed, and what is counted on the way."""

from __future__ import annotations

from random import Random

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.laws import Constant
from thence.sim.network import NetworkOptions
from thence.studies.parts import shapes
from thence.studies.parts.wires import TimedWires, Wires
from thence.trace.events import Event

MS = 1_000_000


def test_only_those_are_made_whom_a_message_reaches() -> None:
    wires = Wires(shapes.bus(3, 3), lambda _: None)
    wires.submit("p1-2", ("p2-2",))
    wires.carry()
    assert wires.delivered == 1
    assert wires.frames == 3
    assert sorted(wires.handled.items()) == [("p1-1", 2), ("p2-1", 2), ("p2-2", 1)]


def test_what_is_sent_to_those_who_take_no_part_is_counted() -> None:
    topology = Topology.flat(Domain("all", tuple("abcdef"), "vector"))
    wires = Wires(topology, lambda _: None, {"a", "b"})
    wires.submit("a", ("b",))
    wires.carry()
    assert wires.frames == 5
    assert wires.delivered == 1


def test_a_message_that_waits_is_held_as_long_as_it_waits() -> None:
    slow = {("a", "c"): Constant(10 * MS)}
    events: list[Event] = []
    topology = Topology.flat(Domain("all", tuple("abc"), "matrix"))
    wires = TimedWires(topology, events.append, NetworkOptions(delay=Constant(MS), link_delays=slow), Random(0))
    wires.submit_at(0, "a", ("c",), b"first")
    wires.submit_at(0, "a", ("b",), b"")
    wires.submit_at(2 * MS, "b", ("c",), b"second")  # It arrives at 3 ms and waits for the first one until 10 ms.
    wires.run()
    assert wires.held_ns == 7 * MS
    assert wires.held_most == 1
    wires.check_complete(3)
    assert sorted(wires.delays_ns) == [MS, 8 * MS, 10 * MS]
    assert [event.message for event in events if event.process == "c"] == ["a:1", "b:1"]
