"""The requests of one endpoint that wait for their replies.

Rules:

* A reply counts if it has the id of a request that waits, comes from the one who was asked, and comes to us alone: not on a topic
  and not to everyone. Servers vouch for the sender of a message, so nobody else can reply.
* Ids are random, ``ID_BITS`` long: nobody guesses one, and a reply to an earlier program of this name fits none of this one.
* What does not count is left out, and counts as done: it must not stop what comes behind it. A reply with no request that waits
  for it is mostly late, and is only counted. One that is for a request and from somebody else is told to the program too.
* At most ``MAX_REQUESTS`` wait at a time.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Final

from thence.errors import Busy
from thence.runtime.letters import Message

ID_BITS: Final = 63
MAX_REQUESTS: Final = 65_536
"""How many requests of one program may wait for their replies."""


class Requests:
    """See the module's text."""

    def __init__(self) -> None:
        """Nobody was asked."""
        self._waiting: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self.stray = 0
        """How many replies came that no request waits for, or from somebody who was not asked."""

    def ask(self, whom: str) -> tuple[int, asyncio.Future[Message]]:
        """Return the id of a new request to somebody, and what is done when the reply is there. ``forget`` it in the end."""
        if len(self._waiting) >= MAX_REQUESTS:
            raise Busy(f"{len(self._waiting)} requests wait for their replies; MAX_REQUESTS is {MAX_REQUESTS}")
        request = 0
        while not request or request in self._waiting:
            request = secrets.randbits(ID_BITS)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[request] = whom, reply
        return request, reply

    def forget(self, request: int) -> None:
        """Nobody waits for the reply to this request any more."""
        self._waiting.pop(request, None)

    def replied(self, message: Message, *, everyone: bool = False) -> str:
        """Give a reply to whoever waits for it. Return what is wrong with it, if somebody else replies to the request."""
        whom, reply = self._waiting.get(message.letter.reply, ("", None))
        if reply is None or reply.done():
            self.stray += 1
            return ""
        if message.sender != whom or message.topic is not None or everyone:
            self.stray += 1
            how = f"on the topic {message.topic!r}" if message.topic is not None else "to everyone" if everyone else "directly"
            return f"a reply from {message.sender!r}, sent {how}, to a request to {whom!r}; only {whom!r} can reply, and directly"
        reply.set_result(message)
        return ""

    @property
    def waiting(self) -> Iterator[asyncio.Future[Message]]:
        """What is waited for."""
        return (reply for _, reply in self._waiting.values())
