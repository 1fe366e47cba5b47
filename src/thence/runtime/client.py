"""A client of a server: ``async with thence.connect(url, name=…) as client``.

Rules:

* The connection is made again for ever; meanwhile ``send`` waits. Only a refusal by the server ends the client.
* What was not accepted is sent again over the next connection, and the server leaves out what it has. What comes again from the
  server is left out here. So while the program lives nothing is lost, doubled or out of order, whoever else restarts.
* A program that starts again under the same name gets everything that it had not finished.
* A client that was given a token proves that it has it, never tells it, and goes on only with a server that proves to know it.
* Certificates are read anew for each connection, so that they can be replaced while the program runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from thence.core.addresses import parse_address
from thence.core.messages import UNREADABLE
from thence.errors import ConfigError, MalformedFrame, NotAllowed, Refusal, ThenceError, UsageError
from thence.runtime.agent_client import Agents
from thence.runtime.door import tell
from thence.runtime.endpoint import CLOSE_TIMEOUT_S, Endpoint
from thence.runtime.exposure import check_calling
from thence.runtime.letters import checked_topic
from thence.runtime.login import Login
from thence.runtime.names import checked_length, checked_name
from thence.runtime.operator_client import Operator
from thence.runtime.protocol import (
    Accepted,
    Acknowledge,
    AgentAnswer,
    AgentQuestion,
    Challenge,
    ClientWelcome,
    Deliver,
    Denied,
    Find,
    Found,
    Leave,
    OperatorAnswer,
    OperatorQuestion,
    Ping,
    Publish,
    Refused,
    Safe,
    SafetyWanted,
    Said,
    Stable,
    StableQuestion,
    StatusAnswer,
    StatusQuestion,
    Subscribe,
    Subscribed,
    Undeliverable,
    ViewAnswer,
    ViewRequest,
    claimed_letters,
    understand,
)
from thence.runtime.questions import Questions, T
from thence.runtime.resuming import Resuming, failure
from thence.runtime.tls import TlsFiles, client_side, why_not_connected
from thence.runtime.wire import MAX_FRAME_BYTES, Connection

FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 2.0
CONNECT_TIMEOUT_S: Final = 10.0
CLOSE_WITHIN_S: Final = 1.0
"""How long a client that goes waits for the other side to let go."""
HEARTBEAT_S: Final = 2.0
SILENCE_S: Final = 10.0
SCHEMES: Final = ("thence", "thences")
"""Without and with TLS."""


def parse_url(url: str) -> tuple[str, int, bool]:
    """Return host, port and whether TLS is asked for, of ``thence://host:port`` or ``thences://host:port``."""
    parts = urlsplit(url if "://" in url else f"thence://{url}")
    if parts.scheme not in SCHEMES or parts.path not in ("", "/"):
        raise ConfigError(f"{url!r} is no address of a server; it must be thence://host:port, or thences://host:port for TLS")
    host, port = parse_address(parts.netloc)
    return host, port, parts.scheme == "thences"


