"""What a client can do about the agents of its server: make them, look at them, remove them, and see to letters set aside.

Writing to an agent needs none of this: ``client.send`` and ``client.request`` take its name, wherever it lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from thence.errors import NotAllowed, UsageError
from thence.runtime.agent_questions import Create, Drop, ListAll, ListDead, Question, Remove, Retry, Show, ShowDead
from thence.runtime.protocol import AgentAnswer, AgentQuestion, encode_value

ANSWER_WITHIN_S: Final = 30.0
"""How long an answer may take; an agent is made when the log of its server has it."""


class Agents:
    """See the module's text. Each call raises ``UsageError`` if the server says no."""

    def __init__(self, ask: Callable[[AgentQuestion], None]) -> None:
        """``ask`` sends a question."""
        self._send = ask
        self._number = 0
        self._asked: dict[int, asyncio.Future[bytes]] = {}

    async def create(self, name: str, kind: str, state: Any = None, *, exist_ok: bool = False) -> None:
        """Make an agent of a class that the server knows. ``state`` is what it begins with; None: what its class says.

        With ``exist_ok`` one that is there already, of the same class, is left as it is.
        """
        await self._ask(Create(name, kind, b"" if state is None else encode_value(state), exist_ok))

    async def remove(self, name: str) -> None:
        """Remove an agent, with its state and all letters for it."""
        await self._ask(Remove(name))

    async def list(self) -> list[dict[str, Any]]:
        """Return what there is to say of each agent."""
        return list(await self._ask(ListAll()))

    async def show(self, name: str) -> dict[str, Any]:
        """Return what there is to say of an agent, and its state, as JSON would have it."""
        return dict(await self._ask(Show(name)))

    async def dead(self) -> Sequence[dict[str, Any]]:
        """Return the letters that agents could not react to, the oldest first."""
        return list(await self._ask(ListDead()))

    async def dead_letter(self, number: int) -> dict[str, Any]:
        """Return one of them, with what is in it."""
        return dict(await self._ask(ShowDead(number)))

    async def retry(self, number: int) -> None:
        """Send one of them to its agent once more, behind all that waits there."""
        await self._ask(Retry(number))

    async def drop(self, number: int) -> None:
        """Drop one of them."""
        await self._ask(Drop(number))

    async def _ask(self, question: Question) -> Any:
        self._number += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._send(AgentQuestion(self._number, encode_value(question)))
        self._asked[self._number] = answer
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                return msgspec.json.decode(await answer)
        finally:
            self._asked = {number: other for number, other in self._asked.items() if other is not answer}

    # What the client tells.

    @property
    def waiting(self) -> Iterable[asyncio.Future[bytes]]:
        """What is waited for."""
        return list(self._asked.values())

    def answered(self, answer: AgentAnswer) -> None:
        """An answer has come."""
        waiting = self._asked.pop(answer.number, None)
        if waiting is not None and not waiting.done():
            if answer.error:
                waiting.set_exception(NotAllowed(answer.error) if answer.forbidden else UsageError(answer.error))
            else:
                waiting.set_result(answer.answer)

    def lost(self, error: Exception) -> None:
        """No answer will come."""
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(error)
        self._asked = {}
