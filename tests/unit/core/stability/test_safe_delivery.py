"""Nothing is handed up before everybody has it, step by step: who waits for what, restarts, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thence.core.member import admission
from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Restored, Submit, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.stability.safe import SAFE_WITHIN_NS
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Packet, SafeAck
from thence.core.wire.records import Passed, Record, SafeUpto
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
def test_what_waits_behind_a_message_of_our_own_is_bounded(restarted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages to ourselves queue for nobody, and yet wait as long as somebody is away."""
    monkeypatch.setattr(admission, "unstable_bytes", lambda _: 200)
    run = Run(domain(ordering="fifo"))
    run.step("a", Submit(("a", "c"), b"not safe while c is down"))
    run.carry("c")
    for _ in range(2):
        run.step("a", Submit(("a",), b""))
    if restarted:
        snapshot = run.members["a"].snapshot()
        run.members["a"] = Member("a", run.where, run.options)
        run.step("a", Restored(snapshot, (), 0))
    said = "216 bytes of 'a' are delivered here and wait until all have them; the limit is 200"
    with pytest.raises(Busy, match=said):
        run.members["a"].step(Submit(("a",), b""), run.now)
    run.carry(rounds=30)
    assert [message for _, message in run.delivered["a"]] == ["a:1", "a:2", "a:3"]
    run.step("a", Submit(("a",), b""))


def test_members_whose_own_messages_wait_for_each_other_take_what_the_others_sent() -> None:
    """All have as much as there may be behind a message of their own, which is safe when the others have taken it."""
    run = Run(options=MemberOptions(durable=False))
    for name in NAMES:
        for _ in range(3):
            run.step(name, Submit(None, b"x"))
    run.carry(rounds=30)
    assert {name: len(delivered) for name, delivered in run.delivered.items()} == {"a": 9, "b": 9, "c": 9}


def test_more_of_one_process_than_it_may_have_unsafe_is_refused_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only who does not keep to the limit can have so much: here it is less at the others than at the sender."""
    run = Run()
    for _ in range(6):
        run.step("a", Submit(None, b"x"))
    monkeypatch.setattr(admission, "unstable_bytes", lambda _: 200)
    monkeypatch.setattr(admission, "UNSTABLE_SLACK_BYTES", 0)
    run.step("b", Submit(None, b"x"))
    run.carry("c", rounds=3)
    assert run.overflows
    assert {str(wait.message) for wait in run.members["b"].attachment.waiting()} < {"b:1", *(f"a:{at}" for at in range(1, 7))}
    run.carry(rounds=60)
    assert {name: len(delivered) for name, delivered in run.delivered.items()} == {"a": 7, "b": 7, "c": 7}


def test_nothing_is_kept_of_messages_that_go_to_nobody_else() -> None:
    alone = Member("a", Domain("d", ("a",), "vector")._replace(delivery="safe"))
    for _ in range(10):
        assert len(alone.step(Submit(None, b"x"), 0).deliver) == 1
    assert not alone.attachment.turn
    assert alone.forwarder.unsafe == 0


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
    assert len(run.delivered[name]) == len(set(run.delivered[name])) == 3
    if not whole:
        again = Member(name, run.where).step(Restored(None, run.records[name], 0), 0).deliver
        assert [(one.position, str(one.envelope.id)) for one in again] == run.delivered[name], "the application has gone by them"
        # A version that did not record what was safe.
        once, before = Member(name, run.where), [record for record in run.records[name] if not isinstance(record, SafeUpto)]
        assert once.step(Restored(None, before, 0), 0).deliver == (), "it does not know any more what is safe"
        assert [str(wait.message) for wait in once.attachment.waiting()] == [message for _, message in run.delivered[name]]


def test_what_cannot_be_is_refused() -> None:
    a = Member("a", domain())
    (refusal,) = a.step(Arrived("b", Packet("d", (), safe_ack=SafeAck(1))), 0).refused
    assert isinstance(refusal, ImpossibleFrame)
    with pytest.raises(StorageError, match="without notices"):
        Member("a", domain()).step(Restored(Member("a", Domain("d", NAMES, "vector")).snapshot(), (), 0), 0)
    with pytest.raises(StorageError, match="which only programs made between"):
        Member("a", domain()).step(Restored(None, [Passed("d", (("b", 1),))], 0), 0)


def test_where_it_cannot_be_kept_it_is_refused() -> None:
    with pytest.raises(TopologyError, match="fifo, matrix, relayed, unordered, vector"):
        Topology("t", [domain(ordering="sequenced")])
    replicated = [domain(), Domain("e", ("a", "b", "x"), "vector")]
    with pytest.raises(TopologyError, match="Nobody hands that on here"):
        Topology("t", replicated, replicas=[("a", "b")])


def test_the_option_is_a_part_of_the_fabric() -> None:
    safe, at_once = Topology.flat(domain()), Topology.flat(Domain("d", NAMES, "vector"))
    assert parse(write(safe)).domains["d"].delivery == "safe"
    assert parse(write(safe)).fingerprint == safe.fingerprint != at_once.fingerprint
    assert parse(write(at_once)).domains["d"].delivery == "at once"
