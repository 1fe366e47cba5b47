"""What order costs in a hierarchy of clusters: bytes of a header, and messages that arrive at coordinators (clusters §IV).

``sites`` are divided into ``b`` parts, each of these into b again, and so on; on the lowest layer a cluster holds sites, on
every other one the b agents of the clusters below.

Rules:

* Header (§IV-A): every cluster keeps order by full matrices, its first member is its agent. Messages go from a site that is no
  agent through all layers to another one, and the control bytes of all their hops are added up. An entry takes four bytes.
* Processing load (§IV-B): every cluster has a coordinator, which is the agent too. It is a process of its own on each layer, as
  the paper has it for the top one. Every site sends at the same rate to a site drawn from all, itself included; what arrives
  at coordinators is counted, in units of the rate of one site. ``agent_load`` counts at agents that are sites themselves, as the
  paper has them below the top; what such a site sends itself passes its coordinator too.
* Journeys (§V): more layers mean more hops and smaller headers. Messages between any two sites, one at a time, over lines with a
  delay and a bandwidth.
* Where there are several clusters, a message to oneself never leaves the site, though the paper sends it to the coordinator:
  one of ``sites`` messages is missing at the lowest layer.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any, Final, Literal, NamedTuple

import msgspec

from thence.core.ordering.matrix_clock import FullMatrixStamp
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import control_bytes
from thence.errors import ConfigError, InternalError
from thence.studies.parts.linked_systems import MS, SECOND, DrivenRun, Send, drive
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink, nowhere

ENTRY_BYTES: Final = 4
"""An entry of a full matrix: the constant c of §IV-A."""
GAP_NS: Final = SECOND
"""Between two messages whose headers are measured."""
JOURNEY_NS: Final = 60 * SECOND
"""Between two whose journeys are: longer than any of them takes."""

LAYERS: Final = {"flat": 1, "square-root": 2, "two-layers": 2, "three-layers": 3, "four-layers": 4}


class ClustersSetting(msgspec.Struct, frozen=True):
    """A point with its types. ``deep`` has as many layers as clusters of ``smallest`` sites take (Eq. 1)."""

    layout: Literal["flat", "square-root", "deep", "two-layers", "three-layers", "four-layers"]
    sites: int
    b: int
    smallest: int
    messages: int
    headers: int


class ClusterShape(NamedTuple):
    """``layers`` layers, ``b`` parts each, and ``size`` sites in each cluster of the lowest."""

    b: int
    layers: int
    size: int

    @property
    def sites(self) -> int:
        """The sites altogether: n in the paper's words."""
        return self.below(self.layers)

    def below(self, layer: int) -> int:
        """Return how many sites a coordinator of this layer has below it."""
        return self.size * int(self.b ** (layer - 1))


