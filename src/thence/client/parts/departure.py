"""How a program leaves its endpoint.

A program that leaves without an error finishes the message in hand. Then it waits until all that it sent is accepted, and until
the acks of what it finished are on disk. It waits as long as more is accepted from time to time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from thence.client.parts.acks import Acks
from thence.client.parts.inbox import EndpointInbox
from thence.client.parts.outbox import Outbox
from thence.client.parts.state import EndpointState
from thence.words import counted

CLOSE_TIMEOUT_S: Final = 30.0
"""How long a program that leaves waits while nothing more is accepted."""


class Departure:
    """Ends the work of one endpoint."""

    def __init__(self, state: EndpointState, outbox: Outbox, inbox: EndpointInbox, acks: Acks) -> None:
        """Use the parts of the endpoint."""
        self.until_durable: Callable[[], Awaitable[None]] = acks.durable
        """Waits until the other side has the acks on disk. The link may replace it."""
        self._state = state
        self._outbox = outbox
        self._inbox = inbox
        self._acks = acks

    async def leave(self, *, orderly: bool, within: float | None) -> None:
        """Finish what is in hand, or end at once. Raise a failure that the program has not seen."""
        state = self._state
        if state.closed:
            return
        if orderly and state.failure is None and not self._is_finished(asyncio.current_task()):
            await self.wait(self._finish(asyncio.current_task()), within)
        await self._inbox.end_at_once()
        self._acks.flush()
        if orderly and state.failure is not None and not state.failure_seen:
            raise state.failure

    def _is_finished(self, who: object) -> bool:
        """Return whether there is nothing to wait for when ``who`` leaves."""
        if self._inbox.busy:
            return False
        self._inbox.release(who)
        return not self._outbox.unaccepted and self._acks.ask()

    async def _finish(self, who: object) -> None:
        await self._inbox.end_in_order(who)
        await self._outbox.flush()
        await self.until_durable()

    async def wait(self, work: Coroutine[Any, Any, None], within: float | None) -> None:
        """Wait for work. Raise ``TimeoutError`` if it is not done and nothing more was accepted for so many seconds."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            accepted = -1
            while accepted < self._outbox.accepted:
                accepted = self._outbox.accepted
                await asyncio.wait((task,), timeout=within)
                if task.done():
                    return task.result()
            raise TimeoutError(self._left_behind(within or 0.0))
        finally:
            task.cancel()

    def _left_behind(self, within: float) -> str:
        """Say what was not done in time."""
        if self._inbox.busy:
            what = "a handler still awaits something; its message is not done, and comes again"
        elif self._outbox.unaccepted:
            what = f"{counted(self._outbox.unaccepted, 'message', 'were')} not accepted"
        else:
            what = f"it is not known that the server has noted what is done, up to message {self._acks.done}: it may come again"
        return f"{self._state.name!r} was left, and nothing happened for {within:g} s (close_timeout): {what}"
