"""What all parts of a simulated run have in common: its processes, its time, its network and its topology."""

from __future__ import annotations

from dataclasses import dataclass, field

from thence.core.topology.model import Topology
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
    """All processes, also those who join later."""
    kernel: Kernel
    network: Network
    statistics: Statistics
    nodes: dict[str, SimulatedNode] = field(default_factory=dict)
    """By address, which is the name but for copies that run beside another process."""