class Client(Endpoint):
    """See the module's text. Made by ``connect``."""

    def __init__(
        self,
        url: str,
        name: str | None = None,
        *,
        temporary: bool | None = None,
        token: str | None = None,
        tls: TlsFiles | None = None,
        authority: Path | None = None,
        connect_timeout: float | None = CONNECT_TIMEOUT_S,
        server: str = "",
    ) -> None:
        """A client without a name is temporary: nothing is kept for it when it goes. ``server``: go on with no other."""
        self._login = Login(token, server)
        super().__init__(f"{self._login.prefix}{os.urandom(6).hex()}" if name is None else checked_length(name))
        self._host, self._port, self._secure = parse_url(url)
        check_calling(url, self._host, tls=self._secure, token=token is not None)
        self._files, self._authority = tls, authority
        self._tls_context()  # What cannot be read is said now, not when nobody looks.
        self._resuming = Resuming()
        self.url = url
        self.server = ""
        """The name of the server, once connected."""
        self._temporary = name is None if temporary is None else temporary
        self._connect_timeout = connect_timeout
        self._close_timeout: float | None = CLOSE_TIMEOUT_S
        self._connection: Connection | None = None
        self._unaccepted: deque[Publish] = deque()
        self._topics: dict[str, asyncio.Future[None]] = {}
        """Subscriptions and their ends that the server has not confirmed."""
        self._wanted: dict[str, bool] = {}
        self._looked_for: dict[str, asyncio.Future[None]] = {}
        self._unstable: dict[int, asyncio.Future[None]] = {}
        """Up to which letters somebody waits until all have them."""
        self._questions: deque[asyncio.Future[Any]] = deque()
        self._agent_questions = Questions(lambda number, question: self._ask(AgentQuestion(number, question)))
        self._operator_questions = Questions(lambda number, question: self._ask(OperatorQuestion(number, question)))
        self._answers = False
        """Whether the server says when it has on disk what is done."""
        self._heard_accepted = 0
        self._new = True
        self._welcome = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._enter()
        self._task = self._loop.create_task(self._stay_connected())
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._welcome.wait()
        except TimeoutError:
            await self._hang_up()
            trouble = self._trouble or "no answer"
            raise TimeoutError(f"no connection to {self.url} within {self._connect_timeout:g} s: {trouble}") from None
        if self._failure is not None:
            await self._hang_up()
            raise self._failure
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._leave_block(orderly=kind is None, within=self._close_timeout)
            if self._temporary and self._connection is not None:
                tell(self._connection, Leave())
        finally:
            await self._hang_up()

    async def _hang_up(self) -> None:
        self._close()
        if self._connection is not None:
            await _end(self._connection)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._inbox.end_at_once()

    def _fail(self, failure: Exception, *, logged: bool = False) -> None:
        super()._fail(failure, logged=logged or not self._welcome.is_set())  # Whoever connects is told.
        self._welcome.set()
        if self._connection is not None:
            self._acks.tell()
            self._connection.close()

    # The connection.

    _trouble = ""
    _let_in = False
    """Whether the server has said welcome on the newest connection."""
    _left: asyncio.Future[None] | None = None
    """Done when the server has forgotten our name, as we wanted."""

    @property
    def trouble(self) -> str:
        """Why there is no connection to the server now; nothing while there is one. It is made again by itself."""
        return "" if self._connection is not None else self._trouble or "not connected"

    async def _stay_connected(self) -> None:
        backoff = FIRST_BACKOFF_S
        while not self._closed and self._failure is None:
            lost = asyncio.Event()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, connection = await self._loop.create_connection(
                        lambda lost=lost: self._make(lost),
                        self._host,
                        self._port,
                        ssl=self._tls_context(),
                        server_hostname=self._host if self._secure else None,
                    )
                self._let_in = False
                self._introduce(connection)
                await self._beat(connection, lost)
                if self._let_in:
                    backoff = FIRST_BACKOFF_S
            except (OSError, TimeoutError, ConfigError) as error:
                self._trouble = why_not_connected(error)
            # Those who lost their server at the same moment should not all come back at the same moment.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311  It is no secret.
            backoff = min(2 * backoff, MAX_BACKOFF_S)

    def _tls_context(self) -> ssl.SSLContext | None:
        return client_side(self._files, self._authority) if self._secure else None

    def _introduce(self, connection: Connection) -> None:
        hello = self._login.hello(connection, self.name, temporary=self._temporary, secure=self._secure)
        tell(connection, self._resuming.introduce(hello, self._number, self._inbox.received))

    def _challenged(self, connection: Connection, challenge: Challenge) -> None:
        try:
            tell(connection, self._login.prove(connection, challenge))
        except Refusal as error:
            connection.close()
            self._fail(Refusal(f"{self.url}: {error}"))

    def _make(self, lost: asyncio.Event) -> Connection:
        connection = Connection()
        connection.on_frame = self._frame

        def on_lost(which: Connection, error: Exception | None) -> None:
            welcome = self._connection is which
            if welcome:
                self._connection = None
                while self._questions:
                    _answer(self._questions.popleft(), ConnectionError(f"the connection to {self.url} was lost"))
                for asked in (self._agent_questions, self._operator_questions):
                    asked.lost(ConnectionError(f"the connection to {self.url} was lost"))
            if isinstance(error, ThenceError | OSError):
                self._trouble = str(error) or type(error).__name__
            elif not welcome and not self._trouble:
                guess = "is there TLS at all?" if self._secure else "does it want TLS (thences://)?"
                self._trouble = f"{self.url} hung up; {guess}"
            lost.set()

        connection.on_lost = on_lost
        return connection

    async def _beat(self, connection: Connection, lost: asyncio.Event) -> None:
        """Wait until the connection is lost; say something now and then, and notice if nobody answers."""
        while not lost.is_set():
            try:
                async with asyncio.timeout(HEARTBEAT_S / 2):
                    await lost.wait()
            except TimeoutError:
                now = self._loop.time()
                connection.rest()
                if now - connection.heard_at > SILENCE_S:
                    connection.fail(TimeoutError(f"{self.url} is silent for {SILENCE_S:g} s"))
                elif now - connection.wrote_at > HEARTBEAT_S:
                    tell(connection, Ping())

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        said = understand(frame, self.url)
        if isinstance(said, Deliver):
            if said.withheld:
                self._withheld(said)
            else:
                self._on_deliver(said.position, said.skip, said.sender, said.topic, said.letters, said.everyone)
        elif isinstance(said, Accepted):
            self._resuming.stored = max(self._resuming.stored, said.stored)
            self._forget_accepted(said.upto)
        elif isinstance(said, Undeliverable):
            self._forget_accepted(said.first - 1)
            self._on_undeliverable(said.first, said.count, said.reason, forbidden=said.forbidden)
            self._forget_accepted(said.first + said.count - 1)
        elif isinstance(said, ClientWelcome):
            self._welcomed(connection, said)
        elif isinstance(said, Challenge):
            self._challenged(connection, said)
        elif isinstance(said, Refused):
            self._refused(connection, said)
        elif not isinstance(said, Ping):
            self._answered(said)

    def _answered(self, said: Said) -> None:
        """Something that we asked for has come."""
        if isinstance(said, Subscribed):
            self._subscribed(said)
        elif isinstance(said, Found):
            self._found(said)
        elif isinstance(said, Stable):
            self._stable(said)
        elif isinstance(said, Acknowledge):
            self._acks.on_durable(said.upto)
        elif isinstance(said, Safe):
            self._on_safe(said.upto, said.reason)
        elif isinstance(said, StatusAnswer | ViewAnswer):
            if self._questions:
                _answer(self._questions.popleft(), said)
        elif isinstance(said, AgentAnswer):
            self._agent_questions.answered(said)
        elif isinstance(said, OperatorAnswer):
            self._operator_questions.answered(said)
        elif isinstance(said, Denied):
            self._denied(said)
        else:
            raise MalformedFrame(f"a {type(said).__name__} from {self.url}, which is a server")

    def _denied(self, denied: Denied) -> None:
        """We do not get what we asked for."""
        asked: asyncio.Future[Any] | None
        if denied.asked == "topic":
            asked = self._topics.pop(denied.about, None)
            if asked is None and self._wanted.pop(denied.about, False):
                self.withdrawn(denied.about, denied.reason)
        elif denied.asked == "name":
            asked = self._looked_for.pop(denied.about, None)
        else:
            asked = self._questions.popleft() if self._questions else None
        if asked is not None:
            why = f"{self.url}: {denied.reason}"
            _answer(asked, NotAllowed(why) if denied.forbidden else UsageError(why))

    def _withheld(self, said: Deliver) -> None:
        """Letters came in our mailbox, and we may not have them any more: they count as done."""
        last = said.position - said.skip + claimed_letters(said.letters) - 1
        if last > self._inbox.received and self._failure is None:
            self._inbox.skip(last)
            self.withdrawn(said.topic or "", said.withheld)

    def withdrawn(self, topic: str, reason: str) -> None:
        """Called when a topic is no longer followed since that is not allowed any more, and for messages on it that are withheld.

        Meant to be replaced; by default it is a warning.
        """
        self._loop.call_exception_handler({"message": f"thence: {self.name!r} gets nothing on {topic!r} any more: {reason}"})

    def _refused(self, connection: Connection, refused: Refused) -> None:
        connection.close()
        self._trouble = refused.reason
        if not refused.later and self._left is not None:
            _answer(self._left, None)
        elif not refused.later:
            self._forget_accepted(refused.accepted)
            why = failure(refused, self.url, self._number - self._accepted)
            waited = {number for number, _ in self._waiters} if refused.cause else range(self._number + 1)
            posted = [number for number in range(self._accepted + 1, self._number + 1) if number not in waited]
            self._fail(why)
            for _ in posted:
                self.refused(str(why))

    def _welcomed(self, connection: Connection, welcome: ClientWelcome) -> None:
        reason = self._login.objection(connection, welcome)
        if self._left is None:  # Whoever leaves and was forgotten already exists anew, since it called.
            reason = reason or self._resuming.objection(welcome, self.name, self._number, self._inbox.received)
        if reason:
            connection.close()
            self._fail(Refusal(f"{self.url}: {reason}"))
            return
        connection.max_frame_bytes = MAX_FRAME_BYTES
        self.server = welcome.server
        self._answers = welcome.answers
        self._connection = connection
        self._let_in = True
        if self._left is not None:
            tell(connection, Leave())
            return
        if self._new:
            self._begin(welcome)
        self._resuming.welcomed(welcome)
        self._forget_accepted(welcome.accepted)
        if self.name:  # Without one there are only questions.
            self._go_on(connection)
        self._welcome.set()

    def _begin(self, welcome: ClientWelcome) -> None:
        """Go on where a program of this name ended that may have been here before."""
        self._new = False
        offset = welcome.number - self._number
        self._unaccepted = deque(msgspec.structs.replace(publish, first=publish.first + offset) for publish in self._unaccepted)
        self._number = self._accepted = welcome.number
        self._inbox.received = welcome.position
        self._acks.begin(welcome.position)

    def _go_on(self, connection: Connection) -> None:
        """Say again what the server may not have heard."""
        self._acks.tell_again()
        for topic, wanted in self._wanted.items():
            if topic in self._topics:
                tell(connection, Subscribe(topic, wanted))
        for publish in self._unaccepted:
            tell(connection, publish)
        for name in self._looked_for:
            tell(connection, Find(name))
        for upto in self._unstable:
            tell(connection, StableQuestion(upto))
        if self._awaited.wanted:
            tell(connection, SafetyWanted())

    # Endpoint.

    def _transmit(self, publish: Publish) -> None:
        self._unaccepted.append(publish)
        if self._connection is not None:
            tell(self._connection, publish)

    def _forget_accepted(self, upto: int) -> None:
        self._heard_accepted = max(upto, self._heard_accepted)
        unaccepted = self._unaccepted
        while unaccepted and unaccepted[0].first + unaccepted[0].count - 1 <= upto:
            unaccepted.popleft()
        self._on_accepted(upto)

    def _acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        if self._connection is not None:
            tell(self._connection, Acknowledge(upto, limit, answer))

    async def _until_durable(self) -> None:
        if self._answers and not self._temporary:  # What is kept for a temporary client goes with it.
            await self._acks.durable()

    async def subscribe(self, topic: str) -> None:
        await self._follow(topic, wanted=True)

    async def unsubscribe(self, topic: str) -> None:
        await self._follow(topic, wanted=False)

    async def _follow(self, topic: str, *, wanted: bool) -> None:
        self._check_usable()
        self._send_bundle()
        done = self._topics.setdefault(checked_topic(topic), self._loop.create_future())
        self._wanted[topic] = wanted
        if self._connection is not None:
            tell(self._connection, Subscribe(topic, wanted))
        await asyncio.shield(done)

    def _others_waiting(self) -> Iterable[asyncio.Future[Any]]:
        waiting = (self._topics, self._looked_for, self._unstable)
        leaving = () if self._left is None else (self._left,)
        asked = (*self._agent_questions.waiting, *self._operator_questions.waiting)
        return (*(one for table in waiting for one in table.values()), *self._questions, *asked, *leaving)

    def _subscribed(self, said: Subscribed) -> None:
        if self._wanted.get(said.topic) == said.wanted:
            done = self._topics.pop(said.topic, None)
            if done is not None and not done.done():
                done.set_result(None)

    async def known(self, name: str) -> None:
        self._check_usable()
        found = self._looked_for.setdefault(checked_length(name), self._loop.create_future())
        if self._connection is not None:
            tell(self._connection, Find(name))
        await asyncio.shield(found)

    def _found(self, said: Found) -> None:
        found = self._looked_for.pop(said.name, None)
        if found is not None and not found.done():
            found.set_result(None)

    async def _until_stable(self) -> None:
        upto = self._accepted
        if upto not in self._unstable:
            self._unstable[upto] = self._loop.create_future()
            if self._connection is not None:
                tell(self._connection, StableQuestion(upto))
        await asyncio.shield(self._unstable[upto])

    def _stable(self, said: Stable) -> None:
        waiting = self._unstable.pop(said.upto, None)
        if waiting is not None:
            _answer(waiting, UsageError(said.reason) if said.reason else None)

    def _ask_safety(self) -> None:
        if self._connection is not None:
            tell(self._connection, SafetyWanted())

    @property
    def agents(self) -> Agents:
        """The agents of the server that this client is connected to: to make, look at and remove them."""
        return Agents(self._agent_questions)

    @property
    def operator(self) -> Operator:
        """The clients of the server that this client is connected to: to look at, empty and remove them."""
        return Operator(self._operator_questions)

    def number_from(self, number: int) -> None:
        """Give the next letter the number behind this one. What the server has had with that number or a later one is left out.

        So whoever does the same work again, with the same numbers, sends nothing twice. Only before anything is sent.
        """
        if self._bundle or self._unaccepted:
            raise UsageError("numbers are set before anything is sent")
        self._number = number
        # Not what the server has had, which it may still forget, but what it has said to be accepted.
        self._accepted = max(number, self._heard_accepted)

    async def leave(self) -> None:
        """Give up the name, with all that waits for it and all that it follows. The client is then of no more use.

        When this returns the server has forgotten it, or another program has taken the name; until it answers, this waits.
        """
        await self.flush()
        self._left = self._loop.create_future()
        if self._connection is not None:
            tell(self._connection, Leave())
        await self._left
        await self._hang_up()

    async def status(self) -> dict[str, Any]:
        """Return how the server is."""
        answer = await self._question(StatusQuestion(), StatusAnswer)
        try:
            return msgspec.json.decode(answer.status, type=dict[str, Any])
        except UNREADABLE as error:
            raise MalformedFrame(f"{self.url} answers with a status that cannot be read: {error}") from None

    async def ask_view(self, request: ViewRequest) -> ViewAnswer:
        """Ask the server to take part in a change of the fabric; return where it stands (``runtime.applying``)."""
        return await self._question(request, ViewAnswer)

    async def _question(self, question: StatusQuestion | ViewRequest, kind: type[T]) -> T:
        self._ask(question)
        self._questions.append(waiting := self._loop.create_future())
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            answer = await waiting
        if not isinstance(answer, kind):
            raise MalformedFrame(f"{self.url} answers a {type(question).__name__} with a {type(answer).__name__}")
        return answer

    def _ask(self, question: Said) -> None:
        self._check_usable()
        if self._connection is None:
            raise ConnectionError(f"not connected to {self.url}: {self._trouble}")
        tell(self._connection, question)


