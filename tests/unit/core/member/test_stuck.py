"""Attempts that count on members who are lost by now: the others go back together, or finish the change together."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.core.reconfig.test_protocol import NEW, NORMAL, OLD, SWITCHED, Life, fabric, held, standing
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.protocol import BarLost, Expel, Flush, Hold, Prepare, Resume, Standing, Switch
from thence.errors import ConfigError, UsageError

INSTEAD = fabric(2, d="AB")
"""What people want when C is lost."""

PREPARED = held(3, "prepared")
BARRED = held(3, "prepared", barred=("C",))


def rescue(lost: tuple[str, ...] = ("C",)) -> Coordinator:
    return Coordinator(OLD, INSTEAD, lost)


def both(answer: Standing, **others: Standing) -> dict[str, Standing]:
    return {**dict.fromkeys("AB", answer), **others}


# --- what a command asks for -------------------------------------------------------------------------------------------


def test_all_are_barred_before_anybody_goes_back_and_then_the_removal_begins() -> None:
    lead = rescue()
    assert lead.decide(both(PREPARED), 9).requests == dict.fromkeys("AB", BarLost(3, ("C",)))
    assert lead.decide(both(PREPARED, A=BARRED), 9).requests == {"B": BarLost(3, ("C",))}
    assert lead.decide(both(BARRED), 9).requests == dict.fromkeys("AB", Resume(3, dead=True))
    # One was not reached: the other has left an attempt in which it was seen.
    assert lead.decide(both(BARRED, A=standing(attempt=3)), 9).requests == {"B": Resume(3, dead=True)}
    assert lead.decide(both(standing(attempt=3)), 9).requests == dict.fromkeys("AB", Hold(9, INSTEAD, ("C",)))


def test_who_only_holds_goes_back_at_once_and_who_is_prepared_when_it_is_dead() -> None:
    lead = rescue()
    assert lead.decide(both(PREPARED, A=held(3)), 9).requests == {"A": Resume(3)}
    assert lead.decide(both(PREPARED, A=standing(attempt=3)), 9).requests == {"B": Resume(3, dead=True)}


@pytest.mark.parametrize("other", [PREPARED, BARRED])
def test_if_one_has_switched_the_others_do_and_people_are_told_which_version_comes_next(other: Standing) -> None:
    lead = rescue()
    assert lead.decide(both(other, A=SWITCHED), 9).requests == {"B": Switch(3, without=other.barred)}
    with pytest.raises(UsageError, match=r"'A' has version 2 .* What follows that one has version 3"):
        lead.decide(both(SWITCHED), 9)


def test_an_abort_frees_those_who_are_prepared_if_one_of_them_is_lost() -> None:
    lead = Coordinator(OLD, NEW, ("C",), back=True)
    assert lead.decide_abort(both(PREPARED)).requests == dict.fromkeys("AB", BarLost(3, ("C",)))
    assert lead.decide_abort(both(BARRED)).requests == dict.fromkeys("AB", Resume(3, dead=True))
    assert lead.decide_abort(both(NORMAL)).done
    with pytest.raises(UsageError, match="some have switched to version 2 already"):
        lead.decide_abort(both(BARRED, A=SWITCHED))
    with pytest.raises(ConfigError, match="'Z' cannot be lost"):
        Coordinator(OLD, NEW, ("Z",), back=True)


def test_a_command_that_knows_of_fewer_lost_ones_leaves_it() -> None:
    with pytest.raises(UsageError, match=r"'A' is prepared, and was told that C is lost by now: go on with --lost C"):
        Coordinator(OLD, NEW).decide({**both(PREPARED, A=BARRED), "C": PREPARED}, 9)
    with pytest.raises(UsageError, match=r"go on with --lost B,C"):
        Coordinator(OLD, fabric(2, d="AC"), ("B",)).decide({"A": BARRED, "C": PREPARED}, 9)


def test_an_attempt_of_all_who_are_left_is_not_disturbed() -> None:
    own = standing(phase="holding", attempt=3, next_fingerprint="x", lost=("C",))
    with pytest.raises(UsageError, match="'A' holds for another topology"):
        rescue().decide(both(own), 9)


@pytest.mark.parametrize(
    "known",
    [standing(store="a", met=(("B", "other"),)), standing(store="a", met=(("B", "b"),), forgetful=("B",))],
    ids=["another store", "an old copy"],
)
def test_a_change_does_not_go_on_with_one_that_has_forgotten(known: Standing) -> None:
    other = standing(store="b")
    with pytest.raises(UsageError, match=r"'A' does not go on with 'B': .* remove it with --lost B"):
        Coordinator(OLD, NEW).decide({"A": known, "B": other, "C": NORMAL}, 9)
    lead = Coordinator(OLD, fabric(2, d="AC"), ("B",))
    assert set(lead.decide({"A": known, "C": NORMAL}, 9).requests) == set("AC")
    unknown = standing(store="a", met=(("B", "other"),))
    assert Coordinator(OLD, NEW).decide({"A": unknown, "B": NORMAL, "C": NORMAL}, 9).requests, "servers of before say nothing"


def test_of_two_that_do_not_go_on_the_one_that_may_be_old_is_named() -> None:
    may_be_old = standing(forgetful=("A",))
    with pytest.raises(UsageError, match=r"'A' may run on an old copy of its store"):
        Coordinator(OLD, NEW).decide({"A": may_be_old, "B": NORMAL, "C": NORMAL}, 9)
    with pytest.raises(UsageError, match=r"'B' does not go on with 'A': .* remove it with --lost A"):
        Coordinator(OLD, NEW).decide({"A": may_be_old, "B": standing(forgetful=("A",)), "C": NORMAL}, 9)


def test_one_that_is_back_without_its_data_in_the_new_version_is_named_at_the_end() -> None:
    known = msgspec.structs.replace(SWITCHED, store="a", met=(("B", "other"),))
    with pytest.raises(UsageError, match=r"'A' does not go on with 'B'"):
        Coordinator(OLD, NEW).decide({"A": known, "B": msgspec.structs.replace(SWITCHED, store="b"), "C": SWITCHED}, 9)


# --- what a member does ------------------------------------------------------------------------------------------------


def keeping() -> Life:
    return Life("A", retain_bytes=1_000)


def prepared(lost: tuple[str, ...] = ()) -> Life:
    life = keeping()
    life.step(Hold(1, NEW if not lost else INSTEAD, lost))
    life.step(Prepare(1))
    return life


def test_who_is_barred_switches_only_on_a_word_that_names_the_same() -> None:
    life = prepared()
    life.step(BarLost(1, ("C",)))
    for member in (life.member, life.restarted()[0]):
        assert member.reconfigurer.standing().barred == ("C",)
        for without in ((), ("B",), ("B", "C")):
            with pytest.raises(UsageError, match="barred without C in attempt 1"):
                member.step(Switch(1, without=without), 0)
        assert member.view.heard_from("C", NEW.fingerprint) is None, "the lost ones are nobody's word"
        assert member.view.heard_from("B", INSTEAD.fingerprint) is None
        assert member.view.heard_from("B", NEW.fingerprint) == Switch(1, without=("C",))
    life.step(Switch(1, without=("C",)))
    assert (life.member.topology.version, life.member.reconfigurer.standing().barred) == (2, ())


def test_who_is_barred_goes_back_with_all_others_and_can_hold_anew() -> None:
    life = prepared()
    life.step(BarLost(1, ("C",)))
    with pytest.raises(UsageError, match="others may have switched"):
        life.step(Resume(1))
    life.step(Resume(1, dead=True))
    life.step(Hold(2, INSTEAD, ("C",)))
    for member in (life.member, life.restarted()[0]):
        standing = member.reconfigurer.standing()
        assert (standing.phase, standing.lost, standing.barred) == ("holding", ("C",), ())


def test_sets_of_the_lost_only_grow() -> None:
    life = prepared()
    assert not life.step(BarLost(1, ("C",))).persist[1:]
    assert not life.step(BarLost(1, ("C",))).persist
    with pytest.raises(UsageError, match="barred without C, and nobody who was declared lost is taken back"):
        life.step(BarLost(1, ("B",)))
    with pytest.raises(UsageError, match="'A' is not lost"):
        life.step(BarLost(1, ("A", "C")))
    life.step(BarLost(1, ("B", "C")))
    assert life.member.reconfigurer.standing().barred == ("B", "C")


def test_nobody_is_barred_who_may_still_leave_or_whose_attempt_counts_on_nobody_who_is_lost() -> None:
    life = keeping()
    life.step(Hold(1, INSTEAD, ("C",)))
    with pytest.raises(UsageError, match="not prepared in attempt 1: it can be left"):
        life.step(BarLost(1, ("B", "C")))
    life.step(Prepare(1))
    with pytest.raises(UsageError, match="attempt 1 goes on without C already"):
        life.step(BarLost(1, ("C",)))


def test_who_is_flushed_goes_back_only_if_it_is_barred() -> None:
    life = prepared(("C",))
    life.step(Flush(1, "list", 0, True, ()))
    with pytest.raises(UsageError, match="flushed in attempt 1: others may have switched"):
        life.step(Resume(1, dead=True))
    life.step(BarLost(1, ("B", "C")))
    life.step(Resume(1, dead=True))
    assert (life.member.reconfigurer.standing().phase, life.member.reconfigurer.standing().lost) == ("normal", ())


def test_one_that_switched_alone_is_expelled_by_those_who_went_on_with_another_version_of_that_number() -> None:
    life = prepared()
    life.step(Switch(1))
    life.step(Expel(2))
    assert life.member.reconfigurer.standing().phase == "left"
