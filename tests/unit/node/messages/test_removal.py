"""A client is removed while its own full mailbox stops the node; no crash undoes that, and no later mailbox is hit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.node.test_node import alone, durable, joined, killed, sent
from thence.errors import Busy, UsageError
from thence.node.messages.removal import Dropped
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import mailbox as mailbox_module
from thence.storage.bodies import Follows, Left
from thence.storage.mailbox import Batch


def yielded(node: Node) -> list[str]:
    """Return the names that a node claims without a mailbox."""
    return node.directory.claims.without(node.directory.state.mailboxes)


@pytest.fixture(autouse=True)
def _small_mailboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)


async def with_full_mailbox(data: Path | None, *names: str) -> Node:
    """Return a node at which the mailboxes of these clients are closed."""
    node = Node(alone(), "s1", NodeOptions(data=data))
    for name in ("ann", *names):
        await joined(node, name)
    node.intake.announce(Follows(names[0], "news", wanted=True))
    await durable(node)
    for number in range(1, 6 if data else 4):  # In memory, messages are in the mailbox at once: nothing waits for room.
        assert node.intake.submit(Batch("ann", number, 1, names, None, b"letter"))
    await durable(node)
    assert (list(node.directory.mailboxes.closed), node.dispatch.held) == (list(names), 0)
    with pytest.raises(Busy, match="the mailbox of 'bob' at 's1' is full"):
        node.intake.submit(Batch("ann", 6, 1, ("bob",), None, b"letter"))
    return node


def assert_gone(node: Node, name: str) -> None:
    """Nothing is left of a client at its server."""
    state = node.directory.state
    assert (name in state.mailboxes, name in state.claims, "news" in state.followers) == (False, False, False)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_client_is_removed_while_its_mailbox_is_closed(tmp_path: Path, stored: bool) -> None:
    node = await with_full_mailbox(tmp_path if stored else None, "bob")
    dropped: list[Dropped] = []
    node.removal.remove("bob", "remove", dropped.append)
    await durable(node)
    count = 5 if stored else 3
    assert dropped == [Dropped(count, count * mailbox_module.MIN_BATCH_BYTES)]
    assert (len(node.directory.mailboxes.closed), yielded(node)) == (0, ["bob"])
    node.intake.announce(Left("bob", "s1"))
    await durable(node)
    assert_gone(node, "bob")
    assert node.removal.dropped == {"leave": 0, "remove": count, "purge": 0}
    await sent(node, "ann", 6, 1, "ann")  # It takes messages again.
    await node.close()


async def test_the_notice_of_a_removal_needs_no_room_in_the_mailboxes_of_others(tmp_path: Path) -> None:
    node = await with_full_mailbox(tmp_path, "bob", "cat")
    node.removal.remove("bob", "remove")
    await durable(node)
    assert list(node.directory.mailboxes.closed) == ["cat"]
    node.intake.announce(Left("bob", "s1"))
    await durable(node)
    assert_gone(node, "bob")
    await node.close()


@pytest.mark.parametrize("with_snapshot", [True, False])
async def test_a_crash_does_not_undo_a_removal_before_it_is_announced(tmp_path: Path, with_snapshot: bool) -> None:
    node = await with_full_mailbox(tmp_path, "bob")
    node.removal.remove("bob", "remove")
    if with_snapshot:  # Of the moment at which it is written and not durable.
        snapshot, upto = node.driver.actions.snapshot(), node.driver.store.appended
        node.driver.store.commit()
        node.driver.store.compact(snapshot, upto)
    else:
        node.driver.store.commit()
    killed(node)
    again = Node(alone(), "s1", NodeOptions(data=tmp_path))
    assert (
        "bob" in again.directory.state.mailboxes,
        len(again.directory.mailboxes.closed),
        yielded(again),
    ) == (False, 0, ["bob"])
    again.intake.announce(Left("bob", "s1"))
    await durable(again)
    assert_gone(again, "bob")
    killed(again)
    assert_gone(Node(alone(), "s1", NodeOptions(data=tmp_path)), "bob")


async def test_a_removal_that_is_done_again_leaves_a_later_mailbox_of_the_same_name(tmp_path: Path) -> None:
    node = await with_full_mailbox(tmp_path, "bob")
    node.removal.remove("bob", "remove")
    node.removal.remove("bob", "remove")
    await durable(node)
    node.intake.announce(Left("bob", "s1"))
    await joined(node, "bob")
    await sent(node, "ann", 6, 2, "bob")
    killed(node)
    again = Node(alone(), "s1", NodeOptions(data=tmp_path))
    assert again.directory.state.mailboxes["bob"].position == 2


async def test_a_mailbox_is_emptied_and_open_again(tmp_path: Path) -> None:
    node = await with_full_mailbox(tmp_path, "bob")
    dropped: list[Dropped] = []
    node.removal.purge("bob", dropped.append)
    await durable(node)
    mailbox = node.directory.state.mailboxes["bob"]
    assert dropped == [Dropped(5, 5 * mailbox_module.MIN_BATCH_BYTES)]
    assert (mailbox.acknowledged, mailbox.position, "bob" in node.directory.state.followers["news"]) == (5, 5, True)
    assert (node.removal.dropped["purge"], len(node.directory.mailboxes.closed)) == (5, 0)
    await sent(node, "ann", 6, 1, "bob")
    killed(node)
    mailbox = Node(alone(), "s1", NodeOptions(data=tmp_path)).directory.state.mailboxes["bob"]
    assert (mailbox.acknowledged, mailbox.position) == (5, 6)


async def test_nothing_is_dropped_that_cannot_be_made_durable(tmp_path: Path) -> None:
    node = await with_full_mailbox(tmp_path, "bob")
    dropped: list[Dropped] = []
    node.driver.commits.stalled = "no space left on device"
    for drop in (partial(node.removal.remove, "bob", "remove"), partial(node.removal.purge, "bob", dropped.append)):
        with pytest.raises(Busy, match="nothing is dropped: no space left"):
            drop()
    assert node.directory.state.mailboxes["bob"].position == 5
    with pytest.raises(UsageError, match="'eve' is no client of 's1'"):
        node.removal.remove("eve", "remove")
    await node.close()
