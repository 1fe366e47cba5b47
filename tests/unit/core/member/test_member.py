"""One process: what must be durable before what, and nothing lost or repeated wherever it crashes."""

from __future__ import annotations

import gc
import random
import sys
from typing import Any

import msgspec
import pytest

from tests.conformance.suite import Variant, every_ordering
from tests.support.crashes.crashes import Fleet, domain_of
from tests.support.runs import EXACTLY_ONCE
from thence.core.member import admission
from thence.core.member.contract import Arrived, Connected, Consumed, Ready, Repeated, Restored, Submit, SubmitAll, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member, describe_wait
from thence.core.ordering.fifo import FifoStamp
from thence.core.topology.domain import Domain
from thence.core.topology.toml import parse
from thence.core.wire.messages import MAX_BODY_BYTES, MAX_DESTINATIONS, Envelope, Frame, Packet
from thence.core.wire.records import Received, Record, Skipped, Submitted
from thence.errors import Busy, ConfigError, ImpossibleFrame, OverflowingFrame, StorageError, StrangerFrame, UsageError
from thence.trace.judge import judge

NAMES = ("A", "B", "C")
FIFO = domain_of("fifo", ("A", "B"))


def fifo_packet(*numbers: int, taken: int = 0, stamps: tuple[int, ...] | None = None, domain: str = "d") -> Packet[Any]:
    frames = tuple(Frame(FifoStamp(stamp), Envelope("B", stamp, None, b"")) for stamp in stamps or numbers)
    return Packet(domain, frames, numbers, taken)


# --- what a step returns -----------------------------------------------------------------------------------------------


def test_a_submit_is_persisted_accepted_sent_and_delivered_in_one_ready() -> None:
    ready = Member("A", FIFO).step(Submit(None, b"x"), 0)
    envelope = Envelope("A", 1, None, b"x")
    assert ready.persist == (Submitted(envelope),)
    assert ready.accepted == (envelope,)
    assert [peer for peer, _ in ready.send] == ["B"]
    assert [(delivery.position, delivery.envelope) for delivery in ready.deliver] == [(1, envelope)]
    assert ready.wake is not None


def test_an_acknowledgement_is_in_the_same_ready_as_the_record() -> None:
    member = Member("A", FIFO)
    ready = member.step(Arrived("B", fifo_packet(1, 2)), 0)
    assert [record.number for record in ready.persist if isinstance(record, Received)] == [1, 2]
    assert [packet.acked for _, packet in ready.send] == [2]
    again = member.step(Arrived("B", fifo_packet(1)), 1)
    assert again.persist == ()
    assert again.deliver == ()
    assert [packet.acked for _, packet in again.send] == [2], "what is on disk may be acknowledged again"


def test_frames_that_are_refused_leave_nothing_in_memory() -> None:
    """Each refusal held the frames of its callers, who held the refusal: a captured server took 2.7 KB with each packet."""
    member = Member("A", FIFO)

    def refuse() -> None:
        ready = member.step(Arrived("B", fifo_packet(1, domain="nowhere")), 0)
        assert len(ready.refused) == 1

    refuse()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(1_000):
        refuse()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1_000


def test_a_frame_that_waits_is_persisted_and_acknowledged_too() -> None:
    member = Member("A", FIFO)
    ready = member.step(Arrived("B", fifo_packet(2)), 5)
    assert len(ready.persist) == 1
    assert ready.deliver == ()
    assert [(packet.acked, packet.acked_beyond) for _, packet in ready.send] == [(0, (2,))]
    (wait,) = member.attachment.waiting()
    assert describe_wait(wait, 1_000_000_005) == "B:2 from B waits for number 1 of B, since 1.000 s"
    assert describe_wait(wait._replace(since=0), 1_000_000_005) == "B:2 from B waits for number 1 of B"


