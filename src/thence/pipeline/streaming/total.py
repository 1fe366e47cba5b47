"""Total order in a stream: a pair of processes that deliver the same two messages in opposite orders, told at the first proof.

Of each pair of processes it is enough to know which message that both have delivered is the last one in the order of each.
When a process delivers a message that another has delivered before, all other messages that both know stand before it here; so
the two disagree exactly if one of those stands behind it there.

Rules:

* It does not matter in which order processes are looked at, as long as each one's own order is kept.
* Each pair is told once, with the messages that proved it first; the audit may name others.
* A message is forgotten when the scan forgets it: what is delivered of it after that is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, NOBODY, Bools, Ints, Longs
from thence.pipeline.kernels.slices import Slice
from thence.pipeline.scan.rows import found
from thence.trace.words import contradicted

Arrays = Mapping[str, npt.NDArray[Any]]


class OrderedDeliveries(NamedTuple):
    """First deliveries of messages that are known."""

    message: Ints
    process: Ints
    place: Longs
    """In the order of the process."""
    number: Longs
    """The index of the event."""


class Lasts(NamedTuple):
    """Of the messages that p and q have delivered, the last one in the order of p is at ``[p, q]``."""

    last_place: Longs
    last_message: Ints
    last_index: Longs
    is_known: Bools
    """Whether it has been told that the two disagree."""


def _no_lasts(processes: int) -> Lasts:
    shape = processes, processes
    return Lasts(
        np.full(shape, -1, np.int64), np.full(shape, NOBODY, np.int32), np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    )


def _no_deliveries() -> OrderedDeliveries:
    ints, longs = np.empty(0, np.int32), np.empty(0, np.int64)
    return OrderedDeliveries(ints, ints, longs, longs)


@dataclass(slots=True)
class Orders:
    """In which orders the processes of a run have delivered what is still known."""

    names: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    """Of the messages that are known, by number."""
    count: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    """How many first deliveries each process has made."""
    made: OrderedDeliveries = field(default_factory=_no_deliveries)
    lasts: Lasts = field(default_factory=lambda: _no_lasts(0))

    @classmethod
    def of(cls, names: pa.Array, arrays: Arrays) -> Orders:
        """Return the orders that were told by :meth:`arrays`."""
        made = OrderedDeliveries(*(arrays[name] for name in OrderedDeliveries._fields))
        return cls(names, arrays["count"], made, Lasts(*(arrays[name] for name in Lasts._fields)))

    def arrays(self) -> Arrays:
        """Return all but the names."""
        return {"count": self.count, **self.made._asdict(), **self.lasts._asdict()}

    def take(self, run: str | None, processes: Sequence[str], given: Slice) -> pa.RecordBatch:
        """Take in a slice; return a row for each pair of processes that is now known to disagree."""
        encoded, before = given.encoded, len(self.made.message)
        number = pc.index_in(given.names, self.names).fill_null(NOBODY).to_numpy().astype(np.int32)
        fresh = np.flatnonzero(number == NOBODY)
        number[fresh] = len(self.names) + np.arange(len(fresh))
        self.names = pa.concat_arrays([self.names, given.names.take(pa.array(fresh))])
        events = np.flatnonzero(encoded.role == DELIVER)
        process = (np.searchsorted(encoded.first, events, side="right") - 1).astype(np.int32)
        made = self.made
        self.made = OrderedDeliveries(
            np.concatenate([made.message, number[encoded.message[events]]]),
            np.concatenate([made.process, process]),
            np.concatenate([made.place, np.full(len(events), -1, np.int64)]),
            np.concatenate([made.number, encoded.index[events]]),
        )
        proofs = np.empty(((int((~self.lasts.is_known).sum()) + 1) // 2, 5), np.int64)
        many = compare(before, len(self.names), self.made, self.count, self.lasts, proofs)
        rows = []
        for one, two, earlier, later, index in proofs[:many].tolist():
            first, second = self.names[earlier].as_py(), self.names[later].as_py()
            detail = contradicted(processes[one], processes[two], first, second)
            rows.append((f"{processes[one]},{processes[two]}", index, second, first, detail))
        columns: dict[str, Any] = dict(
            zip(("process", "index", "later", "earlier", "detail"), zip(*rows, strict=True), strict=False)
        )
        return found(run, "total", many, **columns)

    def forget(self, known: pa.Array) -> None:
        """Forget messages but for these, and those that are the last of a pair."""
        kept = pc.is_in(self.names, known).to_numpy(zero_copy_only=False)
        stays = (self.made.place >= 0) & kept[self.made.message]
        last = self.lasts.last_message
        kept[last[last != NOBODY]] = True
        number = np.append(np.cumsum(kept) - 1, NOBODY).astype(np.int32)
        self.names = self.names.filter(pa.array(kept))
        self.made = OrderedDeliveries(number[self.made.message[stays]], *(column[stays] for column in self.made[1:]))
        self.lasts = self.lasts._replace(last_message=number[last])

    def renumber(self, place: Longs, processes: int) -> None:
        """Give processes the numbers ``place``, among so many."""
        self.made = self.made._replace(process=place[self.made.process].astype(np.int32))
        before, self.lasts = self.lasts, _no_lasts(processes)
        for name, old in before._asdict().items():
            getattr(self.lasts, name)[np.ix_(place, place)] = old
        count = np.zeros(processes, np.int64)
        count[place] = self.count
        self.count = count


@compiled
def compare(begin, messages, made, count, lasts, proofs):  # type: ignore[no-untyped-def]
    """Give each delivery from ``begin`` on its place, and find pairs that disagree: return how many."""
    newest = np.full(messages, -1, np.int64)
    behind = np.full(len(made.message), -1, np.int64)
    many = 0
    for k in range(len(made.message)):
        m, p = made.message[k], made.process[k]
        if k >= begin:
            other = newest[m]
            while other >= 0 and made.process[other] != p:
                other = behind[other]
            if other >= 0:
                continue  # first deliveries count
            made.place[k] = count[p]
            count[p] += 1
            other = newest[m]
            while other >= 0:
                q = made.process[other]
                if lasts.last_place[q, p] > made.place[other] and not lasts.is_known[p, q]:
                    lasts.is_known[p, q], lasts.is_known[q, p] = True, True
                    w = lasts.last_message[q, p]
                    proof = proofs[many]
                    if p < q:  # here w comes before m
                        proof[0], proof[1], proof[2], proof[3], proof[4] = p, q, w, m, made.number[k]
                    else:
                        proof[0], proof[1], proof[2], proof[3], proof[4] = q, p, m, w, lasts.last_index[q, p]
                    many += 1
                if made.place[other] > lasts.last_place[q, p]:
                    lasts.last_place[q, p], lasts.last_message[q, p] = made.place[other], m
                    lasts.last_index[q, p] = made.number[other]
                lasts.last_place[p, q], lasts.last_message[p, q], lasts.last_index[p, q] = made.place[k], m, made.number[k]
                other = behind[other]
        behind[k] = newest[m]
        newest[m] = k
    return many
