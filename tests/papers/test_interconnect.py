"""interconnect: *Parallel interconnection of broadcast systems with multiple FIFO channels*, §3 to §6.

The paper's *system* is our domain, its *IS process* our relay. Relays here are processes like all others: they send and
deliver too, which the paper leaves out. What the protocols cost is in ``test_interconnect_costs.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from thence.core.places.link_end import LinkTransfer
from thence.core.topology.domain import Domain
from thence.core.topology.link import MakeLinkEnd
from thence.core.topology.model import Link, Topology
from thence.core.topology.routing import Routes
from thence.errors import TopologyError
from thence.sim.options import Pattern, SimulationOptions
from thence.sim.scenario import Stage, from_actions, parse, run_text
from thence.sim.search import explorer
from thence.sim.search.explorer import Action, Case, explore
from thence.sim.simulation import simulate
from thence.studies.parts.figures import FIG3_SETS, interconnect_fig3
from thence.studies.parts.linked_systems import Mode, drive, names, two
from thence.studies.parts.printed_links import PRINTED, printed_delivered
from thence.trace.judge import judge

SCENARIOS = Path(__file__).parents[1] / "scenarios"
EXACTLY_ONCE = ("well-formed", "creation", "duplication", "completeness")
PATTERNS: tuple[Pattern, ...] = ("broadcast", "multicast", "unicast")
CAUSAL = ("vector", "matrix", "sequenced", "grouped", "flood")


def broken(topology: Topology, seed: int, *require: str, messages: int = 40, pattern: Pattern = "broadcast") -> dict[str, int]:
    """Run random traffic with random delays; return what is broken of ``require`` and of exactly-once."""
    chance = Random(f"interconnect/{seed}")
    options = SimulationOptions(
        messages=messages,
        pattern=pattern,
        gap=chance.choice(("exponential:1ms", "exponential:8ms")),
        replies=chance.choice((0.2, 0.8)),
        body_bytes=0,
        delay="exponential:10ms",
        link_delay=chance.choice((None, "exponential:40ms")),
        seed=seed,
    )
    result, events = simulate(options, topology)
    assert result.statistics.messages == messages
    return {name: count for name, count in judge(events, [*EXACTLY_ONCE, *require]).properties.items() if count}


# --- FIFO systems ------------------------------------------------------------------------------------------------------


def transfer_sets(chance: Random, sizes: tuple[int, int]) -> Topology:
    """Two FIFO systems; every process has a relay and a target of its own, drawn at random, in each direction."""
    sides = names("a", sizes[0]), names("b", sizes[1])
    chosen: dict[tuple[str, str], list[str]] = {}
    for at in (0, 1):
        for process in sides[at]:
            pair = (chance.choice(sides[0]), chance.choice(sides[1]))
            chosen.setdefault(pair, []).append(process)
    links = [Link(f"{a}-{b}", ("A", "B"), ((a, b),), "fifo", only_from=tuple(who)) for (a, b), who in chosen.items()]
    return Topology("sets", [Domain("A", sides[0], "fifo"), Domain("B", sides[1], "fifo")], links, promise="fifo")


@pytest.mark.parametrize("seed", range(40))
def test_i1_fifo_systems_joined_by_several_relays_stay_fifo(seed: int) -> None:
    """I1, §3, Thm 1. A transfer set with its target is a link of one pair with ``only_from``; sets and targets are arbitrary.

    Deviation: a relay's own messages cross too, by the same rule as everybody's.
    """
    chance = Random(f"i1/{seed}")
    topology = transfer_sets(chance, (chance.randint(2, 6), chance.randint(2, 6)))
    assert topology.guarantees == {"fifo"}
    assert broken(topology, seed, "fifo") == {}


@pytest.mark.parametrize("seed", range(20))
def test_i1_senders_divided_in_turn_stay_fifo(seed: int) -> None:
    """I1, §3, with one link of several pairs, among which ``mode = "fifo"`` divides the senders by itself."""
    chance = Random(f"i1 turn/{seed}")
    sizes = (chance.randint(2, 6), chance.randint(2, 6))
    topology = two(sizes, chance.randint(1, min(sizes)), "fifo", ordering="fifo")
    assert broken(topology, seed, "fifo") == {}


def test_i1_fig_3() -> None:
    """I1, §3, Fig. 3 as shipped: "isp11 transfers messages to isp01 and isp02, and isp12 both to isp02 and isp03"; none idle."""
    topology = interconnect_fig3()
    path, sides = Routes(topology).path, (topology.domains["S0"].members, topology.domains["S1"].members)
    used = {}
    for here, there in (sides, sides[::-1]):
        for sender in here:
            ways = [path(sender, receiver) for receiver in there]
            crossings = {(*way[at - 1 : at + 2],) for way in ways for at, step in enumerate(way) if step in topology.links}
            (used[sender],) = crossings
    assert set(used.values()) == {(arrow.split("-")[0], arrow, arrow.split("-")[1]) for arrow in FIG3_SETS}
    assert topology.promise == "fifo"
    assert [broken(topology, seed, "fifo") for seed in range(10)] == [{}] * 10


RED, BLACK, BLUE = ("p",), ("q",), ("r",)
OTHERS = ("isp01", "isp02", "isp03", "x1", "isp11", "isp12", "x2", "isp21", "x3", "isp31", "isp32", "isp33")
FIG_4 = (
    ("star-1", ("S0", "S1"), ("isp01", "isp11"), RED + OTHERS),
    ("star-2", ("S0", "S2"), ("isp01", "isp21"), RED + OTHERS),
    ("star-3", ("S0", "S3"), ("isp01", "isp32"), RED + OTHERS),
    ("chain-1", ("S0", "S2"), ("isp02", "isp21"), BLACK),
    ("chain-2", ("S2", "S1"), ("isp21", "isp12"), BLACK),
    ("chain-3", ("S1", "S3"), ("isp12", "isp33"), BLACK),
    ("tree-1", ("S0", "S3"), ("isp03", "isp31"), BLUE),
    ("tree-2", ("S3", "S2"), ("isp31", "isp21"), BLUE),
    ("tree-3", ("S3", "S1"), ("isp31", "isp12"), BLUE),
)


def fig_4() -> Topology:
    systems = [
        Domain("S0", ("p", "q", "r", "isp01", "isp02", "isp03"), "fifo"),
        Domain("S1", ("x1", "isp11", "isp12"), "fifo"),
        Domain("S2", ("x2", "isp21"), "fifo"),
        Domain("S3", ("x3", "isp31", "isp32", "isp33"), "fifo"),
    ]
    links = [Link(name, between, (pair,), "fifo", only_from=who) for name, between, pair, who in FIG_4]
    return Topology("fig. 4", systems, links, promise="fifo")


@pytest.mark.parametrize(
    ("origin", "target", "path"),
    [
        ("p", "x1", "p S0 isp01 star-1 isp11 S1 x1"),
        ("p", "x2", "p S0 isp01 star-2 isp21 S2 x2"),
        ("p", "x3", "p S0 isp01 star-3 isp32 S3 x3"),
        ("q", "x2", "q S0 isp02 chain-1 isp21 S2 x2"),
        ("q", "x1", "q S0 isp02 chain-1 isp21 chain-2 isp12 S1 x1"),
        ("q", "x3", "q S0 isp02 chain-1 isp21 chain-2 isp12 chain-3 isp33 S3 x3"),
        ("r", "x3", "r S0 isp03 tree-1 isp31 S3 x3"),
        ("r", "x2", "r S0 isp03 tree-1 isp31 tree-2 isp21 S2 x2"),
        ("r", "x1", "r S0 isp03 tree-1 isp31 tree-3 isp12 S1 x1"),
        ("x2", "x3", "x2 S2 isp21 star-2 isp01 star-3 isp32 S3 x3"),
    ],
)
def test_i2_fig_4_every_sender_uses_its_own_shape(origin: str, target: str, path: str) -> None:
    """I2, §4, Fig. 4: star, chain and tree on the same four systems, at the same time; one relay per system on a path.

    Deviation: the figure gives paths for p, q and r only; everybody else uses the star as well.
    """
    assert Routes(fig_4()).path(origin, target) == path.split()


@pytest.mark.parametrize("pattern", ["broadcast", "multicast", "unicast"])
def test_i2_fig_4_stays_fifo(pattern: Pattern) -> None:
    """I2, §4: any number of FIFO systems. All three shapes together keep FIFO, whoever is written to."""
    assert [broken(fig_4(), seed, "fifo", pattern=pattern) for seed in range(8)] == [{}] * 8


def test_i2_the_three_shapes_as_scenarios() -> None:
    """I2: tests/scenarios/fig4_{star,chain,tree}.txt are broadcasts of p, q and r; each uses the three links of its shape."""
    for shape, origin in (("star", "p"), ("chain", "q"), ("tree", "r")):
        text = (SCENARIOS / f"fig4_{shape}.txt").read_text(encoding="utf-8")
        lines = [line.split() for block in parse(text) for line in block.expected.splitlines()]
        crossed = [
            words[7].rstrip(":") for words in lines if words[:3] == ["on", "its", "way"] and "LinkTransfer(number=0)" in words
        ]
        assert sorted(crossed) == [f"{shape}-{number}" for number in (1, 2, 3)], origin
        assert parse(text)[-1].expected == "kept"


def test_i2_a_sender_with_two_ways_is_refused() -> None:
    """I2, §4: a process has *one* way to each system. A second one is a cycle, and named."""
    topology = fig_4()
    both = [link._replace(only_from=("p", "q")) for link in topology.links.values() if not link.name.startswith("tree")]
    with pytest.raises(TopologyError, match="a cycle: S0 - link chain-1 - S2 - link star-2 - S0"):
        Topology("two ways", topology.domains.values(), both, promise="fifo")


# --- causal systems ----------------------------------------------------------------------------------------------------


def test_i3_uncoordinated_relays_break_causal_order() -> None:
    """I3, §5, Thm 2. The explorer finds the proof's own run as the shortest: m and m' cross by different relays, m' first."""
    found = explore(Case(two((2, 2), 2, "fifo"), 2, "broadcast", frozenset({"causal"})))
    assert found.broken == "causal"
    assert found.actions == (Action("a1"), Action("a1", "a2"), Action("a2"), Action("a2", "b2"))