def test_a_refused_frame_is_listed_skipped_on_disk_and_never_asked_for_again() -> None:
    member = Member("A", FIFO)
    ready = member.step(Arrived("B", fifo_packet(1, 2, 3, stamps=(1, -5, 2))), 0)
    assert ["-5" in str(refusal) or "number from 1" in str(refusal) for refusal in ready.refused] == [True]
    assert ready.persist == (
        Received("d", "B", 1, Frame(FifoStamp(1), Envelope("B", 1, None, b""))),
        Skipped("d", "B", 2),
        Received("d", "B", 3, Frame(FifoStamp(2), Envelope("B", 2, None, b""))),
    )
    assert [packet.acked for _, packet in ready.send] == [3]
    reborn = Member("A", FIFO)
    reborn.step(Restored(None, ready.persist, 0), 0)
    assert [packet.acked for _, packet in reborn.step(Arrived("B", fifo_packet(4, stamps=(3,))), 1).send] == [4]


def test_a_stranger_is_refused_as_a_whole() -> None:
    member = Member("A", FIFO)
    before = member.snapshot()
    for peer, packet in (("Z", fifo_packet(1)), ("A", fifo_packet(1)), ("B", fifo_packet(1, domain="other"))):
        ready = member.step(Arrived(peer, packet), 0)
        assert [type(refusal) for refusal in ready.refused] == [StrangerFrame]
        assert (ready.persist, ready.send, ready.deliver) == ((), (), ())
    assert member.snapshot() == before


def test_a_packet_without_numbers_is_refused() -> None:
    ready = Member("A", FIFO).step(Arrived("B", Packet("d", fifo_packet(1).frames)), 0)
    assert ["0 numbers" in str(refusal) for refusal in ready.refused] == [True]


def test_an_overflow_is_neither_persisted_nor_acknowledged_and_comes_again() -> None:
    member = Member("A", FIFO, MemberOptions(max_held=1))
    ready = member.step(Arrived("B", fifo_packet(2, 3, 4)), 0)
    assert [type(refusal) for refusal in ready.refused] == [OverflowingFrame]
    assert [record.number for record in ready.persist if isinstance(record, Received)] == [2]
    assert [packet.acked_beyond for _, packet in ready.send] == [(2,)]
    ready = member.step(Arrived("B", fifo_packet(1, 3, 4)), 1)
    assert [delivery.envelope.number for delivery in ready.deliver] == [1, 2, 3, 4]
    assert ready.refused == ()


def test_a_relay_pushes_back_what_goes_where_the_hard_limit_is_reached_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 1)
    topology = parse('name = "f"\ndomains.A.members = ["a", "r"]\ndomains.D.members = ["r", "d"]\n')
    members = {name: Member(name, topology) for name in topology.processes}
    now = 0

    def sent(sender: str, to: str) -> Ready:
        """Let one send, and the relay get it."""
        ((_, packet),) = members[sender].step(Submit((to,), b"x"), now).send
        return members["r"].step(Arrived(sender, packet), now)

    assert not sent("a", "d").refused, "there is room for one"
    pushed_back = sent("a", "d")
    assert [str(refusal) for refusal in pushed_back.refused] == [
        "frames from 'a' at 'r': the queue to 'd' in 'D' is full: 1 frames are not acknowledged; MAX_QUEUED_HARD is 1"
    ]
    assert pushed_back.persist == ()
    for sender, to in (("d", "a"), ("d", "r")):
        assert not sent(sender, to).refused, f"what {sender} has for {to} goes the other way, or nowhere"


