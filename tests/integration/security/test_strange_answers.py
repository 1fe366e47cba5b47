"""Answers that lack something, hold something else, or never come: of another version, or of a server that means ill.

One line says so. Whoever waits in vain is told for what, from whom and for how long.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.integration.security.test_hostile_server import COMMANDS, called, hostile
from tests.support.servers.running import flat, servers, started, until, url
from thence.client import admin
from thence.net.protocol import (
    AgentAnswer,
    AgentQuestion,
    BatchItem,
    ClientHello,
    ClientWelcome,
    ControlFrame,
    Deliver,
    OperatorAnswer,
    OperatorQuestion,
    StatusAnswer,
    StatusQuestion,
    ViewRequest,
    write_messages,
)
from thence.net.proxy import Mode, Proxy
from thence.node.peers import outgoing_calls
from thence.server import apply

ROW = {"name": "a", "connected": True, "from": "x", "temporary": False, "waiting_messages": 1, "waiting_bytes": 2, "full": False}
SHOWN = ROW | {"server": "s1", "in_files": 0, "sent": 1, "received": 1, "done": 1, "topics": ["x"], "topics_left_out": 0}
PEER: dict[str, Any] = {"name": "s2", "connected": True, "trouble": "", "unreadable": "", "held_for_dead": False}
NUMBERS = ("since_seconds", "connections", "queued_frames", "queued_bytes", "spilled_frames", "frames_out", "bytes_out")
DROPPED = {"server": "s1", "name": "a", "was_connected": False, "dropped_messages": 1, "dropped_bytes": 1, "stalled": ""}
MESSAGE = {"number": 1, "agent": "a", "sender": "b", "attempts": 1, "error": "e", "at": 1}
ODD: tuple[Any, ...] = (None, True, -1, 2**80, "x", [], {}, [1], {"a": None}, [[]], ["abc"], 1.5)
TRIES = 12
SHORT_S = 0.2


async def status() -> dict[str, Any]:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        return await ann.status() | {"neighbours": [PEER | dict.fromkeys(NUMBERS, 1)]}


async def answers_of(command: str) -> Any:
    told: dict[str, Any] = {
        "clients": {"server": "s1", "clients": [ROW], "count": 1, "stalled": ""},
        "client": SHOWN | {"stalled": ""},
        "remove": DROPPED,
        "purge": DROPPED,
        "agents": [{"name": "a", "kind": "k", "reacted": 1, "waiting_letters": 1, "state_bytes": 1, "trouble": ""}],
        "an agent": {"name": "a"},
        "dead messages": [MESSAGE],
    }
    return told.get(command) or await status()


def spoiled(answer: Any, chance: random.Random) -> Any:
    """Return an answer with something left out or replaced, somewhere in it."""
    if not isinstance(answer, dict | list) or not answer or chance.random() < 0.1:
        return chance.choice(ODD)
    if isinstance(answer, list):
        return [spoiled(answer[0], chance), *answer[1:]]
    key = chance.choice(list(answer))
    left = {other: value for other, value in answer.items() if other != key}
    return left if chance.random() < 0.4 else left | {key: spoiled(answer[key], chance)}


MORE = {
    "client": ("client", "show", "URL", "a"),
    "remove": ("client", "remove", "URL", "a"),
    "purge": ("client", "purge", "URL", "a"),
}
ASKING = ("status", "status as JSON", "agents", "an agent", "dead messages", "clients", "apply")


@pytest.mark.parametrize("command", [*ASKING, *MORE])
async def test_an_answer_that_cannot_be_shown_is_told_in_one_line(command: str, tmp_path: Path) -> None:
    chance, whole = random.Random(command), await answers_of(command)
    told = b""

    def answers(said: ControlFrame) -> list[ControlFrame]:
        if isinstance(said, StatusQuestion | ViewRequest):
            return [StatusAnswer(told)]  # To the second that is none.
        if isinstance(said, AgentQuestion):
            return [AgentAnswer(said.number, told)]
        if isinstance(said, OperatorQuestion):
            return [OperatorAnswer(said.number, told)]
        return [ClientWelcome("s1", "flat", 0, 0, 0, 1)]

    async with hostile(answers) as where:
        words, refused = {**COMMANDS, **MORE}[command], 0
        tries = 1 if command == "apply" else TRIES
        for at in range(tries):
            told = json.dumps(spoiled(whole, chance) if at else "abc").encode()
            ran = await called(words, where, tmp_path)
            assert ran.code in (0, 1, 2), told
            assert "bug in thence" not in ran.err, (told, ran.err)
            if ran.code == 2:
                refused += 1
                (line,) = ran.err.splitlines() if command != "apply" else ran.err.splitlines()[-1:]
                assert line.startswith("thence: error: "), line
        assert refused
        told = json.dumps(whole).encode()
        ran = await called(words, where, tmp_path)
        assert ran.code == (2 if command == "apply" else 0), ran.err


async def test_top_shows_the_others(tmp_path: Path) -> None:
    def answers(said: ControlFrame) -> list[ControlFrame]:
        return [StatusAnswer(b"{}") if isinstance(said, StatusQuestion) else ClientWelcome("s1", "flat", 0, 0, 0, 1)]

    async with hostile(answers) as where:
        ran = await called(COMMANDS["top"], where, tmp_path)
        assert ran.code == 1
        assert "answers with what cannot be shown: Object missing required field" in ran.out.replace("\n", " ")


# --- none ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stalled() -> AsyncIterator[tuple[thence.Client, Proxy]]:
    """A client, behind a proxy, that hears nothing of its server any more."""
    topology = flat("s1")
    proxy = Proxy(topology.addresses["s1"], random.Random(1))
    async with servers(topology):
        address = await proxy.start()
        try:
            async with thence.connect(f"thence://{address}", "ann", close_timeout=SHORT_S) as ann:
                proxy.set_mode(Mode.STALL_BACK)
                yield ann, proxy
                proxy.set_mode(Mode.WELL)
        finally:
            await proxy.close()


async def test_who_gets_no_message_is_told_so() -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        with pytest.raises(TimeoutError, match=r"^no message for 'ann' within 0.2 s$"):
            await ann.receive(within=SHORT_S)


async def test_a_message_that_cannot_come_next_ends_its_connection_and_is_no_bug() -> None:
    calls: list[ClientHello] = []
    told: list[str] = []

    def answers(said: ControlFrame) -> list[ControlFrame]:
        if not isinstance(said, ClientHello):
            return []
        calls.append(said)
        return [ClientWelcome("s1", "flat", 0, 0, 0, 1), Deliver(5, 0, "bob", None, write_messages([BatchItem(b"x")]))]

    asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(str(said)))
    async with hostile(answers) as where, thence.connect(where, "ann"):
        await until(lambda: len(calls) == 3)
    assert told == []


async def test_who_gets_no_answer_is_told_whose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "QUESTION_TIMEOUT_S", SHORT_S)
    monkeypatch.setattr(admin, "ANSWER_WITHIN_S", SHORT_S)
    async with stalled() as (ann, proxy):
        for question in (ann.status, ann.agents.list):
            with pytest.raises(TimeoutError, match=f"^no answer from thence://{proxy.address} within 0.2 s$"):
                await question()


async def test_who_leads_a_change_is_told_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "ANSWER_S", SHORT_S)
    async with silent() as address:
        callers = apply.Callers({"s1": address}, apply.Access())
        assert await callers.ask("s1", ViewRequest("ask")) is None
        assert callers.trouble == {"s1": f"no answer from {address} within 0.2 s"}
        await callers.close()


async def test_a_peer_that_takes_the_call_and_says_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_calls, "CONNECT_TIMEOUT_S", SHORT_S)
    topology = flat("s1", "s2")
    async with silent() as address:
        topology = topology.at({**topology.addresses, "s2": address})
        server = await started(topology, "s1")
        try:
            peer = server.node.peers.peers["s2"]
            await until(lambda: peer.trouble == f"no answer from s2 at {address} within 0.2 s")
        finally:
            await server.stop(drain_s=0)


@asynccontextmanager
async def silent() -> AsyncIterator[str]:
    """Take calls, and say nothing; give the address."""
    proxy = Proxy("127.0.0.1:1", random.Random(1))
    proxy.set_mode(Mode.BLACKHOLE)
    try:
        yield await proxy.start()
    finally:
        await proxy.close()
