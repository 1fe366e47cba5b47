"""Causal order among relays that keeps concurrency: a message waits for its own causes, not for what was merely relayed before.

Source: gateways §3 and §4, repaired. Design note: docs/concepts/orderings/relayed.md.

For a domain that joins others (the main subgroup). Each relay numbers what it sends into the domain: its *stream*. A message
carries a vector, one number for each stream: how much of it is among the message's causes. Inside the other domains the
vector travels in the envelope, and processes merge what is delivered to them (``core.places.seen_streams``). A relay that sends
a message on puts the message's own number into the message's own vector. It never merges the vector with what went through it.

Only the relays that a message is for get a frame, so nobody sees a stream without holes. Therefore stamps also carry *facts*: the
number-th of a stream was for this relay. A message waits for the last of each stream, up to what its vector says, that was for
the same relay. A relay tells another one only the facts that have not been shown to it.

A message without a vector is taken to be caused by all that its relay has released. That is how the ordering is causal by itself.

Bounds: of each stream the last ``MAX_FACTS`` facts are kept, and before them the last for each relay. Whoever sends with an older
vector than these is taken to have seen a little more, which is never less than it has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from thence.core.ordering.base import Ordering, Output, Traits
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ImpossibleFrame, MalformedFrame

MAX_FACTS: Final = 512
"""How many facts of each stream a relay keeps, beside one for each relay."""

Fact = tuple[int, int]
"""The number-th message of a stream was for this relay; or for all others, where there is no relay with this index."""


class RelayedStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=18):
    """The ``number``-th of its relay's stream; the one before it to the same relay was number ``before``."""

    number: int
    before: int
    vector: tuple[int, ...]
    """(stream, number, …): its causes, and in its own stream itself."""
    facts: tuple[int, ...]
    """(key, number, …) that the receiver was not shown: stream and relay, as one key. Those for the receiver come first."""


