"""What survivors owe each other: agreement, causal order, no doubles, and what has to be given up."""

from __future__ import annotations

from thence.core.reconfig.flush import Copy, Inventory, Shortage, settle
from thence.core.wire.messages import MessageId


def report(latest: dict[str, int], *copies: Copy, dropped: dict[str, dict[str, int]] | None = None, **queued: int) -> Inventory:
    """Return what a survivor says."""
    return Inventory(latest, list(copies), dropped or {}, queued)


def test_what_one_has_goes_to_those_it_was_for_and_who_lack_it() -> None:
    to_all, to_x = Copy("p", 1, 1, None), Copy("p", 2, 2, ("x", "q"))
    found = settle(("p",), {"x": report({"p": 2}, to_all, to_x), "y": report({}), "z": report({"p": 1}, to_all)})
    assert found.owed == {"x": (), "y": (MessageId("p", 1),), "z": ()}
    assert found.holders[MessageId("p", 1)] == "x"
    assert found.passed_on == 1
    assert found.last_known == {"p": 2}


def test_causes_come_before_effects_whoever_has_them() -> None:
    cause, effect = Copy("z", 7, 3, ("y", "x")), Copy("a", 1, 4, ("y", "w"))
    found = settle(("p",), {"w": report({"a": 1}, effect), "x": report({"z": 7}, cause), "y": report({})})
    assert found.owed["y"] == (MessageId("z", 7), MessageId("a", 1))


def test_all_who_lead_come_to_the_same_list_and_another_one_has_another_name() -> None:
    reports = {"x": report({"p": 1}, Copy("p", 1, 1, None)), "y": report({})}
    assert settle(("p",), reports) == settle(("p",), reports)
    more = {"x": report({"p": 2}, Copy("p", 1, 1, None), Copy("p", 2, 2, None)), "y": report({})}
    assert settle(("p",), reports).list_id != settle(("p",), more).list_id


def test_what_is_only_held_is_given_up_where_something_before_it_is_missing() -> None:
    held = [Copy("p", number, number, None, held=True) for number in (3, 4)]
    found = settle(("p",), {"x": report({"p": 1}), "y": report({"p": 1}, *held)})
    assert found.owed == {"x": (), "y": ()}
    assert found.given_up == (MessageId("p", 3), MessageId("p", 4))
    assert found.last_known == {"p": 1}


def test_what_is_only_held_is_delivered_where_all_before_it_is_known() -> None:
    third, second = Copy("p", 3, 3, None, held=True), Copy("p", 2, 2, ("z",))
    found = settle(("p",), {"x": report({"p": 1}), "y": report({"p": 1}, third), "z": report({"p": 2}, second)})
    assert found.given_up == ()
    assert found.owed == dict.fromkeys("xyz", (MessageId("p", 3),))


def test_where_two_are_lost_nobody_knows_what_is_missing_before_what_is_held() -> None:
    found = settle(("p", "q"), {"x": report({}), "y": report({}, Copy("p", 1, 1, None, held=True))})
    assert found.given_up == (MessageId("p", 1),)


def test_what_survivors_sent_is_never_given_up() -> None:
    found = settle(("p", "q"), {"x": report({}, Copy("y", 5, 9, None, held=True)), "y": report({"y": 5})})
    assert found.owed["x"] == (MessageId("y", 5),)


def test_a_copy_that_had_to_make_room_is_missed_by_who_lacks_it_and_by_nobody_else() -> None:
    dropped = {"p": {"y": 3, "z": 8}, "q": {"": 2}}
    found = settle(("p",), {"x": report({"q": 2}, dropped=dropped), "y": report({"p": 3, "q": 1}), "z": report({"p": 7, "q": 2})})
    assert found.short == (Shortage("y", "q", 2), Shortage("z", "p", 8))


def test_who_came_in_later_lacks_nothing_that_was_for_everyone_before() -> None:
    copies = [Copy("p", number, number, None, version=version) for number, version in ((1, 0), (2, 2), (3, 3))]
    joined = Inventory({}, [], {"q": {"": 9, " 2": 8, " 3": 7, "y": 6}}, {}, since=3)
    found = settle(("p",), {"x": report({"p": 3}, *copies), "y": joined, "z": report({})})
    assert found.owed == {"x": (), "y": (MessageId("p", 3),), "z": tuple(copy.id for copy in copies)}
    assert found.short == (Shortage("x", "q", 9), Shortage("y", "q", 7), Shortage("z", "q", 9))


def test_what_was_queued_for_the_lost_is_counted() -> None:
    assert settle(("p",), {"x": report({}, p=4), "y": report({}, p=2)}).undeliverable == 6
