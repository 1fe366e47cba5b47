"""Futures that answers resolve: the requests of an endpoint, and what else it waits for by a key.

Rules:

* A reply counts if it has the id of a request that waits, comes from the one who was asked, and comes to us alone: not on a topic
  and not to everyone. Servers vouch for the sender of a message, so nobody else can reply.
* Ids are random, ``ID_BITS`` long: nobody guesses one, and a reply to an earlier program of this name fits none of this one.
* What does not count is left out, and counts as done: it must not stop what comes behind it. A reply with no request that waits
  for it is mostly late, and is only counted. The program gets a warning of one for a request to somebody else.
* At most ``MAX_REQUESTS`` wait at a time.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Generic, TypeVar

from thence.client.message import Message
from thence.client.parts.state import EndpointState
from thence.errors import Busy

ID_BITS: Final = 63
MAX_REQUESTS: Final = 65_536
"""How many requests of one program may wait for their replies."""

K = TypeVar("K", bound=Hashable)


class Requests:
    """The requests of one endpoint that wait for their replies."""

    def __init__(self, state: EndpointState) -> None:
        """Start with no request."""
        self._waiting: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self.stray = 0
        """How many replies were left out."""
        state.on_end.append(self._end)

    def ask(self, whom: str) -> tuple[int, asyncio.Future[Message]]:
        """Return the id of a new request, and the future of its reply. ``forget`` it in the end."""
        if len(self._waiting) >= MAX_REQUESTS:
            raise Busy(f"{len(self._waiting)} requests wait for their replies; MAX_REQUESTS is {MAX_REQUESTS}")
        request = 0
        while not request or request in self._waiting:
            request = secrets.randbits(ID_BITS)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request] = whom, reply
        return request, reply

    def forget(self, request: int) -> None:
        """Wait no longer for the reply to this request."""
        self._waiting.pop(request, None)

    def replied(self, message: Message, *, everyone: bool = False) -> str:
        """Give a reply to its request. Return what is wrong with it, if it is from somebody who was not asked."""
        whom, reply = self._waiting.get(message.item.reply, ("", None))
        if reply is None or reply.done():
            self.stray += 1
            return ""
        if message.sender != whom or message.topic is not None or everyone:
            self.stray += 1
            how = f"on the topic {message.topic!r}" if message.topic is not None else "to everyone" if everyone else "directly"
            return f"a reply from {message.sender!r}, sent {how}, to a request to {whom!r}; only {whom!r} can reply, and directly"
        reply.set_result(message)
        return ""

    def returned(self, request: int) -> None:
        """A request came back: there will be no reply to it."""
        whom, reply = self._waiting.get(request, ("", None))
        if reply is not None:
            answer_to(reply, TimeoutError(f"no reply from {whom!r}: the request came back, since {whom!r} has lost its name"))

    def _end(self, failure: Exception) -> bool:
        return fail_all([reply for _, reply in self._waiting.values()], failure)


class Pending(Generic[K]):
    """Futures by key: each key is asked for once, however many wait for it."""

    def __init__(self, state: EndpointState) -> None:
        """Start with nothing asked for."""
        self._futures: dict[K, asyncio.Future[None]] = {}
        state.on_end.append(self._end)

    def __contains__(self, key: K) -> bool:
        return key in self._futures

    @property
    def keys(self) -> list[K]:
        """What is asked for, the oldest first."""
        return list(self._futures)

    def wait(self, key: K) -> asyncio.Future[None]:
        """Return a future that is done when the key is answered. Its waiters share it."""
        if key not in self._futures:
            self._futures[key] = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._futures[key])

    async def ask(self, key: K, question: Callable[[], None]) -> None:
        """Wait until the key is answered. Ask for it, unless somebody has."""
        fresh = key not in self._futures
        answered = self.wait(key)
        if fresh:
            question()
        await answered

    def answer(self, key: K, error: Exception | None = None) -> bool:
        """Wake all who wait for a key, with an error if there is one; return whether it was asked for."""
        future = self._futures.pop(key, None)
        if future is not None:
            answer_to(future, error)
        return future is not None

    def _end(self, failure: Exception) -> bool:
        return fail_all(self._futures.values(), failure)


def fail_all(futures: Iterable[asyncio.Future[Any]], failure: Exception) -> bool:
    """Fail all futures that are not done; return whether there were any."""
    waiting = [future for future in futures if not future.done()]
    for future in waiting:
        future.set_exception(failure)
        future.exception()  # It counts as seen: whoever waits for two of them gets it by one, and asyncio would print the other.
    return bool(waiting)


def answer_to(question: asyncio.Future[Any], answer: object) -> None:
    """Answer somebody, who may not wait any more."""
    if question.done():
        return
    if isinstance(answer, Exception):
        question.set_exception(answer)
    else:
        question.set_result(answer)
