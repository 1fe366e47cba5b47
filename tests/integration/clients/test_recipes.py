"""The recipes of docs/how-to/recipes: their pages followed step by step, and what they promise held under kills and cut lines.

Rules: the programs are those in ``examples``, and what a page shows of one is part of it, word by word. Lines are cut by proxies
(``thence.server.proxied_lines``) and healed when what was to be seen has been seen, so that nothing depends on how quick a
machine is.
"""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest

import thence
from examples.editing import Editor
from examples.kvstore import Put, Replica
from examples.shop import Money, Order, Place, Shelf
from tests.support.pages.typed_pages import Shell
from tests.support.servers.running import PATIENCE_S, PreparedFleet, addressed, until, wait_for_server
from tests.test_docs import ROOT, blocks, calls, matches, read
from thence.cli.messages.chat_demo import start_behind
from thence.cli.servers.up import Fleet, free_addresses, with_addresses
from thence.client.client import ask_status
from thence.core.topology.toml import parse
from thence.net.proxy import Mode
from thence.server.proxied_lines import Lines

PORTS = ("7441", "7442", "7443", "7444")
FABRIC = read("examples/recipes.toml")
PAGES = sorted((ROOT / "docs" / "how-to" / "recipes").glob("*.md"))
COMMANDS = {"chat": 3, "collaborative-editing": 5, "key-value-store": 9, "saga": 10}
"""How many each page has."""


# --- the pages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_the_page_is_followed(page: Path, tmp_path: Path) -> None:
    text, fabric = page.read_text(encoding="utf-8"), FABRIC
    for port, address in zip(PORTS, free_addresses(len(PORTS)), strict=True):
        text, fabric = text.replace(f"127.0.0.1:{port}", address), fabric.replace(f"127.0.0.1:{port}", address)
    topology = parse(fabric)
    (tmp_path / "examples").mkdir()
    for program in (ROOT / "examples").glob("*.py"):
        (tmp_path / "examples" / program.name).symlink_to(program)
    (tmp_path / "examples" / "recipes.toml").write_text(fabric, encoding="utf-8")
    shell = Shell(tmp_path)
    followed = 0
    try:
        for call in calls("".join(blocks(text, "console"))):
            code, printed = shell.type(call.command)
            assert code == call.code, f"{call.command} exits with {code}:\n{printed}{shell.told_by_jobs()}"
            assert not call.shown.strip() or matches(call.shown, printed), f"{call.command} prints:\n{printed}"
            followed += 1
            if call.command.startswith("thence up"):
                for name in topology.processes:
                    wait_for_server(topology, name)
    finally:
        shell.stop()
    assert followed == COMMANDS[page.stem]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.stem))
def test_what_a_page_shows_is_part_of_the_program(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (program,) = set(re.findall(r"examples/(\w+)\.py", text))
    shown = blocks(text, "python")
    assert shown
    for block in shown:
        assert block in read(f"examples/{program}.py")


# --- what they promise -------------------------------------------------------------------------------------------------


class Running(NamedTuple):
    """Servers as processes, with a proxy on each line between them."""

    fleet: Fleet
    lines: Lines

    def url(self, server: str) -> str:
        return f"thence://{self.fleet.topology.addresses[server]}"

    def cut(self, *pairs: tuple[str, str]) -> None:
        for pair in pairs:
            self.lines.proxies[pair].set_mode(Mode.CUT)

    def heal(self) -> None:
        for proxy in self.lines.proxies.values():
            proxy.set_mode(Mode.WELL)

    def restart(self, server: str) -> None:
        self.fleet.start_one(server, self.fleet.data / f"{server}.toml")


@asynccontextmanager
async def running(folder: Path, ordering: str = "matrix", agents: tuple[str, ...] = ()) -> AsyncIterator[Running]:
    """Run the fabric of the recipes."""
    promise = "causal" if ordering == "matrix" else ordering
    fabric = re.sub(r"\[servers.*", "", FABRIC, flags=re.DOTALL).replace('"matrix"', f'"{ordering}"')
    topology = with_addresses(addressed(f'promise = "{promise}"\n{fabric}'), folder / "topology.toml")
    lines = Lines(topology, Random(1))
    await lines.start()
    fleet = PreparedFleet(topology, folder, agents=agents)
    try:
        start_behind(fleet, lines)
        for name in topology.processes:
            await asyncio.to_thread(wait_for_server, topology, name)
        yield Running(fleet, lines)
    finally:
        for proxy in lines.proxies.values():
            proxy.set_mode(Mode.WELL)
        await asyncio.to_thread(fleet.stop)
        await lines.close()


class Talker:
    """Somebody in a room, and what it saw."""

    def __init__(self, process: Process) -> None:
        self.seen: list[str] = []
        self._process = process
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.seen.append(line.decode().rstrip("\n"))

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())

    async def leave(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._reading
        return await self._process.wait()


async def talker(url: str, name: str) -> Talker:
    arguments = ("-m", "examples.room", url, name, "lobby")
    return Talker(await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT))


