"""Everything is handed up at once, and told later to be safe, step by step: who waits for what, restarts, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.core.stability.test_safe_delivery import MS, NAMES, Run
from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Restored, Submit, SubmitAll, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.stability.safe import SAFE_WITHIN_NS
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.topology.toml import parse, write
from thence.core.transport.acks import RESEND_AT_MOST_NS
from thence.core.wire.messages import Packet, SafeAck
from thence.errors import Busy, ImpossibleFrame, StorageError, TopologyError


def domain(**changes: Any) -> Domain:
    return Domain("d", NAMES, "vector")._replace(delivery="notify", **changes)


class Told(Run):
    """Three members of such a domain, and up to which delivery each was told that it is safe, each time."""

    def __init__(self, where: Domain | None = None, options: MemberOptions | None = None) -> None:
        super().__init__(where or domain(), options)
        self.told: dict[str, list[int]] = {name: [] for name in NAMES}

    def step(self, name: str, step_input: Any) -> None:
        ready = self.members[name].step(step_input, self.now)
        assert not ready.refused
        self.records[name] += [decode_record(encode_record(record)) for record in ready.persist]
        self.delivered[name] += [(delivery.position, str(delivery.envelope.id)) for delivery in ready.deliver]
        self.flying += [(name, peer, packet) for peer, packet in ready.send]
        self.told[name] += [ready.safe] if ready.safe else []


def test_everybody_delivers_at_once_and_is_told_when_the_last_has_it() -> None:
    run = Told()
    run.step("a", Submit(None, b"x"))
    run.carry("c")
    assert run.delivered == {"a": [(1, "a:1")], "b": [(1, "a:1")], "c": []}
    assert run.told == {"a": [], "b": [], "c": []}
    assert [run.members[name].log.unsafe for name in NAMES] == [1, 1, 0]
    assert [run.members[name].forwarder.unsafe for name in NAMES] == [1, 0, 0]
    run.carry(rounds=30)
    assert run.told == {"a": [1], "b": [1], "c": [1]}
    assert [run.members[name].log.unsafe for name in NAMES] == [0, 0, 0]


def test_what_is_for_some_waits_for_these_only() -> None:
    run = Told(domain(ordering="matrix"))
    run.step("a", Submit(("b",), b"x"))
    run.carry("c")
    assert run.told == {"a": [], "b": [1], "c": []}, "a gets nothing, and c is not asked"


def test_what_hangs_on_a_message_that_not_all_have_is_not_safe() -> None:
    """a's message is for b and c, which is down; b answers to a alone: all have the answer, and not what led to it."""
    run = Told(domain(ordering="matrix"))
    run.step("a", Submit(("b", "c"), b"not safe while c is down"))
    run.carry("c", rounds=2)
    run.step("b", Submit(("a",), b"an answer"))
    run.carry("c")
    assert run.delivered["a"] == [(1, "b:1")]
    assert run.told["a"] == []
    run.carry(rounds=30)
    assert run.told == {"a": [1], "b": [1], "c": [1]}


def test_it_is_told_with_the_next_packet_or_a_little_later() -> None:
    run = Told()
    run.step("a", Submit(None, b"x"))
    while run.flying:
        source, target, packet = run.flying.pop(0)
        run.step(target, Arrived(source, packet))
    assert run.told == {"a": [1], "b": [], "c": []}, "a has heard from both"
    run.now = SAFE_WITHIN_NS
    run.step("a", Timer())
    assert [(target, packet.safe_ack) for _, target, packet in run.flying] == [("b", SafeAck(1)), ("c", SafeAck(1))]


def test_who_does_not_hear_asks_less_and_less_often() -> None:
    run = Told()
    run.step("a", Submit(None, b"x"))
    packet = next(packet for _, target, packet in run.flying if target == "b")
    b = run.members["b"]
    b.step(Arrived("a", packet), 0)
    notice = b.attachment.domains["d"].notice
    assert notice is not None
    now, waits = 0, []
    for _ in range(7):
        asks = notice.acks.peers["a"].ask
        assert asks is not None
        waits.append(asks.due - now)
        now = asks.due
        assert any(packet.safe_ack == SafeAck(0, True) for _, packet in b.step(Timer(), now).send)
    assert waits == sorted(waits)
    assert waits[-1] == RESEND_AT_MOST_NS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("whole", [False, True])
