"""The memory of a server: limits that fit together, or an error that says why not; and pools in which nobody starves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.net.test_framing import Wire, framed
from tests.unit.node.test_node import alone
from thence.agents.reactions import HELD_TIMES
from thence.core.failover.early_payloads import MAX_AHEAD_KEPT_BYTES
from thence.core.member.limits import MAX_ECHO_BYTES, MAX_QUEUED_BYTES, hard_bytes
from thence.core.ordering.pending import held_bytes
from thence.core.stability.stable import MAX_UNSTABLE_BYTES
from thence.core.topology.toml import parse
from thence.core.transport.window import WINDOW_BYTES
from thence.core.wire.messages import MAX_BODY_BYTES
from thence.errors import ConfigError
from thence.net.byte_pool import ROOM_TIMEOUT_S, SHARE_OF_POOL, BytePool
from thence.net.framing import MAX_CLIENT_FRAME_BYTES, READ_BYTES
from thence.node import budget
from thence.node.budget import MIB, NO_BUDGET, FabricShape, Needs, machine_memory, parse_memory, parse_size, parts_of, share_out
from thence.node.node import Node
from thence.node.options import NodeOptions, member_options, shape_of
from thence.storage.mailbox import MAX_MAILBOXES_BYTES

SHAPE = FabricShape(
    servers=5, domains=2, links=1, peers=4, fifo_peers=2, ring_peers=3, rings=1, returned_to=2, copied_from=3, copying=1
)._replace(replica=True, stability=True, safe=True)

NEEDS = Needs(
    connections=10_000,
    tls_bytes=320 * 1024,
    stranger_bytes=100 * MIB,
    peers=3,
    shape=SHAPE,
    clients=1_000_000,
    subscriptions=1_000_000,
    durable=True,
    buffered_bytes=128 * MIB,
    spill_after_bytes=None,
    agents=True,
)

KEPT_BYTES = MAX_UNSTABLE_BYTES // 6 + 3 * MAX_BODY_BYTES
"""Of each of six processes."""


def cost(limits: budget.MemoryLimits, needs: Needs) -> int:
    """Return what limits cost at most, counted once more from what they are."""
    copies, shape, options = (3 if needs.durable else 1), needs.shape, member_options(NodeOptions(), limits)
    held, queued = held_bytes(options.max_held), hard_bytes(options)
    return (
        budget.PROCESS_BYTES
        + needs.stranger_bytes
        + needs.buffered_bytes
        + limits.connections * (needs.tls_bytes + budget.CONNECTION_BYTES)
        + limits.clients_pool_bytes
        + (limits.peers_pool_bytes if needs.peers else 0)
        + (1 + copies) * limits.mailboxes_bytes
        + copies * (limits.unconsumed_bytes + needs.agents * ((HELD_TIMES - 1) * limits.unconsumed_bytes + MAX_BODY_BYTES))
        + copies * (limits.states_bytes if needs.agents else 0)
        + copies * (limits.clients * budget.CLIENT_BYTES + limits.subscriptions * budget.SUBSCRIPTION_BYTES)
        + copies * shape.servers * (limits.names_bytes + limits.topics_bytes)
        + copies * ((shape.domains + shape.links) * queued + shape.peers * MAX_BODY_BYTES)
        + copies * 2 * shape.rings * (queued + (shape.domains - 1) * held + shape.links * options.max_early_bytes)
        + copies * 2 * (shape.ring_peers + 2 * shape.rings) * MAX_BODY_BYTES
        + copies * shape.returned_to * (queued + held + MAX_ECHO_BYTES + 3 * MAX_BODY_BYTES)
        + copies * (shape.domains * queued if shape.replica else 0)
        + copies * shape.domains * held
        + copies * shape.safe * (1 + shape.servers) * KEPT_BYTES
        + copies * shape.links * options.max_early_bytes
        + copies * (shape.copying * options.max_copies_bytes + shape.copied_from * (WINDOW_BYTES + MAX_BODY_BYTES))
        + copies * shape.stability * (shape.domains + shape.links) * shape.servers * KEPT_BYTES
        + shape.peers * MAX_AHEAD_KEPT_BYTES
        + shape.fifo_peers * (WINDOW_BYTES + MAX_BODY_BYTES)
    )


UNKEPT = NEEDS._replace(shape=SHAPE._replace(stability=False))


@pytest.mark.parametrize(
    ("gib", "needs"),
    [
        *[
            pytest.param(gib, needs, id=f"{name}, {gib}")
            for gib in (8, 12, 20, 40, 200)
            for name, needs in {
                "all": UNKEPT,
                "in memory": UNKEPT._replace(durable=False, tls_bytes=0),
                "alone": NEEDS._replace(peers=0, shape=FabricShape(), agents=False),
            }.items()
        ],
        *[pytest.param(gib, NEEDS, id=f"stability, {gib}") for gib in (12, 20, 40, 200)],
    ],
)
def test_the_product_of_all_limits_fits(gib: int, needs: Needs) -> None:
    memory = gib * 1024 * MIB
    limits = share_out(memory, needs)
    assert sum(size for _, size in limits.parts) <= memory
    assert cost(limits, needs) <= memory
    assert limits.clients_pool_bytes >= 2 * MAX_CLIENT_FRAME_BYTES, "a frame as long as can be comes through"
    if gib == 200:
        assert (limits.mailboxes_bytes, limits.queued_bytes, limits.connections) == (
            MAX_MAILBOXES_BYTES,
            MAX_QUEUED_BYTES,
            10_000,
        )


def test_what_cannot_fit_is_refused_with_what_each_part_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--memory 256 MiB: the limits cannot fit, they need [\d,]+ MiB at least: process 128"):
        Node(alone(), "s1", NodeOptions(data=tmp_path, memory=256 * MIB))
    assert not list(tmp_path.iterdir()), "nothing was begun"
    assert all(part.least <= part.most for part in parts_of(NEEDS))


FABRIC = """
name = "all"
[domains.S]
members = ["s1", "s2", "s3"]
ordering = "sequenced"
[domains.R]
members = ["s1", "r1", "r2", "r3"]
ordering = {name = "flood", links = "ring"}
[domains.C]
members = ["s1", "c1"]
ordering = "vector"
delivery = "safe"
[domains.D]
members = ["d1", "d2"]
[[links]]
between = ["S", "D"]
relays = [["s1", "d1"], ["s2", "d2"]]
"""


def test_a_server_is_asked_to_bear_what_its_place_in_the_fabric_brings_with_it() -> None:
    topology = parse(FABRIC)
    assert shape_of(topology, "s1") == FabricShape(
        servers=8, domains=3, links=1, peers=9, fifo_peers=3, ring_peers=3, rings=1, returned_to=2, safe=True, stability=True
    )
    assert shape_of(topology, "s2") == FabricShape(servers=8, domains=1, links=1, peers=5, stability=True)


def test_every_limit_of_what_others_can_fill_is_a_part_with_its_name() -> None:
    named = " ".join(part.name for part in parts_of(NEEDS))
    for limit in (
        *("MAX_NAMES_BYTES", "MAX_TOPICS_BYTES", "MAX_COPIES_BYTES", "MAX_EARLY_BYTES"),
        *("MAX_HELD_BYTES", "MAX_ECHO_BYTES", "MAX_QUEUED_BYTES_HARD", "MAX_BODY_BYTES", "WINDOW_BYTES"),
        *("MAX_UNCONSUMED_BYTES", "MAX_UNSTABLE_BYTES", "ON_WAY_SHARE", "MAX_CLOSED"),
    ):
        assert re.search(rf"\b{limit}\b", named), limit
    for part in parts_of(NEEDS):
        assert part.least > 0, part.name


def test_the_page_lists_every_part_of_the_memory() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "servers.md").read_text(encoding="utf-8")
    table = page.partition("| part of the memory |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [line.split(" | ")[0].removeprefix("| ").removesuffix(" | ") for line in table] == [
        part.name for part in parts_of(NEEDS)
    ]


def test_what_is_too_little_is_named_as_it_was_given_and_the_least_that_is_named_is_enough() -> None:
    with pytest.raises(ConfigError, match=r"^--memory 1 bytes: the limits cannot fit") as refused:
        share_out(1, NEEDS)
    enough = re.search(r"Give --memory (\d+M) or more$", str(refused.value))
    assert enough
    assert share_out(parse_size(enough[1]), NEEDS).memory == parse_size(enough[1])


async def test_a_node_works_within_its_budget_and_without_one_as_ever(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path / "small", memory=1024 * MIB))
    assert node.memory.limits.memory == 1024 * MIB
    assert node.directory.mailboxes.most_bytes == node.memory.limits.mailboxes_bytes < MAX_MAILBOXES_BYTES
    assert node.member.options.max_queued_bytes == node.memory.limits.queued_bytes < MAX_QUEUED_BYTES
    assert "MAX_CLIENTS is" in _crowded(node)
    await node.close()
    other = Node(alone(), "s1", NodeOptions(data=tmp_path / "other"))
    assert (other.memory.limits, other.directory.mailboxes.most_bytes) == (NO_BUDGET, MAX_MAILBOXES_BYTES)
    await other.close()
    default = Node(alone(), "s1", NodeOptions(memory=0))
    assert 0 < default.memory.limits.memory <= max(machine_memory(), 1024 * MIB)
    await default.close()


def _crowded(node: Node) -> str:
    node.directory.joining = dict.fromkeys(map(str, range(node.memory.limits.clients)))
    objection = node.directory.objection("one more")
    node.directory.joining = {}
    return objection


@pytest.mark.parametrize(
    ("text", "size"),
    [("2G", 2**31), ("512M", 2**29), ("1.5GiB", 3 * 2**29), ("64kb", 65536), ("123456", 123456), ("1T", 2**40)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "much", "nan", "1e999"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/memory.max": "1048576\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, 1048576),
        ("5:cpu,memory:/c\n", {"sys/fs/cgroup/memory/c/memory.limit_in_bytes": "2097152\n"}, 2097152),
        ("nonsense\n", {}, None),
        (None, {}, None),
    ],
    ids=["version 2", "version 1", "nonsense", "nothing"],
)
def test_the_limit_of_a_container_counts(group: str | None, files: dict[str, str], expected: int | None, tmp_path: Path) -> None:
    for name, text in {**files, **({} if group is None else {"proc/self/cgroup": group})}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = machine_memory(tmp_path)
    assert found == expected if expected is not None else found > 2**28


# --- pools -----------------------------------------------------------------------------------------------------------


def test_nobody_holds_more_than_its_share_of_a_pool_that_others_need() -> None:
    pool = BytePool(1_600)
    assert pool.has_room(0, 800)
    pool.used = 800
    assert not pool.has_room(800, 1)
    assert pool.has_room(0, 1_600 // SHARE_OF_POOL)
    pool.used = 1_600
    assert not pool.has_room(0, 1)


def test_who_holds_most_is_shown_out_when_somebody_waits_for_long() -> None:
    pool, shown = BytePool(100), list[str]()
    pool.used = 100

    def wait() -> None:
        if not pool.has_room(0):
            pool.wait(wait)

    wait()

    def most() -> Any:
        def show_out(why: str) -> None:
            shown.append(why)
            pool.used = 10

        return show_out

    for now in range(int(ROOM_TIMEOUT_S) + 1):
        pool.look(float(now), most)
        assert not shown
    pool.look(ROOM_TIMEOUT_S + 1.0, most)
    assert shown == ["the limit of all is 100, 100 are used"]
    pool.look(ROOM_TIMEOUT_S + 2.0, most)
    assert (pool.waiting, pool.shown_out) == (0, 1)


def is_paused(wire: Wire) -> bool:
    return wire.connection.paused


async def test_a_frame_for_which_there_is_no_memory_waits_and_comes_whole_when_there_is() -> None:
    payload = bytes(range(256)) * 4_000
    wire, pool = Wire(), BytePool(1024 * 1024)
    connection = wire.connection
    connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    connection.holding.enter(pool)
    pool.used += 900_000  # Of others.
    frame = framed(payload)
    at = 0
    while wire.transport.reading and at < len(frame):
        taken = min(len(connection.get_buffer(1)), len(frame) - at)
        wire.receive(frame[at : at + taken])
        at += taken
    assert is_paused(wire)
    assert pool.used <= pool.limit
    pool.look(0.0, lambda: None)
    await asyncio.sleep(0)
    assert is_paused(wire)
    pool.used -= 900_000
    pool.limit *= 4
    pool.look(1.0, lambda: None)
    await asyncio.sleep(0)
    assert not is_paused(wire)
    wire.receive(frame[at:])
    assert wire.frames == [payload]
    connection.connection_lost(None)
    assert (pool.used, connection.holding.bytes, len(connection.get_buffer(1))) == (0, 0, READ_BYTES)


@pytest.mark.parametrize("text", ["1000000T", "9" * 40 + "G"])
def test_more_memory_than_there_is_cannot_be_promised(text: str) -> None:
    with pytest.raises(ConfigError, match=f"--memory {text}: there are [0-9,]+ MiB here; give that or less"):
        parse_memory(text)
    assert parse_memory("1M") == MIB
