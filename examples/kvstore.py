"""A key-value store with a replica at every site: reads and conflicts are local, writes reach all replicas in causal order.

    python -m examples.kvstore thence://127.0.0.1:7441 north put colour red
    python -m examples.kvstore thence://127.0.0.1:7444 south get colour

Rules:

* A write says which versions of its key it replaces: those that its replica had. Whoever gets the write has had them before,
  since they led to it. So a replica drops them and adds the new one, and that is all: no clocks, no marks for what is gone.
* Writes that did not know of each other replace nothing of each other: both stay until somebody writes who has seen both.
* A replica keeps its versions and the position of its last message in one SQLite file, in one transaction: each message once.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import msgspec

import thence

SITES = ("north", "south")
TABLES = """
create table if not exists versions (key text, id text, value text, primary key (key, id));
create table if not exists done (position integer);
"""


class Put(msgspec.Struct):
    """A write, as it travels; without a key it only shows its writer how far it has read."""

    id: str
    key: str = ""
    value: str = ""
    replaces: list[str] = []


class Replica:
    """One copy of the store, in a file of its own. Its client's name belongs to that file."""

    def __init__(self, client: thence.Client, file: Path, everyone: Collection[str]) -> None:
        """``everyone`` are the clients of all replicas, this one included."""
        self._client = client
        self._everyone = everyone
        self._disk = sqlite3.connect(file, isolation_level=None)
        self._disk.executescript(TABLES)
        self._own: dict[str, asyncio.Event] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take what others write, from where this file ends."""
        self._reading = asyncio.create_task(self._read())

    async def stop(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading
        self._disk.close()

    def get(self, key: str) -> list[str]:
        """Return what this replica has: no value, one, or several that were written without knowledge of each other."""
        return [value for _, value in self._versions(key)]

    async def put(self, key: str, value: str) -> None:
        """Write, in place of what this replica has; return when it is durable, on its way to all, and here."""
        for name in self._everyone:
            await self._client.known(name)  # Who has never been there cannot be written to.
        replaced = [version for version, _ in self._versions(key)]
        await self._send(self._everyone, Put(os.urandom(8).hex(), key, value, replaced))

    async def catch_up(self) -> None:
        """Wait until everything that has reached our server is here."""
        await self._send([self._client.name], Put(os.urandom(8).hex()))

    async def _send(self, to: Collection[str], put: Put) -> None:
        here = self._own[put.id] = asyncio.Event()
        await self._client.send(to, put)
        await here.wait()
        del self._own[put.id]

    def _versions(self, key: str) -> list[tuple[str, str]]:
        return list(self._disk.execute("select id, value from versions where key = ? order by id", (key,)))

    async def _read(self) -> None:
        async for message in self._client:
            put = message.value(Put)
            self.apply(message.position, put)
            if put.id in self._own:
                self._own[put.id].set()

    def apply(self, position: int, put: Put) -> None:
        """Take a message and its place in one transaction: after a crash it comes again, and is left out."""
        with self._disk:
            self._disk.execute("begin")
            ((done,),) = self._disk.execute("select coalesce(max(position), 0) from done")
            if position <= done:
                return
            for version in put.replaces:
                self._disk.execute("delete from versions where key = ? and id = ?", (put.key, version))
            if put.key:
                self._disk.execute("insert into versions values (?, ?, ?)", (put.key, put.id, put.value))
            self._disk.execute("delete from done")
            self._disk.execute("insert into done values (?)", (position,))


async def main(url: str, site: str, what: str, key: str = "", value: str = "") -> None:
    """Do one thing: join, put, get, or wait until something can be got."""
    async with thence.connect(url, f"replica-{site}") as client:
        replica = Replica(client, Path(f"{site}.db"), [f"replica-{name}" for name in SITES])
        await replica.start()
        if what == "put":
            await replica.catch_up()
            await replica.put(key, value)
        elif what == "get":
            await replica.catch_up()
            print(*replica.get(key))
        while what == "until" and value not in replica.get(key):  # noqa: ASYNC110 (an example stays short)
            await asyncio.sleep(0.05)
        await replica.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
