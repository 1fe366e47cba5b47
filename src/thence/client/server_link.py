"""Connects an endpoint with its server: logs in, sends again what the server may not have, and understands what it says.

Rules:

* What was not accepted is sent again over the next connection, and the server leaves out what it has. So while the program lives
  nothing is lost, doubled or out of order, whoever else restarts.
* A program that starts again under the same name goes on where the earlier one ended.
* Only a refusal by the server ends the endpoint.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

import msgspec

from thence.client.admin import ServerQuestions
from thence.client.connector import Connector
from thence.client.endpoint import EndpointParts
from thence.client.message import checked_topic
from thence.client.parts.requests import Pending, answer_to, fail_all
from thence.client.parts.state import EndpointHooks
from thence.client.resume import Resumption, failure
from thence.errors import MalformedFrame, NotAllowed, Refusal, UsageError
from thence.net.control import tell
from thence.net.framing import Connection
from thence.net.names import checked_length
from thence.net.protocol import (
    Accepted,
    Acknowledge,
    Challenge,
    ClientWelcome,
    ControlFrame,
    Deliver,
    Denied,
    Find,
    Leave,
    NameFound,
    Ping,
    Publish,
    Refused,
    Safe,
    SafetyWanted,
    Stable,
    StableQuestion,
    Subscribe,
    Subscribed,
    Undeliverable,
    understand,
)
from thence.net.security.login import Login
from thence.words import article


class LinkHooks(EndpointHooks, Protocol):
    """The hooks of a client."""

    def withdrawn(self, topic: str, reason: str) -> None:
        """A topic is no longer followed, since that is not allowed any more."""


class ServerLink:
    """The link of one client to its server."""

    def __init__(self, parts: EndpointParts, connector: Connector, login: Login, hooks: LinkHooks, *, temporary: bool) -> None:
        """Use the parts of the client, and this connector. ``temporary``: nothing is kept for it when it goes."""
        self.server = ""
        """The name of the server, once connected."""
        self.decided = asyncio.Event()
        """Set when the server has let us in, or never will."""
        self.questions = ServerQuestions(connector, parts.state)
        self.temporary = temporary
        self._parts = parts
        self._connector = connector
        self._login = login
        self._hooks = hooks
        self._resume = Resumption()
        self._unaccepted: deque[Publish] = deque()
        self._heard_accepted = 0
        self._wanted: dict[str, bool] = {}
        """The topics that the program follows or has left."""
        self._topics: Pending[str] = Pending(parts.state)
        """Subscriptions, and ends of them, that the server has not acknowledged."""
        self._names: Pending[str] = Pending(parts.state)
        self._unstable: Pending[int] = Pending(parts.state)
        """Numbers up to which somebody waits for messages to be stable."""
        self.left: asyncio.Future[None] | None = None
        """Done when the server has forgotten our name, as we wanted."""
        self._answers = False
        """Whether the server says when it has acks on disk."""
        self._new = True
        connector.on_made, connector.on_frame, connector.on_lost = self._introduce, self._frame, self.questions.lost
        parts.state.on_end.append(self._end)
        parts.departure.until_durable = self._until_durable
        parts.connect(self)

    # What the endpoint asks for.

    def transmit(self, publish: Publish) -> None:
        """Send a batch, and keep it until it is accepted."""
        self._unaccepted.append(publish)
        self._connector.send(publish)

    def acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        """Send an ack."""
        self._connector.send(Acknowledge(upto, limit, answer))

    def ask_safety(self) -> None:
        """Ask the server to say which messages are safe."""
        self._connector.send(SafetyWanted())

    async def follow(self, topic: str, *, wanted: bool) -> None:
        """Follow a topic, or follow it no longer. Return when the server has it."""
        self._parts.state.check()
        self._parts.outbox.send_batch()
        done = self._topics.wait(checked_topic(topic))
        self._wanted[topic] = wanted
        self._connector.send(Subscribe(topic, wanted))
        await done

    async def known(self, name: str) -> None:
        """Wait until the server knows a client of this name."""
        self._parts.state.check()
        found = self._names.wait(checked_length(name))
        self._connector.send(Find(name))
        await found

    async def until_stable(self) -> None:
        """Wait until what was accepted so far is stable."""
        upto = self._parts.outbox.accepted
        await self._unstable.ask(upto, lambda: self._connector.send(StableQuestion(upto)))

    async def _until_durable(self) -> None:
        if self._answers and not self.temporary:  # What is kept for a temporary client goes with it.
            await self._parts.acks.durable()

    def number_from(self, number: int) -> None:
        """Give the next message the number behind this one."""
        if self._unaccepted or not self._parts.outbox.is_empty:
            raise UsageError("numbers are set before anything is sent")
        # Not what the server has, which it may still forget, but what it has said to be accepted.
        self._parts.outbox.number_from(number, max(number, self._heard_accepted))

    async def give_up_name(self) -> None:
        """Give up the name, and wait until the server has forgotten it."""
        await self._parts.outbox.flush()
        self.left = asyncio.get_running_loop().create_future()
        self._connector.send(Leave())
        await self.left

    def _end(self, error: Exception) -> bool:
        """Wake all who wait, and hang up if the endpoint has failed."""
        connecting = not self.decided.is_set()
        self.decided.set()
        waited = fail_all(() if self.left is None else (self.left,), error)
        if self._parts.state.failure is not None and self._connector.connection is not None:
            self._parts.acks.flush()
            self._connector.connection.close()
        return waited or connecting

    # Logging in.

    def _introduce(self, connection: Connection) -> None:
        hello = self._login.hello(
            connection, self._parts.state.name, temporary=self.temporary, secure=self._connector.address.secure
        )
        tell(connection, self._resume.introduce(hello, self._parts.outbox.number, self._parts.inbox.received))

    def _challenged(self, connection: Connection, challenge: Challenge) -> None:
        try:
            tell(connection, self._login.prove(connection, challenge))
        except Refusal as error:
            connection.close()
            self._parts.state.fail(Refusal(f"{self._connector.address.url}: {error}"))

    def _refused(self, connection: Connection, refused: Refused) -> None:
        connection.close()
        self._connector.trouble = refused.reason
        if refused.later:
            return
        if self.left is not None:
            answer_to(self.left, None)
            return
        self._accept(refused.accepted)
        outbox = self._parts.outbox
        why = failure(refused, self._connector.address.url, outbox.unaccepted)
        posted = outbox.unaccepted - len(outbox.waited_for()) if refused.cause else 0
        self._parts.state.fail(why)
        for _ in range(posted):
            self._parts.state.call(self._hooks.refused, str(why))

    def _welcomed(self, connection: Connection, welcome: ClientWelcome) -> None:
        state, outbox, inbox = self._parts.state, self._parts.outbox, self._parts.inbox
        reason = self._login.objection(connection, welcome)
        if self.left is None:  # Whoever leaves and was forgotten already exists anew, since it called.
            reason = reason or self._resume.objection(welcome, state.name, outbox.number, inbox.received)
        if reason:
            connection.close()
            state.fail(Refusal(f"{self._connector.address.url}: {reason}"))
            return
        self.server = welcome.server
        self._answers = welcome.answers
        self._connector.welcome(connection)
        if self.left is not None:
            tell(connection, Leave())
            return
        if self._new:
            self._begin(welcome)
        self._resume.welcomed(welcome)
        self._accept(welcome.accepted)
        if state.name:  # Without one there are only questions.
            self._repeat(connection)
        self.decided.set()

    def _begin(self, welcome: ClientWelcome) -> None:
        """Go on where an earlier program of this name ended."""
        self._new = False
        offset = self._parts.outbox.begin(welcome.number)
        self._unaccepted = deque(msgspec.structs.replace(publish, first=publish.first + offset) for publish in self._unaccepted)
        self._parts.inbox.received = welcome.position
        self._parts.acks.begin(welcome.position)

    def _repeat(self, connection: Connection) -> None:
        """Say again what the server may not have heard."""
        self._parts.acks.repeat()
        for topic, wanted in self._wanted.items():
            if topic in self._topics:
                tell(connection, Subscribe(topic, wanted))
        for publish in self._unaccepted:
            tell(connection, publish)
        for name in self._names.keys:
            tell(connection, Find(name))
        for upto in self._unstable.keys:
            tell(connection, StableQuestion(upto))
        if self._parts.safe_waits.wanted:
            tell(connection, SafetyWanted())

    # What the server says.

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        said = understand(frame, self._connector.address.url)
        if isinstance(said, Deliver):
            deliveries, received = self._parts.deliveries, self._parts.inbox.received
            if said.position > received + 1:
                raise MalformedFrame(f"message {said.position} for {self._parts.state.name!r} came after {received}")
            if not said.withheld:
                deliveries.deliver(said.position, said.skip, said.sender, said.topic, said.messages, said.everyone)
            elif deliveries.withhold(said.position, said.skip, said.messages):
                self._parts.state.call(self._hooks.withdrawn, said.topic or "", said.withheld)
        elif isinstance(said, Accepted):
            self._resume.stored = max(self._resume.stored, said.stored)
            self._accept(said.upto)
        elif isinstance(said, Undeliverable):
            self._accept(said.first - 1)
            self._parts.outbox.on_undeliverable(said.first, said.count, said.reason, forbidden=said.forbidden)
            self._accept(said.first + said.count - 1)
        elif isinstance(said, ClientWelcome):
            self._welcomed(connection, said)
        elif isinstance(said, Challenge):
            self._challenged(connection, said)
        elif isinstance(said, Refused):
            self._refused(connection, said)
        elif not isinstance(said, Ping):
            self._answered(said)

    def _accept(self, upto: int) -> None:
        """Forget the batches up to this number: they are accepted or refused."""
        self._heard_accepted = max(upto, self._heard_accepted)
        unaccepted = self._unaccepted
        while unaccepted and unaccepted[0].first + unaccepted[0].count - 1 <= upto:
            unaccepted.popleft()
        self._parts.outbox.on_accepted(upto)

    def _answered(self, said: ControlFrame) -> None:
        """Take the answer to something that we asked for."""
        if isinstance(said, Subscribed):
            if self._wanted.get(said.topic) == said.wanted:
                self._topics.answer(said.topic)
        elif isinstance(said, NameFound):
            self._names.answer(said.name)
        elif isinstance(said, Stable):
            self._unstable.answer(said.upto, UsageError(said.reason) if said.reason else None)
        elif isinstance(said, Acknowledge):
            self._parts.acks.on_durable(said.upto)
        elif isinstance(said, Safe):
            self._parts.safe_waits.on_safe(said.upto, said.reason)
        elif isinstance(said, Denied):
            self._denied(said)
        elif not self.questions.answer(said):
            raise MalformedFrame(f"{article(type(said).__name__)} from {self._connector.address.url}, which is a server")

    def _denied(self, denied: Denied) -> None:
        """Take a refusal of something that we asked for."""
        why = f"{self._connector.address.url}: {denied.reason}"
        error = NotAllowed(why) if denied.forbidden else UsageError(why)
        if denied.asked == "topic":
            if not self._topics.answer(denied.about, error) and self._wanted.pop(denied.about, False):
                self._parts.state.call(self._hooks.withdrawn, denied.about, denied.reason)
        elif denied.asked == "name":
            self._names.answer(denied.about, error)
        else:
            self.questions.answer_next(error)
