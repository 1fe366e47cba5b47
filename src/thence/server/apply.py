"""Leads a running fabric from its topology to the next one: what ``thence topology apply`` does. docs/how-to/reconfiguration.md
tells more.

Rules:

* It keeps nothing that matters. Killed at any moment and started again, it reads where every server stands and goes on.
* The servers of the old fabric answer in rounds; ``core.reconfig.coordinator`` decides what each round means. A server that
  is away is waited for, unless the change does not concern it; so is one whose frames are on their way. At the time limit all go
  back to normal, if they still can.
* Servers that come in must be up, with the new file, before anything begins.
* Servers that people declare lost are asked nothing. When all others take nothing any more, they say what they have
  (``core.reconfig.flush``), and are given what they lack, through here, in parts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from thence.client.client import Client
from thence.core.reconfig.coordinator import Coordinator, Decision
from thence.core.reconfig.flush import Settlement, settle
from thence.core.reconfig.protocol import BarLost, Follow, Hold, Prepare, Resume, Standing, Switch, ViewInput
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, MessageId, weight_of
from thence.errors import ConfigError, NotAllowed, Refusal, ThenceError, UsageError
from thence.net.protocol import ViewAnswer, ViewRequest
from thence.net.security.tls import TlsFiles
from thence.node.reconfiguration import FLUSH_BYTES
from thence.runtime.deadline import within

ANSWER_S: Final = 3.0
"""How long a round waits for an answer."""

FLUSH_ANSWER_S: Final = 10.0
"""How long it waits for one that has to do with copies of messages, of which there may be many."""

FLUSHING: Final = ("report", "give", "flush")

ROUND_PAUSE_S: Final = 0.02
"""How long it waits between two rounds."""

CONNECT_S: Final = 1.0
"""How long it waits for a connection."""

FIND_ROUNDS: Final = 5
"""How often all servers are asked for their topology before it is said that none answers: they may be busy."""

BACK_S: Final = 10.0
"""How long a change that took too long is given to go back."""

FLUSH_MESSAGES: Final = 1_000
"""How many messages are handed over at a time."""

Reporter = Callable[[str], None]


class Applied(NamedTuple):
    """What came of it."""

    old: Topology
    new: Topology
    rounds: int
    seconds: float
    paused_ms: Mapping[str, float]
    """How long the submissions of each server waited."""
    lost: tuple[str, ...] = ()
    settlement: Settlement | None = None
    """What was handed over and given up, if servers were lost, and it was settled in this run of the command."""


class Access(NamedTuple):
    """How to get to servers."""

    tls: TlsFiles | None = None
    authority: Path | None = None
    token: str | None = None

    def client(self, address: str, server: str) -> Client:
        """Return somebody who only asks, and only this server."""
        scheme = "thences" if self.tls or self.authority else "thence"
        return Client(
            f"{scheme}://{address}",
            "",
            temporary=False,
            token=self.token,
            tls=self.tls,
            authority=self.authority,
            connect_timeout=CONNECT_S,
            server=server,
        )


class Callers:
    """A connection to each server, made when it is needed, and again after it was lost."""

    def __init__(self, addresses: Mapping[str, str], access: Access) -> None:
        """Call nobody yet."""
        self.addresses = dict(addresses)
        self.trouble: dict[str, str] = {}
        self.denied: dict[str, str] = {}
        """Who answers that this token, or none, does not let us do it."""
        self._access = access
        self._stack = AsyncExitStack()
        self._clients: dict[str, Client] = {}

    async def close(self) -> None:
        """Hang up."""
        await self._stack.aclose()

    async def ask(self, name: str, request: ViewRequest) -> ViewAnswer | None:
        """Return the answer of a server, or None if there is none."""
        try:
            answer_s = ANSWER_S if request.action not in FLUSHING else FLUSH_ANSWER_S
            async with within(answer_s, f"no answer from {self.addresses[name]}"):
                client = self._clients.get(name)
                if client is None:
                    client = await self._stack.enter_async_context(self._access.client(self.addresses[name], name))
                    self._clients[name] = client
                answer = await client.ask_view(request)
        except (OSError, TimeoutError, ThenceError) as error:
            self.trouble[name] = str(error) or type(error).__name__
            if isinstance(error, NotAllowed | Refusal):
                self.denied[name] = self.trouble[name]
            return None
        if answer.server != name:
            self.trouble[name] = f"{self.addresses[name]} is {answer.server!r}"
            return None
        self.trouble.pop(name, None)
        self.denied.pop(name, None)
        return answer

    async def ask_all(self, requests: Mapping[str, ViewRequest]) -> dict[str, ViewAnswer]:
        """Ask several at once; return those who answered."""
        answers = await asyncio.gather(*(self.ask(name, request) for name, request in requests.items()))
        return {name: answer for name, answer in zip(requests, answers, strict=True) if answer is not None}

    def check_allowed(self) -> None:
        """Raise ``NotAllowed`` if somebody does not let us do it."""
        if self.denied:
            said = "; ".join(f"{name}: {reason}" for name, reason in self.denied.items())
            raise NotAllowed(f"nothing was changed, since it is not allowed: {said}")


async def find_old(new: Topology, access: Access) -> Topology:
    """Return the topology that the servers have, or had before ``new`` if some have that already."""
    callers = Callers(new.addresses, access)
    answers: dict[str, ViewAnswer] = {}
    try:
        for _ in range(FIND_ROUNDS):
            answers = await callers.ask_all({name: ViewRequest("ask", whole=True) for name in new.addresses})
            if len(answers) + len(callers.denied) == len(new.addresses) or not all(
                _comes_in(answer, new) for answer in answers.values()
            ):
                break  # Those who come in may answer first, and know of nothing before.
            await asyncio.sleep(ROUND_PAUSE_S)
    finally:
        await callers.close()
    found = [parse(answer.text, f"the topology of {name}", force=True) for name, answer in answers.items()]
    before = [topology for topology in found if topology.version == new.version - 1]
    if before:
        return before[0]
    previous = [answer.previous for answer in answers.values() if answer.standing.version == new.version and answer.previous]
    if previous:
        return parse(previous[0], "the topology before", force=True)
    if not answers:
        callers.check_allowed()
        trouble = next(iter(callers.trouble.values()), "the file gives no addresses")
        raise UsageError(f"no server of version {new.version} of {new.name!r} answers: {trouble}")
    versions = sorted({topology.version for topology in found})
    silent = "".join(f"; no answer from {name}: {trouble}" for name, trouble in callers.trouble.items())
    raise UsageError(
        f"version {new.version} of {new.name!r} cannot be applied: the servers have version "
        f"{', '.join(map(str, versions))}, and only {new.version - 1} leads to it{silent}"
    )


def _comes_in(answer: ViewAnswer, new: Topology) -> bool:
    """Say whether a server begins with ``new``."""
    return answer.standing.version == new.version and not answer.previous


class TopologyChange:
    """One change, led from here."""

    def __init__(
        self, old: Topology, new: Topology, access: Access, report: Reporter, lost: tuple[str, ...] = (), *, back: bool = False
    ) -> None:
        """``report`` is given what is going on, in words. ``back``: only to abort, so ``new`` may have those who are lost."""
        self._lead = Coordinator(old, new, lost, back=back)
        self._settlement: Settlement | None = None
        self._refusals: dict[str, str] = {}
        """What each has refused last: it is asked again and again, and people told once."""
        self._report = report
        self._access = access
        self.callers = Callers({**old.addresses, **new.addresses}, access)
        lacking = [name for name in self._lead.members if name not in self.callers.addresses]
        if lacking:
            raise ConfigError(f"no address for {', '.join(lacking)}: the topology needs [servers.NAME] address")

    async def apply(self, timeout_s: float) -> Applied:
        """Lead to the end; ``UsageError`` says why it could not be done, and whether all went back."""
        began = time.monotonic()
        try:
            await self._check_joining()
            await self._check_lost()
            rounds = await self._rounds(lambda answers: self._lead.decide(answers, time.time_ns()), began + timeout_s)
            await self._inform_absent()
            paused = await self.callers.ask_all({name: ViewRequest("ask") for name in self._lead.members})
        except TimeoutError as error:
            raise UsageError(f"not done within {timeout_s:g} s: {error}. {await self._back()}") from None
        finally:
            await self.callers.close()
        pauses = {name: answer.paused_ms for name, answer in paused.items()}
        seconds = time.monotonic() - began
        return Applied(self._lead.old, self._lead.new, rounds, seconds, pauses, self._lead.lost, self._settlement)

    async def abort(self, timeout_s: float) -> None:
        """Take all back to normal."""
        try:
            await self._rounds(self._lead.decide_abort, time.monotonic() + timeout_s)
        except TimeoutError as error:
            raise UsageError(f"not done within {timeout_s:g} s: {error}") from None
        finally:
            await self.callers.close()

    async def _back(self) -> str:
        """After a change that took too long."""
        lead, callers = (
            Coordinator(self._lead.old, self._lead.new, self._lead.lost),
            Callers(self.callers.addresses, self._access),
        )
        try:
            deadline = time.monotonic() + BACK_S
            while time.monotonic() < deadline:
                answers = await callers.ask_all({name: ViewRequest("ask") for name in lead.members})
                decision = lead.decide_abort({name: answer.standing for name, answer in answers.items()})
                if all(answer.standing.phase == "normal" for answer in answers.values()):
                    return "All servers that answer are back to normal"
                await callers.ask_all({name: _request(request) for name, request in decision.requests.items()})
        except UsageError as error:
            return str(error)
        finally:
            await callers.close()
        return "Not all servers are back to normal yet: run it again, or with --abort"

    async def _inform_absent(self) -> None:
        """Tell those who were left out; who is still down hears of it from its peers."""
        answers = await self.callers.ask_all(
            dict.fromkeys(self._lead.absent, _request(Follow(self._lead.new, self._lead.members)))
        )
        version = self._lead.new.version
        silent = [name for name in self._lead.absent if name not in answers or answers[name].standing.version < version]
        if silent:
            self._report(f"left out: {', '.join(silent)}; version {version} reaches it from its peers when it is back")

    async def _check_joining(self) -> None:
        old, new = self._lead.old, self._lead.new
        joining = [name for name in new.processes if name not in old.homes]
        answers = await self.callers.ask_all({name: ViewRequest("ask") for name in joining if name in self.callers.addresses})
        for name in joining:
            answer = answers.get(name)
            if answer is None:
                trouble = self.callers.trouble.get(name, "the file gives no address for it")
                raise UsageError(f"{name} is new and does not answer: {trouble}. Start it with the new file first")
            if (answer.standing.version, answer.standing.fingerprint) != (new.version, new.fingerprint):
                raise UsageError(f"{name} is new and was not started with this file, but with version {answer.standing.version}")

    async def _check_lost(self) -> None:
        """People decide who is lost. If one of them answers, they may want to know."""
        asked = [name for name in self._lead.lost if name in self.callers.addresses]
        for name in await self.callers.ask_all({name: ViewRequest("ask") for name in asked}):
            self._report(f"{name} is declared lost, but answers: it will be left behind, with what only it has")
        for name in asked:
            self.callers.trouble.pop(name, None)

    async def _flush(self, lacking: Sequence[str]) -> None:
        """Give each what it lacks, by what all of them have; whoever does not answer is asked again in the next round."""
        answers = await self.callers.ask_all({name: ViewRequest("report") for name in self._lead.members})
        reports = {name: answer.report for name, answer in answers.items() if answer.report is not None}
        if len(reports) < len(self._lead.members):
            return
        self._settlement = settle(self._lead.lost, reports)
        for name in lacking:
            await self.hand_over(name, self._settlement)

    async def hand_over(self, name: str, found: Settlement) -> None:
        owed, at, last = found.owed[name], 0, False
        while not last:
            envelopes = await self._fetch(owed[at : at + FLUSH_MESSAGES], found)
            if not envelopes and at < len(owed):
                return
            last = at + len(envelopes) == len(owed)
            part = ViewRequest("flush", self._lead.attempt, list_id=found.list_id, at=at, last=last, envelopes=tuple(envelopes))
            answer = await self.callers.ask(name, part)
            if answer is None or self._refused(name, answer):
                return
            at += len(envelopes)

    async def _fetch(self, names: Sequence[MessageId], found: Settlement) -> list[Envelope]:
        """Return the first of these messages, as many as fit into a request; none: somebody does not answer."""
        wanted: dict[str, list[MessageId]] = {}
        for name in names:
            wanted.setdefault(found.holders[name], []).append(name)
        requests = {holder: ViewRequest("give", names=tuple(theirs)) for holder, theirs in wanted.items()}
        answers = await self.callers.ask_all(requests)
        for holder, answer in answers.items():
            self._refused(holder, answer)
        copies = {envelope.id: envelope for answer in answers.values() for envelope in answer.envelopes}
        fetched: list[Envelope] = []
        size = 0
        for name in names:
            size += weight_of(copies.get(name))
            if name not in copies or (size > FLUSH_BYTES and fetched):
                break
            fetched.append(copies[name])
        return fetched

    async def _rounds(self, decide: Callable[[Mapping[str, Standing]], Decision], deadline: float) -> int:
        said, rounds = "", 0
        while True:
            rounds += 1
            # With the attempt that it leads: whoever holds for that knows that somebody still does.
            answers = await self.callers.ask_all({name: ViewRequest("ask", self._lead.attempt) for name in self._lead.members})
            if rounds == 1:
                self.callers.check_allowed()  # Later it may be halfway, and is tried on until the time is up.
            decision = decide({name: answer.standing for name, answer in answers.items()})
            if decision.said != said:
                said = decision.said
                self._report(said)
            if decision.done:
                return rounds
            if decision.flush:
                await self._flush(decision.flush)
            done = await self.callers.ask_all({name: _request(request) for name, request in decision.requests.items()})
            refused = {name: f"refused: {answer.refused}" for name, answer in done.items() if self._refused(name, answer)}
            if time.monotonic() > deadline:
                why = "".join(f"; {name}: {trouble}" for name, trouble in (self.callers.trouble | refused).items())
                raise TimeoutError(f"{said}{why}")
            await asyncio.sleep(0 if decision.requests and not refused else ROUND_PAUSE_S)

    def _refused(self, name: str, answer: ViewAnswer) -> bool:
        """Say that somebody refused, once, and return whether it did."""
        if answer.refused and self._refusals.get(name) != answer.refused:
            self._refusals[name] = answer.refused
            self._report(f"{name} refused: {answer.refused}")
        return bool(answer.refused)


def _request(asked: ViewInput) -> ViewRequest:
    if isinstance(asked, Hold):
        return ViewRequest(
            "hold", asked.attempt, write(asked.topology), lost=asked.lost, limited=asked.limited, absent=asked.absent
        )
    if isinstance(asked, Prepare):
        return ViewRequest("prepare", asked.attempt)
    if isinstance(asked, Resume):
        return ViewRequest("resume", asked.attempt, dead=asked.dead)
    if isinstance(asked, BarLost):
        return ViewRequest("bar", asked.attempt, lost=asked.lost)
    if isinstance(asked, Switch):
        return ViewRequest("switch", asked.attempt, lost=asked.without)
    if isinstance(asked, Follow):
        return ViewRequest("follow", text=write(asked.topology), peers=asked.peers)
    raise UsageError(f"{asked} cannot be asked for")


def pauses(applied: Applied) -> tuple[float, float]:
    """Return the shortest and the longest pause, in milliseconds."""
    times: Sequence[float] = list(applied.paused_ms.values()) or [0.0]
    return min(times), max(times)
