"""Every configuration of the papers as running servers, with sockets and files. The judge and the audit read what they did.

A configuration runs once, when the first test asks for what it left: one as processes, the others in the loop of the test, since
most of what so many processes cost is their start. ``make test-all`` runs all of them as processes. The audit reads all of them
together, a run each: what an audit costs on Spark hardly depends on how much it reads here. It needs a session of Spark, so this
is where those are.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

import thence
from tests.support.pipeline.audited import write
from tests.support.servers.running import PATIENCE_S, assert_kept, fleet, servers, url
from thence.cli.servers.up import free_addresses
from thence.core.topology.model import Topology
from thence.pipeline.audit import audit_trace
from thence.runtime.files import read_topology
from thence.trace.events import DELIVER, Event
from thence.trace.files import read_trace
from thence.trace.judge import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
CONFIGURATIONS = sorted((ROOT / "tests" / "papers" / "topologies").glob("*.toml")) + sorted((ROOT / "examples").glob("*.toml"))
AS_PROCESSES = "city"
ROUNDS = 5
ORDER = ("fifo", "causal")


async def talk(topology: Topology) -> None:
    """Let a client at each server write to everybody and to the next one, and wait until all have everything."""
    names = {server: f"c-{server}" for server in topology.senders}
    clients = [thence.connect(url(topology, server), name) for server, name in names.items()]
    for client in clients:
        await client.__aenter__()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for client in clients:
                await client.send(thence.EVERYONE, b"here")
            await asyncio.gather(*(client.receive() for client in clients for _ in clients))
            for number in range(ROUNDS):
                for at, client in enumerate(clients):
                    await client.send(clients[(at + 1 + number) % len(clients)].name, b"%d" % number)
            for client in clients:
                assert sorted([(await client.receive()).body for _ in range(ROUNDS)]) == [b"%d" % n for n in range(ROUNDS)]
                client.done()
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)


def run_processes(topology: Topology, data: Path, trace: Path) -> int:
    """Let the servers of a configuration run as processes; return how many messages their trace must have."""
    with fleet(topology, data, trace) as running:
        asyncio.run(talk(running.topology))
    assert all(process.returncode == 0 for process in running.processes.values())
    return len(topology.senders) * (1 + ROUNDS)


def run_servers(topology: Topology, data: Path, trace: Path) -> int:
    """Do the same with servers in one loop."""
    here = topology.at(dict(zip(topology.processes, free_addresses(len(topology.processes)), strict=True)))

    async def main() -> None:
        async with servers(here, data, trace):
            await talk(here)

    asyncio.run(main())
    return len(topology.senders) * (1 + ROUNDS)


class Recorded:
    """The traces of all configurations that have run, as the runs of one trace."""

    def __init__(self, folder: Path) -> None:
        self.trace = folder / "trace"
        self._data = folder / "data"
        self._sends: dict[Path, int] = {}

    def run(self, file: Path) -> tuple[Path, int]:
        """Let the servers of a configuration run, unless they have; return their trace, and how many messages it must have."""
        trace = self.trace / f"run={file.stem}"
        if file not in self._sends:
            run = run_processes if file.stem == AS_PROCESSES else run_servers
            self._sends[file] = run(read_topology(file), self._data / file.stem, trace)
        return trace, self._sends[file]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("configurations"))


@pytest.fixture(scope="module")
def everything(recorded: Recorded) -> list[Event]:
    """What all of them recorded."""
    for file in CONFIGURATIONS:
        recorded.run(file)
    return read_trace(recorded.trace)


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_running_servers_keep_order(recorded: Recorded, file: Path) -> None:
    trace, sends = recorded.run(file)
    assert_kept(trace, sends=sends)


@pytest.mark.campaign
@pytest.mark.parametrize("file", [file for file in CONFIGURATIONS if file.stem != AS_PROCESSES], ids=lambda file: file.stem)
def test_servers_that_are_processes_keep_order(file: Path, tmp_path: Path) -> None:
    assert_kept(tmp_path / "trace", sends=run_processes(read_topology(file), tmp_path / "data", tmp_path / "trace"))


@pytest.mark.spark
def test_the_audit_finds_nothing_in_any_of_them(spark: SparkSession, recorded: Recorded, everything: list[Event]) -> None:
    found = audit_trace(spark, str(recorded.trace))
    assert (found.verdict, found.violations, found.bad_rows) == ("kept", [], 0)
    assert (found.events, found.runs) == (len(everything), len(CONFIGURATIONS))
    assert found.properties == judge(everything).properties


def swapped(events: list[Event]) -> list[Event]:
    """Return the events of a run in which a process has made two deliveries, one right after the other, the wrong way round."""
    made = sorted((event for event in events if event.kind == DELIVER), key=lambda event: (event.process, event.index))
    for one, other in pairwise(made):
        if one.process == other.process:
            later, sooner = msgspec.structs.replace(one, index=other.index), msgspec.structs.replace(other, index=one.index)
            found = [later if event is one else sooner if event is other else event for event in events]
            if not judge(found, ORDER).kept:
                return found
    raise AssertionError("no delivery follows from the one before it")


@pytest.mark.spark
def test_the_audit_finds_two_deliveries_the_wrong_way_round_in_each(
    spark: SparkSession, tmp_path: Path, everything: list[Event]
) -> None:
    runs = {file.stem: [event for event in everything if event.run == file.stem] for file in CONFIGURATIONS}
    events = [event for run in runs.values() for event in swapped(run)]
    verdict = judge(events)
    found = audit_trace(spark, str(write(tmp_path / "trace", events, 3_000)))
    assert found.violations == verdict.violations
    assert {violation.run for violation in found.violations if violation.property in ORDER} == set(runs)
