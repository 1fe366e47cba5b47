"""What makes a server spend more than it costs whoever does it: one method each, all drawn from a seed.

They come from somebody who has said nothing, from a client that may do nothing, from one that may do a little, and from a server
whose key was stolen. As with ``attacks.py``, every attack ends by itself, and none checks anything.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from zlib import crc32

from tests.integration.attacks import EVIL_HOST, PATIENCE_S, Target
from tests.integration.securing import Speaker, framed, prove
from thence.core.contract import Restored, Submit
from thence.core.member import Member
from thence.core.topology import Topology
from thence.core.topology_text import parse
from thence.errors import ThenceError
from thence.runtime.boxes import Bundle
from thence.runtime.office import write_body
from thence.runtime.protocol import (
    CONTROL_KIND,
    PROTOCOL,
    Letter,
    Publish,
    ServerHello,
    StatusQuestion,
    Subscribe,
    encode_value,
    write_letters,
)
from thence.runtime.tls import TlsFiles, client_side
from thence.runtime.tokens import Token
from thence.runtime.wire import MAX_CLIENT_FRAME_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES

DEEP: Final = b"\x91" * 5_000 + b"\xc0"
CLAIMED: Final = 131_072
NOTHING: Final = b"\xdd\x00\x02\x00\x00"
"""A list that claims so many letters, and holds none."""
QUESTIONS: Final = 2_000 * framed(CONTROL_KIND + encode_value(StatusQuestion()))
REST_S: Final = 0.2
"""How long one rests after each attack: what is measured is what an attack costs the server, not what it costs the attacker."""


class Captured(NamedTuple):
    """A server whose key was stolen."""

    name: str
    tls: ssl.SSLContext
    topology: Topology


class Spender:
    """See the module's text."""

    def __init__(self, target: Target, powerless: Token, captured: Captured | None, chance: Random, done: Counter[str]) -> None:
        """Attack ``target``; ``powerless`` is the token of ``nobody``, who may do nothing; ``done`` counts what was done."""
        self._target, self._powerless, self._captured = target, powerless, captured
        self._chance, self._done = chance, done
        self.resting: Callable[[], bool] = bool
        """Says whether it is calm for now, so that both can be compared."""
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "promised hellos": self._promised_hello,
            "promised frames": self._promised_frame,
            "half frames": self._half_frame,
            "questions without rights": self._denied,
            "letters without rights": self._forbidden,
            "bundles of nothing": self._nothing,
            "questions in advance": self._questions,
            "letters to nobody": self._rejected,
            "deep letters": self._deep,
            "many topics": self._topics,
        }
        if captured is not None:
            self.kinds |= {"lies of a server": self._lying_server, "half frames of a server": self._half_server}

    async def attack(self, until: float, first: int) -> None:
        """Do one thing after the other until a moment of the loop's clock, beginning with number ``first``."""
        loop, kinds = asyncio.get_running_loop(), list(self.kinds)
        at = first
        while loop.time() < until:
            if self.resting():
                await asyncio.sleep(0.02)
                continue
            kind = kinds[at % len(kinds)]
            with suppress(OSError, EOFError, ssl.SSLError, TimeoutError, ThenceError):
                async with asyncio.timeout(PATIENCE_S):
                    await self.kinds[kind]()
            self._done[kind] += 1
            at += 1
            await asyncio.sleep(REST_S)

    async def _hold(self, speaker: Speaker, *said: bytes) -> None:
        """Say something, and stay for a moment without reading."""
        try:
            for data in said:
                speaker.writer.write(data)
                await speaker.writer.drain()
            await asyncio.sleep(self._chance.choice((0.1, 0.5, 1.0)))
        finally:
            speaker.writer.transport.abort()

    async def _call(self, name: str | None, token: Token | None = None) -> tuple[Speaker, int]:
        speaker = await Speaker.call(self._target.address, self._target.tls, self._target.name, EVIL_HOST)
        if name is None or token is None:
            return speaker, 0
        return speaker, (await prove(speaker, name, token)).number

    # Whoever has said nothing.

    async def _promised_hello(self) -> None:
        speaker, _ = await self._call(None)
        await self._hold(speaker, promised(MAX_HELLO_BYTES))

    # A client that may do nothing.

    async def _promised_frame(self) -> None:
        speaker, _ = await self._call("nobody", self._powerless)
        await self._hold(speaker, promised(MAX_CLIENT_FRAME_BYTES))

    async def _half_frame(self) -> None:
        speaker, _ = await self._call("", self._powerless)
        await self._hold(speaker, promised(MAX_CLIENT_FRAME_BYTES), bytes(self._chance.choice((1_000, 100_000, 2_000_000))))

    async def _denied(self) -> None:
        speaker, _ = await self._call("", self._powerless)
        await self._hold(speaker, QUESTIONS)

    async def _forbidden(self) -> None:
        speaker, number = await self._call("nobody", self._powerless)
        letters = write_letters([Letter(b"x")])
        await self._say(speaker, [Publish(number + at, 1, (f"x{at}",), None, letters) for at in range(1, 100)])

    # One that may do a little.

    async def _nothing(self) -> None:
        speaker, number = await self._call("mallory", self._target.token)
        first = number + 1
        said = [Publish(first + CLAIMED * at, CLAIMED, (self._target.victim,), None, NOTHING) for at in range(8)]
        await self._say(speaker, said)

    async def _questions(self) -> None:
        speaker, _ = await self._call("", self._target.token)
        await self._hold(speaker, QUESTIONS)

    async def _rejected(self) -> None:
        speaker, number = await self._call("mallory", self._target.token)
        letters = write_letters([Letter(b"x")])
        await self._say(speaker, [Publish(number + at, 1, ("y" * 190 + str(at),), None, letters) for at in range(1, 100)])

    async def _deep(self) -> None:
        speaker, number = await self._call("mallory", self._target.token)
        letters = write_letters([Letter(DEEP, coded=True)])
        await self._say(speaker, [Publish(number + at, 1, (self._target.victim,), None, letters) for at in range(1, 4)])

    async def _topics(self) -> None:
        speaker, _ = await self._call("mallory", self._target.token)
        topics = [f"t{self._chance.randrange(1_000)}" for _ in range(100)]
        await self._say(speaker, [Subscribe(topic, wanted) for wanted in (True, False) for topic in topics])

    async def _say(self, speaker: Speaker, said: list[Any]) -> None:
        for one in said:
            speaker.say(one)
        await self._hold(speaker)

    # A server whose key was stolen.

    async def _as_server(self) -> Speaker:
        if self._captured is None:
            raise ConnectionError("nobody has a server's key here")
        target, (name, tls, _) = self._target, self._captured
        speaker = await Speaker.call(target.address, tls, target.name, EVIL_HOST)
        speaker.say(ServerHello(PROTOCOL, target.fabric, target.fingerprint, name, target.name, "0123456789abcdef"))
        await speaker.hear()
        return speaker

    async def _lying_server(self) -> None:
        """Send letters that are not there. A member like any other says so: only what is in its messages is a lie."""
        speaker, captured = await self._as_server(), self._captured
        if captured is not None:
            member = Member(captured.name, captured.topology)
            member.step(Restored(None, (), 0), 0)
            for number in range(1, 20):
                body = write_body(Bundle("eve", number, CLAIMED, (self._target.victim,), None, NOTHING))
                for _, packet in member.step(Submit((self._target.name,), body), number).send:
                    speaker.say_packet(packet)
        await self._hold(speaker)

    async def _half_server(self) -> None:
        await self._hold(await self._as_server(), promised(MAX_FRAME_BYTES), bytes(3_000_000))


