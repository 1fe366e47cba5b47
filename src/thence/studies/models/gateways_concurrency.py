"""What vectors by subgroup order in vain, and what the ways to ack and to repeat cost under loss: gateways §2.3 to §4.

It exists to count, for claim G3, the pairs of messages that are concurrent at their senders and come out ordered, and for G5 what
each way of acknowledging sends, keeps and takes to recover.

Rules:

* A *scheme* is a way to put vectors on what gateways pass on (``gateway_clocks``), or a way to ack (``site_groups``). What
  makes no sense for one of them is ``math.nan``.
* All schemes run over the same processes, in as many subgroups as the point says. For a way to ack a subgroup is a site: its
  members are near to each other and far from all others.
* Everything is delivered in the end, whatever is lost: figures are per message, or shares of what could be.

Source: gateways §2.3, Fig. 2 to 4; §3; §4, Fig. 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from thence.core.ordering.grouped import Grouped
from thence.studies.parts.gateway_clocks import GatewayClock, MergedVectors, Setup, watch
from thence.studies.parts.site_groups import SiteGroup
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

CLOCKS: Final[Mapping[str, type[Grouped]]] = {
    "own vectors": Grouped,
    "merged vectors": MergedVectors,
    "gateway clock": GatewayClock,
}

MEASURES: Final = (
    "delay_ms", "false_share", "false_share_home", "false_share_all", "overlooked", "waits", "packets", "bytes", "confirmations",
    "repeats", "requests", "recovery_ms", "late_share", "kept",
)  # fmt: skip


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Run one scheme at one loss."""
    scheme = str(point["scheme"])
    found = _order(CLOCKS[scheme], point, seed, sink) if scheme in CLOCKS else _ack(scheme, point, seed, sink)
    return {**dict.fromkeys(MEASURES, math.nan), **found}


def _order(kind: type[Grouped], point: Point, seed: int, sink: Sink) -> Measures:
    seen = watch(kind, msgspec.convert(dict(point), Setup), seed, sink)
    return {
        "delay_ms": seen.delay_ms,
        "false_share": _share(seen.falsely_ordered, seen.concurrent),
        "false_share_home": _share(seen.falsely_ordered_at_home, seen.concurrent_at_home),
        "false_share_all": _share(seen.falsely_ordered + seen.falsely_ordered_at_home, seen.concurrent + seen.concurrent_at_home),
        "overlooked": seen.overlooked,
        "waits": _share(seen.waits, seen.arrived),
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def _ack(how: str, point: Point, seed: int, sink: Sink) -> Measures:
    messages, members, loss = int(point["messages"]), int(point["processes"]), float(point["loss"])
    group = SiteGroup(how, members=members, loss=loss, seed=seed, sites=int(point["subgroups"]), sink=sink)
    cost = group.run(messages)
    delays = group.simulation.statistics.delays_ns
    return {
        "delay_ms": sum(delays) / len(delays) / 1e6,
        "packets": cost.packets / messages,
        "bytes": cost.bytes / messages,
        "confirmations": cost.confirmations / messages,
        "repeats": (cost.frames - cost.first_frames) / messages,
        "requests": cost.requests / messages,
        "recovery_ms": cost.recovery_ms if loss else math.nan,
        "late_share": cost.late / cost.deliveries,
        "kept": cost.peak,
    }
