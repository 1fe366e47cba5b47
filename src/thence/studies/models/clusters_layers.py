"""Layers against hops: what a message takes in a hierarchy of clusters, over lines with a delay and a bandwidth (clusters §V).

More layers mean more hops and smaller headers. ``clusters_cost`` has the clusters and a message's journey through them; here each
point is one hierarchy and one kind of line. Messages go between any two sites, one at a time, so none waits for another.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, Literal

import msgspec

from thence.errors import ConfigError
from thence.sim.node import FRAME_BYTES
from thence.studies.models.clusters_cost import ClusterShape, journey
from thence.studies.study import Measures, Point
from thence.trace.recorder import Sink

BITS: Final = 8
US_PER_MS: Final = 1000
MS_PER_S: Final = 1000
PACKET_BYTES: Final = 2 * FRAME_BYTES
"""A packet with a frame, without its header."""


class LayersSetting(msgspec.Struct, frozen=True):
    """A point with its types."""

    layout: Literal["flat", "square-root", "fours", "twos"]
    sites: int
    delay_us: int
    mbit_per_s: int
    messages: int


def run(point: Point, seed: int, sink: Sink) -> Measures:
    """Send some messages; return what one takes on average."""
    setting = msgspec.convert(dict(point), LayersSetting)
    shape = shape_of(setting)
    bytes_per_s = setting.mbit_per_s * 1_000_000 // BITS
    found = journey(shape, setting.delay_us, bytes_per_s, setting.messages, seed, sink)
    written = found.header_bytes + found.hops * PACKET_BYTES
    return {
        "layers": shape.layers,
        "hops": found.hops,
        "header_bytes": found.header_bytes,
        "delay_ms": found.delay_ms,
        "formula_ms": found.hops * setting.delay_us / US_PER_MS + written / bytes_per_s * MS_PER_S,
    }


def shape_of(setting: LayersSetting) -> ClusterShape:
    """Return one cluster, √n clusters of √n sites, or as many layers as clusters of four or two take."""
    if setting.layout == "flat":
        return ClusterShape(1, 1, setting.sites)
    b = {"square-root": isqrt(setting.sites), "fours": 4, "twos": 2}[setting.layout]
    layers = 1
    while b**layers < setting.sites:
        layers += 1
    if b**layers != setting.sites:
        raise ConfigError(f"{setting.sites} sites make no clusters of {b} on every layer")
    return ClusterShape(b, layers, b)
