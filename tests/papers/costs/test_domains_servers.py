"""domains §3 and §6.1 on running durable servers, with agents that send back: bytes on the way and on disks. Rows M6, M7, M11.

``benchmarks.servers_series`` measures the same with more servers, and times, which no test asserts.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest

from benchmarks.servers_series import Found, fabric, measure_here

ENTRY_BYTES = 4
FEW, MANY = 9, 16


@cache
def found(shape: str, stamps: str, servers: int) -> Found:
    """Run so many servers, and let agents write to each other."""
    with tempfile.TemporaryDirectory() as data:
        return measure_here(fabric(shape, stamps, servers), Path(data), rounds=20)


def more(shape: str, series: str) -> tuple[float, float]:
    """Return by how many bytes a round trip grows from few servers to many: on the network, and on all disks."""
    few, many = (found(shape, "full", servers).costs[series] for servers in (FEW, MANY))
    return many.wire_bytes - few.wire_bytes, many.disk_bytes - few.disk_bytes


def test_m6_a_remote_round_trip_grows_by_two_matrices() -> None:
    """M6, Fig. 8: of n² entries, on the network and on disks; and one on the same server does not grow."""
    wire, disk = more("flat", "remote")
    assert disk == pytest.approx(2 * ENTRY_BYTES * (MANY**2 - FEW**2), rel=0.1)
    assert wire == pytest.approx(disk, rel=0.3), "acks that travel by themselves are more on a busy machine"
    wire, disk = more("flat", "local")
    assert wire == 0
    assert abs(disk) < 20


def test_m6_a_broadcast_grows_by_two_matrices_for_each_recipient() -> None:
    """M6, Fig. 9: so it grows with the cube, all of it together, beside what its messages take themselves."""
    few, many = (found("flat", "full", servers).costs["broadcast"].disk_bytes for servers in (FEW, MANY))
    matrices = [2 * ENTRY_BYTES * servers**2 * (servers - 1) for servers in (FEW, MANY)]
    assert (many - matrices[1]) / (MANY - 1) == pytest.approx((few - matrices[0]) / (FEW - 1), rel=0.15)


def test_m7_on_a_bus_a_remote_round_trip_grows_by_six_smaller_ones() -> None:
    """M7, Fig. 11: three hops there and back, with matrices of n entries."""
    _, disk = more("bus", "remote")
    # On a busy machine more goes into one commit: fewer bytes. In one domain it would be eight times as much.
    assert disk == pytest.approx(2 * 3 * ENTRY_BYTES * (MANY - FEW), rel=0.5)


@pytest.mark.parametrize("stamps", ["full", "updates"])
def test_m11_servers_keep_less_with_domains_and_write_less(stamps: str) -> None:
    """M11, §3: the state of the orderings of a server; with whole matrices also what a message writes to disks, in all series."""
    flat, bus = found("flat", stamps, MANY), found("bus", stamps, MANY)
    assert 3 * bus.state_bytes < flat.state_bytes
    assert bus.costs["broadcast"].disk_bytes < flat.costs["broadcast"].disk_bytes
    if stamps == "full":
        assert bus.costs["remote"].disk_bytes < flat.costs["remote"].disk_bytes
