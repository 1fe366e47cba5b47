"""Judging: every delivery of a slice against the clock of its message and what its process still lacked.

A clock says all about what lies before a message, so processes are looked at one by one, in any order, and each delivery
costs one comparison of two short arrays. Only an offending one is looked at more closely.

Rules, the same as the judge's:

* First deliveries are judged; a second one is a duplication and nothing else.
* ``earlier`` is, among the missing messages that no other missing one precedes, the one with the smallest (process, index) of
  its send.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, NOTHING_MISSING, AwaitedByPair, Bytes, Ints, Longs, Story

UNSENT: Final = 1
OUTSIDE: Final = 2
BACKWARD: Final = 3
AGAIN: Final = 4
FIFO: Final = 5
CAUSAL: Final = 6
"""What may be wrong with a delivery."""

NOT_ADDRESSED: Final = -1
DELIVERED: Final = -2

FIRST_ROOM: Final = 1024
"""For how many findings there is room at first; with more, the slice is looked through again."""


class Findings(NamedTuple):
    """What is wrong, in the order of discovery."""

    what: Bytes
    event: Ints
    earlier: Ints
    missing: Longs


def judge_story(
    story: Story, backward: npt.NDArray[np.bool_], clocks: Ints, channels: AwaitedByPair, done: tuple[Longs, Ints]
) -> Findings:
    """Judge every delivery; ``done`` says who had delivered each message before the slice (offsets, processes)."""
    room = FIRST_ROOM
    while True:
        findings = Findings(np.empty(room, np.int8), np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int64))
        found = inspect(story, backward, clocks, channels, done, findings)
        if found <= room:
            what, event, earlier, missing = findings
            return Findings(what[:found], event[:found], earlier[:found], missing[:found])
        room = found


@compiled
def inspect(story, backward, clocks, channels, done, findings):  # type: ignore[no-untyped-def]
    """Judge every delivery of a slice; return how many findings there are, those beyond the room given included."""
    n = len(story.first) - 1
    delivered = np.zeros((len(channels.rank) + 127) >> 6, np.uint64)
    odd, oddities = np.full(64, -1, np.int64), 0
    found = 0
    lacks = np.empty(n, np.int32)  # of each sender the first message that is missing
    top = np.empty(n, np.int64)  # and its place
    end = np.empty(n, np.int64)
    for p in range(n):
        for s in range(n):
            top[s], end[s] = channels.first[p * n + s], channels.first[p * n + s + 1]
            lacks[s] = rank_at(channels.rank, top[s], end[s])
        for event in range(story.first[p], story.first[p + 1]):
            if story.role[event] != DELIVER:
                continue
            m = story.message[event]
            s = story.sender[m]
            if s >= 0 and lacks[s] == story.rank[m] and not backward[event]:  # what was to come next has come
                place = top[s]
            else:
                place = entry_of(channels, delivered, p * n + s, story.rank[m]) if s >= 0 else np.int64(NOT_ADDRESSED)
                again = place == DELIVERED
                if place == NOT_ADDRESSED:
                    again = was_there(done, m, p)
                    if not again:
                        odd, oddities, again = remember(odd, oddities, np.int64(m) * n + p)
                if again:
                    found = note(findings, found, AGAIN, event)
                    continue
                wrong = reason(s, place, story.unaddressed[m], backward[event])
                if wrong:
                    found = note(findings, found, wrong, event)
            if s >= 0 and not backward[event] and is_late(clocks, story.row[m], lacks):
                found = note_late(findings, found, event, story, clocks, channels, delivered, p, lacks, top)
            if place >= 0:
                delivered[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
                if place == top[s]:
                    top[s] = next_lacking(delivered, place + 1, end[s])
                    lacks[s] = rank_at(channels.rank, top[s], end[s])
    return found


@compiled
def rank_at(ranks, place, end):  # type: ignore[no-untyped-def]
    """The rank of the message at a place, if that comes before the end."""
    return ranks[place] if place < end else NOTHING_MISSING


@compiled
def is_late(clocks, row, lacks):  # type: ignore[no-untyped-def]
    """Whether anything that is missing was sent before; without a way out in between, so that it is done many at a time."""
    late = False
    for k in range(len(lacks)):
        late |= clocks[row, k] > lacks[k]
    return late


@compiled
def reason(sender, place, unaddressed, backward):  # type: ignore[no-untyped-def]
    """Why a first delivery should not have been possible, or 0."""
    if sender < 0:
        return UNSENT
    if place == NOT_ADDRESSED and not unaddressed:
        return OUTSIDE
    if backward:
        return BACKWARD
    return 0


@compiled
def note(findings, found, what, event):  # type: ignore[no-untyped-def]
    """Write down a finding if there is room, and count it."""
    if found < len(findings.what):
        findings.what[found], findings.event[found] = what, event
        findings.earlier[found], findings.missing[found] = -1, 0
    return found + 1


@compiled
def note_late(findings, found, event, story, clocks, channels, delivered, p, lacks, top):  # type: ignore[no-untyped-def]
    """Write down a delivery that came too early: for its sender's order, and for causal order."""
    n = len(lacks)
    m = story.message[event]
    s = story.sender[m]
    clock = clocks[story.row[m]]
    if lacks[s] < story.rank[m]:
        if found < len(findings.what):
            at = place_of(channels, p * n + s, story.rank[m])
            findings.earlier[found] = channels.message[top[s]]
            findings.missing[found] = at - top[s] - count_bits(delivered, top[s], at)
            findings.what[found], findings.event[found] = FIFO, event
        found += 1
    if found < len(findings.what):
        total, chosen = 0, -1
        for k in range(n):
            if clock[k] > lacks[k]:
                at = place_of(channels, p * n + k, clock[k])
                total += at - top[k] - count_bits(delivered, top[k], at)
                candidate = channels.message[top[k]]
                if chosen < 0 and not is_late(clocks, story.row[candidate], lacks):
                    chosen = candidate
        findings.earlier[found], findings.missing[found] = chosen, total
        findings.what[found], findings.event[found] = CAUSAL, event
    return found + 1


