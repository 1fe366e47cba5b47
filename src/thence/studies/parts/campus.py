"""The campus of daisy §5.1: who sits where, and how long messages and acknowledgements take between them.

It exists beside ``daisy_load``, whose rules are about what happens there; here is only the ground on which it does.

Rules:

* What lies between two processes is the daisy's own way from one to the other. Flat, routers stand in the place of servers, so a
  message takes the same hops, one after the other, each with a delay of its own.
* Control information is counted as §5.1 does: integers of four bytes.
* ``stability_ms`` is exact up to its steps of time: the mean of the slowest of many acknowledgements that are independent.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from random import Random
from typing import Final

import msgspec

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.sim.laws import Law
from thence.sim.network import Link
from thence.studies.parts.shapes import hierarchy

INTEGER_BYTES: Final = 4
"""§5.1 assumes integers of 32 bits."""

ACKNOWLEDGEMENT_BYTES: Final = 2 * INTEGER_BYTES
"""The origin of a message and its number."""

WORST_HOPS: Final = 3
"""Building, campus, building: §5.2's worst case."""

NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
FULL: Final = {"stamps": "full"}

STEP_MS: Final = 0.25
"""How finely time is cut where a distribution is computed; the error is far below a thousandth."""

TERMS: Final = 9
"""How many terms of a series are added up; with these steps the next one is below what a float can tell."""

CERTAIN: Final = 1e-7
"""From where on it is as good as certain that all acknowledgements are there."""


class Campus(msgspec.Struct, frozen=True):
    """What the model is given of a campus."""

    daisies: int
    groups: int
    """Local groups in each daisy."""
    group_size: int
    """Processes in a local group, its causal server included."""
    building_ms: float
    campus_ms: float
    lan_ms: float
    speed_bytes_per_s: int


@dataclass(frozen=True, slots=True)
class WayDelay(Law):
    """How long the hops of a way take together: a constant, and an exponential part for each backbone on it."""

    name = "way"
    form = "way"

    constant_ns: int
    first_ns: int = 0
    second_ns: int = 0
    third_ns: int = 0
    """The averages of the exponential parts; 0: there is none."""

    def _draw(self, rng: Random) -> float:
        drawn: float = self.constant_ns
        for average_ns in (self.first_ns, self.second_ns, self.third_ns):
            if average_ns:
                drawn -= math.log(1.0 - rng.random()) * average_ns
        return drawn

    def _mean(self) -> float:
        return self.constant_ns + self.first_ns + self.second_ns + self.third_ns


class RouterCopies:
    """The copies of the message that one process is sending: what each backbone took to each router, drawn once."""

    def __init__(self) -> None:
        """None yet."""
        self._served: set[str] = set()
        self._drawn: dict[Link, float] = {}

    def delay_ns(self, target: str, hops: tuple[tuple[Link, int], ...], rng: Random) -> float:
        """Return what the copy to ``target`` takes over these hops; a target that comes again gets the next message."""
        if target in self._served:
            self._served, self._drawn = set(), {}
        self._served.add(target)
        for hop, average_ns in hops:
            if hop not in self._drawn:
                self._drawn[hop] = -math.log(1.0 - rng.random()) * average_ns
        return sum(self._drawn[hop] for hop, _ in hops)


@dataclass(frozen=True, slots=True)
class SharedDelay(Law):
    """The way to one process where routers forward one copy: whoever is behind a router gets it at the same time."""

    name = "shared"
    form = "shared"

    way: WayDelay
    """The same with a delay of its own for each process."""
    target: str
    hops: tuple[tuple[Link, int], ...]
    """The backbones, from router to router."""
    copies: RouterCopies

    def __post_init__(self) -> None:
        """Check nothing: no field is a number that somebody wrote."""

    def _draw(self, rng: Random) -> float:
        return self.way.constant_ns + self.copies.delay_ns(self.target, self.hops, rng)

    def _mean(self) -> float:
        return self.way.mean_ns()


