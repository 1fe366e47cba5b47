"""Traces of any size that keep causal order, but for violations planted at known places.

The simulator runs real protocols and is honest and slow; this makes 10^8 events in minutes, for the audit to chew on. All
messages stand in one line, in an order in which causes come first. Each process takes those that are for it from the
line, not always the first one: any of the next few that no undelivered one before it has caused. So what is concurrent is
delivered in different orders at different processes, and what is not is not.

A violation is planted by delivering two messages the other way round, of which the first caused the second, and which are next
in line at that process: one delivery offends, one message is missing there. Both are said. Where, is chosen at random.

Only messages that somebody still waits for are held, so memory does not grow with the trace.

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

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import learn
from thence.trace.parquet import schema

WINDOW = 4
"""A process looks at this many messages of its line before it chooses."""
BACKLOG = 8
"""How many deliveries of each process lag behind."""
EVENTS_PER_PART = 4_000_000
EVENTS_PER_GROUP = 250_000
STEP_NS = 10_000
HELD_MESSAGES = 1 << 16
HELD_PER_LINE = 1 << 12
"""How many messages may be on their way, in all and to one process; powers of two."""


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


class _Part(NamedTuple):
    """A part of a trace as it grows, in compiled code."""

    kind: npt.NDArray[np.int8]
    process: npt.NDArray[np.int16]
    message: npt.NDArray[np.int32]
    to: npt.NDArray[np.int32]
    """The destinations of each message sent in this part, in the order of sending."""


class _Messages(NamedTuple):
    """The messages on their way, each at the place that its number has in a ring."""

    sender: npt.NDArray[np.int32]
    rank: npt.NDArray[np.int32]
    clock: npt.NDArray[np.int32]
    """For each message, how many of each process were sent causally before it."""
    left: npt.NDArray[np.int32]
    """How many have still to deliver it."""


class _Lines(NamedTuple):
    """For each process the messages for it, in the order of sending, in a ring: those from head to tail are to be delivered."""

    line: npt.NDArray[np.int32]
    head: npt.NDArray[np.int64]
    tail: npt.NDArray[np.int64]


class _Progress(NamedTuple):
    """How far it has got; counters are arrays of one number, so that compiled code can count on."""

    made: npt.NDArray[np.int64]
    events: npt.NDArray[np.int64]
    waiting: npt.NDArray[np.int64]
    planted: npt.NDArray[np.int64]
    due: npt.NDArray[np.int64]
    """Where each violation is to be planted, or as soon after it as can be."""


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
def _at(lines, p, place):  # type: ignore[no-untyped-def]
    """The message at a place of the line of a process."""
    return lines.line[p, place & (HELD_PER_LINE - 1)]


@compiled
def _send(part, messages, lines, known, at, m, sends, everyone):  # type: ignore[no-untyped-def]
    """Some process sends message ``m``."""
    n = len(known)
    p = np.random.randint(n)
    slot = m & (HELD_MESSAGES - 1)
    if messages.left[slot]:
        raise ValueError("too many messages are on their way")
    messages.sender[slot], messages.rank[slot], messages.left[slot] = p, known[p, p], part.to.shape[1]
    messages.clock[slot] = known[p]
    known[p, p] += 1
    _choose(part.to[sends], p, n, everyone)
    for q in part.to[sends]:
        if lines.tail[q] - lines.head[q] == HELD_PER_LINE:
            raise ValueError("too many messages are on their way to one process")
        lines.line[q, lines.tail[q] & (HELD_PER_LINE - 1)] = m
        lines.tail[q] += 1
    part.kind[at], part.process[at], part.message[at] = 1, p, m


@compiled
def _precedes(messages, one, two):  # type: ignore[no-untyped-def]
    one, two = one & (HELD_MESSAGES - 1), two & (HELD_MESSAGES - 1)
    return messages.clock[two, messages.sender[one]] > messages.rank[one]


@compiled
def _deliver(part, messages, known, at, p, m):  # type: ignore[no-untyped-def]
    slot = m & (HELD_MESSAGES - 1)
    learn(known[p], messages.clock[slot])
    known[p, messages.sender[slot]] = max(known[p, messages.sender[slot]], messages.rank[slot] + 1)
    messages.left[slot] -= 1
    part.kind[at], part.process[at], part.message[at] = 2, p, m


@compiled
def _take(messages, lines, p, size):  # type: ignore[no-untyped-def]
    """Take a message out of the line of a process: any of the first ones that none before it has caused."""
    head = lines.head[p]
    pick = np.random.randint(size)
    while pick > 0:
        free = True
        for j in range(pick):
            free &= not _precedes(messages, _at(lines, p, head + j), _at(lines, p, head + pick))
        if free:
            break
        pick -= 1
    m = _at(lines, p, head + pick)
    for j in range(pick, 0, -1):
        lines.line[p, (head + j) & (HELD_PER_LINE - 1)] = _at(lines, p, head + j - 1)
    lines.head[p] += 1
    return m


@compiled
def _start(seed):  # type: ignore[no-untyped-def]
    np.random.seed(seed)


@compiled
def _go_on(part, messages, lines, known, found, progress, count, everyone):  # type: ignore[no-untyped-def]
    """Fill in a part, but for a last event where a pair has no room; return how many events it has."""
    n, copies = len(known), part.to.shape[1]
    total = count * (copies + 1)
    made, waiting, planted = progress.made[0], progress.waiting[0], progress.planted[0]
    begin, at, sends = progress.events[0], 0, 0
    while at < len(part.kind) - 1 and begin + at < total:
        if made < count and (waiting < BACKLOG * n or np.random.random() < 0.5 / (copies + 1)):
            _send(part, messages, lines, known, at, made, sends, everyone)
            made, at, sends, waiting = made + 1, at + 1, sends + 1, waiting + copies
            continue
        p = np.random.randint(n)
        size = min(WINDOW, lines.tail[p] - lines.head[p])
        if size == 0:
            continue
        one, two = _at(lines, p, lines.head[p]), _at(lines, p, lines.head[p] + (size > 1))
        strange = messages.sender[one & (HELD_MESSAGES - 1)] != p and messages.sender[two & (HELD_MESSAGES - 1)] != p
        if planted < len(found) and begin + at >= progress.due[planted] and strange and _precedes(messages, one, two):
            found[planted, 0], found[planted, 1], found[planted, 2] = p, two, one
            planted += 1
            lines.head[p] += 2
            _deliver(part, messages, known, at, p, two)
            _deliver(part, messages, known, at + 1, p, one)
            at, waiting = at + 2, waiting - 2
            continue
        _deliver(part, messages, known, at, p, _take(messages, lines, p, size))
        at, waiting = at + 1, waiting - 1
    progress.made[0], progress.waiting[0], progress.planted[0], progress.events[0] = made, waiting, planted, begin + at
    return at


def _parts(shape: Shape, found: npt.NDArray[np.int32]) -> Iterator[_Part]:
    """A trace, part by part; what is planted is noted in ``found``."""
    n, copies = shape.processes, shape.copies or shape.processes
    count = shape.events // (copies + 1)
    size = EVENTS_PER_GROUP
    whole = _Part(np.empty(size, np.int8), np.empty(size, np.int16), np.empty(size, np.int32), np.empty((size, copies), np.int32))
    held = HELD_MESSAGES
    messages = _Messages(
        np.empty(held, np.int32), np.empty(held, np.int32), np.empty((held, n), np.int32), np.zeros(held, np.int32)
    )
    lines = _Lines(np.empty((n, HELD_PER_LINE), np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64))
    known = np.zeros((n, n), np.int32)
    total = count * (copies + 1)
    due = np.sort(np.random.default_rng(shape.seed).integers(0, total - total // 10 + 1, shape.planted))
    made, events, waiting, planted = np.zeros((4, 1), np.int64)
    progress = _Progress(made, events, waiting, planted, due)
    _start(shape.seed)
    while progress.events[0] < total:
        length = _go_on(whole, messages, lines, known, found, progress, count, shape.copies is None)
        yield _Part(whole.kind[:length], whole.process[:length], whole.message[:length], whole.to)
    if progress.planted[0] < len(found):
        raise ValueError(f"only {progress.planted[0]} violations could be planted")


def generate(shape: Shape, folder: Path) -> list[Planted]:
    """Write a trace of about so many events; return what was planted."""
    folder.mkdir(parents=True, exist_ok=True)
    found = np.empty((shape.planted, 3), np.int32)
    names = np.array([f"p{number:03d}" for number in range(shape.processes)])
    writer: Any = None
    skew = np.random.default_rng(shape.seed).integers(-shape.skew_ns, shape.skew_ns + 1, shape.processes)
    for number, table in enumerate(_tables(_parts(shape, found), names, skew)):
        if number % (EVENTS_PER_PART // EVENTS_PER_GROUP) == 0:
            if writer:
                writer.close()
            writer = pq.ParquetWriter(folder / f"part-{number:06d}.parquet", schema(), compression="zstd")
        writer.write_table(table)
    writer.close()
    return [Planted(str(names[p]), _name(later), _name(earlier)) for p, later, earlier in found.tolist()]


def _name(message: int) -> str:
    return f"m{message}"


def _tables(parts: Iterator[_Part], names: npt.NDArray[np.str_], skew: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    counts = np.zeros(len(names), np.int64)
    kinds = pa.array(["other", "send", "deliver"])
    named = pa.array(names.tolist())
    begin = 0
    for what, who, which, to in parts:
        end = begin + len(what)
        index = np.empty(end - begin, np.int64)
        for p in range(len(names)):
            mine = np.flatnonzero(who == p)
            index[mine] = counts[p] + np.arange(len(mine))
            counts[p] += len(mine)
        least, most = int(which.min()), int(which.max())
        ids = pa.array([_name(number) for number in range(least, most + 1)])
        sends = what == 1
        groups = to[: int(sends.sum())]
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
        begin = end


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
