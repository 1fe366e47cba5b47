"""What earlier versions wrote is read: frames, and stores. The bytes are in ``tests/golden``; see
``tests.support.golden_bytes``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from examples.bank import Account
from tests.support import golden_bytes
from tests.support.golden_bytes import DELIVER, FOLDER, SAID, packet_bytes, packets, said_bytes
from thence.agents.kinds import kinds_of
from thence.core.member.codec import FORMAT_VERSION, decode_packet
from thence.core.ordering import ORDERINGS
from thence.core.places.link_end import LINK_STAMPS
from thence.core.topology.toml import parse
from thence.net import protocol
from thence.net.protocol import PROTOCOL, ClientHello, ServerHello, agreed, understand
from thence.node.offline.inspection import examine
from thence.node.options import NodeOptions
from thence.server.server import Server
from thence.storage.segments import FORMAT_VERSION as STORE_VERSION

FRAMES = sorted(FOLDER.glob("protocol-*.txt"))
STORES = sorted(FOLDER.glob("store-*.txt"))


def test_there_are_bytes_of_this_version() -> None:
    assert FOLDER / f"protocol-{PROTOCOL}-{FORMAT_VERSION}.txt" in FRAMES
    assert FOLDER / f"store-{STORE_VERSION}-{FORMAT_VERSION}-running.txt" in STORES
    assert FOLDER / f"store-{STORE_VERSION}-{FORMAT_VERSION}-stopped.txt" in STORES


@pytest.mark.parametrize("file", FRAMES, ids=lambda file: file.stem)
def test_frames_of_old_are_read(file: Path) -> None:
    told = golden_bytes.read(file)
    for name, said in SAID.items():
        assert understand(memoryview(told[name]), "an old server") == said
    read: Any = understand(memoryview(told["deliver"]), "an old server")
    assert (read.position, read.skip, read.sender, read.topic, bytes(read.messages)) == (
        DELIVER.position,
        DELIVER.skip,
        DELIVER.sender,
        DELIVER.topic,
        DELIVER.messages,
    )
    for name, packet in packets().items():
        assert decode_packet(memoryview(told[name])[1:], "an old server") == packet, name


def test_every_kind_of_frame_and_stamp_is_among_them() -> None:
    leading = {"ViewRequest", "ViewAnswer", "OperatorQuestion", "OperatorAnswer"}  # Operators use one version for all servers.
    later = {"ServerAgreed", "Stated"}  # The version that wrote them knew no epochs.
    kinds = {type(said).__name__ for said in SAID.values()} | {"Deliver"}
    assert kinds == {kind.__name__ for kind in protocol.KINDS} - leading - later
    named = packets()
    assert set(ORDERINGS) <= {name.split()[0] for name in named}
    stamps = {type(frame.stamp) for packet in named.values() for frame in packet.frames}
    assert set(LINK_STAMPS) & stamps


@pytest.mark.parametrize("name", [name for name, said in SAID.items() if len(msgspec.structs.fields(said))])
def test_fields_of_a_later_version_are_left_out(name: str) -> None:
    plain = said_bytes(SAID[name])
    elements = msgspec.msgpack.decode(plain[1:])
    longer = plain[:1] + msgspec.msgpack.encode([*elements, "something new", {"a": 1}])
    assert understand(memoryview(longer), "a later server") == SAID[name]


def test_bytes_are_written_as_they_are_read() -> None:
    told = golden_bytes.read(FOLDER / f"protocol-{PROTOCOL}-{FORMAT_VERSION}.txt")
    assert {name: packet_bytes(packet) for name, packet in packets().items()}.items() <= told.items()


@pytest.mark.parametrize(
    ("oldest", "newest", "spoken"), [(1, 1, 2), (1, 2, 2), (2, 3, 3), (3, 5, 3), (4, 5, 0), (0, 1, 0), (1, 9, 3)]
)
def test_the_newest_that_both_know_is_spoken(oldest: int, newest: int, spoken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "OLDEST_PROTOCOL", 2)
    monkeypatch.setattr(protocol, "PROTOCOL", 3)
    expected = 0 if newest < 2 else spoken
    assert agreed(ServerHello(newest, "f", "0", "a", "b", "i", oldest=oldest)) == expected
    assert agreed(ClientHello(newest, "ann", oldest=oldest)) == expected


@pytest.mark.parametrize("file", STORES, ids=lambda file: file.stem)
async def test_stores_of_old_are_read_and_gone_on_with(file: Path, tmp_path: Path) -> None:
    data = tmp_path / "s1"
    data.mkdir()
    for name, content in golden_bytes.read(file).items():
        (data / name).write_bytes(content)
    assert not examine(data).damage
    topology = parse('name = "golden"\n[domains.D]\nmembers = ["s1", "s2"]\nordering = "matrix"\n')
    server = Server(topology, "s1", NodeOptions(data=data), kinds_of([Account]))
    await server.start("127.0.0.1:0")
    try:
        assert server.node.directory.state.followers == {"room.42": {"ann": None}}
        assert server.node.directory.home("cleo") == "s2"
        async with thence.connect(f"thence://{server.address}", "ann") as ann:
            message = await ann.receive()
            if message.body == b"one":  # Done with, or not yet known to be, when the store was copied.
                message = await ann.receive()
            assert (message.value(), message.headers, message.sender) == ({"two": 2}, {"a": "b"}, "cleo")
            shown = await ann.agents.show("till")
            assert shown["state"] == {"balance": 22, "refused": 0}
            await ann.send("cleo", b"kept for a neighbour that is away")
            assert server.node.member.attachment.queued()["s2"] > 0
    finally:
        await server.stop(drain_s=0)
