"""The handshake of two peers: what each step needs, and what a late, lost or crossing one does."""

from __future__ import annotations

import pytest

from thence.core.epochs.epoch import (
    MAX_EARLIER_OFFERS,
    MAX_EPOCH_NUMBER,
    MAX_EPOCH_STEP,
    NEVER_MET,
    Claim,
    Epoch,
    Held,
)
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.core.epochs.progress import Progress


def own(sent: int = 0, taken: int = 0, reach: int | None = None) -> Own:
    return Own({"d": Progress(sent, 0, taken, taken)}, None if reach is None else {"d": reach})


def shown(of: Handshake, has: Own) -> Shown:
    return Shown(of.shows(has), has.progress)


def met(one: Handshake, two: Handshake, link: str, *, steps: int = 3, a: Own | None = None, b: Own | None = None) -> None:
    """Let one call two; leave after some steps."""
    a, b = a or own(), b or own()
    one.call(link)
    found = two.hello(link, b, shown(one, a), f"id of {link}")
    assert not found.reason, found.reason
    assert two.offering(link)
    if steps > 1:
        answer = one.welcome(link, a, shown(two, b))
        assert answer is not None
        assert not answer.reason, answer.reason
        epoch = one.agreeing(link)
        assert epoch is not None
        if steps > 2:
            assert two.agreed(link, epoch)


def pair() -> tuple[Handshake, Handshake]:
    return Handshake("s1", "s2"), Handshake("s2", "s1")


def test_after_three_steps_both_have_the_same_fresh_epoch() -> None:
    one, two = pair()
    for number in (1, 2, 3):
        met(one, two, f"link {number}")
        assert one.claim == two.claim == Claim(Held(Epoch(number, f"id of link {number}")))
        assert one.stage == two.stage == "joined"


@pytest.mark.parametrize("steps", [1, 2], ids=["before the caller agrees", "before the called side hears of it"])
@pytest.mark.parametrize("back", [False, True], ids=["the same calls", "the other calls"])
def test_a_connection_that_dies_between_two_steps_leaves_an_epoch_in_common(steps: int, back: bool) -> None:
    one, two = pair()
    met(one, two, "first")
    for attempt in range(3):
        met(one, two, f"attempt {attempt}", steps=steps)
        one.lost(f"attempt {attempt}")
        two.lost(f"attempt {attempt}")
    met(*(two, one) if back else (one, two), "last")
    assert one.claim == two.claim


def test_a_call_that_was_given_up_and_arrives_late_fences_nobody() -> None:
    """It takes the place of the one that is just being answered, whose caller has agreed."""
    one, two = pair()
    met(one, two, "first")
    late = shown(one, own())
    one.call("given up")
    one.lost("given up")
    met(one, two, "second", steps=2)
    assert not two.hello("given up", own(), late, "late").reason
    epoch = one.claim.agreed.epoch
    assert not two.agreed("second", epoch)
    two.lost("given up")
    one.lost("second")
    met(one, two, "third")
    assert one.claim == two.claim


def test_earlier_offers_end_with_an_agreement_and_have_a_limit() -> None:
    one, two = pair()
    for attempt in range(2 * MAX_EARLIER_OFFERS):
        met(one, two, f"attempt {attempt}", steps=1)
    assert len(two.claim.earlier) == MAX_EARLIER_OFFERS
    met(one, two, "last")
    assert two.claim.earlier == ()


def test_an_answer_to_a_call_that_was_let_go_changes_nothing() -> None:
    one, two = pair()
    one.call("first")
    assert not two.hello("first", own(), shown(one, own()), "a").reason
    assert two.offering("first")
    answer = shown(two, own())
    one.lost("first")
    one.call("second")
    assert one.welcome("first", own(), answer) is None
    assert one.claim == NEVER_MET


def test_two_that_call_each_other_let_both_calls_go() -> None:
    one, two = pair()
    one.call("one calls")
    two.call("two calls")
    assert not two.hello("one calls", own(), shown(one, own()), "a").reason
    assert not one.hello("two calls", own(), shown(two, own()), "b").reason
    assert one.offering("two calls")
    assert two.offering("one calls")
    assert one.welcome("one calls", own(), shown(two, own())) is None
    assert two.welcome("two calls", own(), shown(one, own())) is None
    met(one, two, "later")
    assert one.claim == two.claim


def test_what_is_stored_too_late_is_not_acted_on() -> None:
    one, two = pair()
    one.call("first")
    assert not two.hello("first", own(), shown(one, own()), "a").reason
    one.call("second")
    assert not two.hello("second", own(), shown(one, own()), "b").reason
    assert not two.offering("first"), "the first call is over"
    assert two.offering("second")
    assert one.welcome("second", own(), shown(two, own())) is not None
    one.lost("second")
    assert one.agreeing("second") is None
    assert not two.agreed("second", Epoch(1, "another"))


