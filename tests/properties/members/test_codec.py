"""Every decoder on every input: a value comes back, or our own error comes out, and nothing else.

Rules: what we write is read back exactly; what others wrote, or what came back from a disk changed, is refused by
``MalformedFrame`` or ``StorageError``; what can be read is put before ``accept``, which refuses by ``FrameRefused`` and leaves no
trace.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.suite import MEMBERS, VARIANTS, Variant, every_ordering
from thence.core.failover.early_payloads import BodyAhead
from thence.core.member import codec
from thence.core.member.codec import FORMAT_VERSION, decode_packet, decode_record, encode_packet, encode_record
from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.ordering import ORDERINGS
from thence.core.ordering.vector import VectorStamp
from thence.core.places.link_end import LINK_STAMPS
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.wire.messages import Envelope, Frame, GroupAcks, Packet
from thence.core.wire.records import Received, Record, Skipped, Submitted
from thence.errors import FrameRefused, MalformedFrame, StorageError, UsageError

VERSION = bytes([FORMAT_VERSION])
KINDS = (Submitted, Received, Skipped)
NAMES = st.sampled_from([*MEMBERS, "Z", ""]) | st.text(max_size=5)
NUMBERS = st.integers(-3, 6) | st.integers(-(2**63), 2**63) | st.integers(2**64 - 2, 2**64 - 1)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Give values of a stamp's field, sensible and not."""
    if kind is int:
        return NUMBERS
    if kind is bytes:
        return st.binary(max_size=12) | st.sampled_from([0, 4 * 25 - 1, 4 * 25]).flatmap(
            lambda n: st.binary(min_size=n, max_size=n)
        )
    if kind is str:
        return NAMES
    if kind is types.NoneType:
        return st.none()
    if get_origin(kind) is types.UnionType:
        return st.one_of([values_of(part) for part in get_args(kind)])
    assert get_args(kind) == (int, ...), f"teach this test how to make a {kind}"
    return st.lists(NUMBERS, max_size=6).map(tuple)


@cache
def stamps_of(kind: type) -> st.SearchStrategy[Any]:
    """Give stamps of a kind."""
    return st.builds(kind, **{name: values_of(hint) for name, hint in get_type_hints(kind).items() if name in fields(kind)})


def fields(kind: Any) -> tuple[str, ...]:
    return tuple(kind.__struct_fields__)


STAMPS = sorted(
    {BodyAhead, *LINK_STAMPS, *(stamp for ordering in ORDERINGS.values() for stamp in ordering.traits.stamps)},
    key=lambda kind: kind.__name__,
)
any_stamp = st.one_of([stamps_of(kind) for kind in STAMPS])
envelopes = st.builds(Envelope, NAMES, NUMBERS, st.none() | st.lists(NAMES, max_size=3).map(tuple), st.binary(max_size=20))


def frames_of(stamps: st.SearchStrategy[Any]) -> st.SearchStrategy[Frame[Any]]:
    return st.builds(Frame, stamps, st.none() | envelopes, st.sampled_from([False, False, False, True]))


ANY_FRAME = frames_of(any_stamp)
ANY_FRAMES = st.lists(ANY_FRAME, max_size=3)
SMALL = st.lists(NUMBERS | st.integers(0, 4), max_size=5).map(tuple)
receipts = st.builds(
    GroupAcks, st.lists(SMALL, max_size=3).map(tuple), st.booleans(), st.lists(SMALL, max_size=3).map(tuple), SMALL,
    st.lists(st.none() | SMALL, max_size=3).map(tuple),
)  # fmt: skip


BEYOND = st.lists(NUMBERS, max_size=3)
RECEIPTS = st.none() | receipts
"""What is drawn often is made once: to make a strategy takes longer than to draw from it."""


@st.composite
def packets(draw: st.DrawFn) -> Packet[Any]:
    frames = tuple(draw(ANY_FRAMES))
    numbers = tuple(draw(NUMBERS) for _ in frames) if draw(st.booleans()) else ()
    beyond = tuple(draw(BEYOND))
    return Packet(draw(NAMES), frames, numbers, draw(NUMBERS), beyond, draw(RECEIPTS))


