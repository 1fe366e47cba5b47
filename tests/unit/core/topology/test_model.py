"""What makes a fabric: every rule of ``core/topology/model.py``, and its cycles against the definition of the paper, tried by
force.

The definition (domains §4.2): a direct path (different processes, each sharing a domain with the next) whose ends share a domain
while no domain holds them all.
"""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.papers import small_topologies as small
from tests.support.fabrics import fabric_for
from thence.core.places.link_end import LinkEnd
from thence.core.topology import checks as module
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Promise, Topology
from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import TopologyError


def domains(text: str, ordering: str = "matrix") -> list[Domain]:
    """Read ``A: a b c, B: c d`` as domains."""
    parts = (part.split(":") for part in text.split(","))
    return [Domain(name.strip(), tuple(members.split()), ordering) for name, members in parts]


def refusal(*arguments: Any, **options: Any) -> TopologyError:
    """Make what must be refused; return why."""
    with pytest.raises(TopologyError) as refused:
        Topology("t", *arguments, **options)
    return refused.value


# --- cycles --------------------------------------------------------------------------------------------------------------


def hang_together(sets: list[set[str]]) -> bool:
    """Return whether all can be reached from the first."""
    reached: set[str] = set(sets[0])
    for _ in sets:
        reached = reached.union(*(some for some in sets if some & reached))
    return reached == set().union(*sets)


def has_cycle(sets: list[set[str]]) -> bool:
    """Try every direct path, as §4.2 says it."""
    processes = sorted(set().union(*sets))

    def extend(path: list[str]) -> bool:
        if len(path) > 1 and any({path[0], path[-1]} <= some for some in sets) and not any(set(path) <= some for some in sets):
            return True
        nearby = [next_one for next_one in processes if any({path[-1], next_one} <= some for some in sets)]
        return any(extend([*path, next_one]) for next_one in nearby if next_one not in path)

    return any(extend([process]) for process in processes)


def check_cycle(topology: Topology, cycle: list[str]) -> None:
    """A named cycle goes round: different domains, different joints, each joint in the domain before and the one behind it."""
    assert cycle[0] == cycle[-1]
    around, joints = cycle[:-1:2], cycle[1::2]
    assert len(around) == len(joints) >= 2
    assert len(set(around)) == len(around)
    assert len(set(joints)) == len(joints)
    for before, joint, behind in zip(around, joints, [*around[1:], around[0]], strict=True):
        if joint.startswith("link "):
            assert set(topology.links[joint.removeprefix("link ")].between) == {before, behind}
        else:
            assert joint in topology.domains[before].members
            assert joint in topology.domains[behind].members


@pytest.mark.parametrize("choice", small.classes(), ids=small.label)
def test_cycles_are_those_of_the_definition_in_every_small_fabric(choice: small.Choice) -> None:
    topology = small.fabric(choice, force=True)
    cycle = topology.find_cycle()
    assert (cycle is not None) == has_cycle([set(domain.members) for domain in topology.domains.values()])
    if cycle:
        check_cycle(topology, cycle)


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=4), min_size=1, max_size=5))
def test_cycles_are_those_of_the_definition(sets: list[set[str]]) -> None:
    made = [Domain(f"D{at}", tuple(sorted(members)), "matrix") for at, members in enumerate(sets)]
    assume(hang_together(sets))
    topology = Topology("t", made, force=True)
    cycle = topology.find_cycle()
    assert (cycle is not None) == has_cycle(sets)
    if cycle:
        check_cycle(topology, cycle)
        assert " - ".join(cycle) in str(refusal(made))


@given(st.integers(0, 2**32))
def test_a_link_counts_as_a_process_in_both_domains(seed: int) -> None:
    chance = Random(seed)
    count = chance.randint(2, 4)
    made = [Domain(f"D{at}", tuple(f"{'ABCD'[at]}{number}" for number in range(2)), "matrix") for at in range(count)]
    if chance.random() < 0.5:
        made[0] = made[0]._replace(members=(*made[0].members, made[1].members[0]))
    links, sets = [], [set(domain.members) for domain in made]
    for number in range(chance.randint(1, 4)):
        one, other = chance.sample(range(count), 2)
        if not sets[one] & sets[other] & {name for domain in made for name in domain.members}:
            between = (made[one].name, made[other].name)
            links.append(Link(f"l{number}", between, ((made[one].members[0], made[other].members[0]),)))
            sets[one].add(f"l{number}")
            sets[other].add(f"l{number}")
    assume(hang_together(sets))
    topology = Topology("t", made, links, force=True)
    cycle = topology.find_cycle()
    assert (cycle is not None) == has_cycle(sets)
    if cycle:
        check_cycle(topology, cycle)


