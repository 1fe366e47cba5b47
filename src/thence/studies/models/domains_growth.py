"""What order costs as servers are added: one flat domain, a bus, a daisy of three levels and a tree of fixed domains.

Source: domains §6 (Fig. 8 to 12), claims M6 to M8. The paper measures the time of a round trip, whose growing part is
handling the matrix clock. Here real members send, relay and answer, and what grows is counted: the control bytes on the way
there and back. Every shape has whole matrices and updates (§3, App. A), which the paper combines with domains.

Rules:

* As in §6.1 a main server asks, and each server asked sends the message back. Where the main server lies is drawn; it is no
  relay. Those asked share no domain with it (in one flat domain: all others), and are no relays either.
* ``unicast``: they are asked one after the other, in a drawn order, each before the next. ``broadcast``: one message to all
  servers, and an answer from each. ``uniform``: everybody writes to others, drawn from all, ``each`` messages on average; this
  is what updates are worst at, since nearly everything has changed between two messages to the same server.
* Members have a disk: what they would write is counted (``disk_bytes``), and at the end what they keep (``state_bytes``).
* Times are modelled, not measured: a fixed cost for each hop and a cost for each byte of a stamp, both parameters.
* In one domain full matrices always have the same size, so there a few round trips say it all (``full_pings``); otherwise every
  server is asked at least ``passes`` times, since a stamp of updates holds what the receiver has not heard yet.
"""

from __future__ import annotations

import math
from random import Random

from thence.core.member.contract import Delivery
from thence.core.topology.model import Topology
from thence.studies.parts import layouts
from thence.studies.parts.wires import StoringWires
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

ENTRY_BYTES = 4
"""An entry of a full matrix on the wire (``core.ordering.matrix_clock``)."""

DEPTHS = {"flat": 0, "bus": 1, "daisy": 2}
"""How many levels there are below the first, in shapes other than a tree."""

THERE_AND_BACK = 2


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Ask and be answered, or write to each other; return what that cost on average."""
    topology = fabric(point)
    chance = Random(f"{seed}/asked")
    wires = StoringWires(topology, sink)
    pattern = str(point["pattern"])
    if pattern == "uniform":
        measures = _uniform(point, wires, chance)
    else:
        asks, asked = who(topology, chance)
        if pattern == "broadcast":
            measures = _broadcast(point, wires, asks)
        else:
            measures = _unicast(point, wires, asks, _visits(point, asked, chance))
    measures["formula_bytes"] = formula_bytes(point)
    return measures


def fabric(point: Point) -> Topology:
    """Return the fabric of a point."""
    servers, shape, stamps = int(point["servers"]), str(point["shape"]), str(point["stamps"])
    if shape in DEPTHS:
        return layouts.even(DEPTHS[shape] + 1, servers, stamps=stamps)
    return layouts.tree(servers, int(point["tree_size"]), int(point["tree_branching"]), stamps=stamps)


def formula_bytes(point: Point) -> float:
    """Return the paper's C = (2d + 1) s² for the longest way, there and back, in bytes; nan: it says nothing about updates."""
    servers, shape = int(point["servers"]), str(point["shape"])
    if point["stamps"] == "updates" or point["pattern"] == "uniform":
        return math.nan
    if shape == "tree":
        size, branching = int(point["tree_size"]), int(point["tree_branching"])
        depth = tree_depth(servers, size, branching)
    else:
        depth = DEPTHS[shape]
        size = round(servers ** (1 / (depth + 1)))
    return float(THERE_AND_BACK * ENTRY_BYTES * (2 * depth + 1) * size * size)


def tree_depth(servers: int, size: int, branching: int) -> int:
    """Return d, the levels below the first, of the smallest tree that holds so many servers."""
    depth, held, layer = 0, size, 1
    while held < servers:
        layer *= branching
        held += layer * (size - 1)
        depth += 1
    return depth


