"""Hierarchies for the papers' tests: groups of any size, one relay each, and groups of relays above them, to any height.

daisy calls them local groups, servers groups and hyper-servers groups (§3.1, §3.2), clusters calls them clusters on layers
(§III, Definition 1). Here a *plan* says how large the groups are: a number is a group of that many processes, a list is a
group made of the relays of the plans in it. So ``[3, 2]`` is two groups and a group of their relays above, and
``[[3, 2], [2, 4]]`` is one layer more.

The layers of all plans in a list must be equally many, as both papers assume.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, TypeAlias

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Result, simulate
from thence.trace.events import Event
from thence.trace.judge import judge

Plan: TypeAlias = "int | Sequence[Plan]"

REQUIRED = {"well-formed", "creation", "duplication", "completeness", "fifo", "causal"}


class Group(NamedTuple):
    """One domain of a hierarchy: on which layer (1 is the lowest), who is in it, and who of them is its relay to above."""

    name: str
    layer: int
    members: tuple[str, ...]
    relay: str


class Hierarchy(NamedTuple):
    """All groups, the lowest layer first, and the fabric that they make."""

    groups: tuple[Group, ...]
    topology: Topology

    def group_of(self, process: str, layer: int) -> Group:
        """Return the group on ``layer`` that ``process`` is in."""
        return next(group for group in self.groups if group.layer == layer and process in group.members)


Choice = Callable[[Group], str | tuple[str, Mapping[str, Any]]]
"""Which ordering a group keeps."""


def everywhere(ordering: str, **options: Any) -> Choice:
    """The same ordering in every group."""
    return lambda _: (ordering, options)


def star(group: Group) -> tuple[str, Mapping[str, Any]]:
    """One coordinator in every group: its relay; on the top layer the first member stands for one."""
    return "sequenced", {"coordinator": group.relay}


def hierarchy(plan: Plan, choose: Choice, chance: Random | None = None) -> Hierarchy:
    """Build what ``plan`` says. The relay of a group is its first member, or a random one where there is ``chance``."""
    groups: list[Group] = []
    count = [0]

    def build(part: Plan) -> tuple[str, int]:
        """Add the groups of ``part``; return its relay and its layer."""
        if isinstance(part, int):
            members = [f"p{count[0] + number}" for number in range(1, part + 1)]
            count[0] += part
            layer = 1
        else:
            below = [build(smaller) for smaller in part]
            members = [relay for relay, _ in below]
            layer = below[0][1] + 1
        number = 1 + sum(group.layer == layer for group in groups)
        relay = chance.choice(members) if chance else members[0]
        groups.append(Group(f"g{layer}-{number}", layer, tuple(members), relay))
        return relay, layer

    build(plan)
    groups.sort(key=lambda group: group.layer)
    domains = []
    for group in groups:
        chosen = choose(group)
        ordering, options = (chosen, {}) if isinstance(chosen, str) else chosen
        domains.append(Domain(group.name, group.members, ordering, options))
    return Hierarchy(tuple(groups), Topology("hierarchy", domains))


def random_plan(chance: Random, layers: int, width: int = 3) -> Plan:
    """Return a plan of so many layers, with 1 to ``width`` processes a group."""
    if layers == 1:
        return chance.randint(1, width)
    return [random_plan(chance, layers - 1, width) for _ in range(chance.randint(2, width))]


def assert_order_kept(topology: Topology, options: SimulationOptions) -> tuple[Result, list[Event]]:
    """Simulate and judge; the judge must be content."""
    result, events = simulate(options, topology)
    verdict = judge(events, REQUIRED)
    assert [str(row) for row in verdict.violations] == [], f"{topology.name}: {options.replay()}"
    assert result.waiting == 0
    return result, events
