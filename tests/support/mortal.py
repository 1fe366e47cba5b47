"""Runs of an ordering in which members die, what they sent last may be lost, and others suspect them, or anybody, at any time.

Rules:

* A frame of a dead member that is on its way gets lost or arrives. Frames between the living arrive in the end.
* Whoever is dead is suspected by everybody in the end, and whoever is not by nobody.
* Of those who are alive nobody suspects so many at a time that not even k others are left: whoever believes to be nearly alone
  counts on nobody else.
* What counts: a message that a survivor sent or delivered, or that was secured before its sender died, comes to all survivors
  for whom it is, once and in causal order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from tests.support.runs import PATTERNS, Run, destinations
from thence.core.ordering import Ordering, Output, survival_of
from thence.trace.judge import judge


class MortalRun(Run):
    """A run whose members may die."""

    def __init__(self, ordering: str | type[Ordering], members: Sequence[str], options: Mapping[str, Any] | None = None) -> None:
        super().__init__(ordering, members, options)
        self.dead: dict[str, None] = {}
        self.secured: set[str] = set()
        self.newest = 0
        """Of how many frames, those that are on their way least long, one arrives next; 0: of all."""

    @property
    def living(self) -> list[str]:
        """Who is alive."""
        return [member for member in self.members if member not in self.dead]

    def die(self, member: str, chance: Random, omission: float) -> None:
        """Let a member die; of what it sent last each frame gets lost with this chance."""
        self.dead[member] = None
        for (source, target), frames in self.on_the_way.items():
            if target == member:
                frames.clear()
            elif source == member:
                frames[:] = [frame for frame in frames if chance.random() >= omission]

    def suspect(self, member: str, peer: str, suspected: bool) -> None:
        """Let a member suspect another one, or no longer."""
        survival = survival_of(self.orderings[member])
        assert survival is not None
        self._follow(member, survival.suspect(peer, suspected))

    def wrong(self, member: str) -> int:
        """Return how many a member suspects that are alive."""
        survival = survival_of(self.orderings[member])
        return 0 if survival is None else sum(peer not in self.dead for peer in survival.suspected)

    def end(self, chance: Random) -> None:
        """Let everybody know who is dead, and everything arrive."""
        for member in self.living:
            for peer in self.members:
                if peer != member:
                    self.suspect(member, peer, peer in self.dead)
            for _ in range(chance.randrange(4)):
                self.arrive_some(chance)
        while self.arrive_some(chance):
            pass

    def arrive_some(self, chance: Random) -> bool:
        """Let one frame arrive somewhere, if there is one."""
        flights = self.flights()
        if flights:
            flight = chance.choice(flights[-self.newest :])
            self.arrive(flight.source, flight.target, flight.place)
        return bool(flights)

    def _follow(self, member: str, output: Output) -> None:
        self.secured.update(str(envelope.id) for envelope in output.secured)
        super()._follow(member, output)
        for dead in self.dead:
            for source in self.members:
                self.on_the_way.pop((source, dead), None)

    def missing(self) -> list[str]:
        """Return what a survivor lacks, though somebody counts on it."""
        to = {str(event.message): (event.process, event.to or ()) for event in self.events if event.kind == "send"}
        got = {(event.process, str(event.message)) for event in self.events if event.kind == "deliver"}
        found = []
        for message, (sender, recipients) in to.items():
            counts = sender not in self.dead or message in self.secured
            if counts or any((survivor, message) in got for survivor in self.living):
                found += [f"{name} lacks {message}" for name in recipients if name in self.living and (name, message) not in got]
        return found

    def broken(self) -> list[str]:
        """Return what is out of order or came twice."""
        verdict = judge(self.events, {"well-formed", "creation", "duplication", "fifo", "causal"})
        return [f"{row.property}: {row.detail}" for row in verdict.violations if row.process not in self.dead]


def play(
    kind: str | type[Ordering], members: Sequence[str], copies: int, seed: int, *, one_after_the_other: bool = False
) -> MortalRun:
    """Play a random run to its end, with at most ``copies`` deaths; or with more, where all becomes quiet after so many."""
    chance = Random(seed)
    run = MortalRun(kind, members, {"copies": copies})
    run.newest = chance.choice((0, 0, 3))
    left = deaths = min(copies, len(members) - 1)
    pattern = chance.choice((*PATTERNS, "pairs"))
    eager, omission = chance.choice((0.3, 0.6, 0.8)), chance.choice((0.1, 0.5, 1.0))
    for _ in range(chance.choice((15, 40, 80))):
        dice = chance.random()
        if dice < 0.04 and left:
            left -= 1
            run.die(chance.choice(run.living), chance, omission)
        elif dice < 0.1:
            member, peer, suspected = chance.choice(run.living), chance.choice(run.members), chance.random() < 0.6
            if peer != member and (not suspected or peer in run.dead or run.wrong(member) < len(run.living) - left - 1):
                run.suspect(member, peer, suspected)
        elif dice < 0.2 and not left and one_after_the_other:
            run.end(chance)
            left = min(deaths, len(run.living) - 1)
        elif chance.random() >= eager or not run.arrive_some(chance):
            sender = chance.choice(run.living)
            others = [name for name in run.members if name != sender]
            two = chance.sample(others, min(2, len(others))) if pattern == "pairs" else None
            run.send(sender, two or destinations(chance, run.members, sender, pattern))
    run.end(chance)
    return run
