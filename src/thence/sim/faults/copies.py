"""Runs in which processes come back on old copies of disks or memories, on empty disks, or run beside copies of themselves.

The verdict is made from what the applications know, not from the trace: in such a run a process forgets, so its trace is
none that could be judged. Rules of the verdict:

* Whatever an application knows to be accepted is at its recipients' applications at the end, or somebody has said aloud why
  not: its process, its recipients or the two towards each other do not go on, or, where several have forgotten, it was refused.
* Where there are several domains, or the fabric changes, somebody on its way may not go on, or have stayed behind in an older
  version: its peers say so, and what went through it, or waits for the change, is not asked for.
* What a copy has forgotten is not asked for. Nobody else may ever have known of it, and nobody can then
  (docs/concepts/guarantees.md).
* Nobody is refused in a run, or a part of it, in which nobody runs on a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from thence.core.ordering import ordering_named
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.sim.disk import Disk
from thence.sim.fabric import Fabric
from thence.sim.faults.failures import Failures
from thence.sim.node import AcceptedMessage, Knowledge, MachineCopy, Memory, SimulatedNode

ALONE_SHARE = 0.7
"""How often a process that comes back on a copy is cut off at first, and how often it starts again meanwhile."""

RETRY_NS = 50_000_000
"""How long to wait where a snapshot cannot be taken."""


class CopiesVerdict(NamedTuple):
    """What became of what applications know."""

    lost: tuple[str, ...]
    """What was accepted and vanished without a word."""
    false_alarms: tuple[str, ...]
    """Refusals where nobody ran on a copy."""
    fenced: int
    refused: int
    """How many processes do not go on with some other one, fenced or not."""
    accepted: int

    @property
    def broken(self) -> tuple[str, ...]:
        """All that is wrong."""
        return (*self.lost, *self.false_alarms)


class CopyFaults:
    """The rollbacks, clones, lost disks and snapshots of one run."""

    def __init__(self, fabric: Fabric, failures: Failures) -> None:
        """Connect all processes: without epochs nobody would notice."""
        self.copied: set[str] = set()
        """Names of those that ran on a copy."""
        self.on_made: Callable[[SimulatedNode], None] | None = None
        """Called with each process that will run beside another one of its name."""
        self._fabric = fabric
        self._failures = failures
        self._schedule = fabric.kernel.schedule
        self._alone = Random(f"{fabric.options.seed}/alone")
        for name, node in fabric.nodes.items():
            node.connect(name, self._calls(name))

    def _calls(self, address: str) -> Random:
        return Random(f"{self._fabric.options.seed}/calls/{address}")

    @property
    def refusals(self) -> int:
        """How often somebody does not go on."""
        return sum(len(refused_by(node)) + node.fenced for node in self._fabric.nodes.values())

    def schedule(self) -> None:
        """Draw what will happen."""
        options, span = self._fabric.options, self._fabric.options.span_ns
        chance = Random(f"{options.seed}/copies")

        def moments() -> tuple[SimulatedNode, int, int]:
            node, first, then = self._draw(chance), chance.randrange(span), chance.randrange(span)
            return node, min(first, then), abs(first - then)

        for _ in range(options.rollbacks):
            node, at, later = moments()
            self._schedule(at, self._copy, node, later, chance.randrange(2))
        for number in range(options.clones):
            node, at, later = moments()
            self._schedule(at, self._copy_for_clone, node, later, number)
        for _ in range(options.lost_disks):
            self._schedule(chance.randrange(span), self._lose_disk, self._draw(chance))
        for _ in range(options.snapshots):
            node, at, later = moments()
            self._schedule(at, self._take_snapshot, node, later)

    def _draw(self, chance: Random) -> SimulatedNode:
        return chance.choice(list(self._fabric.nodes.values()))

    def _copy(self, node: SimulatedNode, later_ns: int, also: int) -> None:
        machine = node.copied()
        self._schedule(later_ns, self._roll_back, node, machine)
        if also:  # A copy is often used more than once.
            self._schedule(later_ns + self._fabric.options.span_ns // 4, self._roll_back, node, machine)

    def _roll_back(self, node: SimulatedNode, machine: MachineCopy) -> None:
        if node.fenced:
            return
        self.copied.add(node.name)
        if node.up:
            node.crash()
        node.return_to(machine)
        self._leave_alone(node)
        node.restart()

    def _leave_alone(self, node: SimulatedNode) -> None:
        """Mostly nobody hears of a process that came back for a while: it accepts as much as it forgot, and may start again."""
        if self._alone.random() < ALONE_SHARE:
            ways = [way for address, peer in _between(node) for way in ((address, peer), (peer, address))]
            for way in ways:
                self._fabric.network.block(*way)
            alone_ns = self._alone.randrange(1, max(2, self._fabric.options.span_ns // 2))
            if self._alone.random() < ALONE_SHARE:
                self._schedule(self._alone.randrange(alone_ns), self._failures.crash, node, 1_000_000)
            self._schedule(alone_ns, self._let_back, ways)

    def _let_back(self, ways: list[tuple[str, str]]) -> None:
        for way in ways:
            self._fabric.network.unblock(*way)

    def _take_snapshot(self, node: SimulatedNode, later_ns: int) -> None:
        memory = node.memory()
        if memory is not None:
            self._schedule(later_ns, self._resume, node, memory)
        elif not node.fenced:
            self._schedule(RETRY_NS, self._take_snapshot, node, later_ns)

    def _resume(self, node: SimulatedNode, memory: Memory) -> None:
        if not node.fenced:
            self.copied.add(node.name)
            self._leave_alone(node)
            node.resume(memory)

    def _lose_disk(self, node: SimulatedNode) -> None:
        self._roll_back(node, MachineCopy(Disk(node.queue.disk.options, self._alone), Knowledge()))

    def _copy_for_clone(self, node: SimulatedNode, later_ns: int, number: int) -> None:
        self._schedule(later_ns, self._clone, node, node.copied(), number)

    def _clone(self, node: SimulatedNode, machine: MachineCopy, number: int) -> None:
        self.copied.add(node.name)
        address = f"{node.name}~{number}"
        made = node.beside(address, self._calls(address))
        self._fabric.nodes[address] = made
        if self.on_made is not None:
            self.on_made(made)
        made.crash()
        made.return_to(machine)
        self._leave_alone(made)
        made.restart()

    # The verdict.

    def verdict(self) -> CopiesVerdict:
        """Return what became of what applications know to be accepted."""
        nodes = self._fabric.nodes
        going = [node for node in nodes.values() if not node.fenced]
        lost = [
            f"{message.id} of {address} ({message.body.decode()}) is not at {name}"
            for address, node in nodes.items()
            if not node.fenced
            for message in node.knowledge.accepted
            for name in message.to
            if not self._accounted(node, message, name, going)
        ]
        false = [
            f"{address} and {peer} do not go on: {reason}"
            for address, node in nodes.items()
            for peer, reason in refused_by(node).items()
            if node.name not in self.copied and peer not in self.copied
        ]
        fenced = sum(node.fenced for node in nodes.values())
        refused = sum(bool(refused_by(node)) for node in nodes.values())
        accepted = sum(len(node.knowledge.accepted) for node in going)
        return CopiesVerdict(tuple(lost), tuple(false), fenced, refused, accepted)

    def _accounted(self, node: SimulatedNode, message: AcceptedMessage, name: str, going: list[SimulatedNode]) -> bool:
        """Whether a message is where it has to be, or somebody has said why not."""
        there = [other for other in going if other.name == name]
        if not there or any(message.body in other.knowledge.got for other in there):
            return True
        if name in refused_by(node) or any(node.name in refused_by(other) for other in there):
            return True
        if len(self.copied) > 1 and any(other.frames_refused for other in there):
            return True  # Both have forgotten: frames of one depend on what the other does not know, and the log says so.
        if self._fabric.nodes[name].fenced and node.connections is not None and name not in node.connections.joined:
            return True  # It waits here: whoever is where it calls is fenced, and a copy elsewhere does not call it either.
        if self._is_stuck(node, message, name):
            return True
        # It has come, and waits, perhaps for others that wait, for one of somebody who does not go on: `status` lists it.
        silent = self._silent()
        for waits in [other.member.attachment.waiting() for other in there]:
            if any(wait.message == message.id for wait in waits) and any(wait.missing.sender in silent for wait in waits):
                return True
        return False

    def _silent(self) -> set[str]:
        """Return who does not go on with somebody."""
        return {other.name for other in self._fabric.nodes.values() if other.fenced or refused_by(other)}

    def _is_stuck(self, node: SimulatedNode, message: AcceptedMessage, name: str) -> bool:
        """Whether a message goes through one who does not go on, or waits for a change that cannot end without it."""
        nodes, silent = self._fabric.nodes.values(), self._silent()
        topologies = {other.member.topology.fingerprint: other.member.topology for other in nodes}
        newest = max(topology.version for topology in topologies.values())
        # Its peers have gone on without such a copy, and tell it so.
        late = [other for other in nodes if other.name in self.copied and other.member.topology.version < newest]
        silent |= {other.name for other in late}
        if any(other is node or other.name == name for other in late):
            return True
        if silent and any(silent & _needed(topology, node.name, name) for topology in topologies.values()):
            return True
        held = {envelope.id for other in nodes for envelope in other.member.view.state.waiting}
        held |= {envelope.id for other in nodes for _, envelope in other.member.attachment.border.crossings}
        if node.participant is not None:  # Where the fabric changes there are more ways for one to wait for another.
            held |= {wait.message for other in nodes for wait in other.member.attachment.waiting() if wait.message is not None}
        return bool(silent) and message.id in held


def _needed(topology: Topology, origin: str, name: str) -> set[str]:
    """Return on whom it depends whether a message gets there: relays, and all whose domain does not hand it on directly."""
    if not {origin, name} <= topology.homes.keys():
        return set()
    way = Routes(topology).path(origin, name) if origin != name else [origin, topology.homes[origin][0]]
    needed = set(way[2:-1:2])
    for place in way[1::2]:
        if place in topology.links:
            needed.update(topology.links[place].members)
        elif not ordering_named(topology.domains[place].ordering).traits.direct:
            needed.update(topology.domains[place].members)
    return needed


def refused_by(node: SimulatedNode) -> dict[str, str]:
    """Return with whom a process does not go on, and why."""
    return {} if node.connections is None else node.connections.refused


def _between(node: SimulatedNode) -> list[tuple[str, str]]:
    return [] if node.connections is None else [(node.connections.address, peer) for peer in node.connections.peers]
