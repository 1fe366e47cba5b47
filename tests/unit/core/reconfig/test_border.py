"""The border of what a change replaces, and a member in the midst of it."""

from __future__ import annotations

import pytest

from thence.core.member.contract import Arrived, Ready, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig import border
from thence.core.reconfig.border import Border, inside
from thence.core.reconfig.protocol import Hold, Prepare, Resume, Switch
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan
from thence.core.wire.messages import Envelope
from thence.errors import UsageError


def fabric(version: int, **domains: str) -> Topology:
    return Topology("f", [Domain(name, tuple(members), "matrix") for name, members in domains.items()], version=version)


OLD, NEW = fabric(1, x="ur", a="rpq"), fabric(2, x="ur", a="rp", b="pq")
LIMITED = Hold(1, NEW, limited=True)


def test_what_came_by_a_place_that_goes_on_waits_and_the_rest_of_its_way_does_not() -> None:
    waiting = Border()
    waiting.close(["a"])
    plan = RoutePlan({"a": None, "y": None}, ("l",))
    assert waiting.stops("x", plan)
    assert not waiting.stops("a", plan)
    assert not waiting.stops("x", inside(plan, ["y", "l"]))
    one, other = (Envelope("u", number, None, b"") for number in (1, 2))
    waiting.wait("x", one)
    twin = waiting.fork()
    waiting.wait("x", other)
    assert (twin.open(), waiting.open()) == ([("x", one)], [("x", one), ("x", other)])
    assert not waiting.crossings
    assert not waiting.stops("x", plan)


def member(name: str) -> Member:
    return Member(name, OLD, MemberOptions(durable=True))


def crossing(u: Member, r: Member, now: int = 0) -> Ready:
    """Let a message of u come to r, for everyone."""
    ((_, packet),) = [sent for sent in u.step(Submit(None, b"m"), now).send if sent[0] == "r"]
    return r.step(Arrived("u", packet), now)


def goes_to(ready: Ready) -> list[tuple[str, str, list[bytes]]]:
    """Return to whom messages go, in which domains, and what they say; markers say nothing."""
    packets = [(peer, packet.domain, [one.envelope for one in packet.frames]) for peer, packet in ready.send]
    sent = [(peer, domain, [one.body for one in envelopes if one is not None]) for peer, domain, envelopes in packets]
    return [one for one in sent if one[2]]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("switched", [True, False])
def test_a_relay_lets_wait_what_comes_out_of_a_place_that_goes_on(switched: bool, restarted: bool) -> None:
    u, r = member("u"), member("r")
    records = [*r.step(LIMITED, 0).persist]
    held = crossing(u, r)
    assert [one.envelope.body for one in held.deliver] == [b"m"], "it is delivered here at once"
    assert goes_to(held) == []
    records += held.persist
    own = r.step(Submit(None, b"own"), 0)
    assert own.sent == ()
    records += own.persist
    if restarted:
        snapshot = r.snapshot()
        stepped, r = member("r"), member("r")
        stepped.step(Restored(None, tuple(records), 0), 0)
        assert stepped.snapshot() == snapshot
        r.step(Restored(snapshot, (), 0), 0)
    place = r.attachment.domains["x"]
    if switched:
        r.step(Prepare(1), 0)
        assert r.reconfigurer.standing().idle, "what waits at the border is not on its way"
    ready = r.step(Switch(1) if switched else Resume(1), 0)
    expected = [("p", "a", [b"m", b"own"])] if switched else [("p", "a", [b"m", b"own"]), ("q", "a", [b"m", b"own"])]
    assert [one for one in goes_to(ready) if one[1] == "a"] == expected
    assert ("u", "x", [b"own"]) in goes_to(ready)
    assert r.attachment.domains["x"] is place, "it goes on as it is"


def test_who_is_not_concerned_takes_part_and_goes_on() -> None:
    u = member("u")
    (record,) = u.step(LIMITED, 0).persist
    assert (record.kept, record.untouched) == (("x",), True)  # type: ignore[union-attr]
    assert [envelope.body for envelope in u.step(Submit(("r",), b"on"), 0).sent] == [b"on"]
    u.step(Prepare(1), 0)
    standing = u.reconfigurer.standing()
    assert (standing.idle, standing.moved, standing.waiting, standing.limited) == (True, (0, 0), 0, True)
    place = u.attachment.domains["x"]
    assert u.step(Switch(1), 0).deliver[0].news is not None
    assert u.attachment.domains["x"] is place
    assert u.topology.version == 2


def test_what_concerns_everybody_is_no_limited_change() -> None:
    with pytest.raises(UsageError, match="version 2 concerns everybody: there is a single domain"):
        member("u").step(Hold(1, fabric(2, x="urpq"), limited=True), 0)


def test_a_hold_of_before_there_were_limits_replaces_everything() -> None:
    r = member("r")
    place = r.attachment.domains["x"]
    for step in (Hold(1, NEW), Prepare(1), Switch(1)):
        r.step(step, 0)
    assert r.attachment.domains["x"] is not place


def test_too_much_at_the_border_pushes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(border, "MAX_CROSSINGS", 1)
    u, r = member("u"), member("r")
    r.step(LIMITED, 0)
    assert crossing(u, r).refused == ()
    (refused,) = crossing(u, r).refused
    assert "1 messages of 65 bytes wait for the fabric to change; MAX_CROSSINGS is 1" in str(refused)
    r.step(Resume(1), 0)
    assert not r.attachment.border.crossings
