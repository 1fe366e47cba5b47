"""A fabric that is upgraded one server after the other, under load, and versions that have no protocol in common."""

from __future__ import annotations

import asyncio
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, flat, servers, until, url, wait_for_server
from tests.support.servers.server_processes import kill_processes, last_words, start_process
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import Refusal
from thence.net.protocol import PROTOCOL
from thence.net.security import login

NOW = ("-m", "thence.cli.main")
NEXT = ("-m", "tests.support.servers.next_server", str(PROTOCOL), str(PROTOCOL + 1))
FAR = ("-m", "tests.support.servers.next_server", str(PROTOCOL + 1), str(PROTOCOL + 2))


class Programs:
    """Servers as processes, each of a version."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.topology, self.folder = topology, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "logs").mkdir()
        (folder / "topology.toml").write_text(write(topology), encoding="utf-8")

    def start(self, name: str, version: tuple[str, ...]) -> None:
        serve = ("serve", str(self.folder / "topology.toml"), "--server", name, "--data", str(self.folder / name))
        self.running[name] = start_process(self.folder, name, [*version, *serve])

    def upgrade(self, name: str, version: tuple[str, ...]) -> None:
        """Stop a server in peace, and start it as another version."""
        self.running[name].terminate()
        assert self.running[name].wait(PATIENCE_S) == 0, last_words(self.folder, name)
        self.start(name, version)
        wait_for_server(self.topology, name)

    def protocols(self, name: str) -> dict[str, int]:
        """Return which protocol a server speaks with each peer."""
        status = asyncio.run(ask_status(url(self.topology, name)))
        return {peer["name"]: peer["protocol"] for peer in status["neighbours"]}


@contextmanager
def programs(topology: Topology, folder: Path, version: tuple[str, ...] = NOW) -> Iterator[Programs]:
    made = Programs(topology, folder)
    try:
        for name in topology.processes:
            made.start(name, version)
        for name in topology.processes:
            wait_for_server(topology, name)
        yield made
    finally:
        kill_processes(made.running.values())


def test_a_fabric_is_upgraded_one_server_after_the_other_under_load(tmp_path: Path) -> None:
    topology = flat("s1", "s2", "s3", ordering="matrix")
    upgraded = threading.Event()
    came: list[int] = []

    async def work() -> int:
        """Send numbers from s1 to s3 while the servers are replaced below; return how many were accepted."""
        sent = 0
        async with thence.connect(url(topology, "s3"), "bob") as bob, thence.connect(url(topology, "s1"), "ann") as ann:
            bob.on_message(lambda message: came.append(message.value(int)))
            await ann.known("bob")
            while not upgraded.is_set():
                await ann.send("bob", sent)
                sent += 1
            await until(lambda: len(came) == sent)
        return sent

    # The servers are started by this thread: they are killed when the one ends that started them.
    with programs(topology, tmp_path) as fabric, ThreadPoolExecutor(1) as beside:
        working = beside.submit(lambda: asyncio.run(work()))
        try:
            for at, name in enumerate(order := ("s2", "s1", "s3")):
                fabric.upgrade(name, NEXT)
                later = dict.fromkeys(order[:at], PROTOCOL + 1)
                assert fabric.protocols(name) == dict.fromkeys(order[at + 1 :], PROTOCOL) | later
        finally:
            upgraded.set()
        sent = working.result(PATIENCE_S)
        assert fabric.protocols("s1") == {"s2": PROTOCOL + 1, "s3": PROTOCOL + 1}
    assert sent > 3
    assert came == list(range(sent))


def test_a_downgrade_goes_the_same_way_back(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    with programs(topology, tmp_path, NEXT) as fabric:
        assert fabric.protocols("s1") == {"s2": PROTOCOL + 1}
        fabric.upgrade("s2", NOW)
        assert fabric.protocols("s1") == {"s2": PROTOCOL}


async def test_versions_without_a_protocol_in_common_say_so(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    made = Programs(topology, tmp_path)
    async with servers(topology.at(topology.addresses), None) as running:
        await running["s2"].stop(drain_s=0)
        made.start("s2", FAR)
        try:
            peer = running["s1"].node.peers.peers["s2"]
            await until(lambda: "were offered" in peer.trouble)
            spoken = f"protocols {PROTOCOL} to {PROTOCOL} were offered; this server speaks {PROTOCOL + 1} to {PROTOCOL + 2}"
            assert spoken in peer.trouble
        finally:
            kill_processes(made.running.values())


async def test_a_client_of_a_far_version_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "PROTOCOL", PROTOCOL + 5)
    monkeypatch.setattr(login, "OLDEST_PROTOCOL", PROTOCOL + 4)
    topology = flat("s1")
    offered = f"protocols {PROTOCOL + 4} to {PROTOCOL + 5} were offered; this server speaks"
    async with servers(topology):
        with pytest.raises(Refusal, match=re.escape(offered)):
            async with thence.connect(url(topology, "s1"), "ann"):
                pass
