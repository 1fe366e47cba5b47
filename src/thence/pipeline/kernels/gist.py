"""The gist of a slice: what the others must know of it, found out in one look and without any clock.

Rules:

* A message sent here is *open* if one of its destinations has not delivered it here and has events in later slices, or if it
  names no destinations: it is on its way out of the slice. If such a destination has no later events, the message is *lost*
  to it.
* A message delivered here and not sent here is *external*: it is on its way into the slice, or nobody ever sent it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.compiled import compiled
from thence.pipeline.kernels.encode import KINDS, Encoded
from thence.pipeline.kernels.replay import DELIVER, NOBODY, Bytes, Ints, Longs

NO_LAG = np.iinfo(np.int64).max


class Gist(NamedTuple):
    """See the module's text. Messages are named; ``open_*`` and ``lost_*`` are aligned with their lists of names."""

    events: int
    sent: Longs
    """Per process: how many messages it sent here."""
    last_index: Longs
    """Per process: the index of its last event here, or -2 if it has none."""
    crashed: Bytes
    """Per process: 1 if it crashed here and did not recover, 0 if it recovered, -1 if neither happened."""
    left: Bytes
    """The same for leaving and joining."""
    open_names: list[str]
    open_local: Ints
    """The number of the message in the slice."""
    open_sender: Ints
    open_rank: Ints
    """How many messages the sender sent here before it."""
    open_unaddressed: npt.NDArray[np.bool_]
    open_to_first: Longs
    open_to: Ints
    open_done: npt.NDArray[np.bool_]
    """Per destination: whether it has delivered the message here."""
    open_outside: dict[str, list[int]]
    """Who else has delivered one of them here."""
    external_names: list[str]
    external_local: Ints
    external_first: Longs
    external_by: Ints
    """By whom each external message was delivered here."""
    lost_names: list[str]
    lost_sender: Ints
    lost_to: Ints
    """A process, or from ``len(names)`` on one of ``strangers``."""
    lost_delivered: npt.NDArray[np.bool_]
    """Whether anybody delivered the message at all."""
    strangers: list[str]
    lags: Longs
    """Per pair (sender * n + receiver): the least time from a send to a delivery here, by their own clocks."""


def gist_of(
    encoded: Encoded, names: pa.Array, strangers: list[str], has_later: npt.NDArray[np.bool_], forced: Collection[str] = ()
) -> Gist:
    """Look through a slice once; messages named in ``forced`` count as open in any case."""
    n = encoded.processes
    process = np.repeat(np.arange(n, dtype=np.int32), np.diff(encoded.first))
    place_of_send = np.full(len(names), NOBODY, np.int32)
    place_of_send[encoded.message[encoded.send_event]] = np.arange(len(encoded.send_event))
    done = np.zeros(len(encoded.to), np.bool_)
    touched = np.zeros(len(encoded.send_event), np.bool_)
    stray = np.zeros(len(encoded.send_event), np.bool_)
    mark_done(process, encoded.role, encoded.message, place_of_send, encoded.to_first, encoded.to, done, touched, stray)
    sender = process[encoded.send_event]
    first_send = np.searchsorted(sender, np.arange(n + 1))
    later = np.append(has_later, np.zeros(len(strangers), np.bool_))
    place = np.repeat(np.arange(len(encoded.send_event)), np.diff(encoded.to_first))
    is_open = encoded.unaddressed.copy()
    is_open[place[~done & later[encoded.to]]] = True
    if forced:
        known = pc.index_in(pa.array(sorted(forced), pa.string()), names).drop_null().to_numpy()
        is_open[place_of_send[known]] = True
    opened = np.flatnonzero(is_open)
    to_first, to, open_done = take_groups(opened, encoded.to_first, encoded.to, done)
    lost = np.flatnonzero(~done & ~later[encoded.to])
    external, external_first, external_by = externals_of(encoded, process, place_of_send)
    sent_messages = encoded.message[encoded.send_event]
    return Gist(
        events=len(encoded.role),
        sent=np.diff(first_send),
        last_index=last_indices(encoded),
        crashed=status_of(encoded, KINDS["crash"], KINDS["recover"]),
        left=status_of(encoded, KINDS["leave"], KINDS["join"]),
        open_names=names.take(pa.array(sent_messages[opened])).to_pylist(),
        open_local=sent_messages[opened],
        open_sender=sender[opened],
        open_rank=(opened - first_send[sender[opened]]).astype(np.int32),
        open_unaddressed=encoded.unaddressed[opened],
        open_to_first=to_first,
        open_to=to,
        open_done=open_done,
        open_outside=outside_of(encoded, process, names, sent_messages[np.flatnonzero(is_open & stray)]),
        external_names=names.take(pa.array(external)).to_pylist(),
        external_local=external,
        external_first=external_first,
        external_by=external_by,
        lost_names=names.take(pa.array(sent_messages[place[lost]])).to_pylist(),
        lost_sender=sender[place[lost]],
        lost_to=encoded.to[lost],
        lost_delivered=touched[place[lost]],
        strangers=strangers,
        lags=_lags(encoded, process, place_of_send),
    )


