"""Log lines: each has its event and its parts by name, and the table of events is what the code really logs."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_docs import read, rows
from thence.runtime import logs
from thence.runtime.logs import EVENTS

SOURCE = Path(logs.__file__).parents[1]
LEVELS = {"debug", "info", "warning", "error", "critical", "exception", "log"}
ALWAYS = {"time", "level", "server", "part", "event", "message"}


@pytest.fixture
def server_log() -> Iterator[logging.Logger]:
    root = logging.getLogger("thence")
    before = (root.handlers[:], root.level, root.propagate)
    yield logging.getLogger("thence.peers")
    root.handlers[:], root.level, root.propagate = before


def texts_in(tree: ast.Module) -> Iterator[str]:
    """Give every text that is handed to a logger, which is called ``log`` or ``node_log``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "node_log"), attr=level), args=args) if level in LEVELS:
                text = args[1] if level == "log" else args[0]
                for part in (text.body, text.orelse) if isinstance(text, ast.IfExp) else (text,):
                    assert isinstance(part, ast.Constant), ast.unparse(node)
                    yield str(part.value)
            case _:
                pass


def test_the_table_is_what_the_code_logs() -> None:
    files = SOURCE.rglob("*.py")
    found = {text for file in files for text in texts_in(ast.parse(file.read_text(encoding="utf-8")))}
    assert found == set(EVENTS)


def test_every_part_has_a_name_and_every_event_its_own() -> None:
    for text, event in EVENTS.items():
        assert len(re.findall(r"%[sdg]", text)) == len(event.parts), text
        assert not ALWAYS & set(event.parts), event.name
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", event.name)
    assert len({event.name for event in EVENTS.values()}) == len(EVENTS)


def test_the_page_lists_the_events() -> None:
    told = [tuple(row) for row in rows(read("docs/how-to/operations.md"), "| event | parts |")]
    assert told == [(f"`{event.name}`", ", ".join(f"`{part}`" for part in event.parts)) for event in EVENTS.values()]
    assert {row[0].strip("`") for row in rows(read("docs/how-to/operations.md"), "| field | what |")} == ALWAYS


def test_a_json_line_has_its_event_and_parts(server_log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("s1", "json")
    server_log.info("connected with %s at %s", "s2", "127.0.0.1:7402")
    server_log.warning("%s: %s", "s2", OSError(111, "refused"))
    server_log.warning("something of an agent's class")
    server_log.warning("agent %s rests: %s", "ann", "why", exc_info=ValueError("what"))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["neighbour-connected", "neighbour-trouble", "other", "agent-rests"]
    assert all(set(line) >= ALWAYS and line["server"] == "s1" and line["part"] == "peers" for line in lines)
    assert (lines[0]["peer"], lines[0]["address"]) == ("s2", "127.0.0.1:7402")
    assert lines[0]["message"] == "connected with s2 at 127.0.0.1:7402"
    assert lines[1]["reason"] == "[Errno 111] refused"
    assert "ValueError: what" in lines[3]["message"]


def test_what_an_error_says_looks_like_no_line_of_ours_and_has_an_end(
    server_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.set_up("s1")
    error = ValueError("\n12:00:00.000 warning: 203.0.113.9:1: refused\r\x1b[2J\n\nlast" + "x" * 1_000_000)
    server_log.warning("agent %s: %s", "ann", "failed", exc_info=error)
    first, *others, end = capsys.readouterr().err.split("\n")
    assert first.endswith("agent ann: failed")
    assert end == ""
    assert all(line.startswith("  ") and line.isprintable() for line in others), others[:9]
    assert sum(map(len, others)) < 2 * logs.MAX_TRACEBACK_CHARACTERS


def test_a_line_for_people(server_log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up("s1", "text")
    server_log.info("connected with %s at %s", "s2", "here")
    server_log.warning("%s: %s", "s2", "gone")
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} connected with s2 at here", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} warning: s2: gone", second)