records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Submitted, envelopes),
    st.builds(Received, NAMES, NAMES, NUMBERS, ANY_FRAME, NUMBERS, st.none() | SMALL),
    st.builds(Skipped, NAMES, NAMES, NUMBERS),
)


def changed(data: st.DataObject, written: bytes) -> bytes:
    """Change a few bytes, or cut some off, or put some in."""
    found = bytearray(written)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(len(found) - 1, 0)))
        match data.draw(st.sampled_from(["set", "cut", "insert", "shorten"])):
            case "set" if found:
                found[at] = data.draw(st.integers(0, 255))
            case "cut":
                del found[at : at + data.draw(st.integers(1, 4))]
            case "insert":
                found[at:at] = data.draw(st.binary(min_size=1, max_size=4))
            case _:
                del found[at:]
    return bytes(found)


# --- packets and records -----------------------------------------------------------------------------------------------


@given(packet=packets())
def test_packets_come_back_as_they_were(packet: Packet[Any]) -> None:
    written = encode_packet(packet)
    assert decode_packet(written) == packet
    assert decode_packet(memoryview(written)) == packet


@given(record=records)
def test_records_come_back_as_they_were(record: Record) -> None:
    assert decode_record(encode_record(record)) == record


@pytest.mark.parametrize("kind", STAMPS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_stamp_comes_back_as_itself(kind: type, data: st.DataObject) -> None:
    frame = Frame(data.draw(stamps_of(kind)), None)
    (found,) = decode_packet(encode_packet(Packet("d", (frame,), (1,)))).frames
    assert type(found.stamp) is kind
    assert found == frame
    assert decode_record(encode_record(Received("d", "A", 1, frame))) == Received("d", "A", 1, frame)


@every_ordering
def test_real_frames_come_back_as_they_were(variant: Variant) -> None:
    run = variant.busy_run(1)
    for flight in run.flights():
        packet = Packet("d", (flight.frame,), (1,))
        assert decode_packet(encode_packet(packet), flight.source) == packet


@given(written=st.binary(max_size=60) | st.binary(max_size=60).map(VERSION.__add__))
def test_arbitrary_bytes_are_refused_or_read(written: bytes) -> None:
    with contextlib.suppress(MalformedFrame):
        assert isinstance(decode_packet(written), Packet)
    with contextlib.suppress(StorageError):
        assert isinstance(decode_record(written), KINDS)


@given(data=st.data(), packet=packets(), record=records)
def test_changed_bytes_are_refused_or_read(data: st.DataObject, packet: Packet[Any], record: Record) -> None:
    with contextlib.suppress(MalformedFrame):
        assert isinstance(decode_packet(changed(data, encode_packet(packet))), Packet)
    with contextlib.suppress(StorageError):
        assert isinstance(decode_record(changed(data, encode_record(record))), KINDS)


NESTED = b"\x91" * 100_000
HOSTILE = {
    "nothing": b"",
    "only the version": VERSION,
    "deep nesting in a field that is skipped": VERSION + b"\x96\xa1d\x90\x90\x00\x90" + NESTED,
    "deep nesting at once": VERSION + NESTED,
    "a list that claims four thousand million entries": VERSION + b"\x92\xa1d\xdd\xff\xff\xff\xff",
    "a name that claims four gigabytes": VERSION + b"\x92\xdb\xff\xff\xff\xff",
    "no text in a name": VERSION + b"\x92\xa2\xff\xfe\x90",
    "a number beyond 64 bits as a float": VERSION + b"\x94\xa1d\x90\x90\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    "an unknown stamp": VERSION + b"\x92\xa1d\x91\x92\x92\x63\x01\xc0",
}


@pytest.mark.parametrize("written", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused(written: bytes) -> None:
    with pytest.raises(MalformedFrame, match="'Mallory'"):
        decode_packet(written, "Mallory")
    with pytest.raises(StorageError):
        decode_record(written)


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1, 255])
def test_another_version_is_refused_by_naming_both(version: int) -> None:
    packet, record = encode_packet(Packet("d", ())), encode_record(Skipped("d", "A", 1))
    with pytest.raises(MalformedFrame, match=rf"format {version}; this is format {FORMAT_VERSION}"):
        decode_packet(bytes([version]) + packet[1:])
    with pytest.raises(StorageError, match=f"format {FORMAT_VERSION}"):
        decode_record(bytes([version]) + record[1:])


