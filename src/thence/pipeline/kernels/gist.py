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

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.encoder import KINDS, Encoded
from thence.pipeline.kernels.replay import DELIVER, NOBODY, Bytes, Ints, Longs

NO_LAG = np.iinfo(np.int64).max


class Gist(NamedTuple):
    """What others must know of a slice. Messages are named; ``open_*`` and ``lost_*`` are aligned with their lists of names."""

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


def gist_of(
    encoded: Encoded, names: pa.Array, strangers: list[str], has_later: npt.NDArray[np.bool_], forced: Collection[str] = ()
) -> Gist:
    """Look through a slice once; messages named in ``forced`` count as open in any case."""
    n = encoded.processes
    place_of_send = places_of_sends(encoded, len(names))
    done, touched, stray, foreign = delivered_in(encoded, place_of_send)
    first_send = np.searchsorted(encoded.send_event, encoded.first)
    sender = np.repeat(np.arange(n, dtype=np.int32), np.diff(first_send))
    later = np.append(has_later, np.zeros(len(strangers), np.bool_))
    is_open = encoded.unaddressed.copy()
    lost = np.flatnonzero(mark_open(encoded.to_first, encoded.to, done, later, is_open))
    place = np.searchsorted(encoded.to_first, lost, side="right") - 1
    if forced:
        known = pc.index_in(pa.array(sorted(forced), pa.string()), names).drop_null().to_numpy()
        is_open[place_of_send[known]] = True
    opened = np.flatnonzero(is_open)
    to_first, to, open_done = take_groups(opened, encoded.to_first, encoded.to, done)
    external, external_first, external_by = externals_of(encoded, foreign)
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
        open_outside=outside_of(encoded, names, sent_messages[np.flatnonzero(is_open & stray)]),
        external_names=names.take(pa.array(external)).to_pylist(),
        external_local=external,
        external_first=external_first,
        external_by=external_by,
        lost_names=names.take(pa.array(sent_messages[place])).to_pylist(),
        lost_sender=sender[place],
        lost_to=encoded.to[lost],
        lost_delivered=touched[place],
        strangers=strangers,
    )


def places_of_sends(encoded: Encoded, messages: int) -> Ints:
    """The place of each message among those sent here, or ``NOBODY``."""
    place = np.full(messages, NOBODY, np.int32)
    place[encoded.message[encoded.send_event]] = np.arange(len(encoded.send_event))
    return place


class Delivered(NamedTuple):
    """What became here of the messages sent here."""

    done: npt.NDArray[np.bool_]
    """Per destination: whether it has delivered the message."""
    touched: npt.NDArray[np.bool_]
    """Per message: whether anybody has."""
    stray: npt.NDArray[np.bool_]
    """Per message: whether somebody has whom it does not name."""
    foreign: Ints
    """The deliveries of messages that were not sent here."""


def delivered_in(encoded: Encoded, place_of_send: Ints) -> Delivered:
    """See who has delivered what."""
    sends = len(encoded.send_event)
    done, touched, stray = np.zeros(len(encoded.to), np.bool_), np.zeros(sends, np.bool_), np.zeros(sends, np.bool_)
    foreign = np.empty(len(encoded.role), np.int32)
    count = mark_done(
        encoded.first, encoded.role, encoded.message, place_of_send, encoded.to_first, encoded.to, done, touched, stray, foreign
    )
    return Delivered(done, touched, stray, foreign[:count])


@compiled
def mark_done(first, role, message, place_of_send, to_first, to, done, touched, stray, foreign):  # type: ignore[no-untyped-def]
    """Mark which destinations have delivered what was sent to them here, and which messages anybody has delivered.

    The deliveries of messages that were not sent here are listed in ``foreign``; returns how many there are.
    """
    count = 0
    for p in range(len(first) - 1):
        for event in range(first[p], first[p + 1]):
            if role[event] != DELIVER:
                continue
            place = place_of_send[message[event]]
            if place < 0:
                foreign[count] = event
                count += 1
                continue
            touched[place] = True
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
    return count


