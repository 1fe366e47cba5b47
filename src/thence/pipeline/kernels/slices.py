"""A slice of a run in numbers, and what can be done with slices: pack one for its way to another worker, put what was held before
the next one, and keep what could not be judged.

Rules:

* Messages have numbers of their own in each slice. Between slices they are known by their names.
* Destinations that are no process of the run are *strangers*: they have the numbers behind the processes, slice by slice, so they
  are known by their names too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.encoder import Encoded
from thence.pipeline.kernels.replay import NOBODY, RESEND, SEND, Bools, Ints, Longs
from thence.pipeline.tables import columns

NEVER: Final = -1
"""No later slice names a message."""

_TYPES: Final[Mapping[str, Any]] = {
    "first": np.int64, "least": np.int64, "listed": np.int64, "kind": np.int8, "role": np.int8, "message": np.int32,
    "send_event": np.int32, "to_first": np.int64, "to": np.int32, "unaddressed": np.bool_, "incomplete": np.int32,
}  # fmt: skip
"""The arrays of an encoded slice that are packed: all but the times, which only serve to look at clocks."""

PACKED: Final = columns(", ".join(f"{name} binary" for name in (*_TYPES, "name_bounds", "name_bytes", "strangers")))
"""The columns of a packed slice."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of one run."""

    encoded: Encoded
    names: pa.Array
    """Of its messages, by number."""
    strangers: Sequence[str]
    last: Ints
    """Of each message: the last slice that delivers it without sending it, or ``NEVER``."""
    unsent: Bools
    """Of each message: whether it is delivered and no slice sends it."""

    @property
    def events(self) -> int:
        return len(self.encoded.role)


def slice_of(encoded: Encoded, names: pa.Array, strangers: Sequence[str]) -> Slice:
    """Return a slice of which nothing is known beyond what it holds."""
    return Slice(encoded, names, strangers, np.full(len(names), NEVER, np.int32), np.zeros(len(names), np.bool_))


def pack(given: Slice) -> dict[str, Any]:
    """Return a slice as bytes, by the columns ``PACKED``."""
    arrays = {name: np.ascontiguousarray(getattr(given.encoded, name), kind).tobytes() for name, kind in _TYPES.items()}
    bounds, content = _words_of(given.names)
    return {**arrays, "name_bounds": bounds.tobytes(), "name_bytes": content, "strangers": msgspec.json.encode(given.strangers)}


