"""A node whose clients are away for long: memory and snapshots stay small, others are served, and a kill changes nothing."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.crashes.spills import kept_in, small_blocks
from tests.support.stores import without_waiting
from tests.unit.agents.test_engine import Home as AgentHome
from tests.unit.agents.test_engine import Log, until
from tests.unit.node.sessions.test_session import PlayedClient
from tests.unit.node.test_node import alone, durable, joined, killed
from thence.errors import Busy, StorageError
from thence.node import backlog as backlog_module
from thence.node.backlog import share_out
from thence.node.node import Node
from thence.node.offline.inspection import examine, read_spilled
from thence.node.options import NodeOptions
from thence.node.sessions.session import Session
from thence.storage import mailbox as mailbox_module
from thence.storage import spill as spill_module
from thence.storage import store
from thence.storage.mailbox import SPILL_AFTER_MESSAGES, Batch, MailboxRoom
from thence.storage.spill import list_spill

IN_MEMORY_BYTES = 1_000_000


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_blocks(), without_waiting():
        yield


def spilling(data: Path, max_store_bytes: int | None = None) -> Node:
    return Node(alone(), "s1", NodeOptions(data=data, spill_after_bytes=IN_MEMORY_BYTES, max_store_bytes=max_store_bytes))


async def sent(node: Node, to: str, first: int, last: int, size: int = 0) -> None:
    """Let ann send messages that say their numbers."""
    for number in range(first, last + 1):
        mailbox = node.directory.state.mailboxes["ann"]
        assert node.intake.submit(Batch("ann", mailbox.sent + 1, 1, (to,), None, b"%d" % number + bytes(size)))
    await durable(node)


def held_by(folder: Path) -> int:
    """Return how many bytes the files in a folder have."""
    return sum(path.stat().st_size for path in folder.iterdir())


def kept(node: Node, client: str) -> list[int]:
    mailbox = node.directory.state.mailboxes[client]
    return [int(bytes(batch.messages).strip(b"\0")) for _, batch in kept_in(mailbox, node.backlog.spill, client)]


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


async def acknowledged(node: Node, client: str, upto: int) -> None:
    node.acknowledgements.acknowledge(client, upto)
    await durable(node)


async def test_a_client_that_is_away_stops_nobody_and_gets_everything_after_a_kill(tmp_path: Path) -> None:
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 100)
    await sent(node, "ann", 1, 3)
    assert (node.directory.mailboxes.full, node.dispatch.held, kept(node, "ann")) == ("", 0, [1, 2, 3])
    killed(node)
    again = spilling(tmp_path)
    assert (kept(again, "bob"), kept(again, "ann")) == (numbers(1, 100), [1, 2, 3])
    await again.driver.commits.compact()
    await sent(again, "bob", 101, 120)
    killed(again)
    third = spilling(tmp_path)
    assert kept(third, "bob") == numbers(1, 120)
    await third.close()
    assert examine(tmp_path).damage == []


async def test_mailboxes_spill_earlier_when_all_of_them_have_much_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 100_000)
    node = spilling(tmp_path)
    others = [f"other {number}" for number in range(20)]
    for name in ("ann", *others):
        await joined(node, name)
    for name in others:
        await sent(node, name, 1, 10, size=1_000)
    counted = sum(mailbox.bytes - mailbox.spilled_bytes for mailbox in node.directory.state.mailboxes.values())
    assert node.directory.mailboxes.in_memory == counted < 100_000
    assert node.directory.state.mailboxes["other 19"].spilled_bytes > 0, "of its own room it has used little"
    killed(node)
    again = spilling(tmp_path)
    assert (again.directory.mailboxes.in_memory, again.directory.mailboxes.full) == (counted, "")
    for name in others:
        assert kept(again, name) == numbers(1, 10)
        await acknowledged(again, name, 10)
    assert again.directory.mailboxes.in_memory == 0
    await again.close()


async def test_a_snapshot_that_is_too_large_is_not_made_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "MAX_SNAPSHOT_BYTES", 5_000)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "ann")
    await sent(node, "ann", 1, 10, size=1_000)
    node.driver.commits.compact_soon()
    await durable(node)
    await until(lambda: "the log is not made short: a snapshot of" in caplog.text)
    await sent(node, "ann", 11, 12, size=1_000)
    await node.close()
    again = Node(alone(), "s1", NodeOptions(data=tmp_path))
    assert kept(again, "ann") == numbers(1, 12)
    await acknowledged(again, "ann", 11)
    await again.close()
    assert examine(tmp_path).snapshot, "now it is small enough"
    third = Node(alone(), "s1", NodeOptions(data=tmp_path))
    assert kept(third, "ann") == [12]
    await third.close()


async def test_files_go_with_the_first_snapshot_that_does_not_need_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_module, "RELEASE_WITHIN_S", 0.0)
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 100)
    await node.driver.commits.compact()
    await acknowledged(node, "bob", 100)
    assert len(list_spill(tmp_path)) == 1
    node.look_after_backlog()
    await durable(node)
    assert list_spill(tmp_path) == {}
    killed(node)
    again = spilling(tmp_path)
    assert (kept(again, "bob"), again.directory.state.mailboxes["bob"].acknowledged) == ([], 100)
    await again.close()


async def test_much_that_is_done_with_goes_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill_module, "RELEASE_BYTES", 1_000)
    monkeypatch.setattr(backlog_module, "RELEASE_AGAIN_S", 0.0)
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 100)
    await acknowledged(node, "bob", 100)
    assert list_spill(tmp_path) == {}
    await node.close()


async def test_a_small_store_pushes_back_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    node = spilling(tmp_path, max_store_bytes=400_000)
    for name in ("ann", "bob"):
        await joined(node, name)
    last = 0
    while "bob" not in node.directory.mailboxes.closed:
        last += 1
        await sent(node, "bob", last, last, size=1_000)
    with pytest.raises(Busy, match="the mailbox of 'bob' at 's1' is full"):
        await sent(node, "bob", last + 1, last + 1)
    assert 120 < last < 250, "four fifths of what there is room for"
    assert held_by(tmp_path) <= 400_000
    client = PlayedClient()
    Session(node, "bob", client).feed.acknowledge(0, 16_000)
    assert [what[1] for what in client.told] == numbers(1, last)
    await acknowledged(node, "bob", last)
    node.look_after_backlog()
    await durable(node)
    node.look_after_backlog()
    assert (list(node.directory.mailboxes.closed), node.driver.full) == ([], "")
    for number in range(last + 1, last + 101):
        await sent(node, "bob", number, number, size=1_000)
    assert kept(node, "bob") == numbers(last + 1, last + 100)
    await node.close()


async def test_a_node_that_comes_back_over_its_limit_has_lost_nothing(tmp_path: Path) -> None:
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 100)
    killed(node)
    again = spilling(tmp_path, max_store_bytes=2_000)
    assert (list(again.directory.mailboxes.closed), kept(again, "bob")) == (["bob"], numbers(1, 100))
    killed(again)
    third = spilling(tmp_path)
    assert (list(third.directory.mailboxes.closed), kept(third, "bob")) == ([], numbers(1, 100))
    await third.close()


async def test_a_node_goes_from_one_way_to_the_other_and_back(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 50)
    assert list_spill(tmp_path) == {}
    await node.close()
    node = spilling(tmp_path)
    await sent(node, "bob", 51, 100)
    assert len(list_spill(tmp_path)) == 1
    await node.close()
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await sent(node, "bob", 101, 150)
    assert kept(node, "bob") == numbers(1, 150)
    await acknowledged(node, "bob", 120)
    await node.close()
    assert list_spill(tmp_path) == {}
    node = spilling(tmp_path)
    assert kept(node, "bob") == numbers(121, 150)
    await node.close()


async def test_a_session_hands_over_each_message_once_also_where_some_were_done_with_before(tmp_path: Path) -> None:
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 60)
    client = PlayedClient()
    session = Session(node, "bob", client)
    session.feed.acknowledge(0, 20)
    session.feed.acknowledge(15, 30)
    await sent(node, "bob", 61, 70)
    session.feed.acknowledge(30, 70)
    assert [what[1] for what in client.told] == numbers(1, 70)
    await durable(node)
    later = PlayedClient()
    Session(node, "bob", later).feed.acknowledge(30, 100)
    assert [what[1] for what in later.told] == numbers(31, 70)
    await node.close()


def damage(folder: Path) -> Path:
    """Change a bit in the middle of the file with messages."""
    (path,) = list_spill(folder).values()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return path


async def test_damage_is_told_to_the_client_whose_messages_it_is_in_and_named_by_verify(tmp_path: Path) -> None:
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 60)
    await node.close()
    path = damage(tmp_path)
    node = spilling(tmp_path)
    client = PlayedClient()
    Session(node, "bob", client).feed.acknowledge(0, 100)
    *handed, (word, error) = client.told
    assert (word, type(error)) == ("unreadable", StorageError)
    assert re.match(rf"{path}, offset \d+: the checksum of a block of \d+ bytes is wrong", str(error))
    assert [what[1] for what in handed] == numbers(1, len(handed))
    await sent(node, "ann", 1, 3)
    assert kept(node, "ann") == [1, 2, 3]
    await node.close()
    (found,) = examine(tmp_path).damage
    assert re.match(rf"{path}, offset \d+: \d+ bytes cannot be read", found)
    trouble: list[str] = []
    found_messages = [bytes(entry.messages) for _, _, entry in read_spilled(tmp_path, trouble) if isinstance(entry, Batch)]
    assert int(found_messages[0]) == 1
    assert trouble == [found]


async def test_verify_names_files_that_are_short_or_missing_and_notes_what_is_not_needed(tmp_path: Path) -> None:
    node = spilling(tmp_path)
    for name in ("ann", "bob"):
        await joined(node, name)
    await sent(node, "bob", 1, 60)
    await node.driver.commits.compact()
    await sent(node, "ann", 1, 60)
    killed(node)
    needed, other = list_spill(tmp_path).values()
    report = examine(tmp_path)
    assert (report.damage, [(row.owner, row.first, row.last) for row in report.spilled]) == ([], [("bob", 1, 60)])
    assert any(note.startswith(f"{other} was written after the snapshot") for note in report.notes)
    os.truncate(needed, needed.stat().st_size - 1)
    assert any(f"{needed}, offset {needed.stat().st_size}: the file ends here" in what for what in examine(tmp_path).damage)
    needed.unlink()
    assert examine(tmp_path).damage == [f"{needed} is missing: messages 1 to 60 for 'bob' were in it"]
    with pytest.raises(StorageError, match=f"{needed}, offset 0: No such file"):
        spilling(tmp_path)
    killed(Node(alone(), "s1", NodeOptions(data=tmp_path / "other")))


async def test_an_agent_reacts_to_messages_in_files_in_order_and_once(tmp_path: Path) -> None:
    texts = ["wait gate", *(f"message {number}" for number in range(60))]
    Log.gates["gate"] = asyncio.Event()
    home = AgentHome(tmp_path, spill_after_bytes=IN_MEMORY_BYTES)
    await home.make("bob")
    home.send("bob", *texts)
    await durable(home.node)
    assert home.node.directory.state.mailboxes["bob"].spilled_messages > 50
    await home.engine.close()
    killed(home.node)
    Log.gates["gate"].set()
    home = AgentHome(tmp_path, spill_after_bytes=IN_MEMORY_BYTES)
    await home.rest()
    assert home.state("bob") == texts
    await home.engine.close()
    await home.node.close()
    assert list_spill(tmp_path) == {}


async def test_an_agent_whose_messages_are_damaged_rests_and_says_why(tmp_path: Path) -> None:
    Log.gates["gate"] = asyncio.Event()
    home = AgentHome(tmp_path, spill_after_bytes=IN_MEMORY_BYTES)
    await home.make("bob", "eve")
    home.send("bob", "wait gate", *(f"message {number}" for number in range(60)))
    await durable(home.node)
    await home.engine.close()
    await home.node.close()
    path = damage(tmp_path)
    Log.gates["gate"].set()
    home = AgentHome(tmp_path, spill_after_bytes=IN_MEMORY_BYTES)
    await until(lambda: home.engine.trouble("bob"))
    assert re.match(rf"its messages cannot be read: {path}, offset \d+: ", home.engine.trouble("bob"))
    assert 0 < len(home.state("bob")) < 61
    home.send("eve", "hello")
    await until(lambda: home.state("eve") == ["hello"])
    await home.engine.close()
    await home.node.close()


@pytest.mark.parametrize(
    ("most", "beyond", "limits"),
    [
        (None, None, (None, None, None)),
        (1_000, None, (1_000, None, None)),
        (None, 500, (None, None, MailboxRoom(SPILL_AFTER_MESSAGES, 500))),
        (1_001, 500, (501, 500, MailboxRoom(SPILL_AFTER_MESSAGES, 62))),
    ],
)
def test_what_the_store_may_hold_is_shared_out(most: int | None, beyond: int | None, limits: tuple[object, ...]) -> None:
    with small_blocks(messages=SPILL_AFTER_MESSAGES):
        assert share_out(most, beyond) == limits
