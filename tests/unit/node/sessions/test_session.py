"""A session: numbers that come again, acceptance in order, credit. The node and the client are played by lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from thence.core.wire.messages import Envelope
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.net.protocol import MAX_UNACCEPTED, BatchItem, Publish, claimed_messages, count_messages, write_messages
from thence.node.directory.directory import Directory
from thence.node.node import Node
from thence.node.sessions import feed as session_feed
from thence.node.sessions import session as node_session
from thence.node.sessions.session import Session
from thence.storage import rejections
from thence.storage.bodies import Body, Joined, write_body
from thence.storage.mailbox import Batch
from thence.storage.rejections import Rejected


class PlayedNode:
    """Takes batches, unless it is told not to, and accepts them when asked."""

    def __init__(self) -> None:
        self.intake = self.acknowledgements = self
        self.directory = Directory("s1", ("s1",))
        self.deliver(Joined("ann", "s1", temporary=False))
        self.taken: list[int] = []
        self.announced: list[Body] = []
        self.busy = False
        self.left = False
        self.accepted = 0
        self.not_durable = 0
        self.unsafe = 0
        self.thens: list[Callable[[], None]] = []
        self.why_unknown = ""
        self.why_never = "never"

    def deliver(self, body: Body) -> None:
        self.directory.deliver(Envelope("s1", 1, None, write_body(body)))

    def submit(self, batch: Batch) -> bool:
        if self.busy:
            raise Busy("later")
        if batch.topic == "nobody follows":
            return False
        if batch.topic == "never":
            raise UsageError(self.why_never)
        self.taken.append(batch.first)
        self.directory.mailboxes.sent(batch.sender, batch.first + batch.count - 1)
        return True

    def reject(self, rejected: Rejected) -> None:
        if self.busy:
            raise Busy("later")
        self.directory.mailboxes.reject(rejected)

    def announce(self, notice: Body) -> None:
        if self.busy:
            raise Busy("later")
        if self.left:
            raise UsageError("it has left")
        self.announced.append(notice)

    def acknowledge(self, client: str, upto: int, then: Callable[[], None] | None = None) -> None:
        self.directory.mailboxes.acknowledge(client, upto)
        if then is not None:
            self.thens.append(then)

    def of(self, client: str) -> int:
        return max(self.not_durable, self.directory.state.mailboxes[client].acknowledged)

    def accepted_of(self, client: str) -> int:
        return self.accepted

    def safe_of(self, client: str) -> int:
        return self.directory.state.mailboxes[client].position - self.unsafe


class PlayedClient:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.blocked = False

    def accepted(self, upto: int) -> None:
        self.told.append(("accepted", upto))

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        self.told.append(("forbidden" if forbidden else "undeliverable", first, count, reason))

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        self.told.append(("deliver", position, skip, batch.count))

    def damaged(self, error: StorageError) -> None:
        self.told.append(("unreadable", error))

    def subscribed(self, topic: str, wanted: bool) -> None:
        self.told.append(("subscribed", topic, wanted))

    def not_subscribed(self, topic: str, reason: str) -> None:
        self.told.append(("not subscribed", topic, reason))

    def on_safe(self, upto: int, reason: str) -> None:
        self.told.append(("safe", upto, reason))


def played() -> tuple[PlayedNode, PlayedClient, Session]:
    node, client = PlayedNode(), PlayedClient()
    return node, client, again(node, client)


def again(node: PlayedNode, client: PlayedClient) -> Session:
    """Return the session of a new connection."""
    return Session(cast("Node", node), "ann", client)


def messages(first: int, count: int = 1, topic: str | None = None) -> Publish:
    return Publish(first, count, None, topic, write_messages([BatchItem(b"")] * count))


def test_what_was_submitted_is_not_submitted_again() -> None:
    node, client, session = played()
    session.publish(messages(1, 2))
    session.publish(messages(3))
    session = again(node, client)
    for publish in (messages(1, 2), messages(3), messages(4)):
        session.publish(publish)
    assert node.taken == [1, 3, 4]


def test_what_waited_for_room_is_sent_again_over_the_next_connection() -> None:
    node, client, session = played()
    node.busy = True
    session.publish(messages(1))
    session.follow("news", wanted=True)
    session.publish(messages(2))
    assert (node.taken, session.waiting) == ([], 3)
    session = again(node, client)
    node.busy = False
    session.publish(messages(1))
    session.publish(messages(2))
    assert (node.taken, node.announced, session.waiting) == ([1, 2], [], 0)


def test_what_waits_for_room_goes_on_in_order() -> None:
    node, _, session = played()
    node.busy = True
    for number in (1, 2, 3):
        session.publish(messages(number))
    node.busy = False
    session.go_on()
    assert node.taken == [1, 2, 3]


def test_acceptance_is_told_in_order() -> None:
    node, client, session = played()
    session.publish(messages(1))
    session.publish(messages(2, topic="never"))
    session.publish(messages(3, topic="nobody follows"))
    assert client.told == [], "the first one is not durable yet"
    node.accepted = 1
    session.answered("ann", 1)
    assert client.told == [("accepted", 1)]
    (rejected,) = node.directory.state.mailboxes["ann"].rejected
    session.answered("ann", 2, rejected)
    assert client.told == [("accepted", 1), ("undeliverable", 2, 1, "never"), ("accepted", 3)]


def test_what_was_rejected_is_not_submitted_again_over_the_next_connection() -> None:
    node, client, session = played()
    node.busy = True
    session.publish(messages(1, topic="never"))
    node.busy = False
    session.go_on()
    for publish in (messages(2, topic="never"), messages(3)):
        session.publish(publish)
    mailbox = node.directory.state.mailboxes["ann"]
    assert (mailbox.rejected, mailbox.sent) == ([Rejected("ann", 1, 2, "never", False)], 3)
    again(node, client).publish(messages(1, 3))
    assert node.taken == [3]


def test_what_a_client_must_have_heard_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rejections.KEEP_REJECTED == 2 * MAX_UNACCEPTED, "more than are on their way"
    monkeypatch.setattr(rejections, "KEEP_REJECTED", 4)
    node, _, session = played()
    for number in range(1, 21):
        session.publish(messages(number, topic="never" if number % 2 else None))
    assert [rejected.first for rejected in node.directory.state.mailboxes["ann"].rejected] == [15, 17, 19]


def test_little_is_kept_of_why_messages_were_rejected() -> None:
    node, _, session = played()
    node.why_never = "x" * 1_000
    session.publish(messages(1, topic="never"))
    assert len(node.directory.state.mailboxes["ann"].rejected[0].reason) == node_session.MAX_REASON_CHARACTERS


@pytest.mark.parametrize(
    "publish",
    [
        messages(0),
        messages(1, 0),
        Publish(1, 5, None, None, write_messages([BatchItem(b"")] * 4)),
        Publish(1, 1, None, None, b"x"),
    ],
    ids=["number 0", "no messages", "fewer messages than it says", "no messages at all"],
)
def test_numbers_that_cannot_be_are_refused(publish: Publish) -> None:
    _, _, session = played()
    with pytest.raises(MalformedFrame):
        session.publish(publish)


def test_of_a_batch_that_overlaps_only_the_rest_is_submitted() -> None:
    node, _, session = played()
    session.publish(messages(1, 2))
    session.publish(messages(2, 3))
    assert (node.taken, node.directory.state.mailboxes["ann"].sent) == ([1, 3], 4)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_messages_are_counted_without_being_read(count: int) -> None:
    assert count_messages(write_messages([BatchItem(b"x")] * count)) == count


NO_MESSAGES = {
    "nothing": b"",
    "no list": b"hello",
    "no length": b"\xdc\x00",
    "half a length": b"\xdd\x00\x00",
    "a list of 131,072 that holds none": b"\xdd\x00\x02\x00\x00",
    "one too few": write_messages([BatchItem(b"x")] * 3)[:-7],
    "something behind": write_messages([BatchItem(b"x")]) + b"\xc0",
    "too deep": b"\x91" * 100_000 + b"\xc0",
}


@pytest.mark.parametrize("written", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_what_does_not_hold_the_messages_that_it_claims_has_no_count(written: bytes) -> None:
    assert count_messages(written) == -1
    _, _, session = played()
    with pytest.raises(MalformedFrame):
        session.publish(Publish(1, max(1, claimed_messages(written)), ("ann",), None, written))


def test_a_client_that_sends_more_than_it_may_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_session, "MAX_UNACCEPTED", 2)
    node, _, session = played()
    node.busy = True
    for number in range(1, 5):
        session.publish(messages(number))
    with pytest.raises(MalformedFrame, match="does not keep to MAX_UNACCEPTED"):
        session.publish(messages(5))


def test_messages_go_out_as_far_as_credit_and_connection_take_them() -> None:
    node, client, session = played()
    for first in (1, 3, 5):
        node.deliver(Batch("bob", first, 2, ("ann",), None, b"12"))
    session.feed.send()
    assert client.told == [], "no credit yet"
    session.feed.acknowledge(0, 3)
    assert client.told == [("deliver", 1, 0, 2), ("deliver", 3, 0, 2)]
    client.blocked = True
    session.feed.acknowledge(2, 10)
    assert len(client.told) == 2
    client.blocked = False
    session.feed.send()
    assert client.told[2:] == [("deliver", 5, 0, 2)]


def test_a_client_is_given_so_many_bytes_that_it_is_not_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_feed, "WINDOW_BYTES", 5)
    node, client, session = played()
    for first in (1, 3, 5, 7):
        node.deliver(Batch("bob", first, 2, ("ann",), None, b"123"))
    session.feed.acknowledge(0, 10)
    assert client.told == [("deliver", 1, 0, 2), ("deliver", 3, 0, 2)], "one batch goes beyond it, however large that is"
    session.feed.acknowledge(1, 10)
    assert len(client.told) == 2, "of the first one a message is not done with"
    session.feed.acknowledge(2, 10)
    assert client.told[2:] == [("deliver", 5, 0, 2)]
    client.told.clear()
    again(node, client).feed.acknowledge(3, 10)
    assert client.told == [("deliver", 4, 1, 2), ("deliver", 5, 0, 2)], "what an earlier connection was given counts no more"


def test_a_new_connection_begins_behind_what_is_done() -> None:
    node, client, session = played()
    node.deliver(Batch("bob", 1, 5, ("ann",), None, b"12345"))
    session.feed.acknowledge(0, 10)
    session.feed.acknowledge(2, 10)
    client.told.clear()
    again(node, client).feed.acknowledge(2, 10)
    assert client.told == [("deliver", 3, 2, 5)]
    client.told.clear()
    again(node, client).feed.acknowledge(3, 10)
    assert client.told == [("deliver", 4, 3, 5)]


def test_who_asks_is_told_when_what_is_done_is_durable_also_if_it_said_so_before() -> None:
    node, _, session = played()
    node.deliver(Batch("bob", 1, 5, ("ann",), None, b"12345"))
    told: list[int] = []
    session.feed.acknowledge(2, 10)
    for upto in (2, 2, 1, 3):
        node.thens.clear()
        session.feed.acknowledge(upto, 10, partial(told.append, upto))
        node.thens[0]()
    assert told == [2, 2, 1, 3]
    assert node.directory.state.mailboxes["ann"].acknowledged == 3


def test_a_new_connection_gets_nothing_again_that_is_done_and_not_durable_yet() -> None:
    node, client, session = played()
    for first in (1, 3, 5):
        node.deliver(Batch("bob", first, 2, ("ann",), None, b"12"))
    session.feed.acknowledge(0, 10)
    client.told.clear()
    node.not_durable = 3
    again(node, client).feed.acknowledge(3, 10)
    assert client.told == [("deliver", 4, 1, 2), ("deliver", 5, 0, 2)]


def test_what_cannot_be_acknowledged_is_refused() -> None:
    _, _, session = played()
    with pytest.raises(MalformedFrame, match="acknowledges message 1 of 0"):
        session.feed.acknowledge(1, 10)
    with pytest.raises(MalformedFrame, match="takes up to"):
        session.feed.acknowledge(0, 10**9)


def test_a_session_whose_client_has_lost_its_name_is_quiet() -> None:
    node, client, session = played()
    del node.directory.state.mailboxes["ann"]
    session.feed.send()
    assert client.told == []


def test_what_is_told_when_others_are_accepted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the store is slow, somebody could write for ever to nobody: none of that waits for room."""
    monkeypatch.setattr(node_session, "MAX_UNACCEPTED", 3)
    topic = "nobody follows"
    node, client, session = played()
    session.publish(messages(1))
    for number in range(2, 9):
        session.publish(messages(number, topic=topic))
    with pytest.raises(MalformedFrame, match="does not keep to MAX_UNACCEPTED"):
        session.publish(messages(9, topic=topic))
    assert client.told == []
    node.accepted = 1
    session.answered("ann", 1)
    assert len(client.told) == 8
    session.publish(messages(10, topic=topic))
    assert len(client.told) == 9


