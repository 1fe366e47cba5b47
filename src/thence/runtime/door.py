"""Where connections come in: everybody is a stranger until the first frame says who it is.

Rules:

* A stranger gets ``HELLO_TIMEOUT_S`` to introduce itself and ``MAX_HELLO_BYTES`` to do it in; there are at most
  ``MAX_STRANGERS`` of them at a time. So what strangers can make a server keep is bounded by the product.
* Servers and clients come through the same door; the first frame says which they are.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from thence.errors import ConfigError, MalformedFrame
from thence.runtime.protocol import CONTROL_KIND, PROTOCOL, ClientHello, Refused, Said, ServerHello, understand
from thence.runtime.wire import MAX_FRAME_BYTES, Connection

HELLO_TIMEOUT_S: Final = 5.0
MAX_STRANGERS: Final = 256

log = logging.getLogger("thence.door")


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(f"{address!r} is no address; it must be host:port, such as 127.0.0.1:7401")
    return host.strip("[]"), int(port)


class Door:
    """Listens on one address, and hands over whoever has introduced itself."""

    def __init__(
        self,
        on_server: Callable[[Connection, ServerHello], None],
        on_client: Callable[[Connection, ClientHello], None],
    ) -> None:
        """The two are called with a connection and its first frame; they take it over from there."""
        self._on_server = on_server
        self._on_client = on_client
        self._strangers: dict[Connection, asyncio.TimerHandle] = {}
        self._listener: asyncio.Server | None = None
        self._closed = False
        self.turned_away = 0

    async def open(self, address: str, tls: ssl.SSLContext | None = None) -> str:
        """Listen; return the address with the port that was really taken."""
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(self._make, host, port, ssl=tls)
        except OSError as error:
            raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
        return f"{host}:{self._listener.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Let nobody in any more."""
        self._closed = True
        if self._listener is not None:
            # asyncio never closes a connection that it has accepted but not set up when its listener closes. So first it
            # accepts no more, and has a turn to set up what it has.
            for listening in self._listener.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._listener.close()
        for connection in list(self._strangers):
            connection.close()

    def _make(self) -> Connection:
        connection = Connection()
        connection.on_made = self._came
        connection.on_frame = self._introduced
        connection.on_lost = self._lost
        return connection

    def _came(self, connection: Connection) -> None:
        if self._closed:
            connection.close()  # It stood before the door when that was closed.
            return
        if len(self._strangers) >= MAX_STRANGERS:
            self.turned_away += 1
            log.warning("turned away %s: %d connections have not introduced themselves", whence(connection), MAX_STRANGERS)
            connection.fail(MalformedFrame("too many strangers"))
            return
        loop = asyncio.get_running_loop()
        self._strangers[connection] = loop.call_later(HELLO_TIMEOUT_S, self._too_slow, connection)

    def _too_slow(self, connection: Connection) -> None:
        connection.fail(MalformedFrame(f"it did not introduce itself within {HELLO_TIMEOUT_S:g} s"))

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()
            if error is not None:
                log.warning("a stranger from %s: %s", whence(connection), error)

    def _introduced(self, connection: Connection, frame: memoryview) -> None:
        hello = understand(frame, f"a stranger from {whence(connection)}")
        timer = self._strangers.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if not isinstance(hello, ServerHello | ClientHello):
            raise MalformedFrame(f"a stranger that begins with {type(hello).__name__}")
        if hello.protocol != PROTOCOL:
            refuse(connection, f"protocol {hello.protocol} was offered; this server speaks protocol {PROTOCOL}")
            return
        connection.max_frame_bytes = MAX_FRAME_BYTES
        if isinstance(hello, ServerHello):
            self._on_server(connection, hello)
        else:
            self._on_client(connection, hello)


def refuse(
    connection: Connection, reason: str, *, later: bool = False, version: int = 0, fingerprint: str = "", gone: int = 0
) -> None:
    """Say why, and hang up; ``later``: whether to try again; ``version``: of our topology, if that is why.

    ``gone``: with which version the caller was declared lost, if it was.
    """
    log.warning("refused %s: %s", whence(connection), reason)
    tell(connection, Refused(reason, later, version, fingerprint, gone))
    connection.on_frame = ignore_frame
    connection.close()


def tell(connection: Connection, what: Said) -> None:
    """Send a frame that is no packet."""
    connection.send(CONTROL_KIND, what)


def whence(connection: Connection) -> str:
    """Return where a connection comes from, for people."""
    name = connection.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "somewhere"


def ignore_frame(connection: Connection, frame: memoryview) -> None:
    """Whoever was refused may still be talking."""