def test_frames_and_numbers_must_match() -> None:
    frame = Frame(ORDERINGS["fifo"].traits.stamps[0](1), None)
    with pytest.raises(MalformedFrame, match="1 frame and 2 numbers"):
        decode_packet(encode_packet(Packet("d", (frame,), (1, 2))))


@pytest.mark.parametrize("beyond", [0, 1])
def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch, beyond: int) -> None:
    packet: Packet[Any] = Packet("d", ())
    record = Submitted(Envelope("A", 1, None, b"x" * 50))
    written_packet, written_record = encode_packet(packet), encode_record(record)
    monkeypatch.setattr(codec, "MAX_PACKET_BYTES", len(written_packet) - beyond)
    monkeypatch.setattr(codec, "MAX_RECORD_BYTES", len(written_record) - beyond)
    attempts: list[tuple[Callable[[], object], type[Exception]]] = [
        (lambda: encode_packet(packet), UsageError),
        (lambda: encode_record(record), UsageError),
        (lambda: decode_packet(written_packet), MalformedFrame),
        (lambda: decode_record(written_record), StorageError),
    ]
    for attempt, error in attempts:
        with pytest.raises(error) if beyond else contextlib.nullcontext():
            attempt()


# --- snapshots ---------------------------------------------------------------------------------------------------------


@every_ordering
@given(data=st.data())
def test_changed_snapshots_of_an_ordering_are_refused_or_read(variant: Variant, data: st.DataObject) -> None:
    ordering = BUSY[variant.label].fork()
    before = ordering.snapshot()
    written = data.draw(st.binary(max_size=40)) if data.draw(st.booleans()) else changed(data, before)
    try:
        ordering.restore(written)
    except StorageError:
        assert ordering.snapshot() == before


@every_ordering
@given(data=st.data())
def test_changed_snapshots_of_a_member_are_refused_or_read(variant: Variant, data: st.DataObject) -> None:
    domain = Domain("d", MEMBERS, variant.name, variant.options_for(MEMBERS))
    member = Member("A", domain)
    for _ in range(3):
        member.step(Submit(None, b"x"), 0)
    written = data.draw(st.binary(max_size=40)) if data.draw(st.booleans()) else changed(data, member.snapshot())
    restored = Member("A", domain)
    try:
        restored.step(Restored(written, (), 0), 0)
    except StorageError:
        return
    again = Member("A", domain)
    again.step(Restored(restored.snapshot(), (), 0), 0)
    assert again.snapshot() == restored.snapshot(), "what was read is a state like any other"


# --- what can be read is still to be judged ----------------------------------------------------------------------------


@cache
def frames_for(stamps: tuple[type, ...]) -> st.SearchStrategy[Frame[Any]]:
    """Give frames with stamps of these kinds, and with any."""
    return frames_of(st.one_of([stamps_of(kind) for kind in stamps]) | any_stamp)


BUSY = {variant.label: variant.busy_run(6).orderings["A"] for variant in VARIANTS}


@every_ordering
@given(data=st.data())
def test_any_stamp_is_accepted_or_refused_without_a_trace(variant: Variant, data: st.DataObject) -> None:
    ordering = BUSY[variant.label].fork()
    for _ in range(data.draw(st.integers(1, 4))):
        frame = data.draw(frames_for(variant.traits.stamps))
        before = ordering.snapshot()
        try:
            ordering.accept(data.draw(st.sampled_from([*MEMBERS, "Z"])), frame, 0)
        except FrameRefused:
            assert ordering.snapshot() == before
        else:
            assert ordering.fork().snapshot() == ordering.snapshot()
            assert len([wait for wait in ordering.waiting() if wait.peer != ordering.me]) == len(ordering.pending)


