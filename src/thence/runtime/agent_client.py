"""What a client can do about the agents of its server: make them, look at them, remove them, and see to letters set aside.

Writing to an agent needs none of this: ``client.send`` and ``client.request`` take its name, wherever it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thence.runtime.agent_questions import Create, Drop, ListAll, ListDead, Remove, Retry, Show, ShowDead
from thence.runtime.protocol import encode_value
from thence.runtime.questions import Questions

_OBJECT = dict[str, Any]
_OBJECTS = list[_OBJECT]


class Agents:
    """See the module's text. Each call raises ``UsageError`` if the server says no."""

    def __init__(self, questions: Questions) -> None:
        """``questions`` are sent as ``AgentQuestion``."""
        self._ask = questions.ask

    async def create(self, name: str, kind: str, state: Any = None, *, exist_ok: bool = False) -> None:
        """Make an agent of a class that the server knows. ``state`` is what it begins with; None: what its class says.

        With ``exist_ok`` one that is there already, of the same class, is left as it is.
        """
        await self._ask(Create(name, kind, b"" if state is None else encode_value(state), exist_ok), object)

    async def remove(self, name: str) -> None:
        """Remove an agent, with its state and all letters for it."""
        await self._ask(Remove(name), object)

    async def list(self) -> list[dict[str, Any]]:
        """Return what there is to say of each agent."""
        return await self._ask(ListAll(), _OBJECTS)

    async def show(self, name: str) -> dict[str, Any]:
        """Return what there is to say of an agent, and its state, as JSON would have it."""
        return await self._ask(Show(name), _OBJECT)

    async def dead(self) -> Sequence[dict[str, Any]]:
        """Return the letters that agents could not react to, the oldest first."""
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