@pytest.mark.parametrize("mode", ["fifo", printed_delivered])
def test_i3_uncoordinated_relays_are_refused_where_causal_order_is_promised(mode: Mode) -> None:
    """I3, §5, Thm 2: the check says which link, why, and what to do instead."""
    name = mode if isinstance(mode, str) else mode.__name__
    with pytest.raises(TopologyError, match=f"link 'L' has mode = '{name}': .*overtake its cause; use mode = 'causal'"):
        two((2, 2), 2, mode, promise="causal")


def test_i3_one_relay_alone_is_enough() -> None:
    """I3: with one pair there is nothing to coordinate, and the explorer finds nothing, without any numbers."""
    assert explore(Case(two((2, 3), 1, "fifo"), 2, "broadcast", frozenset({"causal"}))).broken is None


ROUND_TRIP = (
    Action("a1"),
    Action("a1", "b1"),
    Action("b1", "b2"),
    Action("b2"),
    Action("b2", "b1"),
    Action("b1", "b2"),
    Action("b2", "a2"),
)
"""a1's message crosses; b2 answers; a2 passes the answer on, without having delivered what it answers."""


@pytest.mark.parametrize("printed", PRINTED)
def test_i4_fig_5_is_not_causal(printed: MakeLinkEnd) -> None:
    """I4, §5, Fig. 5 and Thm 3, deviation: the theorem is wrong. Its proof looks at two messages that cross the same way.

    A message that crosses, and an answer that comes back by another relay, are not covered: that relay counts what it got from
    the other system, not what its own system sent there. The shortest such run has seven steps, with either reading of the wait.
    """
    case = Case(two((2, 2), 2, printed), 2, "broadcast", frozenset({"causal"}))
    found = explore(case)
    assert (found.broken, found.actions) == ("causal", ROUND_TRIP)
    differences, _ = run_text(from_actions(case, found.actions, "the round trip"), link_ends=PRINTED)
    assert differences == []