@compiled
def mark_done(process, role, message, place_of_send, to_first, to, done, touched, stray):  # type: ignore[no-untyped-def]
    """Mark which destinations have delivered what was sent to them here, and which messages anybody has delivered."""
    for event in range(len(role)):
        if role[event] != DELIVER:
            continue
        place = place_of_send[message[event]]
        if place < 0:
            continue
        touched[place] = True
        p = process[event]
        low, high = to_first[place], to_first[place + 1]
        if low + p < high and to[low + p] == p:  # it went to everybody
            done[low + p] = True
            continue
        while low < high:
            middle = (low + high) // 2
            if to[middle] < p:
                low = middle + 1
            else:
                high = middle
        if low < to_first[place + 1] and to[low] == p:
            done[low] = True
        else:
            stray[place] = True


def take_groups(
    chosen: Longs, first: Longs, values: Ints, flags: npt.NDArray[np.bool_]
) -> tuple[Longs, Ints, npt.NDArray[np.bool_]]:
    """The chosen groups of values, and of flags, one after the other."""
    lengths = first[chosen + 1] - first[chosen]
    starts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(first[chosen] - starts[:-1], lengths)
    return starts, values[places], flags[places]


def outside_of(encoded: Encoded, process: Ints, names: pa.Array, messages: Ints) -> dict[str, list[int]]:
    """Who delivered these messages though they do not name them; a destination among them does no harm."""
    found: dict[str, list[int]] = {}
    for message in messages.tolist():
        events = np.flatnonzero((encoded.message == message) & (encoded.role == DELIVER))
        found[names[message].as_py()] = np.unique(process[events]).tolist()
    return found


def externals_of(encoded: Encoded, process: Ints, place_of_send: Ints) -> tuple[Ints, Longs, Ints]:
    """The messages delivered and not sent here, and by whom each was delivered (offsets, processes)."""
    delivered = np.flatnonzero(encoded.role == DELIVER)
    delivered = delivered[place_of_send[encoded.message[delivered]] == NOBODY]
    messages = encoded.message[delivered]
    order = np.argsort(messages, kind="stable")
    external, first = np.unique(messages[order], return_index=True)
    return external.astype(np.int32), np.append(first, len(order)).astype(np.int64), process[delivered[order]]


def _lags(encoded: Encoded, process: Ints, place_of_send: Ints) -> Longs:
    lags = np.full(encoded.processes**2, NO_LAG, np.int64)
    if len(encoded.time):
        least_lags(process, encoded.role, encoded.message, place_of_send, encoded.send_event, encoded.time, lags)
    return lags


@compiled
def least_lags(process, role, message, place_of_send, send_event, time, lags):  # type: ignore[no-untyped-def]
    """The least time from a send to a delivery, for each pair of processes."""
    n = int(np.sqrt(len(lags)) + 0.5)
    for event in range(len(role)):
        if role[event] == DELIVER:
            place = place_of_send[message[event]]
            if place >= 0:
                send = send_event[place]
                pair = process[send] * n + process[event]
                lags[pair] = min(lags[pair], time[event] - time[send])


def last_indices(encoded: Encoded) -> Longs:
    """Per process: the index of its last event here, or -2 if it has none."""
    last = np.full(encoded.processes, -2, np.int64)
    some = np.flatnonzero(np.diff(encoded.first))
    last[some] = encoded.index[encoded.first[some + 1] - 1]
    return last


def status_of(encoded: Encoded, gone: int, back: int) -> Bytes:
    """Per process: 1 if the last of these two kinds is ``gone``, 0 if it is ``back``, -1 if there is neither."""
    status = np.full(encoded.processes, -1, np.int8)
    events = np.flatnonzero((encoded.kind == gone) | (encoded.kind == back))
    process = np.searchsorted(encoded.first, events, side="right") - 1
    status[process] = encoded.kind[events] == gone  # of several the last one stays
    return status
