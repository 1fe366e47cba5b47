"""Tells all servers which mailboxes of a node are closed, and which are open again.

Rules:

* A notice is a message like any other, in causal order, and durable. So it goes out once, and a restart compares what was
  announced with what is.
* That a mailbox is closed is announced at once. That it is open again is announced by the clock, so no more than once in a while.
"""

from __future__ import annotations

from thence.errors import Busy, UsageError
from thence.node.directory.closings import MAX_CLOSED
from thence.node.directory.directory import Directory
from thence.node.messages.intake import Intake
from thence.storage.bodies import Closing


class ClosingNotices:
    """What others know of the mailboxes of one node."""

    def __init__(self, directory: Directory, intake: Intake) -> None:
        """Tell of the mailboxes of ``directory``, by ``intake``."""
        self._directory = directory
        self._intake = intake
        self._announced: set[str] = set()
        """Clients whose mailbox was last announced as closed."""

    def recovered(self) -> None:
        """Everything is brought back: what was announced has come back, too."""
        closed = self._directory.mailboxes.closed
        self._announced = set(self._directory.closings.of(self._directory.server))
        closed.changed = dict.fromkeys([*self._announced, *closed])

    def tell(self) -> None:
        """Tell what has changed; to be called now and then."""
        self.tell_closed()
        self._tell(closed=False)
        if all((name in self._announced) == (name in self._directory.mailboxes.closed) for name in self._changed):
            self._changed.clear()

    def tell_closed(self) -> None:
        """Tell which mailboxes have closed."""
        if self._changed:
            self._tell(closed=True)

    @property
    def _changed(self) -> dict[str, None]:
        return self._directory.mailboxes.closed.changed

    def _tell(self, *, closed: bool) -> None:
        directory, announced = self._directory, self._announced
        known = directory.state.mailboxes
        announced.intersection_update(known)  # Of those that are gone all know.
        names = [name for name in self._changed if (name in directory.mailboxes.closed) == closed != (name in announced)]
        names = [name for name in names if name in known]
        names = names[: MAX_CLOSED - len(announced)] if closed else names
        if not names:
            return
        try:
            self._intake.announce(Closing(directory.server, tuple(names), closed))
        except Busy:
            return  # Tried again by the clock.
        except UsageError:
            pass  # We have left: there is nobody to tell, now or later.
        if closed:
            announced.update(names)
        else:
            announced.difference_update(names)
