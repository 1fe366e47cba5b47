"""Simulated runs in which messages are kept until all have them, watched from outside: who has what on disk, and who says so.

What a process has is read from the records that it made durable, and what a message is for from its envelope: nothing here shares
code with ``core.stability.accounts``, ``core.stability.stable``, ``core.stability.safe_notification`` and
``core.stability.safe_turn``, which are to be judged.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any, NamedTuple
from unittest import mock

import msgspec

from tests.support.fabrics import fabric_for, options_for, promise_for
from thence.core.member.contract import Delivery, Ready
from thence.core.ordering import ordering_named
from thence.core.topology.ack_options import AT_ONCE, AckOptions
from thence.core.topology.domain import Delivering
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, MessageId
from thence.core.wire.records import Received, Submitted
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.parts import sync_queue
from thence.sim.simulation import Result, Simulation
from thence.trace.events import Event
from thence.trace.judge import Verdict, judge

MAX_EVENTS = 200_000
"""A run has far fewer."""

WHOLE = AckOptions(scheme="distributed", retransmission="nearest", whole=True)
"""Replicas need this where it is found out who has what."""

COMPACT_EVERY = 16
"""How many records a disk collects here before a snapshot replaces them: few, so that restarts find snapshots too."""


class Watched(SimulatedNode):
    """A process of which is noted what it has on disk and what it says to be stable."""

    watch: Watch

    def _perform(self, ready: Ready) -> None:
        # By now its records are durable, and what it says goes out.
        for record in ready.persist:
            if isinstance(record, Submitted):
                self.watch.submitted(self.name, record.envelope)
            elif isinstance(record, Received) and record.frame.envelope is not None:
                self.watch.has.setdefault(record.frame.envelope.id, set()).add(self.name)
        for envelope in ready.sent:
            self.watch.submitted(self.name, envelope)
        if ready.stable:
            self.watch.stable(self.name, ready.stable)
        for delivery in ready.deliver:
            self.watch.delivered(self.name, delivery)
        if ready.safe:
            self.watch.safe(self.name, ready.safe)
        self.watch.kept_by(self)
        self.watch.most_kept = max(self.watch.most_kept, sum(self.member.attachment.queued().values()))
        super()._perform(ready)

    def suspect(self, peer: str, suspected: bool) -> None:
        self.watch.suspected |= {peer: None} if suspected else {}
        super().suspect(peer, suspected)


class Watch:
    """Who has which message on disk, and whether somebody said too early that all have it."""

    def __init__(self, topology: Topology) -> None:
        """Nothing has happened yet."""
        self.processes = topology.processes
        self.topology = topology
        self.delivered_safely = 0
        self.positions: dict[str, dict[int, Delivery]] = {name: {} for name in self.processes}
        self.safe_upto = dict.fromkeys(self.processes, 0)
        """Up to which position each process was told that all have what was delivered."""
        self.noticed = 0
        self._known: dict[str, dict[MessageId, None]] = {name: {} for name in self.processes}
        """What each process has sent and delivered, and what led to that."""
        self._led_to: dict[MessageId, tuple[MessageId, ...]] = {}
        self.suspected: dict[str, None] = {}
        """Who was suspected at some time: of these, replicas need not have what is said to be safe. Others stand in for them."""
        self.has: dict[MessageId, set[str]] = {}
        self.envelopes: dict[MessageId, Envelope] = {}
        self.upto = dict.fromkeys(self.processes, 0)
        self.most_kept = 0
        """How many frames one process kept at most at a time."""
        self.mistakes: list[str] = []
        self._unstable: dict[str, dict[int, Envelope]] = {name: {} for name in self.processes}

    def submitted(self, name: str, envelope: Envelope) -> None:
        """A process has sent a message, and so has it."""
        if envelope.id not in self.envelopes:
            self._unstable[name][envelope.number] = envelope
            self._led_to[envelope.id] = tuple(self._known[name])
            self._known[name][envelope.id] = None
        self.envelopes[envelope.id] = envelope
        self.has.setdefault(envelope.id, set()).add(name)

    def lacking(self, envelope: Envelope) -> list[str]:
        """Return the recipients that do not have a message on disk."""
        to = self.processes if envelope.to is None else envelope.to
        excused = self.suspected.keys() & self.topology.fellows.keys() if self.topology.uniform else ()
        return [name for name in to if name not in self.has.get(envelope.id, ()) and name not in excused]

    def delivered(self, name: str, delivery: Delivery) -> None:
        """A process delivers a message: where it does so when all have it, all have to."""
        envelope = delivery.envelope
        self.positions[name][delivery.position] = delivery
        self._known[name] |= dict.fromkeys((*self._led_to.get(envelope.id, ()), envelope.id))
        safe = any(self.topology.domains[home].delivery == "safe" for home in self.topology.homes[name])
        if safe and envelope.origin in self.processes:
            self._check_safe(name, envelope)
            self.delivered_safely += 1

    def safe(self, name: str, upto: int) -> None:
        """A process is told that all have what it delivered up to a position."""
        for position in range(self.safe_upto[name] + 1, upto + 1):
            delivery = self.positions[name].get(position)
            if delivery is None:
                self.mistakes.append(f"{name} is told that delivery {position} is safe, and has delivered no such thing")
                continue
            self.noticed += delivery.domain in self.topology.notifying
            self._check_safe(name, delivery.envelope)
        self.safe_upto[name] = max(upto, self.safe_upto[name])

    def _check_safe(self, name: str, envelope: Envelope) -> None:
        """Somebody relies on it that all have a message, in whatever domain, and what led to it."""
        for one in (envelope, *(self.envelopes[led] for led in self._led_to.get(envelope.id, ()))):
            if lacking := self.lacking(one):
                self.mistakes.append(f"{name} is told that {one.id} is safe, and {', '.join(lacking)} lacks it")

    def undelivered(self, living: Collection[str]) -> list[str]:
        """Return who lacks in the end what somebody was told to be safe."""
        got = {name: {delivery.envelope.id for delivery in self.positions[name].values()} for name in living}
        wrong = []
        for name, upto in self.safe_upto.items():
            for delivery in [delivery for at, delivery in self.positions[name].items() if at <= upto]:
                to = self.processes if delivery.envelope.to is None else delivery.envelope.to
                lacking = [one for one in to if one in living and delivery.envelope.id not in got[one]]
                told = f"{name} was told that {delivery.envelope.id} is safe"
                wrong += [f"{told}, and {member} never delivered it" for member in lacking]
        return wrong

    def stable(self, name: str, upto: int) -> None:
        """A process says that all have its messages up to a number."""
        for number in range(self.upto[name] + 1, upto + 1):
            envelope = self.envelopes[MessageId(name, number)]
            if self.lacking(envelope):
                self.mistakes.append(f"{envelope.id} is said to be stable, and {', '.join(self.lacking(envelope))} lacks it")
        self.upto[name] = max(upto, self.upto[name])

    def kept_by(self, node: SimulatedNode) -> None:
        """Look whether a process keeps whatever of its own somebody lacks."""
        if not self.topology.stability:
            return
        kept = set(node.member.forwarder.unstable())
        for number, envelope in list(self._unstable[node.name].items()):
            if number not in kept:
                del self._unstable[node.name][number]
                if self.lacking(envelope):
                    self.mistakes.append(f"{envelope.id} is not kept, and {', '.join(self.lacking(envelope))} lacks it")


class Outcome(NamedTuple):
    """What one run came to."""

    result: Result
    verdict: Verdict
    watch: Watch
    simulation: Simulation

    def unstable(self) -> dict[str, list[int]]:
        """Return what living processes still keep in the end."""
        nodes = {name: node for name, node in self.simulation.nodes.items() if not node.dead}
        return {name: node.member.forwarder.unstable() for name, node in nodes.items() if node.member.forwarder.unstable()}

    def queued(self) -> int:
        """Return how many frames living processes still keep in the end."""
        return sum(sum(node.member.attachment.queued().values()) for node in self.simulation.nodes.values() if not node.dead)

    @property
    def nobody_is_waited_for(self) -> bool:
        """Whether all others live or came back but replicas that only carry, for whom another one of their relay stands in."""
        topology = self.watch.topology
        dead = {name for name, node in self.simulation.nodes.items() if node.dead}
        stand_in = [name for name in dead if topology.only_carries(name) and not dead.issuperset(topology.fellows[name])]
        return len(stand_in) == len(dead)

    @property
    def wrong(self) -> list[str]:
        """What is wrong with it, in words."""
        wrong = list(self.watch.mistakes)
        wrong += [f"{name}: {count}" for name, count in self.verdict.properties.items() if count]
        wrong += [f"{self.result.waiting} still wait"] if self.result.waiting else []
        living = [node for node in self.simulation.nodes.values() if not node.dead]
        if self.watch.topology.uniform:
            wrong += self.watch.undelivered([node.name for node in living])
        if self.nobody_is_waited_for:
            wrong += [
                f"{node.name} is never told that {node.member.log.unsafe} are safe" for node in living if node.member.log.unsafe
            ]
        if not any(node.dead for node in self.simulation.nodes.values()):
            wrong += [f"{name} keeps {numbers} for ever" for name, numbers in self.unstable().items()]
            wrong += [f"{self.queued()} frames are kept for ever"] if self.queued() else []
        return wrong


def keeping(topology: Topology) -> Topology:
    """Return the same fabric with messages kept until all have them."""
    return Topology(
        topology.name,
        topology.domains.values(),
        topology.links.values(),
        replicas=topology.replicas,
        promise=topology.promise,
        stability=True,
    )


def run(topology: Topology, options: SimulationOptions, node_type: type[Watched] = Watched) -> Outcome:
    """Simulate, judge and watch."""
    events: list[Event] = []
    watch = Watch(topology)
    watched: Any = type("WatchedHere", (node_type,), {"watch": watch})
    simulation = Simulation(options, events.append, where=topology, node_type=watched, max_events=MAX_EVENTS)
    with mock.patch.object(sync_queue, "COMPACT_EVERY", COMPACT_EVERY):
        result = simulation.run()
    required = {"well-formed", "creation", "duplication", "completeness"} | topology.guarantees
    return Outcome(result, judge(events, required), watch, simulation)


def run_fabric(seed: int, **changes: Any) -> Outcome:
    """Run the random fabric of this number (``tests.support.fabrics``), with messages kept until all have them."""
    options = msgspec.structs.replace(options_for(seed), **{"durable": True, "reliable": True} | changes)
    return run(keeping(fabric_for(seed, promise_for(seed))), options)


def guarded(seed: int, *, stability: bool) -> Topology:
    """Return the random fabric of this number, in which most domains deliver only what all have, as far as they can."""
    plain, chance = fabric_for(seed, promise_for(seed)), Random(f"guarded/{seed}")
    replicas = plain.fellows
    domains = []
    for domain in plain.domains.values():
        ordering, options, acks = domain.ordering, domain.options, domain.acks
        safe = chance.random() < 0.8
        if safe and not ordering_named(ordering).traits.direct:  # Few can do it, so many domains get another one.
            ordering, options, acks = chance.choice(("vector", "matrix")), {}, AT_ONCE
        if not replicas.keys().isdisjoint(domain.members) and not domain.acks.whole:
            ordering, options, acks = "vector", {}, WHOLE
        changed = domain._replace(ordering=ordering, options=options, acks=acks)
        domains.append(changed._replace(delivery="safe" if safe else "at once"))
    return Topology(
        plain.name,
        domains,
        plain.links.values(),
        replicas=plain.replicas,
        local=plain.local,
        promise=plain.promise,
        stability=stability,
    )


def noticed(seed: int, *, stability: bool) -> Topology:
    """Return the random fabric of this number, in which all domains tell what is safe, or as many as can, or some."""
    plain, chance = guarded(seed, stability=stability), Random(f"noticed/{seed}")
    replaced: dict[str, Delivering] = {}
    for domain in plain.domains.values():
        able = ordering_named(domain.ordering).traits.direct
        choice: Delivering = chance.choice(("notify", "safe", "at once")) if seed % 3 == 0 else "notify"
        replaced[domain.name] = choice if able else "at once"
    return Topology(
        plain.name,
        [domain._replace(delivery=replaced[domain.name]) for domain in plain.domains.values()],
        plain.links.values(),
        replicas=plain.replicas,
        local=plain.local,
        promise=plain.promise,
        stability=stability,
    )


def run_noticed(seed: int, **changes: Any) -> Outcome:
    """Run that fabric; in every second one messages are also kept until all have them."""
    options = msgspec.structs.replace(options_for(seed), **{"durable": True, "reliable": True} | changes)
    return run(noticed(seed, stability=seed % 2 == 0), options)


def run_guarded(seed: int, **changes: Any) -> Outcome:
    """Run that fabric; in every second one messages are also kept until all have them."""
    options = msgspec.structs.replace(options_for(seed), **{"durable": True, "reliable": True} | changes)
    return run(guarded(seed, stability=seed % 2 == 0), options)
