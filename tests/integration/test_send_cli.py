"""``thence send``: what leaves the command line, byte for byte, and what is said of it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

import thence
from tests.integration.running import PATIENCE_S, flat, run, servers, url
from thence.cli.send import _send
from thence.runtime.client import Client

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


def test_bytes_that_are_no_text_are_sent_as_they_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with bob_and_all() as (bob, where):
            assert await _send(lambda: thence.connect(where), "bob", [os.fsdecode(NOT_UTF_8)], wait=False) == 1
            assert (await bob.receive(PATIENCE_S)).body == NOT_UTF_8
            (tmp_path / "lines").write_bytes(NOT_UTF_8 + b"\n\nand\r\nlast")
            with standard_input((tmp_path / "lines").open(encoding="utf-8")):
                assert await _send(lambda: thence.connect(where), "bob", None, wait=False) == 4
            assert [(await bob.receive(PATIENCE_S)).body for _ in "1234"] == [NOT_UTF_8, b"", b"and", b"last"]

    run(main)
