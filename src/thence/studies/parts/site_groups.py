"""A domain at several sites that acks in one of the ways of gateways §2.3, run over the simulated network, and its cost.

It exists for the study, the paper's tests and the benchmark, so that all three measure the same.

Rules: members of one site are near to each other and far from all others. Delays are constant, so that a message that arrives
later than its way takes has been lost before, and how much later it arrives is the time that recovery took.

Source: gateways §2.3, Fig. 2 to 4; docs/concepts/acks.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from thence.core.member.member import Member
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.transport.ack_all.transport import AckAll
from thence.core.transport.base import Transport
from thence.core.transport.channels import PeerChannels
from thence.core.wire.messages import Packet
from thence.sim.kernel import Kernel
from thence.sim.laws import Constant, parse_law
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.simulation import RETRY_NS, Simulation
from thence.trace.recorder import Sink, nowhere
from thence.trace.recorder import kept as kept_events

NEAR_NS = 1_000_000
FAR_NS = 40_000_000
SITES = 2
BODY_BYTES = 100
DELAY: Mapping[str, int] = {"after_messages": 8, "after_ns": 50_000_000}


def way(scheme: str, **options: Any) -> dict[str, Any]:
    """Return what ``measure`` takes: how to ack, and the ordering with which."""
    return {"ordering": "sequenced" if scheme == "centralised" else "vector", "confirmation": {"scheme": scheme, **options}}


WAYS: Mapping[str, dict[str, Any]] = {
    "centralised": way("centralised"),
    "centralised, delayed": way("centralised", **DELAY),
    "decentralised": way("decentralised"),
    "decentralised, delayed": way("decentralised", **DELAY),
    "distributed": way("distributed"),
    "distributed, delayed": way("distributed", **DELAY),
    "nearest": way("distributed", retransmission="nearest"),
    "nearest, delayed": way("distributed", retransmission="nearest", **DELAY),
}


class AckCost(NamedTuple):
    """What a run came to."""

    deliveries: int
    packets: int
    bytes: int
    frames: int
    """Messages in these packets, first and later copies."""
    first_frames: int
    """How many of these there are where nothing is lost."""
    confirmations: int
    """Packets that do nothing but ack."""
    requests: int
    """Packets that ask for what is missing."""
    recovered: int
    """Arrivals later than the way takes: what came first was lost."""
    recovery_ns: int
    """How much later those were, all together."""
    late: int
    """Deliveries later than the way takes: they, or what had to come before them, were lost."""
    peak: int
    """The most messages that one member kept at one time."""
    left: int
    """How many messages are still kept when all is over: none."""

    @property
    def recovery_ms(self) -> float:
        """How much later what was lost arrived, on average."""
        return self.recovery_ns / max(1, self.recovered) / 1e6


class AckTap:
    """Writes down when messages arrive, which packets only ack or ask, and how much members keep."""

    def __init__(self, kernel: Kernel, nodes: Mapping[str, SimulatedNode]) -> None:
        """Take the time from ``kernel``."""
        self.first_arrivals: dict[tuple[str, str], int] = {}
        """When each message reached each process first."""
        self.requests = self.acks = self.peak = 0
        self._kernel, self._nodes = kernel, nodes

    def sent(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Count a packet that carries no message."""
        if packet.group_acks is not None and packet.group_acks.requests:
            self.requests += 1
        elif not packet.frames:
            self.acks += 1

    def arrived(self, source: str, target: str, packet: Packet[Any]) -> None:
        """Write down the messages of a packet, and how many its receiver keeps now."""
        for frame in packet.frames:
            if frame.envelope is not None:
                self.first_arrivals.setdefault((target, str(frame.envelope.id)), self._kernel.now)
        self.peak = max(self.peak, kept_at(self._nodes[target].member))


