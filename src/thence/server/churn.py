"""Topics that are followed and left again and again: all clients of a server that do so share ``CHURN_PER_S``, in turn.

To follow a topic, or to leave it, is a message to all servers, and goes to all their disks, while it costs a client 20 bytes. A
client that follows topics and stays with them comes to an end, and waits for nobody.

Rules:

* Free is to follow one of the first ``FREE_TOPICS`` topics of a client that it does not follow yet.
* Everything else takes a credit: to leave a topic, to follow one that it follows already, and to follow more. There are
  ``CHURN_BURST`` at first, and ``CHURN_PER_S`` more, for all clients together: another name, connection or address gets no more.
* With none left clients wait. Each has one credit in turn, so who leaves a few topics does not wait for those with thousands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from thence.node.sessions.session import Session

CHURN_PER_S: Final = 200
CHURN_BURST: Final = 200
FREE_TOPICS: Final = 5_000


class Churn:
    """The credits of one server."""

    def __init__(self, wake: Callable[[list[Session]], None]) -> None:
        """``wake`` is told which session may go on."""
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._credits = float(CHURN_BURST)
        self._at = self._loop.time()
        self._waiting: dict[Session, None] = {}
        """Those who wait, the next one first."""
        self._granted: set[Session] = set()
        """Those who have had their turn, and have not used it."""
        self._timer: asyncio.TimerHandle | None = None

    def take(self, session: Session) -> bool:
        """Return whether a session may do one such thing now; otherwise it is told when."""
        if session in self._granted:
            self._granted.remove(session)
            return True
        if not self._waiting and self._spend():
            return True
        self._waiting[session] = None
        self._wait()
        return False

    def drop(self, session: Session) -> None:
        """A session has ended."""
        self._waiting.pop(session, None)
        self._granted.discard(session)

    def _spend(self) -> bool:
        now = self._loop.time()
        self._credits = min(CHURN_BURST, self._credits + (now - self._at) * CHURN_PER_S)
        self._at = now
        if self._credits < 1:
            return False
        self._credits -= 1
        return True

    def _wait(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = self._loop.call_later(1 / CHURN_PER_S, self._next)

    def _next(self) -> None:
        self._timer = None
        granted = []
        while self._waiting and self._spend():
            session = next(iter(self._waiting))
            del self._waiting[session]
            granted.append(session)
        self._granted.update(granted)
        self._wake(granted)
        self._wait()