async def test_two_people_talk_and_see_answers_behind_questions(tmp_path: Path) -> None:
    async with running(tmp_path) as where:
        ada, bob = await talker(where.url("n1"), "ada"), await talker(where.url("s1"), "bob")
        while "bob: hello" not in ada.seen or "ada: hello" not in bob.seen:  # Who is not in yet hears nothing.
            ada.say("hello")
            bob.say("hello")
            await asyncio.sleep(0.2)
        expected = []
        for number in range(6):
            speaker, name = ((ada, "ada"), (bob, "bob"))[number % 2]
            speaker.say(str(number))
            expected.append(f"{name}: {number}")
            await until(lambda: expected[-1] in ada.seen and expected[-1] in bob.seen)
        assert await bob.leave() == 0
        await until(lambda: "bob: (has left)" in ada.seen)
        assert await ada.leave() == 0
        for seen in (ada.seen, bob.seen):
            assert [line for line in seen if "hello" not in line][:6] == expected


@asynccontextmanager
async def replica(where: Running, server: str, folder: Path) -> AsyncIterator[Replica]:
    async with thence.connect(where.url(server), f"replica-{server}") as client:
        one = Replica(client, folder / f"{server}.db", ["replica-n1", "replica-n2", "replica-s1"])
        await one.start()
        yield one
        await one.stop()


async def test_replicas_keep_conflicts_and_agree(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as where,
        replica(where, "n1", tmp_path) as north,
        replica(where, "n2", tmp_path) as east,
        replica(where, "s1", tmp_path) as south,
    ):
        everywhere = (north, east, south)
        await south.put("colour", "red")
        await until(lambda: all(one.get("colour") == ["red"] for one in everywhere))
        await north.put("colour", "green")
        await until(lambda: all(one.get("colour") == ["green"] for one in everywhere))
        where.cut(("r", "s1"))
        await north.put("colour", "blue")
        await south.put("colour", "gold")
        assert (north.get("colour"), south.get("colour")) == (["blue"], ["gold"])
        where.heal()
        await until(lambda: all(sorted(one.get("colour")) == ["blue", "gold"] for one in everywhere))
        assert north.get("colour") == south.get("colour") == east.get("colour"), "also in the same order"
        await east.put("colour", "black")
        await until(lambda: all(one.get("colour") == ["black"] for one in everywhere))


async def test_replicas_survive_a_kill_of_a_server_and_go_on_where_their_files_end(tmp_path: Path) -> None:
    async with running(tmp_path) as where, replica(where, "n1", tmp_path) as north, replica(where, "n2", tmp_path) as east:
        async with replica(where, "s1", tmp_path) as south:
            await south.put("a", "1")
            await until(lambda: north.get("a") == east.get("a") == ["1"])
        where.fleet.kill("n2")
        await north.put("a", "2")
        assert east.get("a") == ["1"], "what it has can still be read"
        writing = asyncio.create_task(east.put("b", "3"))  # It waits for its server.
        where.restart("n2")
        await writing
        await until(lambda: (east.get("a"), north.get("b")) == (["2"], ["3"]))
        async with replica(where, "s1", tmp_path) as south:  # It was away, and has a file.
            await until(lambda: (south.get("a"), south.get("b")) == (["2"], ["3"]))
            # Messages that come again, as after a crash, change nothing.
            south.apply(1, Put("again", "a", "0"))
            assert south.get("a") == ["2"]


@asynccontextmanager
async def editors(where: Running, *places: str) -> AsyncIterator[list[Editor]]:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(thence.connect(where.url(place), f"editor-{place}")) for place in places]
        names = [client.name for client in clients]
        yield [await Editor.start(client, [name for name in names if name != client.name]) for client in clients]


