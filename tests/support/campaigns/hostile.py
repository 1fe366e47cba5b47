"""The hostile campaign: real servers under every attack of ``attacks.py`` at once, while clients that behave go on.

Seeds that are even run two servers with TLS; odd ones a single server without, on which every frame can be said by hand. All
have an access file, and answer over HTTP. A writer and a reader send numbered messages to each other throughout, and another
client connects anew, and asks whether the server is well, all the time, from another place than the attacks. In the end
everything that was accepted must have come, once and in order; no server may have ended, kept more memory than strangers are
allowed, failed in a way that nobody foresaw, or filled its log.

Of three rounds one has these attacks, one floods of short frames over many connections (``floods.py``), one kind after the other,
and one those who make a server spend (``spenders.py``). The servers of the last two have a budget of ``MEMORY``, and must stay
within it.

Attackers are a process of their own, which attacks and rests in turns: whatever else the machine does counts for both. The writer
offers ``OFFERED_PER_S`` messages a second, and it is counted how many come to the reader in attacks and in between. That must be
``LEAST_RATE`` at least, also of each kind of flood that had ``JUDGED_TURNS``. Beside it a walker sends one message, waits until
it has come, rests for ``PACE_S`` and sends the next. Its pace is told, and not judged: it is made of latency, which the scheduler
of a machine decides on which more runs than it has cores.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

import trustme

import thence
from tests.support.campaigns.attacks import EVIL_HOST, Target
from tests.support.campaigns.crash_plan import stable_addresses
from tests.support.campaigns.floods import FLOODERS, Flooder
from tests.support.campaigns.spenders import Plan, is_calm, of_turn, spend
from tests.support.servers.running import flat
from tests.support.servers.scraping import ask
from tests.support.servers.securing import EVERYTHING, Access, certificates, recording
from tests.support.servers.server_processes import Outcome, Processes, in_folder, memory_of
from thence.core.topology.toml import write
from thence.errors import ThenceError
from thence.net.security.tls import client_side
from thence.net.security.tokens import parse_token
from thence.node.listener import MAX_STRANGER_BYTES
from thence.observe.http import MAX_KEPT_BYTES
from thence.runtime.offenders import ALL_BURST_LINES, ALL_LINE_EVERY_S, BURST_LINES, LINE_EVERY_S, REPEAT_EVERY_S

START_WITHIN_S: Final = 60.0
HEAL_WITHIN_S: Final = 120.0
SLACK_BYTES: Final = 48 * 1024 * 1024
"""How much more memory a server may take than strangers are allowed, for what it does anyway under load."""
MEMORY: Final = 1536 * 1024 * 1024
"""What a server may take in a round of spenders or floods,"""
SPENT_BYTES: Final = 192 * 1024 * 1024
"""and how much more than before: each of them holds little at a time. Each half frame costs twice its bytes."""
LEAST_RATE: Final = 0.8
"""How much of the writer's rate must be left."""
QUICK_RATE: Final = 0.5
"""The same in tests that run beside others: turns are short there, and those may be busy in one and not in the next."""
OFFERED_PER_S: Final = 100.0
"""How many messages the writer sends in a second, if the server takes them."""
PACE_S: Final = 0.005
JUDGED_TURNS: Final = 3
"""How many turns a kind of flood has at least to be judged by itself: in a single one the machine may be busy with something."""
Kind = Literal["attacks", "floods", "spending"]
KINDS: Final[tuple[Kind, ...]] = ("attacks", "floods", "spending")
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
_DENIED: Final = "client 'nobody #': the access file does not let 'nobody'"
_SLOWED: Final = "': slowed: it says more that is refused or moves nothing"
NAMED: Final = {
    "floods of hellos": "refused client 'nobody'",
    "floods of pings": f"client 'nobody #{_SLOWED}",
    "floods of denied topics": _DENIED,
    "floods of topics not followed": f"client 'nobody #{_SLOWED}",
    "floods of denied names": _DENIED,
    "floods of denied messages": _DENIED,
    "floods of denied questions": _DENIED,
    "floods of acknowledgements": f"client 'nobody #{_SLOWED}",
    "floods of topics": "client 'mallory #': slowed: it follows and leaves topics",
    "floods of names": f"client 'mallory #{_SLOWED}",
    "floods of repeated messages": f"client 'mallory #{_SLOWED}",
    "floods of messages to nobody": f"client 'mallory #{_SLOWED}",
    "floods of a server": f"{CAPTURED}: StrangerFrame",
    "questions without rights": "a client without a name: the access file does not let 'nobody'",
    "messages without rights": "client 'nobody': the access file does not let 'nobody'",
    "batches of nothing": "cannot be, or are not there",
}
"""What the log says of whoever does this, with # for each number. Questions and messages that are allowed are no offence."""
OK: Final = 200
FORBIDDEN: Final = ("Traceback", "this is a bug", "InternalError", "never retrieved", "critical")


