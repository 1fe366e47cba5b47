"""``thence status``: what is left out is counted, and said how to see."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.servers.running import flat
from tests.unit.cli import run
from thence.cli.servers import status as status_command
from thence.cli.servers import top
from thence.core.member.contract import Arrived
from thence.core.ordering.vector import VectorStamp
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.node.options import NodeOptions
from thence.server import status as status_module
from thence.server.server import Server

WAITING = 27


@pytest.fixture(autouse=True)
def _much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``thence status`` ask a server at which messages wait for the first one of another server."""

    async def ask(*_: object, **__: object) -> dict[str, Any]:
        server = Server(flat("s1", "s2"), "s1", NodeOptions())
        for number in range(2, WAITING + 2):
            frame = Frame(VectorStamp(number, ()), Envelope("s2", number, None, b""))
            server.node.member.step(Arrived("s2", Packet("D", (frame,), (number,))), server.node.driver.clock.now())
        return server.status.report()

    monkeypatch.setattr(status_command, "ask_status", ask)


def test_what_is_not_listed_is_counted() -> None:
    lines = run("status", "thence://s1").out.splitlines()
    at = lines.index("27 messages waiting for an earlier one")
    listed = lines[at + 1 : at + 21]
    assert [line.split()[0] for line in listed] == [f"s2:{number}" for number in range(2, 22)], "those that wait longest"
    assert lines[at + 21] == "  … and 7 more: --json lists all"


def test_what_even_programs_are_not_told_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "MAX_WAITS_LISTED", 25)
    assert "  … and 7 more: --json lists 25\n" in run("status", "thence://s1").out
    said = json.loads(run("status", "thence://s1", "--json").out)
    assert (len(said["waiting"]), said["waiting_count"], said["waiting_left_out"]) == (25, 27, 2)


def test_nothing_more_is_said_where_all_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_command, "SHOWN_WAITS", WAITING)
    assert "more" not in run("status", "thence://s1").out
    assert json.loads(run("status", "thence://s1", "--json").out)["waiting_left_out"] == 0


def test_a_server_that_lists_more_than_there_can_be_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row takes a third of a millisecond, and an answer has room for hundreds of thousands."""
    monkeypatch.setattr(status_command, "SHOWN_ROWS", 3)
    monkeypatch.setattr(top, "MAX_PEERS", 3)
    command: Any = status_command
    report: dict[str, Any] = asyncio.run(command.ask_status("thence://s1"))
    many = report | {"neighbours": [peer | {"name": f"p{number}"} for peer in report["neighbours"] for number in range(5)]}

    async def ask(*_: object, **__: object) -> dict[str, Any]:
        return many

    monkeypatch.setattr(status_command, "ask_status", ask)
    said = run("status", "thence://s1").out
    assert ("p2 " in said, "p3 " in said, "… and 2 more" in said) == (True, False, True)
    look = top.Look(0.0, {"s1": many, "s2": report})
    assert [row[:2] for row in top.link_rows(look, look)] == [
        *(("s1", f"p{number}") for number in range(3)),
        ("s1", "… and 2 more"),
        ("s2", "s2"),
    ]
