"""A client of a server: ``async with thence.connect(url, name=…) as client``.

Rules:

* The connection is made again for ever; meanwhile ``send`` waits. Only a refusal by the server ends the client.
* A program that starts again under the same name gets everything that it had not finished.
* A client with a token proves that it has it, never tells it, and goes on only with a server that proves to know it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from thence.client.admin import Agents, Operator
from thence.client.connector import CONNECT_TIMEOUT_S, Connector, ServerAddress
from thence.client.endpoint import Endpoint
from thence.client.parts.departure import CLOSE_TIMEOUT_S
from thence.client.server_link import ServerLink
from thence.core.wire.messages import UNREADABLE
from thence.errors import MalformedFrame
from thence.net.names import checked_length, checked_name
from thence.net.protocol import Leave, StatusAnswer, StatusQuestion, ViewAnswer, ViewRequest
from thence.net.security.login import Login
from thence.net.security.tls import TlsFiles
from thence.words import counted


class Client(Endpoint):
    """A connection to a server under a name, made by ``connect``. It reconnects by itself and loses nothing meanwhile."""

    _link: ServerLink

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
        login = Login(token, server)
        super().__init__(f"{login.prefix}{os.urandom(6).hex()}" if name is None else checked_length(name))
        self.url = url
        self._connect_timeout = connect_timeout
        self._close_timeout: float | None = CLOSE_TIMEOUT_S
        address = ServerAddress(url, token=token is not None, tls=tls, authority=authority)
        self._connector = Connector(address, self._parts.state)
        temporary = name is None if temporary is None else temporary
        self._link = ServerLink(self._parts, self._connector, login, self, temporary=temporary)

    async def __aenter__(self) -> Self:
        self._parts.state.enter()
        self._connector.start()
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._link.decided.wait()
        except TimeoutError:
            await self._hang_up()
            trouble = self._connector.trouble or "no answer"
            raise TimeoutError(f"no connection to {self.url} within {self._connect_timeout:g} s: {trouble}") from None
        if self._parts.state.failure is not None:
            await self._hang_up()
            raise self._parts.state.failure
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._parts.departure.leave(orderly=kind is None, within=self._close_timeout)
            if self._link.temporary:
                self._connector.send(Leave())
        finally:
            await self._hang_up()

    async def _hang_up(self) -> None:
        self._parts.state.close()
        await self._connector.stop()
        await self._inbox.end_at_once()

    @property
    def server(self) -> str:
        """The name of the server, once connected."""
        return self._link.server

    @property
    def trouble(self) -> str:
        """Why there is no connection to the server now; nothing while there is one. It is made again by itself."""
        return "" if self._connector.connection is not None else self._connector.trouble or "not connected"

    def withdrawn(self, topic: str, reason: str) -> None:
        """Called when a topic is no longer followed since that is not allowed any more, and for messages on it that are withheld.

        Meant to be replaced; by default it is a warning.
        """
        self._parts.state.warn(f"{self.name!r} gets nothing on {topic!r} any more: {reason}")

    @property
    def agents(self) -> Agents:
        """The agents of the server that this client is connected to: to make, look at and remove them."""
        return Agents(self._link.questions)

    @property
    def operator(self) -> Operator:
        """The clients of the server that this client is connected to: to look at, empty and remove them."""
        return Operator(self._link.questions)

    def number_from(self, number: int) -> None:
        """Give the next message the number behind this one. What the server has had with that number or a later one is left out.

        So whoever does the same work again, with the same numbers, sends nothing twice. Only before anything is sent.
        """
        self._link.number_from(number)

    async def leave(self) -> None:
        """Give up the name, with all that waits for it and all that it follows. The client is then of no more use.

        When this returns the server has forgotten it, or another program has taken the name. If the server says nothing for
        ``close_timeout`` seconds, that is a ``TimeoutError``: the name may still be there, and the client can be used on.
        """
        try:
            await self._parts.departure.wait(self._link.give_up_name(), self._close_timeout)
        except TimeoutError:
            unaccepted = self._outbox.unaccepted
            lost = f", {counted(unaccepted, 'message')} not accepted" if unaccepted else ""
            raise TimeoutError(
                f"it is not known that the name {self.name!r} is given up: {self.url} said nothing for {self._close_timeout:g} s "
                f"(close_timeout; {self.trouble or 'connected'}{lost}). Leave again when it answers, or remove the name there: "
                f"thence client remove {self.url} {self.name}"
            ) from None
        finally:
            self._link.left = None
        await self._hang_up()

    async def status(self) -> dict[str, Any]:
        """Return how the server is."""
        answer = await self._link.questions.ask(StatusQuestion(), StatusAnswer)
        try:
            return msgspec.json.decode(answer.status, type=dict[str, Any])
        except UNREADABLE as error:
            raise MalformedFrame(f"{self.url} answers with a status that cannot be read: {error}") from None

    async def ask_view(self, request: ViewRequest) -> ViewAnswer:
        """Ask the server to take part in a change of the fabric; return where it stands (``server.apply``)."""
        return await self._link.questions.ask(request, ViewAnswer)


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

    ``name`` is how others write to it, and under which its messages are kept while it is away; without one it is temporary.
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
