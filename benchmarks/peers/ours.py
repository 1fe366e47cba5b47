"""Our side: members in the program, and clients of servers. Sends with ``post``, listens with ``on_batch``: the quickest way."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from benchmarks.peers.counting import BURST, Inbox, Part, Pings
from benchmarks.peers.processes import Turn
from thence.client.client import connect
from thence.client.embedded import Member
from thence.client.endpoint import Endpoint
from thence.client.message import EVERYONE, Message, To
from thence.core.topology.toml import parse
from thence.runtime.event_loop import stay_awake


def _listen(endpoint: Endpoint, expected: int, body_bytes: int) -> Inbox:
    inbox = Inbox(expected, body_bytes)
    endpoint.on_batch(lambda messages: inbox.add(len(messages), sum([len(message.body) for message in messages])))
    return inbox


async def _send(endpoint: Endpoint, to: To, count: int, body: bytes) -> None:
    for at in range(0, count, BURST):
        await endpoint.room()
        for _ in range(min(BURST, count - at)):
            endpoint.post(to, body)
        await asyncio.sleep(0)


async def group_member(turn: Turn, *, topology: str, name: str, members: int, count: int, body_bytes: int) -> Part:
    """One of several members: sends to everyone, and gets from everyone."""
    async with Member(parse(topology), name=name) as member:
        inbox = _listen(member, members * count, body_bytes)
        await member.connected()
        await turn.all()
        began = time.monotonic()
        await _send(member, EVERYONE, count, bytes(body_bytes))
        await inbox.all()
        await turn.all()
    return Part(inbox.count, began, inbox.last)


async def sender(turn: Turn, *, url: str, to: str, count: int, body_bytes: int) -> Part:
    """A client that sends."""
    async with connect(url) as client:
        await turn.all()
        await client.known(to)
        began = time.monotonic()
        await _send(client, to, count, bytes(body_bytes))
        await client.flush()
        ended = time.monotonic()
        await turn.all()
    return Part(0, began, ended)


async def receiver(turn: Turn, *, url: str, name: str, count: int, body_bytes: int) -> Part:
    """A client that listens."""
    async with connect(url, name, temporary=True) as client:
        inbox = _listen(client, count, body_bytes)
        await turn.all()
        await inbox.all()
        await turn.all()
    return Part(inbox.count, math.inf, inbox.last)


async def _ping(endpoint: Endpoint, to: str, count: int, body: bytes) -> list[float]:
    pings = Pings(count)

    def back(_: Sequence[Message]) -> None:
        if pings.back():
            pings.sent()
            endpoint.post(to, body)

    endpoint.on_batch(back)
    pings.sent()
    endpoint.post(to, body)
    await pings.done
    return pings.times()


def _answer(endpoint: Endpoint) -> None:
    def answer(messages: Sequence[Message]) -> None:
        for message in messages:
            endpoint.post(message.sender, message.body)

    endpoint.on_batch(answer)


async def ping_member(
    turn: Turn, *, topology: str, name: str, to: str, awake_s: float, count: int, body_bytes: int
) -> list[float]:
    """A member that asks (``to`` given) or answers."""
    with stay_awake(awake_s):
        async with Member(parse(topology), name=name) as member:
            await member.connected()
            if not to:
                _answer(member)
            await turn.all()
            times = await _ping(member, to, count, bytes(body_bytes)) if to else []
            await turn.all()
    return times


async def ping_client(turn: Turn, *, url: str, name: str, to: str, awake_s: float, count: int, body_bytes: int) -> list[float]:
    """A client that asks (``to`` given) or answers."""
    with stay_awake(awake_s):
        async with connect(url, name, temporary=True) as client:
            if not to:
                _answer(client)
            await turn.all()
            times = await _ping(client, to, count, bytes(body_bytes)) if to else []
            await turn.all()
    return times
