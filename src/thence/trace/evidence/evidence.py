"""What the checks of one run share, each part computed when a check first asks for it.

A check takes an :class:`Evidence` and yields violations. Checks know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import msgspec

from thence.trace.evidence.causality import Replay, replay
from thence.trace.evidence.chain import Chains
from thence.trace.evidence.history import DELIVER, NOBODY, History
from thence.trace.evidence.inbox import Channels, ProcessInbox, channels_of
from thence.trace.verdict import Violation


class Evidence:
    """One run and what follows from it."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def replay(self) -> Replay:
        return replay(self.history)

    @cached_property
    def chains(self) -> Chains:
        return Chains(self.history, self.replay.backward)

    @cached_property
    def undelivered(self) -> list[tuple[int, int]]:
        """Each (message, destination) such that the destination never delivered the message."""
        delivered = self.history.delivered
        return [
            (message, process)
            for message, destinations in enumerate(self.history.to)
            for process in sorted(destinations or ())
            if message not in delivered[process]
        ]

    @cached_property
    def _channels(self) -> Channels:
        return channels_of(self.history)

    def inbox(self, process: int) -> ProcessInbox:
        """Return a fresh inbox, of which nothing has been delivered."""
        return ProcessInbox(self._channels[process], len(self.history.sent_by))

    def first_deliveries(self, process: int) -> Iterator[tuple[int, int]]:
        """Give (event, message) of each first delivery at a process, in its order."""
        history = self.history
        for event in range(history.first_event[process], history.first_event[process + 1]):
            if history.roles[event] == DELIVER:
                yield event, history.message_of[event]

    def late(self, name: str, event: int, earlier: int, missing: int, tell: Callable[[str, str, str, int], str]) -> Violation:
        """Return the row for a delivery that came before ``missing`` messages that it had to follow, of which this is one."""
        history = self.history
        later, earlier_name = history.message_of[event], history.message_names[earlier]
        detail = tell(history.name_of(event), history.message_names[later], earlier_name, missing)
        chain = self.chains.between(earlier, later)
        return msgspec.structs.replace(self.row(name, event, detail), earlier=earlier_name, missing=missing, chain=chain)

    def row(self, name: str, event: int, detail: str) -> Violation:
        """Return the row for an event that offends against a property."""
        at = self.history.events[event]
        return Violation(property=name, process=at.process, later=at.message, run=self.history.run, index=at.index, detail=detail)

    def has_send_before(self, event: int) -> bool:
        """Return whether a delivery is of a message that was sent, and not sent causally after it."""
        return self.history.sent_at[self.history.message_of[event]] != NOBODY and event not in self.replay.backward
