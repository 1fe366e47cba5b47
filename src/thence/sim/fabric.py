"""What all parts of a simulated run have in common: its processes, its time, its network and its topology."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.sim.kernel import Kernel
from thence.sim.network import Network
from thence.sim.node import SimulatedNode
from thence.sim.options import SimulationOptions
from thence.sim.statistics import Statistics


@dataclass
class Fabric:
    """The processes of a run and what they run on."""

    options: SimulationOptions
    topology: Topology
    """The version in force."""
    names: tuple[str, ...]
    """All processes, also those of whom it is known that they join later."""
    kernel: Kernel
    network: Network
    statistics: Statistics
    make: Callable[[str, Routes], SimulatedNode]
    """Makes a process that is up and has done nothing yet."""
    nodes: dict[str, SimulatedNode] = field(default_factory=dict)
    """By address, which is the name but for copies that run beside another process."""

    def add(self, name: str, routes: Routes) -> None:
        """Let a process begin."""
        self.nodes[name] = self.make(name, routes)
        if name not in self.names:
            self.names = (*self.names, name)