@every_ordering
@given(data=st.data())
def test_any_packet_leaves_a_member_standing(variant: Variant, data: st.DataObject) -> None:
    """Whatever comes in, a step returns; frames that are refused are listed, and never break what follows."""
    member = Member("A", Domain("d", MEMBERS, variant.name, variant.options_for(MEMBERS)), MemberOptions())
    member.step(Submit(None, b"mine"), 0)
    for now in range(3):
        packet = data.draw(packets())
        sane = data.draw(st.booleans())
        if sane:
            numbers = tuple(range(1, len(packet.frames) + 1))
            packet = msgspec.structs.replace(packet, domain="d", numbers=numbers, acked=0, acked_beyond=())
        ready = member.step(Arrived(data.draw(st.sampled_from([*MEMBERS, "Z"])), packet), now)
        written = [decode_record(encode_record(record)) for record in ready.persist]
        assert written == list(ready.persist)
    assert member.step(Submit(None, b"still here"), 9).accepted


SMALL_CLAIMS = st.lists(st.lists(st.integers(0, 5), min_size=2, max_size=6).map(tuple), max_size=4).map(tuple)


@pytest.mark.parametrize("retransmission", ["sender", "nearest"])
@given(data=st.data())
def test_any_packet_leaves_a_member_standing_that_confirms_to_all(retransmission: Any, data: st.DataObject) -> None:
    """As above. A packet that is refused as a whole has changed nothing; and what is taken is found again on disk."""
    confirmation = AckOptions(scheme="distributed", retransmission=retransmission)
    member = Member("A", Domain("d", MEMBERS, "vector", acks=confirmation), MemberOptions())
    stored: list[Record] = list(member.step(Submit(None, b"mine"), 0).persist)
    stamps = st.builds(VectorStamp, st.integers(1, 3), st.just(()))
    for now in range(4):
        packet = data.draw(packets())
        if data.draw(st.integers(0, 3)):
            frames = tuple(data.draw(st.lists(frames_of(stamps), max_size=2)))
            numbers = tuple(data.draw(st.integers(0, 4)) for _ in frames)
            streams = tuple(data.draw(st.integers(0, 5)) for _ in frames) if data.draw(st.booleans()) else ()
            to = tuple(None if frame.envelope else (1,) for frame in frames)
            said = GroupAcks(data.draw(SMALL_CLAIMS), data.draw(st.booleans()), data.draw(SMALL_CLAIMS), streams, to)
            packet = Packet("d", frames, numbers, 0, (), said)
        before = member.snapshot()
        ready = member.step(Arrived(data.draw(st.sampled_from([*MEMBERS, "Z"])), packet), now)
        assert not (ready.refused and not ready.persist) or member.snapshot() == before
        stored += [decode_record(encode_record(record)) for record in ready.persist]
    assert member.step(Submit(None, b"still here"), 9).accepted
    Member("A", member.topology).step(Restored(None, stored, 0), 9)


@pytest.mark.parametrize("retransmission", ["sender", "nearest"])
@given(data=st.data())
def test_changed_snapshots_are_refused_or_read_also_where_all_confirm_to_all(retransmission: Any, data: st.DataObject) -> None:
    confirmation = AckOptions(scheme="distributed", retransmission=retransmission)
    domain = Domain("d", MEMBERS, "vector", acks=confirmation)
    member = Member("A", domain)
    member.step(Submit(None, b"x"), 0)
    frame = Frame(VectorStamp(2, ()), Envelope("B", 2, None, b"x"))
    member.step(Arrived("B", Packet("d", (frame,), (2,), 0, (), GroupAcks(((0, 1), (2, 3, 5, 6))))), 1)
    assert Member("A", domain).step(Restored(member.snapshot(), (), 0), 1).send
    with contextlib.suppress(StorageError):
        Member("A", domain).step(Restored(changed(data, member.snapshot()), (), 0), 0)
