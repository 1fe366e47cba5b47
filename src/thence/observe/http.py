"""Answers HTTP requests of those who look after a server: ``/metrics``, ``/healthz`` and ``/readyz``, and nothing else.

It is no web server: one request per connection, GET or HEAD, no body, every answer made here. So it needs no dependency, and
what somebody can make the server keep is bounded by a few numbers.

Starlette on uvicorn cannot hold these bounds: it has no limit of time for a request to arrive, and counts connections only to
answer 503. Measured with uvicorn 0.54.0 (h11, ``limit_concurrency=32``, ``backlog=100``) against 1,000 connections that send 4 kB
of an unfinished header: all 1,000 were accepted and open 9 s later, and whoever asked properly got 503. Here 32 of them were open
at a time, none after 9 s, and whoever asked got its answer within 0.1 s
(tests/integration/servers/test_answering.py has such attacks).

Rules:

* ``/healthz`` says that the loop goes round: whoever gets no answer within some seconds may restart the process.
* ``/readyz`` says whether the server takes messages now, and if not, why (503). A peer that is away is no reason: the server
  keeps what is for it. When it can keep no more, the server is ready for everything else, and says for whom it takes nothing. It
  is not ready when that holds for all peers.
* There are at most ``MAX_CONNECTIONS`` at a time; a request has ``MAX_REQUEST_BYTES`` and must be there within
  ``REQUEST_WITHIN_S``, and its answer must be taken within ``ANSWER_WITHIN_S``. All together keep ``MAX_KEPT_BYTES`` at most.
* When there are too many, the one that has been there for longest without an answer, of the place with the most, makes room: who
  asks at once is answered, however many are silent. Otherwise whoever wants a server to be restarted would only have to say
  nothing to it.
* Whoever asks without end must not slow down messages. ``MAX_PER_S`` connections are accepted in a second, and further ones wait
  at the system. Between two looks for ``/metrics`` there is a rest ``LOOK_RESTS`` times as long as the look took; all who ask
  meanwhile share the next look, so that nobody is told what was before it asked.
* Nobody is asked for a name here, there is no TLS, and metrics name peers: it listens on this machine only, unless it is
  told that more is meant (``net.security.exposure``).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from thence.core.topology.addresses import parse_address
from thence.errors import ConfigError
from thence.net.framing import address_text
from thence.net.security.exposure import check_answering
from thence.observe.metrics import CONTENT_TYPE, exposition
from thence.runtime.offenders import place_of
from thence.server.server import Server

LOOPBACK: Final = "127.0.0.1"
MAX_CONNECTIONS: Final = 32
"""How many connections there may be at a time."""
MAX_REQUEST_BYTES: Final = 8 * 1024
"""How long a request with its headers may be."""
MAX_PER_S: Final = 400
"""How many connections are accepted in a second."""
MAX_WAITING: Final = 100
"""How many connections may wait at the system to be accepted."""
LOOK_RESTS: Final = 9
"""How many times longer than a look the rest behind it is: looks take a tenth of the time at most."""
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
    """Answers HTTP requests for one server."""

    def __init__(self, server: Server) -> None:
        """``open`` begins to listen."""
        self._server = server
        self._accepting: dict[socket.socket, asyncio.Task[None]] = {}
        self.connections: set[asyncio.StreamWriter] = set()
        self.asking: dict[asyncio.StreamWriter, str] = {}
        """Those of them for whom there is no answer yet, the oldest first, and where each is."""
        self._looking = asyncio.Lock()
        self._rested = 0.0
        self._look: asyncio.Task[str] | None = None
        """The look that has not begun, for all who ask until then."""
        self._pages: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/healthz": self._health,
            "/readyz": self._ready,
        }

    async def open(self, listen: str) -> str:
        """Listen; return the address with the port that was really taken."""
        host, port = parse_address(parse_listen(listen))
        check_answering(host, insecure=self._server.node.options.insecure)
        loop, bound = asyncio.get_running_loop(), port
        try:
            for family, _, _, _, address in dict.fromkeys(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)):
                listening = socket.create_server(address, family=family, backlog=MAX_WAITING)
                listening.setblocking(False)
                bound = listening.getsockname()[1]
                self._accepting[listening] = loop.create_task(self._accept(listening))
        except OSError as error:
            self.close()
            raise ConfigError(f"cannot listen for --metrics on {listen}: {error.strerror or error}") from error
        return f"{host}:{bound}"

    def close(self) -> None:
        """Answer nobody any more. What is being answered ends by itself, within the limits of the module."""
        for listening, task in self._accepting.items():
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # At once; the task closes it when it ends.
            task.cancel()

    # One connection.

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                with suppress(OSError):  # It has gone already, or no more files can be opened now.
                    accepted, _ = await loop.sock_accept(listening)
                    await loop.connect_accepted_socket(self._protocol, accepted)
                await asyncio.sleep(1 / MAX_PER_S)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=MAX_REQUEST_BYTES), self._came)

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = address_text(writer.get_extra_info("peername"))
        if len(self.connections) >= MAX_CONNECTIONS and not self._show_out():
            self._server.complain(address, f"turned away: all {MAX_CONNECTIONS} (MAX_CONNECTIONS) who asked are being answered")
            writer.transport.abort()
            return
        self.connections.add(writer)
        self.asking[writer] = place_of(address.rpartition(":")[0])
        try:
            # Cancelled when the loop ends: there is nobody to tell, and streams of asyncio would complain.
            with suppress(OSError, TimeoutError, asyncio.CancelledError):
                await self._converse(reader, writer, address)
        finally:
            self._gone(writer)
            writer.transport.abort()

    def _show_out(self) -> bool:
        """Let somebody who has no answer yet make room for another; return whether there is anybody."""
        if not self.asking:
            return False
        most, _ = Counter(self.asking.values()).most_common(1)[0]
        writer = next(one for one, place in self.asking.items() if place == most)
        address = address_text(writer.get_extra_info("peername"))
        self._server.complain(address, f"shown out: it has no answer yet, and there are MAX_CONNECTIONS ({MAX_CONNECTIONS}) here")
        self._gone(writer)
        writer.transport.abort()
        return True

    def _gone(self, writer: asyncio.StreamWriter) -> None:
        self.connections.discard(writer)
        self.asking.pop(writer, None)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
        head_only = False
        try:
            async with asyncio.timeout(REQUEST_WITHIN_S):
                request = await reader.readuntil(b"\r\n\r\n")
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
        self.asking.pop(writer, None)
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
        if self._look is None:
            self._look = asyncio.create_task(self._look_rested())
        return Answer(HTTPStatus.OK, await asyncio.shield(self._look), CONTENT_TYPE)

    async def _look_rested(self) -> str:
        """Look at the server when it is time."""
        loop = asyncio.get_running_loop()
        async with self._looking:
            await asyncio.sleep(max(0.0, self._rested - loop.time()))
            self._look = None
            began = time.thread_time()
            text = await exposition(self._server)
            self._rested = loop.time() + LOOK_RESTS * (time.thread_time() - began)
            return text

    async def _health(self) -> Answer:
        return Answer(HTTPStatus.OK, "ok\n")

    async def _ready(self) -> Answer:
        trouble = self._server.status.not_ready
        if trouble:
            remedy = self._server.status.remedy
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{trouble}\n{remedy}\n" if remedy else f"{trouble}\n")
        stalled = self._server.status.stalled
        remedy = self._server.status.remedy
        return Answer(HTTPStatus.OK, "\n".join(["ready" + (f", but {stalled}" if stalled else ""), *filter(None, [remedy]), ""]))


def _first_line(request: bytes) -> tuple[str, str]:
    """Return method and path of a request, or two empty words if it is none."""
    words = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    return (words[0], words[1]) if len(words) == 3 and words[2].startswith("HTTP/1.") else ("", "")
