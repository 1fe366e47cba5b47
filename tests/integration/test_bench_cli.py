"""``thence bench`` measures a server that runs: as a table for people, and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.running import flat, fleet, url
from tests.unit.cli import run
from thence.cli.bench import percentile


def test_a_server_is_measured(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    with fleet(topology, tmp_path):
        options = ("--count", "500", "--round-trips", "20", "--size", "64")
        told = json.loads(run("bench", url(topology, "s1"), "--to", url(topology, "s2"), *options, "--json").out)
        shown = run("bench", url(topology, "s1"), *options)
    assert (told["sender"], told["receiver"], told["count"], told["size_bytes"]) == ("s1", "s2", 500, 64)
    assert told["messages_per_s"] > 0
    assert 0 < told["round_trip_us"]["p50"] <= told["round_trip_us"]["p90"] <= told["round_trip_us"]["p99"]
    assert (shown.code, shown.err) == (0, "")
    assert all(words in shown.out for words in ("500 of 64 bytes", "messages/s", "round trip, p99"))


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (25, 1), (50, 2), (51, 3), (99, 4), (100, 4)])
def test_a_percentile_is_a_time_that_was_seen(percent: float, value: int) -> None:
    assert percentile([1, 2, 3, 4], percent) == value