@compiled
def entry_of(channels, delivered, pair, rank):  # type: ignore[no-untyped-def]
    """The place of a message among those that are awaited, or why it has none."""
    place = place_of(channels, pair, rank)
    if place >= channels.first[pair + 1] or channels.rank[place] != rank:
        return np.int64(NOT_ADDRESSED)
    if (delivered[place >> 6] >> np.uint64(place & 63)) & np.uint64(1):
        return np.int64(DELIVERED)
    return place


@compiled
def place_of(channels, pair, wanted):  # type: ignore[no-untyped-def]
    """The place of a rank among the entries of a pair, or where it would be."""
    low, high = channels.first[pair], channels.first[pair + 1]
    while low < high:
        middle = (low + high) // 2
        if channels.rank[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def next_lacking(delivered, place, end):  # type: ignore[no-untyped-def]
    """The first place from here on that has not been delivered."""
    while place < end and (delivered[place >> 6] >> np.uint64(place & 63)) & np.uint64(1):
        place += 1
    return place


@compiled
def was_there(done, message, process):  # type: ignore[no-untyped-def]
    """Whether a process had delivered a message before the slice."""
    first, who = done
    there = False
    for k in range(first[message], first[message + 1]):
        there |= who[k] == process
    return there


@compiled
def count_bits(bits, low, high):  # type: ignore[no-untyped-def]
    """How many of the bits from ``low`` to before ``high`` are set."""
    total = 0
    while low < high and low & 63:
        total += (bits[low >> 6] >> np.uint64(low & 63)) & np.uint64(1)
        low += 1
    while low + 64 <= high:
        x = bits[low >> 6]
        x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
        x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
        x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
        low += 64
    while low < high:
        total += (bits[low >> 6] >> np.uint64(low & 63)) & np.uint64(1)
        low += 1
    return total


@compiled
def slot_of(table, key):  # type: ignore[no-untyped-def]
    """Where a key is in a table of keys, or would be."""
    at = key * 0x9E3779B1 % len(table)
    while table[at] >= 0 and table[at] != key:
        at = (at + 1) % len(table)
    return at


@compiled
def remember(table, used, key):  # type: ignore[no-untyped-def]
    """Put a key into a table of keys; return the table, how many it holds, and whether the key was there."""
    if 2 * (used + 1) > len(table):
        larger = np.full(2 * len(table), -1, np.int64)
        for old in table:
            if old >= 0:
                larger[slot_of(larger, old)] = old
        table = larger
    at = slot_of(table, key)
    if table[at] == key:
        return table, used, True
    table[at] = key
    return table, used + 1, False
