"""Bytes of every version that must still be read, as text in ``tests/golden``: frames between servers and clients, and a store.

``python -m tests.support.golden_bytes`` writes those of this version. A file of a version that was released is never written
again: what it holds is on disks and in networks of others. As long as nothing was released, a change of a format may write it
anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import thence
from examples.bank import Account, AccountState, Deposit
from tests.support.servers.running import started, until
from thence.agents.kinds import kinds_of
from thence.core.epochs.progress import Progress
from thence.core.member.codec import FORMAT_VERSION, encode_packet
from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.member import Member
from thence.core.ordering import ORDERINGS
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.messages import Packet
from thence.net import protocol
from thence.net.protocol import PROTOCOL, BatchItem, write_messages
from thence.node.offline.backup import backup
from thence.node.options import NodeOptions
from thence.server.server import Server
from thence.storage.segments import FORMAT_VERSION as STORE_VERSION

FOLDER: Final = Path(__file__).parents[1] / "golden"
MESSAGES: Final = write_messages([BatchItem(b"one"), BatchItem(b"\x01", True, {"a": "b"}, 2, 3)])
LINKED: Final = """
name = "linked"
[domains.A]
members = ["s1", "s2"]
[domains.C]
members = ["s3", "s4"]
[[links]]
between = ["A", "C"]
relays = [["s1", "s3"], ["s2", "s4"]]
"""

RELAYED: Final = """
name = "relayed"
[domains.one]
members = ["s1", "s2"]
[domains.two]
members = ["s3", "s4"]
[domains.main]
members = ["s1", "s3"]
ordering = "relayed"
"""

SAID: Final[dict[str, protocol.ControlFrame]] = {
    "server hello": protocol.ServerHello(1, "city", "0123abcd", "s1", "s2", "ffff", 3, {"A": Progress(5, 4, 3, 4)}, 1),
    "server welcome": protocol.ServerWelcome("s2", "eeee", {"A": Progress(4, 3, 5, 5)}, 1),
    "refused": protocol.Refused("not now", True, 4, "4567"),
    "ping": protocol.Ping(),
    "client hello": protocol.ClientHello(1, "ann", True),
    "client welcome": protocol.ClientWelcome("s1", "city", 7, 6, 5, 4),
    "publish": protocol.Publish(3, 2, ("bob", "cleo"), None, MESSAGES, False),
    "publish on a topic": protocol.Publish(5, 2, None, "room.42", MESSAGES),
    "accepted": protocol.Accepted(9),
    "undeliverable": protocol.Undeliverable(3, 2, "nobody is called 'x'"),
    "acknowledge": protocol.Acknowledge(12, 16_396),
    "subscribe": protocol.Subscribe("room.42", True),
    "subscribed": protocol.Subscribed("room.42", False),
    "find": protocol.Find("bob"),
    "found": protocol.NameFound("bob"),
    "challenge": protocol.Challenge("s1", "city", b"0123456789abcdef"),
    "proof": protocol.Proof(b"proof"),
    "denied": protocol.Denied("topic", "room.42", "not allowed"),
    "stable question": protocol.StableQuestion(9),
    "stable": protocol.Stable(9, "it has left"),
    "safety wanted": protocol.SafetyWanted(),
    "safe": protocol.Safe(9, "nobody finds out"),
    "status question": protocol.StatusQuestion(),
    "status answer": protocol.StatusAnswer(b"{}"),
    "leave": protocol.Leave(),
    "agent question": protocol.AgentQuestion(1, b"{}"),
    "agent answer": protocol.AgentAnswer(1, b"{}", "no"),
}
"""One of each kind of frame that is no packet, but for what only leads a change of the fabric."""

DELIVER: Final = protocol.Deliver(4, 1, "bob", "room.42", MESSAGES)


def packets() -> dict[str, Packet[Any]]:
    """Return packets with the stamps of every ordering, and of links: the same ones each time."""
    found: dict[str, Packet[Any]] = {}
    for ordering in ORDERINGS:
        text = f'name = "f"\n[domains.D]\nmembers = ["a", "b", "c"]\nordering = "{ordering}"\n'
        topology = parse(text, force=True)
        found |= {f"{ordering} {name}": packet for name, packet in _exchanged(topology)}
    found |= {f"link {name}": packet for name, packet in _exchanged(parse(LINKED))}
    return found | {f"seen {name}": packet for name, packet in _exchanged(parse(RELAYED))}


def _exchanged(topology: Topology) -> Iterator[tuple[str, Packet[Any]]]:
    """Let members send to all, in turn, and give the first packet of each kind of stamp."""
    members = {name: Member(name, topology) for name in topology.processes}
    flying: list[tuple[str, str, Packet[Any]]] = []
    for member in members.values():
        member.step(Restored(None, (), 0), 0)
    seen: set[str] = set()
    for now, sender in enumerate([*topology.processes, *topology.processes], start=1):
        ready = members[sender].step(Submit(None, f"from {sender}".encode()), now)
        flying += [(sender, to, packet) for to, packet in ready.send]
        while flying:
            peer, to, packet = flying.pop(0)
            kinds = {type(frame.stamp).__name__ for frame in packet.frames} - seen
            if kinds:
                seen |= kinds
                yield f"{peer} to {to}, {' and '.join(sorted(kinds))}", packet
            ready = members[to].step(Arrived(peer, packet), now)
            flying += [(to, peer, answer) for peer, answer in ready.send]


def said_bytes(said: protocol.ControlFrame) -> bytes:
    """Return a frame as it is sent, without its length and checksums."""
    return protocol.CONTROL_KIND + protocol.encode_value(said)


def packet_bytes(packet: Packet[Any]) -> bytes:
    """Return a packet as it is sent."""
    return bytes([protocol.PACKET]) + encode_packet(packet)


async def stores(folder: Path) -> dict[str, dict[str, bytes]]:
    """Return two stores of a server, as files with their bytes: one in the middle of its work, one of an orderly stop."""
    topology = parse('name = "golden"\n[domains.D]\nmembers = ["s1", "s2"]\nordering = "matrix"\n')
    topology = topology.at({"s1": "127.0.0.1:0", "s2": "127.0.0.1:0"})
    server = Server(topology, "s1", NodeOptions(data=folder / "s1"), kinds_of([Account]))
    await server.start("127.0.0.1:0")
    other = await started(topology.at({"s1": server.address, "s2": "127.0.0.1:0"}), "s2", folder)
    server.node.peers.peers["s2"].address = other.address
    await server.node.peers.wait_connected()
    async with (
        thence.connect(f"thence://{server.address}", "ann") as ann,
        thence.connect(f"thence://{other.address}", "cleo") as cleo,
    ):
        await ann.subscribe("room.42")
        await ann.agents.create("till", "Account", AccountState(10))
        assert (await ann.request("till", Deposit(5))).value(int) == 10
        await cleo.known("ann")
        await cleo.send("ann", b"one")
        await cleo.send("ann", {"two": 2}, headers={"a": "b"})
        assert (await ann.receive()).body == b"one"
        ann.done()
        await cleo.send("till", Deposit(7))
        await until(lambda: server.engine.reactions == 2)
        await until(lambda: not server.node.driver.full and server.node.driver.store.durable == server.node.driver.store.appended)
        backup(folder / "s1", folder / "running")
    await other.stop(drain_s=0)
    await server.stop(drain_s=0)
    wanted = {"running": folder / "running", "stopped": folder / "s1"}
    return {
        name: {path.name: path.read_bytes() for path in sorted(where.iterdir()) if path.name != "lock"}
        for name, where in wanted.items()
    }


def main() -> None:
    """Write the bytes of this version."""
    FOLDER.mkdir(exist_ok=True)
    frames = {name: said_bytes(said) for name, said in (SAID | {"deliver": DELIVER}).items()}
    frames |= {name: packet_bytes(packet) for name, packet in packets().items()}
    _write(FOLDER / f"protocol-{PROTOCOL}-{FORMAT_VERSION}.txt", frames)
    with TemporaryDirectory() as folder:
        found = asyncio.run(stores(Path(folder)))
    for name, kept in found.items():
        _write(FOLDER / f"store-{STORE_VERSION}-{FORMAT_VERSION}-{name}.txt", kept)


def _write(path: Path, named: dict[str, bytes]) -> None:
    path.write_text("".join(f"{name}: {data.hex()}\n" for name, data in named.items()), encoding="ascii")


def read(path: Path) -> dict[str, bytes]:
    """Return what a file holds, by name."""
    lines = path.read_text(encoding="ascii").splitlines()
    return {name: bytes.fromhex(data) for name, _, data in (line.partition(": ") for line in lines)}


if __name__ == "__main__":
    main()
