"""A thousand violations at random places in ten million events: all found, none invented, each with a right chain.

Chains are checked against the trace itself, by a search of this file's own: each message of a chain must be known to the
sender of the next one before it sends that, and there must be no shorter way.

    python -m benchmarks.audit_planted --events 10000000 --planted 1000
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from benchmarks.generated import Shape, generate
from thence.pipeline.audit import audit_trace
from thence.pipeline.session import spark_session

NEVER = np.iinfo(np.int32).max


class Known(NamedTuple):
    """Of each message who sent it, as which of its events, and when each process came to know of it."""

    sender: npt.NDArray[np.int32]
    sent: npt.NDArray[np.int32]
    known: npt.NDArray[np.int32]


def learnt(folder: Path, processes: int) -> Known:
    """Read a generated trace, whose names are numbers behind a message."""
    parts: list[tuple[Any, ...]] = []
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file, columns=["process", "index", "kind", "message"])
        process, message = (_numbers(table[name]) for name in ("process", "message"))
        sends = table["kind"].to_numpy() == "send"
        parts.append((process, message, table["index"].to_numpy().astype(np.int32), sends.astype(np.bool_)))
    process, message, index, sends = (np.concatenate(column) for column in zip(*parts, strict=True))
    count = int(message.max()) + 1
    sender, sent, known = (
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.full((count, processes), NEVER, np.int32),
    )
    sender[message[sends]], sent[message[sends]] = process[sends], index[sends]
    np.minimum.at(known, (message, process), index)
    return Known(sender, sent, known)


def _numbers(column: Any) -> npt.NDArray[np.int32]:
    words = column.combine_chunks().dictionary_encode()
    numbers: npt.NDArray[np.int32] = np.array([int(word[1:]) for word in words.dictionary.to_pylist()], np.int32)
    codes: npt.NDArray[np.int32] = words.indices.to_numpy()
    return numbers[codes]


def shortest(trace: Known, earlier: int, later: int) -> int:
    """How many messages the shortest chain has. Messages are numbered in an order in which causes come first."""
    known = trace.known[earlier].copy()
    between = np.arange(earlier + 1, later + 1)
    length = 2
    while True:
        reached = between[known[trace.sender[between]] < trace.sent[between]]
        if later in reached:
            return length
        sooner = np.minimum(known, trace.known[reached].min(axis=0, initial=NEVER))
        if np.array_equal(sooner, known):
            return 0
        known = sooner
        length += 1


def is_right(trace: Known, chain: list[int], earlier: int, later: int) -> bool:
    """Whether a chain leads from one message to the other, and no other is shorter."""
    leads = all(trace.known[one, trace.sender[two]] < trace.sent[two] for one, two in pairwise(chain))
    return leads and (chain[0], chain[-1]) == (earlier, later) and len(chain) == shortest(trace, earlier, later)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--planted", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--copies", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    shape = Shape(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory(prefix="thence-bench-") as place:
        planted = {(one.process, one.later, one.earlier) for one in generate(shape, Path(place))}
        began = time.perf_counter()
        result = audit_trace(spark_session(), place, require=["causal"], explain=shape.planted)
        seconds = time.perf_counter() - began
        trace = learnt(Path(place), shape.processes)
    found = {(row.process, str(row.later), str(row.earlier)): [int(name[1:]) for name in row.chain] for row in result.violations}
    lengths = sorted(map(len, found.values()))
    right = sum(is_right(trace, chain, int(earlier[1:]), int(later[1:])) for (_, later, earlier), chain in found.items())
    print(f"{result.events:,} events, {shape.processes} processes, {result.slices} slices, seed {shape.seed}, {seconds:.1f} s")
    print(f"planted {len(planted)}, found {len(planted & found.keys())}, invented {result.properties['causal'] - len(planted)}")
    print(f"right chains {right}, of {lengths[0]} to {lengths[-1]} messages")
    if found.keys() != planted or right != len(planted) or result.properties["causal"] != len(planted):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
