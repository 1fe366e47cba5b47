"""Frames on a stream of bytes, however it is cut into pieces and whatever is wrong with it. The transport is played."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any, cast
from zlib import crc32

import msgspec
import pytest

from thence.errors import Busy, MalformedFrame, StorageError, ThenceError
from thence.net import framing
from thence.net.framing import HEADER, MAX_CLIENT_FRAME_BYTES, MAX_FRAME_BYTES, READ_BYTES, Connection


class PlayedTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = ""
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("192.0.2.1", 7401)

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"

    def is_closing(self) -> bool:
        return bool(self.ended)


class Wire:
    """A connection and what came of it."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.lost: list[Exception | None] = []
        self.transport = PlayedTransport()
        self.connection = Connection()
        self.connection.on_frame = lambda _, frame: self.frames.append(bytes(frame))
        self.connection.on_lost = lambda _, error: self.lost.append(error)
        self.connection.connection_made(cast("asyncio.BaseTransport", self.transport))

    def receive(self, data: bytes) -> None:
        """Let bytes come in, as asyncio does it."""
        while data:
            room = self.connection.get_buffer(len(data))
            taken = min(len(room), len(data))
            room[:taken] = data[:taken]
            room.release()
            self.connection.buffer_updated(taken)
            data = data[taken:]


def said(text: str) -> bytes:
    """Return the frame of a text of kind ``k``."""
    return framed(b"k" + msgspec.msgpack.encode(text))


def head(length: int, checksum: int) -> bytes:
    return HEADER.pack(length, checksum, crc32(struct.pack("<II", length, checksum)))


def framed(payload: bytes) -> bytes:
    return head(len(payload), crc32(payload)) + payload


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.mark.parametrize("piece", [1, 3, 8, 9, 1000])
async def test_frames_come_whole_however_the_stream_is_cut(wire: Wire, piece: int) -> None:
    payloads = [bytes([number]) * (1 + 37 * number) for number in range(6)]
    stream = b"".join(map(framed, payloads))
    for at in range(0, len(stream), piece):
        wire.receive(stream[at : at + piece])
    assert wire.frames == payloads


