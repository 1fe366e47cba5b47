"""interconnect §7: relays that die. Row I6.

Two systems, each with two processes that stand for its end of the interconnection, joined by a domain between them
(docs/concepts/takeover.md), or by a parallel link whose relays take over from each other (docs/concepts/links.md). The paper
replaces a dead process by a new one, which is told what was not acknowledged; here the second one has seen everything and goes on
by
itself. §7 is silent on the death of the sequencer (docs/research/errata.md): here it is the first of several, and the next goes
on.
"""

from __future__ import annotations

import pytest

from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.sim.world import World
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.recorder import Recorder

JOINED = """
name = "joined"
[domains.one]
members = ["a1", "a2", "rw1", "rw2"]
ordering = "{ordering}"
[domains.between]
members = ["rw1", "rw2", "re1", "re2"]
ordering = "{ordering}"
[domains.other]
members = ["b1", "b2", "re1", "re2"]
ordering = "{ordering}"
[[relays]]
replicas = ["rw1", "rw2"]
[[relays]]
replicas = ["re1", "re2"]
"""

LINKED = """
name = "linked"
[domains.one]
members = ["a1", "a2", "rw1", "rw2"]
ordering = "{ordering}"
[domains.other]
members = ["b1", "b2", "re1", "re2"]
ordering = "{ordering}"
[[links]]
between = ["one", "other"]
relays = [["rw1", "re1"], ["rw2", "re2"]]
takeover = true
"""

REQUIRED = ("well-formed", "creation", "duplication", "causal", "completeness")

SECOND_OF = {"rw1": "rw2", "re1": "re2", "rw2": "rw1", "re2": "re1"}


class Run:
    """Two broadcasts from each side, oldest frames first, and what happens in them."""

    def __init__(self, topology: Topology) -> None:
        self.world = World.of(topology)
        self.events: list[Event] = []
        self.recorder = Recorder(self.events.append, topology.processes)
        for sender in ("a1", "b2", "a1", "b1"):
            self.world, happened = self.world.send(sender, None)
            assert happened.submitted is not None
            self.recorder.send(sender, happened.submitted, 0, "one")
            self._note(happened.member, happened.delivered)

    def _note(self, member: str, delivered: tuple[object, ...]) -> None:
        for delivery in delivered:
            self.recorder.deliver(member, delivery.envelope, 0, delivery.domain, delivery.frame.stamp)  # type: ignore[attr-defined]

    def arrive(self, most: int) -> int:
        """Let up to so many frames arrive, the oldest first; return how many did."""
        for count in range(most):
            if self.world.quiet:
                return count
            _, (source, target) = min((flights[0].sent_at, pair) for pair, flights in self.world.flights.items() if flights)
            self.world, happened = self.world.arrive(source, target)
            self._note(happened.member, happened.delivered)
        return most

    def die(self, relay: str) -> None:
        """Let a relay die, and the other one notice."""
        self.world = self.world.crash(relay)
        self.recorder.note(relay, "crash", 0)
        self.world, happened = self.world.suspect(SECOND_OF[relay], relay, True)
        self._note(happened.member, happened.delivered)


def die_at_every_moment(topology: Topology, *relays: str) -> list[bool]:
    """Let these die after so many frames, at every such moment; return of each whether everything was kept nevertheless."""
    kept = []
    for moment in range(Run(topology).arrive(10_000) + 1):
        run = Run(topology)
        run.arrive(moment)
        for relay in relays:
            run.die(relay)
        run.arrive(10_000)
        kept.append(judge(run.events, REQUIRED).kept)
    return kept


@pytest.mark.parametrize("ordering", ["vector", "matrix"])
@pytest.mark.parametrize("relay", ["rw1", "re1"], ids=["at one end", "at the other end"])
@pytest.mark.parametrize("text", [JOINED, LINKED], ids=["a domain between", "a link"])
def test_i6_a_relay_dies_before_and_after_everything_it_does(text: str, relay: str, ordering: str) -> None:
    """I6, §7: as the forwarding and as the receiving end, before and after each frame; nothing is lost, nothing comes twice."""
    kept = die_at_every_moment(parse(text.format(ordering=ordering)), relay)
    assert len(kept) > 30
    assert all(kept), kept.index(False)


def test_i6_both_sequencers_of_a_link_die_at_the_same_moment() -> None:
    kept = die_at_every_moment(parse(LINKED.format(ordering="vector")), "rw1", "re1")
    assert len(kept) > 30
    assert all(kept), kept.index(False)


@pytest.mark.parametrize("relay", ["rw1", "re1"], ids=["at one end", "at the other end"])
def test_i6_without_takeover_a_link_waits_for_its_sequencer(relay: str) -> None:
    """§7 is silent on it: the other relays are there and have nothing to go on with."""
    waits = die_at_every_moment(parse(LINKED.format(ordering="vector").replace("takeover = true", "")), relay)
    assert not all(waits[:10])
    assert waits[-1], "when all is over, nothing is missed"
