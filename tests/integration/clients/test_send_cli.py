"""``thence send``: what leaves the command line, byte for byte, and what is said of it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

import thence
from tests.support.played import Played
from tests.support.servers.running import PATIENCE_S, flat, run, servers, url
from thence.cli.messages.send import Sending, bodies_of, lines, send_all
from thence.client.client import Client
from thence.client.parts import outbox
from thence.errors import UsageError
from thence.net.protocol import Publish

NOT_UTF_8 = b"abc\xff\xfe"


@asynccontextmanager
async def bob_and_all() -> AsyncIterator[tuple[Client, str]]:
    """Give a client, and where its server is."""
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "bob") as bob:
        yield bob, url(topology, "s1")


@contextmanager
def standard_input(file: TextIO) -> Iterator[None]:
    """Let standard input be this."""
    with file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", file)
        yield


async def test_bytes_that_are_no_text_are_sent_as_they_are(tmp_path: Path) -> None:
    async with bob_and_all() as (bob, where):
        assert await send_all(lambda: thence.connect(where), "bob", bodies_of([os.fsdecode(NOT_UTF_8)]), wait=False) == (
            1,
            None,
        )
        assert (await bob.receive(PATIENCE_S)).body == NOT_UTF_8
        (tmp_path / "lines").write_bytes(NOT_UTF_8 + b"\n\nand\r\nlast")
        with standard_input((tmp_path / "lines").open(encoding="utf-8")):
            assert await send_all(lambda: thence.connect(where), "bob", lines(), wait=False) == (4, None)
        assert [(await bob.receive(PATIENCE_S)).body for _ in "1234"] == [NOT_UTF_8, b"", b"and", b"last"]


async def test_lines_are_sent_while_more_may_come() -> None:
    reading, writing = os.pipe()
    too_late = threading.Timer(PATIENCE_S, os.write, (writing, b"too late\n"))
    too_late.start()  # Otherwise a loop that is blocked would be so for ever.
    async with bob_and_all() as (bob, where):
        with standard_input(os.fdopen(reading, encoding="utf-8")):
            sending = asyncio.create_task(send_all(lambda: thence.connect(where), "bob", lines(), wait=False))
            for line in (b"first", b"second"):
                await asyncio.sleep(0.1)
                os.write(writing, line[:2])
                await asyncio.sleep(0)
                os.write(writing, line[2:] + b"\n")
                assert (await bob.receive(PATIENCE_S)).body == line
            too_late.cancel()
            os.close(writing)
            assert await sending == (2, None)


async def test_whoever_types_is_told_at_once_that_a_line_was_refused() -> None:
    reading, writing = os.pipe()
    async with bob_and_all() as (bob, where):
        with standard_input(os.fdopen(reading, encoding="utf-8")):
            sending = asyncio.create_task(send_all(lambda: thence.connect(where), "carl", lines(), wait=False))
            os.write(writing, b"hello\n")
            accepted, error = await sending
            os.close(writing)
        assert accepted == 0
        assert "nobody is called 'carl'" in str(error)
        accepted, error = await send_all(
            lambda: thence.connect(where), "bob", bodies_of(["a", "b" * 17_000_000, "c"]), wait=False
        )
        assert accepted == 1
        assert "MAX_MESSAGE_BYTES" in str(error)
        assert (await bob.receive(PATIENCE_S)).body == b"a"


def test_a_line_without_end_is_not_kept() -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="MAX_MESSAGE_BYTES"):
            await anext(lines())

    with standard_input(Path("/dev/zero").open(encoding="utf-8")):
        run(main)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="standard input cannot be read: Bad file descriptor"):
            await anext(lines())

    with standard_input((tmp_path / "only written").open("w", encoding="utf-8")):
        run(main)


class Slow(Played):
    """An endpoint whose messages are accepted, but for some, when nothing more comes."""

    def __init__(self, refused: Collection[int] = ()) -> None:
        super().__init__()
        self.on_their_way: list[int] = []
        self.most = 0
        self._refused_numbers = refused
        self.parts.outbox.transmit = self._transmit

    def _transmit(self, publish: Publish) -> None:
        self.on_their_way += range(publish.first, publish.first + publish.count)
        self.most = max(self.most, len(self.on_their_way))
        asyncio.get_running_loop().call_later(0.01, self._accept, len(self.on_their_way))

    def _accept(self, seen: int) -> None:
        if seen != len(self.on_their_way):
            return
        for number in self.on_their_way:
            if number in self._refused_numbers:
                self.parts.outbox.on_undeliverable(number, 1, f"not {number}", forbidden=False)
            else:
                self.parts.outbox.on_accepted(number)
        self.on_their_way.clear()


@pytest.mark.parametrize("to", ["bob", "bob,cleo", "everyone", "#news"])
async def test_messages_do_not_wait_for_each_other_but_for_room(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MAX_UNACCEPTED", 100)
    slow = Slow()
    async with asyncio.timeout(PATIENCE_S):
        assert await Sending(slow, to).send(bodies_of(["line"] * 1_000)) == (1_000, None)
    assert slow.most == 100
    slow = Slow(refused=(3, 4, 9))
    accepted, error = await Sending(slow, to).send(bodies_of(["line"] * 9))
    assert accepted == 6
    assert str(error) == "not 3"
