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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from tests.support.campaigns.attacks import EVIL_HOST, PATIENCE_S, Attacker, Target
from tests.support.campaigns.floods import FLOODERS, Flooder
from tests.support.servers.securing import Speaker, framed, prove
from thence.core.member.contract import Restored, Submit
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import ThenceError
from thence.net.framing import MAX_CLIENT_FRAME_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES
from thence.net.protocol import (
    CONTROL_KIND,
    PROTOCOL,
    BatchItem,
    Publish,
    ServerHello,
    StatusQuestion,
    Subscribe,
    encode_value,
    write_messages,
)
from thence.net.security.tls import TlsFiles, client_side
from thence.net.security.tokens import Token
from thence.storage.bodies import write_body
from thence.storage.mailbox import MAX_MAILBOX_MESSAGES, Batch

DEEP: Final = b"\x91" * 5_000 + b"\xc0"
CLAIMED: Final = 131_072
NOTHING: Final = b"\xdd\x00\x02\x00\x00"
"""A list that claims so many messages, and holds none."""
LARGE: Final = write_messages([BatchItem(bytes(2_000_000))])
MANY: Final = 60_000
"""How many short messages go together into a mailbox: it is full of a few such batches, which take little memory."""
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
            "messages without rights": self._forbidden,
            "batches of nothing": self._nothing,
            "questions in advance": self._questions,
            "messages to nobody": self._rejected,
            "deep messages": self._deep,
            "many topics": self._topics,
            "large messages": self._large,
        }
        if captured is not None:
            self.kinds |= {"lies of a server": self._lying_server, "half frames of a server": self._half_server}
            self.kinds |= {"full mailboxes elsewhere": self._fill_elsewhere}

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
        messages = write_messages([BatchItem(b"x")])
        await self._say(speaker, [Publish(number + at, 1, (f"x{at}",), None, messages) for at in range(1, 100)])

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
        messages = write_messages([BatchItem(b"x")])
        await self._say(speaker, [Publish(number + at, 1, ("y" * 190 + str(at),), None, messages) for at in range(1, 100)])

    async def _deep(self) -> None:
        speaker, number = await self._call("mallory", self._target.token)
        messages = write_messages([BatchItem(DEEP, coded=True)])
        await self._say(speaker, [Publish(number + at, 1, (self._target.victim,), None, messages) for at in range(1, 4)])

    async def _large(self) -> None:
        speaker, number = await self._call("mallory", self._target.token)
        await self._say(speaker, [Publish(number + at, 1, (self._target.victim,), None, LARGE) for at in range(1, 4)])

    async def _topics(self) -> None:
        speaker, _ = await self._call("mallory", self._target.token)
        topics = [f"t{self._chance.randrange(1_000)}" for _ in range(100)]
        await self._say(speaker, [Subscribe(topic, wanted) for wanted in (True, False) for topic in topics])

    async def _fill_elsewhere(self) -> None:
        """Fill the mailbox of somebody at another server who does not read."""
        if self._captured is None:
            return  # Nobody knows where another server is.
        sleeper, target = "mallory sleeps", self._target
        where = next((name, at) for name, at in self._captured.topology.addresses.items() if name != target.name)
        away = await Speaker.call(where[1], target.tls, where[0], EVIL_HOST)
        with suppress(ConnectionError):  # It has that name, and is there, if another of us has come before.
            await prove(away, sleeper, target.token)
        speaker, number = await self._call("mallory writes", target.token)
        messages = write_messages([BatchItem(b"")] * MANY)
        try:
            for at in range(MAX_MAILBOX_MESSAGES // MANY + 2):
                speaker.say(Publish(number + 1 + at * MANY, MANY, (sleeper,), None, messages))
                await speaker.hear()
        finally:
            for one in (away, speaker):
                one.writer.transport.abort()

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
        """Send messages that are not there. A member like any other says so: only what is in its messages is a lie."""
        speaker, captured = await self._as_server(), self._captured
        if captured is not None:
            member = Member(captured.name, captured.topology)
            member.step(Restored(None, (), 0), 0)
            for number in range(1, 20):
                body = write_body(Batch("eve", number, CLAIMED, (self._target.victim,), None, NOTHING))
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
    """What a process of attackers is told: what it does there takes no time from the loop of those who behave."""

    kind: Literal["attacks", "floods", "spending"]
    target: Target
    """Without a context for TLS, which is made there."""
    authority: Path | None
    powerless: Token
    captured: str
    """The server whose key was stolen, and its files; nothing: there is none."""
    files: TlsFiles | None
    topology: str
    seed: int
    attackers: int
    """How many there are; floods have ``FLOODERS``."""
    kinds: Sequence[str]
    """Which kinds of floods have their turns."""
    began: float
    """By the clock of the machine: then attacks and calm take turns,"""
    turn_s: float
    until: float


def is_calm(began: float, turn_s: float) -> bool:
    """Return whether it is the turn of calm."""
    return int((time.monotonic() - began) / turn_s) % 2 == 1


def of_turn(began: float, turn_s: float, kinds: Sequence[str]) -> str:
    """Return which kind has its turn, of those that come one after the other, each with a turn of calm behind it."""
    return kinds[int((time.monotonic() - began) / (2 * turn_s)) % len(kinds)]


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
        several: list[Attacker | Spender] = [
            Attacker(target, Random(chance.random()), done)
            if plan.kind == "attacks"
            else Spender(target, plan.powerless, captured, Random(chance.random()), done)
            for _ in range(plan.attackers)
        ]
        for one in several:
            one.resting = lambda: is_calm(plan.began, plan.turn_s)
        step = 1 if plan.kind == "attacks" else 2
        await asyncio.gather(*(one.attack(until, step * first) for first, one in enumerate(several)))

    asyncio.run(flood(plan, target, captured, done) if plan.kind == "floods" else main())
    return done


async def flood(plan: Plan, target: Target, captured: Captured | None, done: Counter[str]) -> None:
    """Flood a server with one kind after the other."""
    flooders = [
        Flooder(target, number, plan.powerless, None if captured is None else (captured.name, captured.tls))
        for number in range(FLOODERS)
    ]
    while (now := time.monotonic()) < plan.until:
        left = plan.turn_s - (now - plan.began) % plan.turn_s
        if now < plan.began or is_calm(plan.began, plan.turn_s):
            await asyncio.sleep(plan.began - now if now < plan.began else left + 0.001)
            continue
        kind = of_turn(plan.began, plan.turn_s, plan.kinds)
        await asyncio.gather(*(flooder.flood(kind, left, done) for flooder in flooders))
