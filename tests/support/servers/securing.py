"""What tests of security share: certificates, access files, and strangers that speak by hand."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import trustme

import thence
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet
from thence.net.framing import HEADER
from thence.net.protocol import (
    CONTROL_KIND,
    PACKET_KIND,
    PROTOCOL,
    Challenge,
    ClientHello,
    ClientWelcome,
    ControlFrame,
    Proof,
    encode_value,
    understand,
)
from thence.net.security.tls import binding_of
from thence.net.security.tokens import Token, new_nonce, new_token

HOST = "127.0.0.1"

EVERYTHING: Mapping[str, Any] = {
    "names": ["*"],
    "send": ["*"],
    "publish": ["*"],
    "subscribe": ["*"],
    "broadcast": True,
    "status": True,
    "agents": True,
    "topology": True,
}
"""An entry that may do everything."""


def certificates(folder: Path, authority: trustme.CA, *names: str, **options: Any) -> dict[str, thence.TlsFiles]:
    """Write a certificate for each name, as a person would with a tool of their own."""
    folder.mkdir(exist_ok=True)
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    files = {}
    for name in names:
        made = authority.issue_cert(name, HOST, **options)
        made.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        files[name] = thence.TlsFiles(
            certificate=folder / f"{name}.pem", key=folder / f"{name}.key", authority=folder / "authority.pem"
        )
    return files


class Access:
    """An access file, and the tokens of those who are in it."""

    def __init__(self, path: Path, **entries: Mapping[str, Any]) -> None:
        """Make a token for each entry."""
        self.path = path
        self.tokens: dict[str, str] = {}
        self._verifiers: dict[str, str] = {}
        self.write(**entries)

    def write(self, **entries: Mapping[str, Any]) -> None:
        """Write the file; whoever was in it before keeps its token."""
        text = ""
        for name, rights in entries.items():
            if name not in self.tokens:
                token = new_token(name)
                self.tokens[name], self._verifiers[name] = str(token), str(token.verifier())
            lines = {"tokens": [self._verifiers[name]], **rights}
            text += f"[clients.{json.dumps(name)}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        self.path.write_text(text, encoding="utf-8")


def secure_url(topology: Topology, server: str) -> str:
    """Return where clients of a server connect with TLS."""
    return f"thences://{topology.addresses[server]}"


def framed(body: bytes) -> bytes:
    """Return a frame."""
    numbers = struct.pack("<II", len(body), crc32(body))
    return numbers + struct.pack("<I", crc32(numbers)) + body


class Recorded:
    """What two sides said to each other, byte for byte."""

    def __init__(self) -> None:
        """Begin with silence."""
        self.url = ""
        self.from_client = b""
        self.from_server = b""


@asynccontextmanager
async def recording(address: str) -> AsyncIterator[Recorded]:
    """Stand between a server and whoever comes by ``url``, and write down what they say."""
    host, _, port = address.rpartition(":")
    recorded = Recorded()
    tasks: set[asyncio.Task[None]] = set()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, from_client: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                if from_client:
                    recorded.from_client += data
                else:
                    recorded.from_server += data
                sink.write(data)
        sink.close()

    async def between(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        tasks.add(asyncio.create_task(copy(reader, server_writer, from_client=True)))
        tasks.add(asyncio.create_task(copy(server_reader, writer, from_client=False)))

    async with await asyncio.start_server(between, HOST, 0) as listener:
        recorded.url = f"thence://{HOST}:{listener.sockets[0].getsockname()[1]}"
        try:
            yield recorded
        finally:
            await asyncio.gather(*tasks)


class Speaker:
    """Somebody who says to a server what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take over a connection."""
        self.reader, self.writer = reader, writer

    @classmethod
    async def call(
        cls, address: str, tls: ssl.SSLContext | None = None, name: str | None = None, local: str | None = None
    ) -> Self:
        """Connect to a server, which must have a certificate for ``name`` if there is TLS; from an address of our own."""
        host, _, port = address.rpartition(":")
        where = None if local is None else (local, 0)
        called = name if tls is not None else None
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls, server_hostname=called, local_addr=where))

    def say(self, said: ControlFrame) -> None:
        """Send a frame."""
        self.writer.write(framed(CONTROL_KIND + encode_value(said)))

    def say_packet(self, packet: Packet[Any]) -> None:
        """Send a packet."""
        self.writer.write(framed(PACKET_KIND + encode_value(packet)))

    async def hear(self) -> ControlFrame:
        """Return the next frame; ``IncompleteReadError`` if there is none."""
        length, _, _ = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        return understand(memoryview(await self.reader.readexactly(length)), "the server")

    async def ended(self) -> bool:
        """Wait until the server has hung up; return that it has."""
        try:
            while await self.reader.read(65_536):
                pass
        except (ConnectionError, ssl.SSLError):
            pass  # That is the same, less politely.
        return True

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


async def prove(speaker: Speaker, name: str, token: Token) -> ClientWelcome:
    """Introduce oneself with a token, and return how one is welcome."""
    channel = speaker.writer.get_extra_info("ssl_object")
    binding = b"" if channel is None else binding_of(channel.getpeercert(binary_form=True))
    hello = ClientHello(PROTOCOL, name, entry=token.entry, nonce=new_nonce(), bound=bool(binding))
    speaker.say(hello)
    challenge = await speaker.hear()
    if not isinstance(challenge, Challenge):
        raise ConnectionError(f"a challenge was to come, and not {challenge}")
    speaker.say(Proof(token.prove(hello, challenge, binding)))
    welcome = await speaker.hear()
    if not isinstance(welcome, ClientWelcome):
        raise ConnectionError(f"a welcome was to come, and not {welcome}")
    return welcome