class ClusterTree(NamedTuple):
    """The fabric; its sites in order; who leads the clusters, layer by layer from the lowest."""

    topology: Topology
    sites: tuple[str, ...]
    leaders: list[tuple[str, ...]]


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Simulate one point: the headers, and then the load, whose trace is the one that is kept."""
    setting = msgspec.convert(dict(point), ClustersSetting)
    shape = shape_of(setting)
    middle = shape.layers > 2
    agents = agent_load(shape, setting.messages, seed) if shape.layers == 2 else (math.nan, math.nan)
    arrivals = loads(shape, setting.messages, seed, sink)
    printed = [printed_load(shape, layer) for layer in range(1, shape.layers + 1)]
    corrected = [corrected_load(shape, layer) for layer in range(1, shape.layers + 1)]
    total, matrices = header(shape, setting.headers, seed)
    return {
        "layers": shape.layers,
        "header_bytes": total,
        "matrix_bytes": matrices,
        "formula_bytes": ENTRY_BYTES * printed_entries(shape),
        "top": arrivals[-1],
        "top_printed": printed[-1],
        "top_corrected": corrected[-1],
        "second": arrivals[1] if middle else math.nan,
        "second_printed": printed[1] if middle else math.nan,
        "second_corrected": corrected[1] if middle else math.nan,
        "bottom": arrivals[0],
        "bottom_printed": printed[0],
        "bottom_corrected": corrected[0],
        "agent": agents[0],
        "agent_top": agents[1],
    }


def shape_of(setting: ClustersSetting) -> ClusterShape:
    """Return the shape, which must come out even."""
    b = {"flat": 1, "square-root": math.isqrt(setting.sites)}.get(setting.layout, setting.b)
    layers = LAYERS.get(setting.layout, 1)
    if setting.layout == "deep":
        while setting.sites > setting.smallest * b ** (layers - 1):
            layers += 1
    shape = ClusterShape(b, layers, setting.sites // b ** (layers - 1))
    if shape.sites != setting.sites or shape.size < 2 or (layers > 1 and b < 2):
        raise ConfigError(f"{setting.sites} sites do not make {layers} layers of {b} parts each")
    return shape


# What the paper says, and what follows from its assumptions.


def printed_entries(shape: ClusterShape) -> int:
    """§IV-A: C(n) in entries, with the recurrence of D(n) solved."""
    if shape.layers == 1:
        return shape.size**2
    return 2 * (shape.size**2 + (shape.layers - 2) * shape.b**2) + shape.b**2


def printed_load(shape: ClusterShape, layer: int) -> float:
    """§IV-B: R(n, k) + S(n, k), in units of one site's rate.

    The share that goes up is applied anew on each layer, as if a message that has left one cluster were again for any of all
    sites; and all that comes down is taken to come from the top.
    """
    b, layers = shape.b, shape.layers
    if layers == 1:
        return shape.sites
    parts = [float(b**power) for power in range(layers)]

    def going_up(to: int) -> float:
        return shape.below(to) * math.prod(1 - 1 / parts[layers - i] for i in range(1, to))

    return going_up(layer) + (going_up(layers) / parts[layers - layer] if layer < layers else 0)


def corrected_load(shape: ClusterShape, layer: int) -> float:
    """Return the same from the assumptions of §IV-B: any site writes to any site.

    Up come the messages of all sites below whose destination is not below the same coordinator one layer down. Down come those
    of all other sites whose destination is below this one, wherever they turned round.
    """
    all_sites, below = shape.sites, shape.below(layer)
    inside = shape.below(layer - 1) if layer > 1 else 0
    return below * (all_sites - inside) / all_sites + (all_sites - below) * below / all_sites


# The simulation.


class Journey(NamedTuple):
    """What a message takes from a site to another, on average."""

    hops: float
    header_bytes: float
    """On all hops together."""
    delay_ms: float


def tree(shape: ClusterShape, ordering: str, *, coordinators: bool, extra_top: bool = False) -> ClusterTree:
    """Build the clusters. Their agents are their first members or, with ``coordinators``, processes of their own.

    With ``extra_top`` the one of the top layer is a process of its own in any case.
    """
    sites = tuple(f"s{number}" for number in range(1, shape.sites + 1))
    domains, leaders = [], []
    members, size = sites, shape.size
    for layer in range(1, shape.layers + 1):
        agents = []
        for number, first in enumerate(range(0, len(members), size), start=1):
            cluster = members[first : first + size]
            apart = coordinators or (extra_top and layer == shape.layers)
            agents.append(f"c{layer}-{number}" if apart else cluster[0])
            if apart:
                cluster = (*cluster, agents[-1])
            domains.append(Domain(f"g{layer}-{number}", cluster, ordering, _options(ordering, agents[-1])))
        leaders.append(tuple(agents))
        members, size = tuple(agents), shape.b
    return ClusterTree(Topology("clusters", domains), sites, leaders)


def _options(ordering: str, agent: str) -> dict[str, Any]:
    return {"stamps": "full"} if ordering == "matrix" else {"coordinator": agent}


def header(shape: ClusterShape, messages: int, seed: int) -> tuple[float, float]:
    """Return the control bytes of a message on the longest route, over all its hops; and those of its matrices alone."""
    chance = Random(f"{seed}/headers")
    built = tree(shape, "matrix", coordinators=False)
    traffic = []
    for at in range(messages):
        source, target = _apart(shape, chance)
        traffic.append((at * GAP_NS, built.sites[source], (built.sites[target],)))
    done = _complete(drive(built.topology, traffic), messages)
    stamps = [sent.frame.stamp for sent in done.sent]
    matrices = sum(len(stamp.matrix) for stamp in stamps if isinstance(stamp, FullMatrixStamp))
    return sum(control_bytes(stamp) for stamp in stamps) / messages, matrices / messages


def _apart(shape: ClusterShape, chance: Random) -> tuple[int, int]:
    """Draw two sites that only the top layer joins, and that are led by another process on each layer below it."""
    if shape.layers == 1:
        source, target = chance.sample(range(shape.size), 2)
        return source, target
    ends = []
    for branch in chance.sample(range(shape.b), 2):
        cluster = branch
        for _ in range(shape.layers - 2):
            cluster = cluster * shape.b + chance.randrange(1, shape.b)
        ends.append(cluster * shape.size + chance.randrange(1, shape.size))
    return ends[0], ends[1]


def loads(shape: ClusterShape, messages: int, seed: int, sink: Sink) -> list[float]:
    """Return what arrives at a coordinator of each layer, from the lowest, on average and in units of one site's rate."""
    built = tree(shape, "sequenced", coordinators=True)
    arrived = Counter(sent.target for sent in _loaded(built, messages, seed, sink).sent)
    per_message = [sum(arrived[leader] for leader in leaders) / len(leaders) / messages for leaders in built.leaders]
    return [share * shape.sites for share in per_message]


