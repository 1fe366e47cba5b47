"""What running servers recorded, audited on Spark: while one of them is killed, and afterwards."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thence
from tests.support.servers.running import PATIENCE_S, fleet, url
from thence.cli.servers.up import Fleet
from thence.pipeline.audit import audit_trace
from thence.runtime.files import read_topology
from thence.trace.files import read_trace
from thence.trace.judge import judge

pytestmark = pytest.mark.spark

TOPOLOGY = Path(__file__).parents[3] / "examples" / "two-sites.toml"
MESSAGES = 100


async def talk_over_a_crash(running: Fleet) -> None:
    """Let the first server's client write to the last one's while a server in between dies and comes back."""
    names = running.topology.processes
    async with (
        thence.connect(url(running.topology, names[0]), "writer") as writer,
        thence.connect(url(running.topology, names[-1]), "reader") as reader,
    ):
        await writer.known("reader")
        for number in range(MESSAGES):
            if number == MESSAGES // 2:
                running.kill(names[1])
                running.start_one(names[1])
            await writer.send("reader", b"%d" % number)
        async with asyncio.timeout(PATIENCE_S):
            assert [int((await reader.receive()).body) for _ in range(MESSAGES)] == list(range(MESSAGES))
        reader.done()


def test_the_audit_finds_nothing_in_what_servers_recorded(spark: SparkSession, tmp_path: Path) -> None:
    with fleet(read_topology(TOPOLOGY), tmp_path / "data", tmp_path / "trace") as running:
        asyncio.run(talk_over_a_crash(running))
    verdict = judge(read_trace(tmp_path / "trace"))
    found = audit_trace(spark, str(tmp_path / "trace"), slice_events=100)
    assert (found.verdict, found.events, found.properties) == ("kept", verdict.events, verdict.properties)
    assert found.slices > 1
    assert found.events > 2 * MESSAGES
