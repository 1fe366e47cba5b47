"""What strangers, and clients that mean ill, do to a server: one method each, all drawn from a seed.

Every attack ends by itself, whatever the server does. None checks anything: whether the server bears it is seen from outside
(``hostile.py``).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

import msgspec

from tests.support.servers.securing import Speaker, framed, prove
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import ThenceError
from thence.net.framing import MAX_HELLO_BYTES
from thence.net.protocol import CONTROL_KIND, PACKET_KIND, PROTOCOL, BatchItem, ClientHello, ServerHello, write_messages
from thence.net.security.tokens import Token, new_nonce

EVIL_HOST: Final = "127.0.0.66"
"""Where attacks come from: this machine too, and another place than that of clients who behave."""
PATIENCE_S: Final = 8.0
"""How long an attack may take: longer than a server bears with strangers."""
TAGS: Final = range(45)
"""Those of all frames, and some that there are not."""
ODD_NUMBERS: Final = (0, 1, -1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**64 - 1, -(2**63))


SLOW: Final = {"slow hellos", "silences", "slow requests"}
"""What takes long, and so comes less often."""


class Target(NamedTuple):
    """A server, and what is known of it."""

    name: str
    address: str
    metrics: str
    """Where it answers over HTTP."""
    fingerprint: str
    fabric: str
    tls: ssl.SSLContext | None
    """How whoever has no certificate connects."""
    token: Token
    """Of somebody who may connect as ``mallory`` and write to ``victim``."""
    victim: str
    recorded: bytes
    """What a client said in an earlier session, as it crossed the wire."""


class Attacker:
    """See the module's text."""

    def __init__(self, target: Target, chance: Random, done: Counter[str]) -> None:
        """Attack ``target``; ``done`` counts what was done."""
        self._target = target
        self._chance = chance
        self._done = done
        self.resting: Callable[[], bool] = bool
        """Says whether it is calm for now, so that both can be compared."""
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "noise": self._noise,
            "heads": self._heads,
            "bodies": self._bodies,
            "structs": self._structs,
            "hellos": self._hellos,
            "replays": self._replay,
            "changed replays": self._changed_replay,
            "slow hellos": self._slow,
            "silences": self._silence,
            "resets": self._reset,
            "broken TLS": self._broken_tls,
            "false servers": self._false_server,
            "false proofs": self._false_proof,
            "unreadable messages": self._unreadable,
            "clients gone mad": self._mad_client,
            "odd requests": self._request,
            "endless requests": self._endless_request,
            "slow requests": self._slow_request,
        }

    async def attack(self, until: float, first: int) -> None:
        """Do one thing after the other until a moment of the loop's clock, beginning with number ``first``."""
        loop, kinds = asyncio.get_running_loop(), list(self._kinds)
        kind = kinds[first % len(kinds)]
        while loop.time() < until:
            if self.resting():
                await asyncio.sleep(0.02)
                continue
            with suppress(OSError, EOFError, ssl.SSLError, TimeoutError, ThenceError):
                async with asyncio.timeout(PATIENCE_S):
                    await self._kinds[kind]()
            self._done[kind] += 1
            kind = self._chance.choices(kinds, [1 if kind in SLOW else 8 for kind in kinds])[0]
            await asyncio.sleep(0)

    # Strangers.

    async def _noise(self) -> None:
        await self._throw(self._bytes(self._chance.choice((1, 11, 12, 13, 100, 5_000, 100_000))))

    async def _heads(self) -> None:
        length = self._chance.choice((0, 1, MAX_HELLO_BYTES, MAX_HELLO_BYTES + 1, 2**31, 2**32 - 1))
        numbers = struct.pack("<II", length, self._chance.getrandbits(32))
        check = struct.pack("<I", crc32(numbers) if self._chance.random() < 0.8 else 0)
        await self._throw(numbers + check + self._bytes(self._chance.choice((0, 10, MAX_HELLO_BYTES))))

    async def _bodies(self) -> None:
        kind = self._chance.choice((CONTROL_KIND, PACKET_KIND, b"", b"\x00", b"\xff"))
        await self._throw(b"".join(framed(kind + self._bytes(self._chance.randrange(1, 300))) for _ in range(3)))

    async def _structs(self) -> None:
        await self._throw(b"".join(self._struct() for _ in range(self._chance.randrange(1, 5))))

    async def _hellos(self) -> None:
        chance = self._chance
        name = chance.choice(("", self._target.victim, "mallory", "x" * 60_000, "a\nb\x1b[2J", self._target.name))
        hello = ClientHello(chance.choice((PROTOCOL, PROTOCOL, 0, 2**60)), name, entry=chance.choice(("", "mallory", "reader")))
        hello = msgspec.structs.replace(hello, nonce=self._bytes(chance.choice((0, 31, 32, 50_000))))
        await self._throw(framed(CONTROL_KIND + msgspec.msgpack.encode(hello)) + self._struct())

    async def _replay(self) -> None:
        await self._throw(self._target.recorded, await self._call(None))

    async def _changed_replay(self) -> None:
        """Play a session again of which something was changed; where there is no TLS, the frame is made to look whole."""
        recorded = self._target.recorded
        frames = split(recorded) if self._target.tls is None else [recorded]
        at = self._chance.randrange(len(frames))
        body = bytearray(frames[at])
        for _ in range(self._chance.randrange(1, 4)):
            body[self._chance.randrange(len(body))] = self._chance.getrandbits(8)
        frames[at] = bytes(body)
        await self._throw(b"".join(map(framed, frames) if self._target.tls is None else frames), await self._call(None))

    async def _slow(self) -> None:
        speaker = await self._call()
        hello = framed(CONTROL_KIND + msgspec.msgpack.encode(ClientHello(PROTOCOL, "slow", entry="mallory", nonce=new_nonce())))
        try:
            for byte in hello:
                speaker.writer.write(bytes([byte]))
                await speaker.writer.drain()
                await asyncio.sleep(0.3)
        finally:
            speaker.close()

    async def _silence(self) -> None:
        """Half a connection: without TLS where there is some, or with it and not a word more."""
        tls = self._target.tls if self._chance.random() < 0.5 else None
        speaker = await self._call(tls)
        try:
            await speaker.ended()
        finally:
            speaker.close()

    async def _reset(self) -> None:
        speaker = await self._call(None)
        raw = speaker.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        speaker.writer.write(self._bytes(5))
        speaker.close()

    async def _broken_tls(self) -> None:
        """The beginning of TLS, and then something else."""
        hello = b"\x16\x03\x01\x00\xf0\x01\x00\x00\xec\x03\x03" + self._bytes(self._chance.randrange(300))
        speaker = await self._call(None)
        await self._throw(hello, speaker)

    async def _false_server(self) -> None:
        target, chance = self._target, self._chance
        server = chance.choice(("s1", "s2", target.name, "nobody"))
        fingerprint = chance.choice((target.fingerprint, "0"))
        hello = ServerHello(PROTOCOL, target.fabric, fingerprint, server, target.name, "0123", chance.choice((1, 2, 2**60)))
        packet: Packet[Any] = Packet("D", (Frame(None, Envelope(server, 1, None, b"")),), (1,))
        said = framed(CONTROL_KIND + msgspec.msgpack.encode(hello)) + framed(PACKET_KIND + msgspec.msgpack.encode(packet))
        await self._throw(said)

    async def _false_proof(self) -> None:
        speaker = await self._call()
        false = self._target.token._replace(secret=self._bytes(32))
        with suppress(OSError, EOFError):
            await prove(speaker, "mallory", false)
        speaker.close()

    # Clients.

    async def _unreadable(self) -> None:
        """Write messages to somebody who listens that are none, though they look like a list of some."""
        speaker = await self._call()
        try:
            number = (await prove(speaker, "mallory", self._target.token)).number
            for at in range(1, 20):
                count = self._chance.choice((1, 3, 15))
                messages = bytes([0x90 + count]) + self._bytes(self._chance.randrange(40))
                if self._chance.random() < 0.3:
                    messages = write_messages([BatchItem(b"\xc1", coded=True, headers={"x": "y"}, request=at)] * count)
                said = [12, number + 1, count, [self._target.victim], None, messages]
                speaker.writer.write(framed(CONTROL_KIND + msgspec.msgpack.encode(said)))
                await speaker.writer.drain()
                number += count
            await asyncio.sleep(0.2)
        finally:
            speaker.close()

    async def _mad_client(self) -> None:
        """Somebody who was let in and then says anything."""
        speaker = await self._call()
        try:
            await prove(speaker, self._chance.choice(("", "mallory")), self._target.token)
            for _ in range(20):
                speaker.writer.write(self._struct())
                await speaker.writer.drain()
            await asyncio.sleep(0.1)
        finally:
            speaker.close()

    # Over HTTP.

    async def _request(self) -> None:
        chance = self._chance
        method = chance.choice((b"GET", b"HEAD", b"POST", b"", b"G" * 5_000, self._bytes(3)))
        path = chance.choice(
            (b"/metrics", b"/healthz", b"/readyz?x", b"/../../etc/passwd", b"*", b"/" + b"x" * 7_000, self._bytes(9))
        )
        end = chance.choice((b" HTTP/1.1\r\n\r\n", b" HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"\r\n\r\n", b"\n\n"))
        await self._throw((method + b" " + path + end) * chance.choice((1, 1, 50)), await self._ask())

    async def _endless_request(self) -> None:
        """Headers for as long as somebody reads them, and an answer that nobody reads."""
        speaker = await self._ask()
        try:
            speaker.writer.write(b"GET /metrics HTTP/1.1\r\n" + (b"\r\n" if self._chance.random() < 0.3 else b""))
            for _ in range(200):
                speaker.writer.write(b"X: " + self._bytes(5_000).replace(b"\r", b"") + b"\r\n")
                await speaker.writer.drain()
                if speaker.writer.is_closing():
                    break
        finally:
            speaker.close()

    async def _slow_request(self) -> None:
        speaker = await self._ask()
        try:
            for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n":
                speaker.writer.write(bytes([byte]))
                await speaker.writer.drain()
                await asyncio.sleep(0.3)
        finally:
            speaker.close()

    # Parts.

    async def _ask(self) -> Speaker:
        return await Speaker.call(self._target.metrics, None, self._target.name, EVIL_HOST)

    async def _call(self, tls: ssl.SSLContext | Literal[True] | None = True) -> Speaker:
        context = self._target.tls if tls is True else tls
        return await Speaker.call(self._target.address, context, self._target.name, EVIL_HOST)

    async def _throw(self, data: bytes, speaker: Speaker | None = None) -> None:
        """Send something, and wait until the server has had enough."""
        speaker = speaker or await self._call()
        try:
            speaker.writer.write(data)
            await speaker.writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._chance.choice((0.01, 0.1, PATIENCE_S))):
                    await speaker.ended()
        finally:
            speaker.close()

    def _bytes(self, count: int) -> bytes:
        return self._chance.randbytes(count)

    def _struct(self) -> bytes:
        """Return a frame that may be almost anything, with values that are somewhat likely."""
        values = [self._chance.choice(TAGS), *(self._value(2) for _ in range(self._chance.randrange(9)))]
        return framed(CONTROL_KIND + msgspec.msgpack.encode(values))

    def _value(self, depth: int) -> Any:
        chance = self._chance
        kind = chance.randrange(9 if depth else 7)
        simple: list[Any] = [
            None,
            chance.random() < 0.5,
            chance.choice(ODD_NUMBERS),
            chance.randrange(5),
            self._bytes(chance.choice((0, 3, 100))),
            chance.choice(("", self._target.victim, "mallory", "ask", "hold", "topic", "x" * 500)),
            write_messages([BatchItem(b"x")] * chance.randrange(3)),
        ]
        if kind < len(simple):
            return simple[kind]
        if kind == len(simple):
            return [self._value(depth - 1) for _ in range(chance.randrange(3))]
        return {
            "type": chance.choice(("create", "show", "list", "dead", "retry")),
            "name": self._value(0),
            "number": self._value(0),
        }


def split(stream: bytes) -> list[bytes]:
    """Return the bodies of the frames in a stream."""
    bodies, at = [], 0
    while at < len(stream):
        (length,) = struct.unpack_from("<I", stream, at)
        bodies.append(stream[at + 12 : at + 12 + length])
        at += 12 + length
    return bodies
