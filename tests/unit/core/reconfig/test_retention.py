"""Copies for others: kept up to a limit, ordered by depth, the same after a restart; and how a member is led through a flush."""

from __future__ import annotations

import pytest

from thence.core.member.contract import Arrived, Input, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig import retention
from thence.core.reconfig.flush import settle
from thence.core.reconfig.protocol import Expel, Flush, Hold, NewView, Prepare, Resume, Switch
from thence.core.reconfig.retention import Retention, is_everyone
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, MessageId
from thence.core.wire.records import Record
from thence.errors import ConfigError, UsageError

OLD = Topology("f", [Domain("d", ("A", "B", "C"), "matrix")])
NEW = Topology("f", [Domain("d", ("A", "B"), "matrix")], version=2)
RETAINING = MemberOptions(retain_bytes=retention.MAX_RETAINED_BYTES)


def members() -> dict[str, Member]:
    """Return all members of the old fabric."""
    return {name: Member(name, OLD, RETAINING) for name in OLD.processes}


def test_the_oldest_copies_make_room_and_it_is_known_for_whom_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_RETAINED", 2)
    kept = Retention("a")
    for number, to in enumerate((("x", "y"), None, ("x",), ("z",)), 1):
        kept.keep(Envelope("p", number, to, b"", number))
    assert [envelope.number for envelope in kept.copies()] == [3, 4]
    assert kept.dropped == {"p": {"x": 1, "y": 1, retention.EVERYONE: 2}}


def test_what_had_to_make_room_is_counted_by_the_version_of_which_everyone_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_RETAINED", 1)
    kept = Retention("a")
    for number, version in enumerate((1, 2, 12, 2, 13), 1):
        kept.keep(Envelope("p", number, None, b"", number).for_everyone_of(version))
    assert kept.dropped == {"p": {retention.EVERYONE: 1, " 2": 4, " 12": 3}}
    assert [name for name in ("", " 2", " 12", "x") if is_everyone(name, since=0)] == ["", " 2", " 12"]
    assert [name for name in ("", " 2", " 12", "x") if is_everyone(name, since=12)] == [" 12"]


def test_bytes_are_limited_too_but_one_copy_may_be_of_any_size() -> None:
    kept = Retention("a", 1000)
    for number in (1, 2, 3):
        kept.keep(Envelope("p", number, None, bytes(900), number))
        assert len(kept) == 1
    assert kept.dropped["p"] == {retention.EVERYONE: 2}


def test_what_was_for_us_alone_is_lacked_by_nobody() -> None:
    kept = Retention("a")
    kept.keep(Envelope("p", 1, ("a",), b""))
    assert not len(kept)


def test_a_message_is_deeper_than_all_that_its_sender_has_got() -> None:
    there = members()
    first = there["A"].step(Submit(("B",), b"1"), 0)
    second = there["A"].step(Submit(("B",), b"2"), 0)
    for ready in (first, second):
        for peer, packet in ready.send:
            there[peer].step(Arrived("A", packet), 0)
    answer = there["B"].step(Submit(("A",), b"3"), 0)
    assert [ready.accepted[0].depth for ready in (first, second, answer)] == [1, 2, 3]


def test_members_that_keep_no_copies_add_nothing_to_messages_and_lose_nobody() -> None:
    alone = Member("A", OLD)
    assert alone.step(Submit(None), 0).accepted[0].depth == 0
    with pytest.raises(UsageError, match="keeps no copies"):
        alone.step(Hold(1, NEW, ("C",)), 0)


def held(*, lost: tuple[str, ...] = ("C",)) -> Member:
    """Return a member that is prepared to go on without others."""
    member = members()["A"]
    member.step(Hold(1, NEW, lost), 0)
    member.step(Prepare(1), 0)
    return member


