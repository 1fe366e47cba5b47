"""Connects an endpoint with the node in the same program: what a server does for its clients, without a connection in between."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from thence.client.endpoint import EndpointParts
from thence.client.message import checked_topic
from thence.client.parts.requests import Pending
from thence.errors import StorageError, UsageError
from thence.net.protocol import WINDOW_MESSAGES, Publish
from thence.node.directory.directory import DirectoryChange
from thence.node.node import Node
from thence.node.sessions.session import Session
from thence.storage.mailbox import Batch


class NodeLink:
    """The link of an embedded member to its node. The node's session calls the second half of the methods."""

    blocked = False

    def __init__(self, parts: EndpointParts) -> None:
        """Start without a node; ``begin`` gives it one."""
        self.node: Node | None = None
        self._parts = parts
        self._session: Session | None = None
        self._topics: Pending[str] = Pending(parts.state)
        self._names: Pending[str] = Pending(parts.state)
        self._unstable: Pending[int] = Pending(parts.state)
        parts.connect(self)

    def begin(self, node: Node, *, in_memory: bool) -> None:
        """Go on where the mailbox of the member says. ``in_memory``: the node has no store."""
        parts, name = self._parts, self._parts.state.name
        mailbox = node.directory.state.mailboxes[name]
        parts.outbox.begin(mailbox.sent)
        parts.inbox.received = mailbox.acknowledged
        parts.acks.begin(mailbox.acknowledged)
        self.node = node
        self._session = session = Session(node, name, self)
        node.directory.mailboxes.here.add(name)
        node.hooks.on_answered = session.answered
        node.hooks.on_messages = self._on_messages
        node.hooks.on_safe = lambda _: session.feed.send_safety()
        if in_memory:
            node.hooks.on_batch = session.feed.pass_by
        node.hooks.on_notice = self._on_notice
        node.hooks.on_room = session.go_on
        node.hooks.on_failed = node.peers.on_failed = parts.state.fail
        node.peers.epochs.on_fenced = lambda reason: parts.state.fail(StorageError(reason))
        session.feed.acknowledge(mailbox.acknowledged, mailbox.acknowledged + WINDOW_MESSAGES)

    @property
    def running(self) -> tuple[Node, Session]:
        """The node and its session; raises if the endpoint cannot be used."""
        self._parts.state.check()
        if self.node is None or self._session is None:
            raise UsageError("use the member in an 'async with' block")
        return self.node, self._session

    # What the endpoint asks for.

    def transmit(self, publish: Publish) -> None:
        """Submit a batch."""
        self.running[1].submit(publish)

    def acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        """Acknowledge messages."""
        if self._session is not None:
            self._session.feed.acknowledge(upto, limit, partial(self._parts.acks.on_durable, upto) if answer else None)

    def ask_safety(self) -> None:
        """Ask the session to say which messages are safe."""
        self.running[1].feed.want_safety()

    async def follow(self, topic: str, *, wanted: bool) -> None:
        """Follow a topic, or follow it no longer. Return when that holds."""
        session = self.running[1]
        done = self._topics.wait(checked_topic(topic))
        session.follow(topic, wanted)
        await done

    async def known(self, name: str) -> None:
        """Wait until the node knows a client of this name."""
        if self.running[0].directory.home(name) is None:
            await self._names.wait(name)

    async def until_stable(self) -> None:
        """Wait until what was accepted so far is stable."""
        upto, waiters = self._parts.outbox.accepted, self.running[0].intake.waiters
        await self._unstable.ask(upto, lambda: waiters.ask(self, partial(self._stable, upto)))

    def _stable(self, upto: int, reason: str) -> None:
        self._unstable.answer(upto, UsageError(reason) if reason else None)

    # What the node says.

    def accepted(self, upto: int) -> None:
        """Note that messages are accepted."""
        self._parts.outbox.on_accepted(upto)

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Note that messages are refused."""
        self._parts.outbox.on_undeliverable(first, count, reason, forbidden=forbidden)

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        """Deliver a batch."""
        everyone = batch.to is None and batch.topic is None
        self._parts.deliveries.deliver(position, skip, batch.sender, batch.topic, batch.messages, everyone)

    def on_safe(self, upto: int, reason: str) -> None:
        """Note which messages are safe, or why nobody finds out."""
        self._parts.safe_waits.on_safe(upto, reason)

    def damaged(self, error: StorageError) -> None:
        """End the endpoint: what is kept for it cannot be read."""
        self._parts.state.fail(error)

    def subscribed(self, topic: str, wanted: bool) -> None:
        """Note that a topic is followed, or no longer."""
        self._topics.answer(topic)

    def not_subscribed(self, topic: str, reason: str) -> None:
        """Note that a topic cannot be followed."""
        self._topics.answer(topic, UsageError(reason))

    def _on_messages(self, clients: Collection[str]) -> None:
        if self._session is not None:
            self._session.feed.send()

    def _on_notice(self, change: DirectoryChange) -> None:
        for name in (*change.known, change.joined):
            if name is not None:
                self._names.answer(name)
        if change.follows is not None and change.follows.client == self._parts.state.name:
            self._topics.answer(change.follows.topic)
