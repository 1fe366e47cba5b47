"""Traces of any size that keep causal order, but for violations planted at known places.

The simulator runs real protocols and is honest and slow; this makes 10^8 events in minutes, for the audit to chew on. All
messages stand in one line, in an order in which causes come first. Each process takes those that are for it from the
line, not always the first one: any of the next few that no undelivered one before it has caused. So what is concurrent is
delivered in different orders at different processes, and what is not is not.

A violation is planted by delivering two messages the other way round, of which the first caused the second, and which are next
in line at that process: one delivery offends, one message is missing there. Both are said.

    python -m benchmarks.generated --events 1000000 --out /tmp/trace
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from thence.pipeline.kernels.compiled import compiled
from thence.pipeline.kernels.replay import learn
from thence.trace.parquet import schema

WINDOW = 4
"""A process looks at this many messages of its line before it chooses."""
BACKLOG = 8
"""How many deliveries of each process lag behind."""
EVENTS_PER_PART = 4_000_000
EVENTS_PER_GROUP = 250_000
STEP_NS = 10_000


class Shape(NamedTuple):
    """What to make."""

    events: int
    processes: int = 64
    copies: int | None = None
    """To how many each message goes; None: to everyone, its sender included."""
    planted: int = 0
    seed: int = 0
    skew_ns: int = 0
    """Each process's clock is wrong by up to this much."""


class Planted(NamedTuple):
    """A violation that is in the trace: this process delivers ``later`` although it lacks ``earlier``."""

    process: str
    later: str
    earlier: str


class _Trace(NamedTuple):
    """A trace as it grows, in compiled code."""

    kind: npt.NDArray[np.int8]
    process: npt.NDArray[np.int16]
    message: npt.NDArray[np.int32]


class _Messages(NamedTuple):
    sender: npt.NDArray[np.int32]
    rank: npt.NDArray[np.int32]
    clock: npt.NDArray[np.int32]
    """For each message, how many of each process were sent causally before it."""
    to: npt.NDArray[np.int32]


class _Lines(NamedTuple):
    """For each process the messages for it, in the order of sending, and which part of them is still to be delivered."""

    line: npt.NDArray[np.int32]
    head: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]


@compiled
def _choose(to, sender, n, everyone):  # type: ignore[no-untyped-def]
    """Fill in the destinations of a message: everyone, or some others, each once."""
    for k in range(len(to)):
        if everyone:
            to[k] = k
            continue
        while True:
            q = np.random.randint(n)
            if q != sender and not np.any(to[:k] == q):
                break
        to[k] = q


@compiled
def _send(trace, messages, lines, known, at, m, everyone):  # type: ignore[no-untyped-def]
    """Some process sends message ``m``."""
    n = len(known)
    p = np.random.randint(n)
    messages.sender[m], messages.rank[m] = p, known[p, p]
    messages.clock[m] = known[p]
    known[p, p] += 1
    _choose(messages.to[m], p, n, everyone)
    for q in messages.to[m]:
        lines.line[q, lines.tail[q]] = m
        lines.tail[q] += 1
    trace.kind[at], trace.process[at], trace.message[at] = 1, p, m


@compiled
def _precedes(messages, one, two):  # type: ignore[no-untyped-def]
    return messages.clock[two, messages.sender[one]] > messages.rank[one]


@compiled
def _deliver(trace, messages, known, at, p, m):  # type: ignore[no-untyped-def]
    learn(known[p], messages.clock[m])
    known[p, messages.sender[m]] = max(known[p, messages.sender[m]], messages.rank[m] + 1)
    trace.kind[at], trace.process[at], trace.message[at] = 2, p, m


@compiled
def _take(messages, lines, p, size):  # type: ignore[no-untyped-def]
    """Take a message out of the line of a process: any of the first ones that none before it has caused."""
    line, head = lines.line[p], lines.head[p]
    pick = np.random.randint(size)
    while pick > 0:
        free = True
        for j in range(pick):
            free &= not _precedes(messages, line[head + j], line[head + pick])
        if free:
            break
        pick -= 1
    m = line[head + pick]
    for j in range(pick, 0, -1):
        line[head + j] = line[head + j - 1]
    lines.head[p] += 1
    return m


