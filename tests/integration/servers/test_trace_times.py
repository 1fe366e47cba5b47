"""A server is killed and started again later: its trace says when things happened, not when they were told again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import thence
from tests.support.servers.running import PATIENCE_S, assert_kept, flat, fleet, url, wait_for_server
from thence.core.topology.model import Topology

MESSAGES: Final = 20
AWAY_S: Final = 0.5
"""How long the servers are away: what is told again at their start is off by at least that, if its time is that of the start."""
SLEW_NS: Final = 100_000_000
"""How far the clocks of two processes of one machine may be apart, since the system corrects its own."""


def test_after_a_kill_the_trace_has_the_times_at_which_it_first_happened(tmp_path: Path) -> None:
    with fleet(flat("s1", "s2"), tmp_path / "data", tmp_path / "trace") as running:
        log = asyncio.run(_talk(running.topology))
        for name in ("s1", "s2"):
            running.kill(name)
        time.sleep(AWAY_S)
        for name in ("s1", "s2"):
            running.start_one(name)
        for name in ("s1", "s2"):
            wait_for_server(running.topology, name)
    events = sorted(assert_kept(tmp_path / "trace", sends=MESSAGES), key=lambda event: (event.process, event.index))
    assert [event.kind for event in events].count("recover") == 2
    sends = [event for event in events if event.kind == "send" and event.to == ("s2",)]
    delivered = {event.message: event.time or 0 for event in events if event.kind == "deliver" and event.process == "s2"}
    assert len(sends) == MESSAGES
    for send, (before, after) in zip(sends, log, strict=True):
        # What the clients saw lies around what the servers say, and nothing comes before it was sent.
        assert before - SLEW_NS <= (send.time or 0) <= delivered[send.message] <= after + SLEW_NS


async def _talk(topology: Topology) -> list[tuple[int, int]]:
    """Send messages from one server to the other; return when each was sent and received, as the clients see it."""
    log = []
    async with (
        asyncio.timeout(PATIENCE_S),
        thence.connect(url(topology, "s1"), "ann") as ann,
        thence.connect(url(topology, "s2"), "bob") as bob,
    ):
        await ann.known("bob")
        for _ in range(MESSAGES):
            before = time.time_ns()
            await ann.send("bob", b"when?")
            await bob.receive()
            log.append((before, time.time_ns()))
        bob.done()
    return log
