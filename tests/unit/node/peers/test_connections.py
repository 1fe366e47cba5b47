"""The connections to peers, as far as they can be looked at without a network: test_faults.py has the rest."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.servers.running import until
from thence.core.topology.toml import parse
from thence.core.wire.messages import Envelope, Frame, Packet, SafeAck, StableAck
from thence.net.framing import Connection
from thence.node.peers import connections, outgoing_calls
from thence.node.peers.connections import Peers
from thence.node.peers.peer import peers_of

TOPOLOGY = parse("""
name = "two"
[domains.A]
members = ["s1", "s2"]
[domains.B]
members = ["s2", "s3"]
[domains.C]
members = ["s4", "s5"]
[[links]]
between = ["B", "C"]
relays = [["s3", "s4"]]
""")


class SlowConnection:
    """Takes everything and passes nothing on."""

    def __init__(self) -> None:
        self.writer = self
        self.unsent_bytes = 0
        self.packets = 0
        self.full = True

    def send(self, kind: bytes, value: object) -> None:
        self.packets += 1
        self.unsent_bytes += 10 * 1024 * 1024


def test_peers_share_a_domain_or_a_link() -> None:
    assert peers_of(TOPOLOGY, "s2") == ["s1", "s3"]
    assert peers_of(TOPOLOGY, "s3") == ["s2", "s4"]


async def test_packets_do_not_pile_up_for_a_peer_that_is_slow() -> None:
    made = Peers(TOPOLOGY, "s2", cast("Any", None), cast("Any", None))
    slow = SlowConnection()
    made.peers["s1"].connection = cast("Connection", slow)
    packet = Packet("A", (Frame(None, Envelope("s2", 1, None, b"")),), (1,))
    for _ in range(1_000):
        made.send("s1", packet)
    assert slow.packets == 1 + (connections.MAX_UNSENT_BYTES - 1) // (10 * 1024 * 1024)


class NotingConnection:
    """Notes the packets that go over it."""

    unsent_bytes = 0
    full = False

    def __init__(self) -> None:
        self.writer = self
        self.packets: list[Packet[Any]] = []

    def send(self, kind: bytes, value: Packet[Any]) -> None:
        self.packets.append(value)


SENT = Frame(None, Envelope("s2", 1, None, b""))
HOLE = StableAck(3, beyond=(7,))


def says(**what: Any) -> Packet[Any]:
    """Return a packet without messages."""
    return Packet("A", (), **what)


CONFIRMS: tuple[tuple[str, list[Packet[Any]], list[int]], ...] = (
    ("the last says all", [says(acked=4), says(acked=5)], [1]),
    ("one with messages says it too", [says(acked=4), Packet("A", (SENT,), (1,), 4)], [1]),
    ("a stable ack acks nothing else", [says(acked=4), says(stable_ack=StableAck(3))], [0, 1]),
    ("nor does what is safe", [says(acked=4), says(safe_ack=SafeAck(3))], [0, 1]),
    ("a later one says as much", [says(acked=4, stable_ack=StableAck(3)), says(acked=5, stable_ack=StableAck(4))], [1]),
    ("unless it leaves something out", [says(acked=4, stable_ack=HOLE), says(acked=5, stable_ack=StableAck(3))], [0, 1]),
    ("also one with messages", [says(stable_ack=HOLE), Packet("A", (SENT,), (1,), 4, stable_ack=StableAck(3))], [0, 1]),
    ("a question is asked", [says(stable_ack=StableAck(3, wanted=True)), says(stable_ack=StableAck(3))], [0, 1]),
    ("whatever it is about", [says(safe_ack=SafeAck(3, wanted=True)), says(acked=2, safe_ack=SafeAck(4))], [0, 1]),
    ("holes are not forgotten", [says(acked_beyond=(2,)), says(stable_ack=StableAck(1))], [0, 1]),
    ("other domains are others", [says(acked=4), Packet("B", (), acked=5)], [0, 1]),
)  # fmt: skip


@pytest.mark.parametrize(("packets", "gone"), [case[1:] for case in CONFIRMS], ids=[case[0] for case in CONFIRMS])
async def test_a_packet_is_left_out_only_if_the_next_one_says_all_that_it_does(
    packets: list[Packet[Any]], gone: list[int]
) -> None:
    made = Peers(TOPOLOGY, "s2", cast("Any", None), cast("Any", None))
    noting = NotingConnection()
    made.peers["s1"].connection = cast("Connection", noting)
    for packet in packets:
        made.send("s1", packet)
    await asyncio.sleep(0)
    assert sorted(map(packets.index, noting.packets)) == gone


@pytest.mark.parametrize("called", ["s1", "s3"], ids=["who should call us", "whom we call"])
async def test_an_address_that_cannot_be_is_told(called: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may have one that no file can have."""
    monkeypatch.setattr(outgoing_calls, "LONELY_S", 0.0)
    made = Peers(TOPOLOGY, "s2", cast("Any", None), cast("Any", None))
    made.peers[called].address = "a..b:1"
    made.start()
    await until(lambda: "address" in made.peers[called].trouble)
    assert "'a..b:1' is no address" in made.peers[called].trouble
    await made.close()


async def test_whoever_owns_the_connections_is_told_if_they_cannot_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Peers(TOPOLOGY, "s2", cast("Any", None), cast("Any", None))
    failed: list[Exception] = []
    made.on_failed = failed.append
    made.peers["s3"].address = "127.0.0.1:1"

    async def never(_: object) -> None:
        raise ZeroDivisionError("never")

    monkeypatch.setattr(made.calls, "_call_once", never)
    made.start()
    await until(lambda: failed)
    assert str(failed[0]) == "the connections of 's2': ZeroDivisionError: never"
    await made.close()
