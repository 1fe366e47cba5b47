"""A client is away for long while others go on: real servers, killed meanwhile; it comes back and gets everything, in order."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, flat, fleet, servers, until, url, wait_for_server
from tests.unit.cli import run as run_command
from thence.client.client import ask_status
from thence.errors import Refusal
from thence.node.driver import commits
from thence.storage import mailbox as mailbox_module
from thence.storage.spill import list_spill

MESSAGES = 6_000
BODY_BYTES = 1_000
IN_MEMORY_BYTES = 200_000
SPILLING = ("--backlog", "spill", "--spill-after-bytes", str(IN_MEMORY_BYTES))


def body(number: int) -> bytes:
    return b"%06d" % number + bytes(BODY_BYTES)


def test_a_client_that_is_away_gets_everything_once_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    with fleet(topology, tmp_path, tmp_path / "trace", options=SPILLING) as running:
        topology = running.topology
        asyncio.run(_absent(topology.addresses["s2"]))
        for part in range(3):
            asyncio.run(_sent(topology.addresses, part * MESSAGES // 3, MESSAGES // 3))
            running.kill("s2")
            running.start_one("s2")
            wait_for_server(topology, "s2")
        asyncio.run(_until_waiting(topology.addresses["s2"], MESSAGES))  # What was accepted at s1 is on its way.
        status = asyncio.run(ask_status(url(topology, "s2")))
        (reader,) = [client for client in status["clients"] if client["name"] == "reader"]
        assert reader["waiting_letters"] == MESSAGES
        assert reader["spilled_letters"] > MESSAGES // 2
        assert status["backlog"]["mode"] == "spill"
        assert status["backlog"]["spilled_bytes"] > MESSAGES // 2 * BODY_BYTES
        assert "bytes in files" in run_command("status", url(topology, "s2")).out
        got = asyncio.run(_read(topology.addresses["s2"], MESSAGES // 2))
        running.kill("s2")
        running.start_one("s2")
        wait_for_server(topology, "s2")
        got += asyncio.run(_read(topology.addresses["s2"], MESSAGES - len(got)))
        assert got == list(range(MESSAGES))
    assert list_spill(tmp_path / "s2") == {}, "with the last snapshot what was read is gone"
    verified = run_command("store", "verify", tmp_path / "s2")
    assert (verified.code, verified.out.split(":")[0]) == (0, "whole")


async def _absent(address: str) -> None:
    """Be there once, under the name of reader."""
    async with thence.connect(f"thence://{address}", "reader"):
        pass


async def _sent(addresses: dict[str, str], first: int, count: int) -> None:
    """Send messages to the reader who is away, and others there and back between two who are not."""
    async with asyncio.timeout(PATIENCE_S):
        async with (
            thence.connect(f"thence://{addresses['s1']}", "writer") as writer,
            thence.connect(f"thence://{addresses['s2']}", "other") as other,
        ):
            await writer.known("reader")
            await writer.known("other")
            for number in range(first, first + count):
                await writer.room()
                writer.post("reader", body(number))
                if number % 500 == 0:
                    await writer.send("other", b"there?")
                    await other.receive(PATIENCE_S)
                    other.done()
            await writer.flush()


async def _read(address: str, count: int) -> list[int]:
    """Return the numbers of the next messages for the reader, and go away again when it is known that it has them."""
    async with asyncio.timeout(PATIENCE_S), thence.connect(f"thence://{address}", "reader") as reader:
        before = await _waiting(address)
        got = [int((await reader.receive()).body[:6]) for _ in range(count)]
        reader.done()
        await _until_waiting(address, before - count)  # It is acknowledged a little later.
        return got


async def _until_waiting(address: str, count: int) -> None:
    """Wait until so many messages wait for the reader."""
    async with asyncio.timeout(PATIENCE_S):
        while await _waiting(address) != count:  # noqa: ASYNC110  What is waited for tells nobody.
            await asyncio.sleep(0.01)


async def _waiting(address: str) -> int:
    """Return how many messages wait for the reader."""
    status = await ask_status(f"thence://{address}")
    (waiting,) = [client["waiting_letters"] for client in status["clients"] if client["name"] == "reader"]
    return int(waiting)


async def test_a_disk_that_may_hold_no_more_pushes_back_and_everything_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "FULL_DISK_RETRY_S", 0.05)  # After ten refusals the log is made short.
    topology = flat("s1")
    async with servers(topology, tmp_path, spill_after_bytes=50_000, max_store_bytes=2_000_000) as running:
        node = running["s1"].node
        await _absent(topology.addresses["s1"])
        async with thence.connect(url(topology, "s1"), "writer") as writer:
            await writer.known("reader")
            writing = asyncio.create_task(_write(writer, 4_000))
            await until(lambda: "reader" in node.directory.mailboxes.closed)
            stalled = (await ask_status(url(topology, "s1")))["stalled"]
            assert stalled.startswith("the mailbox of 'reader' is full: ")
            assert "bytes are spilled in" in stalled
            async with thence.connect(url(topology, "s1"), "reader") as reader:
                for number in range(4_000):
                    assert (await reader.receive(PATIENCE_S)).body == body(number)
                reader.done()
                await writing
                await until(lambda: node.directory.state.mailboxes["reader"].acknowledged == 4_000)
        await until(lambda: not node.directory.mailboxes.closed)


async def _write(writer: thence.Client, count: int) -> None:
    for number in range(count):
        await writer.room()
        writer.post("reader", body(number))
    await writer.flush()


async def test_a_client_whose_messages_are_damaged_is_told_where_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "SPILL_AFTER_MESSAGES", 10)
    monkeypatch.setattr(mailbox_module, "BLOCK_BATCHES", 4)
    topology = flat("s1")
    async with servers(topology, tmp_path, spill_after_bytes=1_000_000):
        await _absent(topology.addresses["s1"])
        async with thence.connect(url(topology, "s1"), "writer") as writer:
            for number in range(100):
                await writer.send("reader", body(number))
            (path,) = list_spill(tmp_path / "s1").values()
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            with pytest.raises(Refusal, match=rf"the messages for 'reader' cannot be read: {path}, offset \d+: "):
                await _read(topology.addresses["s1"], 100)
            await writer.send("writer", b"still there")
            assert (await writer.receive(PATIENCE_S)).body == b"still there"


def test_what_keeps_nothing_on_disk_cannot_spill(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('name = "one"\n[domains.D]\nmembers = ["s1"]\n[servers.s1]\naddress = "127.0.0.1:1"\n', encoding="utf-8")
    ended = run_command("serve", file, "--server", "s1", "--durability", "memory", "--backlog", "spill")
    assert ended.code == 2
    assert "--backlog spill keeps messages in files of the store: it needs --data DIR" in ended.err
