"""interconnect §7: relays that die. Rows I6 and I10.

Two systems, each with two processes that stand for its end of the interconnection, joined by a domain between them
(docs/concepts/takeover.md), or by a parallel link whose relays take over from each other (docs/concepts/links.md). The paper
replaces a dead process by a new one, which is told what was not acknowledged; here the second one has seen everything and goes on
by
itself. §7 is silent on the death of the sequencer (docs/research/errata.md): here it is the first of several, and the next goes
on.
"""

from __future__ import annotations

import pytest

from benchmarks.takeover import FIFO_LINK, SETS
from tests.support.papers.survivors import dead_in, still_waiting, wrong_among
from tests.support.planted.planted_takeover import PLANTED_SHARED_OUT, Planted, in_place
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.sim.options import SimulationOptions
from thence.sim.simulation import Simulation
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

FIFO = ("well-formed", "creation", "duplication", "fifo", "completeness")

SHAPES = """
name = "shapes"
promise = "fifo"
[domains.S0]
members = ["p", "q", "h1", "h2"]
[domains.S1]
members = ["s", "i1", "i2"]
[domains.S2]
members = ["t", "j1", "j2"]
[[links]]
between = ["S0", "S1"]
relays = [["h1", "i1"], ["h2", "i2"]]
mode = "fifo"
takeover = true
only_from = ["p", "q", "s"]
[[links]]
between = ["S0", "S2"]
relays = [["h1", "j1"], ["h2", "j2"]]
mode = "fifo"
takeover = true
only_from = ["p", "t"]
[[links]]
between = ["S1", "S2"]
relays = [["i2", "j1"], ["i1", "j2"]]
mode = "fifo"
takeover = true
only_from = ["q", "s", "t"]
"""
"""§4: a star for p, a chain for q; together they are a cycle, in which each sender has one way."""

THREE = (
    FIFO_LINK.replace('"ra2"]', '"ra2", "ra3"]', 1)
    .replace('"rd2"]', '"rd2", "rd3"]', 1)
    .replace('["ra2", "rd2"]', '["ra2", "rd2"], ["ra3", "rd3"]')
)
"""A third pair: who takes one relay's senders over still keeps those of another."""

REQUIRED = ("well-formed", "creation", "duplication", "causal", "completeness")

SENDERS = ("a1", "b2", "a1", "b1")

SECOND_OF = {"rw1": "rw2", "re1": "re2", "rw2": "rw1", "re2": "re1", "ra1": "ra2", "ra2": "ra1", "rd1": "rd2", "rd2": "rd1"}


class Run:
    """Two broadcasts from each side, oldest frames first, and what happens in them."""

    def __init__(self, topology: Topology, senders: tuple[str, ...]) -> None:
        self.world = World.of(topology)
        self.events: list[Event] = []
        self.recorder = Recorder(self.events.append, topology.processes)
        for sender in senders:
            self.world, happened = self.world.send(sender, None)
            assert happened.submitted is not None
            self.recorder.send(sender, happened.submitted, 0, topology.homes[sender][0])
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


def die_at_every_moment(
    topology: Topology, *relays: str, senders: tuple[str, ...] = SENDERS, required: tuple[str, ...] = REQUIRED
) -> list[bool]:
    """Let these die after so many frames, at every such moment; return of each whether everything was kept nevertheless."""
    kept = []
    for moment in range(Run(topology, senders).arrive(10_000) + 1):
        run = Run(topology, senders)
        run.arrive(moment)
        for relay in relays:
            run.die(relay)
        run.arrive(10_000)
        kept.append(judge(run.events, required).kept)
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


@pytest.mark.parametrize("relays", [("ra1",), ("ra2",), ("rd1",), ("ra1", "rd1"), ("ra1", "rd2")], ids=" ".join)
@pytest.mark.parametrize("text", [FIFO_LINK, SETS], ids=["a FIFO link", "transfer sets"])
def test_i10_the_senders_of_a_dead_relay_are_taken_over(text: str, relays: tuple[str, ...]) -> None:
    """I10, §7 for §3: the sender's relay, its target, both or crosswise die before and after each frame."""
    senders = ("a1", "a2", "d1", "d2", "a1", "a2", "d1", "d2")
    kept = die_at_every_moment(parse(text), *relays, senders=senders, required=FIFO)
    assert len(kept) > 50
    assert all(kept), kept.index(False)


def broken(text: str, seed: int, **changes: object) -> bool:
    """Return whether a run with all faults loses something, delivers it twice or out of order, or does not end."""
    faults = {"loss": 0.05, "duplication": 0.05, "reordering": 0.1, "crashes": 3, "suspicions": 6, "deaths": 2, "partitions": 1}
    load = {"messages": 60, "pattern": "mixed", "replies": 0.6, "gap": "exponential:2ms"}
    events: list[Event] = []
    options = SimulationOptions(**faults | load | changes, seed=seed)  # type: ignore[arg-type]
    simulation = Simulation(options, events.append, where=parse(text))
    result = simulation.run()
    wrong = wrong_among(events, dead_in(simulation), FIFO)  # What a dead sender alone had is nobody's.
    return bool(wrong or still_waiting(simulation) or result.statistics.repeated_deliveries)


@pytest.mark.parametrize("text", [FIFO_LINK, SETS, SHAPES], ids=["a FIFO link", "transfer sets", "shapes of their own"])
def test_i10_whatever_else_goes_wrong(text: str) -> None:
    """I10, §3 and §4: deaths of any relay, wrong suspicions, crashes, loss and partitions at once."""
    assert not any(broken(text, seed) for seed in range(12))


@pytest.mark.parametrize("planted", PLANTED_SHARED_OUT, ids=[planted.name for planted in PLANTED_SHARED_OUT])
def test_i10_what_was_planted_is_found(planted: Planted) -> None:
    with in_place(planted):
        assert any(broken(THREE, seed, deaths=seed % 3, suspicions=20, gap="exponential:5ms") for seed in range(20))
