"""Frames on a stream of bytes, however it is cut into pieces and whatever is wrong with it. The transport is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from zlib import crc32

import pytest

from thence.errors import MalformedFrame
from thence.runtime import wire
from thence.runtime.wire import HEADER, Connection


class PlayedTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.ended = ""

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.ended = "aborted"

    def close(self) -> None:
        self.ended = "closed"

    def get_write_buffer_size(self) -> int:
        return 0

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


def fed(connection: Connection, data: bytes) -> None:
    """Let these bytes come in, as a loop does."""
    while data:
        room = connection.get_buffer(-1)
        taken = min(len(room), len(data))
        room[:taken] = data[:taken]
        connection.buffer_updated(taken)
        data = data[taken:]


def framed(payload: bytes) -> bytes:
    return HEADER.pack(len(payload), crc32(payload)) + payload


def with_wire(test: Callable[[Wire], Any]) -> None:
    async def main() -> None:
        test(Wire())

    asyncio.run(main())


@pytest.mark.parametrize("piece", [1, 3, 8, 9, 1000])
def test_frames_come_whole_however_the_stream_is_cut(piece: int) -> None:
    payloads = [bytes([number]) * (1 + 37 * number) for number in range(6)]
    stream = b"".join(map(framed, payloads))

    def test(made: Wire) -> None:
        for at in range(0, len(stream), piece):
            fed(made.connection, stream[at : at + piece])
        assert made.frames == payloads

    with_wire(test)


BAD = {
    "empty": HEADER.pack(0, 0),
    "too long": HEADER.pack(10**9, 0),
    "damaged": framed(b"hello")[:-1] + b"O",
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_bad_frame_ends_the_connection_and_what_follows_is_not_read(bad: bytes) -> None:
    def test(made: Wire) -> None:
        fed(made.connection, framed(b"good") + bad + framed(b"behind"))
        assert (made.frames, made.transport.ended) == ([b"good"], "aborted")
        made.connection.connection_lost(None)
        assert isinstance(made.lost[0], MalformedFrame)

    with_wire(test)


def test_a_length_is_checked_before_anything_is_kept() -> None:
    def test(made: Wire) -> None:
        made.connection.max_frame_bytes = 100
        fed(made.connection, HEADER.pack(101, 0))
        assert made.transport.ended == "aborted"

    with_wire(test)


def test_whoever_cannot_read_a_frame_ends_the_connection() -> None:
    def test(made: Wire) -> None:
        def refuse(*_: object) -> None:
            raise MalformedFrame("nonsense")

        made.connection.on_frame = refuse
        fed(made.connection, framed(b"x"))
        assert made.transport.ended == "aborted"

    with_wire(test)


def test_a_closed_connection_that_nobody_empties_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "LINGER_S", 0.01)

    async def main() -> None:
        made = Wire()
        made.connection.close()
        assert made.transport.ended == "closed"
        await asyncio.sleep(0.1)
        assert made.transport.ended == "aborted"

    asyncio.run(main())


def test_frames_of_one_turn_leave_in_one_piece_and_a_closed_connection_swallows() -> None:
    async def main() -> None:
        made = Wire()
        made.connection.send(b"\1", "one")
        made.connection.send(b"\1", "two")
        assert made.transport.written == b""
        await asyncio.sleep(0)
        assert made.transport.written == framed(b"\1\xa3one") + framed(b"\1\xa3two")
        made.connection.send(b"\1", "last")
        made.connection.close()
        assert made.transport.written.endswith(framed(b"\1\xa4last")), "what was sent before the end goes out"
        made.connection.connection_lost(None)
        made.connection.send(b"\1", "nobody")
        await asyncio.sleep(0)
        assert not made.connection.open

    asyncio.run(main())
