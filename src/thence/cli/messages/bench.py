"""``thence bench``: measure how fast messages go through a server and back."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Final, TypeVar

import msgspec
import typer

from thence.cli import console
from thence.cli.options import Authority, Token, Url
from thence.client.client import Client, connect
from thence.client.message import MAX_MESSAGE_BYTES, Message
from thence.errors import ConfigError
from thence.runtime import event_loop

BURST: Final = 256
"""How many messages are posted before the loop turns."""
WARM_UP: Final = 50
"""How many round trips come before those that count."""
PERCENTILES: Final = (50, 90, 99)
SILENCE_S: Final = 30.0
"""With nothing coming for so long, it is given up."""

T = TypeVar("T")
Tell = Callable[[str, int, int], None]


class Figures(msgspec.Struct):
    """What was measured."""

    sender: str
    receiver: str
    size_bytes: int
    count: int
    messages_per_s: float
    megabytes_per_s: float
    round_trips: int
    round_trip_us: dict[str, float]


def command(
    url: Url,
    to: Annotated[
        str | None, typer.Option("--to", metavar="URL", help="The server of the receiver, if it is to be another one.")
    ] = None,
    size: Annotated[int, typer.Option("--size", min=0, metavar="BYTES", help="How long each body is.")] = 100,
    count: Annotated[int, typer.Option("--count", min=1, help="How many messages are sent for the rate.")] = 100_000,
    round_trips: Annotated[
        int, typer.Option("--round-trips", min=1, help="How many go to and fro, one after the other.")
    ] = 1_000,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")] = False,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Measure how fast messages go through a server and back.

    Two temporary clients in this process: one sends, the other listens.
    First as many messages as go through, then one at a time, to and fro.
    Both clients share a core with each other here, so programs of their
    own may see more.

    Exits with 0, or with 2 if the server cannot be reached.

    Example: thence bench thence://127.0.0.1:7401 --size 1024
    """
    if size > MAX_MESSAGE_BYTES:
        raise ConfigError(f"--size {size}: must be from 0 to {MAX_MESSAGE_BYTES} (MAX_MESSAGE_BYTES)")
    with console.bars() as tell:
        connected = partial(connect, token=token, authority=authority)
        figures = event_loop.run(measure(connected, (url, to or url), size, count, round_trips, tell))
    if json:
        console.say_object(msgspec.to_builtins(figures))
    else:
        _show(figures)


def _show(figures: Figures) -> None:
    where = figures.sender if figures.sender == figures.receiver else f"{figures.sender} to {figures.receiver}"
    rows: list[tuple[str, str]] = [
        ("messages", f"{figures.count:,} of {figures.size_bytes:,} bytes"),
        ("rate", f"{figures.messages_per_s:,.0f} messages/s, {figures.megabytes_per_s:,.1f} MB/s"),
        *(
            (f"round trip, {name}", f"{microseconds:,.0f} µs, of {figures.round_trips:,}")
            for name, microseconds in figures.round_trip_us.items()
        ),
    ]
    console.out.print(console.table(("client to client", console.plain(where)), rows))


async def measure(
    connected: Callable[[str], Client], urls: tuple[str, str], size: int, count: int, round_trips: int, tell: Tell
) -> Figures:
    async with connected(urls[0]) as sender, connected(urls[1]) as receiver:
        await sender.known(receiver.name)
        await receiver.known(sender.name)
        bench = _Bench(sender, receiver, bytes(size), tell)
        seconds = await bench.rate(count)
        times = await bench.round_trips(round_trips)
        return Figures(
            sender=sender.server,
            receiver=receiver.server,
            size_bytes=size,
            count=count,
            messages_per_s=count / seconds,
            megabytes_per_s=count * size / seconds / 1e6,
            round_trips=round_trips,
            round_trip_us={f"p{percent}": 1e6 * percentile(times, percent) for percent in PERCENTILES},
        )


class _Bench:
    """Two clients, and what they do with what comes."""

    def __init__(self, sender: Client, receiver: Client, body: bytes, tell: Tell) -> None:
        self._sender = sender
        self._receiver = receiver
        self._body = body
        self._tell = tell
        self._came: asyncio.Queue[int] = asyncio.Queue()
        self._answers = False
        self._sent_at = 0.0
        self._times: list[float] = []
        self._back = asyncio.Event()
        receiver.on_batch(self._receive)
        sender.on_batch(self._return)

    async def rate(self, count: int) -> float:
        """Send so many as fast as they go; return how many seconds it took until the last one came."""
        began = time.perf_counter()
        sending, receiving = asyncio.create_task(self._send_all(count)), asyncio.create_task(self._receive_all(count))
        try:
            _, ended = await asyncio.gather(sending, receiving)  # Whichever fails first says why.
        finally:
            sending.cancel()
            receiving.cancel()
            await asyncio.gather(sending, receiving, return_exceptions=True)
        return ended - began

    async def _send_all(self, count: int) -> None:
        for at in range(0, count, BURST):
            await self._sender.room()
            for _ in range(min(BURST, count - at)):
                self._sender.post(self._receiver.name, self._body)
            await asyncio.sleep(0)

    async def _receive_all(self, count: int) -> float:
        """Return when the last of so many came."""
        came = 0
        while came < count:
            came += await _soon(self._came.get(), "a message")
            self._tell("messages", came, count)
        return time.perf_counter()

    async def round_trips(self, count: int) -> list[float]:
        """Send one to and fro, again and again; return how many seconds each time took, sorted."""
        self._answers = True
        for done in range(WARM_UP + count):
            self._back.clear()
            self._sent_at = time.perf_counter()
            self._sender.post(self._receiver.name, self._body)
            await _soon(self._back.wait(), "an answer")
            self._tell("round trips", max(0, done + 1 - WARM_UP), count)
        return sorted(self._times[WARM_UP:])

    def _receive(self, messages: Sequence[Message]) -> None:
        if self._answers:
            for message in messages:
                self._receiver.post(message.sender, message.body)
        else:
            self._came.put_nowait(len(messages))

    def _return(self, messages: Sequence[Message]) -> None:
        self._times.append(time.perf_counter() - self._sent_at)
        self._back.set()


async def _soon(something: Awaitable[T], what: str) -> T:
    try:
        async with asyncio.timeout(SILENCE_S):
            return await something
    except TimeoutError:
        raise TimeoutError(f"waited {SILENCE_S:g} s for {what} to come through") from None


def percentile(times: Sequence[float], percent: float) -> float:
    """Return the value of sorted times at or below which so many percent of them lie.

    >>> percentile([1, 2, 3, 4], 50)
    2
    """
    return times[max(0, math.ceil(len(times) * percent / 100) - 1)]