@pytest.mark.parametrize(("origin", "to"), [("a", ("nobody",)), ("nobody", ("d",)), ("nobody", None)])
def test_a_relay_refuses_what_names_nobody_of_the_fabric_and_goes_on(origin: str, to: tuple[str, ...] | None) -> None:
    topology = parse('name = "f"\ndomains.A.members = ["a", "b", "r"]\ndomains.D.members = ["r", "d"]\n')
    a, b, r = (Member(name, topology) for name in ("a", "b", "r"))
    packet = dict(a.step(Submit(("d",), b"x"), 0).send)["r"]
    (frame,) = packet.frames
    forged = Frame(frame.stamp, Envelope(origin, 1, to, b"x"))
    ready = r.step(Arrived("a", msgspec.structs.replace(packet, frames=(forged,))), 0)
    (refusal,) = ready.refused
    assert isinstance(refusal, ImpossibleFrame)
    assert "names 'nobody', and there is no such process in fabric 'f'" in str(refusal)
    assert [type(record) for record in ready.persist] == [Skipped]
    going = r.step(Arrived("b", dict(b.step(Submit(("d",), b"y"), 0).send)["r"]), 0)
    assert [peer for peer, packet in going.send if packet.domain == "D"] == ["d"]


def test_a_member_without_disk_or_channel_keeps_nothing() -> None:
    member = Member("A", FIFO, MemberOptions(reliable=False, durable=False))
    ready = member.step(Submit(None), 0)
    assert (ready.persist, ready.wake) == ((), None)
    assert ready.send[0][1].numbers == ()
    ready = member.step(Arrived("B", Packet("d", fifo_packet(1).frames)), 0)
    assert (len(ready.deliver), ready.persist) == (1, ())


# --- what cannot be asked for ------------------------------------------------------------------------------------------


def test_a_submit_that_cannot_be_changes_nothing() -> None:
    member = Member("A", FIFO, MemberOptions(max_queued=2))
    before = member.snapshot()
    for submit, error in (
        (Submit(None, b"x" * (MAX_BODY_BYTES + 1)), UsageError),
        (Submit(()), UsageError),
        (Submit(("B",) * (MAX_DESTINATIONS + 1)), UsageError),
        (Submit(("Z",)), ConfigError),
    ):
        with pytest.raises(error):
            member.step(submit, 0)
    assert member.snapshot() == before


def test_too_many_bytes_make_the_application_wait() -> None:
    member = Member("A", FIFO, MemberOptions(max_queued_bytes=1_000))
    member.step(Submit(None, bytes(1_000)), 0)
    with pytest.raises(Busy, match="1064 bytes are not acknowledged; max_queued_bytes is 1000"):
        member.step(Submit(None), 0)
    member.step(Arrived("B", fifo_packet(taken=1)), 0)
    assert member.attachment.queued_bytes == 0
    assert member.step(Submit(None), 0).accepted[0].number == 2


def test_over_a_new_way_what_is_not_acknowledged_goes_out_again() -> None:
    member = Member("A", FIFO)
    first = member.step(Submit(None, b"x"), 0).send
    assert member.step(Connected("B"), 1).send == first
    with pytest.raises(UsageError, match="'Z' shares no domain"):
        member.step(Connected("Z"), 2)


def test_records_can_be_repeated_one_by_one() -> None:
    source = Member("A", FIFO)
    done = [source.step(Submit(None, bytes([number])), 0) for number in range(3)]
    records = [record for ready in done for record in ready.persist]
    member = Member("A", FIFO)
    with pytest.raises(UsageError, match="not being restored"):
        member.step(Repeated(records[0]), 0)
    member.step(Restored(None, (), 0), 0)
    for record, ready in zip(records, done, strict=True):
        again = member.step(Repeated(record), 0)
        assert (again.accepted, again.deliver, again.persist, again.send) == (ready.accepted, ready.deliver, (), ())
    assert member.snapshot() == source.snapshot()
    assert [packet.numbers for _, packet in member.step(Connected("B"), 0).send] == [(1, 2, 3)]
    with pytest.raises(UsageError, match="not being restored"):
        member.step(Repeated(records[0]), 0)


def test_a_full_queue_makes_the_application_wait() -> None:
    member = Member("A", FIFO, MemberOptions(max_queued=2))
    for _ in range(2):
        member.step(Submit(None), 0)
    before = member.snapshot()
    with pytest.raises(Busy, match="the queue to 'B' in 'd' is full: 2 frames are not acknowledged; max_queued is 2"):
        member.step(Submit(None), 0)
    assert member.snapshot() == before
    assert member.attachment.queued() == {"B": 2}
    member.step(Arrived("B", fifo_packet(taken=1)), 0)
    assert member.step(Submit(None), 0).accepted[0].number == 3


