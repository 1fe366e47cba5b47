"""One run of a trace in its canonical order, with processes and messages as numbers.

Files give events in any order. Here they are put in the only order that counts, each process's own, and what several
checks ask is answered once: which send of a message is *the* send, which delivery is the first at its process.

Rules:

* Within a process, events are ordered by index. A trace that repeats an index is not well-formed, but must still be
  judged the same way every time: ties are ordered by kind, message and destinations.
* Processes are numbered in the order of their names, and an event's number grows with process and position. So within
  one process, comparing event numbers compares positions.
* The first send of a message by (process, index) is its send. Others are ``RESEND`` and carry nothing.
* The first delivery of a message at a process is ``DELIVER``, later ones there are ``AGAIN``.
* A send or delivery without a message id is ``OTHER``. A send without ``to`` is a send to nobody knows whom: it
  carries causality, and no delivery of it can be said to be missing or misplaced.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from thence.trace.events import DELIVER as DELIVER_KIND
from thence.trace.events import SEND as SEND_KIND
from thence.trace.events import Event

OTHER: Final = 0
SEND: Final = 1
RESEND: Final = 2
DELIVER: Final = 3
AGAIN: Final = 4

NOBODY: Final = -1

_by_index = attrgetter("index")


class History:
    """One run. Processes, messages, senders and events are numbers; ``names`` and ``message_names`` give the words.

    A *sender* is a process that sends; senders are numbered apart, in the order of their processes, so that clocks need
    no entries for the silent. The *rank* of a message is the number of messages its sender sent before it.
    """

    def __init__(self, run: str | None, events: Iterable[Event]) -> None:
        self.run = run
        self.names: list[str] = []
        self.events: list[Event] = []
        self.first_event: list[int] = [0]
        """Process p's events are ``first_event[p] … first_event[p + 1] - 1``."""
        self.process_of: list[int] = []
        self.roles = bytearray()
        self.message_of: list[int] = []
        """The message of each event; ``NOBODY`` for ``OTHER``."""
        self.message_names: list[str] = []
        self.sent_at: list[int] = []
        """The event that sent each message; ``NOBODY`` if it was never sent."""
        self.to: list[frozenset[int] | None] = []
        self.sender_of: list[int] = []
        self.rank_of: list[int] = []
        self.sender_process: list[int] = []
        self.sent_by: list[list[int]] = []
        """Each sender's messages in the order it sent them, so that ``sent_by[sender][rank]`` is a message."""
        self.delivered: list[set[int]] = []
        """The messages that each process delivered at any time."""
        self._numbers: dict[str, int] = {}
        self._destinations: dict[tuple[str, ...], frozenset[int]] = {}
        self._fill(events)

    def name_of(self, event: int) -> str:
        """Return the process where an event happened."""
        return self.names[self.process_of[event]]

    def _fill(self, events: Iterable[Event]) -> None:
        by_process: dict[str, list[Event]] = defaultdict(list)
        groups: set[tuple[str, ...]] = set()
        for event in events:
            by_process[event.process].append(event)
            if event.to and event.kind == SEND_KIND:
                groups.add(event.to)
        self.names = sorted(set(by_process).union(*groups))
        number = {name: process for process, name in enumerate(self.names)}
        self._destinations = {group: frozenset(number[name] for name in group) for group in groups}
        self._destinations[()] = frozenset()
        for process, name in enumerate(self.names):
            self._add_process(process, in_order(by_process.pop(name, ())))

    def _add_process(self, process: int, events: list[Event]) -> None:
        delivered: set[int] = set()
        sent: list[int] = []
        for event in events:
            role, message = OTHER, NOBODY
            if event.message is not None:
                if event.kind == DELIVER_KIND:
                    message = self._number(event.message)
                    role = AGAIN if message in delivered else DELIVER
                    delivered.add(message)
                elif event.kind == SEND_KIND:
                    message = self._number(event.message)
                    role = self._add_send(message, event.to, sent, len(self.roles))
            self.roles.append(role)
            self.message_of.append(message)
        if sent:
            self.sent_by.append(sent)
            self.sender_process.append(process)
        self.delivered.append(delivered)
        self.events.extend(events)
        self.process_of.extend([process] * len(events))
        self.first_event.append(len(self.events))

    def _add_send(self, message: int, to: tuple[str, ...] | None, sent: list[int], event: int) -> int:
        if self.sent_at[message] != NOBODY:
            return RESEND
        self.sent_at[message] = event
        self.to[message] = None if to is None else self._destinations[to]
        self.sender_of[message] = len(self.sent_by)
        self.rank_of[message] = len(sent)
        sent.append(message)
        return SEND

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.message_names)
            self.message_names.append(name)
            self.sent_at.append(NOBODY)
            self.to.append(None)
            self.sender_of.append(NOBODY)
            self.rank_of.append(NOBODY)
        return number


def in_order(events: Sequence[Event]) -> list[Event]:
    """Return the events of one process in its own order."""
    ordered = sorted(events, key=_by_index)
    if len({event.index for event in ordered}) < len(ordered):
        ordered.sort(key=_full_order)
    return ordered


def _full_order(event: Event) -> tuple[object, ...]:
    message, to = event.message, event.to
    return event.index, event.kind, message is not None, message or "", to is not None, to or ()
