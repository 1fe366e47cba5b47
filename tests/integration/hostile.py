"""The hostile campaign: real servers under every attack of ``attacks.py`` at once, while clients that behave go on.

Seeds that are even run two servers with TLS; odd ones a single server without, on which every frame can be said by hand. All
have an access file, and answer over HTTP. A writer and a reader send numbered messages to each other throughout, and another
client connects anew, and asks whether the server is well, all the time, from another place than the attacks. In the end
everything that was accepted must have come, once and in order; no server may have ended, kept more memory than strangers are
allowed, failed in a way that nobody foresaw, or filled its log.

Every third round is one of those who make a server spend (``spenders.py``): fewer of them, and with a budget of ``MEMORY``. The
writer's rate is measured before and while they attack, in the same run: it must stay above ``LEAST_RATE`` of what it was, and the
servers within their budget.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import trustme

import thence
from tests.integration.attacks import Attacker, Target
from tests.integration.crash_plan import stable_addresses
from tests.integration.running import flat
from tests.integration.scraping import ask
from tests.integration.securing import EVERYTHING, Access, certificates, recording
from tests.integration.server_processes import Outcome, Processes, in_folder, memory_of
from tests.integration.spenders import Plan, is_calm, spend
from thence.core.topology_text import write
from thence.errors import ThenceError
from thence.runtime.complaints import ALL_BURST_LINES, ALL_LINE_EVERY_S
from thence.runtime.door import MAX_STRANGER_BYTES
from thence.runtime.tls import client_side
from thence.runtime.tokens import parse_token
from thence.web.answering import MAX_KEPT_BYTES

START_WITHIN_S: Final = 60.0
HEAL_WITHIN_S: Final = 120.0
SLACK_BYTES: Final = 48 * 1024 * 1024
"""How much more memory a server may take than strangers are allowed, for what it does anyway under load."""
MEMORY: Final = 1536 * 1024 * 1024
"""What a server may take in a round of spenders,"""
SPENT_BYTES: Final = 192 * 1024 * 1024
"""and how much more than before it may, since these hold little at a time. Each half frame costs twice its bytes."""
LEAST_RATE: Final = 0.8
"""How much of the writer's rate must be left."""
SPENDERS: Final = 6
STARTING_S: Final = 3.0
"""How long their process may take to start."""
TURN_S: Final = 1.5
"""How long it is calm, and then not, in turns."""
FEWEST_MESSAGES: Final = 50
"""How many the writer sends at least, however busy the machine is."""
OTHER_LINES: Final = 200
"""How many lines a server may log beside those about strangers."""
CAPTURED: Final = "s3"
OK: Final = 200
FORBIDDEN: Final = ("Traceback", "this is a bug", "InternalError", "never retrieved", "critical")


class Options(NamedTuple):
    """How hard a run is."""

    seed: int
    fault_s: float = 60.0
    attackers: int = 48
    spending: bool | None = None
    """Whether it is a round of spenders; None: every third is."""
    least_rate: float = LEAST_RATE
    pause_s: float = 0.005
    """How long the writer rests after each message."""


class Turns:
    """Messages and seconds of calm and of attacks, in turns."""

    def __init__(self) -> None:
        """There was none yet."""
        self._got: dict[bool, list[float]] = {True: [0.0, 0.0], False: [0.0, 0.0]}

    def note(self, messages: int, seconds: float, *, calm: bool) -> None:
        """A turn is over: it had so many messages."""
        got = self._got[calm]
        self._got[calm] = [got[0] + messages, got[1] + seconds]

    def rate(self, *, calm: bool) -> float:
        """Return how many messages a second there were."""
        messages, seconds = self._got[calm]
        return messages / seconds if seconds else 0.0


