"""A node that is killed at any moment knows afterwards every message that it has handed to a client, at the same position.

Small mailboxes, so that messages wait for room; acknowledgements, commits and snapshots at any moment; kills without warning.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.crashes.spills import kept_in
from tests.unit.node.test_node import PATIENCE_S, alone, durable, joined, killed
from thence.errors import Busy
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import mailbox as mailbox_module
from thence.storage.mailbox import Batch

MAX_EXAMPLES = 80
CLIENTS = ("ann", "bob")

actions = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(CLIENTS), st.integers(1, 3)),
    st.tuples(st.just("acknowledge"), st.sampled_from(CLIENTS), st.integers(0, 4)),
    st.tuples(st.sampled_from(["commit", "turn", "snapshot", "kill"]), st.none(), st.none()),
)


class Story:
    """One node after the other on the same data, and what its clients were handed."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.handed: dict[str, dict[int, bytes]] = {name: {} for name in CLIENTS}
        self.forgotten: list[str] = []
        """What a node no longer knew after a kill."""
        self.sent = 0
        self.node = self._start()

    def _start(self) -> Node:
        node = Node(alone(), "s1", NodeOptions(data=self.data))
        node.hooks.on_messages = self._hand_all
        return node

    def _hand_all(self, clients: Collection[str]) -> None:
        for client in clients:
            self._hand(client)

    def _hand(self, client: str) -> None:
        for position, batch in kept_in(self.node.directory.state.mailboxes[client], self.node.backlog.spill, client):
            assert self.handed[client].setdefault(position, batch.messages) == batch.messages

    async def act(self, what: str, client: Any, count: Any) -> None:
        node = self.node
        if what == "send":
            for _ in range(count):
                try:
                    node.intake.submit(
                        Batch("ann", node.directory.state.mailboxes["ann"].sent + 1, 1, (client,), None, b"%d" % self.sent)
                    )
                    self.sent += 1
                except Busy:
                    return
        elif what == "acknowledge":
            upto = min(max(self.handed[client], default=0), node.acknowledgements.of(client) + count)
            if upto > node.acknowledgements.of(client):
                node.acknowledgements.acknowledge(client, upto)
        elif what == "commit":
            await durable(node)
        elif what == "turn":
            await asyncio.sleep(0)
        elif what == "snapshot":
            await durable(node)
            await node.driver.commits.compact()
        else:
            await self.kill()

    async def kill(self) -> None:
        if self.node.driver.commits.task is not None:
            self.node.driver.commits.task.cancel()
            await asyncio.gather(self.node.driver.commits.task, return_exceptions=True)
        killed(self.node)
        self.node = self._start()
        for client, handed in self.handed.items():
            mailbox = self.node.directory.state.mailboxes[client]
            self.forgotten += [f"{client}'s message {position}" for position in handed if position > mailbox.position]
            self._hand(client)


@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(story=st.lists(actions, min_size=5, max_size=60))
def test_nothing_that_was_handed_out_is_forgotten(story: list[tuple[str, Any, Any]]) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            told = Story(Path(folder))
            for name in CLIENTS:
                await joined(told.node, name)
            for action in story:
                await told.act(*action)
            await told.kill()
            await durable(told.node)
            await told.node.close()
            assert told.forgotten == []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
        asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
