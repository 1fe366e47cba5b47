"""Which send a delivery is of, where the log gives channels and vector clocks but no message ids. Pure, for one run.

Rules:

* A delivery's clock is its process's clock before, joined with the clock of the send. Only a send on the same channel for
  which that is so comes into question.
* Of several, the first one that was not delivered at this process yet. If all of them were, it is the last of them once more:
  a repetition, which the judge will name as such.
* With none, the message is named ``CHANNEL#0``: a delivery of something that the log never saw sent. Sends are ``#1``,
  ``#2``, ….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from thence.trace.events import DELIVER, SEND

Clock = Mapping[str, int]


class ChannelEvent(NamedTuple):
    """An event of one run. The events of a process stand in the order of its history."""

    process: str
    kind: str
    channel: str | None
    clock: Clock


class _Sent(NamedTuple):
    number: int
    clock: Clock


def match_by_clock(steps: Sequence[ChannelEvent]) -> list[str | None]:
    """Return the message id of each event; None where it has no channel."""
    ids: list[str | None] = [step.channel for step in steps]
    channels: dict[str, _Channel] = {}
    for place, step in enumerate(steps):
        if step.kind == SEND and step.channel is not None:
            number = channels.setdefault(step.channel, _Channel()).send(step)
            ids[place] = f"{step.channel}#{number}"
    before: dict[str, Clock] = {}
    for place, step in enumerate(steps):
        if step.kind == DELIVER and step.channel is not None:
            number = channels.setdefault(step.channel, _Channel()).deliver(step, before.get(step.process, {}))
            ids[place] = f"{step.channel}#{number}"
        before[step.process] = step.clock
    return ids


class _Channel:
    """The sends on one channel, by sender, and which of them each process has delivered."""

    def __init__(self) -> None:
        self._sent: dict[str, list[_Sent]] = {}
        self._count = 0
        self._done: dict[str, set[int]] = {}
        self._first_left: dict[tuple[str, str], int] = {}

    def send(self, step: ChannelEvent) -> int:
        """Number a send."""
        self._count += 1
        self._sent.setdefault(step.process, []).append(_Sent(self._count, step.clock))
        return self._count

    def deliver(self, step: ChannelEvent, before: Clock) -> int:
        """Return the number of the send that was delivered; 0 for none."""
        done = self._done.setdefault(step.process, set())
        candidates = [number for sender in self._sent for number in self._candidates(sender, step, before, done)]
        fresh = [number for number in candidates if number not in done]
        chosen = min(fresh) if fresh else max(candidates, default=0)
        done.add(chosen)
        return chosen

    def _candidates(self, sender: str, step: ChannelEvent, before: Clock, done: set[int]) -> list[int]:
        """Return the first send of this sender that is left and explains the delivery, or else the last one that does."""
        sent = self._sent[sender]
        left = self._first_left.get((step.process, sender), 0)
        while left < len(sent) and sent[left].number in done:
            left += 1
        self._first_left[step.process, sender] = left
        known = step.clock.get(sender, 0)
        place = left
        while place < len(sent) and sent[place].clock.get(sender, 0) <= known:
            if sent[place].number not in done and _explains(step, before, sent[place].clock):
                return [sent[place].number]
            place += 1
        return next(([number] for number, clock in reversed(sent[:place]) if _explains(step, before, clock)), [])


def _explains(step: ChannelEvent, before: Clock, sent: Clock) -> bool:
    names = {*step.clock, *before, *sent} - {step.process}
    return all(step.clock.get(name, 0) == max(before.get(name, 0), sent.get(name, 0)) for name in names)
