"""The engine of a server: it lets agents react to what is in their mailboxes, and commits each reaction.

Rules:

* An agent reacts to one message after the other. Agents react at the same time as far as they wait for something: up to
  ``MAX_REACTING`` reactions may be waiting, and one more is being carried out.
* A reaction is committed by ``Node.react``: one entry of the log holds the message consumed, the new state and what is sent. The
  next reaction may begin before that entry is durable, since its own comes behind it; nothing leaves the server before.
* A reaction that raises is dropped, with what it changed and sent, and tried again, ``MAX_ATTEMPTS`` times in all. Then its
  message is set aside (``Ledger``), which is committed like a reaction, and the agent goes on.
* A reaction that cannot be committed now, because a limit is reached, is kept and tried again every ``ROOM_RETRY_S``.
* An agent whose class is not known here, or whose state its class cannot read, rests; its messages wait.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from thence.agents import guard
from thence.agents.agent import Agent
from thence.agents.kinds import Kind
from thence.agents.reactions import react
from thence.client.message import Message, nobody
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.net.names import RETURNED
from thence.net.protocol import BatchItem, read_messages, write_messages
from thence.node.node import Node
from thence.runtime.event_loop import tell_if_it_fails
from thence.runtime.printable import said_by
from thence.storage.agents import Dead, Reacted, StoredAgent
from thence.storage.bodies import Body
from thence.storage.mailbox import Batch
from thence.storage.mailbox_spill import MailboxReader

MAX_REACTING: Final = 1_000
"""How many reactions may be waiting for something at a time; others begin when one of them ends."""

MAX_ATTEMPTS: Final = 5
"""How often a reaction is tried before its message is set aside."""

FIRST_RETRY_S: Final = 0.05
"""How long after a failure it is tried again; after each further one twice as long."""

REACTION_TIMEOUT_S: Final = 60.0
"""How long a reaction may take; then it is cancelled, which counts as a failure."""

ROOM_RETRY_S: Final = 0.02
"""How long a reaction that cannot be committed waits before that is tried again."""

BURST: Final = 16
"""How many messages an agent reacts to before others have their turn."""

SLICE_S: Final = 0.005
"""How long agents may react before the server does something else."""

MAX_ERROR_CHARACTERS: Final = 2_000
"""How much of an error is kept with a message that was set aside."""

log = logging.getLogger("thence.engine")


class Uncommitted(NamedTuple):
    """A reaction that has been carried out, or given up, and is not in the log."""

    upto: int
    state: bytes | None
    bodies: Sequence[Body]
    dead: Dead | None = None


class Running:
    """One agent that has, or had, something to do: where it is in its mailbox, and what is not committed."""

    def __init__(self, name: str, kept: StoredAgent, node: Node) -> None:
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
        """The position of the last message that it has reacted to."""
        self._node = node
        self._first = 0
        """The position of the first message of the batch."""
        self._batch: Batch | None = None
        """The batch of the next message."""
        self._messages: list[BatchItem] = []
        self._reader: MailboxReader | None = None
        """Where it is in its mailbox, while it has something to do."""

    @property
    def has_messages(self) -> bool:
        """Whether a message waits for it."""
        mailbox = self._node.directory.state.mailboxes.get(self.name)
        return mailbox is not None and self.position < mailbox.position

    def next_message(self) -> Message | None:
        """Return the next message. What cannot be read is set aside."""
        mailbox = self._node.directory.state.mailboxes[self.name]
        position = self.position + 1
        batch = self._batch
        if batch is None or position >= self._first + batch.count:
            if self._reader is None:
                self._reader = MailboxReader(self._node.directory.mailboxes.spill, self.name)
            if batch is None:
                self._first, batch = self._reader.behind(mailbox, self.position)
            else:
                self._first, batch = self._reader.at(mailbox, self._first + batch.count)
            self._batch = batch
            try:
                self._messages = _messages_of(batch)
            except MalformedFrame as error:
                log.warning("agent %s: %s", self.name, error)
                self.set_aside(self._first + batch.count - 1, batch, error)
                return None
        item = self._messages[position - self._first]
        me = nobody if self.agent is None else weakref.ref(self.agent)
        return Message(me, position, batch.sender, batch.topic, item, item.body)

    def set_aside(self, upto: int, batch: Batch, error: BaseException) -> None:
        """Make dead letters of the messages up to a position."""
        dead = Dead(0, self.name, batch, _error_text(error), self.attempts, self._node.driver.clock.now())
        self.uncommitted = Uncommitted(upto, None, (), dead)

    def rest(self, why: str) -> None:
        """React no more, for this reason."""
        self.resting = why
        self._node.directory.mailboxes.here.discard(self.name)
        log.warning("agent %s rests: %s", self.name, why)

    def idle(self) -> None:
        """Keep little: many agents have nothing to do."""
        self.scheduled = False
        self._batch, self._messages, self._reader = None, [], None


class Pump:
    """One task in which agents react."""

    task: asyncio.Task[None]
    reacting: Running | None = None
    timer: asyncio.TimerHandle | None = None
    overdue = False


class AgentEngine:
    """Lets the agents of a server react, and commits each reaction."""

    def __init__(self, node: Node, kinds: Mapping[str, Kind]) -> None:
        """Run the agents of ``node``; ``start`` begins."""
        self.kinds = kinds
        self.reactions = 0
        """How many were committed since the start."""
        self.failures = 0
        self.stopped: Mapping[str, str] = {}
        """Agents that may not react, and why (``server.revocation``)."""
        self._node = node
        self._loop = asyncio.get_running_loop()
        guard.guard_tasks(self._loop)
        self.running: dict[str, Running] = {}
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
        """Let those react for whom messages wait."""
        mailboxes = self._node.directory.state.mailboxes
        self.messages([name for name, kept in self._node.ledger.agents.items() if mailboxes[name].position > kept.done])

    def stop(self, stopped: Mapping[str, str]) -> None:
        """Let these agents rest, for these reasons, and all others go on."""
        before, self.stopped = self.stopped, stopped
        self.messages([name for name in before if name not in stopped])

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

    def messages(self, names: Iterable[str]) -> None:
        """Some of these, if they are agents, have messages."""
        agents = self._node.ledger.agents
        for name in names:
            kept = agents.get(name)
            if kept is not None and name not in self.stopped:
                running = self.running.get(name)
                if running is None or running.since != kept.since:
                    running = self.running[name] = Running(name, kept, self._node)
                    self._node.directory.mailboxes.here.add(name)
                if not running.scheduled and not running.resting:
                    self._schedule(running)

    def forget(self, name: str) -> None:
        """An agent is gone."""
        self.running.pop(name, None)
        self._node.directory.mailboxes.here.discard(name)

    def trouble(self, name: str) -> str:
        """Say why an agent does not react, if so."""
        if name in self.stopped:
            return self.stopped[name]
        kind = self._node.ledger.agents[name].kind
        if kind not in self.kinds:
            return _unknown(kind)
        running = self.running.get(name)
        if running is None:
            return ""
        if running.resting or running.waiting_for or not running.attempts:
            return running.resting or running.waiting_for
        return f"attempt {running.attempts} of {MAX_ATTEMPTS} at message {running.position + 1} has failed"

    # Whose turn it is.

    @property
    def idle(self) -> bool:
        """Whether no agent reacts, or has something to react to."""
        waits = self._ready or self._parked or any(running.scheduled for running in self.running.values())
        return self._pump is None and not waits

    def _schedule(self, running: Running) -> None:
        running.scheduled = True
        self._ready.append(running)
        self._start_pump()

    def _start_pump(self) -> None:
        if self._pump is None and self._ready and len(self._suspended) < MAX_REACTING and not self._closing:
            pump = self._pump = Pump()
            pump.task = self._loop.create_task(self._run(pump))
            tell_if_it_fails(pump.task, f"the engine of {self._node.name!r}", self._node.hooks.on_failed)

    async def _run(self, pump: Pump) -> None:
        guard.reacting.set(True)
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
        """Let an agent react to some messages; return whether it has more to do now."""
        for _ in range(BURST):
            if self.running.get(running.name) is not running or self._closing:
                return False  # It was removed.
            if running.name in self.stopped:
                running.scheduled = False
                return False
            if running.uncommitted is not None:
                if not self._commit(running):
                    return False
                continue
            agent = self._instance(running) if running.has_messages else None
            if agent is None:
                running.idle()
                return False
            try:
                message = running.next_message()
            except StorageError as error:
                running.rest(f"its messages cannot be read: {error}")
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
            if message.sender.startswith(RETURNED):
                await agent.returned(message, message.sender.removeprefix(RETURNED))
            else:
                await agent.react(message)
            state = self.kinds[type(agent).__name__].write(agent.state)
        except asyncio.CancelledError:
            if self._closing:
                raise
            return self._failed(running, message, _ended_early(pump))
        except BaseException as error:
            if guard.is_of_others(error, pump.task):
                raise
            return self._failed(running, message, error)
        finally:
            bodies = agent._end()
            pump.reacting = None
            if pump.timer is not None:
                pump.timer.cancel()
        if running.name in self.stopped:
            running.agent = None  # With what it changed. It reacts to the same message when it may go on.
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
            return self._failed(running, message or running.next_message(), error)
        running.uncommitted = None
        running.waiting_for = ""
        running.position = done.upto
        running.attempts = 0
        self.reactions += 1
        return True

    def _failed(self, running: Running, message: Message | None, error: BaseException) -> bool:
        """Drop what a reaction changed; try it again later, or set its message aside. Return whether to go on now."""
        running.agent = None
        if self.running.get(running.name) is not running or message is None:
            return False  # It was removed meanwhile.
        running.attempts += 1
        self.failures += 1
        log.warning(
            "agent %s: attempt %d of %d to react to message %d, from %s, failed: %s: %s",
            *(running.name, running.attempts, MAX_ATTEMPTS, message.position, message.sender),
            *(type(error).__name__, said_by(error, MAX_ERROR_CHARACTERS)),
            exc_info=error if running.attempts == MAX_ATTEMPTS else None,
        )
        if running.attempts < MAX_ATTEMPTS:
            self._loop.call_later(FIRST_RETRY_S * 2 ** (running.attempts - 1), self._again, running)
            return False
        item = Batch(message.sender, 0, 1, (running.name,), message.topic, write_messages([message.item]))
        running.set_aside(message.position, item, error)
        return True

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

    # Instances.

    def _instance(self, running: Running) -> Agent | None:
        """Return the object that reacts, made from its state if need be; None if that cannot be done."""
        if running.agent is not None:
            return running.agent
        kept = self._node.ledger.agents[running.name]
        kind = self.kinds.get(kept.kind)
        if kind is None:
            running.rest(_unknown(kept.kind))
            return None
        try:
            state = kind.read(kept.state, running.name)
            agent = kind.agent_class()
        except BaseException as error:
            if guard.is_of_others(error, asyncio.current_task()):
                raise
            running.rest(_error_text(error))
            return None
        agent.name = running.name
        agent.state = state
        agent._is_known = self._is_known
        running.agent = agent
        return agent

    def _is_known(self, name: str) -> bool:
        return self._node.directory.home(name) is not None


def _messages_of(batch: Batch) -> list[BatchItem]:
    messages = read_messages(batch.messages, batch.sender)
    if len(messages) != batch.count:
        raise MalformedFrame(f"{len(messages)} messages from {batch.sender!r} where {batch.count} were said")
    return messages


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {said_by(error, MAX_ERROR_CHARACTERS)}"


def _unknown(kind: str) -> str:
    return f"there is no agent class {kind!r} here; name it with --agents"


def _ended_early(pump: Pump) -> Exception:
    if not pump.overdue:
        return RuntimeError("the reaction was cancelled from inside")
    pump.task.uncancel()
    return TimeoutError(f"it took longer than REACTION_TIMEOUT_S ({REACTION_TIMEOUT_S:g} s)")
