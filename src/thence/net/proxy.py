"""A proxy between two programs that spoils what goes through it, on command: to show, and to test, what real networks do.

Rules:

* It listens on a port of its own on this machine and calls ``target`` for each connection that comes in.
* ``mode`` may be changed at any time and holds for connections that exist, too. ``cut`` ends them and refuses new ones;
  ``blackhole`` lets them stand and swallows what comes, which nobody is told; ``slow`` delays everything and lets only so many
  bytes through; ``corrupt`` flips one bit in every so many bytes; ``stall there`` keeps what the caller sends and ``stall back``
  what the caller is sent, while the other direction flows, and nothing of it is lost.
* Bytes that a blackhole has swallowed are gone, and TCP does not lose bytes: so when it ends, the connections of that time end.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from enum import StrEnum
from functools import partial
from random import Random
from typing import Final

from thence.errors import InternalError

CHUNK_BYTES: Final = 64 * 1024
CALL_TIMEOUT_S: Final = 5.0
ACCEPT_TURNS: Final = 3
"""How many turns of the loop it takes to accept a connection. If the listener is closed meanwhile, asyncio leaves it open."""


class Mode(StrEnum):
    """What happens to bytes."""

    WELL = "well"
    CUT = "cut"
    BLACKHOLE = "blackhole"
    SLOW = "slow"
    CORRUPT = "corrupt"
    STALL_THERE = "stall there"
    STALL_BACK = "stall back"


class Proxy:
    """A proxy in front of one address that delays, cuts, keeps or changes what passes. ``start`` returns its own address."""

    def __init__(self, target: str, chance: Random) -> None:
        """``target`` is host:port; ``chance`` says which bits are flipped."""
        self.target = target
        self.address = ""
        self.delay_s = 0.05
        """How long ``slow`` keeps every piece."""
        self.bytes_per_s = 50_000
        """How much ``slow`` lets through."""
        self.corrupt_every_bytes = 20_000
        """About how many bytes ``corrupt`` leaves as they are between two that it spoils."""
        self.bits_flipped = 0
        self.connections = 0
        self.happened: Counter[Mode] = Counter()
        """How often each mode did something: connections refused or ended, pieces swallowed, slowed down or kept, bits
        flipped."""
        self._changed = asyncio.Event()
        """Set when the mode is another one; then there is a new event."""
        self._mode = Mode.WELL
        self._chance = chance
        self._until_flip = 0
        self._listener: asyncio.Server | None = None
        self._running: dict[asyncio.Task[None], bool] = {}
        """The connections, and whether anything of each was swallowed."""

    @property
    def mode(self) -> Mode:
        """What happens to bytes now."""
        return self._mode

    async def start(self) -> str:
        """Listen on a free port; return the address."""
        self._listener = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        return self.address

    def set_mode(self, mode: Mode) -> None:
        """Do this to bytes from now on."""
        self._mode = mode
        self._changed.set()
        self._changed = asyncio.Event()
        self._until_flip = self._chance.randrange(2 * self.corrupt_every_bytes)
        for connection, swallowed in list(self._running.items()):
            if mode is Mode.CUT or (swallowed and mode is not Mode.BLACKHOLE):
                connection.cancel()
                if mode is Mode.CUT:
                    self.happened[mode] += 1

    async def close(self) -> None:
        """End everything."""
        self.set_mode(Mode.CUT)
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        if self._listener is not None:
            self._listener.close()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode is Mode.CUT:
            self.happened[Mode.CUT] += 1
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.create_task(self._join(reader, writer))
        self._running[task] = False
        task.add_done_callback(partial(self._gone, writer))  # A task that is cancelled before its first step ends nothing itself.

    def _gone(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        writer.transport.abort()
        del self._running[task]

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            raise InternalError(f"a connection to {self.target} came outside of any task")
        with suppress(OSError, TimeoutError):
            await self._carry_both(reader, writer, task)

    async def _carry_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        while self._mode is Mode.BLACKHOLE:
            self._running[task] = True
            self.happened[Mode.BLACKHOLE] += 1
            if not await reader.read(CHUNK_BYTES):
                return
        if self._running[task]:
            return
        host, _, port = self.target.rpartition(":")
        async with asyncio.timeout(CALL_TIMEOUT_S):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            there = asyncio.create_task(self._carry(reader, far_writer, task, Mode.STALL_THERE))
            back = asyncio.create_task(self._carry(far_reader, writer, task, Mode.STALL_BACK))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in (there, back):
                    way.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None], stall: Mode
    ) -> None:
        """Carry bytes in one direction; ``stall`` is the mode that keeps them."""
        while data := await reader.read(CHUNK_BYTES):
            if self._mode in (stall, Mode.SLOW, Mode.BLACKHOLE):
                self.happened[self._mode] += 1
            while self._mode is stall:
                await self._changed.wait()
            if self._mode is Mode.CUT:
                return
            if self._mode is Mode.SLOW:
                await asyncio.sleep(self.delay_s + len(data) / self.bytes_per_s)
            if self._mode is Mode.BLACKHOLE:
                self._running[task] = True
                continue
            writer.write(self._spoiled(data) if self._mode is Mode.CORRUPT else data)
            await writer.drain()
        # The other side closed: let what is on its way arrive before the connection ends.
        writer.write_eof()
        await asyncio.sleep(0.05)

    def _spoiled(self, data: bytes) -> bytes:
        spoiled = bytearray(data)
        while self._until_flip < len(spoiled):
            spoiled[self._until_flip] ^= 1 << self._chance.randrange(8)
            self.bits_flipped += 1
            self.happened[Mode.CORRUPT] += 1
            self._until_flip += 1 + self._chance.randrange(2 * self.corrupt_every_bytes)
        self._until_flip -= len(spoiled)
        return bytes(spoiled)
