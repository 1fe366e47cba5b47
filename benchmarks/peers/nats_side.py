"""NATS by nats-py: core with a callback, and JetStream with asynchronous publishes and a pull consumer."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from benchmarks.peers.counting import BURST, Inbox, Part, Pings
from benchmarks.peers.processes import Turn
from thence.runtime.event_loop import leave_core

BATCH = 1_000
"""How many messages a pull asks for."""
MAX_PENDING = 4_000
"""How many asynchronous publishes may wait: nats-py's own default."""


async def _connect(url: str) -> Any:
    import nats

    async def failed(error: Exception) -> None:
        raise error

    return await nats.connect(url, error_cb=failed)


async def _listen(connection: Any, subject: str, expected: int, body_bytes: int) -> Inbox:
    inbox = Inbox(expected, body_bytes)

    async def came(message: Any) -> None:
        inbox.add(1, len(message.data))

    await connection.subscribe(subject, cb=came, pending_msgs_limit=0, pending_bytes_limit=0)
    await connection.flush()
    return inbox


async def _send(connection: Any, subject: str, count: int, body: bytes) -> None:
    for at in range(0, count, BURST):
        for _ in range(min(BURST, count - at)):
            await connection.publish(subject, body)
        await asyncio.sleep(0)
    await connection.flush()


async def group_member(turn: Turn, *, url: str, members: int, count: int, body_bytes: int) -> Part:
    """One of several: sends to everyone, and gets from everyone."""
    connection = await _connect(url)
    inbox = await _listen(connection, "group", members * count, body_bytes)
    await turn.all()
    began = time.monotonic()
    await _send(connection, "group", count, bytes(body_bytes))
    await inbox.all()
    await turn.all()
    await connection.close()
    return Part(inbox.count, began, inbox.last)


async def sender(turn: Turn, *, url: str, count: int, body_bytes: int) -> Part:
    """A client that sends."""
    connection = await _connect(url)
    await turn.all()
    began = time.monotonic()
    await _send(connection, "letters", count, bytes(body_bytes))
    ended = time.monotonic()
    await turn.all()
    await connection.close()
    return Part(0, began, ended)


async def receiver(turn: Turn, *, url: str, count: int, body_bytes: int) -> Part:
    """A client that listens."""
    connection = await _connect(url)
    inbox = await _listen(connection, "letters", count, body_bytes)
    await turn.all()
    await inbox.all()
    await turn.all()
    await connection.close()
    return Part(inbox.count, math.inf, inbox.last)


def _never_sleep(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the loop awake, as politely as ours does: nats-py has nothing for it, so it does not end."""
    leave_core()
    loop.call_soon(_never_sleep, loop)


async def ping(turn: Turn, *, url: str, asks: bool, awake: bool, count: int, body_bytes: int) -> list[float]:
    """One that asks, or one that answers."""
    connection = await _connect(url)
    if awake:
        _never_sleep(asyncio.get_running_loop())
    pings, body = Pings(count), bytes(body_bytes)

    async def back(_: Any) -> None:
        if pings.back():
            pings.sent()
            await connection.publish("ping", body)

    async def answer(message: Any) -> None:
        await connection.publish("pong", message.data)

    await connection.subscribe("pong" if asks else "ping", cb=back if asks else answer)
    await connection.flush()
    await turn.all()
    if asks:
        pings.sent()
        await connection.publish("ping", body)
        await pings.done
    await turn.all()
    await connection.close()
    return pings.times()


# JetStream: file storage, synced when the server likes.


async def stream_sender(turn: Turn, *, url: str, stream: str, count: int, body_bytes: int) -> Part:
    """Publishes into a stream, many at a time, and waits until all are acknowledged."""
    connection = await _connect(url)
    streams = connection.jetstream(publish_async_max_pending=MAX_PENDING)
    body = bytes(body_bytes)
    await streams.add_stream(name=stream, subjects=[f"{stream}.letters"])
    await turn.all()
    await turn.all()
    began = time.monotonic()
    for _ in range(count):
        await streams.publish_async(f"{stream}.letters", body)
    await streams.publish_async_completed()
    ended = time.monotonic()
    await turn.all()
    await connection.close()
    return Part(0, began, ended)


async def stream_receiver(turn: Turn, *, url: str, stream: str, count: int, body_bytes: int) -> Part:
    """Pulls in batches, and acks the last of each for all before it."""
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await _connect(url)
    streams = connection.jetstream()
    await turn.all()
    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10 * BATCH)
    subscription = await streams.pull_subscribe(
        f"{stream}.letters", durable="reader", stream=stream, config=config, pending_msgs_limit=0, pending_bytes_limit=0
    )
    inbox = Inbox(count, body_bytes)
    await turn.all()
    while inbox.count < count:
        messages = await subscription.fetch(min(BATCH, count - inbox.count), timeout=30)
        await messages[-1].ack()
        inbox.add(len(messages), sum([len(message.data) for message in messages]))
    await inbox.all()
    await turn.all()
    await connection.close()
    return Part(inbox.count, math.inf, inbox.last)