def test_nothing_is_taken_from_the_lost_and_nothing_from_anybody_when_prepared() -> None:
    there = members()
    from_b, from_c = (dict(there[name].step(Submit(("A",), b"x"), 0).send)["A"] for name in "BC")
    a = there["A"]
    a.step(Hold(1, NEW, ("C",)), 0)
    assert a.step(Arrived("C", from_c), 0).deliver == ()
    assert len(a.step(Arrived("B", from_b), 0).deliver) == 1
    later = dict(there["B"].step(Submit(("A",), b"y"), 0).send)["A"]
    a.step(Prepare(1), 0)
    assert a.step(Arrived("B", later), 0).deliver == ()


def test_what_is_handed_over_is_delivered_at_the_switch_and_then_comes_the_news() -> None:
    a = held()
    owed = (Envelope("C", 1, None, b"c1", 4), Envelope("B", 3, None, b"b3", 5))
    assert a.step(Flush(1, "list", 0, True, owed), 0).deliver == ()
    a.step(Submit(None, b"waits"), 0)
    *delivered, news, own = a.step(Switch(1), 0).deliver
    assert [delivery.envelope for delivery in delivered] == list(owed)
    assert news.news == NewView(2, ("A", "B"), (), (), ("C",))
    assert (own.envelope.body, own.envelope.depth) == (b"waits", 6)


def test_nobody_switches_before_it_has_what_it_lacks() -> None:
    a = held()
    with pytest.raises(UsageError, match="not prepared"):
        a.step(Switch(1), 0)
    a.step(Flush(1, "list", 0, False, ()), 0)
    with pytest.raises(UsageError, match="not prepared"):
        a.step(Switch(1), 0)
    a.step(Flush(1, "list", 0, True, ()), 0)
    assert a.step(Switch(1), 0).deliver[0].news is not None


def test_parts_come_in_order_and_of_one_list() -> None:
    a = held()
    one, two, other = (Envelope("C", number, None, b"", number) for number in (1, 2, 3))
    a.step(Flush(1, "list", 0, False, (one,)), 0)
    for wrong in (Flush(1, "list", 2, True, (two,)), Flush(1, "another", 1, True, (two,))):
        with pytest.raises(UsageError, match="should come"):
            a.step(wrong, 0)
    a.step(Flush(1, "another", 0, False, (other,)), 0)
    a.step(Flush(1, "another", 1, True, (two,)), 0)
    assert [delivery.envelope.number for delivery in a.step(Switch(1), 0).deliver] == [3, 2, 2]


def test_one_who_has_what_it_lacks_does_not_go_back() -> None:
    a = held()
    a.step(Flush(1, "list", 0, True, ()), 0)
    with pytest.raises(UsageError, match="others may have switched"):
        a.step(Resume(1, dead=True), 0)


def test_a_report_is_made_when_nothing_changes_any_more() -> None:
    a = members()["A"]
    a.step(Submit(None, b"mine"), 0)
    with pytest.raises(UsageError, match="what it has may change"):
        a.survivor.report()
    a.step(Hold(1, NEW, ("C",)), 0)
    with pytest.raises(UsageError, match="what it has may change"):
        a.survivor.report()
    a.step(Prepare(1), 0)
    found = a.survivor.report()
    assert (found.latest, found.queued) == ({"A": 1}, {"C": 1})
    assert [copy.id for copy in found.copies] == [MessageId("A", 1)]
    assert a.survivor.give((MessageId("A", 1),))[0].body == b"mine"
    with pytest.raises(UsageError, match="no copy of message B:1"):
        a.survivor.give((MessageId("B", 1),))


def test_what_waits_for_the_lost_alone_is_counted_and_not_reported() -> None:
    """There may be a million of these, if it was away for a night."""
    a = members()["A"]
    for to in (("C",), ("C",), ("B", "C"), None):
        a.step(Submit(to, b"x"), 0)
    for step in (Hold(1, NEW, ("C",)), Prepare(1)):
        a.step(step, 0)
    found = a.survivor.report()
    assert [copy.number for copy in found.copies] == [3, 4]
    assert found.queued == {"C": 4}