def promised(length: int) -> bytes:
    """Return the head of a frame of this length."""
    numbers = struct.pack("<II", length, 0)
    return numbers + struct.pack("<I", crc32(numbers))


class Plan(NamedTuple):
    """What a process of spenders is told: what it does there takes no time from those who behave."""

    target: Target
    """Without a context for TLS, which is made there."""
    authority: Path | None
    powerless: Token
    captured: str
    """The server whose key was stolen, and its files; nothing: there is none."""
    files: TlsFiles | None
    topology: str
    seed: int
    spenders: int
    began: float
    """By the clock of the machine: then attacks and calm take turns,"""
    turn_s: float
    until: float


def is_calm(began: float, turn_s: float) -> bool:
    """Return whether it is the turn of calm."""
    return int((time.monotonic() - began) / turn_s) % 2 == 1


def spend(plan: Plan) -> Counter[str]:
    """Attack as planned; return what was done."""
    done: Counter[str] = Counter()
    target = plan.target._replace(tls=None if plan.authority is None else client_side(None, plan.authority))
    captured = None
    if plan.files is not None:
        captured = Captured(plan.captured, client_side(plan.files), parse(plan.topology))

    async def main() -> None:
        until = asyncio.get_running_loop().time() + plan.until - time.monotonic()
        chance = Random(plan.seed)
        spenders = [Spender(target, plan.powerless, captured, Random(chance.random()), done) for _ in range(plan.spenders)]
        for spender in spenders:
            spender.resting = lambda: is_calm(plan.began, plan.turn_s)
        await asyncio.gather(*(spender.attack(until, 2 * first) for first, spender in enumerate(spenders)))

    asyncio.run(main())
    return done