def test_a_cycle_is_named_with_a_way_out() -> None:
    error = refusal(domains("A: a b, B: b c, C: c a"))
    assert str(error) == (
        "a cycle: A - a - C - c - B - b - A. Around a cycle a message can overtake its cause: take a or c or b out of one of "
        "these domains, or put them all into one"
    )
    assert error.about[0] == "domains"


def test_two_shared_processes_are_a_cycle() -> None:
    assert str(refusal(domains("A: a b c, B: a b d"))).startswith("a cycle: A - ")


def test_a_cycle_of_links_is_named() -> None:
    links = [
        Link(f"{one}-{other}", (one, other), ((one.lower(), other.lower()),))
        for one, other in permutations("ABC", 2)
        if one < other
    ]
    assert "link A-B" in str(refusal(domains("A: a, B: b, C: c"), links))


@given(st.integers(0, 2**32))
def test_random_fabrics_without_a_cycle_are_accepted(seed: int) -> None:
    topology = fabric_for(seed)
    assert topology.find_cycle() is None
    assert "causal" in topology.guarantees


# --- domains inside others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("A: a b c, B: a b", {"B": "A"}),
        ("B: a b, A: a b c", {"B": "A"}),
        ("A: a b, B: b a", {"B": "A"}),
        ("A: a b, B: b a, C: a b", {"B": "A", "C": "A"}),
        ("A: a b c d, B: a b c, C: b c", {"B": "A", "C": "A"}),
        ("A: a b, B: b c", {}),
        ("A: a b, B: b", {"B": "A"}),
    ],
)
def test_what_lies_inside_carries_no_traffic(text: str, inner: dict[str, str]) -> None:
    topology = Topology("t", domains(text))
    assert set(topology.inner) == set(inner)
    for name, outer in topology.inner.items():
        assert set(topology.domains[name].members) <= set(topology.domains[outer].members)
    used = {name for homes in topology.homes.values() for name in homes}
    assert used == set(topology.domains) - set(inner)
    assert all(topology.homes.values())


def test_a_domain_with_a_link_is_never_inside() -> None:
    """Else the link would end in a domain without traffic."""
    topology = Topology("t", domains("A: a b, B: b, C: c"), [Link("l", ("B", "C"), (("b", "c"),))])
    assert topology.inner == {}
    assert topology.relays == ("b",)


LONG = "x" * (MAX_NAME_CHARACTERS + 1)

