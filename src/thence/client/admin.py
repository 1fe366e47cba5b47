"""The questions that a client asks its server: about its status, its view, its agents and its clients.

Writing to an agent needs none of this: ``client.send`` and ``client.request`` take its name, wherever it lives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from thence.client.connector import Connector
from thence.client.parts.requests import answer_to, fail_all
from thence.client.parts.state import EndpointState
from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame, NotAllowed, UsageError
from thence.net.protocol import (
    AgentQuestion,
    ControlFrame,
    NumberedAnswer,
    NumberedQuestion,
    OperatorQuestion,
    StatusAnswer,
    StatusQuestion,
    ViewAnswer,
    ViewRequest,
    encode_value,
)
from thence.net.questions import (
    Create,
    Drop,
    ListAll,
    ListClients,
    ListDead,
    PurgeClient,
    Remove,
    RemoveClient,
    Retry,
    Show,
    ShowClient,
    ShowDead,
)
from thence.runtime.deadline import within
from thence.words import article

QUESTION_TIMEOUT_S: Final = 10.0
"""How long a server may take to answer about its status or its view."""

ANSWER_WITHIN_S: Final = 30.0
"""How long an answer may take; what is asked for has to be durable first."""

T = TypeVar("T")

_OBJECT = dict[str, Any]
_OBJECTS = list[_OBJECT]


class ServerQuestions:
    """The questions to one server that wait for their answers. They do not outlive the connection."""

    def __init__(self, connector: Connector, state: EndpointState) -> None:
        """Ask over the connection of this connector."""
        self._connector = connector
        self._state = state
        self._in_order: deque[asyncio.Future[Any]] = deque()
        """Questions about the status and the view, which are answered in their order."""
        self._number = 0
        self._by_number: dict[int, asyncio.Future[bytes]] = {}
        """Questions about agents and clients, whose answers have their numbers."""
        state.on_end.append(self._end)

    async def ask(self, question: StatusQuestion | ViewRequest, kind: type[T]) -> T:
        """Return the answer about the status or the view, which is of this kind."""
        self._send(question)
        self._in_order.append(waiting := asyncio.get_running_loop().create_future())
        async with within(QUESTION_TIMEOUT_S, f"no answer from {self._connector.address.url}"):
            answer = await waiting
        if not isinstance(answer, kind):
            asked, got = article(type(question).__name__), article(type(answer).__name__)
            raise MalformedFrame(f"{self._connector.address.url} answers {asked} with {got}")
        return answer

    async def ask_about(self, frame: type[NumberedQuestion], question: msgspec.Struct, kind: type[T]) -> T:
        """Return the answer to a question in a frame of its own, which is of this kind. Raise ``UsageError`` if it is no."""
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        try:
            self._send(frame(number, msgspec.msgpack.encode(question)))
        except UnicodeEncodeError as error:
            raise UsageError(f"a question that cannot be sent: {error}") from None
        self._by_number[number] = answer
        try:
            async with within(ANSWER_WITHIN_S, f"no answer from {self._connector.address.url}"):
                return msgspec.json.decode(await answer, type=kind)
        except UNREADABLE as error:
            raise MalformedFrame(f"an answer that cannot be read: {error}") from None
        finally:
            self._by_number.pop(number, None)

    def _send(self, question: ControlFrame) -> None:
        self._state.check()
        if self._connector.connection is None:
            raise ConnectionError(f"not connected to {self._connector.address.url}: {self._connector.trouble}")
        self._connector.send(question)

    def answer(self, said: ControlFrame) -> bool:
        """Give an answer to its question; return whether it is an answer at all."""
        if isinstance(said, StatusAnswer | ViewAnswer):
            self.answer_next(said)
        elif isinstance(said, NumberedAnswer):
            waiting = self._by_number.pop(said.number, None)
            if waiting is not None:
                wrong = NotAllowed(said.error) if said.forbidden else UsageError(said.error)
                answer_to(waiting, wrong if said.error else said.answer)
        else:
            return False
        return True

    def answer_next(self, answer: object) -> None:
        """NumberedAnswer the oldest question about the status or the view, with an error too."""
        if self._in_order:
            answer_to(self._in_order.popleft(), answer)

    def lost(self) -> None:
        """NumberedAnswer all questions with an error: the connection is lost."""
        self._end(ConnectionError(f"the connection to {self._connector.address.url} was lost"))
        self._in_order.clear()
        self._by_number.clear()

    def _end(self, failure: Exception) -> bool:
        return fail_all((*self._in_order, *self._by_number.values()), failure)


class Agents:
    """Creates, shows and removes agents of a server and dead messages. A call raises ``UsageError`` if the server refuses."""

    def __init__(self, questions: ServerQuestions) -> None:
        """Ask by ``questions``."""
        self._ask = partial(questions.ask_about, AgentQuestion)

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

    def __init__(self, questions: ServerQuestions) -> None:
        """Ask by ``questions``."""
        self._ask = partial(questions.ask_about, OperatorQuestion)

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
