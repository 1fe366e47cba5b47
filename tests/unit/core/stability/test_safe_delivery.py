"""Nothing is handed up before everybody has it, step by step: who waits for what, restarts, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Restored, Submit, SubmitAll, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.stability.safe import SAFE_WITHIN_NS
from thence.core.stability.safe_delivery import SafeDelivery
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.transport.acks import RESEND_AT_MOST_NS
from thence.core.wire.messages import Packet, SafeAck
from thence.core.wire.records import Passed, Record
from thence.errors import Busy, ImpossibleFrame, OverflowingFrame, StorageError, TopologyError

MS = 1_000_000
NAMES = ("a", "b", "c")


def domain(**changes: Any) -> Domain:
    return Domain("d", NAMES, "vector")._replace(delivery="safe", **changes)


class Run:
    """Three members, what is on its way between them, and their disks; nothing moves by itself."""

    def __init__(self, where: Domain | None = None, options: MemberOptions | None = None) -> None:
        self.where, self.options = where or domain(), options
        self.members = {name: Member(name, self.where, options) for name in NAMES}
        self.records: dict[str, list[Record]] = {name: [] for name in NAMES}
        self.delivered: dict[str, list[tuple[int, str]]] = {name: [] for name in NAMES}
        self.flying: list[tuple[str, str, Packet[Any]]] = []
        self.overflows = 0
        self.now = 0

    def step(self, name: str, step_input: Any) -> None:
        ready = self.members[name].step(step_input, self.now)
        assert all(isinstance(refusal, OverflowingFrame) for refusal in ready.refused)
        self.overflows += len(ready.refused)
        self.records[name] += [decode_record(encode_record(record)) for record in ready.persist]
        self.delivered[name] += [(delivery.position, str(delivery.envelope.id)) for delivery in ready.deliver]
        self.flying += [(name, peer, packet) for peer, packet in ready.send]

    def carry(self, *down: str, rounds: int = 8, unheard: tuple[str, str] | None = None) -> None:
        """Carry what is on its way, and let time pass; what is for those ``down`` is lost.

        ``unheard``: of what the first says to the second, what is safe is lost.
        """
        for _ in range(rounds):
            while self.flying:
                source, target, packet = self.flying.pop(0)
                if (source, target) == unheard:
                    packet = msgspec.structs.replace(packet, safe_ack=None)
                if target not in down:
                    self.step(target, Arrived(source, packet))
            self.now += 300 * MS
            for name in self.members:
                if name not in down:
                    self.step(name, Timer())


def guard_of(member: Member) -> SafeDelivery:
    guard = member.attachment.domains["d"].guard
    assert guard is not None
    return guard


def test_nobody_delivers_before_the_last_has_it_not_even_its_sender() -> None:
    run = Run()
    run.step("a", Submit(None, b"x"))
    run.carry("c")
    assert run.delivered == {"a": [], "b": [], "c": []}
    assert [str(wait.message) for wait in run.members["b"].attachment.waiting()] == ["a:1"]
    run.carry(rounds=30)
    assert run.delivered == {"a": [(1, "a:1")], "b": [(1, "a:1")], "c": [(1, "a:1")]}
    assert all(member.attachment.waiting() == [] for member in run.members.values())


def test_what_is_for_some_waits_for_these_only() -> None:
    run = Run(domain(ordering="matrix"))
    run.step("a", Submit(("b",), b"x"))
    run.carry("c")
    assert run.delivered["b"] == [(1, "a:1")]


def test_what_comes_behind_a_message_of_our_own_waits_with_it() -> None:
    """b's message may be caused by a's, which a itself delivers only when it is safe."""
    run = Run(domain(ordering="matrix"))
    run.step("a", Submit(("a", "c"), b"not safe while c is down"))
    run.step("b", Submit(("a",), b"safe"))
    run.carry("c")
    assert run.delivered["a"] == []
    run.carry(rounds=30)
    assert [message for _, message in run.delivered["a"]] == ["a:1", "b:1"]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_all_wait_for_passes_where_there_is_no_room_for_those_who_wait(restarted: bool) -> None:
    """c has heard late that b's message is safe; by then a's, which wait for it, have filled all room there is."""
    run = Run(options=MemberOptions(max_held=2))
    run.step("b", Submit(None, b"cause"))
    run.carry(unheard=("b", "c"))
    assert [message for _, message in run.delivered["a"]] == ["b:1"]
    for _ in range(5):
        run.step("a", Submit(None, b"effect"))
        run.carry(unheard=("b", "c"))
    assert run.overflows
    assert run.delivered["c"] == []
    if restarted:
        run.members["c"] = Member("c", run.where, run.options)
        run.step("c", Restored(None, run.records["c"], 0))
    run.carry(rounds=60)
    assert [message for _, message in run.delivered["c"]] == ["b:1", *(f"a:{number}" for number in range(1, 6))]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (MemberOptions(max_unconsumed=3), "3 deliveries wait until all have a:1; max_unconsumed is 3"),
        (
            MemberOptions(max_unconsumed_bytes=200),
            "3 deliveries wait until all have a:1, of 216 bytes; max_unconsumed_bytes is 200",
        ),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_waits_behind_a_message_of_our_own_is_bounded(options: MemberOptions, said: str, restarted: bool) -> None:
    """Messages to ourselves queue for nobody, and yet wait as long as somebody is away."""
    run = Run(domain(ordering="fifo"), options)
    run.step("a", Submit(("a", "c"), b"not safe while c is down"))
    run.carry("c")
    for _ in range(2):
        run.step("a", Submit(("a",), b""))
    if restarted:
        snapshot = run.members["a"].snapshot()
        run.members["a"] = Member("a", run.where, run.options)
        run.step("a", Restored(snapshot, (), 0))
    with pytest.raises(Busy, match=said):
        run.members["a"].step(Submit(("a",), b""), run.now)
    run.step("a", SubmitAll((Submit(("a",), b""),)))  # What follows from a delivery is refused later than that.
    run.carry(rounds=30)
    assert [message for _, message in run.delivered["a"]] == ["a:1", "a:2", "a:3", "a:4"]
    run.step("a", Submit(("a",), b""))


def test_members_whose_own_messages_wait_for_each_other_take_what_the_others_sent() -> None:
    """All have as much as there may be behind a message of their own, which is safe when the others have taken it."""
    run = Run(options=MemberOptions(durable=False, max_unconsumed=3))
    for name in NAMES:
        for _ in range(3):
            run.step(name, Submit(None, b"x"))
    run.carry(rounds=30)
    assert {name: len(delivered) for name, delivered in run.delivered.items()} == {"a": 9, "b": 9, "c": 9}


def test_each_member_has_a_share_of_the_room_for_what_is_not_safe() -> None:
    run = Run(options=MemberOptions(max_held=4))
    for name in NAMES:
        for _ in range(6):
            run.step(name, Submit(None, b"x"))
    run.carry("c", rounds=3)
    assert run.overflows
    assert [guard_of(run.members[name]).aside_of(other)[0] for name, other in (("a", "b"), ("b", "a"))] == [2, 2]
    run.carry(rounds=60)
    assert {name: len(delivered) for name, delivered in run.delivered.items()} == {"a": 18, "b": 18, "c": 18}


def test_nothing_is_kept_of_messages_that_go_to_nobody_else() -> None:
    alone = Member("a", Domain("d", ("a",), "vector")._replace(delivery="safe"))
    for _ in range(10):
        assert len(alone.step(Submit(None, b"x"), 0).deliver) == 1
    assert not guard_of(alone).acks.unsafe
    assert guard_of(alone).own == guard_of(alone).pushed == 10


def test_it_is_told_with_the_next_packet_or_a_little_later() -> None:
    run = Run()
    run.step("a", Submit(None, b"x"))
    while run.flying:
        source, target, packet = run.flying.pop(0)
        run.step(target, Arrived(source, packet))
    assert [name for name, delivered in run.delivered.items() if delivered] == ["a"], "a has heard from both"
    run.now = SAFE_WITHIN_NS
    run.step("a", Timer())
    assert [(target, packet.safe_ack) for _, target, packet in run.flying] == [("b", SafeAck(1)), ("c", SafeAck(1))]


def test_who_does_not_hear_asks_less_and_less_often() -> None:
    run = Run()
    run.step("a", Submit(None, b"x"))
    packet = next(packet for _, target, packet in run.flying if target == "b")
    b = run.members["b"]
    b.step(Arrived("a", packet), 0)
    now, waits = 0, []
    for _ in range(7):
        asks = guard_of(b).acks.peers["a"].ask
        assert asks is not None
        waits.append(asks.due - now)
        now = asks.due
        assert any(packet.safe_ack == SafeAck(0, True) for _, packet in b.step(Timer(), now).send)
    assert waits == sorted(waits)
    assert waits[-1] == RESEND_AT_MOST_NS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("whole", [False, True])
def test_a_restart_delivers_the_same_at_the_same_positions(name: str, whole: bool) -> None:
    run = Run()
    for sender in NAMES:
        run.step(sender, Submit(None, b"x"))
    run.carry("c" if name != "c" else "b")
    snapshot = run.members[name].snapshot() if whole else None
    records = [] if whole else run.records[name]
    run.members[name] = Member(name, run.where)
    run.flying = []
    run.step(name, Restored(snapshot, records, 0))
    run.carry(rounds=40)
    once = Member(name, run.where).step(Restored(None, run.records[name], 0), 0).deliver if not whole else None
    assert len(run.delivered[name]) == len(set(run.delivered[name])) == 3
    if once is not None:
        assert [(delivery.position, str(delivery.envelope.id)) for delivery in once] == run.delivered[name]


def test_what_cannot_be_is_refused() -> None:
    a = Member("a", domain())
    (refusal,) = a.step(Arrived("b", Packet("d", (), safe_ack=SafeAck(1))), 0).refused
    assert isinstance(refusal, ImpossibleFrame)
    with pytest.raises(StorageError, match="without safe delivery"):
        Member("a", domain()).step(Restored(Member("a", Domain("d", NAMES, "vector")).snapshot(), (), 0), 0)
    with pytest.raises(StorageError, match="where there is none"):
        Member("a", Domain("d", NAMES, "vector")).step(Restored(None, [Passed("d", (("b", 1),))], 0), 0)


def test_where_it_cannot_be_kept_it_is_refused() -> None:
    with pytest.raises(TopologyError, match="fifo, matrix, unordered, vector"):
        Topology("t", [domain(ordering="sequenced")])
    replicated = [domain(), Domain("e", ("a", "b", "x"), "vector")]
    with pytest.raises(TopologyError, match="a replica that is dead"):
        Topology("t", replicated, replicas=[("a", "b")])


def test_the_option_is_a_part_of_the_fabric() -> None:
    safe, at_once = Topology.flat(domain()), Topology.flat(Domain("d", NAMES, "vector"))
    assert parse(write(safe)).domains["d"].delivery == "safe"
    assert parse(write(safe)).fingerprint == safe.fingerprint != at_once.fingerprint
    assert parse(write(at_once)).domains["d"].delivery == "at once"