@compiled
def mark_open(to_first, to, done, later, is_open):  # type: ignore[no-untyped-def]
    """Mark the messages that somebody may still deliver later; return for each destination whether it has lost one."""
    lost = np.zeros(len(to), np.bool_)
    for place in range(len(to_first) - 1):
        for k in range(to_first[place], to_first[place + 1]):
            if not done[k]:
                if later[to[k]]:
                    is_open[place] = True
                else:
                    lost[k] = True
    return lost


def take_groups(
    chosen: Longs, first: Longs, values: Ints, flags: npt.NDArray[np.bool_]
) -> tuple[Longs, Ints, npt.NDArray[np.bool_]]:
    """The chosen groups of values, and of flags, one after the other."""
    lengths = first[chosen + 1] - first[chosen]
    starts = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    places = np.arange(starts[-1]) + np.repeat(first[chosen] - starts[:-1], lengths)
    return starts, values[places], flags[places]


def outside_of(encoded: Encoded, names: pa.Array, messages: Ints) -> dict[str, list[int]]:
    """Who delivered these messages though they do not name them; a destination among them does no harm."""
    found: dict[str, list[int]] = {}
    for message in messages.tolist():
        events = np.flatnonzero((encoded.message == message) & (encoded.role == DELIVER))
        found[names[message].as_py()] = np.unique(processes_of(encoded, events)).tolist()
    return found


def processes_of(encoded: Encoded, events: Longs | Ints) -> Ints:
    """The process of each of these events."""
    return (np.searchsorted(encoded.first, events, side="right") - 1).astype(np.int32)


def externals_of(encoded: Encoded, foreign: Ints) -> tuple[Ints, Longs, Ints]:
    """The messages delivered and not sent here, and by whom each was delivered (offsets, processes)."""
    messages = encoded.message[foreign]
    order = np.argsort(messages, kind="stable")
    external, first = np.unique(messages[order], return_index=True)
    return external.astype(np.int32), np.append(first, len(order)).astype(np.int64), processes_of(encoded, foreign[order])


def lags_of(encoded: Encoded, messages: int) -> Longs:
    """Per pair (sender * n + receiver): the least time from a send to a delivery here, by their own clocks."""
    lags = np.full(encoded.processes**2, NO_LAG, np.int64)
    if len(encoded.time):
        place = places_of_sends(encoded, messages)
        sender = processes_of(encoded, encoded.send_event)
        least_lags(encoded.first, encoded.role, encoded.message, place, sender, encoded.send_event, encoded.time, lags)
    return lags


@compiled
def least_lags(first, role, message, place_of_send, sender, send_event, time, lags):  # type: ignore[no-untyped-def]
    """The least time from a send to a delivery, for each pair of processes."""
    n = len(first) - 1
    for p in range(n):
        for event in range(first[p], first[p + 1]):
            if role[event] == DELIVER:
                place = place_of_send[message[event]]
                if place >= 0:
                    pair = sender[place] * n + p
                    lags[pair] = min(lags[pair], time[event] - time[send_event[place]])


def last_indices(encoded: Encoded) -> Longs:
    """Per process: the index of its last event here, or -2 if it has none."""
    last = np.full(encoded.processes, -2, np.int64)
    some = np.flatnonzero(np.diff(encoded.first))
    ends = encoded.first[some + 1] - 1
    last[some] = encoded.listed[ends] if len(encoded.listed) else encoded.least[some] + ends - encoded.first[some]
    return last


def status_of(encoded: Encoded, gone: int, back: int) -> Bytes:
    """Per process: 1 if the last of these two kinds is ``gone``, 0 if it is ``back``, -1 if there is neither."""
    status = np.full(encoded.processes, -1, np.int8)
    events = np.flatnonzero((encoded.kind == gone) | (encoded.kind == back))
    process = np.searchsorted(encoded.first, events, side="right") - 1
    status[process] = encoded.kind[events] == gone  # of several the last one stays
    return status
