"""Questions with numbers, and who waits for their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame, NotAllowed, UsageError
from thence.net.protocol import AgentAnswer, OperatorAnswer

ANSWER_WITHIN_S: Final = 30.0
"""How long an answer may take; what is asked for has to be durable first."""

T = TypeVar("T")


class Questions:
    """See the module's text. A question raises ``UsageError`` if the server says no."""

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

    # What the client tells.

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


def answer_to(question: asyncio.Future[Any], answer: object) -> None:
    """Answer somebody, who may not wait any more."""
    if question.done():
        return
    if isinstance(answer, Exception):
        question.set_exception(answer)
    else:
        question.set_result(answer)
