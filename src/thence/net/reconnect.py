"""How a program stays connected: it tries again ever more patiently, says something now and then, and notices silence.

Clients of a server and servers among themselves use the same two things: ``Backoff`` between two attempts, ``Heartbeat`` while
there is a connection.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from thence.net.control import tell
from thence.net.framing import Connection
from thence.net.protocol import Ping


class Backoff:
    """The waits between attempts to connect: each twice as long as the one before, up to a limit."""

    def __init__(self, first_s: float, most_s: float) -> None:
        """Wait for about ``first_s`` at first, and for ``most_s`` at most."""
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def reset(self) -> None:
        """Start again with the first wait: there was a connection."""
        self._next_s = self._first_s

    async def wait(self, most_s: float | None = None) -> None:
        """Wait, and wait longer the next time. ``most_s``: the limit for the next time, if it is another one.

        The wait is random between half of its length and all of it. Those who lost a connection at the same moment so do not
        come back at the same moment.
        """
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))  # noqa: S311  It is no secret.
        self._next_s = min(2 * self._next_s, self._most_s if most_s is None else most_s)


class Heartbeat(NamedTuple):
    """Keeps a connection alive, and ends it when the other side is silent."""

    every_s: float
    """After so many seconds without a frame to the other side it gets a ping."""
    silence_s: float
    """After so many seconds without a byte from the other side the connection ends."""

    def beat(self, connection: Connection, now: float, who: str = "") -> None:
        """Look after a connection: give back its room, end it if it is silent, or ping. Call this twice in ``every_s``."""
        connection.rest()
        if now - connection.heard_at > self.silence_s:
            connection.fail(TimeoutError(f"{f'{who} is ' if who else ''}silent for {self.silence_s:g} s"))
        else:
            self.ping(connection, now)

    def ping(self, connection: Connection, now: float) -> None:
        """Ping the other side if it got nothing for long."""
        if now - connection.writer.wrote_at > self.every_s:
            tell(connection, Ping())

    async def watch(self, connection: Connection, lost: asyncio.Event, who: str) -> None:
        """Look after a connection until it is lost."""
        loop = asyncio.get_running_loop()
        while not lost.is_set():
            try:
                async with asyncio.timeout(self.every_s / 2):
                    await lost.wait()
            except TimeoutError:
                self.beat(connection, loop.time(), who)
