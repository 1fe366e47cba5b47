"""Who goes on next when there is room: sessions in turn, by bytes, and so much in one turn of the loop.

What a client sends goes into the member at once while there is room. What has to wait is served by deficit round robin: each
session has ``QUANTUM_BYTES`` more in each round, and what it does not use, because its next message is larger, it keeps for the
next round. So a client with large messages, or with a great many, gets as many bytes as another one, and no more.

Rules:

* A session that may not go on now, because a queue that it needs is full or too much of it is not durable, leaves the round. It
  comes back when it is told of room.
* While the server takes nothing at all, the round stands still: whoever was next is next when there is room.
* After ``TURN_BYTES`` the loop goes on: others are read, and written to, in between.
* A session alone needs no rounds to save for a large message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, Protocol, TypeVar

QUANTUM_BYTES: Final = 64 * 1024
"""What a session may send more in each round."""

TURN_BYTES: Final = 1024 * 1024
"""After how many bytes of all sessions the loop goes on, and one message more."""

MESSAGE_BYTES: Final = 256
"""What a message costs beside its bytes: many small ones are work, too."""


class Waiting(Protocol):
    """A session with something that waits."""

    saved_bytes: int
    """What it has saved in earlier rounds."""

    @property
    def next_bytes(self) -> int:
        """What its next message costs; 0: nothing waits, or it may not go on now."""

    def serve(self) -> bool:
        """Send the next message; return whether that could be done."""


WaitingT = TypeVar("WaitingT", bound=Waiting)


class Rounds(Generic[WaitingT]):
    """The sessions whose messages wait for room, served in turn by bytes."""

    def __init__(self, is_here: Callable[[WaitingT], bool], stands_still: Callable[[], bool]) -> None:
        """``is_here`` says whether a session is still to be served, ``stands_still`` whether nothing is taken from anybody."""
        self._is_here = is_here
        self._stands_still = stands_still
        self._turn: deque[WaitingT] = deque()
        self._known: set[int] = set()
        self._current: WaitingT | None = None
        """Whose turn it is, if it has had its quantum for that."""
        self._loop = asyncio.get_running_loop()
        self._due = False

    def wake(self, sessions: Iterable[WaitingT]) -> None:
        """These may be able to go on."""
        for session in sessions:
            if id(session) not in self._known:
                self._known.add(id(session))
                self._turn.append(session)
        self._run_soon()

    def _run_soon(self) -> None:
        if self._turn and not self._due:
            self._due = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._due = False
        left = TURN_BYTES
        while self._turn and left > 0:
            if self._stands_still():
                return
            left -= max(MESSAGE_BYTES, self._serve(self._turn[0]))
        self._run_soon()

    def _serve(self, session: WaitingT) -> int:
        """Let the session whose turn it is send what it may; return how many bytes that was."""
        used = 0
        if session is not self._current:
            self._current = session
            session.saved_bytes += QUANTUM_BYTES
        while self._is_here(session) and (cost := session.next_bytes):
            if cost > session.saved_bytes and len(self._turn) > 1:
                self._turn.rotate(-1)
                self._current = None
                return used
            if not session.serve():
                if self._stands_still():
                    return used  # It is its turn when that is over.
                break
            used += cost
            session.saved_bytes = max(0, session.saved_bytes - cost)
            if used >= TURN_BYTES:
                return used
        session.saved_bytes = 0
        self._current = None
        self._turn.popleft()
        self._known.discard(id(session))
        return used
