"""What an operator can do about the clients of a server: look at them, drop what waits for them, and remove them."""

from __future__ import annotations

from typing import Any

from thence.runtime.operator_questions import ListClients, PurgeClient, RemoveClient, ShowClient
from thence.runtime.questions import Questions

_OBJECT = dict[str, Any]


class Operator:
    """See the module's text. Each call raises ``UsageError`` if the server says no, ``NotAllowed`` if its access file does."""

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
