"""What is known of one message while its trace is followed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.gist import delivered_in, externals_of, outside_of, places_of_sends
from thence.pipeline.kernels.ledger import FlyingMessage
from thence.pipeline.kernels.replay import NOBODY, Ints, Longs, Story

CLOCK: Final = np.dtype(np.int32)


@dataclass(slots=True, kw_only=True)
class TrackedMessage(FlyingMessage):
    """A message that was sent, or one that was delivered and given up as never sent."""

    index: int = -1
    """Of the event that sent it."""
    clock: bytes
    """Of ``CLOCK``: many small arrays would take longer to save than to judge."""

    @property
    def is_finished(self) -> bool:
        return len(self.done) == len(self.to)

    @property
    def lacking(self) -> Iterator[int]:
        return (process for process in self.to if process not in self.done)

    def renumber(self, place: Longs, count: int) -> None:
        """Processes get the numbers ``place``, and there are ``count`` of them."""
        self.sender = int(place[self.sender]) if self.sender != NOBODY else NOBODY
        self.to = place[self.to].tolist()
        self.done = set(place[list(self.done)].tolist())
        self.outside = set(place[list(self.outside)].tolist())
        clock = np.zeros(count, CLOCK)
        clock[place] = np.frombuffer(self.clock, CLOCK)
        self.clock = clock.tobytes()


def clocks_of(flights: Collection[TrackedMessage], processes: int) -> Ints:
    """The clocks of messages, a row for each."""
    return np.frombuffer(b"".join(flight.clock for flight in flights), CLOCK).reshape(len(flights), processes)


def never_sent(processes: int) -> TrackedMessage:
    """A message that is delivered and given up as never sent."""
    return TrackedMessage(sender=NOBODY, clock=bytes(CLOCK.itemsize * processes))


class Aftermath:
    """Who has delivered what in a slice."""

    def __init__(self, encoded: Encoded, messages: pa.Array, names: Sequence[str]) -> None:
        self._encoded, self._names = encoded, names
        self._process = np.repeat(np.arange(encoded.processes, dtype=np.int32), np.diff(encoded.first))
        sends = encoded.send_event
        self._done, _, stray, foreign = delivered_in(encoded, places_of_sends(encoded, len(messages)))
        self._outside: Mapping[str, list[int]] = outside_of(encoded, messages, encoded.message[sends[stray]])
        self.external, self._external_first, self._external_by = externals_of(encoded, foreign)

    def deliveries(self) -> Iterator[list[int]]:
        """For each external message, who delivered it here."""
        for begin, end in zip(self._external_first[:-1].tolist(), self._external_first[1:].tolist(), strict=True):
            yield self._external_by[begin:end].tolist()

    def sent(self, story: Story, clocks: Ints) -> Iterator[tuple[str, TrackedMessage]]:
        """The messages sent here, as they are at the end of the slice."""
        encoded = self._encoded
        to_all, done_all = encoded.to.tolist(), self._done.tolist()
        bounds = encoded.to_first.tolist()
        for place, event in enumerate(encoded.send_event.tolist()):
            message = int(encoded.message[event])
            name = self._names[message]
            to, had = to_all[bounds[place] : bounds[place + 1]], done_all[bounds[place] : bounds[place + 1]]
            yield (
                name,
                TrackedMessage(
                    sender=int(self._process[event]),
                    rank=int(story.rank[message]),
                    index=encoded.index_of(event),
                    unaddressed=bool(encoded.unaddressed[place]),
                    to=to,
                    done={process for process, has in zip(to, had, strict=True) if has},
                    outside=set(self._outside.get(name, ())).difference(to),
                    clock=clocks[story.row[message]].tobytes(),
                ),
            )
