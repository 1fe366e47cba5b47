"""RabbitMQ by aio-pika: a durable queue, persistent messages that are acknowledged, and a consumer that acks in batches."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from benchmarks.peers.counting import Inbox, Part
from benchmarks.peers.processes import Turn

BATCH = 1_000
"""How many publishes wait for their ack together, and how many messages the consumer acks at once."""


async def _queue(url: str, name: str) -> tuple[Any, Any, Any]:
    import aio_pika

    connection = await aio_pika.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.set_qos(prefetch_count=2 * BATCH)
    return connection, channel, await channel.declare_queue(name, durable=True)


async def queue_sender(turn: Turn, *, url: str, queue: str, count: int, body_bytes: int) -> Part:
    """Publishes into a queue, many at a time."""
    import aio_pika

    connection, channel, _ = await _queue(url, queue)
    message = aio_pika.Message(bytes(body_bytes), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await turn.all()
    began = time.monotonic()
    for at in range(0, count, BATCH):
        publishes = [channel.default_exchange.publish(message, queue) for _ in range(min(BATCH, count - at))]
        await asyncio.gather(*publishes)
    ended = time.monotonic()
    await turn.all()
    await connection.close()
    return Part(0, began, ended)


async def queue_receiver(turn: Turn, *, url: str, queue: str, count: int, body_bytes: int) -> Part:
    """Gets them, one callback each."""
    connection, _, source = await _queue(url, queue)
    inbox = Inbox(count, body_bytes)

    async def came(message: Any) -> None:
        inbox.add(1, len(message.body))
        if inbox.count % BATCH == 0 or inbox.count == count:
            await message.ack(multiple=True)

    await turn.all()
    await source.consume(came)
    await inbox.all()
    await turn.all()
    await connection.close()
    return Part(inbox.count, math.inf, inbox.last)
