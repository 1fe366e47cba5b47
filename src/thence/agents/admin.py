"""Where agents are made, looked at and removed, and messages that were set aside are looked through: questions and their answers.

Rules:

* A question comes in a frame of a client (``AgentQuestion``); any client may ask, also one without a name. Its answer is JSON.
* A server answers for its own agents. It knows where the others live, and says so.
* Nothing is told that a crash could undo: an agent counts as made, or removed, when the notice of it has come back from the log,
  and what is shown of states waits until they are durable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from thence.agents.engine import AgentEngine
from thence.agents.reactions import drop, revive
from thence.client.message import Message, nobody
from thence.core.wire.messages import UNREADABLE
from thence.errors import Busy, MalformedFrame, ThenceError, UsageError
from thence.net.names import checked_name
from thence.net.protocol import read_messages
from thence.net.questions import AboutAgents, Create, ListAll, ListDead, Remove, Retry, Show, ShowDead, read_about_agents
from thence.node.directory.directory import DirectoryChange
from thence.node.node import Node
from thence.storage.agents import MAX_AGENTS, MAX_STATE_BYTES, Dead, StoredAgent
from thence.storage.bodies import Joined

MAX_WAITING_ANSWERS: Final = 10_000
"""How many may wait until one agent is made, or removed."""

Answer = Callable[[bytes, str], None]
"""Takes what is to be told, as JSON, or why there is nothing to tell."""


class AgentAdmin:
    """Makes, shows and removes the agents of one server, and shows, revives and drops its dead letters."""

    def __init__(self, node: Node, engine: AgentEngine) -> None:
        """Answer for the agents of ``node``."""
        self._node = node
        self._engine = engine
        self._making: dict[str, list[Answer]] = {}
        self._removing: dict[str, list[Answer]] = {}

    def answer(self, written: bytes, answer: Answer, entry: str = "") -> bool:
        """Answer a question, now or later; return whether it only looks. ``entry``: of the access file, of whoever asks."""
        question = read_about_agents(written)
        try:
            self._answer(question, answer, entry)
        except ThenceError as error:
            answer(b"", str(error))
        return isinstance(question, Show | ListAll | ListDead | ShowDead)

    def _answer(self, question: AboutAgents, answer: Answer, entry: str) -> None:
        node = self._node
        if isinstance(question, Create):
            self._make(question, answer, entry)
        elif isinstance(question, Remove):
            self._remove(self._checked(question.name), answer)
        elif isinstance(question, Show):
            self._tell(answer, self._shown(question.name, self._kept(question.name)))
        elif isinstance(question, ListAll):
            self._tell(answer, [self._listed(name, kept) for name, kept in node.ledger.agents.items()])
        elif isinstance(question, ListDead):
            self._tell(answer, [_dead_listed(dead) for dead in node.ledger.dead_letters()])
        elif isinstance(question, ShowDead):
            self._tell(answer, _dead_shown(node.ledger.dead_letter(question.number)))
        else:
            (revive if isinstance(question, Retry) else drop)(node, question.number)
            self._tell(answer, {"number": question.number})

    def _tell(self, answer: Answer, value: Any) -> None:
        """Tell this when a crash cannot undo it any more."""
        written = _json(value)
        self._node.driver.when_durable(lambda: answer(written, ""))

    # Making and removing.

    def _make(self, question: Create, answer: Answer, entry: str) -> None:
        node, name = self._node, question.name
        kept = node.ledger.agents.get(name)
        if kept is not None and kept.kind == question.kind and question.exist_ok:
            answer(_json({"name": name, "server": node.name, "made": False}), "")
            return
        home = node.directory.home(name)
        if home is not None:
            raise UsageError(f"there is a {'server' if home == name else 'client or agent'} {name!r} already, at {home!r}")
        checked_name(name)
        kind = self._engine.kinds.get(question.kind)
        if kind is None:
            known = ", ".join(self._engine.kinds) or "none"
            raise UsageError(f"there is no agent class {question.kind!r} at {node.name!r}; there are: {known}")
        state = kind.first_state(question.state)
        self._check_room(len(state))
        notice = Joined(name, node.name, temporary=False, kind=question.kind, state=state, entry=entry)
        self._announce(notice, self._making, answer)

    def _check_room(self, size: int) -> None:
        ledger = self._node.ledger
        if len(ledger.agents) + len(self._making) >= MAX_AGENTS:
            raise UsageError(f"{len(ledger.agents)} agents live at {self._node.name!r}; MAX_AGENTS is {MAX_AGENTS}")
        if size > MAX_STATE_BYTES:
            raise UsageError(f"a state of {size} bytes; MAX_STATE_BYTES is {MAX_STATE_BYTES}")
        if ledger.states_bytes + size > ledger.most_bytes:
            have, most = ledger.states_bytes, ledger.most_bytes
            raise UsageError(f"the states of all agents have {have} bytes; MAX_STATES_BYTES is {most}")

    def _remove(self, name: str, answer: Answer) -> None:
        """Remove an agent, also while its own mailbox is full; when all servers have been told it is answered."""
        if self._node.reconfiguration.left:
            raise UsageError(f"{self._node.name!r} has left the fabric {self._node.topology.name!r}")
        waiting = self._removing.setdefault(name, [])
        waiting.append(answer)  # Before: what is only in memory comes back at once.
        try:
            self._node.removal.remove(name, "remove")
        except UsageError:
            waiting.remove(answer)
            raise

    def _announce(self, notice: Joined, waiting: dict[str, list[Answer]], answer: Answer) -> None:
        """Tell all servers, unless that is under way; when the notice has come back it is answered."""
        others = waiting.get(notice.client)
        if others is not None and len(others) >= MAX_WAITING_ANSWERS:
            raise Busy(f"{len(others)} wait for the same; MAX_WAITING_ANSWERS is {MAX_WAITING_ANSWERS}")
        if others is not None:
            others.append(answer)
            return
        waiting[notice.client] = [answer]  # Before: what is only in memory comes back at once.
        try:
            self._node.intake.announce(notice)
        except UsageError:
            del waiting[notice.client]
            raise

    def notice(self, change: DirectoryChange) -> None:
        """Something has come to pass, and may be what somebody waits for."""
        node = self._node
        name = change.joined
        if name is not None and name in self._making:
            if change.made is not None:
                for answer in self._making.pop(name):
                    answer(_json({"name": name, "server": node.name, "made": True}), "")
            elif change.yielded is not None or name in node.directory.state.mailboxes:
                for answer in self._making.pop(name):
                    answer(b"", f"the name {name!r} was taken meanwhile, at {node.directory.home(name)!r}")
        if change.gone is not None:
            for answer in self._removing.pop(change.gone, ()):
                answer(_json({"name": change.gone, "server": node.name}), "")

    # Looking.

    def _checked(self, name: str) -> str:
        self._kept(name)
        return name

    def _kept(self, name: str) -> StoredAgent:
        kept = self._node.ledger.agents.get(name)
        if kept is None:
            home = self._node.directory.home(name)
            where = (
                f"no agent is called {name!r}" if home in (None, self._node.name) else f"{name!r} lives at {home!r}; ask there"
            )
            raise UsageError(f"{self._node.name!r}: {where}")
        return kept

    def _listed(self, name: str, kept: StoredAgent) -> dict[str, Any]:
        mailbox = self._node.directory.state.mailboxes[name]
        return {
            "name": name,
            "kind": kept.kind,
            "reacted": kept.done,
            "waiting_letters": mailbox.position - kept.done,
            "state_bytes": len(kept.state),
            "trouble": self._engine.trouble(name),
        }

    def _shown(self, name: str, kept: StoredAgent) -> dict[str, Any]:
        dead = [one.number for one in self._node.ledger.dead_letters() if one.agent == name]
        try:
            state = msgspec.msgpack.decode(kept.state)
        except UNREADABLE as error:
            raise UsageError(f"the state of {name!r} cannot be shown: {error}") from None
        return {**self._listed(name, kept), "server": self._node.name, "state": state, "dead_letters": dead}


def _dead_listed(dead: Dead) -> dict[str, Any]:
    return {
        "number": dead.number,
        "agent": dead.agent,
        "sender": dead.batch.sender,
        "topic": dead.batch.topic,
        "bytes": len(dead.batch.messages),
        "attempts": dead.attempts,
        "error": dead.error,
        "at": dead.at,
    }


def _dead_shown(dead: Dead) -> dict[str, Any]:
    batch = dead.batch
    try:
        parsed = [
            Message(nobody, 0, batch.sender, batch.topic, item, item.body) for item in read_messages(batch.messages, batch.sender)
        ]
        messages = [{"body": message.value(), "headers": dict(message.headers)} for message in parsed]
    except MalformedFrame:
        messages = [{"body": batch.messages, "headers": {}}]
    return {**_dead_listed(dead), "messages": messages}


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"what there is cannot be shown as JSON: {error}") from None
