"""The messages that an endpoint has finished, and when the other side gets the acks of them.

Rules:

* An ack is one position: all messages up to it are done. It only grows.
* Acks are sent at once if many messages are done, at the end of the turn of the loop if some are, and ``ACKNOWLEDGE_WITHIN_S``
  later if few are: nobody waits for them.
* ``durable`` waits until the other side has the ack on disk. Its answer is one position too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from thence.client.parts.state import EndpointState
from thence.net.protocol import WINDOW_MESSAGES
from thence.runtime.event_loop import turn_of

ACKNOWLEDGE_EVERY: Final = 1_024
"""After how many messages an ack is sent at once."""
ACKNOWLEDGE_SOON: Final = 64
"""After how many messages an ack is sent at the end of the turn of the loop."""
ACKNOWLEDGE_SOON_BYTES: Final = 64 * 1024
"""After how many bytes an ack is sent at the end of the turn of the loop."""
ACKNOWLEDGE_WITHIN_S: Final = 0.005
"""How much later an ack of fewer messages is sent. A reply to a message alone is quicker without the ack before it."""


class Acks:
    """Acknowledges messages, a few at a time."""

    def __init__(self, state: EndpointState) -> None:
        """Start with nothing done. ``send`` is set by the link, before the first ack."""
        self.send: Callable[[int, int, bool], None]
        """Sends the position up to which all is done, up to where more may come, and whether an answer is wanted."""
        self.done = 0
        """The position of the last message that is done."""
        self.unacked_bytes = 0
        """How many bytes came since the last ack."""
        self._acked = 0
        self._durable = 0
        """The position up to which the other side has acks on disk."""
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._soon = turn_of(self._loop).soon
        self._flushing_soon = False
        self._flushing_later = False
        self._waiter: asyncio.Future[None] | None = None
        state.on_end.append(self._end)

    def begin(self, position: int) -> None:
        """Go on behind what an earlier program of this name has done."""
        self.done = self._acked = self._durable = position

    def finish(self, position: int) -> None:
        """Note that all messages up to this position are done, and send the ack now or later."""
        self.done = max(self.done, position)
        unacked = self.done - self._acked
        if unacked >= ACKNOWLEDGE_EVERY:
            self.flush()
        elif unacked >= ACKNOWLEDGE_SOON or self.unacked_bytes >= ACKNOWLEDGE_SOON_BYTES:
            if not self._flushing_soon:
                self._flushing_soon = True
                self._soon(self.flush)
        elif unacked and not self._flushing_later:
            self._flushing_later = True
            self._loop.call_later(ACKNOWLEDGE_WITHIN_S, self._flush_later)

    def _flush_later(self) -> None:
        self._flushing_later = False
        self.flush()

    def flush(self) -> None:
        """Send the ack now, if there is anything new in it."""
        self._flushing_soon = False
        if self.done > self._acked and not self._state.closed:
            self.repeat()

    def repeat(self) -> None:
        """Send the ack, also if it was sent before."""
        self._acked = self.done
        self.unacked_bytes = 0
        self.send(self.done, self.done + WINDOW_MESSAGES, self._waiter is not None)

    def ask(self) -> bool:
        """Ask the other side to say when the ack is on disk, and return whether it is."""
        if self._durable < self.done and self._waiter is None and not self._state.closed:
            self._waiter = self._loop.create_future()
            self.repeat()  # The answer may come at once.
        return self._durable >= self.done

    async def durable(self) -> None:
        """Wait until the other side has the ack on disk."""
        while not self.ask() and self._waiter is not None:
            await asyncio.shield(self._waiter)

    def on_durable(self, upto: int) -> None:
        """Note that the other side has the ack of everything up to this position on disk."""
        self._durable = max(upto, self._durable)
        waiter = self._waiter
        if waiter is not None and upto >= self._acked:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _end(self, failure: Exception) -> bool:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(failure)
            waiter.exception()  # Perhaps nobody waits any more.
        return False