def unpack(row: Mapping[str, pa.Scalar]) -> Slice:
    """Return the slice in a row with the columns ``PACKED``."""
    # Copied, as compiled code would be compiled once more for arrays that cannot be written to.
    arrays = {name: np.frombuffer(row[name].as_buffer(), kind).copy() for name, kind in _TYPES.items()}
    encoded = Encoded(time=np.empty(0, np.int64), **arrays)
    bounds, content = row["name_bounds"].as_buffer(), row["name_bytes"].as_buffer()
    names = pa.LargeStringArray.from_buffers(bounds.size // 8 - 1, bounds, content).cast(pa.string())
    return slice_of(encoded, names, msgspec.json.decode(row["strangers"].as_buffer(), type=list[str]))


def without(given: Slice, resends: Mapping[tuple[int, int, str], Any]) -> Slice:
    """Return a slice in which these sends, by process, index and name, carry nothing: another slice has the send."""
    encoded = given.encoded
    role = encoded.role.copy()
    for process, index, name in resends:
        for event in events_at(encoded, process, index):
            if role[event] == SEND and given.names[int(encoded.message[event])].as_py() == name:
                role[event] = RESEND
    kept = role[encoded.send_event] == SEND
    if kept.all():
        return given
    first, to = grouped(np.flatnonzero(kept), encoded.to_first, encoded.to)
    sends = {"send_event": encoded.send_event[kept], "unaddressed": encoded.unaddressed[kept], "to_first": first, "to": to}
    return replace(given, encoded=replace(encoded, role=role, **sends))


def with_strangers(given: Slice, strangers: list[str]) -> Slice:
    """Return a slice with the numbers that strangers have in a list, which gets those that it lacks."""
    strangers += [name for name in given.strangers if name not in strangers]
    return replace(given, encoded=replace(given.encoded, to=_renamed(given, strangers)), strangers=list(strangers))


def events_at(encoded: Encoded, process: int, index: int) -> range:
    """The events of a process with an index: one, or several if the index repeats."""
    begin, end = int(encoded.first[process]), int(encoded.first[process + 1])
    if len(encoded.listed):
        mine = encoded.listed[begin:end]
        return range(begin + int(np.searchsorted(mine, index)), begin + int(np.searchsorted(mine, index, side="right")))
    at = begin + index - int(encoded.least[process])
    return range(at, at + 1) if begin <= at < end else range(0)


def joined(parts: Sequence[Slice]) -> Slice:
    """Return one slice of several; of each process, the events of a part come before those of the next one."""
    if len(parts) == 1:
        return parts[0]
    every = pa.concat_arrays([part.names for part in parts]).dictionary_encode()
    number, names = every.indices.to_numpy().astype(np.int64), every.dictionary
    strangers = list(dict.fromkeys(name for part in parts for name in part.strangers))
    encoded = [part.encoded for part in parts]
    order = np.argsort(np.concatenate([processes_of(one) for one in encoded]), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    events = _offsets([len(one.role) for one in encoded])
    named = _offsets([len(part.names) for part in parts])
    message = [
        np.append(number[at : at + len(part.names)], NOBODY)[part.encoded.message] for at, part in zip(named, parts, strict=True)
    ]
    sends = np.concatenate([place[one.send_event + at] for at, one in zip(events, encoded, strict=True)])
    by_place = np.argsort(sends)
    to = [_renamed(part, strangers) for part in parts]
    bounds = np.cumsum([0, *np.concatenate([np.diff(one.to_first) for one in encoded])])
    first, values = grouped(by_place, bounds, np.concatenate(to))
    last, unsent = np.full(len(names), NEVER, np.int32), np.zeros(len(names), np.bool_)
    np.maximum.at(last, number, np.concatenate([part.last for part in parts]))
    np.logical_or.at(unsent, number, np.concatenate([part.unsent for part in parts]))
    incomplete = np.concatenate([place[one.incomplete + at] for at, one in zip(events, encoded, strict=True)])
    whole = Encoded(
        first=np.sum([one.first for one in encoded], axis=0),
        least=np.min([one.least for one in encoded], axis=0),
        listed=np.concatenate([one.index for one in encoded])[order],
        kind=np.concatenate([one.kind for one in encoded])[order],
        role=np.concatenate([one.role for one in encoded])[order],
        message=np.concatenate(message)[order].astype(np.int32),
        send_event=sends[by_place].astype(np.int32),
        to_first=first,
        to=values,
        unaddressed=np.concatenate([one.unaddressed for one in encoded])[by_place],
        incomplete=np.sort(incomplete).astype(np.int32),
        time=np.empty(0, np.int64),
    )
    return Slice(whole, names, strangers, last, unsent)


def rest(given: Slice, reached: Longs) -> Slice:
    """Return the slice of the events from ``reached[p]`` on of each process p."""
    encoded = given.encoded
    kept = np.flatnonzero(np.arange(len(encoded.role)) >= np.repeat(reached, np.diff(encoded.first)))
    place = np.full(len(encoded.role), -1, np.int64)
    place[kept] = np.arange(len(kept))
    sends = np.flatnonzero(place[encoded.send_event] >= 0)
    first, to = grouped(sends, encoded.to_first, encoded.to)
    used, message = np.unique(encoded.message[kept], return_inverse=True)
    if len(used) and used[0] == NOBODY:
        used, message = used[1:], message - 1
    listed = encoded.index[kept]
    count = encoded.first[1:] - reached
    bounds = np.concatenate([[0], np.cumsum(count)])
    least = np.full(encoded.processes, np.iinfo(np.int64).max)
    some = np.flatnonzero(count)
    least[some] = listed[bounds[some]]
    incomplete = place[encoded.incomplete]
    left = Encoded(
        first=bounds,
        least=least,
        listed=listed,
        kind=encoded.kind[kept],
        role=encoded.role[kept],
        message=message.astype(np.int32),
        send_event=place[encoded.send_event[sends]].astype(np.int32),
        to_first=first,
        to=to,
        unaddressed=encoded.unaddressed[sends],
        incomplete=incomplete[incomplete >= 0].astype(np.int32),
        time=np.empty(0, np.int64),
    )
    return Slice(left, given.names.take(pa.array(used)), given.strangers, given.last[used], given.unsent[used])


def nothing(processes: int) -> Slice:
    """Return a slice without events."""
    empty: dict[str, npt.NDArray[Any]] = {name: np.empty(0, kind) for name, kind in _TYPES.items()}
    empty |= {"first": np.zeros(processes + 1, np.int64), "to_first": np.zeros(1, np.int64)}
    empty["least"] = np.full(processes, np.iinfo(np.int64).max)
    return slice_of(Encoded(time=np.empty(0, np.int64), **empty), pa.array([], pa.string()), [])


def processes_of(encoded: Encoded) -> Ints:
    """The process of each event."""
    return np.repeat(np.arange(encoded.processes, dtype=np.int32), np.diff(encoded.first))


def grouped(chosen: npt.NDArray[Any], first: Longs, values: npt.NDArray[Any]) -> tuple[Longs, npt.NDArray[Any]]:
    """The chosen groups of values, one after the other."""
    lengths = first[chosen + 1] - first[chosen]
    starts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(first[chosen] - starts[:-1], lengths)
    return starts, values[places]


def _words_of(names: pa.Array) -> tuple[Longs, bytes]:
    """Where words begin and end, and all of them one behind the other."""
    words = names.cast(pa.large_string())
    _, bounds, content = words.buffers()
    begins = (
        np.frombuffer(bounds, np.int64)[words.offset : words.offset + len(words) + 1] if len(words) else np.zeros(1, np.int64)
    )
    return begins - begins[0], (content.to_pybytes() if content else b"")[int(begins[0]) : int(begins[-1])]


def _offsets(lengths: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(lengths).tolist()][:-1]


def _renamed(part: Slice, strangers: Sequence[str]) -> Ints:
    """The destinations of a slice, by another numbering of strangers."""
    if not len(part.strangers):
        return part.encoded.to
    n = part.encoded.processes
    number = pc.index_in(pa.array(part.strangers, pa.string()), pa.array(strangers, pa.string())).to_numpy()
    return np.concatenate([np.arange(n), n + number]).astype(np.int32)[part.encoded.to]
