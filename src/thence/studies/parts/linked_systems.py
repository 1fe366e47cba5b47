"""Systems that are joined by links or as a daisy, and runs over them with traffic laid out by hand.

The study of links, the benchmark and the tests of interconnect compare fabrics on exactly the same traffic, and count every
frame that goes out, so this is written once.

Rules:

* Traffic is a list of (time, sender, recipients): two fabrics can be given the same.
* ``two`` and ``daisy`` call the processes alike (a1, a2, … and b1, b2, …), and the same ones are relays: the first of each
  system. They also divide the others among the relays alike: in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from thence.core.topology.domain import Domain
from thence.core.topology.link import MakeLinkEnd
from thence.core.topology.model import Link, Promise, Topology
from thence.core.wire.messages import Frame, Packet
from thence.sim.kernel import Kernel
from thence.sim.laws import Constant
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.recorder import Sink, kept, nowhere

Mode = Literal["causal", "fifo"] | MakeLinkEnd
Send = tuple[int, str, tuple[str, ...] | None]
"""When, in nanoseconds; who; to whom (None: everyone)."""

MS = 1_000_000
SECOND = 1_000 * MS


def names(item: str, count: int) -> tuple[str, ...]:
    """Return a1, a2, …"""
    return tuple(f"{item}{number}" for number in range(1, count + 1))


def two(
    sizes: tuple[int, int],
    pairs: int,
    mode: Mode = "causal",
    *,
    ordering: str = "vector",
    promise: Promise | None = None,
) -> Topology:
    """Return domains A and B, joined by a link L whose relays are the first members of each."""
    ours, theirs = names("a", sizes[0]), names("b", sizes[1])
    link = Link("L", ("A", "B"), tuple(zip(ours[:pairs], theirs[:pairs], strict=True)), mode)
    promised: Promise = promise or ("causal" if mode == "causal" else "fifo")
    return Topology("two", [Domain("A", ours, ordering), Domain("B", theirs, ordering)], [link], promise=promised)


def daisy(processes: int, groups: int) -> Topology:
    """Return two systems of ``processes`` each, both split into ``groups``, whose first members are the servers group."""
    domains, servers = [], []
    for item in "ab":
        system = names(item, processes)
        for number in range(groups):
            domains.append(Domain(f"{item.upper()}{number + 1}", system[number::groups], "vector"))
            servers.append(system[number])
    return Topology("daisy", [*domains, Domain("servers", tuple(servers), "vector")])


class SentFrame(NamedTuple):
    """A frame as it went out: when, from whom, to whom, in which domain or link, and what."""

    time: int
    source: str
    target: str
    place: str
    frame: Frame[Any]


class FrameLog:
    """Writes down every frame that a network carries."""

    def __init__(self, kernel: Kernel) -> None:
        """Take the time from ``kernel``."""
        self.log: list[SentFrame] = []
        self._kernel = kernel

    def sent(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Write down the frames of a packet."""
        self.log += [SentFrame(self._kernel.now, source, target, packet.domain, frame) for frame in packet.frames]

    def arrived(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Do nothing: a frame counts when it is sent."""


class DrivenRun(NamedTuple):
    """What a run over given traffic came to."""

    events: list[Event]
    sent: list[SentFrame]
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

    def crossing(self, system: frozenset[str]) -> int:
        """Return how many frames went from ``system`` to the rest, or came from there."""
        return sum((sent.source in system) != (sent.target in system) for sent in self.sent)


def drive(
    topology: Topology,
    traffic: Iterable[Send],
    *,
    sink: Sink = nowhere,
    delays_ns: Mapping[tuple[str, str], int] | None = None,
    bandwidths_bytes_per_s: Mapping[tuple[str, str], int] | None = None,
    **options: Any,
) -> DrivenRun:
    """Run the traffic to its end; the two mappings are for the pairs of processes that differ from the options."""
    chosen = SimulationOptions(**{"messages": 0, "delay": "constant:1ms", "body_bytes": 0, **options})
    delays = {pair: Constant(delay) for pair, delay in (delays_ns or {}).items()}
    events, keep = kept(sink)
    simulation = Simulation(chosen, keep, where=topology, delays=delays, bandwidths_bytes_per_s=bandwidths_bytes_per_s)
    frames = FrameLog(simulation.kernel)
    simulation.network.taps.append(frames)
    for time, sender, to in traffic:
        simulation.kernel.schedule(time, simulation.nodes[sender].submit, to, bytes(chosen.body_bytes))
    result = simulation.run()
    return DrivenRun(events, frames.log, result.waiting)


class BroadcastCost(NamedTuple):
    """What one broadcast takes: frames within a system, frames from one system to the other, and hops to the last process."""

    fast: int
    slow: int
    hops: int

    @property
    def total(self) -> int:
        """All frames."""
        return self.fast + self.slow


def costs(topology: Topology, senders: Sequence[str], first_system: frozenset[str]) -> list[BroadcastCost]:
    """Send one broadcast after the other, with much time between; a hop takes 1 ms, so the slowest delivery tells the hops."""
    run = drive(topology, [(at * SECOND, sender, None) for at, sender in enumerate(senders)])
    slowest: Counter[str] = Counter()
    for (message, _), delay in run.delays().items():
        slowest[message] = max(slowest[message], delay)
    found, numbers = [], Counter[str]()
    for at, sender in enumerate(senders):
        numbers[sender] += 1
        broadcast = DrivenRun([], [sent for sent in run.sent if sent.time // SECOND == at], 0)
        slow = broadcast.crossing(first_system)
        found.append(BroadcastCost(len(broadcast.sent) - slow, slow, slowest[f"{sender}:{numbers[sender]}"] // MS))
    return found
