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

from thence.pipeline.kernels.compiler import compiled
from thence.pipeline.kernels.replay import DELIVER, NOTHING_MISSING, Bools, Bytes, Ints, Longs, Story

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


class MessageClocks(NamedTuple):
    """The clocks of messages: of those sent in the slice, and of those on their way into it."""

    own: Ints
    flights: Ints


class Awaited(NamedTuple):
    """For each receiver the messages that it has not delivered: those of a sender together, ascending by rank."""

    first: Longs
    """Receiver p has the entries ``first[p] … first[p + 1] - 1``."""
    sender: Ints
    rank: Ints
    message: Ints


class Lacking(NamedTuple):
    """What one receiver lacks, by sender."""

    rank: Ints
    """Of the first message that is missing."""
    top: Longs
    """Its place."""
    begin: Longs
    """Where the entries of the sender begin and end."""
    end: Longs


class Findings(NamedTuple):
    """What is wrong, in the order of discovery."""

    what: Bytes
    event: Ints
    earlier: Ints
    missing: Longs


def judge_story(
    story: Story, reached: Longs, backward: Bools, clocks: MessageClocks, awaited: Awaited, done: tuple[Longs, Ints]
) -> Findings:
    """Judge every delivery that was ``reached``; ``done`` says who had delivered each flight before (offsets, processes)."""
    room = FIRST_ROOM
    while True:
        findings = Findings(np.empty(room, np.int8), np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int64))
        found = inspect(story, reached, backward, clocks, awaited, done, findings)
        if found <= room:
            what, event, earlier, missing = findings
            return Findings(what[:found], event[:found], earlier[:found], missing[:found])
        room = found


@compiled
def inspect(story, reached, backward, clocks, awaited, done, findings):  # type: ignore[no-untyped-def]
    """Judge every delivery of a slice; return how many findings there are, those beyond the room given included."""
    n = len(story.first) - 1
    delivered = np.zeros((len(awaited.rank) + 127) >> 6, np.uint64)
    odd, oddities = np.full(64, -1, np.int64), 0
    found = 0
    # Of each sender: the first message that is missing, its place, and where what the sender sent begins and ends.
    lacks = Lacking(np.full(n, NOTHING_MISSING, np.int32), np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64))
    for p in range(n):
        open_receiver(awaited, p, lacks)
        for event in range(story.first[p], reached[p]):
            if story.role[event] != DELIVER:
                continue
            m = story.message[event]
            s = story.sender[m]
            if s >= 0 and lacks.rank[s] == story.rank[m] and not backward[event]:  # what was to come next has come
                place = lacks.top[s]
            else:
                place = entry_of(awaited, delivered, lacks, s, story.rank[m]) if s >= 0 else np.int64(NOT_ADDRESSED)
                again = place == DELIVERED
                if place == NOT_ADDRESSED:
                    again = m >= story.own and was_there(done, m - story.own, p)
                    if not again:
                        odd, oddities, again = remember(odd, oddities, np.int64(m) * n + p)
                if again:
                    found = note(findings, found, AGAIN, event)
                    continue
                wrong = reason(s, place, story.is_unaddressed[m], backward[event])
                if wrong:
                    found = note(findings, found, wrong, event)
            if s >= 0 and not backward[event] and is_late(clock_of(story, clocks, m), lacks.rank):
                found = note_late(findings, found, event, story, clocks, awaited, delivered, lacks)
            if place >= 0:
                delivered[place >> 6] |= np.uint64(1) << np.uint64(place & 63)
                if place == lacks.top[s]:
                    lacks.top[s] = next_lacking(delivered, place + 1, lacks.end[s])
                    lacks.rank[s] = rank_at(awaited.rank, lacks.top[s], lacks.end[s])
        close_receiver(awaited, p, lacks)
    return found


@compiled
def open_receiver(awaited, p, lacks):  # type: ignore[no-untyped-def]
    """Note what a receiver lacks of each sender; most senders have sent it nothing."""
    for place in range(awaited.first[p], awaited.first[p + 1]):
        s = awaited.sender[place]
        if lacks.rank[s] == NOTHING_MISSING:
            lacks.rank[s], lacks.top[s], lacks.begin[s] = awaited.rank[place], place, place
        lacks.end[s] = place + 1


@compiled
def close_receiver(awaited, p, lacks):  # type: ignore[no-untyped-def]
    """Forget what a receiver lacks."""
    for place in range(awaited.first[p], awaited.first[p + 1]):
        s = awaited.sender[place]
        lacks.rank[s], lacks.top[s], lacks.begin[s], lacks.end[s] = NOTHING_MISSING, 0, 0, 0


@compiled
def clock_of(story, clocks, m):  # type: ignore[no-untyped-def]
    """The clock of a message."""
    return clocks.own[story.row[m]] if m < story.own else clocks.flights[story.row[m]]


@compiled
def rank_at(ranks, place, end):  # type: ignore[no-untyped-def]
    """The rank of the message at a place, if that comes before the end."""
    return ranks[place] if place < end else NOTHING_MISSING


@compiled
def is_late(clock, lacks):  # type: ignore[no-untyped-def]
    """Whether anything that is missing was sent before; without a way out in between, so that it is done many at a time."""
    late = False
    for k in range(len(lacks)):
        late |= clock[k] > lacks[k]
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
def note_late(findings, found, event, story, clocks, awaited, delivered, lacks):  # type: ignore[no-untyped-def]
    """Write down a delivery that came too early: for its sender's order, and for causal order."""
    m = story.message[event]
    s = story.sender[m]
    clock = clock_of(story, clocks, m)
    if lacks.rank[s] < story.rank[m]:
        if found < len(findings.what):
            at = place_of(awaited, lacks.begin[s], lacks.end[s], story.rank[m])
            findings.earlier[found] = awaited.message[lacks.top[s]]
            findings.missing[found] = at - lacks.top[s] - count_bits(delivered, lacks.top[s], at)
            findings.what[found], findings.event[found] = FIFO, event
        found += 1
    if found < len(findings.what):
        total, chosen = 0, -1
        for k in range(len(clock)):
            if clock[k] > lacks.rank[k]:
                at = place_of(awaited, lacks.begin[k], lacks.end[k], clock[k])
                total += at - lacks.top[k] - count_bits(delivered, lacks.top[k], at)
                candidate = awaited.message[lacks.top[k]]
                if chosen < 0 and not is_late(clock_of(story, clocks, candidate), lacks.rank):
                    chosen = candidate
        findings.earlier[found], findings.missing[found] = chosen, total
        findings.what[found], findings.event[found] = CAUSAL, event
    return found + 1


@compiled
def entry_of(awaited, delivered, lacks, sender, rank):  # type: ignore[no-untyped-def]
    """The place of a message among those that are awaited, or why it has none."""
    place = place_of(awaited, lacks.begin[sender], lacks.end[sender], rank)
    if place >= lacks.end[sender] or awaited.rank[place] != rank:
        return np.int64(NOT_ADDRESSED)
    if (delivered[place >> 6] >> np.uint64(place & 63)) & np.uint64(1):
        return np.int64(DELIVERED)
    return place


@compiled
def place_of(awaited, low, high, wanted):  # type: ignore[no-untyped-def]
    """The place of a rank among the entries from ``low`` to before ``high``, or where it would be."""
    while low < high:
        middle = (low + high) // 2
        if awaited.rank[middle] < wanted:
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
def was_there(done, flight, process):  # type: ignore[no-untyped-def]
    """Whether a process had delivered a flight before the slice."""
    first, who = done
    there = False
    for k in range(first[flight], first[flight + 1]):
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
