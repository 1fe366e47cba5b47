"""Whom a node suspects, and by which clock; ``tests/integration/faults/test_takeover.py`` has what follows from it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thence.core.member.contract import Suspicion
from thence.core.topology.toml import parse
from thence.node.peers import failure_detector
from thence.node.peers.connections import Peers
from thence.node.peers.failure_detector import FailureDetector

HOUR_S = 3600.0
EVERYBODY = """
name = "two"
[domains.A]
members = ["s1", "s2"]
ordering = "vector"
confirmation = { scheme = "distributed" }
"""
PLAIN = EVERYBODY.replace('confirmation = { scheme = "distributed" }\n', "")


def looked(monkeypatch: pytest.MonkeyPatch, text: str, clock_moves_s: float, suspect_after_s: float) -> list[Suspicion]:
    """Return what ``s1`` is told of ``s2``, which it cannot reach, when the time of day is set to another one meanwhile."""
    said: list[Suspicion] = []

    async def main() -> None:
        topology = parse(text)
        made = Peers(topology, "s1", cast("Any", None), cast("Any", None))
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + clock_moves_s)
        monkeypatch.setattr(failure_detector, "SUSPECT_AFTER_S", suspect_after_s)
        await asyncio.sleep(0.01)
        member = SimpleNamespace(attachment=SimpleNamespace(suspected={}))
        driver = SimpleNamespace(member=member, full="", step=said.append)
        FailureDetector(made, cast("Any", driver)).look()

    asyncio.run(main())
    return said


@pytest.mark.parametrize("clock_moves_s", [-HOUR_S, 0.0, HOUR_S])
def test_how_long_a_connection_is_gone_does_not_depend_on_the_time_of_day(
    monkeypatch: pytest.MonkeyPatch, clock_moves_s: float
) -> None:
    assert looked(monkeypatch, EVERYBODY, clock_moves_s, 0.0) == [Suspicion("s2", True)]
    assert looked(monkeypatch, EVERYBODY, clock_moves_s, HOUR_S / 2) == []


def test_where_it_makes_no_difference_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked(monkeypatch, PLAIN, 0.0, 0.0) == []
