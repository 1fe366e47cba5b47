"""Packets that take far more memory than any that is sent are refused before they are read, and no others."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from thence.core.member import codec
from thence.core.member.codec import FORMAT_VERSION, decode_packet, encode_packet, limits_of
from thence.core.member.contract import Submit, SubmitAll
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.ordering import ORDERINGS
from thence.core.ordering.vector import VectorStamp
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.transport.channel import WINDOW
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope, Frame, Packet
from thence.errors import MalformedFrame

MEMBERS = ("s1", "s2", "s3", "s4")
LIMITS = limits_of(Topology.flat(Domain("A", MEMBERS, "vector")))
SIZE = 4 * 1024 * 1024
STAMP = msgspec.msgpack.encode(VectorStamp(1, ()))


def listed(item: bytes, size: int = SIZE) -> bytes:
    """Return a list that has about so many bytes, of one item again and again."""
    count = size // len(item)
    return b"\xdd" + count.to_bytes(4) + item * count


HEAVY: dict[str, Callable[[], bytes]] = {
    "frames": lambda: b"\x92\xa1A" + listed(b"\x92" + STAMP + b"\xc0"),
    "recipients": lambda: b"\x92\xa1A\x91\x92" + STAMP + b"\x94\xa2s2\x01" + listed(b"\xa2xy") + b"\xc4\x00",
    "recipients of several": lambda: (
        b"\x92\xa1A\x92" + 2 * (b"\x92" + STAMP + b"\x94\xa2s2\x01" + listed(b"\xa2xy", SIZE // 2) + b"\xc4\x00")
    ),
    "numbers": lambda: b"\x93\xa1A\x90" + listed(b"\xcd\xff\xff"),
    "a stamp": lambda: b"\x92\xa1A\x91\x92\x93\x02\x01" + listed(b"\xcd\xff\xff") + b"\xc0",
    "claims": lambda: b"\x96\xa1A\x90\x90\x00\x90\x91" + listed(b"\x92\x00\xcd\xff\xff"),
}


@pytest.mark.parametrize("written", HEAVY.values(), ids=HEAVY)
def test_a_packet_that_would_take_much_memory_is_refused_before_it_is_read(written: Callable[[], bytes]) -> None:
    """64 MiB of short frames, or of names, took 1.2 to 1.6 GiB beyond what was counted."""
    packet = bytes([FORMAT_VERSION]) + written()
    tracemalloc.start()
    try:
        with pytest.raises(
            MalformedFrame, match=r"a packet from 's2' with \d+ (frames|bytes beside the bodies of messages); here at most"
        ):
            decode_packet(packet, "s2", LIMITS)
        assert tracemalloc.get_traced_memory()[1] < SIZE
    finally:
        tracemalloc.stop()


def test_the_longest_body_is_read() -> None:
    packet = Packet("A", (Frame(VectorStamp(1, ()), Envelope("s1", 1, None, bytes(MAX_BODY_BYTES))),), (1,))
    assert decode_packet(encode_packet(packet), "s1", LIMITS) == packet


SCHEMES = [(name, "decentralised") for name in ORDERINGS]
SCHEMES += [(name, "distributed") for name, ordering in ORDERINGS.items() if ordering.traits.one_stamp]


@pytest.mark.parametrize(("ordering", "scheme"), SCHEMES)
def test_whatever_a_member_sends_is_within_the_limits(ordering: str, scheme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole window goes out at once, each message with all recipients named."""
    monkeypatch.setattr(codec, "PLAIN_PACKET_BYTES", 0)
    topology = Topology.flat(Domain("A", MEMBERS, ordering, acks=AckOptions(scheme=scheme)))
    for name in MEMBERS:
        member = Member(name, topology, MemberOptions(durable=False))
        packets = [packet for _, packet in member.step(SubmitAll((Submit(MEMBERS),) * (2 * WINDOW)), 0).send]
        assert max(len(packet.frames) for packet in packets) >= WINDOW // 2
        for packet in packets:
            assert decode_packet(encode_packet(packet), name, limits_of(topology)) == packet
