"""Who waits until all have what was sent: over a change, and how many may.

``tests/integration/clients/test_stability.py`` has the rest.
"""

from __future__ import annotations

import pytest

from thence.core.member.contract import Submit
from thence.core.member.member import Member
from thence.core.reconfig.protocol import Hold, Prepare, Switch
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.node.messages import waiters as patience_module
from thence.node.messages.waiters import Waiters

OLD = Topology("f", [Domain("d", ("a", "b"), "vector")], stability=True)
NEW = Topology("f", [Domain("d", ("a", "b", "c"), "vector")], stability=True, version=2)
GREETINGS = (b"to c", b"who is here")


def test_what_waits_for_a_change_goes_out_with_other_numbers_and_is_waited_for_under_those() -> None:
    member = Member("a", OLD)
    patience = Waiters(member)
    told: list[str] = []
    member.step(Submit(("a",), b"1"), 0)
    member.step(Hold(1, NEW), 0)
    for body in (b"2", b"3"):
        member.step(Submit(("b",), body), 0)
    patience.ask("ann", told.append)
    member.step(Prepare(1), 0)
    ready = member.step(Switch(1, GREETINGS), 0)
    assert [(envelope.number, envelope.body) for envelope in ready.sent] == [
        (2, b"to c"),
        (3, b"who is here"),
        (4, b"2"),
        (5, b"3"),
    ]
    patience.changed()
    patience.heard(4)
    assert told == [], "3 is still on its way"
    patience.heard(5)
    assert told == [""]


def test_what_was_sent_before_a_change_is_not_waited_for_any_longer_than_that() -> None:
    member = Member("a", OLD)
    patience = Waiters(member)
    told: list[str] = []
    member.step(Submit(("b",), b"1"), 0)
    patience.ask("ann", told.append)
    for step in (Hold(1, NEW), Prepare(1)):
        member.step(step, 0)
    ready = member.step(Switch(1, GREETINGS), 0)
    patience.changed()
    patience.heard(ready.stable)
    assert told == [""]


def test_nobody_takes_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience_module, "MAX_WAITERS", 5)
    monkeypatch.setattr(patience_module, "MAX_WAITERS_EACH", 3)
    member = Member("a", OLD)
    patience = Waiters(member)
    told: dict[str, list[str]] = {"ann": [], "bob": [], "cyd": []}
    member.step(Submit(("b",), b"1"), 0)
    for name in ("ann", "ann", "ann", "ann", "bob"):
        patience.ask(name, told[name].append)
    assert told == {"ann": ["3 times you wait until all have what was sent; MAX_WAITERS_EACH is 3"], "bob": [], "cyd": []}
    patience.ask("cyd", told["cyd"].append)
    patience.ask("bob", told["bob"].append)
    assert told["bob"] == ["5 wait until all have what was sent; MAX_WAITERS is 5"]
    patience.drop("ann")
    patience.ask("bob", told["bob"].append)
    patience.heard(1)
    assert told["bob"][1:] == ["", ""]
    assert told["cyd"] == [""]
    member.step(Submit(("b",), b"2"), 0)
    for _ in range(3):  # All places are free again.
        patience.ask("bob", told["bob"].append)
    assert len(told["bob"]) == 3
