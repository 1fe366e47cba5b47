"""Peers for whom nothing more is taken, because the queue to them is full: which, since when, and when that is over.

Rules:

* What a client sends is refused for want of room in the queues that it would go into, and for no others
  (``core.transport.quotas``). So one peer that is away stops what goes to it, through it or to everyone. Everything else goes
  on.
* Whoever was refused is told once there is room again, not before: it may wait for days, and others have work meanwhile.
* A queue that is full for a moment is how a fast sender waits for others. It is told when it has been full for ``LOG_AFTER_S``:
  in the status, and with one line in the log; with another one when there is room again.
* A closed mailbox makes those wait who write to it. The log says that in the same way, so that whoever reads only the log finds
  whose it is.
"""

from __future__ import annotations

import logging
import time
from typing import Final, NamedTuple

from thence.core.member.contract import Submit
from thence.core.member.member import Member
from thence.core.transport.quotas import FullQueue
from thence.errors import Busy, UsageError
from thence.node.directory.mailboxes import Mailboxes

LOG_AFTER_S: Final = 1.0
"""How long a queue is full before that is told."""

MAILBOX_AGAIN_S: Final = 60.0
"""How long it takes at least until the log says once more that a mailbox is full: one may be full again and again."""

log = logging.getLogger("thence.stalls")


class Stall(NamedTuple):
    """A full queue, since when by the clock of ``time.monotonic``, and what was refused last because of it."""

    queue: FullQueue
    since: float
    refused: Submit

    @property
    def seconds(self) -> float:
        """How long it has been full."""
        return time.monotonic() - self.since

    @property
    def lasts(self) -> bool:
        """Whether that is long enough to be told."""
        return self.seconds >= LOG_AFTER_S

    def __str__(self) -> str:
        peer = self.queue.peer
        return (
            f"nothing more is taken for {peer!r} since {self.seconds:.0f} s: {self.queue}. What goes to {peer!r}, through it or "
            f"to everyone waits; everything else goes on. Start {peer!r} again or mend the way to it; if it runs, `thence "
            "status` of it says why it takes nothing; if it is gone for good, remove it with `thence topology apply`"
        )


class Stalls:
    """The full queues of one server: to whom, since when, and who waits for room."""

    def __init__(self, member: Member) -> None:
        """Begin with room everywhere."""
        self._member = member
        self._found: dict[tuple[str, str], Stall] = {}
        self._logged: set[tuple[str, str]] = set()

    def check(self, to: tuple[str, ...] | None, *, notice: bool) -> None:
        """Refuse a message for these servers as ``Busy`` if a queue that it would go into is full."""
        admission = self._member.admission
        if not admission.may_be_full:
            return
        asked = Submit(to, notice=notice)
        full = admission.full_queue(asked)
        if full is None:
            return
        way = full.place, full.peer
        before = self._found.get(way)
        if before is None:
            self._found[way] = Stall(full, time.monotonic(), asked)
        elif not notice:  # A notice may have room where others have none.
            self._found[way] = Stall(full, before.since, asked)
        raise Busy(str(full))

    def look(self) -> bool:
        """Return whether a queue has room again; to be called when something may have been acknowledged."""
        over = [way for way, stall in self._found.items() if self._has_room(stall.refused)]
        for way in over:
            stall = self._found.pop(way)
            if way in self._logged:
                self._logged.discard(way)
                log.warning("messages for %s are taken again, after %g s", stall.queue.peer, round(stall.seconds))
        return bool(over)

    def tell(self) -> None:
        """Write into the log what has been full for long; to be called now and then."""
        for way, stall in self._found.items():
            if stall.lasts and way not in self._logged:
                self._logged.add(way)
                log.warning("%s", stall)

    def _has_room(self, refused: Submit) -> bool:
        try:
            return self._member.admission.full_queue(refused) is None
        except UsageError:
            return True  # The fabric has changed, and it may be refused for another reason.

    def __bool__(self) -> bool:
        return bool(self._found)

    def all(self) -> list[Stall]:
        """Return the queues that have been full for long, the first one first."""
        return [stall for stall in self._found.values() if stall.lasts]

    @property
    def peers(self) -> dict[str, float]:
        """For whom nothing has been taken for long, and for how many seconds."""
        return {stall.queue.peer: stall.seconds for stall in reversed(self.all())}


class MailboxStall:
    """Writes into the log that mailboxes are closed, or that a full one stops deliveries, and when that is over."""

    def __init__(self) -> None:
        """Begin with room everywhere."""
        self._since: float | None = None
        self._logged_at = -MAILBOX_AGAIN_S
        self._logged = False

    def look(self, mailboxes: Mailboxes, now: float) -> None:
        """Take note of the closed mailboxes; to be called now and then."""
        client = mailboxes.in_the_way
        if not client:
            if self._logged and self._since is not None:
                log.warning("all mailboxes are open again, after %g s", round(now - self._since))
            self._since, self._logged = None, False
        elif self._since is None:
            self._since = now
        elif not self._logged and now - self._since >= LOG_AFTER_S and now - self._logged_at >= MAILBOX_AGAIN_S:
            self._logged, self._logged_at = True, now
            waits = "no deliveries are taken" if mailboxes.full else "whoever writes there waits, and everything else goes on"
            log.warning(
                "%s: %s. Start the program of that client, or make room with thence client purge or remove",
                mailboxes.why_closed(client),
                waits,
            )
