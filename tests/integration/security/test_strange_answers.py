"""Answers that lack something, or hold something else: of another version, or of a server that means ill. One line says so."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import thence
from tests.integration.security.test_hostile_server import COMMANDS, called, hostile
from tests.support.servers.running import flat, servers, url
from thence.net.protocol import (
    AgentAnswer,
    AgentQuestion,
    ClientWelcome,
    ControlFrame,
    OperatorAnswer,
    OperatorQuestion,
    StatusAnswer,
    StatusQuestion,
    ViewRequest,
)

ROW = {"name": "a", "connected": True, "from": "x", "temporary": False, "waiting_messages": 1, "waiting_bytes": 2, "full": False}
SHOWN = ROW | {"server": "s1", "in_files": 0, "sent": 1, "received": 1, "done": 1, "topics": ["x"], "topics_left_out": 0}
PEER: dict[str, Any] = {"name": "s2", "connected": True, "trouble": "", "unreadable": "", "held_for_dead": False}
NUMBERS = ("since_seconds", "connections", "queued_frames", "queued_bytes", "spilled_frames", "frames_out", "bytes_out")
DROPPED = {"server": "s1", "name": "a", "was_connected": False, "dropped_messages": 1, "dropped_bytes": 1, "stalled": ""}
MESSAGE = {"number": 1, "agent": "a", "sender": "b", "attempts": 1, "error": "e", "at": 1}
ODD: tuple[Any, ...] = (None, True, -1, 2**80, "x", [], {}, [1], {"a": None}, [[]], ["abc"], 1.5)
TRIES = 12


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
