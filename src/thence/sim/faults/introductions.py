"""Processes that meet: who comes back or has switched connects with its peers, and the later version is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from thence.sim.fabric import Fabric
from thence.sim.faults.failures import Failures
from thence.sim.node import SimulatedNode, peers

MAX_DELAY_NS: Final = 25_000_000
"""How long a question or an answer takes at most; what takes longer counts as lost."""


class Introductions:
    """Those of one run."""

    def __init__(self, fabric: Fabric, failures: Failures, expel: Callable[[str, int], None]) -> None:
        """``expel`` is called with who speaks though it was lost, and the version of which it should know."""
        self._fabric = fabric
        self._failures = failures
        self._expel = expel
        self._chance = Random(f"{fabric.options.seed}/introductions")

    def enlist(self, node: SimulatedNode) -> None:
        """Let a process take part in changes from now on."""
        participant = node.take_part()
        participant.on_lost_speaker = self._expel
        participant.on_switched = partial(self._switched, node)
        participant.on_started = partial(self._meet_peers, node)

    def _switched(self, node: SimulatedNode) -> None:
        self._failures.switched(node)
        if node.connections is not None and node.name in node.member.topology.homes:
            node.connections.follow(peers(node.member.topology, node.name))
        self._meet_peers(node)

    def _meet_peers(self, node: SimulatedNode) -> None:
        """A process that came back, or has switched, connects with its peers: the later version is told."""
        if node.member.view.state.phase != "left":
            for name in peers(node.member.topology, node.name):
                delay_ns = self._chance.randrange(1, MAX_DELAY_NS)
                self._fabric.kernel.schedule(delay_ns, self._meet, node, self._fabric.nodes[name])

    def _meet(self, one: SimulatedNode, other: SimulatedNode) -> None:
        if not (one.up and other.up) or "left" in (one.member.view.state.phase, other.member.view.state.phase):
            return
        for node, peer in ((one, other), (other, one)):
            topology = peer.member.topology
            if node.participant is not None and not node.fenced and node.name in topology.homes:
                node.participant.meet(peer.name, topology)
