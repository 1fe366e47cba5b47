"""A node brings back what it had, wherever it was killed, and takes nothing that it could not store. No sockets, no processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from thence.core.topology import Topology
from thence.core.topology_text import parse
from thence.runtime import office
from thence.runtime.node import Node, NodeOptions
from thence.runtime.office import Bundle, Joined

PATIENCE_S = 30.0


def alone() -> Topology:
    """Return a fabric of one server."""
    return parse('name = "alone"\n[domains.D]\nmembers = ["s1"]\n')


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test's coroutine, but not for ever."""
    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))


def killed(node: Node) -> None:
    """Do what a kill does: the lock is given back, and nothing else happens."""
    node.store.close()


async def durable(node: Node) -> None:
    """Wait until everything is on disk and has been handed over."""
    while node.driver._committing is not None:  # noqa: ASYNC110  The driver tells nobody.
        await asyncio.sleep(0)


async def joined(node: Node, name: str) -> None:
    node.announce(Joined(name, node.name, temporary=False))
    await durable(node)


async def sent(node: Node, sender: str, first: int, count: int, to: str) -> None:
    """Send ``count`` bundles of one letter."""
    for number in range(first, first + count):
        assert node.submit(Bundle(sender, number, 1, (to,), None, b"letter"))
    await durable(node)


def test_a_killed_node_has_all_that_was_durable(tmp_path: Path) -> None:
    async def main() -> None:
        node = Node(alone(), "s1", NodeOptions(data=tmp_path))
        await joined(node, "bob")
        await sent(node, "bob", 1, 10, "bob")
        node.acknowledge("bob", 4)
        await durable(node)
        killed(node)
        box = Node(alone(), "s1", NodeOptions(data=tmp_path)).office.state.boxes["bob"]
        assert (box.sent, box.position, box.acknowledged, sorted(box.waiting)) == (10, 10, 4, [5, 6, 7, 8, 9, 10])

    run(main)


def test_what_was_acknowledged_behind_a_full_box_does_not_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "MAX_BOX_LETTERS", 3)

    async def main() -> None:
        node = Node(alone(), "s1", NodeOptions(data=tmp_path))
        await joined(node, "bob")
        for first in (1, 4, 7):
            await sent(node, "bob", first, 3, "bob")
            assert node.office.full == "bob"
            node.acknowledge("bob", first + 1)
            node.acknowledge("bob", first + 2)
        await durable(node)
        killed(node)
        again = Node(alone(), "s1", NodeOptions(data=tmp_path))
        box = again.office.state.boxes["bob"]
        assert (box.position, box.acknowledged, box.waiting, again.held) == (9, 9, {}, 0)

    run(main)