class Stream(msgspec.Struct, array_like=True):
    """What a relay knows of one stream: whom it went to."""

    marks: list[int]
    """Numbers up to which all is known that matters: for each relay the last fact up to there. In order."""
    facts: list[Fact]
    """In order."""
    floor: int = 0
    """The lowest mark there can be: of the facts before it only the last for each relay are kept."""

    def exact(self, number: int) -> int:
        """Return the first mark from ``number`` on; the last one, if there is none."""
        at = bisect_left(self.marks, number)
        return self.marks[at] if at < len(self.marks) else self.marks[-1] if self.marks else 0

    def between(self, low: int, high: int, everyone: int) -> dict[int, int]:
        """Return the last fact for each relay from behind ``low`` up to ``high``."""
        found: dict[int, int] = {}
        for number, relay in self.facts[bisect_right(self.facts, (low, everyone)) : bisect_right(self.facts, (high, everyone))]:
            if relay == everyone:
                found.clear()
            found[relay] = number
        return found

    def missing(self, low: int, high: int, everyone: int) -> dict[int, int]:
        """Return what one lacks at the mark ``high`` who knows all that matters at the mark ``low``."""
        if low <= high:
            return self.between(low, high, everyone)
        later = self.between(high, low, everyone)
        last = self.between(0, high, everyone)
        return (
            last
            if everyone in later
            else {relay: number for relay, number in last.items() if relay in later or relay == everyone}
        )

    def mark(self, number: int) -> None:
        """Note that all is known that matters up to ``number``."""
        at = bisect_left(self.marks, number)
        if self.marks[at : at + 1] != [number] and number >= self.floor:
            self.marks.insert(at, number)

    def add(self, fact: Fact) -> None:
        """Note a fact."""
        at = bisect_left(self.facts, fact)
        if self.facts[at : at + 1] != [fact]:
            self.facts.insert(at, fact)

    def forget(self, everyone: int) -> None:
        """Keep no more than the limit: of what lies before a mark in the middle only the last for each relay."""
        while len(self.facts) + len(self.marks) > MAX_FACTS + 2 * everyone and len(self.marks) > 1:
            self.marks = self.marks[len(self.marks) // 2 :]
            self.floor = self.marks[0]
            last = self.between(0, self.floor, everyone)
            behind = self.facts[bisect_right(self.facts, (self.floor, everyone)) :]
            self.facts = sorted((number, relay) for relay, number in last.items()) + behind


class RelayedState(msgspec.Struct):
    """One relay's counts, and what it knows of whom messages went to."""

    sent: int
    last: list[int]
    """Per relay, the number of my last message to it."""
    released: list[int]
    """Per relay, the number of its last message that I have released."""
    shown: list[list[int]]
    """Per relay, and per stream, up to which mark it knows all that matters; empty: of nothing."""
    streams: list[Stream]


class Relayed(Ordering):
    """Causal order among relays, by the vectors that messages carry from where they come from."""

    traits = Traits("relayed", frozenset({"fifo", "causal"}), (RelayedStamp,), RelayedState, gated=True)
    state: RelayedState

    def _start(self, options: Any) -> None:
        count = len(self.members)
        self.everyone = count
        self.first_entry = 0
        self.fellows: tuple[int, ...] = ()
        streams = [Stream([], []) for _ in self.members]
        self.state = RelayedState(0, [0] * count, [0] * count, [[] for _ in self.members], streams)

    def join(self, first_entry: int, fellows: Collection[str]) -> None:
        """Take part in a fabric: our streams begin at this entry of vectors, and ``fellows`` carry for the same side as we do."""
        self.first_entry = first_entry
        self.fellows = tuple(self.index[name] for name in fellows)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients, mine = self._recipients(to), self.my_index
        others = [member for member in recipients if member != mine]
        deliver = [Frame(RelayedStamp(0, 0, (), ()), envelope)] if len(others) < len(recipients) else []
        if not others:
            return Output([], deliver)
        state = self.state
        vector = self.vector_of(envelope)
        state.sent += 1
        vector[mine] = number = state.sent
        for member in [self.everyone] if len(others) == len(self.members) - 1 else others:
            state.streams[mine].add((number, member))
        state.streams[mine].mark(number)
        written = tuple(x for stream, seen in enumerate(vector) if seen for x in (stream, seen))
        bare = envelope if envelope.vector is None else envelope.with_vector(self._elsewhere(envelope.vector))
        out = Output([], deliver)
        for member in others:
            stamp = RelayedStamp(number, state.last[member], written, self._facts_for(member, vector))
            state.last[member] = number
            out.send.append((self.members[member], Frame(stamp, bare)))
        state.streams[mine].forget(self.everyone)
        return out

    def vector_of(self, envelope: Envelope) -> list[int]:
        """Return how much of each stream is among the causes of a message that comes from our side.

        What a fellow sent may be one, though nobody on our side knows its number: all of it that came here counts.
        """
        streams, seen = self.state.streams, envelope.vector
        latest = range(len(streams)) if seen is None else self.fellows
        vector = [0] * len(streams)
        for entry, number in _pairs(seen or ()):
            stream = entry - self.first_entry
            if 0 <= stream < len(streams):
                vector[stream] = streams[stream].exact(number)
        for stream in latest:
            vector[stream] = streams[stream].marks[-1] if streams[stream].marks else 0
        return vector

    def _elsewhere(self, vector: tuple[int, ...]) -> tuple[int, ...]:
        """Return the entries that are not of this domain; these are in the stamp."""
        ours = range(self.first_entry, self.first_entry + len(self.members))
        return tuple(x for stream, number in _pairs(vector) if stream not in ours for x in (stream, number))

    def _whole(self, elsewhere: tuple[int, ...], vector: tuple[int, ...]) -> tuple[int, ...]:
        """Return the entries of this domain, among those that are not."""
        ours = [(stream + self.first_entry, number) for stream, number in _pairs(vector)]
        return tuple(x for entry in sorted([*_pairs(elsewhere), *ours]) for x in entry)

    def _facts_for(self, member: int, vector: Sequence[int]) -> tuple[int, ...]:
        """Return what ``member`` has to be shown so that it knows all that matters of this vector."""
        if not self.state.shown[member]:
            self.state.shown[member] = [0] * len(self.members)
        shown = self.state.shown[member]
        first: list[int] = []
        rest: list[int] = []
        for stream, number in enumerate(vector):
            if number == shown[stream] or stream == member:  # Each knows its own stream.
                continue
            for relay, last in self.state.streams[stream].missing(shown[stream], number, self.everyone).items() if number else ():
                if (stream, relay) != (self.my_index, member):  # What it had from me, it knows.
                    pairs = first if relay in (member, self.everyone) else rest
                    pairs += (stream * (self.everyone + 1) + relay, last)
            shown[stream] = max(shown[stream], number)
        return (*first, *rest)

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp, state = frame.stamp, self.state
        if stamp.number < 1 or not 0 <= stamp.before < stamp.number or frame.envelope is None:
            raise MalformedFrame("needs a message, a number from 1, and a lower one before it")
        check_vector(stamp.vector, len(self.members))
        vector = dict(zip(stamp.vector[::2], stamp.vector[1::2], strict=True))
        if vector.get(sender) != stamp.number:
            raise MalformedFrame(f"its number contradicts its vector {stamp.vector}")
        keys = stamp.facts[::2]
        if len(stamp.facts) % 2 or len(set(keys)) < len(keys):
            raise MalformedFrame(f"the facts {stamp.facts} make no sense")
        for key, number in zip(keys, stamp.facts[1::2], strict=True):
            stream, relay = divmod(key, self.everyone + 1)
            if key < 0 or stream in {self.my_index, relay} or not 1 <= number <= vector.get(stream, 0):
                raise MalformedFrame(f"that number {number} of stream {stream} was for relay {relay} makes no sense")
        if vector.get(self.my_index, 0) > state.sent:
            raise ImpossibleFrame(f"it is caused by number {vector[self.my_index]} of mine, but I sent {state.sent}")
        if stamp.before < state.released[sender] < stamp.number:
            raise ImpossibleFrame(f"number {state.released[sender]} came from it, between this one and the one before it")
        return sender, stamp.number

    def _missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        stamp, released = held.frame.stamp, self.state.released
        if released[held.sender] < stamp.before:
            return held.sender, stamp.before
        for at in range(held.cursor, len(stamp.facts), 2):
            stream, relay = divmod(stamp.facts[at], self.everyone + 1)
            if relay not in (self.my_index, self.everyone):
                break
            if stream != held.sender and released[stream] < stamp.facts[at + 1]:
                held.cursor = at
                return stream, stamp.facts[at + 1]
        return None

    def _release(self, held: HeldFrame[Any], out: Output) -> None:
        stamp, state, sender = held.frame.stamp, self.state, held.sender
        state.released[sender] = max(state.released[sender], held.number)
        self._learn(stamp.facts)
        if state.streams[sender].facts[-1:] != [(held.number, self.everyone)]:
            self._learn((sender * (self.everyone + 1) + self.my_index, held.number))
        if not state.shown[sender]:
            state.shown[sender] = [0] * len(self.members)
        shown = state.shown[sender]
        for at in range(0, len(stamp.vector), 2):
            stream, number = stamp.vector[at], stamp.vector[at + 1]
            if stream != self.my_index:
                state.streams[stream].mark(number)
                state.streams[stream].forget(self.everyone)
            shown[stream] = max(shown[stream], number)
        message = held.message
        out.deliver.append(
            held.frame if message.vector is None else Frame(stamp, message.with_vector(self._whole(message.vector, stamp.vector)))
        )

    def _learn(self, facts: Sequence[int]) -> None:
        """Take over facts; who was shown that there was no such thing has to be shown anew."""
        for at in range(0, len(facts), 2):
            stream, relay = divmod(facts[at], self.everyone + 1)
            known, number = self.state.streams[stream], facts[at + 1]
            if not known.facts or known.facts[-1][0] < number:
                known.facts.append((number, relay))
            else:
                known.add((number, relay))
            for shown in self.state.shown:
                if (
                    shown
                    and shown[stream] >= number
                    and not known.between(number, shown[stream], self.everyone).keys()
                    & {
                        relay,
                        self.everyone,
                    }
                ):
                    shown[stream] = number - 1

    def _released(self, stream: int) -> int:
        return self.state.released[stream]


def check_vector(vector: tuple[int, ...], streams: int) -> None:
    """Refuse a vector that is not (stream, number, …) with streams that rise and numbers from 1."""
    named: Iterable[int] = vector[::2]
    if len(vector) % 2 or any(not 0 <= stream < streams for stream in named):
        raise MalformedFrame(f"the vector {vector} makes no sense among {streams} streams")
    if any(one >= other for one, other in pairwise(named)) or min(vector[1::2], default=1) < 1:
        raise MalformedFrame(f"the vector {vector} makes no sense")


def _pairs(flat: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return zip(flat[::2], flat[1::2], strict=True)