# --- what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "links", "says", "about"),
    [
        ([], [], "a fabric needs at least one domain", ("domains",)),
        (domains("A: a b, A: b c"), [], "two domains are called 'A'", ("domains", "A")),
        ([Domain("A", (), "matrix")], [], "domain 'A' has no members", ("domains", "A")),
        (domains("A: a b a"), [], "domain 'A': matrix: a member is listed twice in a, b, a", ("domains", "A")),
        (domains("A: a b, B: c d"), [], "domain 'B' cannot be reached from 'A': let them share a member", ("domains", "B")),
        (domains("A: a", "matriks"), [], "domain 'A': there is no ordering 'matriks'; did you mean 'matrix'?", ("domains", "A")),
        ([Domain("A", ("a b",), "matrix")], [], "'a b' is no name: 1 to 200 characters", ("domains", "A", "members", "a b")),
        ([Domain("A", ("../a",), "matrix")], [], "'../a' is no name: servers keep their data in folders",
         ("domains", "A", "members", "../a")),
        ([Domain("A", ("..",), "matrix")], [], "'..' is no name: servers keep", ("domains", "A", "members", "..")),
        ([Domain("A", (".",), "matrix")], [], "'.' is no name: servers keep", ("domains", "A", "members", ".")),
        ([Domain("A", ("/etc",), "matrix")], [], "'/etc' is no name: servers keep", ("domains", "A", "members", "/etc")),
        ([Domain("A", ("a\0b",), "matrix")], [], r"'a\x00b' is no name: it has characters that cannot be printed",
         ("domains", "A", "members", "a\0b")),
        ([Domain("A", ("a\x1bb",), "matrix")], [], r"'a\x1bb' is no name: it has", ("domains", "A", "members", "a\x1bb")),
        ([Domain("A", ("a\u202eb",), "matrix")], [], r"'a\u202eb' is no name: it has", ("domains", "A", "members", "a\u202eb")),
        ([Domain("A", ("ä" * 150,), "matrix")], [], f"'{'ä' * 150}' is no name: 300 bytes; MAX_NAME_BYTES is 240",
         ("domains", "A", "members", "ä" * 150)),
        ([Domain("A/B", ("a",), "matrix")], [], "'A/B' is no name", ("domains", "A/B")),
        ([Domain("", ("a",), "matrix")], [], "'' is no name", ("domains", "")),
        ([Domain("A", (LONG,), "matrix")], [], f"{LONG!r} is no name", ("domains", "A", "members", LONG)),
        ([Domain("A", ("a",), "matrix", {"stamp": "full"})], [], "domain 'A': matrix: ", ("domains", "A")),
    ],
)  # fmt: skip
def test_domains_that_cannot_be(made: list[Domain], links: list[Link], says: str, about: tuple[str, ...]) -> None:
    error = refusal(made, links)
    assert str(error).startswith(says)
    assert error.about == about


TWO = domains("north: a b, south: c d")
PAIR = (("a", "c"),)


def link(**changes: Any) -> list[Link]:
    """Return the link between the two, but for these changes."""
    return [Link("l", ("north", "south"), PAIR)._replace(**changes)]


@pytest.mark.parametrize(
    ("links", "says", "about"),
    [
        (link(between=("north", "soth")), "links: there is no domain 'soth'; did you mean 'south'?", ("links", "l", "soth")),
        (link(between=("north", "north")), "link 'l' joins domain 'north' with itself", ("links", "l")),
        (link(relays=()), "link 'l' needs at least one pair of relays", ("links", "l")),
        (link(relays=(("c", "a"),)), "link 'l': 'c' is no member of domain 'north', so it can be no relay", ("links", "l", "c")),
        (link(relays=(("a", "dd"),)), "link 'l': 'dd' is no member of domain 'south', so it can be no", ("links", "l", "dd")),
        (link(relays=PAIR * 2), "link 'l': a pair of relays is listed twice", ("links", "l")),
        (link() * 2, "two links are called 'l'", ("links", "l")),
        (link(name="north"), "'north' is the name of a domain and of a link", ("links", "north")),
        (link(name="a link"), "'a link' is no name", ("links", "a link")),
        (link(mode="fifo", only_from=("aa",)), "links: there is no process 'aa'; did you mean 'a'?", ("links", "l", "aa")),
    ],
)  # fmt: skip
def test_links_that_cannot_be(links: list[Link], says: str, about: tuple[str, ...]) -> None:
    error = refusal(TWO, links)
    assert str(error).startswith(says)
    assert error.about == about


def test_a_relay_that_is_none_comes_with_a_suggestion() -> None:
    assert str(refusal(TWO, link(relays=(("a", "dd"),)))).endswith("so it can be no relay there; did you mean 'd'?")


def test_a_link_between_domains_that_share_a_member_is_refused() -> None:
    error = refusal(domains("A: a b, B: b c"), [Link("l", ("A", "B"), (("a", "c"),))])
    assert str(error).startswith("link 'l' joins 'A' and 'B', which share 'b': that process is a relay already")


def test_an_address_for_nobody_is_refused() -> None:
    error = refusal(domains("A: s1 s2"), addresses={"s11": "127.0.0.1:1"})
    assert (str(error), error.about) == ("servers: there is no process 's11'; did you mean 's1'?", ("servers", "s11"))


