"""``thence bench`` measures a server that runs: as a table for people, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.servers.running import flat, fleet, servers, url
from tests.unit.cli import refusal, run
from thence.cli.messages.bench import measure, percentile
from thence.client.client import connect
from thence.client.message import MAX_MESSAGE_BYTES
from thence.errors import UsageError


def test_a_server_is_measured(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    with fleet(topology, tmp_path):
        options = ("--count", "500", "--round-trips", "20", "--size", "64")
        told = json.loads(run("bench", url(topology, "s1"), "--to", url(topology, "s2"), *options, "--json").out)
        shown = run("bench", url(topology, "s1"), *options)
    assert (told["sender"], told["receiver"], told["count"], told["size_bytes"]) == ("s1", "s2", 500, 64)
    assert told["messages_per_s"] > 0
    assert 0 < told["round_trip_us"]["p50"] <= told["round_trip_us"]["p90"] <= told["round_trip_us"]["p99"]
    said = [line for line in shown.err.splitlines() if "Connection reset by peer" not in line]  # Of a server, as bench leaves.
    assert (shown.code, said) == (0, [])
    assert all(words in shown.out for words in ("500 of 64 bytes", "messages/s", "round trip, p99"))


def test_a_size_that_no_message_can_have_is_refused_at_once() -> None:
    said = refusal("bench", "thence://127.0.0.1:1", "--size", str(MAX_MESSAGE_BYTES + 1))
    assert said == f"--size {MAX_MESSAGE_BYTES + 1}: must be from 0 to {MAX_MESSAGE_BYTES} (MAX_MESSAGE_BYTES)"


async def test_what_cannot_be_sent_is_not_waited_for() -> None:
    topology = flat("s1")
    async with servers(topology):
        where = url(topology, "s1")
        with pytest.raises(UsageError, match="MAX_MESSAGE_BYTES"):
            await measure(connect, (where, where), MAX_MESSAGE_BYTES + 1, 10, 1, lambda *_: None)


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (25, 1), (50, 2), (51, 3), (99, 4), (100, 4)])
def test_a_percentile_is_a_time_that_was_seen(percent: float, value: int) -> None:
    assert percentile([1, 2, 3, 4], percent) == value
