"""A peer for tests that is played by hand: it is away until it is told to be there, and notes what it gets.

Messages are numbered from 1 by their bodies. What comes twice, or before its turn, is an error at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.node.test_node import durable, joined
from thence.core.member.spill import Way
from thence.core.ordering import ArrivalOrder, make_ordering
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.transport import channel as channel_module
from thence.core.transport.channel import Channel
from thence.core.wire.messages import Envelope, Packet
from thence.errors import Busy
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import mailbox as mailbox_module
from thence.storage import spill as spill_module
from thence.storage.bodies import Joined, read_body
from thence.storage.frame_spill import Outgoing
from thence.storage.mailbox import Batch

WAY = Way("D", "s2")
WINDOW = 3
IN_MEMORY = 4
INCARNATION = "the store of s2"


def two() -> Topology:
    """Return a fabric of two servers, one of which is played."""
    return parse('name = "two"\n[domains.D]\nmembers = ["s1", "s2"]\nordering = "vector"\n')


@contextmanager
def small_files() -> Iterator[None]:
    """Let few frames be on their way and in memory, and few be in a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_module, "WINDOW", WINDOW)
        patch.setattr(mailbox_module, "SPILL_AFTER_MESSAGES", IN_MEMORY)
        patch.setattr(mailbox_module, "BLOCK_BATCHES", 2)
        patch.setattr(spill_module, "SPILL_FILE_BYTES", 400)
        yield


def started(folder: Path, spill_after_bytes: int | None = 1_000_000, **options: Any) -> Node:
    return Node(two(), "s1", NodeOptions(data=folder, spill_after_bytes=spill_after_bytes, **options))


def outgoing(node: Node) -> Outgoing:
    assert node.backlog.outgoing is not None
    return node.backlog.outgoing


def item(number: int) -> bytes:
    return b"%d:" % number + bytes(number * 7 % 40)


def send(node: Node, first: int, count: int, to: tuple[str, ...] | None = ("bob",)) -> int:
    """Send messages with these numbers to bob at the far side, or to everyone; return how many the node takes."""
    for number in range(first, first + count):
        try:
            assert node.intake.submit(Batch("ann", number, 1, to, None, item(number)))
        except Busy:
            return number - first
    return count


class FarSide:
    """See the module's text."""

    def __init__(self, taken: int = 0, messages: int = 0) -> None:
        """It has taken so many frames, with so many messages in them."""
        self.channel = Channel(ArrivalOrder.FIFO)
        self.channel.state.received.upto = taken
        self.messages = messages
        self.packets: list[Packet[Any]] = []

    @property
    def taken(self) -> int:
        return self.channel.state.received.upto

    def meet(self, node: Node) -> None:
        """Be there for this node."""
        self.packets.clear()
        setattr(node.peers, "send", self._send)  # noqa: B010  It is a method.
        node.peers.events.connected("s2", INCARNATION)

    def part(self, node: Node) -> None:
        """Be away."""
        self.packets.clear()
        setattr(node.peers, "send", lambda *_: None)  # noqa: B010

    def _send(self, peer: str, packet: Packet[Any]) -> None:
        assert peer == "s2"
        self.packets.append(packet)

    async def introduce(self, node: Node) -> None:
        """Let ann be at this node, and bob here."""
        await joined(node, "ann")
        body = node.directory.write(Joined("bob", "s2", temporary=False))
        made = make_ordering("vector", "s2", ("s1", "s2"), None).send(Envelope("s2", 1, None, body), None)
        node.peers.events.arrived("s2", Packet("D", tuple(frame for _, frame in made.send), (1,)))
        await durable(node)
        assert node.directory.home("bob") == "s2"

    async def take(self, node: Node, packets: int = 1_000_000) -> None:
        """Take what comes, and ack it, until nothing comes any more."""
        await durable(node)
        while self.packets and packets:
            packets -= 1
            for number, frame in self.channel.arrived(self.packets.pop(0), 0):
                assert self.channel.state.received.add(number), f"frame {number} comes twice"
                assert frame.envelope is not None
                body = read_body(frame.envelope.body, "s1")
                if isinstance(body, Batch):
                    self.messages += 1
                    assert bytes(body.messages) == item(self.messages)
            answer = self.channel.collect("D", 0)
            if answer is not None:
                node.peers.events.arrived("s2", answer)
            await durable(node)