async def test_editors_at_two_sites_agree_when_the_line_is_back(tmp_path: Path) -> None:
    async with running(tmp_path) as where, editors(where, "n1", "s1") as (ann, bob):
        ann.text.insert(0, "The cat sat on the mat.")
        await until(lambda: str(bob.text) == str(ann.text))
        where.cut(("r", "s1"))
        ann.text.insert(4, "black ")
        del ann.text[0:3]
        ann.text.insert(0, "A")
        bob.text.insert(18, " soft")
        assert str(ann.text) == "A black cat sat on the mat."
        assert str(bob.text) == "The cat sat on the soft mat."
        where.heal()
        await until(lambda: str(ann.text) == str(bob.text) == "A black cat sat on the soft mat.")


@pytest.mark.parametrize("ordering", ["matrix", "fifo"])
async def test_in_causal_order_no_edit_has_to_be_put_aside(ordering: str, tmp_path: Path) -> None:
    async with running(tmp_path, ordering) as where, editors(where, "n1", "n2", "r") as (ann, ben, cyd):
        ann.text.insert(0, "x")
        await until(lambda: str(ben.text) == str(cyd.text) == "x")
        where.cut(("n1", "r"))
        ann.text.insert(1, " equals")
        await until(lambda: str(ben.text) == "x equals")
        ben.text.insert(8, " two")
        if ordering == "fifo":
            await until(lambda: cyd.put_aside == 1)
            assert str(cyd.text) == "x", "what it cannot place it does not show"
        else:
            await until_waiting(where.url("r"))
            assert str(cyd.text) == "x"
        where.heal()
        await until(lambda: str(cyd.text) == "x equals two")
        assert cyd.put_aside == (1 if ordering == "fifo" else 0)


async def until_waiting(url: str) -> None:
    """Wait until a message waits for an earlier one at a server."""
    async with asyncio.timeout(PATIENCE_S):
        while not (await ask_status(url))["waiting_count"]:  # noqa: ASYNC110  Servers tell nobody.
            await asyncio.sleep(0.05)


async def test_every_order_ends_once_whatever_is_killed(tmp_path: Path) -> None:
    async with running(tmp_path, agents=("examples.shop",)) as where:
        async with (
            thence.connect(where.url("n1"), "desk") as admin,
            thence.connect(where.url("n2"), "yard") as yard,
            thence.connect(where.url("s1"), "bank") as bank,
        ):
            await admin.agents.create("orders", "Orders")
            await bank.agents.create("payment", "Payment", Money({"ann": 25, "bob": 500}))
            await yard.agents.create("stock", "Stock", Shelf({"tea": 9}))
            await asyncio.gather(admin.known("payment"), admin.known("stock"), bank.known("orders"), yard.known("orders"))
            placed = [Place(f"o{number}", "ann" if number % 2 else "bob", "tea", 10) for number in range(24)]
            kills = {4: "n2", 8: "s1", 12: "n1", 16: "r"}
            for number, place in enumerate(placed):
                admin.post("orders", place)
                admin.post("orders", place)  # Customers are impatient.
                await asyncio.sleep(0.02)
                if number in kills:
                    where.fleet.kill(kills[number])
                if number - 3 in kills:
                    where.restart(kills[number - 3])
            await admin.flush()
            orders = await until_ended(admin, len(placed))
            await until(lambda: not (bank.trouble or yard.trouble))  # They may be about to call their servers again.
            money = msgspec.convert((await bank.agents.show("payment"))["state"], Money)
            shelf = msgspec.convert((await yard.agents.show("stock"))["state"], Shelf)
        ended = {name: order.outcome for name, order in orders.items()}
        done = ["o0", "o1", "o2", "o3", "o4", "o6", "o8", "o10", "o12"]  # The first nine that were paid.
        assert ended == {
            place.order: "done" if place.order in done else "declined" if place.customer == "ann" else "cancelled"
            for place in placed
        }
        assert shelf == Shelf({"tea": 0}, done), "each got one, once"
        assert money == Money({"ann": 5, "bob": 430}, 90), "paid once, and what could not be had was paid back"


async def until_ended(admin: thence.Client, count: int) -> dict[str, Order]:
    """Wait until so many orders have come to their end; return them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(ConnectionError):
                state = (await admin.agents.show("orders"))["state"]
                orders = msgspec.convert(state, dict[str, Order])
                if len(orders) == count and all(order.outcome in {"done", "declined", "cancelled"} for order in orders.values()):
                    return orders
            await asyncio.sleep(0.1)
