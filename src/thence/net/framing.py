"""Frames on a TCP connection: where one ends and the next begins, and whether it came whole.

A frame is the length of its body, the checksum of its body, the checksum of these two, and its body: one byte that says what it
is, and the rest. The three numbers have four bytes each, the little end first; the checksums are CRC-32. The length has one to
itself, since that of the body can only be looked at when the whole frame is there: with a damaged length that could be never,
while whatever comes would count as a sign of life.

Rules:

* Nothing is kept before its length has been checked against the limit that holds for this connection.
* Room is made for what has arrived, never for what a header promises: a buffer that was full doubles, and one that was not
  needed is given back (``rest``). Whoever makes us keep a byte has sent half of it.
* A frame that is damaged, too long or unknown ends the connection with a ``MalformedFrame`` that says so. What was lost with it
  is sent again over the next one; a stream that has lost its place cannot be trusted any further.
* Of what came over one connection, ``FRAMES_PER_TURN`` frames are handed over at once, and of a client no more than take
  ``CLIENT_SLICE_US`` together: what a frame costs is known only when it was done. If there are more, it is not read any further,
  and they have their turn later: of all connections of which some wait, one goes on in each turn of the loop. So those who send
  much have equal parts of the time, and whoever sends little waits for one part. A buffer holds ten thousand of the shortest
  frames; others would wait until all of them were done, of every connection.
* Frames written within one turn of the loop leave in one piece. One that is alone in its turn leaves at once.
* A frame that comes in is handed over as a view of the buffer that the next ones are read into: whoever wants to keep anything of
  it takes a copy, as decoding does. A frame that goes out is encoded where it is sent from. Long frames cost what copying costs.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from math import inf
from typing import Any, Final, cast

import msgspec

from thence.errors import Busy, MalformedFrame, StorageError
from thence.net.byte_pool import HeldBytes
from thence.runtime.checksum import crc32
from thence.runtime.counters import TrafficCounts
from thence.runtime.event_loop import WRITES, Turn, ignore, polling_of, turn_of

MAX_FRAME_BYTES: Final = 96 * 1024 * 1024
"""The longest frame between those who have introduced themselves."""

MAX_CLIENT_FRAME_BYTES: Final = 32 * 1024 * 1024
"""The longest frame from a client: a message as long as messages can be, and a batch of others before it."""

MAX_HELLO_BYTES: Final = 64 * 1024
"""The longest frame from somebody who has not: the most that a stranger can make us keep."""

READ_BYTES: Final = 4 * 1024
"""How much a connection reads at a time at first, and keeps room for."""

MAX_READ_BYTES: Final = 256 * 1024
"""How much, at most, if the other side sends as much."""

FRAMES_PER_TURN: Final = 64
"""How many frames of one connection are handed over before others have their turn."""

CLIENT_SLICE_US: Final = 2_000
"""How many microseconds frames of one client are handed over before others have their turn."""

MAX_WRITE_BUFFER: Final = 1024 * 1024
"""With more than this unsent, a connection says that it is full."""

MAX_COLLECTED_BYTES: Final = 256 * 1024
"""From this size on, what was collected in one turn of the loop leaves before that ends."""

MAX_CLIENT_UNSENT_BYTES: Final = 2 * 1024 * 1024
"""With more than this unsent, nothing is read from a client: whoever does not read what it is told is not listened to."""

MAX_UNREAD_S: Final = 60.0
"""How long that may last; then the connection ends."""

LINGER_S: Final = 5.0
"""How long a connection that was closed may take to get rid of what was sent; then it ends all the same."""

HEADER: Final = struct.Struct("<III")

_NUMBERS: Final = struct.Struct("<II")
_CHECK: Final = struct.Struct("<I")
_HEADER_BYTES: Final = HEADER.size
_NUMBERS_BYTES: Final = _NUMBERS.size
_pack_numbers, _pack_check, _unpack = _NUMBERS.pack, _CHECK.pack, HEADER.unpack_from
_EMPTY_HEADER: Final = bytes(HEADER.size)
_encode_into = msgspec.msgpack.Encoder().encode_into


class ReadBuffer:
    """What came over a connection and was not handed over: bytes at the front of a buffer that grows and shrinks."""

    def __init__(self, holding: HeldBytes) -> None:
        """Start small. ``holding`` counts the room beyond that."""
        self.view = memoryview(bytearray(READ_BYTES))
        self.filled = 0
        """How many bytes at the front have come in and were not handed over."""
        self.bytes_in = 0
        """How many bytes have come in altogether."""
        self._holding = holding
        self._rested_at = 0
        """How many bytes had come in when the buffer was last looked at."""

    def resize(self, size: int) -> None:
        """Keep what is there in a buffer of another size."""
        view = memoryview(bytearray(size))
        view[: self.filled] = self.view[: self.filled]
        self.view = view
        self._holding.note("read", size - READ_BYTES)

    def rest(self) -> None:
        """Give back the room that was not needed since the last time."""
        came, self._rested_at = self.bytes_in - self._rested_at, self.bytes_in
        size = max(READ_BYTES if came < MAX_READ_BYTES else MAX_READ_BYTES, 2 * self.filled)
        if size < len(self.view):
            self.resize(size)


class FrameWriter:
    """Collects the frames of one turn of the loop and writes them in one piece."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start without a transport: what is sent before there is one is dropped."""
        self.transport: asyncio.Transport | None = None
        self.on_writable: Callable[[], None] = ignore
        """Called when the other side keeps up again."""
        self.full = False
        """Whether the other side does not keep up. Whoever has a choice then waits for ``on_writable``."""
        self.full_since = 0.0
        self.wrote_at = 0.0
        self.frames_out = 0
        self.bytes_out = 0
        self._outgoing = bytearray()
        self._turn = turn_of(loop)
        self._time = loop.time

    def send(self, kind: bytes, value: object) -> int:
        """Send a frame at the end of this turn of the loop: its kind, and behind it a value as msgpack; return its length.

        A connection that is closed swallows it.
        """
        if self.transport is None:
            return 0
        outgoing = self._outgoing
        at = len(outgoing)
        begin = at + _HEADER_BYTES
        outgoing += _EMPTY_HEADER + kind
        try:
            _encode_into(value, outgoing, len(outgoing))
        except BaseException:
            del outgoing[at:]  # Half a frame would spoil all that come behind it.
            raise
        length = len(outgoing) - begin
        # The view is gone as soon as its checksum is known: only then may the buffer grow again.
        numbers = _pack_numbers(length, crc32(memoryview(outgoing)[begin:]))
        outgoing[at:begin] = numbers + _pack_check(crc32(numbers))
        self.frames_out += 1
        if not at:
            if self._turn.alone:
                self.flush()
            else:
                self._turn.soon(self.flush, WRITES)
        elif at > MAX_COLLECTED_BYTES:
            self.flush()  # Whoever has more to send learns whether the other side takes it.
        return length

    def flush(self) -> None:
        """Write what was collected now."""
        outgoing = self._outgoing
        if outgoing and self.transport is not None:
            self.wrote_at = self._time()
            self.bytes_out += len(outgoing)
            self._outgoing = bytearray()
            self.transport.write(outgoing)

    @property
    def unsent_bytes(self) -> int:
        """How much the other side has not taken yet."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def end(self) -> None:
        """Drop what was collected: the transport is gone."""
        self.transport = None
        self._outgoing = bytearray()


class Connection(asyncio.BufferedProtocol):
    """One TCP connection as a stream of frames. What they mean is up to whoever gets them."""

    def __init__(self) -> None:
        """Start without anybody listening; ``on_made``, ``on_frame`` and ``on_lost`` are set by whoever makes it."""
        self.on_made: Callable[[Connection], None] = ignore
        self.on_frame: Callable[[Connection, memoryview], None] = ignore
        self.on_lost: Callable[[Connection, Exception | None], None] = ignore
        self.on_end: Callable[[Connection], None] = ignore
        """Called last, when nothing is left of the connection, whoever has taken it over since it was made."""
        self.complain: Callable[[str], None] = ignore
        """Writes into the log what the other side did that it should not have (``runtime.offenders``)."""
        self.max_frame_bytes = MAX_HELLO_BYTES
        self.binding = b""
        """What stands for this channel in proofs of tokens: which certificate the server shows; nothing without TLS."""
        self.address = "somewhere"
        """Where the other side is, for people; also when it has gone."""
        self.heard_at = 0.0
        self.frames_in = 0
        self._loop = asyncio.get_running_loop()
        self.writer = FrameWriter(self._loop)
        self.holding = HeldBytes()
        """What is kept for it: of frames that are read in part, of what is not sent, and of what waits to be done."""
        self.buffer = ReadBuffer(self.holding)
        self._transport: asyncio.Transport | None = None
        self._turn = turn_of(self._loop)
        self._polling = polling_of(self._loop)
        self._reading = False
        """Whether frames that come are handed over: there is a connection, and it is not paused."""
        self._pauses: dict[str, None] = {}
        """Why nothing is read at the moment."""
        self._failure: Exception | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self.writer.transport = cast("asyncio.Transport", transport)
        self._reading = True
        self._transport.set_write_buffer_limits(high=MAX_WRITE_BUFFER)
        self.address = address_text(self._transport.get_extra_info("peername"))
        self.heard_at = self.writer.wrote_at = self._loop.time()
        self.on_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reading = False
        self.writer.end()
        self.buffer.filled = 0
        self.buffer.resize(READ_BYTES)  # Whoever still knows the connection keeps no more of it.
        self.holding.clear()
        self.on_lost(self, self._failure or exc)
        self.on_end(self)

    def pause_writing(self) -> None:
        self.writer.full = True
        self.writer.full_since = self._loop.time()
        self._count_unsent()

    def resume_writing(self) -> None:
        self.writer.full = False
        self._count_unsent()
        self.resume("unsent")
        self.writer.on_writable()

    def get_buffer(self, sizehint: int) -> memoryview:
        buffer = self.buffer
        return buffer.view[buffer.filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.heard_at = self._loop.time()
        buffer = self.buffer
        buffer.filled += nbytes
        buffer.bytes_in += nbytes
        full = buffer.filled == len(buffer.view)
        turn = self._turn
        turn.awaited = True
        try:
            wanted = self._read(turn)
        finally:
            if turn.busy:
                turn.end()
            else:
                turn.awaited = turn.alone = False
        if full:
            self._grow(wanted)
        if self._polling.limit:
            self._polling.came()

    # Reading.

    def _grow(self, wanted: int) -> None:
        """Double the buffer, which was full, up to what the next frame needs; for a stranger that is the one that it may send."""
        most = max(wanted, min(MAX_READ_BYTES, self.max_frame_bytes + _HEADER_BYTES))
        room = len(self.buffer.view)
        if room >= most:
            return
        size = min(2 * room, most)
        if self.holding.has_room(size - room):
            self.buffer.resize(size)
        elif self.buffer.filled == room:  # It waits, and so does the other side.
            self.pause("memory")
            self.holding.pool.wait(self._grow_later)

    def _grow_later(self) -> None:
        """There may be room for what is being read."""
        if self.holding.has_room(len(self.buffer.view)):
            self.resume("memory")
        elif self._transport is not None:
            self.holding.pool.wait(self._grow_later)

    def _count_unsent(self) -> None:
        """Note how much is not sent; not with every frame, for which it would cost too much."""
        self.holding.note("unsent", self.writer.unsent_bytes)

    def rest(self) -> None:
        """Give back the room that was not needed since the last time; to be called now and then."""
        self._count_unsent()
        self.buffer.rest()

    def _read(self, turn: Turn) -> int:
        """Hand over all whole frames, and move the rest to the front; return how long the buffer must be for the next one."""
        buffer = self.buffer
        at, end, view, wanted, most = 0, buffer.filled, buffer.view, 0, self.frames_in + FRAMES_PER_TURN
        ends = self.heard_at + CLIENT_SLICE_US / 1e6 if self.max_frame_bytes < MAX_FRAME_BYTES else inf  # A peer speaks for many.
        while end - at >= _HEADER_BYTES and self._reading:
            length, checksum, check = _unpack(view, at)
            if crc32(view[at : at + _NUMBERS_BYTES]) != check:
                self.fail(MalformedFrame(_guess(bytes(view[at : at + _HEADER_BYTES]))))
                break
            if not 0 < length <= self.max_frame_bytes:
                self.fail(MalformedFrame(f"a frame of {length} bytes; the limit here is {self.max_frame_bytes}"))
                break
            begin = at + _HEADER_BYTES
            if end < begin + length:
                wanted = _HEADER_BYTES + length
                break
            at = begin + length
            frame = view[begin:at]
            if crc32(frame) != checksum:
                self.fail(MalformedFrame(f"a frame of {length} bytes that was damaged on its way"))
                break
            self.frames_in += 1
            if at == end:
                turn.alone = not turn.busy
            try:
                self.on_frame(self, frame)
            except (MalformedFrame, StorageError, Busy) as error:  # The last two: we are about to stop, and say why elsewhere.
                self.fail(error)
                break
            if at < end and (self.frames_in == most or (ends != inf and self._loop.time() >= ends)):
                self.pause("turn")
                turn.later(self._next_turn)
        if at >= end:
            buffer.filled = 0
        elif at:
            buffer.filled = end - at
            view[: buffer.filled] = view[at:end]
        return wanted

    def _next_turn(self) -> None:
        """Go on with the frames that wait."""
        if self._pauses.pop("turn", 1) is None and not self._pauses:
            self._go_on()

    # Waiting.

    def pause(self, why: str) -> None:
        """Read nothing more, for this reason, until ``resume``: what comes waits at the other side."""
        if not self._pauses and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pauses[why] = None
        self._reading = False

    def resume(self, why: str) -> None:
        """Go on, unless there is another reason not to; first with what was read before."""
        if self._pauses.pop(why, 1) is None and not self._pauses:
            self._loop.call_soon(self._go_on)

    @property
    def paused(self) -> bool:
        """Whether nothing is read from it now."""
        return bool(self._pauses)

    def _go_on(self) -> None:
        if self._pauses or self._transport is None or self._transport.is_closing():
            return
        self._reading = True
        self.buffer_updated(0)
        if self._reading and self.open:
            self._transport.resume_reading()

    # Seen from outside.

    @property
    def traffic(self) -> TrafficCounts:
        """What went over it so far."""
        return TrafficCounts(self.frames_in, self.writer.frames_out, self.buffer.bytes_in, self.writer.bytes_out)

    @property
    def open(self) -> bool:
        """Whether anything can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def keep_back(self) -> None:
        """Listen no further to somebody who does not read what it is told, until it does."""
        if self.writer.full and self.writer.unsent_bytes > MAX_CLIENT_UNSENT_BYTES:
            self.pause("unsent")

    def check_reader(self, now: float) -> None:
        """End a connection, which is paused, if the other side has taken nothing of what it is told for too long."""
        if self.writer.full and now - self.writer.full_since > MAX_UNREAD_S:
            unsent = self.writer.unsent_bytes
            self.fail(MalformedFrame(f"it does not read what it is told: {unsent} bytes wait for {MAX_UNREAD_S:g} s"))

    def fail(self, error: Exception) -> None:
        """End the connection because of what came in over it."""
        self._failure = error
        self._abort()

    def _abort(self) -> None:
        if self._transport is not None:  # That of asyncio itself cannot be ended once it is gone.
            self._transport.abort()

    def close(self) -> None:
        """End the connection when what was sent is out, or when nobody takes it for ``LINGER_S``."""
        self.writer.flush()
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(LINGER_S, self._abort)

    def get_extra_info(self, name: str) -> Any:
        """Return what asyncio knows of the connection, such as ``peercert`` or ``ssl_object``."""
        return None if self._transport is None else self._transport.get_extra_info(name)


def address_text(peername: object) -> str:
    """Return an address as asyncio has it as ``host:port``."""
    return f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "somewhere"


def _guess(head: bytes) -> str:
    """Say what the head of a frame may be that is none."""
    if head[:2] == b"\x16\x03":
        return "it speaks TLS, and no TLS is spoken here"
    if head[:4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "it speaks HTTP, and no HTTP is spoken here"
    return "the head of a frame that was damaged on its way"
