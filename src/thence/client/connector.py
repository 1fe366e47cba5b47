"""Keeps a client connected with its server.

Rules:

* The connection is made again for ever, ever more patiently (``net.reconnect``), until the endpoint ends.
* Certificates are read anew for each connection, so that they can be replaced while the program runs.
* ``connection`` is the one over which the server has said welcome; until then there is none.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from thence.client.parts.state import EndpointState
from thence.errors import ConfigError, ThenceError
from thence.net.control import tell
from thence.net.framing import MAX_FRAME_BYTES, Connection
from thence.net.protocol import ControlFrame
from thence.net.reconnect import Backoff, Heartbeat
from thence.net.security.exposure import check_calling, parse_url
from thence.net.security.tls import TlsFiles, client_side, why_not_connected
from thence.runtime.deadline import within

FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 10.0
CLOSE_WITHIN_S: Final = 1.0
"""How long a client that ends waits for the other side to let go."""
HEARTBEAT_S: Final = 2.0
SILENCE_S: Final = 10.0


class ServerAddress:
    """The address of a server, and the certificates to use there."""

    def __init__(self, url: str, *, token: bool, tls: TlsFiles | None, authority: Path | None) -> None:
        """Check the URL, and that the files can be read. ``token``: whether a token is used there."""
        self.url = url
        self.host, self.port, self.secure = parse_url(url)
        check_calling(url, self.host, tls=self.secure, token=token)
        self._files, self._authority = tls, authority
        self._context()  # What cannot be read is said now, not when nobody looks.

    def _context(self) -> ssl.SSLContext | None:
        return client_side(self._files, self._authority) if self.secure else None

    async def connect(self, make: Callable[[], Connection]) -> Connection:
        """Return a new connection with the server."""
        async with within(CONNECT_TIMEOUT_S, "no connection"):
            _, connection = await asyncio.get_running_loop().create_connection(
                make, self.host, self.port, ssl=self._context(), server_hostname=self.host if self.secure else None
            )
        return connection


class Connector:
    """The connection of a client with its server, made again when it is lost."""

    def __init__(self, address: ServerAddress, state: EndpointState) -> None:
        """Start without a connection; the link sets the three callbacks, and ``start`` begins."""
        self.on_made: Callable[[Connection], None]
        self.on_frame: Callable[[Connection, memoryview], None]
        self.on_lost: Callable[[], None]
        """Called when a connection is lost over which the server had said welcome."""
        self.address = address
        self.connection: Connection | None = None
        self.trouble = ""
        """Why the last attempt failed."""
        self._state = state
        self._backoff = Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect, and stay connected."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End the connection."""
        if self.connection is not None:
            await _end(self.connection)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def welcome(self, connection: Connection) -> None:
        """Use a connection, over which the server has said welcome."""
        connection.max_frame_bytes = MAX_FRAME_BYTES
        self.connection = connection
        self._backoff.reset()

    def send(self, what: ControlFrame) -> None:
        """Send a frame, if there is a connection."""
        if self.connection is not None:
            tell(self.connection, what)

    async def _run(self) -> None:
        while self._state.usable:
            lost = asyncio.Event()
            try:
                connection = await self.address.connect(lambda lost=lost: self._make(lost))  # type: ignore[misc]
                self.on_made(connection)
                await Heartbeat(HEARTBEAT_S, SILENCE_S).watch(connection, lost, self.address.url)
            except (OSError, TimeoutError, ConfigError) as error:
                self.trouble = why_not_connected(error)
            await self._backoff.wait()

    def _make(self, lost: asyncio.Event) -> Connection:
        connection = Connection()
        connection.on_frame = self.on_frame

        def on_lost(which: Connection, error: Exception | None) -> None:
            self._lost(which, error)
            lost.set()

        connection.on_lost = on_lost
        return connection

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        welcome = self.connection is connection
        if welcome:
            self.connection = None
            self.on_lost()
        if isinstance(error, ThenceError | OSError):
            self.trouble = str(error) or type(error).__name__
        elif not welcome and not self.trouble:
            guess = "is there TLS at all?" if self.address.secure else "does it want TLS (thences://)?"
            self.trouble = f"{self.address.url} hung up; {guess}"


async def _end(connection: Connection) -> None:
    """Close a connection and wait until nothing is left of it, but not for ever: a loop that ends before cuts TLS off."""
    ended = asyncio.Event()
    connection.on_end = lambda _: ended.set()
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_WITHIN_S):
            await ended.wait()
    except TimeoutError:
        connection.fail(TimeoutError("the other side does not let go"))
