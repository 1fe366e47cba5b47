"""Floods of frames as short as can be, over many connections at once: each costs a server more than whoever sends it.

They come from somebody who has said nothing, from clients that may do nothing, from some that may do a little, and from a server
whose key was stolen. One kind at a time, so that it is known of each what it costs others. What the server answers is read and
thrown away: nobody is held back for not reading.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count, repeat
from typing import Any, Final

from tests.support.campaigns.attacks import EVIL_HOST, Target
from tests.support.servers.securing import Speaker, framed, prove
from thence.core.ordering.matrix_clock import MatrixStamp
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import ThenceError
from thence.net.protocol import (
    CONTROL_KIND,
    PACKET_KIND,
    PROTOCOL,
    Acknowledge,
    BatchItem,
    ClientHello,
    Find,
    Ping,
    Publish,
    ServerHello,
    StatusQuestion,
    Subscribe,
    encode_value,
    write_messages,
)
from thence.net.security.tokens import Token

FLOODERS: Final = 20
"""How many connections flood a server at once."""
AT_ONCE: Final = 200
"""How many frames are written at once."""
SEND_BUFFER: Final = 16 * 1024
AGAIN_S: Final = 0.01
"""How long one waits before it comes again, if it is shown out."""


def said(*values: object) -> bytes:
    """Return frames."""
    return b"".join(framed(CONTROL_KIND + encode_value(value)) for value in values)


def _always(*values: object) -> Callable[[int], Iterator[bytes]]:
    data = said(*values) * (AT_ONCE // len(values))
    return lambda _: repeat(data)


def _messages(to: str) -> Callable[[int], Iterator[bytes]]:
    """Return new messages, one in each frame, with the numbers behind the last one."""
    messages = write_messages([BatchItem(b"x")])

    def numbered(last: int) -> Iterator[bytes]:
        for first in count(last + 1, AT_ONCE):
            yield said(*(Publish(first + at, 1, (to,), None, messages) for at in range(AT_ONCE)))

    return numbered


class Flooder:
    """One connection that floods a server; see the module's text."""

    def __init__(self, target: Target, number: int, powerless: Token, captured: tuple[str, ssl.SSLContext] | None) -> None:
        self._target, self._number = target, number
        self._powerless, self._captured = powerless, captured
        old = Publish(1, 1, (f"mallory {number}",), None, write_messages([BatchItem(b"x")]))
        nobody, mallory = self._nobody, self._mallory
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "floods of hellos": self._hellos,
            "floods of pings": lambda: nobody(_always(Ping())),
            "floods of denied topics": lambda: nobody(_always(Subscribe("x", True))),
            "floods of topics not followed": lambda: nobody(_always(Subscribe("x", False))),
            "floods of denied names": lambda: nobody(_always(Find("reader"))),
            "floods of denied messages": lambda: nobody(_messages("reader")),
            "floods of denied questions": lambda: nobody(_always(StatusQuestion())),
            "floods of acknowledgements": lambda: nobody(_always(Acknowledge(0, 100, True))),
            "floods of questions": lambda: mallory(_always(StatusQuestion())),
            "floods of topics": lambda: mallory(_always(Subscribe("t", True), Subscribe("t", False))),
            "floods of names": lambda: mallory(_always(Find("reader"), Find("mallory nobody"))),
            "floods of repeated messages": lambda: mallory(_always(old)),
            "floods of messages to nobody": lambda: mallory(_messages("mallory nobody")),
            "floods of messages": lambda: mallory(_messages(f"mallory {number}")),
        }
        if captured is not None:
            self.kinds["floods of a server"] = self._server

    async def flood(self, kind: str, seconds: float, done: Counter[str]) -> None:
        """Do this for so long, and come again if the server has had enough."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    done[kind] += 1
                    with suppress(OSError, EOFError, ssl.SSLError, ThenceError):
                        await self.kinds[kind]()
                    await asyncio.sleep(AGAIN_S)

    async def _call(self) -> Speaker:
        speaker = await Speaker.call(self._target.address, self._target.tls, self._target.name, EVIL_HOST)
        # What the system would keep for us we would have to make: that takes time from those who behave on this machine.
        speaker.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        return speaker

    async def _hellos(self) -> None:
        speaker = await self._call()
        speaker.say(ClientHello(PROTOCOL, "nobody", entry="nobody"))
        await self._pour(speaker, iter(()))

    async def _nobody(self, frames: Callable[[int], Iterator[bytes]]) -> None:
        speaker = await self._call()
        welcome = await prove(speaker, f"nobody {self._number}", self._powerless)
        await self._pour(speaker, frames(welcome.number))

    async def _mallory(self, frames: Callable[[int], Iterator[bytes]]) -> None:
        speaker = await self._call()
        welcome = await prove(speaker, f"mallory {self._number}", self._target.token)
        speaker.say(Acknowledge(welcome.position, welcome.position + 1_000, False))
        await self._pour(speaker, frames(welcome.number))

    async def _server(self) -> None:
        if self._captured is None or self._number:
            await asyncio.sleep(3600)
            return
        target, (name, tls) = self._target, self._captured
        speaker = await Speaker.call(target.address, tls, target.name, EVIL_HOST)
        speaker.say(ServerHello(PROTOCOL, target.fabric, target.fingerprint, name, target.name, "0123456789abcdef"))
        await speaker.hear()
        packet: Packet[Any] = Packet("nowhere", (Frame(MatrixStamp(1, ()), Envelope(name, 1, None, b"")),), (1,))
        strange = framed(PACKET_KIND + encode_value(packet))
        await self._pour(speaker, repeat((said(Ping()) + strange) * (AT_ONCE // 2)))

    async def _pour(self, speaker: Speaker, frames: Iterator[bytes]) -> None:
        """Send without end, and throw away what comes back; with nothing to send, wait for the end."""
        reading = asyncio.get_running_loop().create_task(speaker.ended())
        try:
            for data in frames:
                speaker.writer.write(data)
                await speaker.writer.drain()
                if reading.done():
                    return
                await asyncio.sleep(0)
            await reading
        finally:
            reading.cancel()
            speaker.writer.transport.abort()