def test_a_caller_that_does_not_fit_changes_nothing() -> None:
    one, two = pair()
    met(one, two, "first")
    copy = Handshake("s1", "s2", one.claim)
    met(one, two, "second")
    before = two.claim
    copy.call("copy")
    found = two.hello("copy", own(), shown(copy, own()), "c")
    assert found.behind == "peer"
    assert "'s1' runs on an old copy of its store" in found.reason
    assert (two.claim, two.stage, two.is_current("second")) == (before, "joined", True)
    answer = copy.welcome("copy", own(), shown(two, own()))
    assert answer is not None
    assert answer.behind == "me"


def test_of_two_copies_that_met_the_other_at_once_the_later_one_goes_on() -> None:
    one, two = pair()
    met(one, two, "first")
    copy = Handshake("s1", "s2", one.claim)
    met(one, two, "original", steps=2)
    met(copy, two, "copy")
    one.call("again")
    found = two.hello("again", own(), shown(one, own()), "c")
    assert found.behind == "peer", "not unclear: its epoch has a lower number"


def test_a_program_that_goes_on_in_an_older_state_is_known_by_what_it_wrote() -> None:
    """A machine that is brought back from a snapshot of its memory does not start, so its store shows nothing."""
    one, two = pair()
    met(one, two, "first")
    one.call("again")
    has = own(sent=12, reach=5)
    found = two.hello("again", own(taken=10), shown(one, has), "b")
    assert found.behind == "peer"
    assert "knew of 5" in found.reason
    one.call("in order")
    assert not two.hello("in order", own(taken=5), shown(one, has), "c").reason


def test_what_was_written_in_an_epoch_stays_all_that_can_have_been_sent_in_it_across_a_start() -> None:
    """A machine comes back from a snapshot of its memory, accepts as much as it forgot, and only then starts again."""
    one, two = pair()
    met(one, two, "first")
    assert one.lost("first", own(sent=5, reach=5))
    assert not one.lost("first", own(sent=9, reach=9)), "it is gone already"
    one.claim = one.claim.started(dict.fromkeys(own(sent=12).progress, 12))
    one.call("again")
    assert two.hello("again", own(taken=10), shown(one, own(sent=12)), "b").behind == "peer"


def test_a_side_without_epochs_is_joined_at_once() -> None:
    one, two = pair()
    assert not two.hello("call", own(), Shown(None, {}), "a").reason
    assert (two.stage, two.claim) == ("joined", NEVER_MET)
    one.call("call")
    assert one.welcome("call", own(), Shown(None, {})) is not None
    assert (one.stage, one.claim) == ("joined", NEVER_MET)


@pytest.mark.parametrize("offered", [None, Held(Epoch(0, "a")), Held(Epoch(1, "")), Held(Epoch(1, "x" * 65))])
def test_an_offer_that_cannot_be_is_refused(offered: Held | None) -> None:
    one, _ = pair()
    one.call("call")
    found = one.welcome("call", own(), Shown(Claim(Held(Epoch()), offered), {}))
    assert found is not None
    assert found.behind == "unclear"
    assert one.claim == NEVER_MET


def test_a_number_that_nobody_gets_to_is_refused() -> None:
    _, two = pair()
    found = two.hello("call", own(), Shown(Claim(Held(Epoch()), Held(Epoch(2**60, "a"))), {}), "b")
    assert found.behind == "unclear"


@pytest.mark.parametrize("step", [MAX_EPOCH_STEP, MAX_EPOCH_STEP + 1, MAX_EPOCH_NUMBER - 2])
def test_an_epoch_far_above_all_others_is_neither_taken_nor_outdone(step: int) -> None:
    """Once a peer that lies had brought its pair to the highest number, the two refused each other for ever."""
    agreed, far = Held(Epoch(1, "agreed")), Held(Epoch(1 + step, "far"))
    one = Handshake("s1", "s2", Claim(agreed))
    one.call("link")
    answer = one.welcome("link", own(), Shown(Claim(agreed, far), {}))
    assert answer is not None
    two = Handshake("s1", "s2", Claim(agreed))
    found = two.hello("link", own(), Shown(Claim(agreed, far), {}), "fresh")
    if step == MAX_EPOCH_STEP:
        assert (answer.reason, found.reason) == ("", "")
    else:
        assert answer.behind == found.behind == "unclear"
        assert "MAX_EPOCH_STEP" in answer.reason
        assert one.claim == two.claim == Claim(agreed)
