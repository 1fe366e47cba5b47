"""The proxy that spoils connections: one direction is kept while the other flows, and nothing of it is lost."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import suppress
from random import Random

import pytest

from tests.support.servers.running import until
from thence.net.proxy import Mode, Proxy


@pytest.mark.parametrize(("mode", "kept"), [(Mode.STALL_THERE, "there"), (Mode.STALL_BACK, "back")])
async def test_one_direction_is_kept_while_the_other_flows(mode: Mode, kept: str) -> None:
    arrived: dict[str, bytes] = {"there": b"", "back": b""}
    far: list[asyncio.StreamWriter] = []

    async def collect(where: str, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(100):
            arrived[where] += data

    async def came(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far.append(writer)
        with suppress(OSError):  # It is cut in the end.
            await collect("there", reader)
        writer.transport.abort()

    listener = await asyncio.start_server(came, "127.0.0.1", 0)
    proxy = Proxy(f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", Random(1))
    host, _, port = (await proxy.start()).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    collecting = asyncio.create_task(collect("back", reader))
    try:
        await until(lambda: far)
        proxy.set_mode(mode)
        writer.write(b"one ")
        far[0].write(b"one ")
        flowing = "back" if kept == "there" else "there"
        await until(lambda: arrived[flowing] == b"one " and proxy.happened[mode])
        assert not arrived[kept]
        assert +proxy.happened == {mode: 1}
        proxy.set_mode(Mode.WELL)
        writer.write(b"two")
        far[0].write(b"two")
        await until(lambda: arrived == {"there": b"one two", "back": b"one two"})
        proxy.set_mode(mode)
        (writer if kept == "there" else far[0]).write(b"never")
        await until(lambda: proxy.happened[mode] == 2)
        proxy.set_mode(Mode.CUT)  # Also what is kept can be cut.
        with suppress(OSError):
            await collecting
        assert proxy.happened[Mode.CUT] == 1
        assert arrived[kept] == b"one two"
    finally:
        collecting.cancel()
        await proxy.close()
        listener.close()
        for one in (writer, *far):
            one.transport.abort()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_is_just_being_accepted_is_closed_too(turns: int) -> None:
    """A socket that nobody closed would be a ResourceWarning, which is an error here."""

    async def main(caller: socket.socket) -> None:
        proxy = Proxy("127.0.0.1:1", Random(1))
        host, _, port = (await proxy.start()).rpartition(":")
        caller.connect((host, int(port)))
        for _ in range(turns):
            await asyncio.sleep(0)
        await proxy.close()

    with socket.socket() as caller:
        asyncio.run(main(caller))
    gc.collect()
