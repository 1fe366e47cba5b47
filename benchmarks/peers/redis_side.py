"""Redis streams by redis-py: pipelined XADD, and XREADGROUP in batches, each acknowledged by one XACK.

By the blocking client, without hiredis.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from benchmarks.peers.counting import Inbox, Part
from benchmarks.peers.processes import Turn

BATCH = 1_000
"""How many entries a pipeline or a read has."""


def _connect(port: int) -> Any:
    import redis

    return redis.Redis(port=port)


async def stream_sender(turn: Turn, *, port: int, stream: str, count: int, body_bytes: int) -> Part:
    """Adds to a stream, many at a time; each batch is acknowledged when it is synced."""
    connection = _connect(port)
    connection.xgroup_create(stream, "readers", mkstream=True)
    entry: Any = {b"b": bytes(body_bytes)}
    await turn.all()
    began = time.monotonic()
    await asyncio.to_thread(_add_all, connection, stream, entry, count)
    ended = time.monotonic()
    await turn.all()
    connection.close()
    return Part(0, began, ended)


def _add_all(connection: Any, stream: str, entry: Any, count: int) -> None:
    for at in range(0, count, BATCH):
        pipeline = connection.pipeline(transaction=False)
        for _ in range(min(BATCH, count - at)):
            pipeline.xadd(stream, entry)
        pipeline.execute()


async def stream_receiver(turn: Turn, *, port: int, stream: str, count: int, body_bytes: int) -> Part:
    """Reads in batches."""
    connection = _connect(port)
    inbox = Inbox(count, body_bytes)
    await turn.all()
    while inbox.count < count:
        found = connection.xreadgroup("readers", "reader", {stream: ">"}, count=BATCH, block=30_000)
        entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
        connection.xack(stream, "readers", *[name for name, _ in entries])
        inbox.add(len(entries), sum([len(fields[b"b"]) for _, fields in entries]))
    await inbox.all()
    await turn.all()
    connection.close()
    return Part(inbox.count, math.inf, inbox.last)