@pytest.mark.parametrize(
    ("limit", "says"), [("MAX_PROCESSES", "4 processes; MAX_PROCESSES is 3"), ("MAX_DOMAINS", "2 domains; MAX_DOMAINS is 1")]
)
def test_too_large_is_refused_by_the_name_of_the_limit(limit: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, 3 if limit == "MAX_PROCESSES" else 1)
    assert str(refusal(domains("A: a b, B: b c d"))) == says


# --- what a fabric can promise -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ordering", "links", "promise", "says"),
    [
        ("fifo", [], "causal", "domain 'A' runs fifo, which does not keep causal order"),
        ("unordered", [], "fifo", "domain 'A' runs unordered, which does not keep fifo order"),
        ("matrix", [], "total", "promise = 'total': one order for all cannot be kept over several domains"),
        ("sequenced", [], "total", "promise = 'total': one order for all cannot be kept over several domains"),
        ("matrix", link(mode="fifo"), "causal", "link 'l' has mode = 'fifo': its relays are not enough coordinated"),
        ("matrix", link(mode=LinkEnd), "causal", "link 'l' has mode = 'LinkEnd': its relays are not enough coordinated"),
        ("matrix", link(only_from=("a",)), "causal", "link 'l': only_from is for fabrics that promise fifo"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_not_promised(ordering: str, links: list[Link], promise: Promise, says: str) -> None:
    made = [domain._replace(ordering=ordering) for domain in TWO] if links else domains("A: a b, B: b c", ordering)
    assert str(refusal(made, links, promise=promise)).startswith(says)
    assert Topology("t", made, links, promise="nothing").promise == "nothing"


@pytest.mark.parametrize(
    ("made", "links", "keeps"),
    [
        (domains("A: a b", "sequenced"), [], {"fifo", "causal", "total"}),
        (domains("A: a b c, B: a b", "sequenced"), [], {"fifo", "causal", "total"}),
        (domains("A: a b, B: b c", "sequenced"), [], {"fifo", "causal"}),
        (domains("A: a b", "fifo") + domains("B: b c", "vector"), [], {"fifo"}),
        (domains("A: a b", "fifo") + domains("B: b c", "unordered"), [], set()),
        (TWO, link(), {"fifo", "causal"}),
        (TWO, link(mode="fifo"), {"fifo"}),
        (TWO, link(mode=LinkEnd), {"fifo"}),
    ],
)
def test_what_all_parts_keep_together(made: list[Domain], links: list[Link], keeps: set[str]) -> None:
    assert Topology("t", made, links, promise="nothing").guarantees == keeps


def test_a_forced_cycle_keeps_no_causal_order() -> None:
    made = domains("A: a b, B: b c, C: c a")
    assert "a cycle" in str(refusal(made))
    assert Topology("t", made, force=True).guarantees == {"fifo"}


def test_one_domain_promises_what_its_ordering_keeps() -> None:
    orderings = ("sequenced", "matrix", "fifo", "unordered")
    promised = [Topology.flat(Domain("d", ("a", "b"), ordering)).promise for ordering in orderings]
    assert promised == ["total", "causal", "fifo", "nothing"]


def test_where_fifo_is_promised_each_sender_may_have_its_own_way() -> None:
    """Interconnect §4: three links between three domains are a cycle, but no sender may use more than two of them."""
    made = domains("A: a, B: b, C: c", "fifo")
    ways = {"A-B": ("a", "b"), "B-C": ("b", "c"), "A-C": ("c", "a")}
    links = [
        Link(name, (name[0], name[2]), ((name[0].lower(), name[2].lower()),), "fifo", only_from=senders)
        for name, senders in ways.items()
    ]
    assert Topology("t", made, links, promise="fifo").promise == "fifo"
    assert "a cycle" in str(refusal(made, [link._replace(only_from=None) for link in links], promise="fifo"))
    assert "a cycle" in str(refusal(made, [link._replace(only_from=("a", "b")) for link in links], promise="fifo"))


def test_sides_and_members_of_a_link() -> None:
    link = Link("l", ("A", "B"), (("a1", "b1"), ("a2", "b1"), ("a1", "b2")))
    assert (link.side("A"), link.side("B"), link.far("A")) == (("a1", "a2"), ("b1", "b2"), "B")
    assert link.members == ("a1", "a2", "b1", "b2")
