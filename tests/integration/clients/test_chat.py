"""``thence chat``: the demonstration with real servers, and rooms of people at terminals and in pipes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import thence
from tests.support.pages.typed_pages import Shell
from tests.support.servers.running import PATIENCE_S, addressed, flat, fleet, servers, url, wait_for_server
from tests.support.servers.securing import Access, certificates, secure_url
from tests.support.servers.terminal import Terminal
from tests.test_docs import blocks, calls, matches, read
from tests.unit.cli import refusal
from thence.cli.servers.up import Fleet, free_addresses
from thence.core.topology.toml import parse
from thence.trace.files import read_trace
from thence.trace.judge import judge

DIRECTORY = """
name = "directory"
[domains.up]
members = ["s1", "s2"]
[domains.down]
members = ["s2", "s3"]
"""

PORTS = ("7431", "7432", "7433")
"""Those on the page."""


# --- the demonstration -------------------------------------------------------------------------------------------------


def test_the_page_is_followed_and_the_servers_recorded_what_is_shown(tmp_path: Path) -> None:
    page = read("docs/how-to/chat.md")
    for port, address in zip(PORTS, free_addresses(len(PORTS)), strict=True):
        page = page.replace(f"127.0.0.1:{port}", address)
    (fabric,) = blocks(page, "toml")
    directory = parse(fabric)
    (tmp_path / "office.toml").write_text(fabric)
    shell = Shell(tmp_path)
    printed: dict[str, str] = {}
    try:
        for call in calls("".join(blocks(page, "console"))):
            code, printed[call.command] = shell.type(call.command)
            assert code == call.code, printed[call.command]
            assert not call.shown.strip() or matches(call.shown, printed[call.command]), printed[call.command]
            if call.command.endswith("&"):
                for name in directory.processes:  # A person would see that they are up.
                    wait_for_server(directory, name)
    finally:
        shell.stop()
    assert len(printed) == 7
    told = next(text for command, text in printed.items() if command.startswith("thence chat --slow"))
    counts = re.search(r"without (\d+) of 60 lines, (\d+) of them answers before", told)
    assert counts is not None
    assert 0 < int(counts[2]) <= int(counts[1])
    assert len(re.findall(r"^ +\d+ \w+(?::| to )", told, re.MULTILINE)) == 15
    assert judge(read_trace(tmp_path / "chat" / "with")).kept
    broken = judge(read_trace(tmp_path / "chat" / "without")).properties
    assert {name for name, count in broken.items() if count} == {"causal"}, "nothing was lost, doubled or out of order per sender"


def test_it_ends_with_all_its_servers_when_interrupted() -> None:
    terminal = Terminal("chat", "--slow", "2")
    terminal.until(1, "to 1: Ten is too early")
    mine = _descendants(terminal.process.pid)
    assert len(mine) == 12
    assert terminal.interrupt() == 130
    assert not [pid for pid in mine if Path(f"/proc/{pid}").exists()]


def _descendants(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(pid) for pid in children.split()]


# --- rooms -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(addressed(DIRECTORY), tmp_path_factory.mktemp("office")) as running:
        yield running


class Piped:
    """Somebody in a room whose lines come through a pipe, with what it saw in a file."""

    def __init__(self, folder: Path, server: str, name: str, *options: str) -> None:
        self.said, self.noted = folder / f"{name}.txt", folder / f"{name}.err"
        command = [sys.executable, "-m", "thence.cli.main", "chat", server, "--name", name, *options]
        with self.said.open("wb") as out, self.noted.open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err)

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def until(self, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while what not in self.seen + self.notes:
            assert time.monotonic() < deadline, (what, self.seen, self.notes)
            assert self.process.poll() is None, (what, self.seen, self.notes)
            time.sleep(0.02)

    @property
    def seen(self) -> str:
        return self.said.read_text(encoding="utf-8")

    @property
    def notes(self) -> str:
        return self.noted.read_text(encoding="utf-8")

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


def test_people_talk_across_domains_in_a_pipe(directory: Fleet, tmp_path: Path) -> None:
    ada = Piped(tmp_path, url(directory.topology, "s1"), "ada")
    ada.until("ada is in lobby, at s1")
    bob = Piped(tmp_path, url(directory.topology, "s3"), "bob")
    ada.until("bob is here")
    ada.say("tea?")
    bob.until("[1] ada: tea?")
    bob.say("/re 1 yes, please")
    bob.say("//slash")
    ada.until("[3] bob: /slash")
    assert ada.seen == "[1] ada: tea?\n[2] bob to [1]: yes, please\n[3] bob: /slash\n"
    ada.say("/re 9 what?")
    ada.until("there is no line 9 to answer")
    ada.say("/who")
    ada.until("2 people: ada, bob")
    ada.say("/waiting")
    ada.until("0 messages waiting for an earlier one at s1")
    ada.say("/dance")
    ada.until("there is no /dance; /help lists what there is")
    assert bob.leave() == 0, bob.notes
    ada.until("bob has left")
    ada.say("/quit")
    assert ada.process.wait(PATIENCE_S) == 0
    assert bob.seen == ada.seen
    assert ada.leave() == 0


def test_a_line_without_its_question_and_one_for_me_alone_are_shown_as_such(directory: Fleet, tmp_path: Path) -> None:
    async def write() -> None:
        async with thence.connect(url(directory.topology, "s3")) as client:
            await client.known("eve")
            await client.publish("attic", "früh \x1b[2J".encode(), headers={"line": "2", "answers": "1"})
            await client.publish("attic", ["a", "value"])
            await client.send("eve", b"psst")

    eve = Piped(tmp_path, url(directory.topology, "s1"), "eve", "--room", "attic")
    eve.until("eve is in attic")
    asyncio.run(write())
    eve.until("psst")
    assert re.fullmatch(
        r"\[1\] client-\w+ to a line that is not here: früh \\x1b\[2J\n"
        r"\[2\] client-\w+: \['a', 'value'\]\n"
        r"\[3\] client-\w+ to you alone: psst\n",
        eve.seen,
    )
    eve.process.send_signal(signal.SIGTERM)
    assert eve.leave() == 0


def test_a_person_at_a_terminal(directory: Fleet, tmp_path: Path) -> None:
    ada = Terminal("chat", url(directory.topology, "s1"), "--name", "ann", "--room", "hall")
    ada.until(1, "ann> ")
    bob = Piped(tmp_path, url(directory.topology, "s3"), "ben", "--room", "hall")
    ada.until(1, "ben is here")
    ada.type("half a l")
    ada.until(1, "ann> half a l")
    before = ada.shown.count("ann> half a l")
    bob.say("am I interrupting?")
    ada.until(1, "am I interrupting?")
    ada.until(before + 1, "ann> half a l")  # What was being typed stands below it again.
    ada.type("x\x7fine\x1b[A!\r")
    bob.until("[2] ann: half a line!")
    assert ada.interrupt() == 0
    bob.until("ann has left")
    assert bob.leave() == 0


def test_a_terminal_is_left_with_control_d_and_given_back(directory: Fleet) -> None:
    ada = Terminal("chat", url(directory.topology, "s1"), "--name", "una", "--room", "hall")
    ada.until(1, "una> ")
    assert not ada.echoes()
    ada.type("\x04")
    ada.process.wait(PATIENCE_S)
    assert ada.echoes()
    assert ada.ended() == 0


def test_nothing_is_lost_when_a_server_is_killed_and_nothing_is_kept_of_who_left(tmp_path: Path) -> None:
    with fleet(addressed(DIRECTORY), tmp_path / "data") as running:
        topology = running.topology
        ada = Piped(tmp_path, url(topology, "s1"), "ada")
        bob = Piped(tmp_path, url(topology, "s3"), "bob", "--keep")
        ada.until("bob is here")  # So s1 knows that bob is in the room.
        running.kill("s1")
        ada.until("the connection is lost")
        ada.say("is anybody there?")
        running.start_one("s1")
        ada.until("connected again, to s1")
        bob.until("ada: is anybody there?")
        ada.until("ada: is anybody there?")
        assert bob.leave() == 0
        ada.until("bob has left")
        ada.say("he keeps his name")
        assert ada.leave() == 0, ada.notes
        back = Piped(tmp_path, url(topology, "s3"), "bob", "--keep")
        back.until("ada: he keeps his name")
        assert back.leave() == 0
        clients = {client["name"] for name in ("s1", "s3") for client in wait_for_server(topology, name)["clients"]}
        assert clients == {"bob"}
        ada = Piped(tmp_path, url(topology, "s1"), "ada")
        ada.until("ada is in")
        running.kill("s1")
        ada.until("the connection is lost")
        ada.say("too late")
        assert ada.leave() == 2
        assert "what was said last may not have been accepted" in ada.notes


async def test_a_room_behind_tls_and_an_access_file(tmp_path: Path) -> None:
    topology = flat("s1")
    tls = certificates(tmp_path / "tls", trustme.CA(), "s1")["s1"]
    room = {"publish": ["lobby"], "subscribe": ["lobby"]}
    access = Access(tmp_path / "access.toml", ada=room, bob={"subscribe": ["lobby"]})

    def enter(name: str) -> Piped:
        options = ("--token", access.tokens[name], "--tls-ca", str(tmp_path / "tls" / "authority.pem"))
        return Piped(tmp_path, secure_url(topology, "s1"), name, *options)

    async with servers(topology, tls=tls, access=access.path):
        ada = enter("ada")
        ada.say("safely")
        await asyncio.to_thread(ada.until, "[1] ada: safely")
        ada.say("/waiting")
        await asyncio.to_thread(ada.until, "not told: ")
        assert await asyncio.to_thread(ada.leave) == 0, ada.notes
        bob = enter("bob")
        assert await asyncio.to_thread(bob.leave) == 2
        assert "thence: error: " in bob.notes
        assert "'lobby'" in bob.notes


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["thence://127.0.0.1:1"], "a room needs --name"),
        (["--name", "ada"], "--name needs URL"),
        (["ftp://here", "--name", "ada"], "is no address of a server"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: list[str], why: str) -> None:
    assert why in refusal("chat", *arguments)


def test_the_shell_completes_it() -> None:
    environment = {**os.environ, "_THENCE_COMPLETE": "complete_bash", "COMP_WORDS": "thence chat --ro", "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "thence.cli.main"]
    assert subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split() == ["--room"]
