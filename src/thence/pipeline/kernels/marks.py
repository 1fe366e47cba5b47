"""What slices must know of each other before they are scanned: which messages nobody sends, up to where a message is named, and
which messages are sent more than once.

A *mark* says that a slice sends a message, or delivers one that it does not send. Messages are marked by a hash of their names,
so that all marks of one message meet in one place. Two names with one hash do no harm: a message is carried for longer than it
has to be, or waits until the end of the run before it counts as never sent. What is sent twice is looked up by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.pipeline.kernels.encoder import hashes
from thence.pipeline.kernels.replay import DELIVER, RESEND, SEND, Longs
from thence.pipeline.kernels.slices import Slice
from thence.pipeline.tables import arrow_schema, columns

MARKS: Final = columns("run_number int, hash bigint, slice int, local int, sent int")
MARKS_SCHEMA: Final = arrow_schema(MARKS)
"""``sent`` is 1 if the slice sends its message ``local``, and 0 if it only delivers it."""

FACTS: Final = columns("run_number int, slice int, what int, local int, last int")
FACTS_SCHEMA: Final = arrow_schema(FACTS)

NAMED: Final = 0
"""Slice ``last`` is the last one that delivers the message ``local`` of this slice without sending it."""
UNSENT: Final = 1
"""Nobody sends the message ``local``; ``last`` is as above."""
AGAIN: Final = 2
"""The message ``local`` is sent more than once."""
BACKWARD: Final = 3
"""``local`` messages are delivered in earlier slices than sent, ``last`` slices earlier at most."""


def marks_of(given: Slice, run_number: int, number: int) -> pa.RecordBatch:
    """Return the marks of a slice."""
    encoded = given.encoded
    sent = encoded.message[encoded.send_event]
    outer = np.zeros(len(given.names), np.bool_)
    outer[encoded.message[encoded.role == DELIVER]] = True
    outer[sent] = False
    strange = np.flatnonzero(outer).astype(np.int32)
    local = np.concatenate([sent, strange]).astype(np.int32)
    hashed = hashes(given.names).view(np.int64)[local]
    is_sent = np.concatenate([np.ones(len(sent), np.int32), np.zeros(len(strange), np.int32)])
    run, place = np.full(len(local), run_number, np.int32), np.full(len(local), number, np.int32)
    return pa.record_batch([pa.array(column) for column in (run, hashed, place, local, is_sent)], schema=MARKS_SCHEMA)


def facts_of(marks: pa.Table) -> pa.RecordBatch:
    """Return what follows from all marks of some messages."""
    run, hashed, place, local, sent = (marks[name].to_numpy() for name in MARKS_SCHEMA.names)
    order = np.lexsort((hashed, run))
    run, hashed, place, local, sent = (column[order] for column in (run, hashed, place, local, sent))
    if not len(run):
        return _batch([])
    begins = np.flatnonzero(np.concatenate([[True], (np.diff(run) != 0) | (np.diff(hashed) != 0)]))
    lengths = np.diff(np.append(begins, len(run)))
    sends = np.add.reduceat(sent, begins)
    is_again = np.repeat(sends > 1, lengths)  # Where a send counts for nothing, its slice only names the message.
    last = np.maximum.reduceat(np.where((sent == 1) & ~is_again, -1, place), begins)
    sent_in = np.maximum.reduceat(np.where(sent == 1, place, -1), begins)
    first_named = np.minimum.reduceat(np.where(sent == 1, np.iinfo(np.int32).max, place), begins)
    sends_of, last_of = np.repeat(sends, lengths), np.repeat(last, lengths).astype(np.int32)
    found: list[tuple[npt.NDArray[Any], ...]] = []
    for what, chosen in (
        (NAMED, (sent == 1) & (last_of > place)),
        (UNSENT, (sent == 0) & (sends_of == 0)),
        (AGAIN, (sent == 1) & (sends_of > 1)),
    ):
        rows = np.flatnonzero(chosen)
        found.append((run[rows], place[rows], np.full(len(rows), what, np.int32), local[rows], last_of[rows]))
    backward = (sends > 0) & (last >= 0) & (first_named < sent_in)
    for number in np.unique(run[begins][backward]).tolist():
        mine = backward & (run[begins] == number)
        distance = int((sent_in[mine] - first_named[mine]).max())
        found.append(tuple(np.array([value], np.int32) for value in (number, 0, BACKWARD, int(mine.sum()), distance)))
    return _batch(found)


def _batch(found: Sequence[tuple[npt.NDArray[Any], ...]]) -> pa.RecordBatch:
    arrays = [np.concatenate(column).astype(np.int32) for column in zip(*found, strict=True)] or [np.empty(0, np.int32)] * len(
        FACTS
    )
    return pa.record_batch([pa.array(column) for column in arrays], schema=FACTS_SCHEMA)


def note_facts(given: Slice, what: Longs, local: Longs, last: Longs) -> None:
    """Tell a slice what follows from the marks of all."""
    relevant = (what == NAMED) | (what == UNSENT)
    given.last[local[relevant]] = last[relevant]
    given.unsent[local[what == UNSENT]] = True


def sends_of(given: Slice, local: int) -> list[tuple[int, int, str]]:
    """Return process, index and name of each send of a message in a slice, the first and all others."""
    encoded, name = given.encoded, given.names[local].as_py()
    events = np.flatnonzero((encoded.message == local) & ((encoded.role == SEND) | (encoded.role == RESEND)))
    return [(encoded.process_of(event), encoded.index_of(event), name) for event in events.tolist()]