@compiled
def _make(trace, messages, lines, known, found, seed, everyone):  # type: ignore[no-untyped-def]
    """Fill in the trace; return how many violations were planted."""
    np.random.seed(seed)
    n, total, count = len(known), len(trace.kind), 0
    every = (total - total // 10) // (len(found) + 1)
    made, at, waiting = 0, 0, 0
    while at < total:
        share = 0.5 / (messages.to.shape[1] + 1)
        if made < len(messages.sender) and (waiting < BACKLOG * n or np.random.random() < share):
            _send(trace, messages, lines, known, at, made, everyone)
            made, at, waiting = made + 1, at + 1, waiting + messages.to.shape[1]
            continue
        p = np.random.randint(n)
        size = min(WINDOW, lines.tail[p] - lines.head[p])
        if size == 0:
            continue
        one, two = lines.line[p, lines.head[p]], lines.line[p, lines.head[p] + (size > 1)]
        strange = messages.sender[one] != p and messages.sender[two] != p
        if count < len(found) and at >= every * (count + 1) and strange and _precedes(messages, one, two):
            found[count, 0], found[count, 1], found[count, 2] = p, two, one
            count += 1
            lines.head[p] += 2
            _deliver(trace, messages, known, at, p, two)
            _deliver(trace, messages, known, at + 1, p, one)
            at, waiting = at + 2, waiting - 2
            continue
        _deliver(trace, messages, known, at, p, _take(messages, lines, p, size))
        at, waiting = at + 1, waiting - 1
    return count


def _run(shape: Shape) -> tuple[_Trace, _Messages, npt.NDArray[np.int32]]:
    n = shape.processes
    copies = shape.copies or n
    count = shape.events // (copies + 1)
    total = count * (copies + 1)
    trace = _Trace(np.empty(total, np.int8), np.empty(total, np.int16), np.empty(total, np.int32))
    messages = _Messages(
        np.empty(count, np.int32), np.empty(count, np.int32), np.empty((count, n), np.int32), np.empty((count, copies), np.int32)
    )
    length = count if shape.copies is None else int(count * copies / n * 1.5) + 64
    lines = _Lines(np.empty((n, length), np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64))
    found = np.empty((shape.planted, 3), np.int32)
    planted = _make(trace, messages, lines, np.zeros((n, n), np.int32), found, shape.seed, shape.copies is None)
    return trace, messages, found[:planted]


def generate(shape: Shape, folder: Path) -> list[Planted]:
    """Write a trace of about so many events; return what was planted."""
    folder.mkdir(parents=True, exist_ok=True)
    trace, messages, found = _run(shape)
    names = np.array([f"p{number:03d}" for number in range(shape.processes)])
    writer: Any = None
    skew = np.random.default_rng(shape.seed).integers(-shape.skew_ns, shape.skew_ns + 1, shape.processes)
    for number, table in enumerate(_tables(*trace, messages.to, names, skew)):
        if number % (EVENTS_PER_PART // EVENTS_PER_GROUP) == 0:
            if writer:
                writer.close()
            writer = pq.ParquetWriter(folder / f"part-{number:06d}.parquet", schema(), compression="zstd")
        writer.write_table(table)
    writer.close()
    return [Planted(str(names[p]), _name(later), _name(earlier)) for p, later, earlier in found.tolist()]


def _name(message: int) -> str:
    return f"m{message}"


def _tables(
    kind: npt.NDArray[np.int8],
    process: npt.NDArray[np.int16],
    message: npt.NDArray[np.int32],
    to: npt.NDArray[np.int32],
    names: npt.NDArray[np.str_],
    skew: npt.NDArray[np.int64],
) -> Iterator[pa.Table]:
    counts = np.zeros(len(names), np.int64)
    kinds = pa.array(["other", "send", "deliver"])
    named = pa.array(names.tolist())
    for begin in range(0, len(kind), EVENTS_PER_GROUP):
        end = min(len(kind), begin + EVENTS_PER_GROUP)
        who, what, which = process[begin:end], kind[begin:end], message[begin:end]
        index = np.empty(end - begin, np.int64)
        for p in range(len(names)):
            mine = np.flatnonzero(who == p)
            index[mine] = counts[p] + np.arange(len(mine))
            counts[p] += len(mine)
        least, most = int(which.min()), int(which.max())
        ids = pa.array([_name(number) for number in range(least, most + 1)])
        sends = what == 1
        groups = to[which[sends]]
        lengths = np.where(sends, groups.shape[1], 0)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), mask=np.append(~sends, [False]))
        time = np.arange(begin, end, dtype=np.int64) * STEP_NS + skew[who]
        columns = {
            "process": pa.DictionaryArray.from_arrays(pa.array(who.astype(np.int32)), named).cast(pa.string()),
            "index": pa.array(index),
            "kind": pa.DictionaryArray.from_arrays(pa.array(what.astype(np.int32)), kinds).cast(pa.string()),
            "message": pa.DictionaryArray.from_arrays(pa.array(which - least), ids).cast(pa.string()),
            "to": pa.ListArray.from_arrays(offsets, named.take(pa.array(groups.ravel()))),
            "time": pa.array(time),
        }
        yield pa.table([columns.get(field.name, pa.nulls(end - begin, field.type)) for field in schema()], schema=schema())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--copies", type=int, default=None)
    parser.add_argument("--planted", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skew-ns", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = vars(parser.parse_args())
    folder = given.pop("out")
    for planted in generate(Shape(**given), folder):
        print(*planted)


if __name__ == "__main__":
    main()
