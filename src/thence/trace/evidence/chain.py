"""The shortest causal chain between two messages: why the later one had to come after the earlier one.

A chain is a list of messages from ``earlier`` to ``later``. For each message b in it after a, the send of b
follows, at b's sender, the send of a or the first delivery of a there. Of all chains this is one with the fewest
messages.

Which one, where several are equally short: going back from ``later``, each message is the one that reached the
sender of its successor first (by delivery, or by its own send at the start). A process has one event at each
position, so that leaves no choice, and the order of rows in files does not matter.

How: level k of the reach says, for each process, which is its first event that a chain of k further messages can
lead to. The next level needs, for each pair of processes, the first arrival among the messages that the one sends
after a point, which is a minimum over a suffix, computed once per pair. So a chain costs by the number of processes
and its own length, not by messages.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from thence.errors import InternalError
from thence.trace.evidence.history import DELIVER, NOBODY

MAX_KEPT_SOURCES: Final = 4096
"""For how many earlier messages the reach is remembered."""

Numbers = npt.NDArray[np.int64]

Reach = npt.NDArray[np.int64]
"""For each process, the event where it is reached first; the number of all events if it is not reached."""


class Recorded(Protocol):
    """What is needed of a run, or of a part of one that holds all that lies between the messages asked for."""

    @property
    def names(self) -> Sized: ...
    @property
    def events(self) -> Sized: ...
    @property
    def roles(self) -> bytes | bytearray: ...
    @property
    def process_of(self) -> Sequence[int] | Numbers: ...
    @property
    def message_of(self) -> Sequence[int] | Numbers: ...
    @property
    def sent_at(self) -> Sequence[int] | Numbers: ...
    @property
    def message_names(self) -> Sequence[str]: ...


class Chains:
    """Finds chains in one run."""

    def __init__(self, history: Recorded, backward: set[int]) -> None:
        self._history = history
        self._links = Links(history, backward)
        self._kept: dict[int, list[Reach]] = {}

    def between(self, earlier: int, later: int) -> tuple[str, ...]:
        """Return the chain between two messages, the send of the first of which happens before that of the second."""
        history = self._history
        sent_at = history.sent_at[later]
        sender = history.process_of[sent_at]
        levels = self._levels_from(earlier)
        level = 0
        while (arrival := self._arrival(levels, level, sender, sent_at)) >= sent_at:
            level += 1
        chain = [later]
        while level:
            message = history.message_of[arrival]
            chain.append(message)
            level -= 1
            arrival = int(levels[level][history.process_of[history.sent_at[message]]])
        chain.append(earlier)
        return tuple(history.message_names[message] for message in reversed(chain))

    def _levels_from(self, earlier: int) -> list[Reach]:
        """Return what is known so far of the reach of a message; level 0 is the message alone."""
        levels = self._kept.get(earlier)
        if levels is None:
            if len(self._kept) >= MAX_KEPT_SOURCES:
                self._kept.clear()
            levels = self._kept[earlier] = [self._links.reach_of_one(earlier)]
        return levels

    def _arrival(self, levels: list[Reach], level: int, process: int, before: int) -> int:
        """Return where a process is reached at a level; ``before`` or later means in vain. Lower levels must be known."""
        if level < len(levels):
            return int(levels[level][process])
        fresh = self._fresh(levels)
        if not len(fresh):
            raise InternalError("a chain was asked for between messages of which the first does not precede the second")
        arrival = self._links.follow(levels[-1], fresh, np.array([process]))[0]
        if arrival >= before:  # the next level needs this one for all processes
            everyone = np.arange(len(levels[-1]))
            levels.append(np.minimum(levels[-1], self._links.follow(levels[-1], fresh, everyone)))
        return int(arrival)

    def _fresh(self, levels: list[Reach]) -> Numbers:
        """Return the processes that the last level reached earlier than the one before; the rest were followed already."""
        before = levels[-2] if len(levels) > 1 else len(self._history.events)
        return np.flatnonzero(levels[-1] < before)


class Links:
    """The deliveries of a run that come after their send, by message and by pair of processes."""

    def __init__(self, history: Recorded, backward: set[int]) -> None:
        message_of = np.array(history.message_of, np.int64)
        sent_at = np.array(history.sent_at, np.int64)
        process_of = np.array(history.process_of, np.int64)
        events = np.flatnonzero(np.frombuffer(history.roles, np.uint8) >= DELIVER)
        events = events[(sent_at[message_of[events]] != NOBODY) & ~np.isin(events, list(backward))]
        sent = sent_at[message_of[events]]
        self._history = history
        self._size = len(history.events) + 1
        self._by_message = events[np.argsort(message_of[events], kind="stable")]
        self._message = message_of[self._by_message]
        key = self._key(process_of[sent], process_of[events], sent)
        order = np.argsort(key, kind="stable")
        self._sorted = key[order]
        # For each message of a pair, the first arrival of it and of those sent after it. Read backwards, pairs only get
        # smaller; so with the pair in front of the event, one running minimum serves all pairs. A last one is nobody's.
        arrival = self._sorted // self._size * self._size + events[order]
        self._soonest = np.append(np.minimum.accumulate(arrival[::-1])[::-1], np.iinfo(np.int64).max)

    def _key(self, sender: Numbers, receiver: Numbers, event: Numbers) -> Numbers:
        return (sender * len(self._history.names) + receiver) * self._size + event

    def reach_of_one(self, message: int) -> Reach:
        """Return where a message alone leads to: its send and its first deliveries."""
        history = self._history
        reach = np.full(len(history.names), len(history.events), np.int64)
        begin, end = np.searchsorted(self._message, [message, message + 1])
        for event in [history.sent_at[message], *self._by_message[begin:end].tolist()]:
            process = history.process_of[event]
            reach[process] = min(reach[process], event)
        return reach

    def follow(self, reach: Reach, senders: Numbers, receivers: Numbers) -> Reach:
        """Return the first arrival at each receiver of messages that the senders sent after they were reached."""
        after = self._key(senders[:, None], receivers[None, :], reach[senders][:, None])
        place = np.searchsorted(self._sorted, after, side="right")
        found = self._soonest[place] - after // self._size * self._size
        arrivals: Reach = np.minimum(found, len(self._history.events)).min(axis=0)
        return arrivals