def test_who_restarts_is_told_again_and_never_of_more_than_is_safe(name: str, whole: bool) -> None:
    run = Told()
    run.step("a", Submit(None, b"all get it"))
    run.carry(rounds=20)
    assert run.told == {"a": [1], "b": [1], "c": [1]}
    down = "c" if name != "c" else "b"
    for sender in NAMES:
        run.step(sender, Submit(None, b"one does not"))
    run.carry(down)
    snapshot = run.members[name].snapshot() if whole else None
    records = [] if whole else run.records[name]
    run.members[name] = Member(name, run.where)
    run.flying, run.told[name] = [], []
    run.step(name, Restored(snapshot, records, 0))
    assert run.told[name] == ([1] if whole else []), "a snapshot knows it; of records alone the others are asked"
    run.carry(down)
    assert set(run.told[name]) <= {1}, "what they told before they tell again, as far as they are there, and no more"
    run.carry(rounds=40)
    assert {other: told[-1] for other, told in run.told.items()} == {"a": 4, "b": 4, "c": 4}
    assert all(told == sorted(set(told)) for told in run.told.values())


def test_a_message_that_crosses_a_relay_or_a_link_is_safe_when_all_on_its_way_have_it() -> None:
    """p is told of q's message only when q's whole domain has it, though its own has; and r only when p and w have it."""
    near, far = domain()._replace(name="S", members=("q", "r", "s")), domain()._replace(name="T", members=("w", "p"))
    fabric = Topology("two", [near, far], [Link("l", ("S", "T"), (("r", "w"),))])
    members = {name: Member(name, fabric) for name in fabric.processes}
    told: dict[str, int] = {}
    got: list[str] = []
    flying = [("q", peer, packet) for peer, packet in members["q"].step(Submit(None, b"x"), 0).send]

    def carry(*down: str, since: int) -> None:
        for now in range(since, since + 30 * 300 * MS, 300 * MS):
            while flying:
                source, target, packet = flying.pop(0)
                if target not in down:
                    perform(target, Arrived(source, packet), now)
            for name in members:
                if name not in down:
                    perform(name, Timer(), now)

    def perform(name: str, step_input: Any, now: int) -> None:
        ready = members[name].step(step_input, now)
        flying.extend((name, peer, packet) for peer, packet in ready.send)
        got.extend(name for _ in ready.deliver)
        told[name] = max(ready.safe, told.get(name, 0))

    carry("p", "s", since=0)
    assert sorted(got) == ["r", "w"]
    carry("p", since=30 * 300 * MS)
    assert sorted(got) == ["r", "s", "w"]
    assert not any(told.values())
    carry(since=60 * 300 * MS)
    assert {name for name, upto in told.items() if upto} == {"p", "q", "r", "s", "w"}


def test_too_much_that_is_not_safe_lets_senders_wait() -> None:
    run = Told(domain(ordering="matrix"), MemberOptions(max_queued=3))
    run.step("c", Submit(("a", "b"), b"not safe while b is down"))
    run.carry("b", rounds=2)
    for _ in range(3):
        run.step("a", Submit(("c",), b"all have it, and not what led to it"))
        run.carry("b", rounds=1)
    assert run.members["a"].attachment.queued() == {"b": 0, "c": 0}
    with pytest.raises(Busy, match="3 messages that were sent from here are not safe; max_queued is 3"):
        run.members["a"].step(Submit(("c",), b"one more"), run.now)
    run.members["a"].step(SubmitAll((Submit(("c",), b"what follows from a delivery"),)), run.now)
    run.carry(rounds=30)
    run.step("a", Submit(("c",), b"one more"))


def test_what_cannot_be_is_refused() -> None:
    a = Member("a", domain())
    (refusal,) = a.step(Arrived("b", Packet("d", (), safe_ack=SafeAck(1))), 0).refused
    assert isinstance(refusal, ImpossibleFrame)
    with pytest.raises(StorageError, match="without notices"):
        Member("a", domain()).step(Restored(Member("a", Domain("d", NAMES, "vector")).snapshot(), (), 0), 0)


def test_where_it_cannot_be_kept_it_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"delivery = 'notify' needs .*fifo, matrix, relayed, unordered, vector"):
        Topology("t", [domain(ordering="sequenced")])
    replicated = [domain(), Domain("e", ("a", "b", "x"), "vector")]
    with pytest.raises(TopologyError, match="Nobody hands that on here"):
        Topology("t", replicated, replicas=[("a", "b")])


def test_the_option_is_a_part_of_the_fabric() -> None:
    told, safe, at_once = (Topology.flat(domain()._replace(delivery=way)) for way in ("notify", "safe", "at once"))
    assert parse(write(told)).domains["d"].delivery == "notify"
    assert parse(write(told)).fingerprint == told.fingerprint
    assert len({told.fingerprint, safe.fingerprint, at_once.fingerprint}) == 3