class SiteGroup:
    """A domain whose members ack in one of the ways, and what a run of it costs."""

    def __init__(
        self, how: str, members: int, loss: float, seed: int, sites: int = SITES, sink: Sink = nowhere, **options: Any
    ) -> None:
        """Let ``members`` at so many sites ack as ``how`` says; ``options`` are further ones of the simulation."""
        self._ordering, acks = WAYS[how]["ordering"], WAYS[how]["confirmation"]
        self._names = names = tuple(f"m{number}" for number in range(members))
        self._site = {name: number % sites for number, name in enumerate(names)}
        self._seed = seed
        if acks.get("retransmission") == "nearest":
            acks = {**acks, "sites": tuple(names[site::sites] for site in range(sites))}
        domain = Domain("d", names, self._ordering, acks=AckOptions(**acks))
        chosen = SimulationOptions(
            **{"messages": 0, "body_bytes": BODY_BYTES, "loss": loss, "reliable": True, "seed": seed, **options}
        )
        delays = {(one, other): Constant(self.delay_ns(one, other)) for one in names for other in names if one != other}
        self.events, keep = kept_events(sink)
        self.simulation = Simulation(chosen, keep, where=Topology.flat(domain), delays=delays)
        self._tap = AckTap(self.simulation.kernel, self.simulation.nodes)
        self.simulation.network.taps.append(self._tap)

    def delay_ns(self, one: str, other: str) -> int:
        """Return how long a frame takes."""
        return 0 if one == other else NEAR_NS if self._site[one] == self._site[other] else FAR_NS

    def way_ns(self, origin: str, target: str) -> int:
        """Return how long a message takes if nothing is lost."""
        if self._ordering != "sequenced":
            return self.delay_ns(origin, target)
        return self.delay_ns(origin, self._names[0]) + self.delay_ns(self._names[0], target)

    def run(self, messages: int, senders: int | None = None) -> AckCost:
        """Let the first ``senders`` members (None: all) send so many messages, to the end; return what that costs."""
        chance, gap, at = Random(f"{self._seed}/study"), parse_law("exponential:5ms"), 0
        body = bytes(self.simulation.options.body_bytes)
        for _ in range(messages):
            at += gap.draw_ns(chance)
            self.simulation.kernel.at(at, self._submit, self.simulation.nodes[chance.choice(self._names[:senders])], body)
        self.simulation.run()
        return self._cost()

    def _submit(self, node: SimulatedNode, body: bytes) -> None:
        if not node.submit(None, body):
            self.simulation.kernel.schedule(RETRY_NS, self._submit, node, body)

    def _cost(self) -> AckCost:
        network, tap = self.simulation.network.counters(), self._tap
        started = {event.message: (event.process, event.time or 0) for event in self.events if event.kind == "send"}
        delivered = {(event.process, event.message): event.time or 0 for event in self.events if event.kind == "deliver"}

        def later(times: Mapping[Any, int]) -> list[int]:
            origins = [(process, started[message], time) for (process, message), time in times.items()]
            return [time - sent - self.way_ns(origin, process) for process, (origin, sent), time in origins]

        recovery = [ns for ns in later(tap.first_arrivals) if ns > 0]
        # Where nothing is lost there is one frame to each of the others, behind one to the controller if there is one.
        asked = sum(origin != self._names[0] for origin, _ in started.values()) if self._ordering == "sequenced" else 0
        return AckCost(
            deliveries=len(delivered),
            packets=network["sent"],
            bytes=network["bytes"],
            frames=self.simulation.statistics.frames,
            first_frames=len(started) * (len(self._names) - 1) + asked,
            confirmations=tap.acks,
            requests=tap.requests,
            recovered=len(recovery),
            recovery_ns=sum(recovery),
            late=sum(ns > 0 for ns in later(delivered)),
            peak=tap.peak,
            left=sum(kept_at(node.member) for node in self.simulation.nodes.values()),
        )


def kept_at(member: Member) -> int:
    """Return how many messages a member keeps to repeat them."""
    return kept(member.attachment.domains["d"].transport)


def kept(transport: Transport) -> int:
    """Return how many messages a member keeps to repeat them; one that several lack counts once."""
    if isinstance(transport, AckAll):
        return len(transport.state.queue) + sum(map(len, transport.state.copies))
    if not isinstance(transport, PeerChannels):
        return 0
    queues = [channel.state.queue.values() for channel in transport.channels.values()]
    return len({frame.envelope.id for queue in queues for frame in queue if frame.envelope is not None})
