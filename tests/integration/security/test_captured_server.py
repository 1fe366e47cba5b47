"""What a captured server, with a true certificate, can do to others. docs/how-to/security.md says it, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, addressed, started, until, url
from tests.support.servers.securing import Speaker
from thence.core.ordering.sequenced import SequencedOrder, SequencedRequest
from thence.core.ordering.vector import VectorStamp
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.net.protocol import PROTOCOL, BatchItem, ServerHello, ServerWelcome, write_messages
from thence.node.directory import announcement_checks
from thence.server.server import Server
from thence.storage.bodies import MAX_KNOWN, Body, Follows, Joined, Known, Left, write_body
from thence.storage.mailbox import Batch

FLAT = """
name = "flat"
[domains.A]
members = ["s1", "s2", "s3", "s4"]
ordering = "vector"
"""

SEQUENCED = """
name = "line"
[domains.A]
members = ["s1", "s2"]
ordering = {{ name = "sequenced", coordinator = "{0}" }}
"""


@asynccontextmanager
async def captured(topology: Topology) -> AsyncIterator[tuple[Server, Speaker]]:
    """Run s1, and be its peer s2 by hand."""
    server = await started(topology, "s1")
    try:
        evil = await Speaker.call(topology.addresses["s1"])
        evil.say(ServerHello(PROTOCOL, topology.name, topology.fingerprint, "s2", "s1", "0123"))
        assert isinstance(await evil.hear(), ServerWelcome)
        yield server, evil
        evil.close()
    finally:
        await server.stop(drain_s=0)


def packet(
    number: int, body: Body | bytes, origin: str = "s2", stamp: Any = None, to: tuple[str, ...] | None = None
) -> Packet[Any]:
    """Return a packet with one message."""
    written = body if isinstance(body, bytes) else write_body(body)
    return Packet("A", (Frame(stamp or VectorStamp(number, ()), Envelope(origin, number, to, written)),), (number,))


LAST = 1_000_000


@pytest.mark.parametrize(
    ("ordering", "stamp", "number"),
    [
        ("vector", VectorStamp(1, ()), 1),
        ("vector", VectorStamp(1, ()), LAST),
        ("coordinator s1", SequencedRequest(1, None), 1),
        ("coordinator s2", SequencedOrder(1), LAST),
    ],
    ids=["that we sent", "that we never sent", "to us as the coordinator", "by the coordinator"],
)
async def test_nobody_forges_a_message_of_its_receiver(
    ordering: str, stamp: Any, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What came in the name of the receiver was believed: it removed the mailboxes of its own clients."""
    topology = addressed(FLAT if ordering == "vector" else SEQUENCED.format(ordering[-2:]))
    async with captured(topology) as (server, evil):
        if ordering != "coordinator s2":  # Otherwise nobody comes in while s2 does not pass it on.
            async with thence.connect(url(topology, "s1"), "ann"):
                pass
        mailboxes = list(server.node.directory.state.mailboxes)
        frame = Frame(stamp, Envelope("s1", number, None, write_body(Left("ann", "s1"))))
        evil.say_packet(Packet("A", (frame,), (1,)))
        await until(lambda: server.node.peers.refusals.counts == {"ImpossibleFrame": 1})
        assert list(server.node.directory.state.mailboxes) == mailboxes
    lines = [record.getMessage() for record in caplog.records if "forged" in record.getMessage()]
    assert len(lines) == 1
    assert f"frame 1 from 's2' at 's1': message s1:{number} is forged" in lines[0]


THREE = """
name = "three"
[domains.A]
members = ["s1", "s2", "s3"]
ordering = "vector"
[domains.B]
members = ["s3", "s4"]
"""


@pytest.mark.parametrize("origin", ["s3", "s4", "nobody"], ids=["another member", "one beyond a relay", "nobody"])
@pytest.mark.parametrize("domains", [1, 2])
async def test_a_server_speaks_for_itself_and_for_those_beyond_it(origin: str, domains: int) -> None:
    topology = addressed(THREE if domains == 2 else FLAT)
    async with captured(topology) as (server, evil):
        evil.say_packet(packet(1, Joined("eve", origin, False), origin))
        evil.say_packet(packet(2, Joined("bob", "s2", False), stamp=VectorStamp(1, ())))
        await until(lambda: server.node.directory.home("bob") == "s2")
        assert server.node.directory.home("eve") is None
        assert server.node.peers.refusals.counts == {"ImpossibleFrame": 1}


async def test_recipients_that_there_are_not_are_refused_in_one_domain_too() -> None:
    topology = addressed(FLAT)
    async with captured(topology) as (server, evil), thence.connect(url(topology, "s1"), "ann") as ann:
        evil.say_packet(packet(1, Joined("eve", "s2", False), to=("s1", "s9")))
        await until(lambda: server.node.peers.refusals.counts == {"ImpossibleFrame": 1})
        await ann.send("ann", b"served")
        assert (await ann.receive(within=PATIENCE_S)).body == b"served"


