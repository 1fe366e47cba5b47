"""The metrics of a trace, computed the straightforward way: lists and dictionaries in memory, one question at a time.

This shares no code with ``thence.pipeline.metrics``; the tests compare the two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thence.trace.events import Event

Key = tuple[str | None, str]


@dataclass
class Delivered:
    """The first delivery of a message at a process."""

    event: Event
    send: Event | None
    arrival: Event | None
    repeats: int

    @property
    def delay_ns(self) -> int | None:
        if self.send is None or self.send.time is None or self.event.time is None:
            return None
        return self.event.time - self.send.time

    @property
    def wait_ns(self) -> int | None:
        if self.arrival is None or self.arrival.time is None or self.event.time is None:
            return None
        return self.event.time - self.arrival.time

    @property
    def topic(self) -> str | None:
        return self._said("topic")

    @property
    def client(self) -> str | None:
        return self._said("client")

    def _said(self, column: str) -> str | None:
        said: str | None = None if self.send is None else getattr(self.send, column)
        return getattr(self.event, column) if said is None else said

    @property
    def payload_bytes(self) -> int | None:
        if self.event.bytes is None and self.send is not None:
            return self.send.bytes
        return self.event.bytes

    @property
    def control_bytes(self) -> int | None:
        return self.event.overhead


@dataclass
class Measured:
    """A trace, sorted out."""

    events: Sequence[Event]
    sends: dict[Key, Event] = field(default_factory=dict)
    deliveries: list[Delivered] = field(default_factory=list)
    sends_of: Counter[Key] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        arrivals: dict[tuple[str | None, str, str], Event] = {}
        delivered: dict[tuple[str | None, str, str], list[Event]] = defaultdict(list)
        for event in sorted(self.events, key=lambda event: (event.process, event.index)):
            if event.message is None:
                continue
            key, at = (event.run, event.message), (event.run, event.message, event.process)
            if event.kind == "send":
                self.sends.setdefault(key, event)
                self.sends_of[key] += 1
            elif event.kind == "arrive":
                arrivals.setdefault(at, event)
            elif event.kind == "deliver":
                delivered[at].append(event)
        for at, (first, *more) in delivered.items():
            arrival = arrivals.get(at)
            arrival = arrival if arrival is not None and arrival.index < first.index else None
            self.deliveries.append(Delivered(first, self.sends.get(at[:2]), arrival, len(more)))

    def start(self, run: str | None) -> int | None:
        return min(self.times(run), default=None)

    def times(self, run: str | None) -> list[int]:
        sent = [send.time for send in self.sends.values() if send.run == run and send.time is not None]
        return sent + [d.event.time for d in self.deliveries if d.event.run == run and d.event.time is not None]

    def in_flight(self, run: str | None, at: int) -> int:
        """Copies sent before ``at`` and not delivered before it."""
        count = 0
        for (of, _), send in self.sends.items():
            if of == run and send.time is not None and send.to is not None and send.time < at:
                count += len(send.to)
        for delivery in self.deliveries:
            send_of = delivery.send
            if delivery.event.run != run or send_of is None or send_of.time is None or send_of.to is None:
                continue
            when = send_of.time if delivery.event.time is None else delivery.event.time
            count -= when < at
        return count


def distribution(deliveries: Sequence[Delivered], measure: str, percentiles: Sequence[float]) -> dict[str, Any]:
    """The row of some deliveries, with percentiles by numpy."""
    values = [value for value in (getattr(delivery, measure) for delivery in deliveries) if value is not None]
    row: dict[str, Any] = {
        "deliveries": len(deliveries),
        "measured": len(values),
        "negative": sum(value < 0 for value in values),
        "smallest": min(values, default=None),
        "largest": max(values, default=None),
        "mean": float(np.mean(values)) if values else None,
    }
    for percentile in percentiles:
        name = f"p{percentile:g}".replace(".", "_")
        row[name] = float(np.quantile(values, percentile / 100)) if values else None
    return row
