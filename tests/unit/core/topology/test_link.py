"""A link whose relays take over from each other: which domain it is, what is refused, and what one message takes."""

from __future__ import annotations

import pytest

from thence.core.reconfig.diff import differences
from thence.core.topology.model import Link
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse, write
from thence.errors import ConfigError, TopologyError
from thence.studies.parts.linked_systems import drive

MESSAGE_BYTES = 1_056
"""Of 1,000 bytes, on the line, at most: so a pair carries 100 of them a second."""

TEXT = """name = "two"
[domains.A]
members = ["x", "a1", "a2"]
[domains.B]
members = ["y", "b1", "b2"]
[[links]]
name = "L"
between = ["A", "B"]
relays = [["a1", "b1"], ["a2", "b2"]]
takeover = true
"""


def test_it_is_a_domain_of_replicas() -> None:
    topology = parse(TEXT)
    assert not topology.links
    assert topology.domains["L"].members == ("a1", "a2", "b1", "b2")
    assert topology.domains["L"].pairs == (("a1", "b1"), ("a2", "b2"))
    assert topology.replicas == (("a1", "a2"), ("b1", "b2"))
    assert topology.senders == ("x", "y")
    assert topology.guarantees == {"fifo", "causal"}
    assert Routes(topology).path("x", "y") == ["x", "A", "a1", "L", "b1", "B", "y"]
    assert all(topology.takes_over_at_once(group) for group in topology.replicas), "also in A and B, where nothing is said"


def test_it_is_written_as_the_domain_that_it_is_and_read_again() -> None:
    topology = parse(TEXT)
    again = parse(write(topology))
    assert again.fingerprint == topology.fingerprint
    assert again.domains == topology.domains
    other = parse(write(topology).replace('pairs = [["a1", "b1"], ["a2", "b2"]]', 'pairs = [["a1", "b2"], ["a2", "b1"]]'))
    assert other.fingerprint != topology.fingerprint
    assert [found.said for found in differences(topology, other)] == [
        "domain L gets a1 and b2, a2 and b1",
        "domain L loses a1 and b1, a2 and b2",
    ]


def test_without_takeover_nothing_changes() -> None:
    plain = parse(TEXT.replace("takeover = true\n", ""))
    assert plain.links == {"L": Link("L", ("A", "B"), (("a1", "b1"), ("a2", "b2")))}
    assert plain.replicas == ()
    assert plain.fingerprint == parse(TEXT.replace("true", "false")).fingerprint == "8787ae6220411877"


def test_one_side_may_have_a_single_relay_which_then_sends_like_others() -> None:
    topology = parse(TEXT.replace('"b1"], ["a2", "b2"]', '"b1"], ["a2", "b1"]'))
    assert topology.replicas == (("a1", "a2"),)
    assert topology.senders == ("x", "y", "b1", "b2")


