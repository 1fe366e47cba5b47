"""Answers HTTP requests of those who look after a server: ``/metrics``, ``/healthz`` and ``/readyz``, and nothing else.

It is no web server: one request per connection, GET or HEAD, no body, every answer made here. So it needs no dependency, and
what somebody can make the server keep is bounded by a few numbers.

Rules:

* ``/healthz`` says that the loop goes round: whoever gets no answer within some seconds may restart the process.
* ``/readyz`` says whether the server takes messages now, and if not, why (503). A neighbour that is away is no reason: the server
  keeps what is for it. When it can keep no more, the server is ready for everything else, and says for whom it takes nothing. It
  is not ready when that holds for all neighbours.
* There are at most ``MAX_CONNECTIONS`` at a time; a request has ``MAX_REQUEST_BYTES`` and must be there within
  ``REQUEST_WITHIN_S``, and its answer must be taken within ``ANSWER_WITHIN_S``. All together keep ``MAX_KEPT_BYTES`` at most.
* When there are too many, the one that has been asking for longest, of the place with the most, makes room: who asks at once is
  answered, however many are silent. Otherwise whoever wants a server to be restarted would only have to say nothing to it.
* Nobody is asked for a name here, there is no TLS, and metrics name neighbours: it listens on this machine only, unless it is
  told that more is meant (``runtime.exposure``).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from thence.core.addresses import parse_address
from thence.errors import ConfigError
from thence.runtime.complaints import place_of
from thence.runtime.exposure import check_answering
from thence.runtime.server import Server
from thence.runtime.wire import address_text
from thence.web.exposition import CONTENT_TYPE
from thence.web.metrics import exposition

LOOPBACK: Final = "127.0.0.1"
MAX_CONNECTIONS: Final = 32
"""How many connections there may be at a time."""
MAX_REQUEST_BYTES: Final = 8 * 1024
"""How long a request with its headers may be."""
READ_BYTES: Final = 256 * 1024
"""How much asyncio reads at a time, whatever we want to have."""
MAX_KEPT_BYTES: Final = MAX_CONNECTIONS * (2 * MAX_REQUEST_BYTES + READ_BYTES)
"""The most that all who ask together can make the server keep."""
REQUEST_WITHIN_S: Final = 5.0
ANSWER_WITHIN_S: Final = 10.0

PLAIN: Final = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """What somebody is told."""

    status: HTTPStatus
    text: str
    content_type: str = PLAIN


def parse_listen(listen: str) -> str:
    """Return where to listen: HOST:PORT, or PORT on this machine."""
    address = f"{LOOPBACK}:{listen.removeprefix(':')}" if listen.rpartition(":")[0] == "" else listen
    parse_address(address)
    return address


class Answerer:
    """Answers for one server. See the module's text."""

    def __init__(self, server: Server) -> None:
        """``open`` begins to listen."""
        self._server = server
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._asking: dict[asyncio.StreamWriter, str] = {}
        """Those of them that have not said what they want, the oldest first, and where each is."""
        self._pages: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/healthz": self._health,
            "/readyz": self._ready,
        }

    async def open(self, listen: str) -> str:
        """Listen; return the address with the port that was really taken."""
        host, port = parse_address(parse_listen(listen))
        check_answering(host, insecure=self._server.node.options.insecure)
        try:
            self._listener = await asyncio.start_server(self._came, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise ConfigError(f"cannot listen for --metrics on {listen}: {error.strerror or error}") from error
        return f"{host}:{self._listener.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Answer nobody any more. What is being answered ends by itself, within the limits of the module."""
        if self._listener is not None:
            self._listener.close()

    # One connection.

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = address_text(writer.get_extra_info("peername"))
        if len(self._open) >= MAX_CONNECTIONS and not self._show_out():
            self._server.complain(address, f"turned away: all {MAX_CONNECTIONS} (MAX_CONNECTIONS) who asked are being answered")
            writer.transport.abort()
            return
        self._open.add(writer)
        self._asking[writer] = place_of(address.rpartition(":")[0])
        try:
            # Cancelled when the loop ends: there is nobody to tell, and streams of asyncio would complain.
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._converse(reader, writer, address)
        finally:
            self._gone(writer)
            writer.transport.abort()

    def _show_out(self) -> bool:
        """Let somebody who has not said what it wants make room for another; return whether there is anybody."""
        if not self._asking:
            return False
        most, _ = Counter(self._asking.values()).most_common(1)[0]
        writer = next(one for one, place in self._asking.items() if place == most)
        address = address_text(writer.get_extra_info("peername"))
        self._server.complain(address, f"shown out: it asks for nothing, and there are MAX_CONNECTIONS ({MAX_CONNECTIONS}) here")
        self._gone(writer)
        writer.transport.abort()
        return True

    def _gone(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        self._asking.pop(writer, None)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        head_only = False
        try:
            async with asyncio.timeout(REQUEST_WITHIN_S):
                request = await reader.readuntil(b"\r\n\r\n")
            self._asking.pop(writer, None)
            method, path = _first_line(request)
            head_only = method == "HEAD"
            answer = await self._answer(method, path)
        except TimeoutError:
            answer = Answer(HTTPStatus.REQUEST_TIMEOUT, f"no request within {REQUEST_WITHIN_S:g} s\n")
        except asyncio.LimitOverrunError:
            answer = Answer(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the limit is {MAX_REQUEST_BYTES} bytes\n")
        except asyncio.IncompleteReadError:
            return
        if answer.status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE):
            self._server.complain(address, f"refused over HTTP: {answer.status.phrase.lower()}: {answer.text.strip()}")
        body = answer.text.encode()
        head = (
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
        async with asyncio.timeout(ANSWER_WITHIN_S):
            writer.write(head.encode() + (b"" if head_only else body))
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    async def _answer(self, method: str, path: str) -> Answer:
        if not method:
            return Answer(HTTPStatus.BAD_REQUEST, "this is no request\n")
        if method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        page = self._pages.get(path.partition("?")[0])
        if page is None:
            return Answer(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._pages)}\n")
        return await page()

    # The pages.

    async def _metrics(self) -> Answer:
        return Answer(HTTPStatus.OK, await exposition(self._server), CONTENT_TYPE)

    async def _health(self) -> Answer:
        return Answer(HTTPStatus.OK, "ok\n")

    async def _ready(self) -> Answer:
        trouble = self._server.not_ready
        if trouble:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{trouble}\n")
        stalled = self._server.stalled
        return Answer(HTTPStatus.OK, f"ready, but {stalled}\n" if stalled else "ready\n")


def _first_line(request: bytes) -> tuple[str, str]:
    """Return method and path of a request, or two empty words if it is none."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return (words[0], words[1]) if len(words) == 3 and words[2].startswith("HTTP/1.") else ("", "")
