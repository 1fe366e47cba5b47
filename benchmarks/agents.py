"""Reactions of agents per second, each committed whole, beside a Python program that does so with Redis, and plain delivery.

``NOTES`` says how.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

import thence
from benchmarks.peers.brokers import redis_server, with_free_addresses
from benchmarks.table import Row, markdown
from thence.cli.servers.up import Fleet
from thence.client.client import Client
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import Busy

MESSAGES = 50_000
AGENTS = 100
MANY_AGENTS = 10_000
BATCH = 100
"""How many messages the program with Redis reads and commits at a time."""
IN_A_ROW = 100
"""How many messages to the same agent follow each other where they may travel as one."""
REPEATS = 3
LOOK_S = 0.01
CREATING = 200
"""How many agents are being made at a time."""
UP_WITHIN_S = 60.0


class Tally(msgspec.Struct):
    """What an agent keeps."""

    count: int = 0
    last: str = ""


class Counter(thence.Agent):
    """Counts what it gets; where it is told to, it sends something to another one."""

    state: Tally

    async def react(self, message: thence.Message) -> None:
        """Count, and send on."""
        self.state.count += 1
        self.state.last = message.sender
        onward = message.value(str)
        if onward:
            await self.send(onward, "")


def run(messages: int = MESSAGES, many: int = MANY_AGENTS) -> list[Row]:
    """Measure everything, alternating."""
    best: dict[str, float] = {}

    def note(what: str, rate: float) -> None:
        best[what] = max(best.get(what, 0.0), rate)

    with_redis = shutil.which("redis-server") is not None and find_spec("redis") is not None
    if not with_redis:
        print("left out: Redis; pip install -c constraints.txt '.[peers]', and install redis-server", file=sys.stderr)
    for repeat in range(REPEATS):
        for disk in (True, False):
            where = _where(disk)
            with _server(disk=disk) as url:
                note(f"plain, {where}", asyncio.run(_plain(url, messages)))
                asyncio.run(_create(url, _names(AGENTS)))
                note(f"react, {where}", asyncio.run(_react(url, messages, AGENTS, sends=False)))
                note(f"send, {where}", asyncio.run(_react(url, messages, AGENTS, sends=True)))
                note(f"runs, {where}", asyncio.run(_react(url, messages, AGENTS, sends=False, in_a_row=IN_A_ROW)))
            if with_redis:
                for sends in (False, True):
                    note(f"redis {'send' if sends else 'react'}, {where}", _redis(messages, disk=disk, sends=sends))
        if repeat == 0:
            with _server(disk=True) as url:
                note("create", asyncio.run(_create(url, _names(many))))
                note("many", asyncio.run(_react(url, messages, many, sends=False)))
    return _rows(best, many, with_redis=with_redis)


def _rows(best: dict[str, float], many: int, *, with_redis: bool) -> list[Row]:
    rows = []
    for disk in (True, False):
        where = _where(disk)
        react, send, plain = best[f"react, {where}"], best[f"send, {where}"], best[f"plain, {where}"]
        if with_redis:
            for what, ours in (("react", react), ("send", send)):
                peer = best[f"redis {what}, {where}"]
                told = "reactions, one in two sends" if what == "send" else "reactions"
                rows.append(Row(f"{told}, {where}", f"{ours:,.0f}/s", f"Redis {peer:,.0f}/s", ours / peer))
        rows.append(Row(f"reactions, {where}", f"{react:,.0f}/s", f"plain delivery {plain:,.0f}/s", react / plain))
        runs = best[f"runs, {where}"]
        rows.append(
            Row(
                f"reactions, {IN_A_ROW} messages to one agent in a row, {where}",
                f"{runs:,.0f}/s",
                f"one {react:,.0f}/s",
                runs / react,
            )
        )
    react, at_many = best[f"react, {_where(True)}"], best["many"]
    rows.append(Row(f"{many:,} agents, on disk", f"{at_many:,.0f}/s", f"{AGENTS} agents {react:,.0f}/s", at_many / react))
    create, plain = best["create"], best[f"plain, {_where(True)}"]
    rows.append(Row(f"make {many:,} agents, on disk", f"{create:,.0f}/s", f"plain delivery {plain:,.0f}/s", create / plain))
    return rows


def _where(disk: bool) -> str:
    return "on disk" if disk else "in memory"


def _names(count: int) -> list[str]:
    return [f"agent-{number}" for number in range(count)]


# Ours.


@contextmanager
def _server(*, disk: bool) -> Iterator[str]:
    """Run one server in a process of its own."""
    topology = with_free_addresses(Topology.flat(Domain("one", ("s1",), "vector")))
    with tempfile.TemporaryDirectory(prefix="thence-agents-") as folder:
        (Path(folder) / "topology.toml").write_text(write(topology), encoding="utf-8")
        fleet = Fleet(topology, Path(folder), memory=not disk, agents=("benchmarks.agents",), log=lambda _: None)
        fleet.start()
        try:
            yield f"thence://{topology.addresses['s1']}"
        finally:
            fleet.stop()


async def _create(url: str, names: list[str]) -> float:
    async with thence.connect(url, "maker", connect_timeout=UP_WITHIN_S) as client:
        began = perf_counter()
        for at in range(0, len(names), CREATING):
            await asyncio.gather(*(client.agents.create(name, "Counter") for name in names[at : at + CREATING]))
        return len(names) / (perf_counter() - began)


async def _react(url: str, messages: int, agents: int, *, sends: bool, in_a_row: int = 1) -> float:
    names = _names(agents)
    count = messages // 2 if sends else messages
    async with thence.connect(url, "poster", connect_timeout=UP_WITHIN_S) as client:
        before = (await client.status())["agents"]["reactions"]
        began = perf_counter()
        for number in range(count):
            await _posted(client, names[number // in_a_row % agents], names[(number + 7) % agents] if sends else "")
        await client.flush()
        while (await client.status())["agents"]["reactions"] - before < messages:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        await client.agents.show(names[0])  # It answers when everything is durable.
        return messages / (perf_counter() - began)


async def _posted(client: Client, to: str, body: Any) -> None:
    try:
        client.post(to, body)
    except Busy:
        await client.room()
        client.post(to, body)


async def _plain(url: str, messages: int) -> float:
    async with (
        thence.connect(url, "sender", connect_timeout=UP_WITHIN_S) as sender,
        thence.connect(url, "reader-0") as reader,
        thence.connect(url, "reader-1") as other,
    ):
        came = asyncio.Event()
        got = 0

        def take(items: Any) -> None:
            nonlocal got
            got += len(items)
            if got >= messages:
                came.set()

        reader.on_batch(take)
        other.on_batch(take)
        began = perf_counter()
        for number in range(messages):
            await _posted(sender, f"reader-{number % 2}", "")
        await came.wait()
        return messages / (perf_counter() - began)


# Redis.


def _redis(messages: int, *, disk: bool, sends: bool) -> float:
    import redis

    names = _names(AGENTS)
    with (
        tempfile.TemporaryDirectory(prefix="thence-agents-") as folder,
        redis_server(Path(folder) / "redis", disk=disk) as (port, _),
    ):
        connection: Any = redis.Redis(port=port)
        connection.xgroup_create("box", "engine", mkstream=True)
        count = messages // 2 if sends else messages
        for at in range(0, count, 1_000):
            pipeline = connection.pipeline(transaction=False)
            for number in range(at, min(at + 1_000, count)):
                onward = names[(number + 7) % AGENTS] if sends else ""
                pipeline.xadd("box", {"agent": names[number % AGENTS], "sender": "poster", "onward": onward})
            pipeline.execute()
        return _measured(lambda: _redis_reactions(connection, messages), messages)


def _redis_reactions(connection: Any, messages: int) -> None:
    states: dict[bytes, Tally] = {}
    done = 0
    while done < messages:
        found = connection.xreadgroup("engine", "one", {"box": ">"}, count=BATCH)
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
        transaction = connection.pipeline(transaction=True)
        for _, fields in entries:
            agent, onward = fields[b"agent"], fields[b"onward"]
            state = states.setdefault(agent, Tally())
            state.count += 1
            state.last = fields[b"sender"].decode()
            transaction.set(agent, msgspec.msgpack.encode(state))
            if onward:
                transaction.xadd("box", {"agent": onward, "sender": agent, "onward": ""})
        transaction.xack("box", "engine", *[name for name, _ in entries])
        transaction.execute()
        done += len(entries)


def _measured(work: Callable[[], None], count: int) -> float:
    began = perf_counter()
    work()
    return count / (perf_counter() - began)


NOTES = """
Ours: a client posts messages to agents of one server, each to another one than the message before. Each reaction changes the
state of its agent, and the clock stops when the last one is committed. Redis: the messages are in a stream already; a program
reads 100 at a time, changes states that it keeps in memory, and writes each batch as one MULTI: SET of every state, XADD of what
is sent, XACK. So sending is in our time, and not in that of Redis. On disk means that a commit is synced (`appendfsync
always`). Where a reaction sends, it sends one message to another agent, which reacts to it too; both are counted. Plain delivery
is the same client writing to two other clients of the same server, in turn.

Messages that go to one agent in a row travel together, and show what a reaction itself costs; in the other rows most of the time
goes into each message's own way from the client into the log.

What a program on top of Redis would have to add for the rest, such as retries, messages that are set aside, and the order of one
client's messages to several agents at several servers, is not in its figures.
"""


if __name__ == "__main__":
    print(markdown(run()))
