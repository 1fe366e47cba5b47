"""What a program sees: send, publish, request, receive. It is the same for a client of a server and a member in the program.

Rules:

* ``post`` and friends only queue. ``send`` and friends also wait until the message is accepted: on disk, where that is asked for.
* Messages come in order. A message is done, and does not come again, when the next one is asked for or when its handler has
  returned. Until then it comes again after a crash.
* Credit: the other side sends at most ``WINDOW_MESSAGES`` messages beyond what is done. So a slow program slows down those who
  write to it, and nothing is dropped.

An endpoint is made of parts, each with its own rules: ``outbox``, ``deliveries``, ``inbox``, ``acks``, ``requests``,
``safe_waits``, ``state``, ``departure``. A link connects the parts with the others.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from thence.client.message import Message, To, checked_topic, recipient, recipients
from thence.client.parts.acks import Acks
from thence.client.parts.deliveries import Deliveries
from thence.client.parts.departure import Departure
from thence.client.parts.inbox import BatchHandler, EndpointInbox, Handler, ViewHandler
from thence.client.parts.outbox import Outbox
from thence.client.parts.requests import Requests
from thence.client.parts.safe_waits import SafeHandler, SafeWaits
from thence.client.parts.state import EndpointHooks, EndpointState
from thence.core.reconfig.protocol import NewView
from thence.errors import MalformedFrame, UsageError
from thence.net.protocol import Publish
from thence.node.spans import spans_of_program


class EndpointLink(Protocol):
    """What lies between an endpoint and the others."""

    def transmit(self, publish: Publish) -> None:
        """Send a batch on, and keep it until it is accepted."""

    def acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        """Send an ack, and up to where more may come. ``answer``: call ``Acks.on_durable`` when it is on disk."""

    def ask_safety(self) -> None:
        """Ask for calls of ``SafeWaits.on_safe``."""

    async def follow(self, topic: str, *, wanted: bool) -> None:
        """Follow a topic, or follow it no longer. Return when that holds."""

    async def known(self, name: str) -> None:
        """Wait until a client of this name is known."""

    async def until_stable(self) -> None:
        """Wait until all recipients have what was accepted so far."""


class EndpointParts:
    """The parts of one endpoint, which its API and its link use."""

    def __init__(self, name: str, endpoint: EndpointHooks) -> None:
        """Make the parts. ``connect`` connects them with a link."""
        spans = spans_of_program(name)
        self.state = EndpointState(name)
        self.outbox = Outbox(self.state, endpoint, spans)
        self.requests = Requests(self.state)
        self.safe_waits = SafeWaits(self.state)
        self.acks = Acks(self.state)
        self.inbox = EndpointInbox(self.state, self.acks, endpoint)
        me = weakref.ref(endpoint)
        self.deliveries = Deliveries(self.state, endpoint, self.inbox, self.acks, self.requests, me)
        self.deliveries.spans = spans
        self.departure = Departure(self.state, self.outbox, self.inbox, self.acks)

    def connect(self, link: EndpointLink) -> None:
        """Send by this link from now on."""
        self.outbox.transmit = link.transmit
        self.acks.send = link.acknowledge
        self.safe_waits.ask = link.ask_safety


class Endpoint:
    """Sends and receives messages under one name."""

    _link: EndpointLink

    def __init__(self, name: str) -> None:
        """Make the parts. Whoever derives from this sets ``_link``."""
        self.name = name
        self._parts = parts = EndpointParts(name, self)
        self._outbox = parts.outbox
        self._inbox = parts.inbox

    # Sending.

    async def send(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to one, several or ``EVERYONE``, and wait until it is accepted. Bodies that are no bytes are coded as msgpack."""
        await self._outbox.send(recipients(to), None, body, headers)

    async def publish(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send to all who follow a topic, and wait until it is accepted."""
        await self._outbox.send(None, checked_topic(topic), body, headers)

    def post(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send without waiting. Raises ``Busy`` if too much is unaccepted; ``flush`` waits for all of it."""
        self._outbox.post(to, body, headers)

    def post_topic(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish without waiting, as ``post`` sends."""
        self._outbox.add(None, checked_topic(topic), body, headers)

    async def request(self, to: str, body: Any, *, headers: Mapping[str, str] | None = None, within: float = 30.0) -> Message:
        """Send a request and return the reply, which only the recipient can give. Other messages go on coming in meanwhile."""
        (whom,) = recipient(to)
        outbox, requests = self._outbox, self._parts.requests
        await outbox.room()
        request, reply = requests.ask(whom)
        try:
            outbox.add((whom,), None, body, headers, request=request)
            async with asyncio.timeout(within):
                await outbox.until(outbox.number)
                return await reply
        except TimeoutError as late:
            raise TimeoutError(str(late) or f"no reply from {to!r} within {within:g} s") from None
        finally:
            requests.forget(request)

    def reply(self, message: Message, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request; the answer is queued, as with ``post``."""
        if not message.wants_reply:
            raise UsageError(f"the message from {message.sender!r} asks for no reply")
        self._outbox.add((message.sender,), None, body, headers, reply=message.item.request)

    @property
    def stray_replies(self) -> int:
        """How many replies were left out: no request waited for them any more, or somebody else was asked."""
        return self._parts.requests.stray

    async def flush(self) -> None:
        """Wait until everything that was posted is accepted."""
        await self._outbox.flush()

    async def stable(self) -> None:
        """Wait until everything that was sent is in the stores of all its recipients' servers: no crash loses it any more.

        Only in fabrics with ``stability = true``; elsewhere it is a ``UsageError``.
        """
        await self._outbox.flush()
        await self._link.until_stable()

    async def room(self) -> None:
        """Wait until ``post`` would not be refused as busy."""
        await self._outbox.room()

    def refused(self, reason: str) -> None:
        """Called for messages that were posted and that nobody waits for. Meant to be replaced; by default it is a warning."""
        self._parts.state.warn(f"a posted message was refused: {reason}")

    # Topics and names.

    async def subscribe(self, topic: str) -> None:
        """Get what is published on a topic from here on. Returns when that holds here; causally later publishers know of it."""
        await self._link.follow(topic, wanted=True)

    async def unsubscribe(self, topic: str) -> None:
        """Get no more of it."""
        await self._link.follow(topic, wanted=False)

    async def known(self, name: str) -> None:
        """Wait until a client of this name is known here, so that it can be written to."""
        await self._link.known(name)

    # Receiving.

    def on_message(self, handler: Handler) -> None:
        """Call ``handler`` with each message, in order, from the loop. A message is done when it returns.

        It may be ``async``, or return anything else to be awaited: the message is done when that has ended, and only then
        the next one comes. A plain one must not block. If it raises, the endpoint ends; but if it raises ``MalformedFrame``, as
        ``Message.value`` does, the message is left out, and ``unreadable`` is called.
        """
        self._inbox.set_handler(handler, one_by_one=True)

    def on_batch(self, handler: BatchHandler) -> None:
        """Call ``handler`` with all messages that came together. This is the quickest way to listen. It may be ``async`` too."""
        self._inbox.set_handler(handler, one_by_one=False)

    def on_view(self, handler: ViewHandler) -> None:
        """Call ``handler`` when the fabric has changed, in the order of the messages: all before it are of the old view.

        At every server the same messages come before it. It must not block, and may send; it may be ``async``, as for messages.
        """
        self._inbox.views.handle(handler)

    @property
    def view(self) -> NewView | None:
        """The last view that came to this endpoint; None: there was no change since it was made."""
        return self._inbox.views.view

    def __aiter__(self) -> AsyncIterator[Message]:
        self._parts.state.check_entered()
        self._inbox.check_asking()
        return self._inbox.messages()

    async def receive(self, within: float | None = None) -> Message:
        """Return the next message, or raise ``TimeoutError`` if none comes within so many seconds.

        It counts as done when the next one is asked for, with ``done``, or when the block is left without an error.
        """
        self._parts.state.check_entered()
        self._inbox.check_asking()
        return await self._inbox.receive(within)

    def done(self) -> None:
        """Say that the message last received is done: it will not come again."""
        self._inbox.done()

    def returned(self, message: Message, to: str) -> None:
        """Called for a message of ours to ``to`` that was accepted and has come back, since that client has lost its name.

        The client may have handled it all the same. Meant to be replaced; by default it is a warning.
        """
        where = f"to {to!r}, which has lost its name"
        self._parts.state.warn(f"a message of {self.name!r} came back, undeliverable: {where}")

    def unreadable(self, error: MalformedFrame) -> None:
        """Called for messages that cannot be read, and are left out. Meant to be replaced; by default it is a warning."""
        self._parts.state.warn(f"messages for {self.name!r} are left out: {error}")

    # Safety.

    async def safe(self, message: Message) -> None:
        """Wait until a message that came in is safe: everybody who gets it in its domain has it on disk.

        Only where the domain says ``delivery = "notify"``, or ``"safe"``; elsewhere it is a ``UsageError``.
        """
        await self._parts.safe_waits.until(message.position)

    async def on_safe(self, handler: SafeHandler) -> None:
        """Call ``handler`` with a position whenever more messages are safe: all up to that position are.

        It is called from the loop, and must not block. Returns when the other side has said where it stands; where it does not
        find out, that is a ``UsageError``.
        """
        await self._parts.safe_waits.handle(handler)

    @property
    def safe_upto(self) -> int:
        """Up to which position all messages are safe, as far as this endpoint knows; 0 if it has not asked."""
        return max(0, self._parts.safe_waits.upto)
