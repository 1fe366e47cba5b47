"""Slices, and what a worker does with one: the steps of the audit. Each reads what earlier steps left in the work folder.

Nothing here knows Spark: a task is a function of a small description of a slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.audit.fragments import Fragment, read_fragment
from thence.pipeline.kernels.encoder import COLUMNS, TIMED_COLUMNS, Encoded, encode, hashes, order_of
from thence.pipeline.kernels.gist import Gist, gist_of, lags_of
from thence.pipeline.kernels.ledger import SliceEntry, tell_slice
from thence.pipeline.kernels.logged_clocks import MAX_CLOCKED_EVENTS, Compared, compare
from thence.pipeline.kernels.replay import RESEND, SEND, Ints, Longs
from thence.pipeline.kernels.rows import Place, Scene, ViolationRow, judged
from thence.pipeline.kernels.story import clocks_from, sum_up
from thence.pipeline.kernels.window import Part, SliceWindow
from thence.pipeline.tables import VIOLATIONS, arrow_schema, columns
from thence.pipeline.work import WorkFolder
from thence.trace.events import Event
from thence.trace.parquet import schema
from thence.trace.words import tell_chain

ROWS_PER_BATCH: Final = 10_000

MAX_CONE_EVENTS: Final = 2_000
"""A cone of more events is told by its chain alone."""

HASH_TOPS: Final = 2**16
"""How many values the first bits of a hash may have: by those, hashes are shared out."""

FOUND: Final = (
    *VIOLATIONS,
    *columns("run_number int, earlier_slice int, earlier_local int, later_slice int, later_local int, slice int"),
)
"""A row of the table of violations, and where the ends of its chain are."""

VIOLATIONS_FOLDER: Final = "violations"
"""Where in the work folder those rows are."""


class Slice(NamedTuple):
    """One slice of one run, and where to find it."""

    work: WorkFolder
    run: str | None
    run_number: int
    number: int
    names: list[str]
    low: Longs
    high: Longs
    fragments: list[Fragment]
    has_later: npt.NDArray[np.bool_]
    resent: Mapping[tuple[int, int, str], tuple[str, int]] = {}
    forced: frozenset[str] = frozenset()

    def key(self, what: str) -> str:
        """The name under which something about this slice is left in the work folder."""
        return f"{what}-{self.run_number}-{self.number}"


class SliceStart(NamedTuple):
    """All that a slice needs of those before it."""

    entry: SliceEntry
    known: Ints
    """The clock of each process."""
    flight_clocks: Ints


@dataclass(frozen=True, slots=True)
class FoundSend:
    """A send that was looked for."""

    name: str
    hash: int
    slice: int
    process: int
    index: int


def read_slice(given: Slice, columns: tuple[str, ...] = COLUMNS) -> pa.Table:
    """The rows of a run that the fragments of a slice hold, and perhaps some of its peers."""
    tables = []
    for fragment in given.fragments:
        table, _ = read_fragment(fragment, columns)
        run = table["run"]
        if given.run is None:
            table = table if run.null_count == table.num_rows else table.filter(run.is_null())
        else:
            table = table.filter(pc.equal(run.cast(pa.string()), given.run))
        tables.append(table.drop_columns(["run"]))
    return _joined(tables)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """One table; columns that one file gives as numbers and another as words become words."""
    if not tables:
        return pa.table({name: pa.chunked_array([], schema().field(name).type) for name in COLUMNS if name != "run"})
    types = {name: {table.schema.field(name).type for table in tables} for name in tables[0].column_names}
    for name, found in types.items():
        if len(found) > 1:
            plain = pa.list_(pa.string()) if name == "to" else pa.string()
            tables = [table.set_column(table.column_names.index(name), name, table[name].cast(plain)) for table in tables]
    return pa.concat_tables(tables)


def encode_slices(slices: list[Slice]) -> list[Gist]:
    """Turn the rows of slices into numbers, leave those, and say what others must know of them."""
    gists, sent, runs = [], [], []
    for given in slices:
        encoded, messages, strangers = encode(read_slice(given), given.names, given.low, given.high, given.resent.keys())
        gists.append(gist_of(encoded, messages, strangers, given.has_later, given.forced))
        sends = encoded.message[(encoded.role == SEND) | (encoded.role == RESEND)]
        sent.append(hashes(messages)[sends])
        runs.append(np.full(len(sends), given.run_number, np.int64))
        given.work.put(given.key("encoded"), (encoded, messages, strangers))
    hashed, run = np.concatenate(sent), np.concatenate(runs)
    order = np.argsort(hashed)
    slices[0].work.put(slices[0].key("sent"), (hashed[order], run[order]))
    return gists


def lags_in(given: Slice) -> Longs:
    """The least time from a send to a delivery in a slice, for each pair of processes."""
    encoded, messages, _ = encode(read_slice(given, TIMED_COLUMNS), given.names, given.low, given.high, given.resent.keys())
    return lags_of(encoded, len(messages))


def gist_again(given: Slice) -> Gist:
    """The gist of a slice that was read already, with more messages let out of it."""
    encoded, messages, strangers = given.work.get(given.key("encoded"))
    return gist_of(encoded, messages, strangers, given.has_later, given.forced)


class Share(NamedTuple):
    """A part of the hashes of all messages, and the slices whose tasks have left such hashes."""

    slices: list[Slice]
    number: int
    of: int


def repeated_sends(share: Share) -> list[tuple[int, int]]:
    """Run and hash of what is sent more than once, in the same slice or not, if its hash belongs to this share."""
    edges = [share.number * HASH_TOPS // share.of, (share.number + 1) * HASH_TOPS // share.of]
    found, runs = [], []
    for one in share.slices:
        hashed, run = one.work.get(one.key("sent"))
        mine = slice(*np.searchsorted(hashed >> np.uint64(48), edges).tolist())
        found.append(hashed[mine])
        runs.append(run[mine])
    every, run_of = np.concatenate(found), np.concatenate(runs)
    ordered = np.sort(every)
    repeated = np.flatnonzero(np.isin(every, ordered[1:][ordered[1:] == ordered[:-1]]))
    pairs = Counter(zip(run_of[repeated].tolist(), every[repeated].tolist(), strict=True))
    return [pair for pair, count in pairs.items() if count > 1]


def find_sends(given: tuple[Slice, frozenset[str], npt.NDArray[np.uint64]]) -> list[FoundSend]:
    """All sends of these messages, or with these hashes, in a slice."""
    where, wanted, wanted_hashes = given
    encoded, messages, _ = where.work.get(where.key("encoded"))
    hashed = hashes(messages)
    hit = pc.is_in(messages, pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
    hit = hit | np.isin(hashed, wanted_hashes)
    events = np.flatnonzero((encoded.role == SEND) | (encoded.role == RESEND))
    found = []
    for event in events[hit[encoded.message[events]]].tolist():
        message = int(encoded.message[event])
        process, index = encoded.process_of(event), encoded.index_of(event)
        found.append(FoundSend(messages[message].as_py(), int(hashed[message]), where.number, process, index))
    return found


def sum_up_slice(where: Slice) -> tuple[Ints, Ints]:
    """The states at the end of a slice, and those of the messages that leave it, from an unknown start."""
    encoded, messages, _ = where.work.get(where.key("encoded"))
    entry: SliceEntry = where.work.get(where.key("entry"))
    story = tell_slice(encoded, messages, entry)
    known, clocks = sum_up(story)
    return known, clocks[story.row[entry.carried]]


def judge_slices(given: tuple[list[Slice], tuple[str, ...]]) -> dict[str, int]:
    """Leave the rows about events of slices whose starts are known; return how many there are of each property."""
    slices, require = given
    counts: Counter[str] = Counter()
    for where in slices:
        encoded, messages, _ = where.work.get(where.key("encoded"))
        start: SliceStart = where.work.get(where.key("start"))
        rows = violations_in(where, encoded, messages, start, require)
        counts += keep_rows(where.work, where.key("slice"), rows, where.run_number)
    return dict(counts)


def violations_in(
    where: Slice, encoded: Encoded, messages: pa.Array, start: SliceStart, require: tuple[str, ...]
) -> Iterator[ViolationRow]:
    """Judge a slice that begins as ``start`` says."""
    story = tell_slice(encoded, messages, start.entry)
    clocks, backward = clocks_from(story, start.known, start.flight_clocks)
    scene = Scene(where.run, where.number, where.names, encoded, messages, start.entry, story, where.resent)
    return judged(scene, backward, clocks, require)


def compare_clocks(run: Slice) -> Compared:
    """Compare the clocks that a run logs, all of it taken as one slice."""
    table = read_slice(run, (*COLUMNS, "clock"))
    if table.num_rows > MAX_CLOCKED_EVENTS:
        return Compared(0, 0, [], skipped=1)
    encoded, _, _ = encode(table, run.names, run.low, run.high, run.resent.keys())
    logged = table["clock"].to_pylist()
    clocks = [None if logged[row] is None else dict(logged[row]) for row in order_of(table, run.names).tolist()]
    return compare(encoded, run.names, clocks)


@dataclass(frozen=True, slots=True)
class Ends:
    """A violation whose chain is asked for, by its number, and the offending delivery."""

    number: int
    earlier: Place
    later: Place
    process: str
    index: int
    cone: bool
    """Whether its cone is asked for too."""


class Explanation(NamedTuple):
    """The chain of a violation, and its cone."""

    number: int
    chain: tuple[str, ...]
    story: str
    """The chain in words."""
    cone: list[Event]


def tell_chains(given: tuple[list[Slice], list[Ends]]) -> list[Explanation]:
    """The chains of violations that lie within a window of slices."""
    slices, wanted = given
    parts = []
    for one in slices:
        encoded, messages, _ = one.work.get(one.key("encoded"))
        start: SliceStart = one.work.get(one.key("start"))
        parts.append(Part(one.number, encoded, messages, start.entry))
    window = SliceWindow(slices[0].names, parts)
    found = []
    for ends in wanted:
        chain = window.chain(ends.earlier, ends.later)
        cone = window.cone(ends.earlier, ends.later, ends.process, ends.index, MAX_CONE_EVENTS) if ends.cone else []
        found.append(Explanation(ends.number, chain, tell_chain(chain, window.senders(chain)), cone))
    return found


def keep_rows(work: WorkFolder, name: str, rows: Iterator[ViolationRow], run_number: int) -> Counter[str]:
    """Leave rows of the table of violations; return how many there are of each property."""
    counts: Counter[str] = Counter()

    def counted() -> Iterator[ViolationRow]:
        for row in rows:
            counts[row.violation.property] += 1
            yield row

    work.put_rows(VIOLATIONS_FOLDER, name, batches(counted(), run_number))
    return counts


def batches(rows: Iterator[ViolationRow], run_number: int) -> Iterator[pa.RecordBatch]:
    """Return rows of the table of violations as Arrow."""
    schema = arrow_schema(FOUND)
    while True:
        some = [
            {name: getattr(row.violation, name) for name, *_ in VIOLATIONS}
            | {"run_number": run_number, "slice": row.slice}
            | dict(zip(("earlier_slice", "earlier_local"), row.earlier or (), strict=False))
            | dict(zip(("later_slice", "later_local"), row.later or (), strict=False))
            for row in islice(rows, ROWS_PER_BATCH)
        ]
        yield pa.RecordBatch.from_pylist(some, schema)
        if len(some) < ROWS_PER_BATCH:
            return
