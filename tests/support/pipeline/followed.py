"""Following without Spark, for tests: events in chunks, as parts of a trace would bring them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from thence.pipeline.streaming.follower import FOLLOWED, Follower
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.parquet import schema
from thence.trace.verdict import Violation, sort_key


def table_of(events: Sequence[Event]) -> pa.Table:
    """Events as Arrow, with the columns of a trace."""
    return pa.Table.from_pylist([msgspec.structs.asdict(event) for event in events], schema())


def follow(follower: Follower, chunks: Sequence[Sequence[Event]]) -> list[Violation]:
    """All rows of a trace that comes in chunks and then ends."""
    rows = [row for now, chunk in enumerate(chunks) for row in follower.take(table_of(chunk), now)]
    return sorted([*rows, *follower.finish()], key=sort_key)


def judged(events: Sequence[Event], require: Sequence[str] = FOLLOWED) -> list[Violation]:
    """The judge's rows, without chains."""
    return [msgspec.structs.replace(row, chain=()) for row in judge(events, require).violations]
