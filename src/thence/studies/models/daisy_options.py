"""The three options of daisy §3.4, each against the daisy as it is: one traffic, and what it comes to.

It exists to put a number on each of the paper's prices: what an option saves, and in what it is paid for.

Rules:

* Four local groups of five with one causal server each, and the servers group. The same messages by the same senders to the same
  recipients, at the same times; what differs is what the groups keep order by. Nobody answers, so what is sent does not depend on
  what is delivered when.
* A run of an option runs the plain daisy too, with the same seed, and reports its own figures as shares of that one's: most of
  what chance does is the same on both sides.
* ``oracle`` is no option but a bound for (i) as it is printed: relays forward whatever arrives as it arrives, and an oracle that
  knows the causal past of everything holds a message at its destination exactly as long as needed. No rule can be quicker. What
  it would cost in control information it does not say: ``math.nan``.

Source: daisy §3.4; docs/research/errata.md ("Forwarding early") for (i), docs/concepts/orderings/resilient.md for (ii),
docs/concepts/orderings/sequenced.md for (iii).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet
from thence.sim.laws import parse_law
from thence.sim.network import Link
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
from thence.studies.parts.shapes import daisy
from thence.studies.study import Measures, Point
from thence.trace.events import Event
from thence.trace.recorder import Sink, nowhere

GROUPS: Final = 4
SIZE: Final = 5
SERVERS: Final = "servers"
PLAIN: Final = "plain"
ORACLE: Final = "oracle"

_NS_PER_MS: Final = 1_000_000


class Traffic(NamedTuple):
    """What is sent, and over which lines."""

    body_bytes: int
    gap_ms: float
    """The mean time between two bursts, anywhere."""
    local: str = "exponential:10ms"
    """The delay within a local group."""
    line: str = "exponential:10ms"
    """The delay between two servers."""
    line_bytes_per_s: int | None = None
    """The speed of the line between two servers; None: there is no limit."""
    burst: int = 1
    """So many messages are sent at once, by one process to the same recipients."""
    first_bytes: int | None = None
    """The body of the first one of a burst, if it is another one."""
    loss: float = 0.0
    recipients: int | None = 3
    """To how many others a message goes; None: to all."""

    def times(self, load: float) -> Traffic:
        """Return so many times as much traffic."""
        return self._replace(gap_ms=self.gap_ms / load)


_SLOW: Final = Traffic(8_000, 20, "exponential:50ms", "constant:10ms", 200_000)

TRAFFIC: Final[Mapping[str, Traffic]] = {
    "even": Traffic(300, 5),
    "to all": Traffic(300, 5, recipients=None),
    "fast line": Traffic(300, 5, line="constant:10ms", line_bytes_per_s=1_250_000),
    "slow line": _SLOW,
    "note, then large": _SLOW._replace(gap_ms=100, burst=2, first_bytes=100),
    "note, then large, lossy": _SLOW._replace(gap_ms=100, burst=2, first_bytes=100, loss=0.02),
    "five at once": _SLOW._replace(gap_ms=100, burst=5),
    "full line": _SLOW._replace(gap_ms=400, burst=10, line_bytes_per_s=100_000),
}


def _unchanged(domain: Domain) -> Domain:
    return domain


def _star(domain: Domain) -> Domain:
    """Return a group of (iii): point to point through the server in local groups; the servers group as it was."""
    return domain if domain.name == SERVERS else domain._replace(ordering="sequenced", options={"coordinator": domain.members[0]})


def _ordered(ordering: str, **options: Any) -> Callable[[Domain], Domain]:
    """Return what gives every group the same ordering."""
    return lambda domain: domain._replace(ordering=ordering, options=options)


def _early(domain: Domain) -> Domain:
    """Return a group of (i), repaired: bodies go ahead from where messages wait; their place in the order comes later."""
    return domain if domain.name == SERVERS else domain._replace(forward_early=0)


def _whole(domain: Domain) -> Domain:
    """Return a group that survives deaths by broadcasts: everybody gets the whole of every message, and repeats it to anybody."""
    return domain._replace(acks=AckOptions(scheme="distributed", retransmission="nearest", whole=True))


OPTIONS: Final[Mapping[str, Callable[[Domain], Domain]]] = {
    PLAIN: _unchanged,
    "changed": _ordered("vector"),
    "early": _early,
    "recipients": _ordered("matrix", stamps="full"),
    "recipients, updates": _ordered("matrix"),
    "whole": _whole,
    "1 copy": _ordered("resilient", copies=1),
    "2 copies": _ordered("resilient", copies=2),
    "star": _star,
    ORACLE: _ordered("unordered"),
}
"""What each option makes of a group of the plain daisy, which keeps order by full vectors."""


class OptionTally:
    """Counts the frames that each process handles, and the delays of what does not leave its group."""

    def __init__(self, sink: Sink) -> None:
        """Start from nothing; ``sink`` gets the events too."""
        self.handled: Counter[str] = Counter()
        self.local_delays_ns: list[int] = []
        self._sent_at: dict[str | None, int] = {}
        self._sink = sink

    def hear(self, event: Event) -> None:
        """Take an event of the trace."""
        self._sink(event)
        origin, time = (event.message or "").rpartition(":")[0], event.time or 0
        if event.kind == "send":
            self._sent_at[event.message] = time
        elif origin != event.process and _group(origin) == _group(event.process):
            self.local_delays_ns.append(time - self._sent_at[event.message])

    def sent(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Count the frames of a packet for its sender."""
        self.handled[source] += len(packet.frames)

    def arrived(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Count the frames of a packet for its receiver."""
        self.handled[target] += len(packet.frames)


def _group(process: str) -> str:
    """Return what all names of a local group begin with."""
    return process.partition("-")[0]


class OptionCost(NamedTuple):
    """What one option comes to under one traffic. All but the delay and the load are per delivery."""

    delay_ms: float
    """From sending to delivering, on average."""
    local_delay_ms: float
    """The same where the sender is of the same local group."""
    frames: float
    control_bytes: float
    bytes: float
    """All that went over the network."""
    frame_control_bytes: float
    """Control information per frame."""
    busiest: float
    """Frames that the busiest process sends and gets, per message."""


def where(option: str) -> Topology:
    """Return the daisy with an option."""
    groups = daisy(GROUPS, SIZE, standbys=0).domains.values()
    plain = [domain._replace(options={"stamps": "full"}) for domain in groups]
    promise: Any = "nothing" if option == ORACLE else "causal"
    return Topology("daisy", [OPTIONS[option](domain) for domain in plain], promise=promise)


def simulate_option(option: str, traffic: Traffic, point: Point, seed: int, sink: Sink) -> tuple[Simulation, OptionTally]:
    """Run one option to its end; return the run and what its processes wrote down."""
    topology = where(option)
    servers = topology.domains[SERVERS].members
    pairs: list[Link] = [(one, other) for one in servers for other in servers if one != other]
    speed = traffic.line_bytes_per_s
    tally = OptionTally(sink)
    simulation = Simulation(
        SimulationOptions(messages=0, delay=traffic.local, loss=traffic.loss, seed=seed),
        tally.hear,
        where=topology,
        delays=dict.fromkeys(pairs, parse_law(traffic.line)),
        bandwidths_bytes_per_s={} if speed is None else dict.fromkeys(pairs, speed),
    )
    simulation.network.taps.append(tally)
    _send(simulation, traffic, int(point["messages"]), seed)
    simulation.run()
    return simulation, tally


def _send(simulation: Simulation, traffic: Traffic, messages: int, seed: int) -> None:
    chance, at, body = Random(f"{seed}/options"), 0, bytes(traffic.body_bytes)
    first = body if traffic.first_bytes is None else bytes(traffic.first_bytes)
    for _ in range(messages // traffic.burst):
        at += int(chance.expovariate(1) * traffic.gap_ms * _NS_PER_MS)
        sender = chance.choice(simulation.names)
        others = [name for name in simulation.names if name != sender]
        to = tuple(others if traffic.recipients is None else chance.sample(others, traffic.recipients))
        for number in range(traffic.burst):
            simulation.kernel.at(at, simulation.nodes[sender].submit, to, first if number == 0 else body)


def measure(option: str, traffic: Traffic, point: Point, seed: int, sink: Sink) -> OptionCost:
    """Run one option and add up what it cost."""
    if option == ORACLE:
        return _bound(traffic, point, seed, sink)
    simulation, tally = simulate_option(option, traffic, point, seed, sink)
    counted = simulation.statistics
    return OptionCost(
        _mean_ms(counted.delays_ns),
        _mean_ms(tally.local_delays_ns),
        counted.frames / counted.deliveries,
        counted.control_bytes / counted.deliveries,
        simulation.network.counters()["bytes"] / counted.deliveries,
        counted.control_bytes / counted.frames,
        max(tally.handled.values()) / counted.messages,
    )


def _bound(traffic: Traffic, point: Point, seed: int, sink: Sink) -> OptionCost:
    """Let an oracle order what a network without any order did; only its delay means something."""
    oracle = Oracle()

    def hear(event: Event) -> None:
        sink(event)
        oracle.hear(event)

    simulate_option(ORACLE, traffic, point, seed, hear)
    return OptionCost(_mean_ms(oracle.delays_ns), *[math.nan] * (len(OptionCost._fields) - 1))


def _mean_ms(delays_ns: list[int]) -> float:
    return sum(delays_ns) / len(delays_ns) / _NS_PER_MS


class Oracle:
    """Holds messages at their destinations until all that happened before them and is for the same process is delivered there."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.past: dict[str, set[str]] = {}
        self.delivered: dict[str, set[str]] = {}
        self.held: dict[str, list[str]] = {}
        self.causes: dict[str, set[str]] = {}
        self.to: dict[str, tuple[str, ...]] = {}
        self.sent_at: dict[str, int] = {}
        self.delays_ns: list[int] = []

    def hear(self, event: Event) -> None:
        """Take what a network without any order did, event by event, in the order in which it happened."""
        process, message, past = event.process, str(event.message), self.past.setdefault(event.process, set())
        if event.kind == "send":
            self.causes[message], self.to[message] = set(past), event.to or ()
            self.sent_at[message] = event.time or 0
            past.add(message)
            return
        held, delivered = self.held.setdefault(process, []), self.delivered.setdefault(process, set())
        held.append(message)
        while ready := next((each for each in held if self._ready(process, each, delivered)), None):
            held.remove(ready)
            delivered.add(ready)
            past |= {ready, *self.causes[ready]}
            self.delays_ns.append((event.time or 0) - self.sent_at[ready])

    def _ready(self, process: str, message: str, delivered: set[str]) -> bool:
        return all(process not in self.to[cause] or cause in delivered for cause in self.causes[message])


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Run one option under one traffic, and the plain daisy beside it."""
    option, traffic = str(point["option"]), TRAFFIC[str(point["traffic"])].times(float(point["load"]))
    cost = measure(option, traffic, point, seed, sink)
    plain = cost if option == PLAIN else measure(PLAIN, traffic, point, seed, nowhere)
    return {
        **cost._asdict(),
        "delay_share": cost.delay_ms / plain.delay_ms,
        "local_delay_share": cost.local_delay_ms / plain.local_delay_ms,
        "frames_share": cost.frames / plain.frames,
        "control_share": cost.control_bytes / plain.control_bytes,
        "bytes_share": cost.bytes / plain.bytes,
    }