@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_before_this_version_is_not_missed(restarted: bool) -> None:
    """C has sent messages since the fabric began; A and B have got one each of those that it sent after a change."""
    there = members()
    for _ in range(3):
        for peer, packet in there["C"].step(Submit(None, b"of version 1"), 0).send:
            there[peer].step(Arrived("C", packet), 0)
    second = Topology("f", OLD.domains.values(), version=2)
    for member in there.values():
        for step in (Hold(1, second), Prepare(1), Switch(1)):
            member.step(step, 0)
    if restarted:
        for name in "AB":
            snapshot, there[name] = there[name].snapshot(), Member(name, OLD, RETAINING)
            there[name].step(Restored(snapshot, (), 0), 0)
    fourth, fifth = (dict(there["C"].step(Submit(None, b"of version 2"), 0).send) for _ in range(2))
    assert there["A"].step(Arrived("C", fourth["A"]), 0).deliver
    assert not there["B"].step(Arrived("C", fifth["B"]), 0).deliver
    third = Topology("f", NEW.domains.values(), version=3)
    for name in "AB":
        for lost in (Hold(2, third, ("C",)), Prepare(2)):
            there[name].step(lost, 0)
    found = settle(("C",), {name: there[name].survivor.report() for name in "AB"})
    assert found.given_up == ()
    assert found.owed == {"A": (MessageId("C", 5),), "B": (MessageId("C", 4), MessageId("C", 5))}


def test_a_restart_behind_every_step_finds_everything_again() -> None:
    steps: tuple[Input, ...] = (
        Submit(None, b"1"),
        Hold(1, NEW, ("C",)),
        Submit(("B",), b"waits"),
        Prepare(1),
        Flush(1, "list", 0, False, (Envelope("C", 1, None, b"c", 1),)),
        Flush(1, "list", 1, True, (Envelope("C", 2, None, b"c", 2),)),
        Switch(1, (b"hello",)),
        Submit(None, b"2"),
    )
    for crash in range(len(steps) + 1):
        for by_snapshot in (False, True):
            member = members()["A"]
            records: list[Record] = []
            for at, step in enumerate(steps):
                if at == crash:
                    snapshot = member.snapshot() if by_snapshot else None
                    member = members()["A"]
                    member.step(Restored(snapshot, () if by_snapshot else records, 0), 0)
                records += member.step(step, 0).persist
            plain = members()["A"]
            for step in steps:
                plain.step(step, 0)
            assert member.snapshot() == plain.snapshot(), (crash, by_snapshot)


def test_a_member_that_was_left_behind_has_left_for_good() -> None:
    c = members()["C"]
    with pytest.raises(UsageError, match="has not gone on without us"):
        c.step(Expel(1), 0)
    records = c.step(Expel(2), 0).persist
    for member in (c, members()["C"]):
        if member is not c:
            member.step(Restored(None, records, 0), 0)
        assert member.reconfigurer.standing().phase == "left"
        with pytest.raises(UsageError, match="has left the fabric"):
            member.step(Submit(None), 0)
    again = members()["C"]
    again.step(Restored(c.snapshot(), (), 0), 0)
    assert again.reconfigurer.standing().phase == "left"


def test_who_cannot_be_lost_is_refused_and_a_name_is_used_once() -> None:
    a = members()["A"]
    for lost, match in ((("X",), "no member"), (("B",), "still has it")):
        with pytest.raises(ConfigError, match=match):
            a.step(Hold(1, NEW, lost), 0)
    unordered = Topology("f", [Domain("d", ("A", "B", "C"), "unordered")], promise="nothing")
    with pytest.raises(ConfigError, match="does not keep the order"):
        Member("A", unordered, RETAINING).step(Hold(1, NEW, ("C",)), 0)
    for step in (Hold(1, NEW, ("C",)), Prepare(1), Flush(1, "list", 0, True, ()), Switch(1)):
        a.step(step, 0)
    third = Topology("f", [Domain("d", ("A", "B", "C"), "matrix")], version=3)
    with pytest.raises(UsageError, match="'C' was lost with version 2"):
        a.step(Hold(2, third), 0)