async def _end(connection: Connection) -> None:
    """Close a connection and wait until nothing is left of it, but not for ever: a loop that ends before cuts TLS off."""
    ended = asyncio.Event()
    connection.on_end = lambda _: ended.set()
    connection.close()
    try:
        async with asyncio.timeout(CLOSE_WITHIN_S):
            await ended.wait()
    except TimeoutError:
        connection.fail(TimeoutError("the other side does not let go"))


def _answer(question: asyncio.Future[Any], answer: object) -> None:
    """Answer somebody who may not wait any more."""
    if question.done():
        return
    if isinstance(answer, Exception):
        question.set_exception(answer)
    else:
        question.set_result(answer)


async def ask_status(url: str, *, token: str | None = None, authority: Path | None = None) -> dict[str, Any]:
    """Return how the server at ``url`` is, without becoming a client of it."""
    async with Client(url, "", temporary=False, token=token, authority=authority) as client:
        return await client.status()


def connect(
    url: str,
    name: str | None = None,
    *,
    temporary: bool | None = None,
    token: str | None = None,
    tls: TlsFiles | None = None,
    authority: str | Path | None = None,
    connect_timeout: float | None = CONNECT_TIMEOUT_S,
    close_timeout: float | None = CLOSE_TIMEOUT_S,
) -> Client:
    """Return a client of the server at ``url``, to be used in an ``async with`` block.

    ``name`` is how others write to it, and under which its letters are kept while it is away; without one it is temporary.
    ``token`` is what ``thence token new`` printed, for a server with an access file. ``authority`` is the certificate of whoever
    signs those of the servers, for ``thences://``. ``connect_timeout=None`` waits for the server for ever.

    Whoever leaves the block without an error waits until the message in hand is done, everything that was posted is accepted, and
    the server has on disk what is done. If nothing of it goes on for ``close_timeout`` seconds, that is a ``TimeoutError``:
    it says what is left; ``None`` waits for ever.
    """
    if name is not None:
        checked_name(name)  # Also the empty one: that of tools that only ask questions, to which nobody can write.
    path = None if authority is None else Path(authority)
    client = Client(url, name, temporary=temporary, token=token, tls=tls, authority=path, connect_timeout=connect_timeout)
    client._close_timeout = close_timeout  # noqa: SLF001  It is ours.
    return client
