"""The messages that come to an endpoint: read, numbered, and given to requests and to the inbox.

Rules:

* Messages come in order. Those that came before are left out: the other side may not know that they came.
* Messages that cannot be read are left out and count as done: their writer must not be able to stop what comes behind them.
* A reply goes to the request that waits for it, in its turn among the messages.
* A message of this endpoint that comes back goes to the hook ``returned``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thence.client.message import Message
from thence.client.parts.acks import Acks
from thence.client.parts.inbox import EndpointInbox
from thence.client.parts.requests import Requests
from thence.client.parts.state import EndpointHooks, EndpointState
from thence.errors import InternalError, MalformedFrame
from thence.net.names import RETURNED
from thence.net.protocol import claimed_messages, read_messages
from thence.node.spans import ProgramSpans


class Deliveries:
    """Reads the batches that come to an endpoint."""

    def __init__(
        self,
        state: EndpointState,
        hooks: EndpointHooks,
        inbox: EndpointInbox,
        acks: Acks,
        requests: Requests,
        me: Callable[[], Any],
    ) -> None:
        """``me`` returns the endpoint that replies to a message, or None when it is gone."""
        self.spans: ProgramSpans | None = None
        self._state = state
        self._hooks = hooks
        self._inbox = inbox
        self._acks = acks
        self._requests = requests
        self._me = me

    def deliver(self, position: int, skip: int, sender: str, topic: str | None, written: bytes, everyone: bool) -> None:
        """Deliver a batch: its message number ``skip`` has this position."""
        if self._state.failure is not None:
            return
        first = position - skip
        try:
            messages = read_messages(written, sender)
        except MalformedFrame as error:
            self._leave_out(first + claimed_messages(written) - 1, error)
            return
        received = self._inbox.received
        if first != received + 1:
            if position > received + 1:
                raise InternalError(f"message {position} of {self._state.name!r} came after {received}")
            had = received + 1 - first
            messages, first = messages[had:], first + had
        if not messages:
            return
        self._acks.unacked_bytes += len(written)
        me, spans, replies, fresh, at = self._me, self.spans, False, [], first
        for item in messages:
            fresh.append(Message(me, at, sender, topic, item, item.body))
            if spans is not None and item.headers is not None:
                spans.received(item.headers, sender)
            at += 1
            if item.reply:
                replies = True
        if sender.startswith(RETURNED):
            self._hand_back(fresh, at - 1)
            return
        if replies:
            fresh = self._hand_replies(fresh, everyone)
        if not self._has_failed:
            self._inbox.hand(fresh, at - 1)

    def withhold(self, position: int, skip: int, written: bytes) -> bool:
        """Leave out a batch that this endpoint may not have any more; return whether it is new."""
        last = position - skip + claimed_messages(written) - 1
        fresh = last > self._inbox.received and self._state.failure is None
        if fresh:
            self._inbox.skip(last)
        return fresh

    @property
    def _has_failed(self) -> bool:
        """Whether a handler has failed meanwhile."""
        return self._state.failure is not None

    def _leave_out(self, last: int, error: MalformedFrame) -> None:
        """Leave out everything up to ``last``, unless that was done before."""
        if last > self._inbox.received:
            self._state.call(self._hooks.unreadable, error)
            self._skip(last)

    def _hand_back(self, messages: Sequence[Message], last: int) -> None:
        for message in messages:
            self._requests.returned(message.item.request)
            self._state.call(self._hooks.returned, message, message.sender.removeprefix(RETURNED))
        self._skip(last)

    def _skip(self, last: int) -> None:
        """Note that everything up to ``last`` is done, unless the program has failed with it."""
        if not self._has_failed:
            self._inbox.skip(last)

    def _hand_replies(self, messages: Sequence[Message], everyone: bool) -> list[Message]:
        """Hand over everything up to the last reply, each in its turn; return what comes behind it."""
        others: list[Message] = []
        for message in messages:
            if not message.item.reply:
                others.append(message)
                continue
            if others:
                self._inbox.hand(others, others[-1].position)
                others = []
            if self._has_failed:
                break
            self._inbox.received = message.position
            wrong = self._requests.replied(message, everyone=everyone)
            if wrong:
                self._state.warn(f"{self._state.name!r} leaves out {wrong}")
        return others