BAD = {
    "empty": head(0, 0),
    "too long": head(10**9, 0),
    "damaged": framed(b"hello")[:-1] + b"O",
    "no frame": b"GET / HTTP/1.1",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_a_bad_frame_ends_the_connection_and_what_follows_is_not_read(wire: Wire, bad: bytes) -> None:
    wire.receive(framed(b"good") + bad + framed(b"behind"))
    assert (wire.frames, wire.transport.ended) == ([b"good"], "aborted")
    wire.connection.connection_lost(None)
    assert isinstance(wire.lost[0], MalformedFrame)


@pytest.mark.parametrize("bit", range(8 * HEADER.size))
async def test_a_damaged_head_is_noticed_before_anything_waits_for_the_length_it_says(wire: Wire, bit: int) -> None:
    frame = bytearray(framed(b"hello"))
    frame[bit // 8] ^= 1 << bit % 8
    wire.connection.max_frame_bytes = 2**32
    wire.receive(bytes(frame))
    assert (wire.frames, wire.transport.ended) == ([], "aborted")


async def test_a_length_is_checked_before_anything_is_kept(wire: Wire) -> None:
    wire.connection.max_frame_bytes = 100
    wire.receive(head(101, 0))
    assert wire.transport.ended == "aborted"


@pytest.mark.parametrize("error", [MalformedFrame("nonsense"), StorageError("the disk failed"), Busy("the server is stopping")])
async def test_whoever_cannot_take_a_frame_ends_the_connection(wire: Wire, error: ThenceError) -> None:
    def refuse(*_: object) -> None:
        raise error

    wire.connection.on_frame = refuse
    wire.receive(framed(b"x"))
    assert wire.transport.ended == "aborted"


async def test_frames_of_one_turn_leave_in_one_piece_and_a_closed_connection_swallows() -> None:
    wire = Wire()
    wire.connection.writer.send(b"k", "one")
    wire.connection.writer.send(b"k", "two")
    assert wire.transport.written == b""
    await asyncio.sleep(0)
    assert wire.transport.written == said("one") + said("two")
    wire.connection.writer.send(b"k", "last")
    wire.connection.close()
    assert wire.transport.written.endswith(said("last")), "what was sent before the end goes out"
    wire.connection.connection_lost(None)
    wire.connection.writer.send(b"k", "nobody")
    await asyncio.sleep(0)
    assert not wire.connection.open


async def test_a_frame_that_cannot_be_written_leaves_nothing_of_itself() -> None:
    wire = Wire()
    wire.connection.writer.send(b"k", "one")
    for cannot in ("\udcff", ["x" * 1000, object()], 2**70):
        with pytest.raises((UnicodeEncodeError, TypeError, OverflowError)):
            wire.connection.writer.send(b"k", cannot)
    wire.connection.writer.send(b"k", "two")
    await asyncio.sleep(0)
    assert wire.transport.written == said("one") + said("two")


async def test_a_closed_connection_that_nobody_empties_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thence.net.framing.LINGER_S", 0.01)
    wire = Wire()
    wire.connection.close()
    assert wire.transport.ended == "closed"
    await asyncio.sleep(0.1)
    assert wire.transport.ended == "aborted"


async def test_a_connection_that_ended_when_all_was_out_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one of asyncio, whose transport cannot be ended again once it is gone."""
    monkeypatch.setattr("thence.net.framing.LINGER_S", 0.05)
    troubles: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, trouble: troubles.append(trouble))
    near, far = socket.socketpair()
    connection = Connection()
    ended = loop.create_future()
    connection.on_end = lambda _: ended.set_result(None)
    await loop.create_connection(lambda: connection, sock=near)
    far.setblocking(False)
    connection.writer.send(b"k", "x" * 10_000_000)
    connection.close()
    assert connection.writer.unsent_bytes, "it goes out little by little"
    while not ended.done():
        with suppress(BlockingIOError):
            far.recv(1_000_000)
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    far.close()
    assert troubles == []


async def test_a_header_alone_makes_nobody_keep_room_for_its_frame(wire: Wire) -> None:
    wire.connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    wire.receive(head(MAX_CLIENT_FRAME_BYTES, 0))
    assert len(wire.connection.buffer.view) == READ_BYTES


async def test_room_is_made_for_twice_what_has_come_and_given_back_when_it_rests(wire: Wire) -> None:
    payload = bytes(5_000_000)
    frame = framed(payload)
    connection = wire.connection
    connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    for at in range(0, len(frame) - 1, 50_000):
        wire.receive(frame[at : min(at + 50_000, len(frame) - 1)])
        assert len(connection.buffer.view) <= max(READ_BYTES, 2 * connection.buffer.filled)
    connection.rest()
    assert len(connection.buffer.view) >= connection.buffer.filled == len(frame) - 1, "what has come is kept"
    wire.receive(frame[-1:])
    assert wire.frames == [payload]
    connection.rest()
    wire.receive(framed(b"x"))
    assert wire.frames[1:] == [b"x"]
    connection.rest()
    assert len(connection.buffer.view) == READ_BYTES
    wire.receive(frame)
    assert wire.frames[2:] == [payload]


async def test_a_connection_that_has_ended_keeps_no_room(wire: Wire) -> None:
    wire.connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    wire.receive(framed(bytes(1_000_000))[:-1])
    assert len(wire.connection.buffer.view) > 1_000_000
    wire.connection.connection_lost(None)
    assert len(wire.connection.buffer.view) == READ_BYTES


async def test_what_comes_to_a_connection_that_is_paused_waits_in_order() -> None:
    wire = Wire()
    connection = wire.connection

    def pausing(_: Connection, frame: memoryview) -> None:
        wire.frames.append(bytes(frame))
        if bytes(frame) == b"pause":
            connection.pause("a test")
            connection.pause("another")

    connection.on_frame = pausing
    wire.receive(b"".join(map(framed, [b"1", b"pause", b"2", b"pause", b"3"])))
    assert (wire.frames, wire.transport.reading, connection.paused) == ([b"1", b"pause"], False, True)
    connection.resume("a test")
    await asyncio.sleep(0)
    assert len(wire.frames) == 2, "there is another reason"
    connection.resume("another")
    await asyncio.sleep(0)
    assert (wire.frames[2:], wire.transport.reading) == ([b"2", b"pause"], False)
    connection.resume("another")
    connection.resume("a test")
    await asyncio.sleep(0)
    assert (wire.frames[4:], wire.transport.reading, connection.paused) == ([b"3"], True, False)
    wire.receive(framed(b"4"))
    assert wire.frames[5:] == [b"4"]
    connection.pause("the end")
    connection.connection_lost(None)
    connection.resume("the end")
    await asyncio.sleep(0)
    assert len(connection.buffer.view) == READ_BYTES


async def test_a_client_whose_frames_take_long_has_a_slice_of_time_and_then_others_theirs(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty clients with 64 dear frames each kept a server from everybody else for as long as all of them took."""
    monkeypatch.setattr(framing, "CLIENT_SLICE_US", 0)  # Each takes longer.
    connection = wire.connection
    connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    wire.receive(3 * said("x"))
    assert (len(wire.frames), connection.paused, wire.transport.reading) == (1, True, False)
    await asyncio.sleep(0)
    assert (len(wire.frames), connection.paused) == (2, True)
    await asyncio.sleep(0)
    assert (len(wire.frames), connection.paused, wire.transport.reading) == (3, False, True)
    connection.max_frame_bytes = MAX_FRAME_BYTES
    wire.receive(8 * said("x"))
    assert (len(wire.frames), connection.paused) == (11, False), "a peer has none: what it sends is of many"