def test_whoever_cannot_follow_a_topic_any_more_is_told_and_what_comes_behind_goes_on() -> None:
    node, client, session = played()
    node.busy = True
    session.follow("t", True)
    session.publish(messages(1))
    node.busy = False
    node.left = True
    session.go_on()
    assert client.told == [("not subscribed", "t", "it has left")]
    assert node.taken == [1]
    assert session.waiting == 0


def test_who_wants_to_know_is_told_what_is_safe_of_what_came() -> None:
    node, client, session = played()
    session.feed.send_safety()
    assert client.told == [], "it did not ask"
    session.feed.want_safety()
    for _ in range(3):
        node.deliver(Batch("bob", 1, 2, ("ann",), None, messages(1, 2).messages))
    node.unsafe = 1
    session.feed.acknowledge(0, 3)
    assert client.told == [("safe", 0, ""), ("deliver", 1, 0, 2), ("deliver", 3, 0, 2), ("safe", 4, "")], (
        "of six messages four came"
    )
    client.told = []
    session.feed.acknowledge(4, 8)
    assert client.told == [("deliver", 5, 0, 2), ("safe", 5, "")]
    client.blocked, node.unsafe = True, 0
    session.feed.send_safety()
    assert client.told[2:] == []
    client.blocked = False
    session.feed.send()
    session.feed.send()
    assert client.told[2:] == [("safe", 6, "")]
    # It connects again: it is told where it stands, also of what it has done with.
    session = again(node, client)
    session.feed.want_safety()
    assert client.told[3:] == [("safe", 4, "")]
    session.feed.acknowledge(6, 8)
    assert client.told[-1] == ("safe", 6, "")


def test_who_wants_to_know_is_told_why_not() -> None:
    node, client, session = played()
    node.why_unknown = "nobody finds out"
    node.deliver(Batch("bob", 1, 1, ("ann",), None, messages(1).messages))
    session.feed.want_safety()
    session.feed.acknowledge(0, 8)
    assert client.told == [("safe", 0, "nobody finds out"), ("deliver", 1, 0, 1)]
    node.why_unknown = ""
    session.feed.send_safety()
    assert client.told[2:] == [("safe", 1, "")], "the fabric has changed"


def test_names_of_recipients_that_wait_count_as_messages_do() -> None:
    node = PlayedNode()
    session = Session(cast("Node", node), "ann", cast("Any", PlayedClient()))
    node.busy = True
    names = tuple(f"{number:0100}" for number in range(1_000))
    session.publish(Publish(1, 1, names, None, write_messages([BatchItem(b"x")])))
    assert session.backlog_bytes > 100_000
    node.busy = False
    session.go_on()
    assert session.backlog_bytes == 0