def test_restored_is_the_first_input_or_none() -> None:
    for first in (Submit(None), Timer(), Restored(None, (), 0), Consumed(0)):
        member = Member("A", FIFO)
        member.step(first, 0)
        with pytest.raises(UsageError, match="first input"):
            member.step(Restored(None, (), 0), 0)


# --- after a restart ---------------------------------------------------------------------------------------------------


def drive(variant: Variant, seed: int) -> tuple[Domain, list[tuple[bytes, tuple[Record, ...]]]]:
    """Drive member A of a fleet that nobody acknowledges; return its snapshot after each step, and the step's records."""
    chance = random.Random(seed)
    domain = domain_of(variant.name, NAMES, variant.options_for(NAMES))
    fleet = {name: Member(name, domain) for name in NAMES}
    network: list[tuple[str, str, Packet[Any]]] = []
    told = [(fleet["A"].snapshot(), ())]
    told_of: list[tuple[bytes, tuple[Record, ...]]] = list(told)
    for _ in range(60):
        if network and chance.random() < 0.6:
            source, target, packet = network.pop(chance.randrange(len(network)))
            ready = fleet[target].step(Arrived(source, Packet("d", packet.frames, packet.numbers)), 0)
        else:
            target = chance.choice(NAMES)
            ready = fleet[target].step(Submit(None if chance.random() < 0.5 else (chance.choice(NAMES),)), 0)
        network += [(target, peer, packet) for peer, packet in ready.send]
        if target == "A":
            told_of.append((fleet["A"].snapshot(), ready.persist))
    return domain, told_of


@every_ordering
def test_records_and_snapshot_give_back_the_same_member(variant: Variant) -> None:
    domain, steps = drive(variant, 3)
    for start in range(0, len(steps), 3):
        for end in range(start, len(steps), 4):
            records = [record for _, persisted in steps[start + 1 : end + 1] for record in persisted]
            member = Member("A", domain)
            member.step(Restored(steps[start][0] if start else None, records, 0), 0)
            assert member.snapshot() == steps[end][0], f"snapshot {start}, records up to {end}"


def test_what_was_not_consumed_is_delivered_again_and_what_was_is_not() -> None:
    member = Member("A", FIFO)
    records = [record for number in (1, 2, 3) for record in member.step(Arrived("B", fifo_packet(number)), 0).persist]
    member.step(Consumed(1), 0)
    for snapshot, kept in ((None, records), (member.snapshot(), [])):
        ready = Member("A", FIFO).step(Restored(snapshot, kept, 2), 0)
        assert [(delivery.position, delivery.envelope.number) for delivery in ready.deliver] == [(3, 3)]
        ready = Member("A", FIFO).step(Restored(snapshot, kept, 1), 0)
        assert [delivery.position for delivery in ready.deliver] == [2, 3]


def test_what_was_not_acknowledged_is_sent_again() -> None:
    member = Member("A", FIFO)
    first = member.step(Submit(None, b"x"), 0)
    ready = Member("A", FIFO).step(Restored(None, first.persist, 1), 9)
    assert ready.send == first.send
    ready = Member("A", FIFO).step(Restored(member.snapshot(), (), 1), 9)
    assert ready.send == first.send
    assert ready.wake is not None


@pytest.mark.parametrize(
    "record",
    [
        Submitted(Envelope("A", 2, None, b"")),
        Submitted(Envelope("B", 1, None, b"")),
        Submitted(Envelope("A", 1, ("Z",), b"")),
        Received("d", "Z", 1, Frame(FifoStamp(1), Envelope("Z", 1, None, b""))),
        Received("d", "B", 1, Frame(FifoStamp(-1), Envelope("B", 1, None, b""))),
        Skipped("d", "Z", 1),
    ],
)
def test_a_record_that_does_not_follow_is_refused(record: Record) -> None:
    with pytest.raises(StorageError, match="stored record"):
        Member("A", FIFO).step(Restored(None, [record], 0), 0)