def test_relays_of_several_links_at_one_site_stand_for_one() -> None:
    third = '[domains.C]\nmembers = ["z", "c1", "c2"]\n[[links]]\nbetween = ["A", "C"]\nrelays = [["a1", "c1"], ["a2", "c2"]]\n'
    topology = parse(f"{TEXT}{third}takeover = true\n")
    assert topology.replicas == (("a1", "a2"), ("b1", "b2"), ("c1", "c2"))
    assert topology.homes["a2"] == ("A", "L", "A-C")
    with pytest.raises(TopologyError, match="'a1' is a relay of a link too: a replica carries nothing else"):
        parse(f"{TEXT}{third}")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("takeover = true", 'takeover = true\nmode = "fifo"', "two:6: link 'L': with mode = 'fifo' or only_from its relays"),
        ("takeover = true", 'takeover = true\nonly_from = ["x"]', "two:6: link 'L': with mode = 'fifo' or only_from its relays"),
        (
            "takeover = true",
            'takeover = true\nonly_from = ["w"]',
            "two:11: links: there is no process 'w'",
        ),
        (', ["a2", "b2"]', "", "two:10: link 'L': takeover needs two relays on one side at least"),
        ('"x", ', "", "two:10: link 'L': all of domain 'A' are its relays: with takeover they only carry"),
        ("takeover = true", "takeover = 2", "two:10: link 1: takeover: Expected `bool`, got a number"),
        (
            '"y", "b1", "b2"]',
            '"y", "b1", "b2"]\nordering = "flood"',
            "two:7: link 'L': 'b1' has replicas, and domain 'B' runs flood",
        ),
        (
            "[[links]]",
            '[domains.C]\nmembers = ["z", "a1"]\n[[links]]',
            "two:8: link 'L': 'a1' is in A, C, L, 'a2' in A, L: who stands for the same relay is in the same domains",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_line(old: str, new: str, says: str) -> None:
    with pytest.raises(ConfigError, match="two:") as caught:
        parse(TEXT.replace(old, new), "two")
    assert says in str(caught.value)


FIFO_TEXT = TEXT.replace('"two"', '"two"\npromise = "fifo"').replace("takeover", 'mode = "fifo"\ntakeover')


def test_i10_each_sender_has_its_pair_and_the_others_stand_by() -> None:
    topology = parse(FIFO_TEXT.replace('"x", ', '"w", "x", '))
    assert topology.guarantees == {"fifo"}
    routes = Routes(topology)
    assert [routes.carriers("a1", origin, "L") for origin in "wx"] == [("a1", "a2"), ("a2", "a1")]
    assert [routes.carriers("b1", origin, "B") for origin in "wx"] == [("b1", "b2"), ("b2", "b1")], "where they come out"


def test_i10_a_transfer_set_with_takeover_is_written_and_read_again_and_only_its_senders_use_it() -> None:
    other = FIFO_TEXT.partition("[[links]]")[2].replace('"L"', '"M"').replace("takeover", 'only_from = ["y"]\ntakeover')
    topology = parse(FIFO_TEXT.replace("takeover", 'only_from = ["x"]\ntakeover') + "[[links]]" + other)
    assert parse(write(topology)).fingerprint == topology.fingerprint
    assert parse(write(topology).replace("by_sender = true\n", "", 1)).fingerprint != topology.fingerprint
    routes = Routes(topology)
    assert routes.path("x", "y") == ["x", "A", "a1", "L", "b1", "B", "y"]
    assert routes.path("y", "x") == ["y", "B", "b1", "M", "a1", "A", "x"]
    assert routes.entries("M", "x") == (), "a frame of x there is forged"
    changed = parse(write(topology).replace('only_from = ["x"]', "only_from = []"))
    assert [found.said for found in differences(topology, changed)] == ["domain L acks, forwards or delivers otherwise"]


def test_i10_fifo_systems_whose_relays_take_over_may_not_run_fifo() -> None:
    """What a relay sends would not wait for what a dead one sent before it: the first copies would be out of order."""
    with pytest.raises(TopologyError, match="'a1' has replicas, and domain 'A' runs fifo"):
        parse(FIFO_TEXT.replace('"a2"]\n', '"a2"]\nordering = "fifo"\n', 1))


def test_a_message_crosses_once_as_over_any_link() -> None:
    run = drive(parse(TEXT), [(at * 10_000_000, "x", ("y",)) for at in range(20)], reliable=True)
    assert len(run.times("y")) == 20
    assert run.crossing(frozenset({"x", "a1", "a2"})) == 20


@pytest.mark.parametrize("pairs", [2, 4])
def test_a_link_that_takes_over_carries_what_its_pairs_can(pairs: int) -> None:
    """Twice as much is offered: what waits before a lane is hardly ever asked for or sent again."""
    near, far = ([f"{side}{number}" for number in range(1, 1 + pairs)] for side in "ab")
    relays = [list(pair) for pair in zip(near, far, strict=True)]
    text = TEXT.replace('"a1", "a2"', str(near)[1:-1]).replace('"b1", "b2"', str(far)[1:-1])
    text = text.replace('[["a1", "b1"], ["a2", "b2"]]', str(relays))
    count, gap_ns = 200 * pairs, 5_000_000 // pairs
    run = drive(
        parse(text),
        [(at * gap_ns, "x", ("y",)) for at in range(count)],
        reliable=True,
        link_delay="constant:50ms",
        link_bandwidth_bytes_per_s=100 * MESSAGE_BYTES,
        body_bytes=1_000,
    )
    times = run.times("y")
    assert len(times) == count
    assert count <= run.crossing(frozenset({"x", *near})) < 1.05 * count
    per_s = (count - 1) * 1e9 / (times[-1] - times[0])
    assert 0.95 * 100 * pairs < per_s < 1.05 * 100 * pairs
