"""A client for scripts: the same as ``thence.connect``, without ``await``.

A thread runs the loop; every call hands its work to it and waits. Messages come one by one, by ``receive`` or by iterating.

    with thence.connect_blocking("thence://127.0.0.1:7401", name="script") as client:
        client.send("bob", b"hello")
        for message in client:
            ...
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from thence.client.client import Client, connect
from thence.client.message import Message, To
from thence.errors import UsageError
from thence.runtime import deadline

T = TypeVar("T")


class BlockingClient:
    """A client for scripts, without ``await``. Use it in a ``with`` block, from one thread or several."""

    def __init__(self, url: str, name: str | None = None, **options: Any) -> None:
        """The same arguments as for ``connect``."""
        self._make: Callable[[], Client] = lambda: connect(url, name, **options)
        self._client: Client | None = None
        self._receiver: threading.Thread | None = None
        """Who has received a message last."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="thence-client", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._receiver is not None and self._receiver is not threading.current_thread():
                self._running._inbox.held_by(self._receiver)  # noqa: SLF001  It works on the message, and we are not it.
            self._wait(self._running.__aexit__(kind, error, trace))
        finally:
            self._end()

    async def _open(self) -> None:
        self._client = self._make()
        self._client.returned = lambda message, to: self.returned(message, to)  # type: ignore[method-assign]  # noqa: PLW0108
        await self._client.__aenter__()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise UsageError("use the client in a 'with' block")
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("this would wait for itself: what is called by the client may not wait for it; use another thread")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def _running(self) -> Client:
        if self._client is None:
            raise UsageError("use the client in a 'with' block")
        return self._client

    @property
    def name(self) -> str:
        """How others write to it."""
        return self._running.name

    def send(self, to: To, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Send, and wait until it is accepted."""
        self._wait(self._running.send(to, body, headers=headers))

    def publish(self, topic: str, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish, and wait until it is accepted."""
        self._wait(self._running.publish(topic, body, headers=headers))

    def request(self, to: str, body: Any, *, headers: Mapping[str, str] | None = None, within: float = 30.0) -> Message:
        """Send a request and return the reply."""
        return self._wait(self._running.request(to, body, headers=headers, within=within))

    def reply(self, message: Message, body: Any, *, headers: Mapping[str, str] | None = None) -> None:
        """Answer a request, and wait until that is accepted."""
        self._wait(self._reply(message, body, headers))

    async def _reply(self, message: Message, body: Any, headers: Mapping[str, str] | None) -> None:
        client = self._running
        await client.room()
        client.reply(message, body, headers=headers)
        await client.flush()

    def stable(self) -> None:
        """Wait until everything that was sent is in the stores of all its recipients' servers."""
        self._wait(self._running.stable())

    def safe(self, message: Message, within: float | None = None) -> None:
        """Wait until a message that came in is safe. ``TimeoutError`` if it is not within so many seconds."""
        self._wait(self._safe(message, within))

    async def _safe(self, message: Message, within: float | None) -> None:
        async with deadline.within(within, f"the message of {message.sender!r} at {message.position} is not safe"):
            await self._running.safe(message)

    def subscribe(self, topic: str) -> None:
        """Follow a topic."""
        self._wait(self._running.subscribe(topic))

    def unsubscribe(self, topic: str) -> None:
        """Follow it no longer."""
        self._wait(self._running.unsubscribe(topic))

    def known(self, name: str) -> None:
        """Wait until a client of this name is known at the server."""
        self._wait(self._running.known(name))

    def receive(self, within: float | None = None) -> Message:
        """Return the next message; the one before counts as done. ``TimeoutError`` if none comes within so many seconds."""
        message = self._wait(self._running.receive(within))
        self._receiver = threading.current_thread()
        return message

    def done(self) -> None:
        """Say that the message last received is done with."""
        self._receiver = None
        self._wait(self._done())

    async def _done(self) -> None:
        self._running.done()

    def returned(self, message: Message, to: str) -> None:
        """Called for a message of ours to ``to`` that was accepted and has come back, since that client has lost its name.

        The client may have handled it all the same. It is called in the thread of this client, so it must not call what waits,
        such as ``send``: put the message where another thread finds it. Meant to be replaced; by default it is a warning.
        """
        Client.returned(self._running, message, to)

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield self.receive()


def connect_blocking(url: str, name: str | None = None, **options: Any) -> BlockingClient:
    """Return a client for scripts, to be used in a ``with`` block. The arguments are those of ``connect``."""
    return BlockingClient(url, name, **options)
