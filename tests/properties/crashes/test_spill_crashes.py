"""Messages, readers, acknowledgements, snapshots and crashes in any order, against a model: a list of messages for each client.

The node is real, on real files. A crash is a kill, or a power failure that takes what was not synced: then the folder becomes one
of the images that ``test_store_crashes.py`` says it could. Each start may spill or not, and with other limits than the last one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.crashes.spills import kept_in, small_blocks
from tests.unit.node.sessions.test_session import PlayedClient
from tests.unit.node.test_node import PATIENCE_S, alone, durable, joined, killed
from tests.unit.storage.test_store_crashes import CrashingDisk
from thence.errors import Busy
from thence.node.node import Node
from thence.node.offline.inspection import examine
from thence.node.options import NodeOptions
from thence.node.sessions.session import Session
from thence.storage.mailbox import Batch

MAX_EXAMPLES = 25
LOOK_EVERY_S = 0.001
"""How often it is looked whether the disk is full."""
CLIENTS = ("ann", "bob")
SPILLING = (None, 60, 1_000_000)
STORES = (None, 6_000)
CRASH = "the crash"
CRASHES = ("killed", "power, names at once", "power")

clients = st.sampled_from(CLIENTS)
actions = st.one_of(
    st.tuples(st.just("send"), clients, st.integers(1, 12)),
    st.tuples(st.just("read"), clients, st.integers(1, 12)),
    st.tuples(st.sampled_from(["come", "go"]), clients, st.none()),
    st.tuples(st.sampled_from(["commit", "snapshot", "look"]), st.none(), st.none()),
    st.tuples(st.just("crash"), st.sampled_from(CRASHES), st.tuples(st.sampled_from(SPILLING), st.sampled_from(STORES))),
)


class Checked(PlayedClient):
    """A client that compares what comes with what must."""

    def __init__(self, messages: list[tuple[bytes, int]], done: int) -> None:
        super().__init__()
        self.messages = messages
        self.last = done

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        assert position == self.last + 1
        for index in range(skip, batch.count):
            self.last += 1
            assert self.messages[self.last - 1] == (bytes(batch.messages), index)


class Disk(CrashingDisk):
    """Looks at the folder only when it is asked to crash."""

    def notice(self, what: str) -> None:
        if what == CRASH:
            super().notice(what)

    def crash(self, how: str) -> None:
        """Leave of the folder what such a crash could."""
        self.notice(CRASH)
        (image,) = [image for what, _, image in self.points if what == f"{how}, before {CRASH}"]
        for path in self.folder.iterdir():
            path.unlink()
        for name, content in image.items():
            (self.folder / name).write_bytes(content)
        self.forget()


class Story:
    """One node after the other on the same folder."""

    def __init__(self, disk: Disk) -> None:
        self.folder = disk.folder
        self.disk = disk
        self.messages: dict[str, list[tuple[bytes, int]]] = {name: [] for name in CLIENTS}
        """What was sent to each: the batch that it was in, and which of its messages it is."""
        self.safe = dict.fromkeys(CLIENTS, 0)
        """How many of these must survive,"""
        self.done = dict.fromkeys(CLIENTS, 0)
        """and how many must not come again."""
        self.sessions: dict[str, Session] = {}
        self.told: dict[str, Checked] = {}
        self.sent = 0
        self.node = self._start(1_000_000, None)

    def _start(self, spill_after_bytes: int | None, max_store_bytes: int | None) -> Node:
        options = NodeOptions(data=self.folder, spill_after_bytes=spill_after_bytes, max_store_bytes=max_store_bytes)
        node = Node(alone(), "s1", options)
        node.hooks.on_messages = self._feed
        return node

    def _feed(self, names: Collection[str]) -> None:
        for name in names:
            self.safe[name] = self.node.directory.state.mailboxes[name].position
            if name in self.sessions:
                self.sessions[name].feed.send()

    async def act(self, what: str, one: Any, other: Any) -> None:
        node = self.node
        if what == "send":
            self._send(one, other)
        elif what == "read":
            self._read(one, other)
        elif what == "come":
            self.told[one] = Checked(self.messages[one], node.acknowledgements.of(one))
            self.sessions[one] = Session(node, one, self.told[one])
            node.directory.mailboxes.here.add(one)
        elif what == "go":
            self.sessions.pop(one, None)
            node.directory.mailboxes.here.discard(one)
        elif what == "commit":
            await self._settle()
        elif what == "snapshot":
            await self._settle()
            if not node.driver.commits.stalled:
                await node.driver.commits.compact()
        elif what == "look":
            node.look_after_backlog()
        else:
            await self.crash(one, *other)

    def _send(self, to: str, count: int) -> None:
        mailbox = self.node.directory.state.mailboxes["ann"]
        for size in (1, 3, 2)[: count % 4] or (1,) * count:
            self.sent += 1
            body = b"%d:" % self.sent + bytes(self.sent * 7 % 30)
            try:
                self.node.intake.submit(Batch("ann", mailbox.sent + 1, size, (to,), None, body))
            except Busy:
                return
            self.messages[to] += [(body, index) for index in range(size)]

    def _read(self, client: str, count: int) -> None:
        session = self.sessions.get(client)
        if session is not None:
            upto = min(self.told[client].last, self.node.acknowledgements.of(client) + count)
            session.feed.acknowledge(upto, upto + count)

    async def _settle(self) -> None:
        """Wait until what can be durable is."""
        while (commits := self.node.driver.commits.task) is not None and not self.node.driver.commits.stalled:
            await asyncio.wait([commits], timeout=LOOK_EVERY_S)
        for name in CLIENTS:
            if not self.node.driver.commits.stalled:
                self.done[name] = self.node.directory.state.mailboxes[name].acknowledged

    async def crash(self, how: str, spill_after_bytes: int | None, max_store_bytes: int | None) -> None:
        driver = self.node.driver
        if driver.commits.task is not None:
            driver.commits.task.cancel()
            await asyncio.gather(driver.commits.task, return_exceptions=True)
            driver.commits.thread.shutdown()  # What the disk does now, it does before the crash.
        killed(self.node)
        self.disk.crash(how)
        self.sessions.clear()
        self.node = self._start(spill_after_bytes, max_store_bytes)
        self.check()

    def check(self) -> None:
        for name in CLIENTS:
            mailbox, messages = self.node.directory.state.mailboxes[name], self.messages[name]
            assert self.safe[name] <= mailbox.position <= len(messages)
            assert self.done[name] <= mailbox.acknowledged
            del messages[mailbox.position :]
            self.safe[name] = mailbox.position
            last = mailbox.front - 1
            assert last <= mailbox.acknowledged
            for first, batch in kept_in(mailbox, self.node.backlog.spill, name):
                assert first == last + 1
                assert messages[first - 1 : first - 1 + batch.count] == [
                    (bytes(batch.messages), index) for index in range(batch.count)
                ]
                last += batch.count
            assert last == mailbox.position


@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(story=st.lists(actions, min_size=5, max_size=60))
def test_every_message_comes_once_and_in_order(story: list[tuple[str, Any, Any]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            disk = Disk(Path(folder))
            with disk.watching():
                told = Story(disk)
                for name in CLIENTS:
                    await joined(told.node, name)
                for action in story:
                    await told.act(*action)
                await told.crash("killed", 1_000_000, None)
                await durable(told.node)
                await told.node.close()
                assert examine(Path(folder)).damage == []

    with small_blocks():
        asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
