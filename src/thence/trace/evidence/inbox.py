"""What a process has still to get: the messages addressed to it, by sender, less those it has delivered.

Rules:

* A message is named by its sender and rank (how many that sender sent before it).
* A delivery costs a step when it is the next of its sender, a binary search otherwise; so does asking how many are
  missing. Nothing walks over messages.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from thence.trace.evidence.clocks import UNBOUNDED, Clock
from thence.trace.evidence.history import History

Channels = list[dict[int, list[int]]]
"""``channels[process][sender]`` are the ranks of the messages from the sender to the process, ascending."""


def channels_of(history: History) -> Channels:
    """Return who sent what to whom, by the destinations that the sends name."""
    channels: Channels = [{} for _ in history.names]
    for sender, sent in enumerate(history.sent_by):
        for rank, message in enumerate(sent):
            for process in history.to[message] or ():
                channels[process].setdefault(sender, []).append(rank)
    return channels


class ProcessInbox:
    """The progress of one process.

    For each sender, messages before ``_top`` in the channel have been delivered except those in ``_holes``; messages
    from ``_top`` on have not.
    """

    __slots__ = ("_channel", "_holes", "_top", "next_missing")

    def __init__(self, channel: dict[int, list[int]], senders: int) -> None:
        self._channel = channel
        self._top = dict.fromkeys(channel, 0)
        self._holes: dict[int, list[int]] = {sender: [] for sender in channel}
        self.next_missing: Clock = np.full(senders, UNBOUNDED, np.int32)
        """For each sender, the rank of its first message that is still missing here, else ``UNBOUNDED``."""
        for sender, ranks in channel.items():
            self.next_missing[sender] = ranks[0]

    def deliver(self, sender: int, rank: int) -> None:
        """A first delivery. One that was not addressed to this process changes nothing."""
        ranks = self._channel.get(sender)
        if ranks is None:
            return
        top, holes = self._top[sender], self._holes[sender]
        place = top if top < len(ranks) and ranks[top] == rank else bisect_left(ranks, rank)
        if place >= len(ranks) or ranks[place] != rank:
            return
        if place < top:
            del holes[bisect_left(holes, place)]
        else:
            holes.extend(range(top, place))
            self._top[sender] = top = place + 1
        if holes:
            self.next_missing[sender] = ranks[holes[0]]
        else:
            self.next_missing[sender] = ranks[top] if top < len(ranks) else UNBOUNDED

    def count_missing(self, sender: int, rank: int) -> int:
        """Return how many of the sender's messages before this rank are missing."""
        ranks = self._channel.get(sender)
        if ranks is None:
            return 0
        top, holes = self._top[sender], self._holes[sender]
        place = bisect_left(ranks, rank)
        return bisect_left(holes, place) if place <= top else len(holes) + place - top
