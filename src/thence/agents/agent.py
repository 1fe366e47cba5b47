"""An agent: a persistent object with a name that reacts to one message at a time, each time wholly or not at all.

Derive a class from ``Agent``, say what its state is, and write ``react``:

    class Counter(thence.Agent):
        state: int

        async def react(self, message: thence.Message) -> None:
            self.state += message.value(int)
            if message.wants_reply:
                message.reply(self.state)

Rules:

* ``state`` is anything that msgspec can write and read: a number, a list, a dict, a ``msgspec.Struct``, a dataclass. What else an
  instance holds may be gone at any time: before the next message there may be another instance.
* What a reaction sends is collected here and leaves when the reaction is committed (``agents.engine``). A reaction that raises
  has sent nothing.
* Nothing can be sent outside a reaction.
* A message that comes back, since whom it was for has lost its name, is reacted to by ``returned``, in its turn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from thence.client.message import Message, To, checked_headers, checked_topic, recipients, written_body
from thence.client.parts.outbox import BATCH_BYTES, BATCH_MESSAGES, MESSAGE_WEIGHT
from thence.errors import UsageError
from thence.net.protocol import BatchItem, write_messages
from thence.storage.bodies import Body, Follows
from thence.storage.mailbox import Batch

MAX_REACTION_SENDS: Final = 1_000
"""How many messages one reaction may send."""

MAX_REACTION_BYTES: Final = 16 * 1024 * 1024
"""How many bytes they may have together: all of it is one entry of the log."""


class ReactionMessage(NamedTuple):
    """A message that a reaction sends."""

    to: tuple[str, ...] | None
    topic: str | None
    item: BatchItem


class Agent(ABC):
    """A persistent object with a name that reacts to one message at a time, each time wholly or not at all."""

    name: str
    """How others write to it."""
    state: Any = None

    _sending: list[ReactionMessage | Follows] | None = None
    """What the present reaction sends; None: there is no reaction."""
    _sending_bytes = 0
    _is_known: Callable[[str], bool]

    @abstractmethod
    async def react(self, message: Message) -> None:
        """Do what the message asks for: change ``state``, and send."""

    async def returned(self, message: Message, to: str) -> None:  # noqa: B027  Most do not care.
        """React to a message of this agent to ``to`` that has come back, since that client has lost its name.

        The client may have handled it all the same. It is a reaction like any other: it may change ``state`` and send. Meant to
        be replaced; by default nothing is done but what the log of the server says.
        """

    async def send(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to one, several or ``EVERYONE``. It leaves when the reaction is committed."""
        names = recipients(to)
        for name in names or ():
            if not self._is_known(name):
                raise UsageError(f"nobody is called {name!r}, as far as the server of {self.name!r} knows")
        self._add(names, None, body, headers)

    async def publish(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to all who follow a topic. It leaves when the reaction is committed."""
        self._add(None, checked_topic(topic), body, headers)

    def reply(self, message: Message, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request. It leaves when the reaction is committed."""
        if not message.wants_reply:
            raise UsageError(f"the message from {message.sender!r} asks for no reply")
        if self._is_known(message.sender):  # If not, it has left, and waits no longer.
            self._add((message.sender,), None, body, headers, reply=message.item.request)

    async def safe(self, message: Message) -> None:
        """Agents are not told later that a message is safe: they react to it once."""
        raise UsageError(
            f"{self.name!r} is an agent: it reacts to the message from {message.sender!r} once, and is not told when it is safe. "
            "Where its domain says delivery = 'safe', it gets nothing before"
        )

    async def subscribe(self, topic: str) -> None:
        """Follow a topic, from when the reaction is committed."""
        self._collecting().append(Follows(self.name, checked_topic(topic), wanted=True))

    async def unsubscribe(self, topic: str) -> None:
        """Follow it no longer."""
        self._collecting().append(Follows(self.name, checked_topic(topic), wanted=False))

    def _add(
        self, to: tuple[str, ...] | None, topic: str | None, body: Any, headers: Mapping[str, str] | None, *, reply: int = 0
    ) -> None:
        sending = self._collecting()
        written, coded = written_body(body)
        self._sending_bytes += len(written) + MESSAGE_WEIGHT
        if self._sending_bytes > MAX_REACTION_BYTES:
            raise UsageError(f"a reaction of {self.name!r} sends over MAX_REACTION_BYTES ({MAX_REACTION_BYTES})")
        sending.append(
            ReactionMessage(to, topic, BatchItem(written, coded, checked_headers(headers) if headers else None, 0, reply))
        )

    def _collecting(self) -> list[ReactionMessage | Follows]:
        if self._sending is None:
            raise UsageError(f"{self.name!r} can send only while it reacts")
        if len(self._sending) >= MAX_REACTION_SENDS:
            raise UsageError(f"a reaction of {self.name!r} sends over MAX_REACTION_SENDS ({MAX_REACTION_SENDS}) messages")
        return self._sending

    def _begin(self) -> None:
        """A reaction begins."""
        self._sending, self._sending_bytes = [], 0

    def _end(self) -> list[Body]:
        """It ends; return what it sends, in order: consecutive messages for the same recipients as one batch."""
        sending, self._sending = self._sending or [], None
        bodies: list[Body] = []
        messages: list[BatchItem] = []
        size = 0
        for at, sent in enumerate(sending):
            if isinstance(sent, Follows):
                bodies.append(sent)
                continue
            messages.append(sent.item)
            size += len(sent.item.body) + MESSAGE_WEIGHT
            following = sending[at + 1] if at + 1 < len(sending) else None
            together = isinstance(following, ReactionMessage) and (following.to, following.topic) == (sent.to, sent.topic)
            if not together or size >= BATCH_BYTES or len(messages) >= BATCH_MESSAGES:
                # Without numbers: what an agent sends is never offered twice.
                bodies.append(Batch(self.name, 1 - len(messages), len(messages), sent.to, sent.topic, write_messages(messages)))
                messages, size = [], 0
        return bodies
