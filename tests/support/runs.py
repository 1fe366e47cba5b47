"""Runs of an ordering alone: no member, no channel, no simulator, only orderings and the frames between them.

The conformance suite and the property tests stand on this. It shares no code with ``thence.sim``, so a bug there cannot
hide one here.

Rules:

* A channel carries each frame exactly once. Where the ordering needs FIFO arrival, only the oldest frame may arrive.
* Everything that an ordering returns is written down as bytes in ``outputs``, stamps included, so two runs can be compared.
* What was sent and delivered is written down as events, for the judge.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from thence.core.ordering import MAX_HELD, ArrivalOrder, Ordering, Output, Timed, make_ordering
from thence.core.wire.messages import Envelope, Frame
from thence.trace.events import Event
from thence.trace.judge import judge

EXACTLY_ONCE = ("well-formed", "creation", "duplication", "completeness")

PATTERNS = ("unicast", "multicast", "broadcast", "self")


class Flight(NamedTuple):
    """A frame that may arrive: the one at ``place`` among those from ``source`` to ``target``."""

    source: str
    target: str
    place: int
    frame: Frame[Any]


class Run:
    """The members of one domain, and what is on its way between them."""

    def __init__(
        self,
        ordering: str | type[Ordering],
        members: Sequence[str],
        options: Mapping[str, Any] | None = None,
        *,
        max_held: int = MAX_HELD,
    ) -> None:
        self.members = tuple(members)
        self.orderings = {me: make_ordering(ordering, me, members, options, max_held=max_held) for me in members}
        self.kind = type(self.orderings[self.members[0]])
        self.on_the_way: dict[tuple[str, str], list[Frame[Any]]] = {}
        self.events: list[Event] = []
        self.outputs: list[bytes] = []
        self.steps = 0
        self._numbers = dict.fromkeys(members, 0)
        self._indices = dict.fromkeys(members, 0)

    def send(self, sender: str, to: Sequence[str] | None, body: bytes = b"") -> Envelope:
        """Let ``sender`` send the next message."""
        self._numbers[sender] += 1
        envelope = Envelope(sender, self._numbers[sender], None if to is None else tuple(to), body)
        ordering = self.orderings[sender]
        if isinstance(ordering, Timed):
            ordering.now = self.time(sender)
        output = ordering.send(envelope, to)
        self._note(sender, "send", envelope, tuple(self.members if to is None else to))
        self._follow(sender, output)
        return envelope

    def arrive(self, source: str, target: str, place: int = 0) -> Output:
        """Let a frame arrive. If it is refused, it stays on its way."""
        frames = self.on_the_way[source, target]
        output = self.orderings[target].accept(source, frames[place], self.time(target))
        del frames[place]
        self._follow(target, output)
        return output

    def time(self, member: str) -> int:
        """Return what the clock of ``member`` says."""
        return self.steps

    def flights(self) -> list[Flight]:
        """Return every frame that may arrive next."""
        first_only = self.kind.traits.arrival is ArrivalOrder.FIFO
        return [
            Flight(source, target, place, frame)
            for (source, target), frames in self.on_the_way.items()
            for place, frame in enumerate(frames[:1] if first_only else frames)
        ]

    def arrive_everything(self, chance: random.Random) -> None:
        """Let everything arrive, in a random order."""
        while flights := self.flights():
            flight = chance.choice(flights)
            self.arrive(flight.source, flight.target, flight.place)

    def deliveries(self, member: str) -> list[str]:
        """Return what ``member`` has delivered, in order."""
        return [str(event.message) for event in self.events if event.kind == "deliver" and event.process == member]

    def complaints(self, *require: str, complete: bool = True) -> list[str]:
        """Return what the judge has to say, with what the ordering guarantees unless something else is required."""
        required = {*EXACTLY_ONCE, *(require or self.kind.traits.guarantees)}
        if not complete:
            required.discard("completeness")
        return [f"{row.property}: {row.detail}" for row in judge(self.events, required).violations]

    def waiting(self) -> int:
        """Return how many frames wait anywhere."""
        return sum(len(ordering.waiting()) for ordering in self.orderings.values())

    def _follow(self, member: str, output: Output) -> None:
        self.steps += 1
        self.outputs.append(_ENCODER.encode((member, output)))
        for peer, frame in output.send:
            self.on_the_way.setdefault((member, peer), []).append(frame)
        for frame in output.deliver:
            assert frame.envelope is not None, "a marker was delivered"
            self._note(member, "deliver", frame.envelope)

    def _note(self, process: str, kind: str, envelope: Envelope, to: tuple[str, ...] | None = None) -> None:
        index = self._indices[process]
        self._indices[process] = index + 1
        self.events.append(Event(process=process, index=index, kind=kind, message=str(envelope.id), to=to))


_ENCODER = msgspec.msgpack.Encoder()


def destinations(chance: random.Random, members: Sequence[str], sender: str, pattern: str) -> tuple[str, ...] | None:
    """Return to whom ``sender`` writes under this pattern; None is everyone."""
    others = [name for name in members if name != sender]
    if pattern == "unicast":
        return (chance.choice(others or [sender]),)
    if pattern == "multicast":
        return tuple(chance.sample(list(members), chance.randint(1, len(members))))
    return (sender,) if pattern == "self" else None


def random_run(run: Run, chance: random.Random, messages: int, patterns: Sequence[str] = PATTERNS, eager: float = 0.5) -> None:
    """Mix sends and arrivals at random, and let all arrive in the end. ``eager`` is how often a frame arrives when one may."""
    left = messages
    while left:
        flights = run.flights()
        if flights and chance.random() < eager:
            flight = chance.choice(flights)
            run.arrive(flight.source, flight.target, flight.place)
        else:
            sender = chance.choice(run.members)
            run.send(sender, destinations(chance, run.members, sender, chance.choice(list(patterns))))
            left -= 1
    run.arrive_everything(chance)
