"""A stretch of slices joined into one, to find in it the chain between two messages, and the cone of what lies between.

Chains are found by the judge's own :class:`thence.trace.evidence.chain.Chains`: which of several shortest chains is told must not
depend on who is asked. That has nothing to do with whether there is a violation, which the audit finds out without the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, NOBODY, SEND
from thence.pipeline.kernels.slices import Slice, joined, processes_of
from thence.pipeline.scan.circles import backward_deliveries
from thence.pipeline.scan.flights import no_flights
from thence.pipeline.scan.story import tell
from thence.trace.events import Event
from thence.trace.evidence.chain import Chains


class Names(Sequence[str]):
    """The names of the messages of a window, without making a list of them."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, at: Any) -> Any:
        return self._names[at].to_pylist() if isinstance(at, slice) else self._names[int(at)].as_py()


class SliceWindow:
    """Consecutive slices of one run, with their events numbered by process and position, as the judge does."""

    def __init__(self, names: list[str], slices: Sequence[Slice]) -> None:
        whole = joined(slices)
        encoded = whole.encoded
        self.names = names
        self.message_names = Names(whole.names)
        self.index, self.first = encoded.index, encoded.first
        self.message_of = encoded.message.astype(np.int64)
        self.role = np.where(self.message_of == NOBODY, 0, encoded.role).astype(np.int8)
        self.process_of = processes_of(encoded).astype(np.int64)
        story = tell(whole, np.zeros(len(names), np.int64), no_flights()).story
        self._backward_events = set(np.flatnonzero(backward_deliveries(story)).tolist())
        self.events = range(len(self.message_of))
        self.roles = self.role.tobytes()
        self.sent_at = np.full(len(whole.names), NOBODY, np.int64)
        self.sent_at[encoded.message[encoded.send_event]] = encoded.send_event
        self._number = {name: at for at, name in enumerate(whole.names.to_pylist())}
        self.chains = Chains(self, self._backward_events)

    def chain(self, earlier: str, later: str) -> tuple[str, ...]:
        """The shortest chain between two messages."""
        return self.chains.between(self._number[earlier], self._number[later])

    def senders(self, chain: Sequence[str]) -> dict[str, str]:
        """Who sent each message of a chain."""
        return {name: self.names[int(self.process_of[self.sent_at[self._number[name]]])] for name in chain}

    def cone(self, earlier: str, later: str, process: str, index: int, most: int) -> list[Event]:
        """What lies causally between the send of ``earlier`` and the delivery of ``later``, as a small trace.

        If that is more than ``most`` events, then only those along the chain.

        Messages go to those who deliver them within the cone, and ``earlier`` also to the process that lacked it.
        """
        begin, end = self.first[self.names.index(process)], self.first[self.names.index(process) + 1]
        delivery = int(begin + np.searchsorted(self.index[begin:end], index))
        source = self._number[earlier]
        order = np.argsort(self.message_of, kind="stable")
        by_message = np.searchsorted(self.message_of[order], np.arange(len(self.message_names) + 1))
        low = reach_forward(self.first, self.role, self.message_of, order, by_message, self.process_of, self.sent_at[source])
        high = reach_back(self.first, self.role, self.message_of, self.sent_at, self.process_of, delivery)
        chosen = [event for p in range(len(self.names)) for event in range(int(low[p]), int(high[p]) + 1)]
        if len(chosen) > most:
            chosen = self._along_the_chain(earlier, later, delivery)
        return self._tell(chosen, source, process)

    def _along_the_chain(self, earlier: str, later: str, delivery: int) -> list[int]:
        """Only the sends of the chain, and the deliveries that join them."""
        names = self.chain(earlier, later)
        wanted = dict.fromkeys(names)
        sends = [int(event) for event in self.sent_at if event >= 0 and self.message_names[int(self.message_of[event])] in wanted]
        sends.sort(key=lambda event: names.index(self.message_names[int(self.message_of[event])]))
        chosen = [*sends, delivery]
        for before, after in pairwise(sends):
            if self.process_of[before] != self.process_of[after]:
                first = int(self.first[self.process_of[after]])
                between = np.arange(first, after)
                hits = between[(self.message_of[first:after] == self.message_of[before]) & (self.role[first:after] == DELIVER)]
                chosen.append(int(hits[0]))
        return sorted(set(chosen))

    def _tell(self, chosen: list[int], source: int, process: str) -> list[Event]:
        sent = {int(self.message_of[event]) for event in chosen if self.role[event] == SEND}
        kept = [event for event in chosen if self.role[event] in (SEND, DELIVER) and int(self.message_of[event]) in sent]
        receivers: dict[int, set[str]] = {message: set() for message in sent}
        for event in kept:
            if self.role[event] == DELIVER:
                receivers[int(self.message_of[event])].add(self.names[int(self.process_of[event])])
        receivers[source].add(process)
        counts = dict.fromkeys(self.names, 0)
        events = []
        for event in kept:
            name, message = self.names[int(self.process_of[event])], int(self.message_of[event])
            is_send = self.role[event] == SEND
            to = tuple(sorted(receivers[message])) if is_send else None
            kind = "send" if is_send else "deliver"
            events.append(Event(process=name, index=counts[name], kind=kind, message=self.message_names[message], to=to))
            counts[name] += 1
        return events


@compiled
def reach_forward(first, role, message, order, by_message, process_of, start):  # type: ignore[no-untyped-def]
    """The first event of each process that an event leads to; beyond its last if there is none."""
    low = first[1:].copy()
    low[process_of[start]] = start
    done = first[1:].copy()
    changed = True
    while changed:
        changed = False
        for p in range(len(low)):
            while done[p] > low[p]:
                done[p] -= 1
                event = done[p]
                if role[event] == SEND:
                    m = message[event]
                    for k in range(by_message[m], by_message[m + 1]):
                        target = order[k]
                        if role[target] == DELIVER and target < low[process_of[target]]:
                            low[process_of[target]] = target
                            changed = True
    return low


@compiled
def reach_back(first, role, message, sent_at, process_of, end):  # type: ignore[no-untyped-def]
    """The last event of each process that leads to an event; before its first if there is none."""
    high = first[:-1] - 1
    high[process_of[end]] = end
    done = first[:-1] - 1
    changed = True
    while changed:
        changed = False
        for p in range(len(high)):
            while done[p] < high[p]:
                done[p] += 1
                event = done[p]
                if role[event] == DELIVER:
                    source = sent_at[message[event]]
                    if source >= 0 and source > high[process_of[source]]:
                        high[process_of[source]] = source
                        changed = True
    return high