def who(topology: Topology, chance: Random) -> tuple[str, list[str]]:
    """Draw the main server; return it and those that it asks."""
    homes = topology.homes
    plain = [name for name in topology.processes if len(homes[name]) == 1]
    asks = chance.choice(plain)
    if len(topology.domains) == 1:
        return asks, [name for name in plain if name != asks]
    return asks, [name for name in plain if homes[name] != homes[asks]]


def is_one_matrix(point: Point) -> bool:
    """Return whether there is one domain with whole matrices."""
    return point["shape"] == "flat" and point["stamps"] == "full"


def _visits(point: Point, asked: list[str], chance: Random) -> list[str]:
    """Return whom to ask, in turn."""
    if is_one_matrix(point):
        return chance.choices(asked, k=int(point["full_pings"]))
    order = chance.sample(asked, len(asked))
    passes = max(int(point["passes"]), -(-int(point["pings"]) // len(order)))
    return order * passes


def _unicast(point: Point, wires: StoringWires, asks: str, visits: list[str]) -> Measures:
    farthest = hops = 0
    wires.on_deliver = lambda name, _: None if name == asks else wires.submit(name, (asks,))
    for target in visits:
        before = wires.control_bytes
        wires.submit(asks, (target,))
        wires.carry()
        farthest = max(farthest, wires.control_bytes - before)
        hops += len(wires.routes.path(asks, target)) // 2
    wires.check_complete(THERE_AND_BACK * len(visits))
    control, way = wires.control_bytes / len(visits), hops / len(visits)
    return {
        "hops": way,
        "control_bytes": control,
        "farthest_bytes": float(farthest),
        "whole_bytes": math.nan,
        "time_ms": _time_ms(point, way, control, "byte_ns"),
        "saved_ms": _time_ms(point, way, control, "saved_byte_ns"),
        "disk_bytes": wires.disk_bytes / len(visits),
        "state_bytes": math.nan,
    }


def _time_ms(point: Point, hops: float, control: float, cost: str) -> float:
    return (THERE_AND_BACK * hops * float(point["hop_us"]) * 1e3 + control * float(point[cost])) / 1e6


def _broadcast(point: Point, wires: StoringWires, asks: str) -> Measures:
    def answer(name: str, _: Delivery) -> None:
        if name != asks:
            wires.submit(name, (asks,))
            if is_one_matrix(point):
                wires.forget(name)  # It has nothing more to do, and its matrix may be megabytes.

    wires.on_deliver = answer
    others = [name for name in wires.routes.topology.processes if name != asks]
    wires.submit(asks, None)
    wires.carry()
    # Its own copy is delivered too.
    wires.check_complete(1 + THERE_AND_BACK * len(others))
    return {
        "hops": sum(len(wires.routes.path(asks, name)) // 2 for name in others) / len(others),
        "control_bytes": wires.control_bytes / len(others),
        "farthest_bytes": math.nan,
        "whole_bytes": float(wires.control_bytes),
        "time_ms": math.nan,
        "saved_ms": math.nan,
        "disk_bytes": wires.disk_bytes / len(others),
        "state_bytes": math.nan,
    }


def _uniform(point: Point, wires: StoringWires, chance: Random) -> Measures:
    names = wires.routes.topology.processes
    messages = int(point["each"]) * len(names)
    hops = 0
    for _ in range(messages):
        sender, target = chance.sample(names, 2)
        wires.submit(sender, (target,))
        wires.carry()
        hops += len(wires.routes.path(sender, target)) // 2
    wires.check_complete(messages)
    way, control = hops / messages, wires.control_bytes / messages
    return {
        "hops": way,
        "control_bytes": control,
        "farthest_bytes": math.nan,
        "whole_bytes": math.nan,
        "time_ms": math.nan,
        "saved_ms": math.nan,
        "disk_bytes": wires.disk_bytes / messages,
        "state_bytes": sum(map(wires.state_bytes, names)) / len(names),
    }
