"""A node brings back what it had, wherever it was killed, and takes nothing that it could not store. No sockets, no processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from thence.core.member.contract import Restored, Submit
from thence.core.member.member import Member
from thence.core.reconfig.protocol import FABRIC
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import Busy, StoreFull
from thence.net.protocol import BatchItem, write_messages
from thence.node.driver import commits
from thence.node.messages import handover
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import mailbox as mailbox_module
from thence.storage.bodies import Joined, Left, write_body
from thence.storage.journal import KeyDrawn
from thence.storage.mailbox import Batch

PATIENCE_S = 30.0


def alone() -> Topology:
    """Return a fabric of one server."""
    return parse('name = "alone"\n[domains.D]\nmembers = ["s1"]\n')


def killed(node: Node) -> None:
    """Do what a kill does: the lock is given back, and nothing else happens."""
    node.driver.store.close()


async def durable(node: Node) -> None:
    """Wait until everything is on disk and has been handed over."""
    while (commits := node.driver.commits.task) is not None:
        await asyncio.wait([commits])


async def joined(node: Node, name: str) -> None:
    node.intake.announce(Joined(name, node.name, temporary=False))
    await durable(node)


async def sent(node: Node, sender: str, first: int, count: int, to: str) -> None:
    """Send ``count`` batches of one message."""
    for number in range(first, first + count):
        assert node.intake.submit(Batch(sender, number, 1, (to,), None, b"letter"))
    await durable(node)


async def test_a_killed_node_has_all_that_was_durable(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    await sent(node, "bob", 1, 10, "bob")
    node.acknowledgements.acknowledge("bob", 4)
    await durable(node)
    killed(node)
    mailbox = Node(alone(), "s1", NodeOptions(data=tmp_path)).directory.state.mailboxes["bob"]
    assert (mailbox.sent, mailbox.position, mailbox.acknowledged, sorted(mailbox.waiting)) == (10, 10, 4, [5, 6, 7, 8, 9, 10])


async def test_what_was_acknowledged_behind_a_full_mailbox_does_not_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    for first in (1, 4, 7):
        await sent(node, "bob", first, 3, "bob")
        assert list(node.directory.mailboxes.closed) == ["bob"]
        node.acknowledgements.acknowledge("bob", first + 1)
        node.acknowledgements.acknowledge("bob", first + 2)
        await durable(node)
    killed(node)
    again = Node(alone(), "s1", NodeOptions(data=tmp_path))
    mailbox = again.directory.state.mailboxes["bob"]
    assert (mailbox.position, mailbox.acknowledged, mailbox.waiting, again.dispatch.held) == (9, 9, {}, 0)


async def test_what_went_out_after_an_acknowledgement_is_known_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    for first in (1, 3):
        await sent(node, "bob", first, 2, "bob")
    mailbox = node.directory.state.mailboxes["bob"]
    assert (mailbox.position, list(node.directory.mailboxes.closed)) == (4, ["bob"])
    node.acknowledgements.acknowledge("bob", 3)
    assert (node.directory.mailboxes.closed.__contains__("bob"), node.acknowledgements.of("bob")) == (True, 3)  # Not durable yet.
    killed(node)
    again = Node(alone(), "s1", NodeOptions(data=tmp_path))
    assert (again.directory.state.mailboxes["bob"].position, list(again.directory.mailboxes.closed)) == (4, ["bob"])
    again.acknowledgements.acknowledge("bob", 3)
    await durable(again)
    assert (again.directory.state.mailboxes["bob"].position, len(again.directory.mailboxes.closed)) == (4, 0)
    await again.close()


async def test_a_snapshot_has_what_was_acknowledged_just_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    for first in (1, 3):
        await sent(node, "bob", first, 2, "bob")
    node.acknowledgements.acknowledge("bob", 3)
    snapshot, upto = (
        node.driver.actions.snapshot(),
        node.driver.store.appended,
    )  # As the driver does when the log has grown: nothing else waits.
    node.driver.store.commit()
    node.driver.store.compact(snapshot, upto)
    killed(node)
    mailbox = Node(alone(), "s1", NodeOptions(data=tmp_path)).directory.state.mailboxes["bob"]
    assert (mailbox.acknowledged, mailbox.position) == (3, 4)


async def test_a_driver_that_is_closed_twice_makes_no_snapshot_the_second_time(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    closing = asyncio.create_task(node.driver.commits.close())
    await asyncio.sleep(0)
    while not node.driver.commits.closed:
        node.driver.write([KeyDrawn(b"k" * 32)])  # As of a peer whose connection ends meanwhile.
        await asyncio.sleep(0)
    await closing
    assert node.driver.store.bytes_since_snapshot
    await node.driver.commits.close()


async def test_a_new_node_is_known_by_its_store_before_anybody_hears_of_it(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    told = node.peers.epochs.met["s1"]
    killed(node)  # At once: no turn of the loop in between.
    assert Node(alone(), "s1", NodeOptions(data=tmp_path)).peers.epochs.met["s1"] == told


async def test_a_name_that_was_given_up_begins_with_nothing_accepted(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    await sent(node, "bob", 1, 5, "bob")
    assert node.intake.accepted_of("bob") == 5
    node.intake.announce(Left("bob", "s1"))
    await durable(node)
    await joined(node, "bob")
    assert node.intake.accepted_of("bob") == 0
    await node.close()


async def test_more_bytes_than_the_store_buffers_are_not_taken(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    messages = bytes(10_000_000)
    taken = 0
    while not node.driver.full:  # The store gets no turn meanwhile.
        taken += 1
        node.intake.submit(Batch("bob", taken, 1, ("bob",), None, messages))
    with pytest.raises(Busy, match="bytes wait for the store"):
        node.intake.submit(Batch("bob", taken + 1, 1, ("bob",), None, messages))
    await durable(node)
    assert taken > 1
    killed(node)
    assert Node(alone(), "s1", NodeOptions(data=tmp_path)).directory.state.mailboxes["bob"].position == taken


async def test_a_small_store_makes_room_for_itself(tmp_path: Path) -> None:
    node = Node(alone(), "s1", NodeOptions(data=tmp_path, max_store_bytes=100_000))
    await joined(node, "bob")
    for number in range(1, 201):
        node.intake.submit(Batch("bob", number, 1, ("bob",), None, bytes(5_000)))
        await durable(node)
        node.acknowledgements.acknowledge("bob", number)
    assert not node.driver.full
    await node.close()


async def test_a_small_store_makes_room_though_its_log_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FULL_DISK_RETRY_S", 0.0)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path, max_store_bytes=100_000))
    await joined(node, "bob")
    last = 0
    while not node.driver.commits.stalled:  # All that waits for bob is in each snapshot, and soon in one that is too large.
        last += 1
        node.intake.submit(Batch("bob", last, 1, ("bob",), None, bytes(11_000)))
        while node.driver.commits.task is not None and not node.driver.commits.stalled:  # noqa: ASYNC110
            await asyncio.sleep(0)
    node.acknowledgements.acknowledge("bob", node.directory.state.mailboxes["bob"].position)
    await durable(node)
    assert (node.driver.full, node.directory.state.mailboxes["bob"].position) == ("", last)
    await node.close()


async def test_a_log_that_cannot_be_made_short_stalls_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "COMPACT_BYTES", 10_000)
    monkeypatch.setattr(commits, "LOG_PER_BACKLOG", 0)
    tried = []

    def full(*_: object) -> None:
        tried.append(1)
        raise StoreFull("no room")

    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    monkeypatch.setattr(node.driver.store, "compact", full)
    await joined(node, "bob")
    await sent(node, "bob", 1, 1_000, "bob")
    assert tried
    assert not node.driver.full
    await node.close()


@pytest.mark.parametrize("most_entries", [1_000_000, 50], ids=["quick to read", "slow to read"])
async def test_while_much_waits_only_a_log_that_is_slow_to_read_is_made_short(
    most_entries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "COMPACT_BYTES", 10_000)
    monkeypatch.setattr(commits, "MAX_REPLAYED", most_entries)
    node = Node(alone(), "s1", NodeOptions(data=tmp_path))
    await joined(node, "bob")
    for number in range(1, 101):
        node.intake.submit(Batch("bob", number, 1, ("bob",), None, bytes(1_000)))
        await durable(node)
    waiting = node.driver.actions.waiting_bytes()
    assert waiting >= 100_000
    assert (node.driver.store.bytes_since_snapshot > waiting) == (most_entries > 100)
    node.acknowledgements.acknowledge("bob", 100)
    await durable(node)
    for number in range(101, 112):
        node.intake.submit(Batch("bob", number, 1, ("bob",), None, bytes(1_000)))
        await durable(node)
        node.acknowledgements.acknowledge("bob", number)
    assert node.driver.store.bytes_since_snapshot < waiting, "nothing waits any more"
    await node.close()


async def test_a_batch_of_another_server_that_claims_more_messages_than_it_holds_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A captured server cannot fill a mailbox with what it only claims, nor the log."""
    topology = parse('name = "two"\n[domains.D]\nmembers = ["s1", "s2"]\n')
    node, other = Node(topology, "s1", NodeOptions()), Member("s2", topology)
    other.step(Restored(None, (), 0), 0)
    await joined(node, "bob")
    mailbox, honest = node.directory.state.mailboxes["bob"], write_messages([BatchItem(b"x")] * 3)
    batches = [(131_072, b"\xdd\x00\x02\x00\x00"), (131_072, honest), (0, honest), (-5, honest)] * 10 + [(3, honest)]
    for at, (count, messages) in enumerate(batches):
        body = write_body(Batch("eve", 1 + 3 * at, count, ("bob",), None, messages))
        for _, packet in other.step(Submit(("s1",), body), at).send:
            node.peers.events.arrived("s2", packet)
    assert (mailbox.position, len(mailbox.waiting), node.directory.mailboxes.full) == (3, 1, "")
    await node.close()
    lines = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    assert 0 < len(lines) <= handover.MAX_LOGGED_UNREAD
    assert "a message of 's2' claims 131072 messages of 'eve', and holds no list of messages" in lines[0]


async def test_another_server_does_not_speak_for_the_fabric_itself() -> None:
    """Neither a message nor a message of a captured server passes for the news of a view, which every client would read."""
    topology = parse('name = "two"\n[domains.D]\nmembers = ["s1", "s2"]\n')
    node, other = Node(topology, "s1", NodeOptions()), Member("s2", topology)
    other.step(Restored(None, (), 0), 0)
    await joined(node, "bob")
    body = write_body(Batch(FABRIC, 1, 1, ("bob",), None, write_messages([BatchItem(b"\xc1", coded=True)])))
    for as_origin in ("s2", FABRIC):
        for _, packet in other.step(Submit(("s1",), body), 0).send:
            frames = [
                msgspec.structs.replace(frame, envelope=msgspec.structs.replace(frame.envelope, origin=as_origin))
                for frame in packet.frames
                if frame.envelope is not None
            ]
            node.peers.events.arrived("s2", msgspec.structs.replace(packet, frames=tuple(frames)))
    assert node.directory.state.mailboxes["bob"].position == 0
    assert "bob" in node.directory.state.mailboxes
    await node.close()