class Hostile(Processes):
    """One run. ``run`` does all of it."""

    def __init__(self, options: Options, folder: Path) -> None:
        super().__init__(folder)
        self.options = options
        self.attacks: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._chance = Random(f"hostile/{options.seed}")
        self._secure = options.seed % 2 == 0
        self._spending = options.seed % 3 == 2 if options.spending is None else options.spending
        self._running = names = ("s1", "s2") if self._secure else ("s1",)
        """The servers that run; where spenders are, one more has lost its key to them, and does not."""
        addresses = stable_addresses(2 * len(names), Random(os.urandom(8)))
        members = (*names, CAPTURED) if self._secure and self._spending else names
        # In a domain with markers a member that sends none to some holds up those: no attack is needed for that.
        self.topology = flat(*members, ordering="matrix" if self._spending else "vector").at(
            dict(zip(names, addresses[: len(names)], strict=True))
        )
        self._metrics = dict(zip(names, addresses[len(names) :], strict=True))
        for part in ("logs", "data"):
            (folder / part).mkdir(parents=True)
        (folder / "topology.toml").write_text(write(self.topology), encoding="utf-8")
        self._tls = certificates(folder / "tls", trustme.CA(), *members)
        rights = {"send": ["reader"], "subscribe": ["t*"], "status": True}
        self._access = Access(
            folder / "access.toml", writer=EVERYTHING, reader=EVERYTHING, guest=EVERYTHING, mallory=rights, nobody={}
        )
        self._recorded = b""
        self._attacking = True
        self._sent = 0
        self._came: list[int] = []

    def arguments(self, name: str) -> list[str]:
        files = self._tls[name]
        options = ["--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authority] if self._secure else []
        return [
            *("-m", "thence.cli.main", "serve", str(self.folder / "topology.toml"), "--server", name),
            *("--data", str(self.folder / "data" / name), "--access", str(self._access.path)),
            *("--metrics", self._metrics[name]),
            *(("--memory", str(MEMORY)) if self._spending else ()),
            *map(str, options),
        ]

    def _client(self, name: str, server: str, address: str = "") -> thence.Client:
        scheme = "thences" if self._secure else "thence"
        url = f"{scheme}://{address or self.topology.addresses[server]}"
        authority = self._tls["s1"].authority
        return thence.connect(url, name, token=self._access.tokens[name], authority=authority, connect_timeout=START_WITHIN_S)

    async def run(self) -> Outcome:
        """Start, attack, and say what came of it."""
        began = time.monotonic()
        try:
            for name in self._running:
                self.start_server(name)
            await self._go()
            healed = time.monotonic()
            self.look_for_the_dead()
            self._read_logs()
            await self.stop_servers()
        finally:
            self.kill_all()
        return Outcome(self.counts, self.attacks, self.wrong, self.folder, time.monotonic() - began, time.monotonic() - healed)

    async def _go(self) -> None:
        last = self._running[-1]
        await self._record()
        async with self._client("writer", "s1") as writer, self._client("reader", last) as reader:
            reader.unreadable = self._note_unreadable  # type: ignore[method-assign]
            reader.on_message(self._take)
            await writer.known("reader")
            if self._spending:
                await self._bear_spenders(writer, last)
                return
            before = {name: self._memory(name) for name in self._running}
            loop = asyncio.get_running_loop()
            until = loop.time() + self.options.fault_s
            attackers = [
                Attacker(self._target(self._chance.choice(self._running)), Random(self._chance.random()), self.attacks)
                for _ in range(self.options.attackers)
            ]
            good = [loop.create_task(self._write(writer)), loop.create_task(self._come_and_go(last))]
            await asyncio.gather(*(attacker.attack(until, first) for first, attacker in enumerate(attackers)))
            self._attacking = False
            await asyncio.gather(*good)
            await self._heal()
            for name in self._running:
                grown = self._memory(name, "VmHWM") - before[name]
                self.counts["MiB grown"] = max(self.counts["MiB grown"], grown // 2**20)
                allowed = MAX_STRANGER_BYTES + MAX_KEPT_BYTES
                if grown > allowed + SLACK_BYTES:
                    self.wrong.append(f"{name} took {grown:,} bytes more; strangers are allowed {allowed:,}")

    async def _bear_spenders(self, writer: thence.Client, last: str) -> None:
        """Let the writer write in peace and not, in turns, so that whatever else the machine does counts for both; compare."""
        loop = asyncio.get_running_loop()
        good = [loop.create_task(self._write(writer)), loop.create_task(self._come_and_go(last))]
        await asyncio.sleep(TURN_S)
        before = {name: self._memory(name) for name in self._running}
        began = time.monotonic() + STARTING_S
        plan = Plan(
            self._target(self._running[0])._replace(tls=None),
            self._tls["s1"].authority if self._secure else None,
            parse_token(self._access.tokens["nobody"]),
            CAPTURED,
            self._tls.get(CAPTURED),
            write(self.topology),
            self.options.seed,
            SPENDERS,
            began,
            TURN_S,
            began + self.options.fault_s,
        )
        turns = Turns()
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            spending = loop.run_in_executor(pool, spend, plan)
            await asyncio.sleep(STARTING_S)
            while time.monotonic() < plan.until:
                resting, sent, turn = is_calm(began, TURN_S), self._sent, time.monotonic()
                await asyncio.sleep(TURN_S - (turn - began) % TURN_S + 0.001)
                turns.note(self._sent - sent, time.monotonic() - turn, calm=resting)
            self.attacks.update(await spending)
        calm, rate = turns.rate(calm=True), turns.rate(calm=False)
        self._attacking = False
        await asyncio.gather(*good)
        await self._heal()
        self.counts["percent of the rate left"] = round(100 * rate / calm)
        if rate < self.options.least_rate * calm:
            self.wrong.append(f"{rate:.0f} messages a second got through, and {calm:.0f} before")
        for name in self._running:
            most = self._memory(name, "VmHWM")
            self.counts["MiB grown"] = max(self.counts["MiB grown"], (most - before[name]) // 2**20)
            if most > MEMORY or most - before[name] > SPENT_BYTES:
                self.wrong.append(f"{name} took {most - before[name]:,} bytes more, {most:,} in all; it may take {MEMORY:,}")

    # Those who behave.

    async def _record(self) -> None:
        """Keep what the writer says in a session, to be played again by others."""
        async with self._client("writer", "s1"):
            pass  # The server is up.
        async with (
            recording(self.topology.addresses["s1"]) as recorded,
            self._client("writer", "s1", recorded.url.removeprefix("thence://")) as writer,
        ):
            await writer.send("writer", b"once")
            await writer.receive()
            writer.done()
        self._recorded = recorded.from_client

    def _take(self, message: thence.Message) -> None:
        if message.sender == "writer":
            self._came.append(int(message.body))
        else:
            self.counts["letters of others"] += 1
            message.value()  # It is read, whatever it is: what cannot be is left out.

    def _note_unreadable(self, error: Exception) -> None:
        self.counts["unreadable"] += 1

    async def _write(self, writer: thence.Client) -> None:
        while self._attacking or self._sent < FEWEST_MESSAGES:
            await writer.send("reader", b"%d" % self._sent)
            self._sent += 1
            await asyncio.sleep(self.options.pause_s)

    async def _come_and_go(self, server: str) -> None:
        """Be somebody who comes all the time: no attack from elsewhere may keep it out."""
        while self._attacking or not self.counts["visits of a guest"]:
            try:
                async with self._client("guest", server) as guest:
                    await guest.send("guest", b"in")
                    await guest.receive()
                    guest.done()
                for page in ("/healthz", "/metrics"):
                    status, _, _ = await ask(self._metrics[server], page)
                    if status != OK:
                        self.wrong.append(f"{page} was answered with {status}")
                self.counts["visits of a guest"] += 1
            except (OSError, ThenceError) as error:
                self.wrong.append(f"a guest was not let in: {error}")
                return
            await asyncio.sleep(0.05)

    async def _heal(self) -> None:
        deadline = time.monotonic() + HEAL_WITHIN_S
        while len(self._came) < self._sent and time.monotonic() < deadline:  # noqa: ASYNC110  What comes tells nobody.
            await asyncio.sleep(0.05)
        self.counts["accepted"] += self._sent
        if self._came != list(range(self._sent)):
            self.wrong.append(f"{self._sent} messages were accepted and {len(self._came)} came, or in another order")

    # The others.

    def _target(self, server: str) -> Target:
        context = client_side(None, self._tls["s1"].authority) if self._secure else None
        token = parse_token(self._access.tokens["mallory"])
        topology = self.topology
        return Target(
            server,
            topology.addresses[server],
            self._metrics[server],
            topology.fingerprint,
            topology.name,
            context,
            token,
            "reader",
            self._recorded or b"?",
        )

    # What is seen from outside.

    def _memory(self, name: str, which: str = "VmRSS") -> int:
        return memory_of(self._servers[name].pid, which)

    def _read_logs(self) -> None:
        allowed = ALL_BURST_LINES + self.options.fault_s / ALL_LINE_EVERY_S + OTHER_LINES
        for name in self._running:
            lines = (self.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
            self.counts["lines of logs"] += len(lines)
            self.wrong += [f"{name} logged: {line}" for line in lines if any(word in line for word in FORBIDDEN)]
            if len(lines) > allowed:
                self.wrong.append(f"{name} logged {len(lines)} lines; {allowed:.0f} are allowed")


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: Hostile(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    return f"python -m tests.campaign --kind hostile --seed {options.seed} --seconds {options.fault_s:g}"