class Map:
    """Who is where: the daisy, what lies between any two processes, and what a message or an acknowledgement takes there."""

    def __init__(self, campus: Campus) -> None:
        """Build the daisy of three levels; the lowest groups are LANs, those above them backbones."""
        self.campus = campus
        built = hierarchy(3, [campus.daisies, campus.groups], campus.group_size, "vector")
        self.daisy = Topology("daisy", [domain._replace(options=FULL) for domain in built.domains.values()])
        self.names = self.daisy.processes
        self.flat = Topology.flat(Domain("flat", self.names, "vector", FULL))
        self._routes = Routes(self.daisy)
        self._average_ns = {name: self._backbone_ns(name) for name in self.daisy.domains}
        self._backbones: dict[Link, tuple[int, ...]] = {}
        self._acknowledgements: dict[Link, WayDelay] = {}

    def _backbone_ns(self, domain: str) -> int:
        """Return the mean of the backbone that joins a domain; 0: it is a LAN."""
        if domain == "top":
            return round(self.campus.campus_ms * NS_PER_MS)
        lowest = domain.count("-") == 1
        return 0 if lowest else round(self.campus.building_ms * NS_PER_MS)

    def hops(self, one: str, other: str) -> int:
        """Return how many backbones lie between two processes."""
        return sum(average > 0 for average in self._averages(one, other))

    def _averages(self, one: str, other: str) -> tuple[int, ...]:
        """Return the means of all that lies between two processes; 0 stands for a LAN."""
        found = self._backbones.get((one, other))
        if found is None:
            found = tuple(self._average_ns[domain] for domain in self._routes.path(one, other)[1::2])
            self._backbones[one, other] = found
        return found

    def way(self, one: str, other: str, size_bytes: int) -> WayDelay:
        """Return how long so many bytes take from one process to another; only backbones have a speed."""
        averages = self._averages(one, other)
        backbones = [average for average in averages if average]
        lans = len(averages) - len(backbones)
        once_ns = size_bytes * NS_PER_S / self.campus.speed_bytes_per_s
        return WayDelay(round(lans * self.campus.lan_ms * NS_PER_MS + len(backbones) * once_ns), *backbones)

    def acknowledgement(self, one: str, other: str) -> WayDelay:
        """Return how long an acknowledgement takes."""
        found = self._acknowledgements.get((one, other))
        if found is None:
            found = self._acknowledgements[one, other] = self.way(one, other, ACKNOWLEDGEMENT_BYTES)
        return found

    def ways(self, topology: Topology) -> dict[Link, Law]:
        """Return how long a message takes between any two that share a domain of this topology."""
        found: dict[Link, Law] = {}
        for domain in topology.domains.values():
            size = stamp_bytes(len(domain.members), flat=topology is self.flat)
            found |= {(one, two): self.way(one, two, size) for one in domain.members for two in domain.members if one != two}
        return found

    def shared_ways(self) -> dict[Link, Law]:
        """Return the ways of the flat group where routers forward one copy, which all behind them share."""
        found: dict[Link, Law] = {}
        size = stamp_bytes(len(self.names), flat=True)
        for one in self.names:
            copies = RouterCopies()
            for two in self.names:
                if two != one:
                    path = self._routes.path(one, two)
                    steps = [((path[at - 1], path[at + 1]), self._average_ns[path[at]]) for at in range(1, len(path), 2)]
                    hops = tuple((hop, average_ns) for hop, average_ns in steps if average_ns)
                    found[one, two] = SharedDelay(self.way(one, two, size), two, hops, copies)
        return found

    def network_ms(self, topology: Topology) -> float:
        """Return the mean of what the network alone takes where there are the most hops, with no wait anywhere."""
        ways, flat = self.ways(topology), topology is self.flat
        worst = [(one, two) for one in self.names for two in self.names if self.hops(one, two) == WORST_HOPS]
        steps = [[one, two] if flat else self._routes.path(one, two)[::2] for one, two in worst]
        return sum(ways[pair].mean_ns() for way in steps for pair in pairwise(way)) / len(worst) / NS_PER_MS

    def stability_ms(self) -> float:
        """Return the mean time until the last acknowledgement is there, flat, where no load comes in."""
        ways = self.ways(self.flat)
        total = 0.0
        for sender in self.names:
            trips: Counter[tuple[float, tuple[float, ...]]] = Counter()
            for peer in self.names:
                if peer != sender:
                    back = self.acknowledgement(peer, sender)
                    stages = tuple(sorted(average / NS_PER_MS for average in self._averages(sender, peer) if average)) * 2
                    trips[(ways[sender, peer].mean_ns() + back.mean_ns()) / NS_PER_MS - sum(stages), stages] += 1
            total += _slowest_ms(tuple((*kind, count) for kind, count in sorted(trips.items())))
        return total / len(self.names)


Trips = tuple[tuple[float, tuple[float, ...], int], ...]
"""Round trips by their kind: the constant part, the means of the exponential parts, and how many there are."""


@cache
def _slowest_ms(trips: Trips) -> float:
    """Return the mean of the slowest of several independent round trips."""
    total, number, left = 0.0, 0, 1.0
    while left > CERTAIN:
        at = number * STEP_MS
        all_there = math.prod(_chance_by(at - constant, stages) ** count for constant, stages, count in trips)
        before, left = left, 1.0 - all_there
        if number:
            total += (before + left) / 2 * STEP_MS
        number += 1
    return total


def _chance_by(time_ms: float, stages: tuple[float, ...]) -> float:
    """Return how likely exponential stages in a row, of these means, are over by some time."""
    if time_ms < 0:
        return 0.0
    table = _chances(stages)
    place = int(time_ms / STEP_MS)
    if place + 1 >= len(table):
        return 1.0
    share = time_ms / STEP_MS - place
    return (1 - share) * table[place] + share * table[place + 1]


@cache
def _chances(stages: tuple[float, ...]) -> list[float]:
    """Return how likely the stages are over after 0, 1, 2, … steps of time, until that is as good as certain."""
    within = [1.0, *[0.0] * (len(stages) - 1)] if stages else []
    table = [0.0] if stages else [1.0]
    while sum(within) > CERTAIN / 100:
        term = within
        for order in range(1, TERMS):  # exp(Qt) as a series: stage after stage fills from the one before and drains
            flows = [held / mean for held, mean in zip(term, stages, strict=True)]
            term = [STEP_MS / order * (flow_in - flow) for flow_in, flow in zip([0.0, *flows], flows, strict=False)]
            within = [held + change for held, change in zip(within, term, strict=True)]
        table.append(1.0 - sum(within))
    return table


def stamp_bytes(integers: int, *, flat: bool) -> int:
    """Return the size of the control information as §5.1 counts it."""
    return INTEGER_BYTES * integers + (math.ceil(integers / 8) if flat else 0)
