"""Two or more domains joined by links, and runs over them with traffic laid out by hand: for the tests and the benchmark.

Traffic is a list of (time, sender, recipients), so that two fabrics can be given exactly the same, and every frame that goes out
is written down, to be counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from thence.core.domain import Domain
from thence.core.messages import Frame
from thence.core.topology import Link, Promise, Topology
from thence.sim.laws import Constant
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event

Mode = Literal["causal", "fifo", "printed"]
Wait = Literal["sent", "delivered"]
Send = tuple[int, str, tuple[str, ...] | None]
"""When, in nanoseconds; who; to whom (None: everyone)."""

MS = 1_000_000


def names(letter: str, count: int) -> tuple[str, ...]:
    """Return a1, a2, …"""
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def two(
    sizes: tuple[int, int],
    pairs: int,
    mode: Mode = "causal",
    wait: Wait = "delivered",
    *,
    ordering: str = "vector",
    promise: Promise | None = None,
) -> Topology:
    """Return domains A and B, joined by a link L whose relays are the first members of each."""
    ours, theirs = names("a", sizes[0]), names("b", sizes[1])
    link = Link("L", ("A", "B"), tuple(zip(ours[:pairs], theirs[:pairs], strict=True)), mode, wait)
    promised: Promise = promise or ("causal" if mode == "causal" else "fifo")
    return Topology("two", [Domain("A", ours, ordering), Domain("B", theirs, ordering)], [link], promise=promised)


class Sent(NamedTuple):
    """A frame as it went out: when, from whom, to whom, in which domain or link, and what."""

    time: int
    source: str
    target: str
    place: str
    frame: Frame[Any]


class Run(NamedTuple):
    """What came of it."""

    events: list[Event]
    sent: list[Sent]
    waiting: int
    """Messages that still wait at the end."""

    def delays(self) -> dict[tuple[str, str], int]:
        """Return how long each message took to each process: (message, process) to nanoseconds."""
        started = {event.message: event.time or 0 for event in self.events if event.kind == "send"}
        return {
            (event.message or "", event.process): (event.time or 0) - started[event.message]
            for event in self.events
            if event.kind == "deliver"
        }

    def times(self, process: str) -> list[int]:
        """Return when ``process`` delivered."""
        return [event.time or 0 for event in self.events if event.kind == "deliver" and event.process == process]


def drive(
    topology: Topology,
    traffic: Iterable[Send],
    *,
    delays_ns: Mapping[tuple[str, str], int] | None = None,
    **options: Any,
) -> Run:
    """Run the traffic to its end, with ``delays_ns`` between the pairs of processes that it names."""
    chosen = SimulationOptions(**{"messages": 0, "delay": "constant:1ms", "body_bytes": 0, **options})
    delays = {pair: Constant(delay) for pair, delay in (delays_ns or {}).items()}
    events: list[Event] = []
    simulation = Simulation(chosen, events.append, where=topology, delays=delays)
    kernel, network = simulation.kernel, simulation.network
    sent: list[Sent] = []
    really_send = network.send

    def note(source: str, target: str, packet: Any, size_bytes: int) -> None:
        sent.extend(Sent(kernel.now, source, target, packet.domain, frame) for frame in packet.frames)
        really_send(source, target, packet, size_bytes)

    network.send = note  # type: ignore[method-assign, assignment]
    for time, sender, to in traffic:
        kernel.schedule(time, simulation.nodes[sender].submit, to, bytes(chosen.body_bytes))
    result = simulation.run()
    return Run(events, sent, result.waiting)
