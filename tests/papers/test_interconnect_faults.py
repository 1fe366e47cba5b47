"""interconnect §7: relays that die. Row I6.

Two systems, each with two processes that stand for its end of the interconnection, joined by a domain between them
(docs/takeover.md). The paper replaces a dead process by a new one, which is told what was not confirmed; here the second one has
seen everything and goes on by itself. §7 is silent on the death of the sequencer: here is none that could die.
"""

from __future__ import annotations

import pytest

from thence.core.topology import Topology
from thence.core.topology_text import parse
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


@pytest.mark.parametrize("ordering", ["vector", "matrix"])
@pytest.mark.parametrize("relay", ["rw1", "re1"], ids=["at one end", "at the other end"])
def test_i6_a_relay_dies_before_and_after_everything_it_does(relay: str, ordering: str) -> None:
    """I6, §7: as the forwarding and as the receiving end, before and after each frame; nothing is lost, nothing comes twice."""
    topology = parse(JOINED.format(ordering=ordering))
    total = Run(topology).arrive(10_000)
    moments = 0
    for moment in range(total + 1):
        run = Run(topology)
        run.arrive(moment)
        run.die(relay)
        run.arrive(10_000)
        verdict = judge(run.events, ["well-formed", "creation", "duplication", "causal", "completeness"])
        assert verdict.kept, (moment, verdict.violations[:3])
        moments += 1
    assert moments > 30
