"""Runs in which processes come back on old copies of disks or memories, on empty disks, or run beside copies of themselves.

The verdict is made from what the applications were told, not from the trace: in such a run a process forgets, so its trace is
none that could be judged. Rules of the verdict:

* Whatever an application was told to be accepted is at its recipients' applications at the end, or somebody has said aloud why
  not: its process, its recipients or the two towards each other do not go on, or, where several have forgotten, it was refused.
* What a copy has forgotten is not asked for. Nobody else may ever have known of it, and nobody can then
  (docs/concepts/guarantees.md).
* Nobody is refused in a run, or a part of it, in which nobody runs on a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from thence.core.topology.model import Topology
from thence.errors import UsageError
from thence.sim.disk import Disk, DiskOptions
from thence.sim.laws import Law, parse_law
from thence.sim.meeting import Life, MeetingNode, Memory, Message, peers_of
from thence.sim.network import Link, NetworkOptions
from thence.sim.node import Node
from thence.sim.options import SimulationOptions
from thence.sim.simulation import RETRY_NS, Result, Simulation
from thence.trace.recorder import Sink

SETTLED_NS = 20_000_000_000
"""A run ends when nothing was accepted, delivered or refused for so long."""

ALONE_SHARE = 0.7
"""How often a process that comes back on a copy is cut off at first, and how often it starts again meanwhile."""

MAX_SETTLING = 200
"""How many times as long a run may take at most."""


class Verdict(NamedTuple):
    """What became of what applications were told."""

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


class CopiesSimulation(Simulation):
    """See the module's text."""

    def __init__(
        self,
        options: SimulationOptions,
        sink: Sink,
        *,
        where: Topology | None = None,
        node_type: type[MeetingNode] = MeetingNode,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Set everything up; ``node_type`` is for planted mistakes."""
        super().__init__(options, sink, where=where, node_type=node_type, progress=progress)
        self._node_type = node_type
        self._copied: set[str] = set()
        """Names of those that ran on a copy."""
        self._bodies = 0
        self._alone = Random(f"{options.seed}/alone")
        for name, node in self._meeting():
            node.begin(peers_of(self.topology, name), Random(f"{options.seed}/calls/{name}"))

    def _meeting(self) -> list[tuple[str, MeetingNode]]:
        return [(name, node) for name, node in self.nodes.items() if isinstance(node, MeetingNode)]

    def _network_options(self, delays: Mapping[Link, Law], bandwidths: Mapping[Link, int]) -> NetworkOptions:
        # Connections keep the order of what goes over them.
        return dataclasses.replace(super()._network_options(delays, bandwidths), keep_fifo=True)

    def run(self) -> Result:
        """Run to the end."""
        self._schedule_copies()
        result = super().run()
        return result._replace(copies=self.verdict())

    def _run(self) -> int:
        events, before = 0, (-1, -1, -1)
        for _ in range(MAX_SETTLING):
            refused = sum(len(node.refused) + bool(node.fenced) for _, node in self._meeting())
            done = (self.statistics.messages, self.statistics.deliveries, refused)
            if done == before:
                return events
            before = done
            events += self.kernel.run(until_ns=self.kernel.now + max(SETTLED_NS, self._span_ns()))
        raise UsageError(f"the run did not settle within {MAX_SETTLING} times {SETTLED_NS} ns")

    # Traffic.

    def _next_send(self) -> None:
        if not self._unsent:
            return
        name = self._traffic.choice(self.topology.senders)
        here = [node for _, node in self._meeting() if node.name == name]
        self._send(self._traffic.choice(here))
        if self._unsent:
            self.kernel.schedule(self._gap.draw_ns(self._traffic), self._next_send)

    def _attempt(self, node: Node, to: tuple[str, ...] | None) -> None:
        self._bodies += 1
        self._attempt_body(node, to, b"%d" % self._bodies)

    def _attempt_body(self, node: Node, to: tuple[str, ...] | None, body: bytes) -> None:
        if isinstance(node, MeetingNode) and node.fenced:
            return  # Its application is told so.
        if not node.up or not node.submit(to, body):
            self.kernel.schedule(RETRY_NS, self._attempt_body, node, to, body)

    # Faults.

    def _schedule_copies(self) -> None:
        chance, options, span = Random(f"{self.options.seed}/copies"), self.options, self._span_ns()
        for _ in range(options.rollbacks):
            node, first, then = self._draw(chance), chance.randrange(span), chance.randrange(span)
            self.kernel.schedule(min(first, then), self._copy, node, max(first, then) - min(first, then), chance.randrange(2))
        for number in range(options.clones):
            node, first, then = self._draw(chance), chance.randrange(span), chance.randrange(span)
            self.kernel.schedule(min(first, then), self._copy_for_clone, node, abs(first - then), number)
        for _ in range(options.lost_disks):
            self.kernel.schedule(chance.randrange(span), self._lose_disk, self._draw(chance))
        for _ in range(options.snapshots):
            node, first, then = self._draw(chance), chance.randrange(span), chance.randrange(span)
            self.kernel.schedule(min(first, then), self._take_snapshot, node, abs(first - then))

    def _draw(self, chance: Random) -> MeetingNode:
        return chance.choice([node for _, node in self._meeting()])

    def _copy(self, node: MeetingNode, later_ns: int, also: int) -> None:
        disk, life = node.copied()
        self.kernel.schedule(later_ns, self._roll_back, node, disk, life)
        if also:  # A copy is often used more than once.
            self.kernel.schedule(later_ns + self._span_ns() // 4, self._roll_back, node, disk, life)

    def _roll_back(self, node: MeetingNode, disk: Disk, life: Life) -> None:
        if node.fenced:
            return
        self._copied.add(node.name)
        if node.up:
            node.crash()
        node.return_to(disk, life)
        self._leave_alone(node)
        node.restart()

    def _leave_alone(self, node: MeetingNode) -> None:
        """Mostly nobody hears of a process that came back for a while: it accepts as much as it forgot, and may start again."""
        if self._alone.random() < ALONE_SHARE:
            for peer in node.peers:
                for way in ((node.address, peer), (peer, node.address)):
                    self.network.block(*way)
            alone_ns = self._alone.randrange(1, max(2, self._span_ns() // 2))
            if self._alone.random() < ALONE_SHARE:
                self.kernel.schedule(self._alone.randrange(alone_ns), self._crash, node, 1_000_000)
            self.kernel.schedule(alone_ns, self._let_back, node)

    def _let_back(self, node: MeetingNode) -> None:
        for peer in node.peers:
            for way in ((node.address, peer), (peer, node.address)):
                self.network.unblock(*way)

    def _take_snapshot(self, node: MeetingNode, later_ns: int) -> None:
        memory = node.memory()
        if memory is not None:
            self.kernel.schedule(later_ns, self._resume, node, memory)
        elif not node.fenced:
            self.kernel.schedule(RETRY_NS, self._take_snapshot, node, later_ns)

    def _resume(self, node: MeetingNode, memory: Memory) -> None:
        if not node.fenced:
            self._copied.add(node.name)
            self._leave_alone(node)
            node.resume(memory)

    def _lose_disk(self, node: MeetingNode) -> None:
        self._roll_back(node, Disk(DiskOptions(sync_delay=parse_law(self.options.sync)), node.chance), Life())

    def _copy_for_clone(self, node: MeetingNode, later_ns: int, number: int) -> None:
        disk, life = node.copied()
        self.kernel.schedule(later_ns, self._clone, node, disk, life, number)

    def _clone(self, node: MeetingNode, disk: Disk, life: Life, number: int) -> None:
        self._copied.add(node.name)
        made = node.beside(f"{node.name}~{number}", disk)
        made.on_deliver = self._delivered
        made.begin(node.peers, Random(f"{self.options.seed}/calls/{made.address}"))
        self.nodes[made.address] = made
        made.crash()
        made.return_to(disk, life)
        self._leave_alone(made)
        made.restart()

    # The verdict.

    def verdict(self) -> Verdict:
        """Return what became of what applications were told."""
        going = [node for _, node in self._meeting() if not node.fenced]
        lost = [
            f"{message.id} of {node.address} ({message.body.decode()}) is not at {name}"
            for node in going
            for message in node.life.accepted
            for name in (self.topology.processes if message.to is None else message.to)
            if not self._accounted(node, message, name, going)
        ]
        loud = [(node, peer) for _, node in self._meeting() for peer in node.refused]
        false = [
            f"{node.address} and {peer} do not go on: {node.refused[peer]}"
            for node, peer in loud
            if node.name not in self._copied and peer not in self._copied
        ]
        fenced = sum(bool(node.fenced) for _, node in self._meeting())
        accepted = sum(len(node.life.accepted) for node in going)
        return Verdict(tuple(lost), tuple(false), fenced, len({node.address for node, _ in loud}), accepted)

    def _accounted(self, node: MeetingNode, message: Message, name: str, going: list[MeetingNode]) -> bool:
        """Whether a message is where it has to be, or somebody has said why not."""
        there = [other for other in going if other.name == name]
        if not there or any(message.body in other.life.got for other in there):
            return True
        if name in node.refused or any(node.name in other.refused for other in there):
            return True
        if len(self._copied) > 1 and any(other.frames_refused for other in there):
            return True  # Both have forgotten: frames of one depend on what the other does not know, and the log says so.
        called = self.nodes[name]
        if not node.is_joined(name) and isinstance(called, MeetingNode) and called.fenced:
            return True  # It waits here: whoever is where it calls is fenced, and a copy elsewhere does not call it either.
        # It has come, and waits, perhaps for others that wait, for one of somebody who does not go on: `status` lists it.
        silent = {other.name for _, other in self._meeting() if other.fenced or other.refused}
        for waits in [other.member.waiting() for other in there]:
            if any(wait.message == message.id for wait in waits) and any(wait.missing.sender in silent for wait in waits):
                return True
        return False
