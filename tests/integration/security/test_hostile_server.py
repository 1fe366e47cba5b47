"""A server that means ill, and the terminal of whoever talks to it: nothing that it says is a command to the terminal."""

from __future__ import annotations

import asyncio
import json
import logging
import unicodedata
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from tests.support.servers.running import flat, servers, url
from tests.support.servers.securing import HOST, Speaker
from tests.unit.cli import Ran
from tests.unit.cli import run as run_cli
from thence.core.topology.toml import write
from thence.net.protocol import (
    AgentAnswer,
    AgentQuestion,
    BatchItem,
    ClientWelcome,
    ControlFrame,
    Deliver,
    Denied,
    OperatorAnswer,
    OperatorQuestion,
    Publish,
    Refused,
    StatusAnswer,
    StatusQuestion,
    Subscribe,
    Subscribed,
    Undeliverable,
    ViewRequest,
    write_messages,
)

EVIL = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\r\nthence: error: forged\x00\x7f"
"""Sets the title of a terminal, clears it, colours it, turns the direction of text, and begins a line of its own."""


def commands(text: str) -> list[str]:
    """Return what in a text is no text to a terminal."""
    return [item for item in text if unicodedata.category(item) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and item != "\n"]


def assert_harmless(ran: Ran) -> None:
    assert commands(ran.out) == [], ran.out
    assert commands(ran.err) == [], ran.err
    assert not any(line.startswith("thence: error: forged") for line in (ran.out + ran.err).splitlines())


def evil(value: Any) -> Any:
    """Return the same with every text replaced, also where it is a key of names."""
    if isinstance(value, str):
        return EVIL
    if isinstance(value, list):
        return [evil(one) for one in value]
    if isinstance(value, dict):
        return {key: evil(one) for key, one in value.items()}
    return value


Answers = Callable[[ControlFrame], list[ControlFrame]]


@asynccontextmanager
async def hostile(answers: Answers) -> AsyncIterator[str]:
    """Run a server that welcomes everybody and then answers like this."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        speaker = Speaker(reader, writer)
        try:
            said = await speaker.hear()
            while True:
                for answer in answers(said):
                    speaker.say(answer)
                said = await speaker.hear()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            speaker.close()

    async with await asyncio.start_server(serve, HOST, 0) as listener:
        yield f"thence://{HOST}:{listener.sockets[0].getsockname()[1]}"


COMMANDS: dict[str, tuple[str, ...]] = {
    "status": ("status", "URL"),
    "status as JSON": ("status", "URL", "--json"),
    "send": ("send", "URL", "bob", "hello"),
    "listen": ("listen", "URL", "--name", "bob", "--topic", "news", "--count", "1"),
    "listen as JSON": ("listen", "URL", "--name", "bob", "--count", "1", "--json"),
    "chat": ("chat", "URL", "--name", "bob"),
    "agents": ("agent", "list", "URL"),
    "an agent": ("agent", "show", "URL", "ann"),
    "dead messages": ("agent", "dead", "URL"),
    "clients": ("client", "list", "URL"),
    "bench": ("bench", "URL", "--count", "1", "--round-trips", "1"),
    "top": ("top", "FILE"),
    "apply": ("topology", "apply", "FILE", "--timeout", "1"),
}


async def called(command: tuple[str, ...], where: str, folder: Path) -> Ran:
    topology = flat("s1").at({"s1": where.removeprefix("thence://")})
    (folder / "city.toml").write_text(write(topology).replace("[domains", "version = 2\n[domains", 1), encoding="utf-8")
    words = [{"URL": where, "FILE": str(folder / "city.toml")}.get(word, word) for word in command]
    return await asyncio.to_thread(run_cli, *words)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_why_it_refuses_is_text_and_no_command(tmp_path: Path, command: tuple[str, ...]) -> None:
    async with hostile(lambda _: [Refused(EVIL)]) as where:
        ran = await called(command, where, tmp_path)
        assert_harmless(ran)
        assert r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066" in ran.err + ran.out, "it is shown, escaped"


async def test_what_it_says_of_itself_is_text_and_no_command(tmp_path: Path) -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        await ann.subscribe("news")
        status = await ann.status()
    status["neighbours"] = [
        {"name": "s2", "connected": False, "since_seconds": 1.0, "trouble": "why", "connections": 1, "unreadable": ""}
        | dict.fromkeys(("queued_frames", "spilled_frames", "queued_bytes", "bytes_in", "bytes_out"), 1)
        | {"frames_in": 1, "frames_out": 1, "held_for_dead": False, "window_bytes": None, "protocol": 1, "spilled_bytes": 0}
    ]
    status["stalled"] = "why"
    status["waiting"], status["waiting_count"] = ["a message"], 1
    clocks = {EVIL: {"ordering": EVIL, "state": EVIL}}
    told = msgspec.json.encode(evil(status) | {"change": status["change"], "clocks": clocks, "topics": {EVIL: 1}})

    def answers(said: ControlFrame) -> list[ControlFrame]:
        if isinstance(said, StatusQuestion):
            return [StatusAnswer(told)]
        return [ClientWelcome(EVIL, EVIL, 0, 0, 0, 1)] if not isinstance(said, ViewRequest) else []

    async with hostile(answers) as where:
        for words in (COMMANDS["status"], COMMANDS["top"]):
            ran = await called(words, where, tmp_path)
            assert_harmless(ran)
            assert ran.code == 1, ran.err
        ran = await called(COMMANDS["status as JSON"], where, tmp_path)
        assert_harmless(ran)
        assert json.loads(ran.out)["server"] == EVIL, "JSON says exactly what it said"


async def test_what_it_delivers_and_refuses_is_text_and_no_command(tmp_path: Path) -> None:
    messages = write_messages([BatchItem(EVIL.encode(), headers={EVIL: EVIL})])

    def answers(said: ControlFrame) -> list[ControlFrame]:
        if isinstance(said, Subscribe):
            return [Subscribed(said.topic, said.wanted), Deliver(1, 0, EVIL, EVIL, messages), Denied("topic", said.topic, EVIL)]
        if isinstance(said, Publish):
            return [Undeliverable(said.first, said.count, EVIL)]
        if isinstance(said, AgentQuestion):
            return [AgentAnswer(said.number, b"", EVIL)]
        if isinstance(said, OperatorQuestion):
            return [OperatorAnswer(said.number, b"", EVIL)]
        return [ClientWelcome(EVIL, EVIL, 0, 0, 0, 1)]

    def deliver(said: ControlFrame) -> list[ControlFrame]:
        return [*answers(said), Deliver(1, 0, EVIL, None, messages)]

    async with hostile(answers) as where:
        for name in ("listen", "send", "agents", "an agent", "dead messages", "clients"):
            assert_harmless(await called(COMMANDS[name], where, tmp_path))
    async with hostile(deliver) as where:
        ran = await called(COMMANDS["listen as JSON"], where, tmp_path)
        assert_harmless(ran)
        line = json.loads(ran.out)
        assert (line["sender"], line["body"], line["headers"]) == (EVIL, EVIL, {EVIL: EVIL})


async def test_a_traceback_and_a_warning_are_text_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("THENCE_DEBUG", "1")
    async with hostile(lambda _: [Refused(EVIL)]) as where:
        ran = await called(COMMANDS["status"], where, tmp_path)
        assert "Traceback" in ran.err
        assert_harmless(ran)
    assert logging.lastResort is not None
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, "refused: %s", (EVIL,), None)
    assert commands(logging.lastResort.format(record)) == []
