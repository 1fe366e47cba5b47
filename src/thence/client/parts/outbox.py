"""The messages that an endpoint sends, until they are accepted.

Rules:

* Messages have numbers, from 1. Consecutive messages for the same recipients leave as one batch, at the end of the turn of the
  loop or when the batch is large.
* At most ``MAX_UNACCEPTED`` messages, and ``MAX_UNACCEPTED_BYTES`` of them, are unaccepted. Then ``send`` waits, and ``post``
  raises ``Busy``.
* Acceptance is one number: all messages up to it are accepted or refused. A refusal goes to whoever waits for that message. If
  nobody waits, the hook ``refused`` gets it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from thence.client.message import EVERYONE, MAX_MESSAGE_BYTES, To, checked_headers, recipients, written_body
from thence.client.parts.state import EndpointHooks, EndpointState
from thence.errors import Busy, NotAllowed, UsageError
from thence.net.protocol import MAX_UNACCEPTED, MAX_UNACCEPTED_BYTES, BatchItem, Publish, write_messages
from thence.node.spans import ProgramSpans
from thence.runtime.event_loop import turn_of

BATCH_MESSAGES: Final = 512
"""How many messages a batch holds at most."""
BATCH_BYTES: Final = 512 * 1024
"""From this size on a batch takes no more messages."""
MESSAGE_WEIGHT: Final = 16
"""How many bytes a message counts for in limits, beside its body."""


class Outbox:
    """Numbers messages, collects them into batches and knows which are accepted."""

    def __init__(self, state: EndpointState, hooks: EndpointHooks, spans: ProgramSpans | None = None) -> None:
        """Start with nothing sent. ``transmit`` is set by the link, before the first batch."""
        self.transmit: Callable[[Publish], None]
        """Sends a batch on. The link keeps it until it is accepted."""
        self.accepted = 0
        """The number up to which all messages are accepted or refused."""
        self._state = state
        self._hooks = hooks
        self._spans = spans
        self._soon = turn_of(asyncio.get_running_loop()).soon
        self._sent = 0
        """The number of the last message that was transmitted."""
        self._sent_bytes = 0
        """How many bytes were transmitted and are not accepted."""
        self._sizes: deque[tuple[int, int]] = deque()
        """The last number and the bytes of each unaccepted batch that was transmitted."""
        self._batch: list[BatchItem] = []
        self._batch_bytes = 0
        self._batch_to: tuple[tuple[str, ...] | None, str | None] = (None, None)
        self._filling: To | None = None
        """The recipients of the batch as the program wrote them, if ``post`` may add to it without further checks."""
        self._most = 0
        """How many messages ``post`` may fill the batch up to."""
        self._flushing = False
        self._refusals: dict[int, UsageError] = {}
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._room: asyncio.Event | None = None
        """Set when there is room again; None: nobody waits for room."""
        state.on_end.append(self._end)

    @property
    def number(self) -> int:
        """The number of the last message."""
        return self._sent + len(self._batch)

    @property
    def unaccepted(self) -> int:
        """How many messages are not accepted."""
        return self._sent + len(self._batch) - self.accepted

    @property
    def is_empty(self) -> bool:
        """Whether no message waits to be transmitted."""
        return not self._batch

    def begin(self, number: int) -> int:
        """Go on behind the last message of an earlier program; return by how much the numbers of unaccepted messages grow."""
        offset = number - self.accepted
        self._sent += offset
        self.accepted += offset
        self._sizes = deque((last + offset, size) for last, size in self._sizes)
        self._waiters = deque((last + offset, waiter) for last, waiter in self._waiters)
        return offset

    def number_from(self, number: int, accepted: int) -> None:
        """Give the next message the number behind this one. Messages up to ``accepted`` count as accepted."""
        self._sent, self.accepted = number, accepted

    # Sending.

    def post(self, to: To, body: Any, headers: Mapping[str, str] | None) -> None:
        """Queue a message for some recipients."""
        if self._filling is not None and to == self._filling and type(body) is bytes and headers is None:
            size = len(body) + MESSAGE_WEIGHT
            if self._batch_bytes + size <= BATCH_BYTES and len(self._batch) < self._most:
                self._batch_bytes += size
                self._batch.append(BatchItem(body))
                return
        self.add(recipients(to), None, body, headers)
        if self._spans is None and (type(to) is str or to is EVERYONE):
            self._filling = to
            self._most = min(BATCH_MESSAGES, MAX_UNACCEPTED - self.unaccepted + len(self._batch))

    def add(
        self,
        to: tuple[str, ...] | None,
        topic: str | None,
        body: Any,
        headers: Mapping[str, str] | None,
        *,
        request: int = 0,
        reply: int = 0,
    ) -> None:
        """Queue a message for recipients or a topic. Raise ``Busy`` if too much is unaccepted."""
        if not self._state.usable:
            self._state.check()
        if self._is_full:
            raise Busy(
                f"{self.unaccepted} messages of {self._sent_bytes + self._batch_bytes} bytes are not accepted yet; limits: "
                f"MAX_UNACCEPTED ({MAX_UNACCEPTED}) and MAX_UNACCEPTED_BYTES ({MAX_UNACCEPTED_BYTES})"
            )
        written, coded = (body, False) if type(body) is bytes and len(body) <= MAX_MESSAGE_BYTES else written_body(body)
        headers = checked_headers(headers) if headers else None
        if self._spans is not None:
            headers = self._spans.sending(self.number + 1, headers, topic or ", ".join(to or ("everyone",)))
        item = BatchItem(written, coded, headers, request, reply)
        batch_to = (to, topic)
        size = len(written) + MESSAGE_WEIGHT
        if self._batch and (
            batch_to != self._batch_to or self._batch_bytes + size > BATCH_BYTES or len(self._batch) >= BATCH_MESSAGES
        ):
            self.send_batch()
        self._batch.append(item)
        self._batch_bytes += size
        self._batch_to = batch_to
        self._filling = None
        if not self._flushing:
            self._flushing = True
            self._soon(self.send_batch)

    async def send(self, to: tuple[str, ...] | None, topic: str | None, body: Any, headers: Mapping[str, str] | None) -> None:
        """Send a message and wait until it is accepted."""
        if self._is_full:
            await self.room()
        self.add(to, topic, body, headers)
        await self.until(self.number)

    def send_batch(self) -> None:
        """Transmit the messages that were collected."""
        self._flushing = False
        messages = self._batch
        if not messages or self._state.closed:
            return
        to, topic = self._batch_to
        written = write_messages(messages)  # If that cannot be, nothing has changed.
        first = self._sent + 1
        self._sent += len(messages)
        self._sent_bytes += self._batch_bytes
        self._sizes.append((self._sent, self._batch_bytes))
        self._batch, self._batch_bytes, self._filling = [], 0, None
        self.transmit(Publish(first, len(messages), to, topic, written, bool(self._waiters)))

    # Waiting.

    @property
    def _is_full(self) -> bool:
        unaccepted = self._sent + len(self._batch) - self.accepted
        return unaccepted >= MAX_UNACCEPTED or self._sent_bytes + self._batch_bytes >= MAX_UNACCEPTED_BYTES

    async def room(self) -> None:
        """Wait until ``add`` does not raise ``Busy``."""
        while self._is_full:
            self._state.check()
            room = self._room = self._room or asyncio.Event()
            self.send_batch()
            await room.wait()
        self._state.check()

    async def flush(self) -> None:
        """Wait until everything that was sent is accepted."""
        self._state.check()
        await self.until(self.number)

    async def until(self, number: int) -> None:
        """Wait until a message is accepted; raise if it is refused."""
        if self.accepted < number:
            self._state.check()
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((number, waiter))
            await waiter
        if self._refusals and number in self._refusals:
            raise self._refusals.pop(number)

    # Answers.

    def on_accepted(self, upto: int) -> None:
        """Note that all messages up to this number are accepted or refused."""
        if upto <= self.accepted:
            return
        upto = min(upto, self.number)  # What is not sent is not accepted, whatever is claimed.
        self.accepted = upto
        if self._spans is not None:
            self._spans.accepted(self._state.name, upto)
        sizes = self._sizes
        while sizes and sizes[0][0] <= upto:
            self._sent_bytes -= sizes.popleft()[1]
        while self._waiters and self._waiters[0][0] <= upto:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._room is not None:
            self._wake_room()

    def on_undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Refuse these messages. ``forbidden``: the sender is not allowed to write them."""
        waited = self.waited_for()
        for number in range(max(first, self.accepted + 1), min(first + count, self.number + 1)):  # Whatever is claimed.
            if number in waited:
                self._refusals[number] = NotAllowed(reason) if forbidden else UsageError(reason)
            else:
                self._state.call(self._hooks.refused, reason)
        self.on_accepted(first + count - 1)

    def waited_for(self) -> set[int]:
        """Return the numbers of the messages that somebody waits for."""
        return {number for number, _ in self._waiters}

    def _wake_room(self) -> bool:
        room, self._room = self._room, None
        if room is not None:
            room.set()
        return room is not None

    def _end(self, failure: Exception) -> bool:
        self._filling = None
        waiting = [waiter for _, waiter in self._waiters if not waiter.done()]
        for waiter in waiting:
            waiter.set_exception(failure)
        self._waiters.clear()
        return self._wake_room() or bool(waiting)
