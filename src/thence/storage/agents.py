"""What a server keeps of its agents: the class and state of each, how far it has reacted, and messages that it could not react
to.

It is a state machine without I/O, as the directory is. Its state follows from the notices that the directory hands over and from
the records below, in the order of the log; so after a crash the same log makes it again.

Rules:

* A reaction is one record (``Reacted``): the messages consumed, the new state and, if it failed too often, the message that is
  set aside. What it sends is in the same entry of the log. So there is all of it or nothing.
* The ledger is told of a record when it is written, the directory when it is durable. A snapshot stands for everything that was
  written, so how far an agent has reacted (``StoredAgent.done``) is kept here, and the directory hears of it after a restart.
* An agent that was removed and made again under the same name is another one: ``since`` tells them apart, and records of the old
  one change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from thence.core.wire.messages import UNREADABLE
from thence.errors import Busy, StorageError, UsageError
from thence.storage.bodies import Joined
from thence.storage.mailbox import Batch

MAX_AGENTS: Final = 100_000
"""How many agents one server has at most."""

MAX_STATE_BYTES: Final = 1024 * 1024
"""How large the state of one agent may be, as it is stored."""

MAX_STATES_BYTES: Final = 512 * 1024 * 1024
"""How large the states of all agents of one server may be together: they are part of each snapshot."""

MAX_DEAD_MESSAGES: Final = 10_000
"""How many messages are set aside at most. With more than that, the agent that cannot react waits until there is room."""

MAX_DEAD_BYTES: Final = 64 * 1024 * 1024
"""How many bytes they may have together."""


class Dead(msgspec.Struct, frozen=True, array_like=True):
    """A message, or a batch that nobody can read, that an agent could not react to."""

    number: int
    agent: str
    batch: Batch
    error: str
    attempts: int
    at: int
    """When it was set aside, in nanoseconds since 1970."""


class Reacted(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """An agent has done with its messages up to this position."""

    agent: str
    since: int
    upto: int
    state: bytes | None
    """What it is from now on; None: what it was."""
    dead: Dead | None = None


class DeadLettered(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """A message that was set aside is not any more: it was dropped, or is on its way to its agent again."""

    number: int


class StoredAgent(msgspec.Struct, array_like=True):
    """One agent."""

    kind: str
    since: int
    state: bytes
    done: int = 0
    """The position of the last message that it has reacted to."""
    entry: str = ""
    """By which entry of the access file it was made; nothing if there was no such file."""


class LedgerState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    agents: dict[str, StoredAgent] = msgspec.field(default_factory=dict)
    dead: dict[int, Dead] = msgspec.field(default_factory=dict)
    last_dead: int = 0


class AgentLedger:
    """The agents of one server: their states, how far they have reacted, and the messages set aside."""

    def __init__(self, most_bytes: int = MAX_STATES_BYTES) -> None:
        """Start without agents. ``most_bytes``: how large their states may be together, if less than ``MAX_STATES_BYTES``."""
        self.limit = most_bytes
        """How many bytes a budget allows those."""
        self.state = LedgerState()
        self.states_bytes = 0
        self.dead_bytes = 0

    @property
    def most_bytes(self) -> int:
        """How large the states of all agents may be together."""
        return min(MAX_STATES_BYTES, self.limit)

    @property
    def agents(self) -> dict[str, StoredAgent]:
        """The agents of this server, by name."""
        return self.state.agents

    # What follows from notices.

    def made(self, notice: Joined, since: int) -> None:
        """There is an agent of this name from now on."""
        self.state.agents[notice.client] = StoredAgent(notice.kind, since, notice.state, entry=notice.entry)
        self.states_bytes += len(notice.state)

    def forget(self, agent: str) -> None:
        """It is gone, with its state and the messages that were set aside for it."""
        kept = self.state.agents.pop(agent, None)
        if kept is not None:
            self.states_bytes -= len(kept.state)
            for number in [number for number, dead in self.state.dead.items() if dead.agent == agent]:
                self._drop_dead(number)

    # What is written.

    def check(self, reacted: Reacted) -> None:
        """Raise if a reaction cannot be: ``Busy`` means later, another ``UsageError`` never."""
        kept = self.state.agents.get(reacted.agent)
        if kept is None or kept.since != reacted.since:
            raise UsageError(f"{reacted.agent!r} is no agent here any more")
        if reacted.state is not None:
            size = len(reacted.state)
            if size > MAX_STATE_BYTES:
                raise UsageError(f"the state of {reacted.agent!r} has {size} bytes; MAX_STATE_BYTES is {MAX_STATE_BYTES}")
            if size > len(kept.state) and self.states_bytes + size - len(kept.state) > self.most_bytes:
                raise UsageError(
                    f"the states of all agents have {self.states_bytes} bytes; MAX_STATES_BYTES is {self.most_bytes}"
                )
        if reacted.dead is not None and not self.room_for(len(reacted.dead.batch.messages)):
            raise Busy(
                f"{len(self.state.dead)} messages of {self.dead_bytes} bytes are set aside; the limits are MAX_DEAD_MESSAGES "
                f"({MAX_DEAD_MESSAGES}) and MAX_DEAD_BYTES ({MAX_DEAD_BYTES}). Retry or drop some"
            )

    def room_for(self, size: int) -> bool:
        """Whether one more message of this size can be set aside."""
        return len(self.state.dead) < MAX_DEAD_MESSAGES and self.dead_bytes + size <= MAX_DEAD_BYTES

    def reacted(self, record: Reacted) -> bool:
        """Take over what a reaction changed; return whether the agent is still the same one."""
        kept = self.state.agents.get(record.agent)
        if kept is None or kept.since != record.since:
            return False
        kept.done = max(kept.done, record.upto)
        if record.state is not None:
            self.states_bytes += len(record.state) - len(kept.state)
            kept.state = record.state
        if record.dead is not None:
            self.state.dead[record.dead.number] = record.dead
            self.state.last_dead = max(self.state.last_dead, record.dead.number)
            self.dead_bytes += len(record.dead.batch.messages)
        return True

    def on_dead_lettered(self, record: DeadLettered) -> None:
        """A message is set aside no longer."""
        self._drop_dead(record.number)

    def dead_letter(self, number: int) -> Dead:
        """Return a message that was set aside."""
        dead = self.state.dead.get(number)
        if dead is None:
            raise UsageError(f"there is no dead message {number} here")
        return dead

    def dead_letters(self) -> Iterable[Dead]:
        """Return all messages that were set aside, the oldest first."""
        return self.state.dead.values()

    def _drop_dead(self, number: int) -> None:
        dead = self.state.dead.pop(number, None)
        if dead is not None:
            self.dead_bytes -= len(dead.batch.messages)

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encoder.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Become what ``snapshot`` returned."""
        if not snapshot:
            return  # It was written by a server that knew of no agents.
        try:
            self.state = _decoder.decode(snapshot)
        except UNREADABLE as error:
            raise StorageError(f"a snapshot of agents that cannot be read: {error}") from None
        self.states_bytes = sum(len(kept.state) for kept in self.state.agents.values())
        self.dead_bytes = sum(len(dead.batch.messages) for dead in self.state.dead.values())

    def done(self) -> Iterator[tuple[str, int, int]]:
        """Give the name of each agent, which one of that name it is, and how far it has reacted."""
        for name, kept in self.state.agents.items():
            yield name, kept.since, kept.done


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LedgerState)