def agent_load(shape: ClusterShape, messages: int, seed: int) -> tuple[float, float]:
    """Return what an agent that is a site handles, and what arrives at the extra coordinator on top, in the same units.

    There are two layers, as in Fig. 7: with more, some sites are agents on several.
    """
    built = tree(shape, "sequenced", coordinators=False, extra_top=True)
    done = _loaded(built, messages, seed, nowhere)
    agents, (top,) = built.leaders
    handled = Counter(sent.target for sent in done.sent) + Counter(event.process for event in done.events if event.kind == "send")
    return sum(handled[agent] for agent in agents) / len(agents) / messages * shape.sites, handled[top] / messages * shape.sites


def _loaded(built: ClusterTree, messages: int, seed: int, sink: Sink) -> DrivenRun:
    """Let any site write to any site, and return what went where."""
    chance = Random(f"{seed}/load")
    traffic: list[Send] = []
    now_s = 0.0
    for _ in range(messages):
        now_s += chance.expovariate(len(built.sites))
        traffic.append((int(now_s * SECOND), chance.choice(built.sites), (chance.choice(built.sites),)))
    return _complete(drive(built.topology, traffic, sink=sink), messages)


def journey(shape: ClusterShape, delay_us: int, bytes_per_s: int, messages: int, seed: int, sink: Sink = nowhere) -> Journey:
    """Return what a message takes between two sites drawn from all, with whole matrices, one message at a time."""
    chance = Random(f"{seed}/journeys")
    built = tree(shape, "matrix", coordinators=False)
    traffic: list[Send] = []
    for at in range(messages):
        source, target = chance.sample(built.sites, 2)
        traffic.append((at * JOURNEY_NS, source, (target,)))
    line: dict[str, Any] = {"delay": f"constant:{delay_us}us", "bandwidth_bytes_per_s": bytes_per_s}
    done = _complete(drive(built.topology, traffic, sink=sink, reliable=False, **line), messages)
    return Journey(
        len(done.sent) / messages,
        sum(control_bytes(sent.frame.stamp) for sent in done.sent) / messages,
        sum(done.delays().values()) / messages / MS,
    )


def _complete(done: DrivenRun, messages: int) -> DrivenRun:
    """Refuse a run in which something got lost: its counts would mean nothing."""
    delivered = sum(event.kind == "deliver" for event in done.events)
    if delivered != messages or done.waiting:
        raise InternalError(f"{delivered} of {messages} messages came through")
    return done