def test_a_record_twice_is_refused() -> None:
    record = Received("d", "B", 1, Frame(FifoStamp(1), Envelope("B", 1, None, b"")))
    with pytest.raises(StorageError, match="accepted before"):
        Member("A", FIFO).step(Restored(None, [record, record], 0), 0)


def test_a_snapshot_of_somebody_else_is_refused() -> None:
    for domain, name in ((FIFO, "B"), (domain_of("fifo", NAMES), "A"), (domain_of("vector", ("A", "B")), "A")):
        with pytest.raises(StorageError):
            Member("A", FIFO).step(Restored(Member(name, domain).snapshot(), (), 0), 0)
    with pytest.raises(StorageError):
        Member("A", FIFO._replace(name="e")).step(Restored(Member("A", FIFO).snapshot(), (), 0), 0)


def test_a_fork_goes_its_own_way() -> None:
    member = Member("A", FIFO)
    member.step(Submit(None), 0)
    before = member.snapshot()
    twin = member.fork()
    twin.step(Submit(None), 0)
    twin.step(Arrived("B", fifo_packet(1, taken=1)), 0)
    assert member.snapshot() == before


# --- a crash at any point ----------------------------------------------------------------------------------------------


def small_run(fleet: Fleet, seed: int = 2) -> None:
    """Submit a few messages, some before and some after others have arrived, and let all come to rest."""
    chance = random.Random(seed)
    plan: list[tuple[str, tuple[str, ...] | None]] = [("A", ("C",)), ("A", ("B",)), ("B", None), ("C", ("A", "B")), ("B", ("C",))]
    for sender, to in plan:
        fleet.submit(sender, to)
        for _ in range(2):
            if fleet.network:
                fleet.arrive(chance.randrange(len(fleet.network)))
    fleet.settle(chance.randrange)


def assert_all_is_well(fleet: Fleet, variant: Variant, where: str) -> None:
    verdict = judge(fleet.events, {*EXACTLY_ONCE, *variant.traits.guarantees})
    assert verdict.violations == [], where
    assert fleet.refused == [], where
    sent = {str(event.message) for event in fleet.events if event.kind == "send"}
    assert set(fleet.accepted) <= sent, where
    assert len(sent) == 5, where


@every_ordering
@pytest.mark.parametrize("snapshots", [False, True], ids=["records", "snapshots"])
@pytest.mark.parametrize("lose_every", [0, 3, 5])
def test_a_crash_at_any_point_loses_and_repeats_nothing(variant: Variant, snapshots: bool, lose_every: int) -> None:
    domain = domain_of(variant.name, NAMES, variant.options_for(NAMES))
    calm = Fleet(domain, snapshots=snapshots, lose_every=lose_every)
    small_run(calm)
    assert_all_is_well(calm, variant, "without a crash")
    for point in range(1, calm.operations + 1):
        fleet = Fleet(domain, crash_at=[point], snapshots=snapshots, lose_every=lose_every)
        small_run(fleet)
        assert len(fleet.crashes) == 1
        assert_all_is_well(fleet, variant, f"{fleet.crashes} crashed before operation {point}")


@every_ordering
def test_a_crash_while_coming_back_is_no_different(variant: Variant) -> None:
    domain = domain_of(variant.name, NAMES, variant.options_for(NAMES))
    calm = Fleet(domain)
    small_run(calm)
    for point in range(1, calm.operations, 3):
        fleet = Fleet(domain, crash_at=[point, point + 1, point + 2, point + 7], lose_every=4)
        small_run(fleet)
        assert len(fleet.crashes) >= 3
        assert_all_is_well(fleet, variant, f"{fleet.crashes} crashed from operation {point} on")


