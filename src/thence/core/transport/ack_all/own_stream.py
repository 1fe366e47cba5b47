"""Our own stream where all ack to all: what we sent and somebody lacks, the window, and members that are behind.

Rules:

* A message is kept until all have acknowledged it, and repeated where that takes too long. Waits double, for ever.
* At most ``WINDOW`` messages are in flight, and one or at most ``WINDOW_BYTES``. The rest waits in the queue, which the member
  bounds.
* A suspected member does not hold up the others. From then on it is *behind*: it has a window of its own, which moves with its
  acks, until it has been sent all that the others have and is suspected no longer. So it gets everything whether the suspicion
  was right or wrong, and what it cannot be sent yet costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from thence.core.transport.ack_all.state import AckAllState, AckGroup, Drafts, StreamMessage, Unacked
from thence.core.transport.acks import Attempt, Attempts
from thence.core.transport.channel import RESEND_BURST, WINDOW
from thence.core.transport.window import WINDOW_BYTES


class OwnStream:
    """The messages that we send."""

    def __init__(self, group: AckGroup, state: AckAllState[Any]) -> None:
        """Go on from a saved state."""
        self._group = group
        self._state = state
        self.queued = sum(len(unacked.lacking) for unacked in state.queue.values())
        self.queued_bytes = sum(unacked.message.weight for unacked in state.queue.values())
        self._begins: dict[int, int] = {}
        """For each message in the queue, how many bytes were pushed before it since we started."""
        self._pushed = 0
        """How many bytes were pushed since we started."""
        self._gone_upto = next(iter(state.queue), state.last_number + 1) - 1
        """Nothing up to this number is in the queue any more."""
        self._awaited_upto = 0
        """Nothing up to this number is lacked by members that are not behind."""
        self.sent_upto = 0
        """The last number that we have sent since we started. What comes after it is due at once."""
        self.attempts: Attempts[int] = Attempts()
        self.suspected: dict[int, None] = {}
        self.behind: dict[int, int] = {}
        """Members that were suspected and have not caught up, each with the last number that it was sent."""
        for number, unacked in state.queue.items():
            self._begin(number, unacked.message.weight)

    def _begin(self, number: int, weight: int) -> None:
        self._begins[number] = self._pushed
        self._pushed += weight

    def push(self, message: StreamMessage[Any]) -> None:
        """Queue a message."""
        state, others = self._state, self._group.others
        state.last_number += 1
        state.queue[state.last_number] = Unacked(message, dict.fromkeys(others))
        self.queued += len(others)
        self.queued_bytes += message.weight
        self._begin(state.last_number, message.weight)

    def acked(self, source: int, numbers: Sequence[int]) -> None:
        """Note that a member has these messages."""
        queue, lanes = self._state.queue, self._group.lanes
        for number in numbers:
            unacked = queue.get(number)
            if unacked is not None and source in unacked.lacking:
                del unacked.lacking[source]
                self.queued -= 1
                if lanes is not None and lanes.is_far(source):
                    lanes.came_out(self._group.mine, number)
                if not unacked.lacking:
                    self.queued_bytes -= unacked.message.weight
                    del queue[number], self._begins[number]
                    self.attempts.table.pop(number, None)

    def suspect(self, member: int, suspected: bool) -> None:
        """Note that a member is suspected, or no longer."""
        if suspected:
            self.suspected[member] = None
            self.behind.setdefault(member, self.sent_upto)
        else:
            self.suspected.pop(member, None)

    def oldest(self) -> int:
        """Return the number of the oldest message that somebody lacks, or the next number."""
        queue, last = self._state.queue, self._state.last_number
        while self._gone_upto < last and self._gone_upto + 1 not in queue:
            self._gone_upto += 1
        return self._gone_upto + 1

    def _oldest_awaited(self) -> int:
        """Return the number of the oldest message that a member lacks that is not behind, or the next number."""
        if not self.behind:
            return self.oldest()
        queue, last = self._state.queue, self._state.last_number
        self._awaited_upto = max(self._awaited_upto, self.oldest() - 1)
        while self._awaited_upto < last:
            unacked = queue.get(self._awaited_upto + 1)
            if unacked is not None and any(member not in self.behind for member in unacked.lacking):
                break
            self._awaited_upto += 1
        return self._awaited_upto + 1

    def _window_end(self, oldest: int, sent: int, last: int) -> int:
        """Return the last number, up to ``last``, in the window that begins at ``oldest``, if all up to ``sent`` has gone."""
        last = min(last, oldest + WINDOW - 1)
        begin = self._begins.get(oldest, self._pushed)
        if self._pushed - begin <= WINDOW_BYTES:
            return last
        for number in range(max(sent, oldest) + 1, last + 1):
            unacked = self._state.queue.get(number)
            if unacked is not None and self._begins[number] + unacked.message.weight - begin > WINDOW_BYTES:
                return number - 1
        return last

    def send_new(self, now: int, drafts: Drafts) -> None:
        """Send what is new and fits the window."""
        state, lanes = self._state, self._group.lanes
        if not state.queue:
            return
        last = self._window_end(self._oldest_awaited(), self.sent_upto, state.last_number)
        for number in range(max(self.sent_upto + 1, self.oldest()), last + 1):
            if number not in state.queue:
                continue
            self._write(number, drafts, None if lanes is None else lanes.first(number, self.suspected))
            if self._has_takers(number):
                self._try_again(number, now)
        self.sent_upto = max(self.sent_upto, last)

    def catch_up(self, now: int, drafts: Drafts) -> None:
        """Send members that are behind what fits their windows."""
        lanes = self._group.lanes
        for member, sent in list(self.behind.items()):
            acked = self._state.known_of(member, self._group.mine).upto
            last = self.behind[member] = max(sent, self._window_end(acked + 1, sent, self.sent_upto))
            for number in range(max(sent, acked) + 1, last + 1):
                if number in self._state.queue:
                    # To another site it goes when it is repeated or asked for, since others there may have it.
                    if lanes is None or not lanes.is_far(member):
                        self._write(number, drafts, (member,))
                    self._try_again(number, now)
            if last == self.sent_upto and member not in self.suspected:
                del self.behind[member]
                self._awaited_upto = min(self._awaited_upto, acked)

    def resend(self, now: int, drafts: Drafts) -> None:
        """Repeat what took too long."""
        group, repeated = self._group, 0
        only: Collection[int] | None = None
        without_takers = []
        for number, attempt in self.attempts.table.items():
            if now < attempt.due:
                continue
            if not self._has_takers(number):
                without_takers.append(number)
                continue
            if repeated == RESEND_BURST:
                attempt.due = now + group.resend_after_ns
                continue
            if group.lanes is not None:
                patient_until = group.lanes.patient_until(group.mine, number, group.resend_after_ns)
                if now < patient_until:
                    attempt.due = patient_until
                    continue
                only = group.lanes.again(self._state.queue[number].lacking, attempt.count)
            repeated += 1
            attempt.again(now)
            self._write(number, drafts, only)
        for number in without_takers:
            del self.attempts.table[number]  # Until whoever lacks it has caught up so far.

    def again(self, number: int, now: int) -> StreamMessage[Any] | None:
        """Return a message that somebody asks for, if it was sent; it need not be repeated soon."""
        if number not in self._state.queue or number > self.sent_upto:
            return None
        attempt = self._try_again(number, now)
        attempt.due = max(attempt.due, now + self._group.resend_after_ns)
        return self._state.queue[number].message

    def _try_again(self, number: int, now: int) -> Attempt:
        wait_ns = self._group.resend_after_ns
        return self.attempts.start(number, now + wait_ns, 2 * wait_ns)

    def _has_takers(self, number: int) -> bool:
        """Return whether a member lacks a message and can be sent it by now."""
        behind = self.behind
        return not behind or any(number <= behind.get(target, number) for target in self._state.queue[number].lacking)

    def _write(self, number: int, drafts: Drafts, only: Collection[int] | None = None) -> None:
        """Send a message to all members, or ``only`` these, that lack it and can take it."""
        unacked = self._state.queue[number]
        for target in unacked.lacking:
            if number <= self.behind.get(target, number) and (only is None or target in only):
                drafts.carry(target, self._group.mine, number, unacked.message)
