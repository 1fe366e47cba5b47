"""A server is away for long, more is sent than memory should hold, the sender is killed meanwhile; both come back: all came once.

Real processes, killed with -9. The judge reads what the servers wrote; the clients say what they got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, assert_kept, flat, fleet, servers, started, until, url, wait_for_server
from tests.unit.cli import run as run_command
from thence.cli.servers.up import Fleet
from thence.client.client import ask_status
from thence.core.member.limits import MemberOptions
from thence.core.transport import channel
from thence.storage.spill import list_spill

MESSAGES = 3_000
BODY_BYTES = 500
IN_MEMORY_BYTES = 100_000
SPILLING = ("--backlog", "spill", "--spill-after-bytes", str(IN_MEMORY_BYTES))
READERS = ("left", "right")
"""Messages for the same recipient that follow each other travel together; these are in turn, so each is a frame of its own."""


def body(number: int) -> bytes:
    return b"%06d" % number + bytes(BODY_BYTES)


def test_a_server_that_is_away_gets_everything_once_also_if_the_sender_is_killed_meanwhile(tmp_path: Path) -> None:
    with fleet(flat("s1", "s2"), tmp_path, tmp_path / "trace", options=SPILLING) as running:
        topology = running.topology
        asyncio.run(_introduced(url(topology, "s2")))
        asyncio.run(_sent(running, 0, MESSAGES // 3, kill_after=None))
        running.kill("s2")
        asyncio.run(_sent(running, MESSAGES // 3, MESSAGES, kill_after=MESSAGES // 6))
        peer = _peer(running)
        assert peer["queued_frames"] - peer["spilled_frames"] <= channel.WINDOW + IN_MEMORY_BYTES // BODY_BYTES
        assert peer["spilled_frames"] > MESSAGES // 2
        assert peer["spilled_bytes"] > MESSAGES // 2 * BODY_BYTES
        assert "of these in files" in run_command("status", url(topology, "s1")).out
        _again(running, "s1")
        assert _peer(running)["spilled_frames"] > MESSAGES // 2
        running.start_one("s2")
        asyncio.run(_until_peer(running, lambda now: now["spilled_frames"] < peer["spilled_frames"]))
        _again(running, "s1")
        for name in ("s1", "s2"):
            wait_for_server(topology, name)
        asyncio.run(_until_peer(running, lambda now: now["queued_frames"] == 0))
        got = asyncio.run(_read(url(topology, "s2"), MESSAGES + MESSAGES // 3))
        assert got == {name: list(range(at, MESSAGES + MESSAGES // 3, 2)) for at, name in enumerate(READERS)}
    assert list_spill(tmp_path / "s1") == {}, "with the last snapshot what was taken is gone"
    for name in ("s1", "s2"):
        verified = run_command("store", "verify", tmp_path / name)
        assert (verified.code, verified.out.split(":")[0]) == (0, "whole")
    assert_kept(tmp_path / "trace", sends=MESSAGES + MESSAGES // 3)


def _again(running: Fleet, name: str) -> None:
    """Kill a server, and start it again."""
    running.kill(name)
    running.start_one(name)


async def _introduced(server: str) -> None:
    """Be there once, under the names of the readers."""
    for name in READERS:
        async with thence.connect(server, name):
            pass


async def _sent(running: Fleet, first: int, count: int, kill_after: int | None) -> None:
    """Send messages to the readers in turn; after some of them, kill the server that they are sent to, and start it again."""
    async with asyncio.timeout(PATIENCE_S), thence.connect(url(running.topology, "s1"), "writer") as writer:
        for name in READERS:
            await writer.known(name)
        for number in range(first, first + count):
            if number - first == kill_after:
                _again(running, "s1")  # What was not accepted the client sends again, and nobody gets it twice.
            await writer.room()
            writer.post(READERS[number % 2], body(number))
        await writer.flush()


def _peer(running: Fleet) -> dict[str, Any]:
    """Return what s1 says of s2, when it is up."""
    return asyncio.run(_until_peer(running, lambda _: True))


async def _until_peer(running: Fleet, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until something holds of what s1 says of s2."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                (peer,) = (await ask_status(url(running.topology, "s1")))["neighbours"]
                if holds(peer):
                    return dict(peer)
            except (OSError, TimeoutError):
                pass  # It is just starting.
            await asyncio.sleep(0.01)


async def _read(server: str, count: int) -> dict[str, list[int]]:
    """Return the numbers that each reader gets."""
    got: dict[str, list[int]] = {}
    for name in READERS:
        async with asyncio.timeout(PATIENCE_S), thence.connect(server, name) as reader:
            got[name] = [int((await reader.receive()).body[:6]) for _ in range(count // len(READERS))]
            reader.done()
    return got


async def test_files_that_may_hold_no_more_push_back_and_everything_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "WINDOW", 64)
    topology = flat("s1", "s2")
    limits: dict[str, Any] = {"spill_after_bytes": 20_000, "max_store_bytes": 2_000_000}
    member = MemberOptions(max_queued=120)
    async with servers(topology, tmp_path, member=member, **limits) as running:
        await _introduced(url(topology, "s2"))
        async with thence.connect(url(topology, "s1"), "writer") as writer:
            for name in READERS:
                await writer.known(name)
            await running["s2"].stop(drain_s=0)
            writing = asyncio.create_task(_write(writer, MESSAGES))
            outgoing = running["s1"].node.backlog.outgoing
            assert outgoing is not None
            await until(lambda: "bytes of frames are spilled in" in outgoing.full)
            await until(lambda: running["s1"].node.member.attachment.in_memory >= member.max_queued)
            assert not writing.done()
            assert not running["s1"].node.directory.mailboxes.full, "deliveries go on"
            running["s2"] = await started(topology, "s2", tmp_path)
            await writing
            got = await _read(url(topology, "s2"), MESSAGES)
            assert got == {name: list(range(at, MESSAGES, 2)) for at, name in enumerate(READERS)}


async def _write(writer: thence.Client, count: int) -> None:
    for number in range(count):
        await writer.room()
        writer.post(READERS[number % 2], body(number))
    await writer.flush()
