"""The least that a round trip between two Python programs can cost that do what members do: a bound, and no product.

Two programs on one connection, with uvloop: a frame with its two checksums, one packet decoded, one number and one clock
compared, one message decoded, and the same on the way back. Nothing is kept, acknowledged, repeated or refused; there are no
recipients, no handlers and no limits. What ours takes beyond this is what it does beyond this.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import msgspec

from benchmarks.peers.counting import Pings
from benchmarks.peers.processes import Turn
from thence.core.member.codec import decode_packet
from thence.core.ordering.vector import VectorStamp
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.net.framing import HEADER
from thence.net.protocol import PACKET_KIND, BatchItem, read_messages, write_messages
from thence.runtime.checksum import crc32

BUFFER_BYTES = 64 * 1024

_NUMBERS = struct.Struct("<II")
_CHECK = struct.Struct("<I")
_encode_into = msgspec.msgpack.Encoder().encode_into
_BODY_AT = HEADER.size + len(PACKET_KIND)


class Line(asyncio.BufferedProtocol):
    """One connection that carries one message at a time."""

    def __init__(self) -> None:
        """Start with nothing sent; ``on_message`` is set by whoever makes it."""
        self.on_message: Callable[[bytes], object] = bytes
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._transport: asyncio.Transport | None = None
        self._sent = 0
        self._came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        view = self._buffer
        length, checksum, check = HEADER.unpack_from(view)
        frame = view[HEADER.size : HEADER.size + length]
        if crc32(view[: _NUMBERS.size]) != check or crc32(frame) != checksum:
            raise AssertionError("a damaged frame")
        packet: Packet[Any] = decode_packet(frame[1:], "?")
        (message,), (number,) = packet.frames, packet.numbers
        if number != self._came + 1 or message.stamp.number != number or packet.acked != self._sent or message.envelope is None:
            raise AssertionError("a frame out of order")
        self._came = number
        (item,) = read_messages(message.envelope.body, "?")
        self.on_message(item.body)

    def send(self, body: bytes) -> None:
        """Send one message."""
        self._sent += 1
        number, out = self._sent, bytearray(HEADER.size) + PACKET_KIND
        envelope = Envelope("A", number, ("B",), write_messages([BatchItem(body)]))
        _encode_into(Packet("all", (Frame(VectorStamp(number, ()), envelope),), (number,), self._came), out, _BODY_AT)
        numbers = _NUMBERS.pack(len(out) - HEADER.size, crc32(memoryview(out)[HEADER.size :]))
        out[: HEADER.size] = numbers + _CHECK.pack(crc32(numbers))
        if self._transport is not None:
            self._transport.write(out)


async def ping(turn: Turn, *, port: int, asks: bool, count: int, body_bytes: int) -> list[float]:
    """One that asks, or one that answers."""
    loop, pings, body = asyncio.get_running_loop(), Pings(count), bytes(body_bytes)

    def answering() -> Line:
        line = Line()
        line.on_message = line.send
        return line

    listening = None if asks else await loop.create_server(answering, "127.0.0.1", port)
    await turn.all()
    if asks:
        _, line = await loop.create_connection(Line, "127.0.0.1", port)

        def back(_: bytes) -> None:
            if pings.back():
                pings.sent()
                line.send(body)

        line.on_message = back
        pings.sent()
        line.send(body)
        await pings.done
    await turn.all()
    if listening is not None:
        listening.close()
    return pings.times()
