"""Total order: a pair of processes that deliver the same two messages in opposite orders.

Where others look at slices, this looks at pairs of processes: what each has delivered, in its order, whatever the slice.
Processes are dealt into blocks, and a task takes two blocks; so it holds the deliveries of a few processes and never those of
all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from thence.pipeline.audit.tasks import Slice, keep_rows
from thence.pipeline.kernels.columns import dictionary_of
from thence.pipeline.kernels.replay import DELIVER, Longs
from thence.pipeline.kernels.rows import ViolationRow
from thence.trace.verdict import Violation
from thence.trace.words import contradicted

DELIVERIES_PER_TASK: Final = 20_000_000
"""Blocks are made so small that two of them have no more deliveries than this; but a block has one process at least."""


class Blocks(NamedTuple):
    """All slices of a run, and the two blocks of processes whose pairs are to be compared."""

    slices: list[Slice]
    one: list[int]
    two: list[int]


def blocks_of(slices: list[Slice], processes: int, events: int) -> list[Blocks]:
    """All pairs of blocks."""
    size = max(1, min(processes, DELIVERIES_PER_TASK * processes // max(1, 2 * events)))
    blocks = [list(range(begin, min(processes, begin + size))) for begin in range(0, processes, size)]
    return [Blocks(slices, one, two) for at, two in enumerate(blocks) for one in blocks[: at + 1]]


def compare(given: Blocks) -> dict[str, int]:
    """Leave a row of the table of violations for each pair that disagrees; return how many there are."""
    one = given.slices[0]
    name = f"total-{one.run_number}-{given.one[0]}-{given.two[0]}"
    return dict(keep_rows(one.work, name, _rows(given), one.run_number))


def _rows(given: Blocks) -> Iterator[ViolationRow]:
    wanted = sorted({*given.one, *given.two})
    messages, index, names = _deliveries(given.slices, wanted)
    run, processes = given.slices[0].run, given.slices[0].names
    place_there = np.full(len(names), -1, np.int64)
    for two in given.two:
        place_there[messages[two]] = np.arange(len(messages[two]))
        for one in given.one:
            if one < two:
                witness = contradiction(messages[one], place_there)
                if witness:
                    early, late = witness
                    earlier, later = (str(names[int(messages[one][at])].as_py()) for at in (early, late))
                    yield ViolationRow(
                        Violation(
                            property="total",
                            process=f"{processes[one]},{processes[two]}",
                            later=later,
                            earlier=earlier,
                            run=run,
                            index=int(index[one][late]),
                            detail=contradicted(processes[one], processes[two], earlier, later),
                        )
                    )
        place_there[messages[two]] = -1


def contradiction(messages: Longs, place_there: Longs) -> tuple[int, int] | None:
    """Where in this order the first message stands that the other process delivered before one that stands before it here."""
    places = place_there[messages]
    common = np.flatnonzero(places >= 0)
    places = places[common]
    behind = places < np.maximum.accumulate(places)
    if not behind.any():
        return None
    late = int(np.argmax(behind))
    return int(common[int(np.argmax(places > places[late]))]), int(common[late])


def _deliveries(slices: Sequence[Slice], wanted: list[int]) -> tuple[dict[int, Longs], dict[int, Longs], pa.Array]:
    """The first deliveries of some processes in order: message numbers, indices; and the names of the messages."""
    found: dict[int, list[pa.Array]] = {process: [] for process in wanted}
    index: dict[int, list[Longs]] = {process: [] for process in wanted}
    for one in slices:
        encoded, messages, _ = one.work.get(one.key("encoded"))
        every_index = encoded.index
        for process in wanted:
            begin, end = encoded.first[process], encoded.first[process + 1]
            events = begin + np.flatnonzero(encoded.role[begin:end] == DELIVER)
            found[process].append(messages.take(pa.array(encoded.message[events])))
            index[process].append(every_index[events])
    every = dictionary_of(pa.chunked_array([some for process in wanted for some in found[process]], pa.string()))
    numbers = every.indices.to_numpy().astype(np.int64)
    result: dict[int, Longs] = {}
    indices: dict[int, Longs] = {}
    at = 0
    for process in wanted:
        length = sum(map(len, found[process]))
        mine, where = numbers[at : at + length], np.concatenate(index[process])
        _, first = np.unique(mine, return_index=True)
        first.sort()  # first deliveries count
        result[process], indices[process] = mine[first], where[first]
        at += length
    return result, indices, every.dictionary
