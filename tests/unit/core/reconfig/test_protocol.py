"""One member's part in a change of its fabric, and what a command asks of whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Consumed, Input, Ready, Repeated, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.coordinator import Coordinator
from thence.core.reconfig.protocol import Hold, NewView, Prepare, Resume, Standing, Switch
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.records import Changed, Record
from thence.errors import Busy, ConfigError, StorageError, TopologyError, UsageError


def fabric(version: int, **domains: str) -> Topology:
    """Return a fabric of named domains whose members are messages."""
    return Topology("f", [Domain(name, tuple(members), "matrix") for name, members in domains.items()], version=version)


OLD = fabric(1, d="ABC")
NEW = fabric(2, d="AB", e="BC")
OTHER = fabric(2, d="AC", e="BC")
WITHOUT_C = fabric(2, d="AB")


class Life:
    """A member and its disk."""

    def __init__(self, name: str = "A", topology: Topology = OLD, **options: Any) -> None:
        self.options = MemberOptions(**options)
        self.topology = topology
        self.member = Member(name, topology, self.options)
        self.records: list[Record] = []

    def step(self, step_input: Input) -> Ready:
        ready = self.member.step(step_input, 0)
        self.records += [decode_record(encode_record(record)) for record in ready.persist]
        return ready

    def restarted(self, snapshot: bytes | None = None, consumed: int = 0) -> tuple[Member, Ready]:
        """Return what comes back from the records, or from a snapshot in their place."""
        member = Member(self.member.name, self.topology, self.options)
        return member, member.step(Restored(snapshot, () if snapshot else self.records, consumed), 0)


def bodies(sent: Any) -> list[bytes]:
    return [envelope.body for envelope in sent]


# --- phases ------------------------------------------------------------------------------------------------------------


def test_what_is_submitted_while_holding_is_accepted_and_waits() -> None:
    life = Life()
    life.step(Hold(1, NEW))
    ready = life.step(Submit(None, b"later"))
    assert bodies(ready.accepted) == [b"later"]
    assert (ready.sent, ready.send, ready.deliver) == ((), (), ())
    assert life.member.reconfigurer.standing().waiting == 1
    assert life.member.reconfigurer.standing().phase == "holding"


def test_after_the_switch_what_waited_goes_out_in_order_in_the_new_places() -> None:
    life = Life("B")
    life.step(Submit(None, b"before"))
    life.step(Hold(1, NEW))
    for body in (b"1", b"2", b"3"):
        life.step(Submit(None, body))
    life.step(Prepare(1))
    ready = life.step(Switch(1))
    assert bodies(ready.sent) == [b"1", b"2", b"3"]
    first, *others = ready.deliver
    assert first.news == NewView(2, NEW.processes)
    assert [delivery.envelope.body for delivery in others] == [b"1", b"2", b"3"]
    assert [delivery.position for delivery in ready.deliver] == [2, 3, 4, 5]
    assert {packet.domain for _, packet in ready.send} == {"d", "e"}
    assert life.member.topology.version == 2
    assert life.step(Submit(None)).accepted[0].number == 5


def test_greetings_go_out_before_what_waited() -> None:
    life = Life()
    life.step(Hold(1, NEW))
    life.step(Submit(None, b"waited"))
    life.step(Prepare(1))
    ready = life.step(Switch(1, (b"hello", b"again")))
    assert [(envelope.body, envelope.number) for envelope in ready.sent] == [(b"hello", 1), (b"again", 2), (b"waited", 3)]
    assert life.step(Submit(None)).accepted[0].number == 4


def test_going_back_sends_what_waited_in_the_old_places() -> None:
    life = Life()
    life.step(Hold(1, NEW))
    life.step(Submit(None, b"x"))
    ready = life.step(Resume(1))
    assert bodies(ready.sent) == [b"x"]
    assert sorted(peer for peer, _ in ready.send) == ["B", "C"]
    assert (life.member.reconfigurer.standing().phase, life.member.topology.version) == ("normal", 1)


def test_one_that_has_no_place_leaves_and_says_so() -> None:
    life = Life("C")
    life.step(Hold(1, WITHOUT_C))
    with pytest.raises(Busy, match="'C' is about to leave"):
        life.step(Submit(None))
    life.step(Prepare(1))
    life.step(Switch(1))
    standing = life.member.reconfigurer.standing()
    assert (standing.phase, standing.next_version) == ("left", 2)
    with pytest.raises(UsageError, match="'C' has left the fabric 'f'"):
        life.step(Submit(None))
    again, _ = life.restarted()
    assert again.reconfigurer.standing() == standing
    assert life.restarted(life.member.snapshot())[0].reconfigurer.standing() == standing


def test_the_name_of_one_who_has_left_is_not_used_again() -> None:
    life = Life("A")
    for step in (Hold(1, WITHOUT_C), Prepare(1), Switch(1)):
        life.step(step)
    for member in (life.member, life.restarted()[0], life.restarted(life.member.snapshot())[0]):
        with pytest.raises(UsageError, match="'C' has left with version 2: a name is not used again"):
            member.step(Hold(2, fabric(3, d="ABC")), 0)
        member.step(Hold(2, fabric(3, d="ABD")), 0)


def test_nobody_writes_to_one_who_is_about_to_leave() -> None:
    life = Life()
    life.step(Hold(1, WITHOUT_C))
    with pytest.raises(UsageError, match="'C' is about to leave: version 2"):
        life.step(Submit(("C",)))
    with pytest.raises(UsageError, match="there is no process 'Z'"):
        life.step(Submit(("Z",)))
    assert life.step(Submit(("B",))).accepted


def test_what_waits_is_bounded() -> None:
    life = Life(max_queued=2)
    life.step(Hold(1, NEW))
    life.step(Submit(None))
    life.step(Submit(None))
    with pytest.raises(Busy, match="2 messages wait for the fabric to change"):
        life.step(Submit(None))


# --- what may be asked for ---------------------------------------------------------------------------------------------


def test_only_the_next_version_of_the_same_fabric_may_follow() -> None:
    life = Life()
    with pytest.raises(ConfigError, match="version 3 of 'f' cannot follow version 1: only 2 can"):
        life.step(Hold(1, fabric(3, d="AB")))
    with pytest.raises(ConfigError, match="'g' cannot follow 'f'"):
        life.step(Hold(1, Topology("g", [Domain("d", ("A",), "matrix")], version=2)))
    with pytest.raises(TopologyError, match="versions count from 1"):
        fabric(0, d="AB")


def test_another_topology_is_refused_while_a_hold_is_in_force() -> None:
    life = Life()
    life.step(Hold(1, NEW))
    with pytest.raises(
        UsageError, match=f"hold for version 2 with fingerprint {NEW.fingerprint}; {OTHER.fingerprint} is another"
    ):
        life.step(Hold(2, OTHER))
    life.step(Resume(1))
    life.step(Hold(2, OTHER))
    assert life.member.reconfigurer.standing().next_fingerprint == OTHER.fingerprint


def test_attempts_only_rise_and_one_that_was_left_stays_left() -> None:
    life = Life()
    life.step(Hold(5, NEW))
    assert life.step(Hold(5, NEW)).persist == (), "it is in force already"
    with pytest.raises(UsageError, match="attempt 4 comes too late"):
        life.step(Hold(4, NEW))
    life.step(Resume(5))
    with pytest.raises(UsageError, match="attempt 5 comes too late"):
        life.step(Hold(5, NEW))
    with pytest.raises(UsageError, match="attempt 5 is not in force"):
        life.step(Prepare(5))
    life.step(Hold(6, NEW))
    life.step(Hold(7, NEW))
    assert life.member.reconfigurer.standing().attempt == 7, "a newer command takes over"


def test_who_is_prepared_goes_back_only_from_a_dead_attempt() -> None:
    life = Life()
    life.step(Hold(1, NEW))
    with pytest.raises(UsageError, match="nobody can have decided"):
        life.step(Switch(1))
    life.step(Prepare(1))
    with pytest.raises(UsageError, match="others may have switched"):
        life.step(Resume(1))
    with pytest.raises(UsageError, match="must be finished"):
        life.step(Hold(2, NEW))
    life.step(Resume(1, dead=True))
    assert life.member.reconfigurer.standing().phase == "normal"


# --- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", range(8))
def test_a_restart_in_any_phase_goes_on_in_that_phase(steps: int) -> None:
    inputs: list[Input] = [
        Submit(None, b"1"),
        Hold(1, NEW),
        Submit(("B",), b"2"),
        Submit(None, b"3"),
        Prepare(1),
        Submit(None, b"4"),
        Switch(1, (b"hello",)),
        Submit(None, b"5"),
    ]
    life = Life()
    for step_input in inputs[: steps + 1]:
        life.step(step_input)
    for again in (life.restarted()[0], life.restarted(life.member.snapshot())[0]):
        assert again.snapshot() == life.member.snapshot()
        assert again.reconfigurer.standing() == life.member.reconfigurer.standing()
        assert again.topology.fingerprint == life.member.topology.fingerprint
        rest = [again.step(step_input, 0) for step_input in inputs[steps + 1 :]]
        twin = Life()
        expected = [twin.step(step_input) for step_input in inputs][steps + 1 :]
        assert [ready.sent for ready in rest] == [ready.sent for ready in expected]


def test_a_snapshot_with_replicas_is_found_again_on_both_sides_of_a_switch() -> None:
    domains = '[domains.a]\nmembers = ["A", "R", "S"]\n[domains.d]\nmembers = ["D", "R", "S"]\n'
    relays = '[[relays]]\nreplicas = ["R", "S"]\n'
    old, new = (parse(f'name = "f"\nversion = {version}\n{domains}{relays}') for version in (1, 2))
    life = Life("A", old)
    for step_input in (Submit(None, b"1"), Hold(1, new), Submit(None, b"2"), Prepare(1), Switch(1)):
        life.step(step_input)
        assert life.restarted(life.member.snapshot())[0].reconfigurer.standing() == life.member.reconfigurer.standing()
    replica = Life("R", fabric(1, a="AR", d="RD"))
    replica.step(Hold(1, Topology("f", new.domains.values(), replicas=new.replicas, version=2)))
    with pytest.raises(Busy, match="'R' is about to be a replica"):
        replica.step(Submit(None))


def test_deliveries_that_were_not_consumed_survive_the_switch() -> None:
    life = Life()
    life.step(Submit(None, b"seen"))
    life.step(Submit(None, b"not seen"))
    life.step(Consumed(1))
    for step_input in (Hold(1, NEW), Prepare(1), Switch(1)):
        life.step(step_input)
    for _, ready in (life.restarted(consumed=1), life.restarted(life.member.snapshot(), consumed=1)):
        missed, news = ready.deliver
        assert (missed.position, missed.envelope.body) == (2, b"not seen")
        assert (news.position, news.news) == (3, NewView(2, NEW.processes))


def test_records_can_be_repeated_one_by_one_across_a_switch() -> None:
    life = Life()
    for step_input in (Hold(1, NEW), Submit(None, b"x"), Prepare(1), Switch(1)):
        life.step(step_input)
    member = Member("A", OLD)
    member.step(Restored(None, (), 0), 0)
    readies = [member.step(Repeated(record), 0) for record in life.records]
    assert [bodies(ready.accepted) for ready in readies] == [[], [b"x"], [], []]
    assert [bodies(ready.sent) for ready in readies] == [[], [], [], [b"x"]]
    assert member.topology.version == 2


def test_a_record_that_cannot_be_is_named() -> None:
    with pytest.raises(StorageError):
        Member("A", OLD).step(Restored(None, [Changed("holding", 1, "no topology")], 0), 0)


# --- counting ----------------------------------------------------------------------------------------------------------


def test_a_member_counts_what_it_sent_and_took_and_says_what_is_on_its_way() -> None:
    one, other = Life("A"), Life("B")
    ready = one.step(Submit(("B",), b"x"))
    assert one.member.reconfigurer.standing().moved == (1, 0)
    assert one.member.reconfigurer.standing().trouble == "1 frame is not acknowledged, 1 of them by 'B'"
    answer = other.step(Arrived("A", ready.send[0][1]))
    assert other.member.reconfigurer.standing().moved == (0, 1)
    one.step(Arrived("B", answer.send[0][1]))
    assert one.member.reconfigurer.standing().idle
    assert one.restarted()[0].reconfigurer.standing().moved == (1, 0), "what was counted is counted again"


# --- what a command asks for -------------------------------------------------------------------------------------------

NORMAL = Life().member.reconfigurer.standing()


def standing(**changes: Any) -> Standing:
    return msgspec.structs.replace(NORMAL, **changes)


def held(attempt: int = 1, phase: str = "holding", **changes: Any) -> Standing:
    return standing(phase=phase, attempt=attempt, next_version=2, next_fingerprint=NEW.fingerprint, **changes)


def everybody(answer: Standing, **others: Standing) -> dict[str, Standing]:
    return {**dict.fromkeys("ABC", answer), **others}


SWITCHED = standing(version=2, fingerprint=NEW.fingerprint, attempt=1)


def test_a_command_has_all_hold_then_counts_twice_then_prepares_then_switches() -> None:
    lead = Coordinator(OLD, NEW)
    assert lead.decide(everybody(NORMAL), 7).requests == dict.fromkeys("ABC", Hold(7, NEW))
    assert not lead.decide(everybody(held(7)), 8).requests
    assert lead.decide(everybody(held(7)), 9).requests == dict.fromkeys("ABC", Prepare(7))
    assert lead.decide(everybody(held(7, "prepared"), B=held(7)), 9).requests == {"B": Prepare(7)}
    assert lead.decide(everybody(held(7, "prepared")), 9).requests == dict.fromkeys("ABC", Switch(7))
    assert lead.decide(everybody(SWITCHED, C=held(7, "prepared")), 9).requests == {"C": Switch(7)}
    assert lead.decide(everybody(SWITCHED), 9).done


@pytest.mark.parametrize(
    "unrest",
    [
        pytest.param(held(moved=(1, 0)), id="sent and not taken"),
        pytest.param(held(idle=False, trouble="2 messages wait"), id="waits"),
    ],
)
def test_nobody_is_prepared_while_something_is_on_its_way(unrest: Standing) -> None:
    lead = Coordinator(OLD, NEW)
    for _ in range(3):
        assert not lead.decide(everybody(held(), B=unrest), 0).requests


def test_what_moved_between_two_rounds_is_counted_again() -> None:
    lead = Coordinator(OLD, NEW)
    lead.decide(everybody(held()), 0)
    moved = everybody(held(), A=held(moved=(1, 0)), B=held(moved=(0, 1)))
    assert not lead.decide(moved, 0).requests
    assert lead.decide(moved, 0).requests == dict.fromkeys("ABC", Prepare(1))


def test_a_command_that_is_started_again_goes_on_where_the_other_was() -> None:
    assert Coordinator(OLD, NEW).decide(everybody(held(3, "prepared")), 0).requests == dict.fromkeys("ABC", Switch(3))
    assert Coordinator(OLD, NEW).decide(everybody(SWITCHED, B=held(3, "prepared")), 0).requests == {"B": Switch(3)}
    # Not all had been asked to hold: a new attempt, for all.
    assert Coordinator(OLD, NEW).decide(everybody(held(3), B=NORMAL), 0).requests == dict.fromkeys("ABC", Hold(4, NEW))


def test_an_attempt_is_dead_only_if_somebody_is_elsewhere_after_another_was_seen_prepared() -> None:
    lead = Coordinator(OLD, NEW)
    mixed = everybody(held(3, "prepared"), B=standing(attempt=3))
    assert not lead.decide(mixed, 0).requests
    assert lead.decide(mixed, 0).requests == {"A": Resume(3, dead=True), "C": Resume(3, dead=True)}


def test_who_does_not_answer_is_waited_for_and_two_commands_do_not_fight() -> None:
    lead = Coordinator(OLD, NEW)
    assert lead.decide({"A": NORMAL, "C": NORMAL}, 0).said == "waiting for B to answer"
    lead.decide(everybody(NORMAL), 5)
    with pytest.raises(UsageError, match="another command leads this change by now"):
        lead.decide(everybody(held(5), B=held(6)), 7)


def test_what_does_not_fit_is_named() -> None:
    lead = Coordinator(OLD, NEW)
    with pytest.raises(UsageError, match="'B' holds for another topology"):
        lead.decide(everybody(NORMAL, B=standing(phase="holding", next_fingerprint="x")), 0)
    with pytest.raises(UsageError, match="'B' has version 9"):
        lead.decide(everybody(NORMAL, B=standing(version=9)), 0)
    assert not lead.decide(everybody(SWITCHED, B=NORMAL), 0).requests
    with pytest.raises(UsageError, match="B never held for it"):
        lead.decide(everybody(SWITCHED, B=NORMAL), 0)


def test_an_abort_takes_all_back_unless_it_is_too_late() -> None:
    lead = Coordinator(OLD, NEW)
    assert lead.decide_abort(everybody(held(), B=NORMAL)).requests == {"A": Resume(1), "C": Resume(1)}
    assert lead.decide_abort(everybody(NORMAL)).done
    with pytest.raises(UsageError, match="all are prepared"):
        lead.decide_abort(everybody(held(1, "prepared")))
    with pytest.raises(UsageError, match="some have switched to version 2 already"):
        lead.decide_abort(everybody(held(1, "prepared"), A=SWITCHED))


def test_the_version_is_written_and_read_and_part_of_the_fingerprint() -> None:
    assert parse(write(NEW)).version == 2
    assert "version" not in write(OLD)
    assert fabric(1, d="ABC").fingerprint != fabric(2, d="ABC").fingerprint