class Options(NamedTuple):
    """How hard a run is."""

    seed: int
    fault_s: float = 60.0
    attackers: int = 48
    kind: Kind | None = None
    """None: as the seed says."""
    least_rate: float = LEAST_RATE
    turn_s: float = TURN_S
    flood_each: int = 3
    """One in so many kinds of floods has its turns, so that each has several."""


class Turns:
    """Messages and seconds of calm and of attacks, in turns."""

    def __init__(self) -> None:
        """There was none yet."""
        self._got: dict[bool, list[float]] = {True: [0.0, 0.0], False: [0.0, 0.0]}
        self.attacks = 0
        """How many turns of attacks there were."""

    def note(self, messages: int, seconds: float, *, calm: bool) -> None:
        """A turn is over: it had so many messages."""
        got = self._got[calm]
        self._got[calm] = [got[0] + messages, got[1] + seconds]
        self.attacks += not calm

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
        self._kind = options.kind or KINDS[options.seed % 3]
        self._spending = self._kind != "attacks"
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
        rights = {"names": ["mallory*"], "send": ["reader", "mallory*"], "subscribe": ["t*"], "status": True}
        good = dict.fromkeys(("writer", "walker", "reader", "guest"), EVERYTHING)
        self._access = Access(folder / "access.toml", **good, mallory=rights, nobody={"names": ["nobody*"]})
        self._recorded = b""
        self._attacking = True
        self._sent = 0
        self._walked = 0
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
        async with (
            self._client("writer", "s1") as writer,
            self._client("walker", "s1") as walker,
            self._client("reader", last) as reader,
        ):
            reader.unreadable = self._note_unreadable  # type: ignore[method-assign]
            reader.on_message(self._take)
            await writer.known("reader")
            loop = asyncio.get_running_loop()
            good = [loop.create_task(one) for one in (self._write(writer), self._walk(walker), self._come_and_go(last))]
            await asyncio.sleep(self.options.turn_s)
            before = {name: self._memory(name) for name in self._running}
            await self._bear()
            self._attacking = False
            await asyncio.gather(*good)
            await self._heal()
            self._look_at_memory(before)

    async def _bear(self) -> None:
        """Let the writer write in peace and not, in turns, and compare."""
        began, turn_s = time.monotonic() + STARTING_S, self.options.turn_s
        target = self._target(self._running[0])
        powerless = parse_token(self._access.tokens["nobody"])
        files = self._tls.get(CAPTURED)
        captured = None if files is None else (CAPTURED, client_side(files))
        kinds: list[str] = [self._kind]
        if self._kind == "floods":
            each = self.options.flood_each
            kinds = list(Flooder(target, 0, powerless, captured).kinds)[self.options.seed // 6 % each :: each]
        plan = Plan(
            *(
                self._kind,
                target._replace(tls=None),
                self._tls["s1"].authority if self._secure else None,
                powerless,
                CAPTURED,
                files,
            ),
            *(write(self.topology), self.options.seed, self.options.attackers if self._kind == "attacks" else SPENDERS),
            kinds,
            *(began, turn_s, began + self.options.fault_s),
        )
        turns = {kind: (Turns(), Turns()) for kind in ("all", *kinds)}
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            spending = asyncio.get_running_loop().run_in_executor(pool, spend, plan)
            await asyncio.sleep(began - time.monotonic())
            while (turn := time.monotonic()) < plan.until:
                kind, resting = of_turn(began, turn_s, kinds), is_calm(began, turn_s)
                came, walked = len(self._came), self._walked
                await asyncio.sleep(turn_s - (turn - began) % turn_s + 0.001)
                seconds = time.monotonic() - turn
                for writes, walks in (turns["all"], turns[kind]):
                    writes.note(len(self._came) - came, seconds, calm=resting)
                    walks.note(self._walked - walked, seconds, calm=resting)
            self.attacks.update(await spending)
        self._judge(turns)

    def _judge(self, turns: Mapping[str, tuple[Turns, Turns]]) -> None:
        """Compare what came under attack with what came in peace. More than is offered comes only late, from the turn before."""
        for kind, (writes, walks) in turns.items():
            calm, rate = min(OFFERED_PER_S, writes.rate(calm=True)), writes.rate(calm=False)
            if calm and walks.rate(calm=True):
                self.counts[f"percent of the rate left: {kind}"] = round(100 * rate / calm)
                self.counts[f"percent of the pace left: {kind}"] = round(100 * walks.rate(calm=False) / walks.rate(calm=True))
            if rate < self.options.least_rate * calm and (kind == "all" or writes.attacks >= JUDGED_TURNS):
                self.wrong.append(f"{kind}: {rate:.0f} messages a second got through, and {calm:.0f} in peace")

    def _look_at_memory(self, before: Mapping[str, int]) -> None:
        strangers = MAX_STRANGER_BYTES + MAX_KEPT_BYTES + SLACK_BYTES
        # Floods of messages that are allowed fill mailboxes as far as the budget goes.
        allowed = {"attacks": strangers, "floods": MEMORY, "spending": SPENT_BYTES}[self._kind]
        for name in self._running:
            most = self._memory(name, "VmHWM")
            grown = most - before[name]
            self.counts["MiB grown"] = max(self.counts["MiB grown"], grown // 2**20)
            if grown > allowed or (self._spending and most > MEMORY):
                self.wrong.append(f"{name} took {grown:,} bytes more, {most:,} in all; {allowed:,} more are allowed")

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
            self.counts["messages of others"] += 1
            message.value()  # It is read, whatever it is: what cannot be is left out.

    def _note_unreadable(self, error: Exception) -> None:
        self.counts["unreadable"] += 1

    async def _write(self, writer: thence.Client) -> None:
        due = time.monotonic()
        while self._attacking or self._sent < FEWEST_MESSAGES:
            await writer.room()
            writer.post("reader", b"%d" % self._sent)
            self._sent += 1
            due = max(due + 1 / OFFERED_PER_S, time.monotonic() - self.options.turn_s)  # What it missed for long it leaves out.
            await asyncio.sleep(due - time.monotonic())
        await writer.flush()

    async def _walk(self, walker: thence.Client) -> None:
        while self._attacking:
            await walker.send("walker", b"step")
            await walker.receive()
            self._walked += 1
            await asyncio.sleep(PACE_S)

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
            if name == "s1":
                self._look_for_names([line for line in lines if "warning" in line])
            if len(lines) > allowed:
                self.wrong.append(f"{name} logged {len(lines)} lines; {allowed:.0f} are allowed")

    def _look_for_names(self, lines: Sequence[str]) -> None:
        """Each offender is named, with what it did, and no line comes again and again."""
        if not any(EVIL_HOST in line for line in lines):
            self.wrong.append(f"s1 names nobody at {EVIL_HOST} in its log")
        alike = Counter(_NUMBERS.sub("#", _LEFT_OUT.sub("", line)) for line in lines)
        for kind, named in NAMED.items():
            if self.attacks[kind] >= 2 * FLOODERS and not any(named in line for line in alike):
                self.wrong.append(f"s1 has no line {named!r} in its log after {kind}")
        most = 2 + self.options.fault_s / REPEAT_EVERY_S
        self.wrong += [f"s1 logged {count} times: {line}" for line, count in alike.items() if count > most]
        there, few = (
            sum(EVIL_HOST in line for line in lines),
            BURST_LINES + (self.options.fault_s + START_WITHIN_S) / LINE_EVERY_S,
        )
        if there > few:
            self.wrong.append(f"s1 logged {there} lines about {EVIL_HOST}; {few:.0f} are allowed")


_NUMBERS: Final = re.compile(r"(?<!\w)\d+")
_LEFT_OUT: Final = re.compile(r" \([\d,]+ lines? like this (was|were) left out\)$")


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: Hostile(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    return f"python -m tests.campaign --kind hostile --seed {options.seed} --seconds {options.fault_s:g}"
