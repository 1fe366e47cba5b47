"""The engine of a server: it lets agents react to what is in their boxes, and commits each reaction.

Rules:

* An agent reacts to one letter after the other. Agents react at the same time as far as they wait for something: up to
  ``MAX_REACTING`` reactions may be waiting, and one more is being carried out.
* A reaction is committed by ``Node.react``: one entry of the log holds the letter consumed, the new state and what is sent. The
  next reaction may begin before that entry is durable, since its own comes behind it; nothing leaves the server before.
* A reaction that raises is dropped, with what it changed and sent, and tried again, ``MAX_ATTEMPTS`` times in all. Then its
  letter is set aside (``Ledger``), which is committed like a reaction, and the agent goes on.
* A reaction that cannot be committed now, because a limit is reached, is kept and tried again every ``ROOM_RETRY_S``.
* An agent whose class is not known here, or whose state its class cannot read, rests; its letters wait.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.runtime.agent import Agent
from thence.runtime.agent_kinds import Kind
from thence.runtime.boxes import Bundle
from thence.runtime.ledger import Dead, Kept, Reacted
from thence.runtime.letters import Message, nobody
from thence.runtime.node import Node
from thence.runtime.office import Body
from thence.runtime.protocol import Letter, read_letters, write_letters
from thence.runtime.reactions import react
from thence.runtime.spill import Reader
from thence.runtime.tasks import tell_if_it_fails

MAX_REACTING: Final = 1_000
"""How many reactions may be waiting for something at a time; others begin when one of them ends."""

MAX_ATTEMPTS: Final = 5
"""How often a reaction is tried before its letter is set aside."""

FIRST_RETRY_S: Final = 0.05
"""How long after a failure it is tried again; after each further one twice as long."""

REACTION_TIMEOUT_S: Final = 60.0
"""How long a reaction may take; then it is cancelled, which counts as a failure."""

ROOM_RETRY_S: Final = 0.02
"""How long a reaction that cannot be committed waits before that is tried again."""

BURST: Final = 16
"""How many letters an agent reacts to before others have their turn."""

SLICE_S: Final = 0.005
"""How long agents may react before the server does something else."""

MAX_ERROR_CHARACTERS: Final = 2_000
"""How much of an error is kept with a letter that was set aside."""

log = logging.getLogger("thence.engine")


class Uncommitted(NamedTuple):
    """A reaction that has been carried out, or given up, and is not in the log."""

    upto: int
    state: bytes | None
    bodies: Sequence[Body]
    dead: Dead | None = None


class Running:
    """One agent that has, or had, something to do."""

    def __init__(self, name: str, kept: Kept) -> None:
        """Go on where the ledger says."""
        self.name = name
        self.since = kept.since
        self.agent: Agent | None = None
        """The instance; None: it has to be made from the state."""
        self.resting = ""
        """Why it does not react, if so."""
        self.attempts = 0
        self.uncommitted: Uncommitted | None = None
        self.waiting_for = ""
        """Why its last reaction is not committed."""
        self.scheduled = False
        """Whether it has its turn, or will have it."""
        self.position = kept.done
        """Of the last letter that it has reacted to."""
        self.first = 0
        self.bundle: Bundle | None = None
        """The bundle of the next letter, and the position of its first one."""
        self.letters: list[Letter] = []
        self.reader: Reader | None = None
        """Where it is in its box, while it has something to do."""


class Pump:
    """One task in which agents react."""

    task: asyncio.Task[None]
    reacting: Running | None = None
    timer: asyncio.TimerHandle | None = None
    overdue = False


class Engine:
    """See the module's text."""

    def __init__(self, node: Node, kinds: Mapping[str, Kind]) -> None:
        """Run the agents of ``node``; ``start`` begins."""
        self.kinds = kinds
        self.reactions = 0
        """How many were committed since the start."""
        self.failures = 0
        self.stopped: Mapping[str, str] = {}
        """Agents that may not react, and why (``runtime.revocation``)."""
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._running: dict[str, Running] = {}
        self._ready: deque[Running] = deque()
        self._parked: list[Running] = []
        """Those who wait for room to commit."""
        self._pump: Pump | None = None
        """Where agents react now."""
        self._suspended: dict[Pump, None] = {}
        """Where a reaction waits for something; each ends with that reaction."""
        self._looking = False
        self._closing = False

    def start(self) -> None:
        """Let those react for whom letters wait."""
        boxes = self._node.office.state.boxes
        self.letters([name for name, kept in self._node.ledger.agents.items() if boxes[name].position > kept.done])

    def stop(self, stopped: Mapping[str, str]) -> None:
        """Let these agents rest, for these reasons, and all others go on."""
        before, self.stopped = self.stopped, stopped
        self.letters([name for name in before if name not in stopped])

    async def close(self) -> None:
        """Stop. What is being reacted to comes again at the next start."""
        pumps = self.halt()
        await asyncio.gather(*(pump.task for pump in pumps), return_exceptions=True)

    def halt(self) -> list[Pump]:
        """Let nobody react any more, now; return where somebody did."""
        self._closing = True
        pumps = [*self._suspended, *([self._pump] if self._pump is not None else [])]
        for pump in pumps:
            pump.task.cancel()
        return pumps

    # What the server tells.

    def letters(self, names: Iterable[str]) -> None:
        """Some of these, if they are agents, have letters."""
        agents = self._node.ledger.agents
        for name in names:
            kept = agents.get(name)
            if kept is not None and name not in self.stopped:
                running = self._running.get(name)
                if running is None or running.since != kept.since:
                    running = self._running[name] = Running(name, kept)
                    self._node.office.here.add(name)
                if not running.scheduled and not running.resting:
                    self._schedule(running)

    def forget(self, name: str) -> None:
        """An agent is gone."""
        self._running.pop(name, None)
        self._node.office.here.discard(name)

    def trouble(self, name: str) -> str:
        """Say why an agent does not react, if so."""
        if name in self.stopped:
            return self.stopped[name]
        kind = self._node.ledger.agents[name].kind
        if kind not in self.kinds:
            return _unknown(kind)
        running = self._running.get(name)
        if running is None:
            return ""
        if running.resting or running.waiting_for or not running.attempts:
            return running.resting or running.waiting_for
        return f"attempt {running.attempts} of {MAX_ATTEMPTS} at letter {running.position + 1} has failed"

    # Whose turn it is.

    def _schedule(self, running: Running) -> None:
        running.scheduled = True
        self._ready.append(running)
        self._start_pump()

    def _start_pump(self) -> None:
        if self._pump is None and self._ready and len(self._suspended) < MAX_REACTING and not self._closing:
            pump = self._pump = Pump()
            pump.task = self._loop.create_task(self._run(pump))
            tell_if_it_fails(pump.task, f"the engine of {self._node.name!r}", self._node.on_failed)

    async def _run(self, pump: Pump) -> None:
        try:
            ends = self._loop.time() + SLICE_S
            while self._ready and self._pump is pump:
                running = self._ready.popleft()
                if await self._serve(running, pump):
                    self._ready.append(running)
                if self._loop.time() >= ends and self._pump is pump:
                    await asyncio.sleep(0)
                    ends = self._loop.time() + SLICE_S
        finally:
            self._suspended.pop(pump, None)
            if self._pump is pump:
                self._pump = None
            self._start_pump()

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._detach)

    def _detach(self) -> None:
        """Whoever reacts while this is called by the loop waits for something: let others react meanwhile, in another task."""
        self._looking = False
        pump = self._pump
        if pump is not None and pump.reacting is not None:
            self._suspended[pump] = None
            self._pump = None
            pump.timer = self._loop.call_later(REACTION_TIMEOUT_S, self._overdue, pump)
            self._start_pump()

    def _overdue(self, pump: Pump) -> None:
        pump.overdue = True
        pump.task.cancel()

    # Reactions.

    async def _serve(self, running: Running, pump: Pump) -> bool:
        """Let an agent react to some letters; return whether it has more to do now."""
        for _ in range(BURST):
            if self._running.get(running.name) is not running or self._closing:
                return False  # It was removed.
            if running.name in self.stopped:
                running.scheduled = False
                return False
            if running.uncommitted is not None:
                if not self._commit(running):
                    return False
                continue
            agent = self._instance(running) if self._has_letters(running) else None
            if agent is None:
                running.scheduled = False
                running.bundle, running.letters, running.reader = None, [], None  # Many agents rest, and should keep little.
                return False
            try:
                message = self._next(running, agent)
            except StorageError as error:
                self._rest(running, f"its letters cannot be read: {error}")
                return False
            if message is not None and not await self._react(running, agent, message, pump):
                return False
            if self._pump is not pump:
                break  # It had to wait, and others react elsewhere now.
        return True

    async def _react(self, running: Running, agent: Agent, message: Message, pump: Pump) -> bool:
        """Let an agent react and commit that; return whether it may go on now."""
        agent._begin()
        pump.reacting = running
        self._look()
        try:
            await agent.react(message)
            state = self.kinds[type(agent).__name__].write(agent.state)
        except asyncio.CancelledError:
            if self._closing:
                raise
            return self._failed(running, message, _ended_early(pump))
        except Exception as error:  # noqa: BLE001  Whatever it is, the agent's reaction is dropped, and the server goes on.
            return self._failed(running, message, error)
        finally:
            bodies = agent._end()
            pump.reacting = None
            if pump.timer is not None:
                pump.timer.cancel()
        if running.name in self.stopped:
            running.agent = None  # With what it changed. It reacts to the same letter when it may go on.
            running.scheduled = False
            return False
        kept = self._node.ledger.agents.get(running.name)
        same = kept is not None and kept.state == state
        running.uncommitted = Uncommitted(message.position, None if same else state, bodies)
        return self._commit(running, message)

    def _commit(self, running: Running, message: Message | None = None) -> bool:
        """Try to commit a reaction; return whether its agent may go on now. If not, it has its turn later."""
        done = running.uncommitted
        if done is None:
            return True
        dead = done.dead
        if dead is not None:
            dead = msgspec.structs.replace(dead, number=self._node.ledger.state.last_dead + 1)
        try:
            react(self._node, Reacted(running.name, running.since, done.upto, done.state, dead), done.bodies)
        except Busy as error:
            running.waiting_for = str(error)
            self._park(running)
            return False
        except UsageError as error:
            running.uncommitted = None
            running.waiting_for = ""
            return self._failed(running, message or self._next(running, None), error)
        running.uncommitted = None
        running.waiting_for = ""
        running.position = done.upto
        running.attempts = 0
        self.reactions += 1
        return True

    def _failed(self, running: Running, message: Message | None, error: BaseException) -> bool:
        """Drop what a reaction changed; try it again later, or set its letter aside. Return whether to go on now."""
        running.agent = None
        if self._running.get(running.name) is not running or message is None:
            return False  # It was removed meanwhile.
        running.attempts += 1
        self.failures += 1
        log.warning(
            "agent %s: attempt %d of %d to react to letter %d, from %s, failed: %s: %s",
            *(running.name, running.attempts, MAX_ATTEMPTS, message.position, message.sender, type(error).__name__, error),
            exc_info=error if running.attempts == MAX_ATTEMPTS else None,
        )
        if running.attempts < MAX_ATTEMPTS:
            self._loop.call_later(FIRST_RETRY_S * 2 ** (running.attempts - 1), self._again, running)
            return False
        letter = Bundle(message.sender, 0, 1, (running.name,), message.topic, write_letters([message.letter]))
        self._set_aside(running, message.position, letter, error)
        return True

    def _set_aside(self, running: Running, upto: int, bundle: Bundle, error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]
        now = self._node.clock.now()
        dead = Dead(0, running.name, bundle, text, running.attempts, now)
        running.uncommitted = Uncommitted(upto, None, (), dead)

    def _again(self, running: Running) -> None:
        self._ready.append(running)
        self._start_pump()

    def _park(self, running: Running) -> None:
        if not self._parked:
            self._loop.call_later(ROOM_RETRY_S, self._unpark)
        self._parked.append(running)

    def _unpark(self) -> None:
        self._ready.extend(self._parked)
        self._parked = []
        self._start_pump()

    # Letters and instances.

    def _has_letters(self, running: Running) -> bool:
        box = self._node.office.state.boxes.get(running.name)
        return box is not None and running.position < box.position

    def _next(self, running: Running, agent: Agent | None) -> Message | None:
        """Return the next letter of an agent. What cannot be read is set aside."""
        box = self._node.office.state.boxes[running.name]
        position = running.position + 1
        bundle = running.bundle
        if bundle is None or position >= running.first + bundle.count:
            if running.reader is None:
                running.reader = Reader(self._node.office.spill, running.name)
            if bundle is None:
                running.first, bundle = running.reader.behind(box, running.position)
            else:
                running.first, bundle = running.reader.at(box, running.first + bundle.count)
            running.bundle = bundle
            try:
                running.letters = _letters_of(bundle)
            except MalformedFrame as error:
                log.warning("agent %s: %s", running.name, error)
                self._set_aside(running, running.first + bundle.count - 1, bundle, error)
                return None
        letter = running.letters[position - running.first]
        me = nobody if agent is None else weakref.ref(agent)
        return Message(me, position, bundle.sender, bundle.topic, letter, letter.body)

    def _instance(self, running: Running) -> Agent | None:
        """Return the object that reacts, made from its state if need be; None if that cannot be done."""
        if running.agent is not None:
            return running.agent
        kept = self._node.ledger.agents[running.name]
        kind = self.kinds.get(kept.kind)
        if kind is None:
            self._rest(running, _unknown(kept.kind))
            return None
        try:
            state = kind.read(kept.state, running.name)
            agent = kind.agent_class()
        except Exception as error:  # noqa: BLE001  Also what the constructor of somebody's class raises.
            self._rest(running, f"{type(error).__name__}: {error}")
            return None
        agent.name = running.name
        agent.state = state
        agent._is_known = self._is_known
        running.agent = agent
        return agent

    def _rest(self, running: Running, why: str) -> None:
        running.resting = why
        self._node.office.here.discard(running.name)
        log.warning("agent %s rests: %s", running.name, why)

    def _is_known(self, name: str) -> bool:
        return self._node.office.home(name) is not None


def _letters_of(bundle: Bundle) -> list[Letter]:
    letters = read_letters(bundle.letters, bundle.sender)
    if len(letters) != bundle.count:
        raise MalformedFrame(f"{len(letters)} letters from {bundle.sender!r} where {bundle.count} were said")
    return letters


def _unknown(kind: str) -> str:
    return f"there is no agent class {kind!r} here; name it with --agents"


def _ended_early(pump: Pump) -> Exception:
    if not pump.overdue:
        return RuntimeError("the reaction was cancelled from inside")
    pump.task.uncancel()
    return TimeoutError(f"it took longer than REACTION_TIMEOUT_S ({REACTION_TIMEOUT_S:g} s)")
