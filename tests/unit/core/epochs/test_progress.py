"""Two members compare how far they are: one that only crashed has forgotten nothing, one on an old copy is named."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from thence.core.epochs.progress import Progress, forgot
from thence.core.member.contract import Arrived, Connected, Repeated, Restored, Submit, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.toml import parse
from thence.core.wire.messages import Packet

CHANNELS = parse('name = "f"\n[domains.D]\nmembers = ["a", "b"]\nordering = "vector"\n')
EVERYBODY = parse(
    'name = "f"\n[domains.D]\nmembers = ["a", "b"]\nordering = "vector"\n[domains.D.confirmation]\nscheme = "distributed"\n'
)
ANY_ORDER = 'name = "f"\n[domains.D]\nmembers = ["a", "b"]\nordering = "matrix"\n'
TICK_NS = 300_000_000


class Pair:
    """Two members, their records, and packets between them that may be lost."""

    def __init__(self, topology: Any, chance: Random) -> None:
        self.topology, self.chance, self.now = topology, chance, 0
        self.records: dict[str, list[Any]] = {"a": [], "b": []}
        self.members = {name: self.brought_back(name, 0) for name in ("a", "b")}
        self.flying: list[tuple[str, str, Packet[Any]]] = []

    def brought_back(self, name: str, upto: int) -> Member:
        """Return a member on a store that ends with so many records."""
        member = Member(name, self.topology, MemberOptions())
        member.step(Restored(None, (), 0), 0)
        for record in self.records[name][:upto]:
            member.step(Repeated(record), 0)
        return member

    def step(self, name: str, what: Any) -> None:
        ready = self.members[name].step(what, self.now)
        self.records[name] += ready.persist
        self.flying += [(name, peer, packet) for peer, packet in ready.send]

    def act(self) -> None:
        """Do something at random."""
        self.now += TICK_NS // 4
        if self.flying and self.chance.random() < 0.6:
            sender, to, packet = self.flying.pop(self.chance.randrange(len(self.flying)))
            if self.chance.random() < 0.8:
                self.step(to, Arrived(sender, packet))
        else:
            name = self.chance.choice(["a", "b"])
            self.step(name, Submit(None, b"x") if self.chance.random() < 0.7 else Timer())

    def said(self) -> tuple[str, str]:
        """Return what each finds when they meet."""
        a, b = self.members["a"], self.members["b"]
        (mine,), (theirs,) = a.attachment.progress("b").values(), b.attachment.progress("a").values()
        return forgotten(mine, theirs, "a", "b", "d"), forgotten(theirs, mine, "b", "a", "d")


def forgotten(mine: Progress, theirs: Progress, me: str, peer: str, place: str) -> str:
    """Return what either finds that the other has forgotten."""
    return forgot(mine, theirs, me, peer, place) or forgot(theirs, mine, peer, me, place)


@pytest.mark.parametrize("topology", [CHANNELS, EVERYBODY], ids=["channels", "everybody"])
@pytest.mark.parametrize("seed", range(10))
def test_whoever_only_crashed_has_forgotten_nothing(topology: Any, seed: int) -> None:
    pair = Pair(topology, Random(seed))
    for _ in range(30):
        for _ in range(pair.chance.randrange(12)):
            pair.act()
        crashed = pair.chance.choice(["a", "b"])
        pair.members[crashed] = pair.brought_back(crashed, len(pair.records[crashed]))
        pair.flying.clear()
        assert pair.said() == ("", "")
        for name, peer in (("a", "b"), ("b", "a")):
            pair.step(name, Connected(peer))
    assert min(map(len, pair.records.values())) > 20


@pytest.mark.parametrize("topology", [CHANNELS, EVERYBODY], ids=["channels", "everybody"])
@pytest.mark.parametrize("seed", range(10))
def test_an_old_copy_is_noticed_by_both_and_named(topology: Any, seed: int) -> None:
    pair = Pair(topology, Random(seed))
    for _ in range(20):
        pair.act()
    copied = len(pair.records["b"])
    old = pair.brought_back("b", copied).attachment.progress("a")["D"]

    def is_behind() -> bool:
        known = pair.members["a"].attachment.progress("b")["D"]
        return known.received_highest > old.sent and known.acked > old.received

    while not is_behind():
        pair.act()
    pair.members["b"] = pair.brought_back("b", copied)
    of_a, of_b = pair.said()
    assert of_a.startswith("'b' ")
    assert of_b.startswith("'b' ")


@pytest.mark.parametrize("topology", [CHANNELS, EVERYBODY], ids=["channels", "everybody"])
def test_an_old_copy_since_which_nothing_happened_is_none(topology: Any) -> None:
    pair = Pair(topology, Random(3))
    for _ in range(40):
        pair.act()
    copied = len(pair.records["b"])
    pair.step("a", Submit(None, b"nobody has got this yet"))
    pair.members["b"] = pair.brought_back("b", copied)
    assert pair.said() == ("", "")


def test_what_is_told_says_who_and_how_much() -> None:
    knows, told = Progress(10, 8, 5, 7), Progress(6, 4, 10, 10)
    assert "'b' knows of 6 frames from 'b' to 'a' in 'D', and 'a' has taken number 7" in forgotten(knows, told, "a", "b", "D")
    told = Progress(7, 4, 7, 7)
    assert "'b' has taken 7 frames from 'a' to 'b' in 'D', and had acknowledged number 8" in forgotten(knows, told, "a", "b", "D")
    told = Progress(7, 6, 8, 8)
    assert "'a' has taken 5 frames from 'b' to 'a' in 'D', and had acknowledged number 6" in forgotten(knows, told, "a", "b", "D")
    told = Progress(7, 5, 8, 11)
    assert "'a' knows of 10 frames from 'a' to 'b' in 'D', and 'b' has taken number 11" in forgotten(knows, told, "a", "b", "D")
    assert not forgotten(knows, Progress(7, 5, 8, 10), "a", "b", "D")


def test_what_was_confirmed_out_of_turn_is_remembered_too() -> None:
    """The receiver took 3 before 2, acknowledged it, and went back behind that: 3 would never come again."""
    knows = Progress(4, 1, 0, 0, 3)
    assert "'b' has taken none above 1 of the frames from 'a' to 'b' in 'D'" in forgotten(
        knows, Progress(0, 0, 1, 1), "a", "b", "D"
    )
    assert not forgotten(knows, Progress(0, 0, 1, 3), "a", "b", "D")
    assert not forgotten(Progress(4, 1, 0, 0), Progress(0, 0, 1, 1), "a", "b", "D"), "an earlier version does not say it"


def test_a_channel_knows_what_was_confirmed_out_of_turn() -> None:
    pair = Pair(parse(ANY_ORDER), Random(0))
    for _ in range(3):
        pair.step("a", Submit(("b",), b"x"))
    packets = [packet for _, _, packet in pair.flying]
    pair.flying.clear()
    pair.step("b", Arrived("a", packets[2]))
    copied = len(pair.records["b"]) - 1
    (confirmation,) = [packet for sender, _, packet in pair.flying if sender == "b"]
    pair.step("a", Arrived("b", confirmation))
    known = pair.members["a"].attachment.progress("b")["D"]
    assert (known.acked, known.acked_highest) == (0, 3)
    assert pair.said() == ("", "")
    pair.members["b"] = pair.brought_back("b", copied)
    assert all(said.startswith("'b' ") for said in pair.said())
