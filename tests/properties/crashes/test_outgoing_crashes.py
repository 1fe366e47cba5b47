"""Messages for a peer that comes and goes, snapshots, full disks and crashes in any order: it gets each once, in order.

The node is real, on real files, and the peer is played (``far_side.py``): it refuses at once what comes twice or too early.
A crash is a kill, or a power failure that takes what was not synced. Each start may spill or not, and with other limits.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.crashes.test_spill_crashes import CRASHES, Disk
from tests.support.far_side import FarSide, outgoing, send, small_files, started
from tests.unit.node.test_node import PATIENCE_S, durable, killed
from thence.errors import StoreFull
from thence.node.offline.inspection import examine
from thence.storage import files

MAX_EXAMPLES = 25
LOOK_EVERY_S = 0.001
"""How often it is looked whether the disk is full."""
SPILLING = (None, 60, 1_000_000)
STORES = (None, 12_000)

actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 20), st.none()),
    st.tuples(st.just("take"), st.integers(1, 6), st.none()),
    st.tuples(st.sampled_from(["meet", "part", "commit", "snapshot", "look"]), st.none(), st.none()),
    st.tuples(st.just("full"), st.booleans(), st.none()),
    st.tuples(st.just("crash"), st.sampled_from(CRASHES), st.tuples(st.sampled_from(SPILLING), st.sampled_from(STORES))),
)


class Story:
    """One node after the other on the same folder, and one peer."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.far = FarSide()
        self.node = started(disk.folder)
        self.sent = 0
        """How many messages the node has taken,"""
        self.safe = 0
        """and how many of them must survive."""
        self.full = False

    def refuse(self, path: Path) -> None:
        """Be full, if the disk is to be, for what is spilled."""
        if self.full and path.name.startswith("spill"):
            raise StoreFull(f"{path}: no space left")

    async def act(self, what: str, one: Any, other: Any) -> None:
        node, far = self.node, self.far
        if what == "send":
            self.sent += send(node, self.sent + 1, one)
        elif what == "take":
            await self._settle()
            if not node.driver.commits.stalled:
                await far.take(node, packets=one)
        elif what == "meet":
            far.meet(node)
        elif what == "part":
            far.part(node)
        elif what == "commit":
            await self._settle()
        elif what == "snapshot":
            await self._settle()
            if not node.driver.commits.stalled:
                await node.driver.commits.compact()
        elif what == "look":
            node.look_after_backlog()
        elif what == "full":
            self.full = one
        else:
            await self.crash(one, *other)

    async def _settle(self) -> None:
        """Wait until what can be durable is."""
        while (commits := self.node.driver.commits.task) is not None and not self.node.driver.commits.stalled:
            await asyncio.wait([commits], timeout=LOOK_EVERY_S)
        if not self.node.driver.commits.stalled:
            self.safe = self.sent

    async def crash(self, how: str, spill_after_bytes: int | None, max_store_bytes: int | None) -> None:
        driver = self.node.driver
        if driver.commits.task is not None:
            driver.commits.task.cancel()
            await asyncio.gather(driver.commits.task, return_exceptions=True)
            driver.commits.thread.shutdown()  # What the disk does now, it does before the crash.
        killed(self.node)
        self.disk.crash(how)
        self.node = started(self.disk.folder, spill_after_bytes, max_store_bytes=max_store_bytes)
        self.far.part(self.node)
        sent = self.node.directory.state.mailboxes["ann"].sent
        assert max(self.safe, self.far.messages) <= sent <= self.sent
        self.sent = self.safe = sent


@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(story=st.lists(actions, min_size=5, max_size=60))
def test_the_peer_gets_every_message_once_and_in_order(story: list[tuple[str, Any, Any]]) -> None:
    async def main(patch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory() as folder:
            disk = Disk(Path(folder))
            with disk.watching():
                told = Story(disk)
                real = files.write_all

                def write_all(descriptor: int, data: bytes, offset: int, path: Path) -> None:
                    told.refuse(path)
                    real(descriptor, data, offset, path)

                patch.setattr(files, "write_all", write_all)
                await told.far.introduce(told.node)
                for action in story:
                    await told.act(*action)
                told.full = False
                await told.crash("killed", 1_000_000, None)
                told.far.meet(told.node)
                await told.far.take(told.node)
                assert told.far.messages == told.sent
                assert outgoing(told.node).files() == []
                await durable(told.node)
                await told.node.close()
                assert examine(Path(folder)).damage == []

    with small_files(), pytest.MonkeyPatch.context() as patch:
        asyncio.run(asyncio.wait_for(main(patch), PATIENCE_S))
