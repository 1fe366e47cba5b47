"""The questions that a client asks its server: about its status, its view, its agents and its clients.

Writing to an agent needs none of this: ``client.send`` and ``client.request`` take its name, wherever it lives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from thence.client.connector import Connector
from thence.client.parts.requests import answer_to, fail_all
from thence.client.parts.state import EndpointState
from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame, NotAllowed, UsageError
from thence.net.admin_protocol import ListClients, PurgeClient, RemoveClient, ShowClient
from thence.net.agent_protocol import Create, Drop, ListAll, ListDead, Remove, Retry, Show, ShowDead
from thence.net.protocol import (
    AgentAnswer,
    AgentQuestion,
    OperatorAnswer,
    OperatorQuestion,
    Said,
    StatusAnswer,
    StatusQuestion,
    ViewAnswer,
    ViewRequest,
    encode_value,
)
from thence.words import article

QUESTION_TIMEOUT_S: Final = 10.0
"""How long a server may take to answer about its status or its view."""

ANSWER_WITHIN_S: Final = 30.0
"""How long an answer may take; what is asked for has to be durable first."""

T = TypeVar("T")

_OBJECT = dict[str, Any]
_OBJECTS = list[_OBJECT]


class Questions:
    """Questions with numbers, and who waits for their answers. A question raises ``UsageError`` if the server says no."""

    def __init__(self, send: Callable[[int, bytes], None]) -> None:
        """``send`` sends a question with its number."""
        self._send = send
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, question: msgspec.Struct, kind: type[T]) -> T:
        """Return the answer, which is of this kind."""
        self._number += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._send(self._number, msgspec.msgpack.encode(question))
        self._asked[self._number] = answer
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                written = await answer
            return msgspec.json.decode(written, type=kind)
        except UNREADABLE as error:
            raise MalformedFrame(f"an answer that cannot be read: {error}") from None
        finally:
            self._asked = {number: other for number, other in self._asked.items() if other is not answer}

    @property
    def waiting(self) -> Iterable[asyncio.Future[bytes]]:
        """What is waited for."""
        return list(self._asked.values())

    def answered(self, answer: AgentAnswer | OperatorAnswer) -> None:
        """An answer has come."""
        waiting = self._asked.pop(answer.number, None)
        if waiting is not None:
            wrong = NotAllowed(answer.error) if answer.forbidden else UsageError(answer.error)
            answer_to(waiting, wrong if answer.error else answer.answer)

    def lost(self, error: Exception) -> None:
        """No answer will come."""
        for waiting in self._asked.values():
            answer_to(waiting, error)
        self._asked = {}


class ServerQuestions:
    """The questions to one server that wait for their answers. They do not outlive the connection."""

    def __init__(self, connector: Connector, state: EndpointState) -> None:
        """Ask over the connection of this connector."""
        self.agents = Questions(lambda number, question: self._send(AgentQuestion(number, question)))
        self.operator = Questions(lambda number, question: self._send(OperatorQuestion(number, question)))
        self._connector = connector
        self._state = state
        self._asked: deque[asyncio.Future[Any]] = deque()
        state.on_end.append(self._end)

    async def ask(self, question: StatusQuestion | ViewRequest, kind: type[T]) -> T:
        """Return the answer, which is of this kind."""
        self._send(question)
        self._asked.append(waiting := asyncio.get_running_loop().create_future())
        async with asyncio.timeout(QUESTION_TIMEOUT_S):
            answer = await waiting
        if not isinstance(answer, kind):
            asked, got = article(type(question).__name__), article(type(answer).__name__)
            raise MalformedFrame(f"{self._connector.address.url} answers {asked} with {got}")
        return answer

    def _send(self, question: Said) -> None:
        self._state.check()
        if self._connector.connection is None:
            raise ConnectionError(f"not connected to {self._connector.address.url}: {self._connector.trouble}")
        self._connector.send(question)

    def answer(self, said: Said) -> bool:
        """Give an answer to its question; return whether it is an answer at all."""
        if isinstance(said, StatusAnswer | ViewAnswer):
            self._answer(said)
        elif isinstance(said, AgentAnswer):
            self.agents.answered(said)
        elif isinstance(said, OperatorAnswer):
            self.operator.answered(said)
        else:
            return False
        return True

    def deny(self, error: Exception) -> None:
        """Answer the oldest question about the status or the view with an error."""
        self._answer(error)

    def _answer(self, answer: object) -> None:
        if self._asked:
            answer_to(self._asked.popleft(), answer)

    def lost(self) -> None:
        """Answer all questions with an error: the connection is lost."""
        error = ConnectionError(f"the connection to {self._connector.address.url} was lost")
        while self._asked:
            self._answer(error)
        self.agents.lost(error)
        self.operator.lost(error)

    def _end(self, failure: Exception) -> bool:
        return fail_all((*self._asked, *self.agents.waiting, *self.operator.waiting), failure)


class Agents:
    """Creates, shows and removes agents of a server and dead messages. A call raises ``UsageError`` if the server refuses."""

    def __init__(self, questions: Questions) -> None:
        """``questions`` are sent as ``AgentQuestion``."""
        self._ask = questions.ask

    async def create(self, name: str, kind: str, state: Any = None, *, exist_ok: bool = False) -> None:
        """Make an agent of a class that the server knows. ``state`` is what it begins with; None: what its class says.

        With ``exist_ok`` one that is there already, of the same class, is left as it is.
        """
        await self._ask(Create(name, kind, b"" if state is None else encode_value(state), exist_ok), object)

    async def remove(self, name: str) -> None:
        """Remove an agent, with its state and all messages for it."""
        await self._ask(Remove(name), object)

    async def list(self) -> list[dict[str, Any]]:
        """Return what there is to say of each agent."""
        return await self._ask(ListAll(), _OBJECTS)

    async def show(self, name: str) -> dict[str, Any]:
        """Return what there is to say of an agent, and its state, as JSON would have it."""
        return await self._ask(Show(name), _OBJECT)

    async def dead(self) -> Sequence[dict[str, Any]]:
        """Return the messages that agents could not react to, the oldest first."""
        return await self._ask(ListDead(), _OBJECTS)

    async def dead_letter(self, number: int) -> dict[str, Any]:
        """Return one of them, with what is in it."""
        return await self._ask(ShowDead(number), _OBJECT)

    async def retry(self, number: int) -> None:
        """Send one of them to its agent once more, behind all that waits there."""
        await self._ask(Retry(number), object)

    async def drop(self, number: int) -> None:
        """Drop one of them."""
        await self._ask(Drop(number), object)


class Operator:
    """Shows, empties and removes the clients of a server.

    Each call raises ``UsageError`` if the server refuses, ``NotAllowed`` if its access file does.
    """

    def __init__(self, questions: Questions) -> None:
        """``questions`` are sent as ``OperatorQuestion``."""
        self._ask = questions.ask

    async def clients(self, limit: int) -> dict[str, Any]:
        """Return how it is with so many clients, those first for whom most waits, and how many there are."""
        return await self._ask(ListClients(limit), _OBJECT)

    async def show(self, name: str) -> dict[str, Any]:
        """Return how it is with one client."""
        return await self._ask(ShowClient(name), _OBJECT)

    async def remove(self, name: str) -> dict[str, Any]:
        """Remove a client, its mailbox and its subscriptions; return what was dropped."""
        return await self._ask(RemoveClient(name), _OBJECT)

    async def purge(self, name: str) -> dict[str, Any]:
        """Drop the messages that wait for a client; return what was dropped."""
        return await self._ask(PurgeClient(name), _OBJECT)
