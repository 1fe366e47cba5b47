"""``thence up``: ports for servers that have none, and what is written before they start."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.servers.running import started
from tests.unit.cli import refusal
from thence.cli.servers import up
from thence.cli.servers.up import free_addresses, with_addresses
from thence.core.topology.toml import parse
from thence.core.wire.records import Changed
from thence.errors import ConfigError, StoreFull
from thence.node import budget
from thence.node.budget import MIB
from thence.node.offline.inspection import check_stores
from thence.storage import journal
from thence.storage.store import Store


def test_a_port_is_kept_for_its_server_and_from_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "RESERVED_PORTS", 3)
    host, port = free_addresses(1)[0].split(":")
    with pytest.raises(OSError, match="Address already in use"), socket.socket() as other:
        other.bind((host, int(port)))
    with socket.create_server((host, int(port))), socket.create_connection((host, int(port))):
        pass
    assert len(set(free_addresses(3))) == 3
    assert len(up.reserved_sockets) == 3
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Of the connection above something is left.
        other.bind((host, int(port)))
        other.listen()


ONE = 'name = "one"\n[domains.D]\nmembers = ["s1"]\n'
CHANGED = ONE.replace('"s1"', '"s1", "s2"')
NEXT = CHANGED.replace("[", "version = 2\n[", 1)


def made(folder: Path) -> str:
    """Make what a server of ``ONE`` leaves behind; return the topology with its address."""
    topology = with_addresses(parse(ONE), folder / "topology.toml")

    async def main() -> None:
        server = await started(topology, "s1", folder)
        await server.stop(drain_s=0)

    asyncio.run(main())
    return (folder / "topology.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (ONE.replace("one", "other"), "is the store of 'one/s1', not of 'other/s1'"),
        (CHANGED, "a changed topology needs the next version, and thence topology apply"),
        (NEXT, "the store of 's1' is at version 1: start it with that one, and then use thence topology apply"),
    ],
    ids=["another fabric", "changed", "not applied"],
)
def test_a_topology_that_does_not_fit_leaves_the_one_that_does(text: str, why: str, tmp_path: Path) -> None:
    before = made(tmp_path / "data")
    (tmp_path / "new.toml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(up.Fleet, "start", lambda _: pytest.fail("it was started"))
        assert why in refusal("up", tmp_path / "new.toml", "--data", tmp_path / "data")
    assert (tmp_path / "data" / "topology.toml").read_text(encoding="utf-8") == before
    check_stores(parse(ONE), tmp_path / "data")


def test_a_topology_fits_stores_that_have_changed_to_it(tmp_path: Path) -> None:
    made(tmp_path)
    store = Store.open(tmp_path / "s1", "one/s1")
    store.append(journal.encode_entry([Changed("holding", 1, NEXT), Changed("switched", 1)]))
    store.commit()
    store.close()
    check_stores(parse(NEXT), tmp_path)
    check_stores(parse(ONE), tmp_path)  # Which is what the server says, too: its store counts.
    with pytest.raises(ConfigError, match="needs the next version"):
        check_stores(parse(NEXT.replace('"s2"', '"s2", "s3"')), tmp_path)


def test_the_topology_is_kept_whole_if_there_is_no_room_for_the_next(tmp_path: Path) -> None:
    before = made(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", no_room)
        with pytest.raises(StoreFull):
            with_addresses(parse(CHANGED), tmp_path / "topology.toml")
    assert (tmp_path / "topology.toml").read_text(encoding="utf-8") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s1", "topology.toml"]


def no_room(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def given_memory(text: str, folder: Path, *options: str) -> list[int]:
    """Return what each server of a fabric is given, in bytes, when all are started; 0: nothing is said of it."""
    said: list[list[str]] = []

    def start(arguments: list[str], **_: object) -> SimpleNamespace:
        said.append(arguments)
        return SimpleNamespace(stderr=None)

    topology = with_addresses(parse(text), folder / "topology.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        up.Fleet(topology, folder, options=options).start()
    return [int(words[words.index("--memory") + 1]) if "--memory" in words else 0 for words in said]


def test_servers_on_one_machine_divide_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = ONE.replace('"s1"', '"s1", "s2", "s3", "s4"')
    there = 64 * 1024 * MIB
    for module in (budget, up):
        monkeypatch.setattr(module, "machine_memory", lambda: there)
    assert given_memory(ONE, tmp_path / "one") == [there // 2]
    assert given_memory(several, tmp_path / "four") == [there // 8] * 4
    assert given_memory(several, tmp_path / "told", "--memory", "5") == [5] * 4


def test_servers_get_the_least_that_they_need_where_a_part_is_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = 4096 * MIB
    for module in (budget, up):
        monkeypatch.setattr(module, "machine_memory", lambda: there)
    (least,) = set(given_memory(ONE.replace('"s1"', ", ".join(f'"s{number}"' for number in range(9))), tmp_path / "nine"))
    assert there // 18 < least < there
    there = 256 * MIB
    assert given_memory(ONE, tmp_path / "small") == [0], "as without: more than there is would be refused"


@pytest.mark.parametrize("name", ["topology.toml", "topology.toml.tmp"])
def test_no_server_is_called_as_a_file_of_the_command(tmp_path: Path, name: str) -> None:
    topology = parse(f'name = "f"\n[domains.D]\nmembers = ["{name}", "s2"]\n')
    with pytest.raises(ConfigError, match="a server cannot be called"):
        with_addresses(topology, tmp_path / "data" / "topology.toml")
    assert not list(tmp_path.iterdir())
