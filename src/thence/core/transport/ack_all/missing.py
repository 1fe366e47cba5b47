"""What we miss of the streams of others where all ack to all, and whom we ask for it.

Rules:

* A message must exist if somebody claims it, or if one with a higher number exists. If it does not come within the step, it is
  missing.
* It may only be late, so we ask after a while: its sender, or with ``nearest`` the nearest member that has it, then the next.
"""

from __future__ import annotations

from typing import Any

from thence.core.transport.ack_all.claims import MAX_REQUESTED
from thence.core.transport.ack_all.state import AckAllState, AckGroup, Drafts
from thence.core.transport.acks import Attempts
from thence.core.transport.channel import WINDOW

ASKS_PER_RESEND = 40
"""A member that misses a message asks for it so many times sooner than its sender repeats it."""

ASKS_AGAIN_PER_RESEND = 2
"""The same for the time until it asks somebody else."""


class Missing:
    """The messages that we miss."""

    def __init__(self, group: AckGroup, state: AckAllState[Any]) -> None:
        """Go on from a saved state."""
        self._group = group
        self._state = state
        self.repeated = 0
        """How many frames came more than once."""
        self._exists = [0] * len(group.members)
        """For each stream, a number up to which messages must exist."""
        self._heard_of: dict[tuple[int, int], None] = {}
        """Messages that must exist, and are missing if they do not come within this step."""
        self.attempts: Attempts[tuple[int, int]] = Attempts()
        self._again_ns = group.resend_after_ns // ASKS_AGAIN_PER_RESEND
        for stream, received in enumerate(state.received):
            self.hear_of(stream, max(received.beyond, default=0))

    def fits(self, stream: int, number: int) -> bool:
        """Return whether a number is within the window. Others would make us remember holes without bound."""
        return number <= self._state.received[stream].upto + WINDOW

    def hear_of(self, stream: int, number: int) -> None:
        """Note that a message exists."""
        if number <= self._exists[stream]:
            return
        upto = self._state.received[stream].upto
        last = min(number, upto + WINDOW)
        for lacking in range(max(self._exists[stream], upto) + 1, last + 1):
            self._heard_of[stream, lacking] = None
        self._exists[stream] = max(self._exists[stream], last)

    def came(self, stream: int, number: int) -> None:
        """Note that a message was taken."""
        self.hear_of(stream, number)
        self.attempts.table.pop((stream, number), None)

    def note(self, now: int) -> None:
        """Note at the end of a step what did not come."""
        for stream, number in self._heard_of:
            if number not in self._state.received[stream]:
                crosses = self._is_on_its_way(stream, number)
                wait_ns = self._again_ns if crosses else self._group.resend_after_ns // ASKS_PER_RESEND
                self.attempts.start((stream, number), now + wait_ns, self._again_ns)
        self._heard_of = {}

    def ask(self, now: int, drafts: Drafts) -> None:
        """Ask for what has been missing for long."""
        lanes = self._group.lanes
        asked: dict[tuple[int, int], list[int]] = {}
        for (stream, number), attempt in self.attempts.table.items():
            if now < attempt.due:
                continue
            if lanes is not None and self._is_on_its_way(stream, number):
                patient_until = lanes.patient_until(stream, number, self._again_ns)
                if now < patient_until:
                    attempt.due = patient_until
                    continue
            numbers = asked.setdefault((self._whom_to_ask(stream, number, attempt.count), stream), [])
            if len(numbers) == MAX_REQUESTED:
                attempt.due = now + self._group.resend_after_ns // ASKS_PER_RESEND
                continue
            numbers.append(number)
            attempt.again(now)
        for (target, stream), numbers in asked.items():
            drafts.to(target).requests.append((stream, *numbers))

    def _is_on_its_way(self, stream: int, number: int) -> bool:
        """Return whether a message is still to cross to our site, since nobody here has it."""
        lanes = self._group.lanes
        if lanes is None:
            return False
        return not any(other == stream or number in self._state.known_of(other, stream) for other in lanes.fellows)

    def _whom_to_ask(self, stream: int, number: int, attempts: int) -> int:
        if not self._group.copying:
            return stream
        known = self._state.known_of
        holders = [other for other in self._group.near if other == stream or number in known(other, stream)]
        return holders[attempts % len(holders)]