def test_i4_the_round_trip_needs_no_relay_that_sends() -> None:
    """I4: the same with processes that are no relays, as in the paper's model: tests/scenarios/fig5_round_trip.txt."""
    blocks = parse((SCENARIOS / "fig5_round_trip.txt").read_text(encoding="utf-8"))
    senders = {block.command.split()[1] for block in blocks if block.command.startswith("send")}
    assert senders == {"p", "r"}
    assert "  causal: q delivered r:1 although p:1, sent to q causally before it" in blocks[-1].expected


def one_way(_: Case, sender: str) -> Iterator[None]:
    """Let only members of A send, and to everyone: the case that the proof of Thm 3 looks at."""
    return iter((None,) if sender.startswith("a") else ())


@pytest.mark.slow
@pytest.mark.parametrize("printed", PRINTED)
def test_i4_fig_5_is_causal_in_one_direction(printed: MakeLinkEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    """I4, Thm 3 as far as its proof goes; and there it is safe not to wait for the delivery of what this relay sent itself."""
    monkeypatch.setattr(explorer, "_destinations", one_way)
    found = explore(Case(two((2, 2), 2, printed), 3, "broadcast", frozenset({"causal"})))
    assert (found.broken, found.steps > 1_000) == (None, True)


@pytest.mark.parametrize(
    ("sizes", "messages", "pattern"),
    [
        ((2, 2), 2, "broadcast"),
        ((2, 2), 2, "multicast"),
        ((3, 2), 2, "unicast"),
        ((3, 2), 2, "broadcast"),
        ((2, 3), 2, "broadcast"),
    ],
)
def test_i4_our_links_are_causal_in_every_run(sizes: tuple[int, int], messages: int, pattern: str) -> None:
    """I4, §5: the aim of Thm 3, met by ``mode = "causal"``: no run of these cases breaks anything.

    Deviation: the receiving relays hand over to the sequencer of their side, which passes on; it waits for no delivery at all.
    """
    found = explore(Case(two(sizes, 2), messages, pattern))
    assert (found.broken, found.steps > 1_000) == (None, True)


@pytest.mark.parametrize("ordering", CAUSAL)
def test_i4_whatever_ordering_the_systems_run(ordering: str) -> None:
    """I4, §5: the systems are not modified; each causal ordering will do, in every run of two broadcasts."""
    found = explore(Case(two((2, 2), 2, ordering=ordering), 2, "broadcast"))
    assert (found.broken, found.steps > 500) == (None, True)


@pytest.mark.parametrize("seed", range(40))
def test_i4_our_links_are_causal_in_random_runs(seed: int) -> None:
    """I4, §5: two systems of any orderings and sizes, one to five pairs of relays, which may share relays."""
    chance = Random(f"i4/{seed}")
    sides = names("a", chance.randint(2, 7)), names("b", chance.randint(2, 7))
    pairs = tuple(dict.fromkeys((chance.choice(sides[0]), chance.choice(sides[1])) for _ in range(chance.randint(1, 5))))
    domains = [Domain(name, side, chance.choice(CAUSAL)) for name, side in zip("AB", sides, strict=True)]
    topology = Topology("joined", domains, [Link("L", ("A", "B"), pairs)])
    assert broken(topology, seed, "fifo", "causal", pattern=chance.choice(PATTERNS)) == {}


@pytest.mark.parametrize(("mode", "least"), [("fifo", 15), (printed_delivered, 3), ("causal", 0)])
def test_i4_the_random_runs_find_what_there_is(mode: Mode, least: int) -> None:
    """I4: the random runs can find it. Where links are quick, they break Fig. 2 nearly always and Fig. 5 in some seeds."""
    options = SimulationOptions(messages=60, replies=0.9, gap="exponential:20ms", link_delay="constant:100us", body_bytes=0)
    runs = [simulate(msgspec.structs.replace(options, seed=seed), two((3, 3), 2, mode))[1] for seed in range(20)]
    found = sum(judge(events, ["causal"]).properties["causal"] > 0 for events in runs)
    assert found >= least if least else found == 0


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_i4_messages_travel_in_parallel(pairs: int) -> None:
    """I4, §5: all pairs carry, in turn, and at the same time: what takes a second on a link takes no longer for one on each."""
    run = drive(two((5, 5), pairs), [(0, "a5", None)] * 12, link_delay="constant:1s")
    crossing = [(sent.source, sent.target) for sent in sorted(run.sent, key=number) if isinstance(sent.frame.stamp, LinkTransfer)]
    assert crossing == [(f"a{1 + at % pairs}", f"b{1 + at % pairs}") for at in range(12)]
    assert max(run.times("b5")) < 1_010_000_000


def number(sent: object) -> int:
    """Return the number on the link, 0 for what has none."""
    return getattr(getattr(getattr(sent, "frame", None), "stamp", None), "number", 0)


# --- several causal systems --------------------------------------------------------------------------------------------


def causal_tree(chance: Random) -> Topology:
    """Two to six causal systems, each joined to an earlier one by one to three pairs."""
    systems = [names(item, chance.randint(1, 4)) for item in "abcdef"[: chance.randint(2, 6)]]
    domains = [Domain(side[0][0].upper(), side, chance.choice(CAUSAL)) for side in systems]
    links = []
    for at in range(1, len(systems)):
        other = chance.randrange(at)
        drawn = [(chance.choice(systems[at]), chance.choice(systems[other])) for _ in range(chance.randint(1, 3))]
        links.append(Link(f"L{at}", (domains[at].name, domains[other].name), tuple(dict.fromkeys(drawn))))
    return Topology("tree", domains, links)


@pytest.mark.parametrize("seed", range(40))
def test_i5_causal_systems_joined_in_pairs_are_causal(seed: int) -> None:
    """I5, §6, Thm 4: any number of systems, any tree of links; a relay may be in several links."""
    chance = Random(f"i5/{seed}")
    pattern: Pattern = chance.choice(PATTERNS)
    assert broken(causal_tree(chance), seed, "fifo", "causal", pattern=pattern) == {}


@pytest.mark.parametrize("pattern", ["broadcast", "unicast"])
def test_i5_three_systems_in_a_row_are_causal_in_every_run(pattern: Pattern) -> None:
    """I5, §6: the one in the middle has two peers at once, with other sequencers for each, and numbers for each."""
    systems = [Domain("A", ("a1", "a2"), "vector"), Domain("B", ("b1", "b2"), "vector"), Domain("C", ("c1",), "vector")]
    first = Link("L", ("A", "B"), (("a1", "b1"), ("a2", "b2")))
    second = Link("M", ("B", "C"), (("b2", "c1"), ("b1", "c1")))
    found = explore(Case(Topology("row", systems, [first, second]), 2, pattern))
    assert (found.broken, found.steps > 1_000) == (None, True)


def triangle(*, force: bool) -> Topology:
    """Three systems of one process each, and a link between every two."""
    links = [Link(f"{one}{other}", (one, other), ((one.lower(), other.lower()),)) for one, other in ("AB", "BC", "AC")]
    return Topology("triangle", [Domain(name, (name.lower(),), "vector") for name in "ABC"], links, force=force)


def test_i5_a_cycle_of_links_is_refused_by_name() -> None:
    """I5, §6, Lemma 1: the cycle is named, link by link."""
    with pytest.raises(TopologyError) as caught:
        triangle(force=False)
    assert "a cycle: A - link AB - B - link BC - C - link AC - A" in str(caught.value)


def test_i5_a_cycle_that_is_forced_breaks_causal_order() -> None:
    """I5, §6, Lemma 1: the explorer finds that two ways to one system overtake each other."""
    case = Case(triangle(force=True), 3, "unicast", frozenset({"causal"}))
    found = explore(case)
    assert (found.broken, len(found.actions)) == ("causal", 5)
    stage = Stage(case.topology)
    for block in parse(from_actions(case, found.actions, "around the triangle")):
        assert stage.do(block.command) == block.expected
    assert judge(stage.events, ["causal"]).properties["causal"] == 1
