"""Frames on a TCP connection: where one ends and the next begins, and whether it came whole.

A frame is its length (four bytes), the checksum of what follows (four bytes, CRC-32) and that: one byte that says what it is,
and the rest. Both numbers are written with the little end first.

Rules:

* Nothing is kept before its length has been checked against the limit that holds for this connection.
* A frame that is damaged, too long or unknown ends the connection with a ``MalformedFrame`` that says so. What was lost with it
  is sent again over the next one; a stream that has lost its place cannot be trusted any further.
* Frames written within one turn of the loop leave in one piece.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final, cast

from thence.errors import MalformedFrame
from thence.runtime.checksum import crc32
from thence.runtime.turns import WRITES, turn_of

MAX_FRAME_BYTES: Final = 96 * 1024 * 1024
"""The longest frame between those who have introduced themselves."""

MAX_HELLO_BYTES: Final = 64 * 1024
"""The longest frame from somebody who has not: the most that a stranger can make us keep."""

MAX_WRITE_BUFFER: Final = 1024 * 1024
"""With more than this unsent, a connection says that it is full."""

HEADER: Final = struct.Struct("<II")

_pack, _unpack = HEADER.pack, HEADER.unpack_from


class Connection(asyncio.Protocol):
    """One TCP connection as a stream of frames. What they mean is up to whoever gets them."""

    def __init__(self) -> None:
        """Start without anybody listening; ``on_made``, ``on_frame`` and ``on_lost`` are set by whoever makes it."""
        self.on_made: Callable[[Connection], None] = _ignore
        self.on_frame: Callable[[Connection, memoryview], None] = _ignore
        self.on_lost: Callable[[Connection, Exception | None], None] = _ignore
        self.on_writable: Callable[[Connection], None] = _ignore
        self.max_frame_bytes = MAX_HELLO_BYTES
        self.full = False
        """Whether the other side does not keep up. Whoever has a choice then waits for ``on_writable``."""
        self.heard_at = 0.0
        self.wrote_at = 0.0
        self.frames_in = 0
        self.frames_out = 0
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._turn = turn_of(self._loop)
        self._buffer = bytearray()
        self._outgoing: list[bytes] = []
        self._flushing = False
        self._failure: Exception | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=MAX_WRITE_BUFFER)
        self.heard_at = self.wrote_at = self._loop.time()
        self.on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._buffer = bytearray()
        self._outgoing = []
        self.on_lost(self, self._failure or exc)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False
        self.on_writable(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        self._turn.begin()
        try:
            if self._buffer:
                self._buffer += data
                self._read(self._buffer)
            else:
                self._read(data)
        finally:
            self._turn.end()

    # Reading.

    def _read(self, data: bytes | bytearray) -> None:
        """Hand over all whole frames, and keep the rest."""
        at, end = 0, len(data)
        with memoryview(data) as view:
            while end - at >= HEADER.size and self._transport is not None:
                length, checksum = _unpack(view, at)
                if not 0 < length <= self.max_frame_bytes:
                    self.fail(MalformedFrame(f"a frame of {length} bytes; the limit here is {self.max_frame_bytes}"))
                    return
                begin = at + HEADER.size
                if end - begin < length:
                    break
                frame = view[begin : begin + length]
                at = begin + length
                if crc32(frame) != checksum:
                    self.fail(MalformedFrame(f"a frame of {length} bytes that was damaged on its way"))
                    return
                self.frames_in += 1
                try:
                    self.on_frame(self, frame)
                except MalformedFrame as error:
                    self.fail(error)
                    return
                finally:
                    frame.release()
        if data is self._buffer:
            del self._buffer[:at]
        elif at < end:
            self._buffer += data[at:]

    # Writing.

    @property
    def open(self) -> bool:
        """Whether anything can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, payload: bytes) -> None:
        """Send a frame at the end of this turn of the loop. A connection that is closed swallows it."""
        if self._transport is None:
            return
        self.frames_out += 1
        self._outgoing.append(_pack(len(payload), crc32(payload)))
        self._outgoing.append(payload)
        if not self._flushing:
            self._flushing = True
            self._turn.soon(self.flush, WRITES)

    def flush(self) -> None:
        """Send now what was collected."""
        self._flushing = False
        if self._outgoing and self._transport is not None:
            self.wrote_at = self._loop.time()
            self._transport.write(b"".join(self._outgoing))
            self._outgoing = []

    def fail(self, error: Exception) -> None:
        """End the connection because of what came in over it."""
        self._failure = error
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection when what was sent is out."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def get_extra_info(self, name: str) -> Any:
        """Return what asyncio knows of the connection, such as ``peername`` or ``peercert``."""
        return None if self._transport is None else self._transport.get_extra_info(name)


def _ignore(*_: object) -> None:
    """Do nothing."""