def test_messages_held_back_by_a_small_bound_get_through() -> None:
    """With room for one waiting frame, and a bad order of arrival, everything is delivered in the end."""
    fleet = Fleet(domain_of("matrix", NAMES), options=MemberOptions(max_held=1))
    for number in range(30):
        fleet.submit(NAMES[number % 3], None)
    fleet.settle(lambda count: count - 1)
    assert judge(fleet.events, {*EXACTLY_ONCE, "causal"}).violations == []
    assert fleet.refused, "the bound was never reached"
    assert all("max_held" in refusal for refusal in fleet.refused)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (MemberOptions(max_unconsumed=2), "has not consumed 2 deliveries; the limit is max_unconsumed"),
        (MemberOptions(max_unconsumed_bytes=200), "has not consumed 328 bytes of deliveries; the limit is max_unconsumed_bytes"),
    ],
)
def test_an_application_that_does_not_consume_pushes_back(options: MemberOptions, said: str, restarted: bool) -> None:
    sender = Member("A", FIFO, MemberOptions(resend_after_ns=10))
    receiver = Member("B", FIFO, options)
    packets = [packet for _ in range(3) for peer, packet in sender.step(Submit(("B",), bytes(100)), 0).send if peer == "B"]
    readies = [receiver.step(Arrived("A", packet), 0) for packet in packets[:2]]
    if restarted:
        snapshot = receiver.snapshot()
        receiver = Member("B", FIFO, options)
        receiver.step(Restored(snapshot, (), 0), 0)
    readies.append(receiver.step(Arrived("A", packets[2]), 0))
    assert [len(ready.deliver) for ready in readies] == [1, 1, 0]
    assert said in str(readies[2].refused[0])
    assert isinstance(readies[2].refused[0], OverflowingFrame)
    receiver.step(Consumed(2), 0)
    for _, packet in readies[1].send:
        sender.step(Arrived("B", packet), 0)
    ((_, again),) = sender.step(Timer(), 100).send
    assert [delivery.position for delivery in receiver.step(Arrived("A", again), 100).deliver] == [3]


# --- several messages in one step --------------------------------------------------------------------------------------


def test_what_is_submitted_together_is_one_ready_in_order() -> None:
    member = Member("A", FIFO)
    ready = member.step(SubmitAll((Submit(None, b"x"), Submit(("B",), b"y"), Submit(("A",), b"z"))), 0)
    assert [record.envelope.body for record in ready.persist if isinstance(record, Submitted)] == [b"x", b"y", b"z"]
    assert [str(envelope.id) for envelope in ready.accepted] == ["A:1", "A:2", "A:3"]
    assert [delivery.envelope.body for delivery in ready.deliver] == [b"x", b"z"]
    ((_, packet),) = ready.send
    assert [frame.envelope.body for frame in packet.frames if frame.envelope] == [b"x", b"y"]


@pytest.mark.parametrize("bad", [Submit(("nobody",), b""), Submit((), b""), Submit(None, bytes(MAX_BODY_BYTES + 1))])
def test_of_what_is_submitted_together_all_is_refused_or_nothing(bad: Submit) -> None:
    member = Member("A", FIFO)
    before = member.snapshot()
    with pytest.raises(UsageError):
        member.step(SubmitAll((Submit(None, b"x"), bad)), 0)
    assert member.snapshot() == before


def test_what_is_submitted_together_is_refused_as_late_as_what_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member("A", FIFO, MemberOptions(max_queued=1))
    member.step(Submit(None, b"x"), 0)
    with pytest.raises(Busy, match="max_queued"):
        member.step(Submit(None, b"y"), 0)
    assert len(member.step(SubmitAll((Submit(None, b"y"), Submit(None, b"z"))), 0).accepted) == 2
    monkeypatch.setattr("thence.core.member.admission.MAX_QUEUED_HARD", 3)
    with pytest.raises(Busy, match="MAX_QUEUED_HARD"):
        member.step(SubmitAll((Submit(None, b"y"),)), 0)
