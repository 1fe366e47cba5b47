"""interconnect §7: uniform delivery where relays die for good and others take over. Row I6.

"If such receiving isp fails, it will be replaced by another process"; "if one of the forwarding isp nodes crashes, a new isp
process will be created. If there were some forwarded messages not yet reported as delivered, such new isp process knows which
were such messages and it forwards them again." Here the next replica has seen everything, keeps what is not reported, and does
just that (docs/concepts/stability.md).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.papers.test_interconnect_uniform import Run
from thence.core.member.contract import Submit, Suspicion
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse

ENDS = """
name = "ends"
[domains.one]
members = ["a1", "a2", "rw1", "rw2"]
delivery = "{delivery}"
[domains.other]
members = ["b1", "b2", "re1", "re2"]
delivery = "{delivery}"
"""

LINKED = (
    ENDS
    + """
[[links]]
between = ["one", "other"]
relays = [["rw1", "re1"], ["rw2", "re2"]]
takeover = true
"""
)

JOINED = (
    ENDS
    + """
[domains.between]
members = ["rw1", "rw2", "re1", "re2"]
[[relays]]
replicas = ["rw1", "rw2"]
[[relays]]
replicas = ["re1", "re2"]
"""
)

MOMENTS = range(0, 140, 7)
"""After how many packets a relay dies."""


class Mortal(Run):
    """Members of whom some die for good, and all others notice."""

    def die(self, name: str) -> None:
        """Let a process die with what it was sent; what it sent so far still arrives at some."""
        del self.members[name]
        self.flying = self.flying[: len(self.flying) // 2] + [flight for flight in self.flying if flight[0] != name]
        for other, member in self.members.items():
            if any(name in place.peers for place in member.attachment.places.values()):
                self.step(other, Suspicion(name, True))

    def step(self, name: str, step_input: Any) -> None:
        if name in self.members:
            super().step(name, step_input)


def run_with(fabric: Topology, moment: int, *dying: str) -> tuple[Mortal, list[str]]:
    """Send from both sides; let these die at a moment, while b2 is cut off; return who delivers or is told before b2 is back."""
    run = Mortal(fabric)
    for sender, body in (("a1", b"1"), ("b1", b"x"), ("a1", b"2")):
        run.step(sender, Submit(None, body))
    run.carry("b2", most=moment)
    for name in dying:
        run.die(name)
    run.carry("b2", rounds=12)
    safe = any(domain.delivery == "safe" for domain in fabric.domains.values())
    early = [name for name, upto in run.told.items() if upto]
    early += [name for name in ("a1", "a2", "b1", "b2") if safe and run.delivered[name]]
    run.carry(rounds=30)
    return run, early


@pytest.mark.parametrize("delivery", ["notify", "safe"])
@pytest.mark.parametrize("dying", [("rw1",), ("re1",), ("rw1", "re1")], ids=" ".join)
@pytest.mark.parametrize("text", [LINKED, JOINED], ids=["a link", "a domain between"])
def test_i6_whichever_relay_dies_for_good_all_survivors_are_told_and_nobody_too_early(
    text: str, dying: tuple[str, ...], delivery: str
) -> None:
    """I6, §7: the forwarding relay, and the receiving one before and after it broadcast again, one or both."""
    fabric = parse(text.format(delivery=delivery))
    for moment in MOMENTS:
        run, early = run_with(fabric, moment, *dying)
        assert not early, moment
        for name, member in run.members.items():
            got = list(run.delivered[name].values())
            assert sorted(got) == [b"1", b"2", b"x"], (moment, name, got)
            assert got.index(b"1") < got.index(b"2"), (moment, name)
            assert delivery == "safe" or run.told[name] == 3, (moment, name)
            assert member.log.unsafe == 0, (moment, name)


@pytest.mark.parametrize("delivery", ["notify", "safe"])
def test_i6_with_the_other_system_cut_off_and_a_relay_dead_nobody_is_told(delivery: str) -> None:
    """I6, §7: no relay of S1 has reported anything, so the one that takes over in S0 reports nothing either."""
    run = Mortal(parse(LINKED.format(delivery=delivery)))
    run.step("a1", Submit(None, b"m"))
    run.carry("b1", "b2", "re1", "re2", most=12)
    run.die("rw1")
    for relay in ("re1", "re2"):
        run.step("rw2", Suspicion(relay, True))
    run.carry("b1", "b2", "re1", "re2")
    assert not any(run.told.values())
    assert delivery == "notify" or not any(run.delivered.values())
    run.carry()
    assert all(list(run.delivered[name].values()) == [b"m"] for name in run.members)
    assert delivery == "safe" or {run.told[name] for name in run.members} == {1}


def test_i6_nobody_is_told_of_what_somebody_may_never_deliver() -> None:
    """I6: t has p's message on disk behind one of z, which died and which only the relay has got: t cannot deliver it."""
    domains = [
        Domain("S0", ("p", "q", "r"), "vector", delivery="notify"),
        Domain("S1", ("r", "t", "z"), "vector", delivery="notify"),
    ]
    two = Mortal(Topology("two", domains))
    two.step("z", Submit(("r", "t"), b"k"))
    two.flying = [flight for flight in two.flying if flight[1] == "r"]
    del two.members["z"]
    two.carry(rounds=2)
    two.step("p", Submit(("q", "t"), b"m"))
    two.carry()
    assert list(two.delivered["q"].values()) == [b"m"]
    assert not two.delivered["t"]
    assert two.told["q"] == 0
