"""The state of a run as bytes, as it lies in Spark's state store: a head that says the version, then plain arrays.

Rules:

* Nothing in it can be executed. What another version wrote is refused.
* Clocks that no message needs are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thence.errors import StorageError
from thence.pipeline.kernels.slices import nothing
from thence.pipeline.scan.flights import ClockPool, Flights
from thence.pipeline.scan.run import RunScan
from thence.pipeline.streaming.run import FollowedRun
from thence.pipeline.streaming.total import Orders

HEAD: Final = b"thence run 1\n"
"""What a state begins with; the number is that of the format."""
MAX_STATE_BYTES: Final = 1 << 30
"""Of one run: Java cannot hold more than twice that in one piece."""

_SCAN: Final = ("known", "base", "judged", "previous", "crashed", "left", "totals")
_CODEC: Final = "lz4"


class _Array(NamedTuple):
    kind: str
    shape: tuple[int, ...]
    content: bytes


class _Saved(msgspec.Struct):
    """A run, field by field."""

    run: str | None
    require: tuple[str, ...]
    remembered: int
    names: list[str]
    strangers: list[str]
    held: bytes
    flights: bytes
    """The names of messages on their way."""
    orders: bytes | None
    """The names of messages that orders speak of."""
    steps: int
    clock_ms: int
    visited_ms: int | None
    counts: dict[str, int]
    history: dict[int, int]
    arrays: dict[str, _Array]


def to_bytes(run: FollowedRun) -> bytes:
    """Return the state of a run."""
    scan = run.scan
    slots, slot = np.unique(np.append(0, scan.flights.slot), return_inverse=True)
    arrays: dict[str, npt.NDArray[Any]] = {"pool": scan.pool.rows[slots]}
    arrays |= {f"scan.{name}": getattr(scan, name) for name in _SCAN}
    arrays |= {f"flights.{one.name}": getattr(scan.flights, one.name) for one in fields(Flights) if one.name != "names"}
    arrays["flights.slot"] = slot[1:].astype(np.int32)
    if run.orders:
        arrays |= {f"orders.{name}": array for name, array in run.orders.arrays().items()}
    content = HEAD + msgspec.msgpack.encode(
        _Saved(
            run=scan.run,
            require=tuple(scan.require),
            remembered=scan.remembered,
            names=list(scan.names),
            strangers=scan.strangers,
            held=table_to_bytes(run.held),
            flights=_words(scan.flights.names),
            orders=_words(run.orders.names) if run.orders else None,
            steps=run.steps,
            clock_ms=run.clock_ms,
            visited_ms=run.visited_ms,
            counts=dict(run.counts),
            history=run.history,
            arrays={name: _packed(array) for name, array in arrays.items()},
        )
    )
    if len(content) > MAX_STATE_BYTES:
        raise StorageError(
            f"the state of run {scan.run!r} takes {len(content):,} bytes; the limit is {MAX_STATE_BYTES:,}: "
            f"{run.held.num_rows:,} events are held, and {scan.flights.count:,} messages are known"
        )
    return content


def from_bytes(content: bytes) -> FollowedRun:
    """Return the run whose state this is."""
    if not content.startswith(HEAD):
        raise StorageError("the checkpoint was written by another version of thence; begin with a new checkpoint")
    saved = msgspec.msgpack.decode(memoryview(content)[len(HEAD) :], type=_Saved)
    arrays = {name: _unpacked(array) for name, array in saved.arrays.items()}
    scan = RunScan(saved.run, saved.names, arrays["scan.totals"], saved.require, remembered=saved.remembered)
    for name in _SCAN:
        setattr(scan, name, arrays[f"scan.{name}"])
    scan.strangers, scan.held = saved.strangers, nothing(len(saved.names))
    scan.pool = ClockPool(len(saved.names))
    scan.pool.rows = arrays["pool"]
    scan.flights = replace(scan.flights, names=_names(saved.flights), **_part(arrays, "flights."))
    orders = None if saved.orders is None else Orders.of(_names(saved.orders), _part(arrays, "orders."))
    return FollowedRun(
        scan,
        orders,
        table_of_bytes(saved.held),
        saved.steps,
        saved.clock_ms,
        saved.visited_ms,
        Counter(saved.counts),
        saved.history,
    )


def table_to_bytes(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=_CODEC)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def table_of_bytes(content: bytes) -> pa.Table:
    """Return the table that these bytes are."""
    with pa.ipc.open_stream(content) as reader:
        return reader.read_all()


def _words(names: pa.Array) -> bytes:
    return table_to_bytes(pa.table({"name": names}))


def _names(content: bytes) -> pa.Array:
    column = table_of_bytes(content)["name"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _packed(array: npt.NDArray[Any]) -> _Array:
    content = np.ascontiguousarray(array).tobytes()
    return _Array(array.dtype.str, array.shape, pa.compress(content, codec=_CODEC, asbytes=True) if content else b"")


def _unpacked(array: _Array) -> npt.NDArray[Any]:
    kind = np.dtype(array.kind)
    size = math.prod(array.shape) * kind.itemsize
    content = pa.decompress(array.content, size, codec=_CODEC, asbytes=True) if size else b""
    return np.frombuffer(content, kind).reshape(array.shape).copy()  # compiled code tells arrays that it may not write apart


def _part(arrays: dict[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
