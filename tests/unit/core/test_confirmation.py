"""Confirmation in a group, step by step: who is told, who repeats, what waits, what is refused, what may be dropped."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from thence.core.confirmation import Confirming
from thence.core.confirmation_frames import (
    MAX_CLAIMED_RANGES,
    MAX_KEPT,
    MAX_REQUESTED,
    Confirmation,
    ConfirmationOptions,
    Data,
    Frame,
    Outcome,
    Released,
    Request,
    claim_of,
    claimed_beyond,
)
from thence.core.numbers import NumberSet
from thence.errors import Busy, ConfigError, FrameRefused, ImpossibleFrame, MalformedFrame, OverflowingFrame, StrangerFrame

NAMES = ("a", "b", "c", "d")
MS = 1_000_000


def group(distances: dict[str, dict[str, int]] | None = None, **options: Any) -> dict[str, Confirming]:
    """Return a member for each name."""
    chosen = ConfirmationOptions(**options)
    return {name: Confirming(name, NAMES, chosen, (distances or {}).get(name)) for name in NAMES}


def frames_to(outcome: Outcome, target: str) -> list[Frame]:
    return [frame for peer, frame in outcome.send if peer == target]


def kinds(outcome: Outcome) -> list[tuple[str, str]]:
    return [(peer, type(frame).__name__) for peer, frame in outcome.send]


# --- decentralised -------------------------------------------------------------------------------------------------------


def test_decentralised_confirms_to_the_sender_who_then_drops_the_message() -> None:
    members = group(scheme="decentralised")
    sent = members["a"].send(b"x", 0)
    assert sent.deliver == [Released("a", 1, b"x")]
    assert kinds(sent) == [("b", "Data"), ("c", "Data"), ("d", "Data")]
    for name in "bcd":
        (data,) = frames_to(sent, name)
        got = members[name].arrived("a", data, 1)
        assert got.deliver == [Released("a", 1, b"x")]
        assert got.send == [("a", Confirmation(((0, 1),)))]
        assert members["a"].stable("a") == 0
        members["a"].arrived(name, got.send[0][1], 2)
    assert members["a"].stable("a") == 1
    assert members["a"].kept == 0
    assert members["a"].timer(10**12).send == []


def test_decentralised_sends_again_to_those_who_have_not_confirmed() -> None:
    members = group(scheme="decentralised", resend_after_ns=100 * MS)
    sent = members["a"].send(b"x", 0)
    assert sent.wake == 100 * MS
    members["a"].arrived("c", Confirmation(((0, 1),)), 5)
    assert members["a"].timer(99 * MS).send == []
    again = members["a"].timer(100 * MS)
    assert kinds(again) == [("b", "Data"), ("d", "Data")]
    assert again.wake == 300 * MS, "the wait doubles"
    assert members["a"].counts.resent == 2


def test_a_repeated_message_is_handed_over_once_and_confirmed_again() -> None:
    members = group(scheme="decentralised")
    (data,) = frames_to(members["a"].send(b"x", 0), "b")
    members["b"].arrived("a", data, 1)
    again = members["b"].arrived("a", data, 2)
    assert again.deliver == []
    assert again.send == [("a", Confirmation(((0, 1),)))]
    assert members["b"].counts.repeated == 1


def test_a_claim_lists_what_is_there() -> None:
    numbers = NumberSet()
    for number in (1, 2, 4, 5, 6, 9):
        numbers.add(number)
    claim = claim_of(3, numbers)
    assert claim == (3, 2, 4, 6, 9, 9)
    assert list(claimed_beyond(claim)) == [4, 5, 6, 9]
    for number in range(11, 11 + 4 * MAX_CLAIMED_RANGES, 2):
        numbers.add(number)
    assert len(claim_of(3, numbers)) == 2 + 2 * MAX_CLAIMED_RANGES


def test_what_comes_behind_a_hole_is_confirmed_by_number() -> None:
    members = group(scheme="decentralised")
    members["a"].send(b"x", 0)
    (data,) = frames_to(members["a"].send(b"y", 0), "b")
    got = members["b"].arrived("a", data, 1)
    assert got.deliver == [Released("a", 2, b"y")]
    assert got.send == [("a", Confirmation(((0, 0, 2, 2),)))]
    members["a"].arrived("b", got.send[0][1], 2)
    again = members["a"].timer(10**9)
    assert [frame.number for _, frame in again.send if isinstance(frame, Data)] == [1, 1, 1, 2, 2]


# --- delayed confirmation ------------------------------------------------------------------------------------------------


def test_delayed_confirmation_waits_for_messages_or_for_time() -> None:
    members = group(scheme="decentralised", confirm_after_messages=3, confirm_after_ns=50 * MS)
    frames = [frames_to(members["a"].send(b"x", 0), "b")[0] for _ in range(4)]
    assert members["b"].arrived("a", frames[0], 0).send == []
    assert members["b"].arrived("a", frames[1], 10 * MS).send == []
    assert members["b"].arrived("a", frames[2], 20 * MS).send == [("a", Confirmation(((0, 3),)))]
    waiting = members["b"].arrived("a", frames[3], 30 * MS)
    assert (waiting.send, waiting.wake) == ([], 80 * MS)
    assert members["b"].timer(80 * MS).send == [("a", Confirmation(((0, 4),)))]
    assert members["b"].counts.confirmations == 2


def test_a_confirmation_travels_along_with_a_message() -> None:
    members = group(scheme="decentralised", confirm_after_messages=3, confirm_after_ns=50 * MS)
    (data,) = frames_to(members["a"].send(b"x", 0), "b")
    members["b"].arrived("a", data, 0)
    (carrying,) = frames_to(members["b"].send(b"y", 1), "a")
    assert isinstance(carrying, Data)
    assert carrying.claims == ((0, 1),)
    assert members["b"].timer(60 * MS).send == [], "it has been said already"
    members["a"].arrived("b", carrying, 2)
    assert members["a"].timer(10**9).send
    assert members["a"].stable("a") == 0, "c and d have said nothing"


# --- distributed ---------------------------------------------------------------------------------------------------------


def lose_at_d(**options: Any) -> tuple[dict[str, Confirming], Outcome]:
    """Let d lose a message of a, and hear from b, and then c, that they have it; return what d does when it has waited."""
    far = {"d": {"a": 100, "b": 50, "c": 1}}
    members = group(far, scheme="distributed", ask_after_ns=5 * MS, **options)
    sent = members["a"].send(b"x", 0)
    for name in "bc":
        (data,) = frames_to(sent, name)
        got = members[name].arrived("a", data, 1)
        assert kinds(got) == [(other, "Confirmation") for other in NAMES if other != name], "all are told"
        for other in NAMES:
            for frame in frames_to(got, other):
                members[other].arrived(name, frame, 2)
    assert members["d"].timer(4 * MS).send == [], "it may only be late"
    return members, members["d"].timer(6 * MS)


def test_distributed_detects_a_loss_at_the_destination_and_asks_the_sender() -> None:
    members, asked = lose_at_d()
    assert asked.send == [("a", Request(0, (1,)))]
    answer = members["a"].arrived("d", Request(0, (1,)), 7)
    (data,) = frames_to(answer, "d")
    assert members["d"].arrived("a", data, 8).deliver == [Released("a", 1, b"x")]
    assert members["a"].timer(200 * MS).send == [], "having answered, it waits again before it repeats by itself"


def test_distributed_asks_the_nearest_who_has_it_and_then_the_next() -> None:
    members, asked = lose_at_d(retransmission="nearest", ask_again_ns=10 * MS)
    assert asked.send == [("c", Request(0, (1,)))]
    assert members["d"].timer(17 * MS).send == [("b", Request(0, (1,)))]
    assert members["d"].timer(40 * MS).send == [("a", Request(0, (1,)))]
    (data,) = frames_to(members["c"].arrived("d", Request(0, (1,)), 50), "d")
    got = members["d"].arrived("c", data, 51)
    assert got.deliver == [Released("a", 1, b"x")]
    assert members["d"].stable("a") == 1, "b and c have said that they have it"
    assert members["d"].timer(10**9) == Outcome([], [], None), "nothing is missing any more"
    assert members["d"].counts.requests == 3


def test_nearest_keeps_copies_until_everybody_is_known_to_have_it() -> None:
    members, _ = lose_at_d(retransmission="nearest")
    assert members["b"].kept == 1
    assert members["b"].stable("a") == 0
    members["b"].arrived("d", Confirmation(((0, 1),)), 60)
    assert members["b"].stable("a") == 1
    assert members["b"].kept == 0
    wanted = members["c"].timer(10**9).send
    assert wanted == [("d", Confirmation(((0, 1),), wanted=True))], "c has not heard of d, and asks"
    assert members["d"].arrived("c", wanted[0][1], 61).send[0][0] == "c"


def test_a_request_for_what_is_not_here_is_left_to_others() -> None:
    members = group(scheme="distributed", retransmission="nearest")
    assert members["b"].arrived("d", Request(0, (1, 2)), 0).send == []


# --- centralised ---------------------------------------------------------------------------------------------------------


def test_centralised_goes_through_the_controller_in_its_order() -> None:
    members = group(scheme="centralised", controller="c")
    asked = members["a"].send(b"x", 0)
    assert kinds(asked) == [("c", "Data")]
    assert asked.deliver == []
    relayed = members["c"].arrived("a", asked.send[0][1], 1)
    assert relayed.deliver == [Released("a", 1, b"x")]
    assert kinds(relayed) == [("a", "Data"), ("b", "Data"), ("d", "Data")]
    second = members["c"].send(b"y", 2)
    (late,) = frames_to(relayed, "b")
    (early,) = frames_to(second, "b")
    assert members["b"].arrived("c", early, 3).deliver == []
    assert members["b"].arrived("c", late, 4).deliver == [Released("a", 1, b"x"), Released("c", 1, b"y")]
    (back,) = frames_to(relayed, "a")
    assert members["a"].arrived("c", back, 5).deliver == [Released("a", 1, b"x")]
    assert members["a"].kept == 0, "the controller's message says that it has ours"
    assert kinds(members["c"].timer(10**9)) == [("a", "Data"), ("b", "Data"), ("d", "Data")] * 2


def test_a_full_controller_takes_no_more_until_there_is_room() -> None:
    members = group(scheme="centralised", max_kept=2)
    frames = [members["b"].send(b"", 0).send[0][1] for _ in range(2)]
    members["a"].arrived("b", frames[0], 1)
    members["a"].send(b"own", 1)
    held = members["a"].arrived("b", frames[1], 2)
    assert held.deliver == []
    for name in "bc":
        assert members["a"].arrived(name, Confirmation(((0, 1),)), 3).deliver == []
    assert members["a"].arrived("d", Confirmation(((0, 1),)), 3).deliver == [Released("b", 2, b"")]


# --- limits and refusals -------------------------------------------------------------------------------------------------


def test_a_sender_whose_stream_is_full_is_busy() -> None:
    member = group(max_kept=3)["a"]
    for _ in range(3):
        member.send(b"", 0)
    with pytest.raises(Busy, match="max_kept is 3"):
        member.send(b"", 0)
    for name in "bcd":
        member.arrived(name, Confirmation(((0, 0, 2, 3),)), 1)
    with pytest.raises(Busy, match="message 1 of 'a'"):
        member.send(b"", 0)
    for name in "bcd":
        member.arrived(name, Confirmation(((0, 1),)), 1)
    assert member.send(b"", 0).send


@pytest.mark.parametrize(
    ("peer", "frame", "refusal"),
    [
        ("z", Confirmation(()), StrangerFrame),
        ("a", Confirmation(()), StrangerFrame),
        ("b", Data(0, 1, 0, 1, b""), StrangerFrame),
        ("b", Data(2, 1, 2, 1, b""), StrangerFrame),
        ("b", Data(1, 0, 1, 1, b""), MalformedFrame),
        ("b", Data(1, 1, 9, 1, b""), MalformedFrame),
        ("b", Data(1, MAX_KEPT + 1, 1, 1, b""), OverflowingFrame),
        ("b", Data(1, 1, 1, 1, b"", ((0, 2),)), ImpossibleFrame),
        ("b", Confirmation(((0, 0, 7, 7),)), ImpossibleFrame),
        ("b", Confirmation(((4, 1),)), MalformedFrame),
        ("b", Confirmation(((0,),)), MalformedFrame),
        ("b", Confirmation(((0, -1),)), MalformedFrame),
        ("b", Confirmation(((1, 0, 5),)), MalformedFrame),
        ("b", Confirmation(((1, 0, 5, 4),)), MalformedFrame),
        ("b", Confirmation(((1, 0, 5, MAX_KEPT + 1),)), MalformedFrame),
        ("b", Request(0, ()), MalformedFrame),
        ("b", Request(5, (1,)), MalformedFrame),
        ("b", Request(0, (0,)), MalformedFrame),
        ("b", Request(0, tuple(range(1, MAX_REQUESTED + 2))), MalformedFrame),
    ],
)
def test_a_frame_that_cannot_be_is_refused_and_changes_nothing(peer: str, frame: Frame, refusal: type[FrameRefused]) -> None:
    member = group()["a"]
    member.send(b"x", 0)
    before = copy.deepcopy(member.__dict__)
    with pytest.raises(FrameRefused) as caught:
        member.arrived(peer, frame, 1)
    assert type(caught.value) is refusal
    assert member.__dict__ == before


def test_only_the_controller_passes_on() -> None:
    with pytest.raises(StrangerFrame, match="only the controller"):
        group(scheme="centralised")["b"].arrived("c", Data(2, 1, 2, 1, b""), 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"retransmission": "nearest"}, "needs scheme 'distributed'"),
        ({"controller": "a"}, "needs scheme 'centralised'"),
        ({"scheme": "centralised", "controller": "z"}, "'z' is not among"),
        ({"max_kept": 0}, "max_kept must be at least 1"),
        ({"max_kept": MAX_KEPT + 1}, "MAX_KEPT"),
        ({"confirm_after_ns": 10**9}, "sent twice"),
        ({"confirm_after_messages": 2}, "needs confirm_after_ns"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        group(**options)


def test_a_member_must_be_listed_once() -> None:
    with pytest.raises(ConfigError, match="each listed once"):
        Confirming("a", ("b", "c"))
    with pytest.raises(ConfigError, match="each listed once"):
        Confirming("a", ("a", "b", "b"))


def test_alone_there_is_nobody_to_confirm() -> None:
    member = Confirming("a", ("a",))
    assert member.send(b"x", 0) == Outcome([], [Released("a", 1, b"x")], None)
    assert member.stable("a") == 1