async def test_a_packet_of_many_short_frames_ends_the_connection_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """64 MiB of them took 1.2 GiB."""
    topology = addressed(FLAT)
    async with captured(topology) as (server, evil), thence.connect(url(topology, "s1"), "ann") as ann:
        evil.say_packet(Packet("A", (Frame[Any](VectorStamp(1, ()), None),) * 100_000))
        assert await evil.ended()
        await ann.send("ann", b"served")
        assert (await ann.receive(within=PATIENCE_S)).body == b"served"
        assert not server.node.peers.peers["s2"].up
    lines = [record.getMessage() for record in caplog.records if "100000 frames" in record.getMessage()]
    assert lines == ["s2: connection lost: a packet from 's2' with 100000 frames; here at most 1024 are sent at once"]


LONG = "x" * 201

BEYOND: dict[str, tuple[Body, str]] = {
    "a long name": (Joined(LONG, "s2", False), "that no directory wrote: Expected `str` of length <= 200"),
    "a long topic": (Follows("eve", LONG, True), "that no directory wrote: Expected `str` of length <= 200"),
    "long names at once": (Known("s2", {LONG: False}, []), "that no directory wrote: Expected `str` of length <= 200"),
    "too many at once": (
        Known("s2", {f"c{number}": False for number in range(MAX_KNOWN + 1)}, []),
        "that no directory wrote: Expected `object` of length <= 10000",
    ),
    "a message of a long name": (
        Batch(LONG, 1, 1, ("ann",), None, write_messages([BatchItem(b"")])),
        "with a name or a topic that is too long",
    ),
    "what a client of another follows": (Follows("ann", "news", True), "about what a client of 's1' follows"),
}


@pytest.mark.parametrize(("forged", "why"), BEYOND.values(), ids=BEYOND)
async def test_what_a_server_tells_is_held_to_the_limits_of_its_receiver(
    forged: Body, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Names of 1 MB were kept by all servers; the log says it once."""
    topology = addressed(FLAT)
    async with captured(topology) as (server, evil), thence.connect(url(topology, "s1"), "ann") as ann:
        for number in (1, 2):
            evil.say_packet(packet(number, forged))
        evil.say_packet(packet(3, Joined("bob", "s2", False)))
        await until(lambda: server.node.directory.home("bob") == "s2")
        assert list(server.node.directory.state.claims) == ["ann", "bob"]
        assert not server.node.directory.state.followers
        await ann.send("ann", b"served")
        assert (await ann.receive(within=PATIENCE_S)).body == b"served"
    lines = [record.getMessage() for record in caplog.records if why in record.getMessage()]
    assert len(lines) == 1
    assert "a message of 's2' " in lines[0]


async def test_a_server_tells_of_so_many_clients_and_subscriptions(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that it takes back make room for others, also after a restart."""
    monkeypatch.setattr(announcement_checks, "MAX_ANNOUNCED_CLIENTS", 2)
    monkeypatch.setattr(announcement_checks, "MAX_ANNOUNCED_FOLLOWS", 2)
    tells: list[Body] = [Joined(name, "s2", False) for name in ("a", "b", "c", "d")]
    tells += [Follows("a", topic, True) for topic in ("t", "u", "v")]
    tells += [Left("a", "s2"), Joined("e", "s2", False), Follows("e", "w", True), Joined("f", "s2", False)]
    topology = addressed(FLAT)
    async with captured(topology) as (server, evil):
        for number, body in enumerate(tells, 1):
            evil.say_packet(packet(number, body))
        directory = server.node.directory
        await until(lambda: "w" in directory.state.followers)
        await until(lambda: server.node.dispatch.handover.unreadable == 4)
        assert list(directory.state.claims) == ["b", "e"]
        directory.restore(directory.snapshot())
        more: list[Body] = [Joined("g", "s2", False), Left("b", "s2"), Joined("h", "s2", False)]
        for number, body in enumerate(more, len(tells) + 1):
            evil.say_packet(packet(number, body))
        await until(lambda: directory.home("h") == "s2")
        assert list(directory.state.claims) == ["e", "h"]
    lines = [record.getMessage() for record in caplog.records if "MAX_ANNOUNCED" in record.getMessage()]
    assert [line.partition(": ")[2] for line in lines] == [
        "'s2' tells of more clients than MAX_ANNOUNCED_CLIENTS (2)",
        "'s2' tells of more subscriptions than MAX_ANNOUNCED_FOLLOWS (2)",
    ]
