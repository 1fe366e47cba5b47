"""Members that ack to everybody, step by step: who is told, who repeats, what waits, what is refused, what may be dropped."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from thence.core.ordering.vector import VectorStamp
from thence.core.topology.ack_options import AckOptions
from thence.core.transport.ack_all import copies as copies_module
from thence.core.transport.ack_all import own_stream
from thence.core.transport.ack_all import state as ack_all_state
from thence.core.transport.ack_all.claims import MAX_CLAIMED_RANGES, MAX_REQUESTED, claim_of, claimed_beyond, note
from thence.core.transport.ack_all.state import AckAllState
from thence.core.transport.ack_all.transport import AckAll
from thence.core.transport.channel import RESEND_BURST, WINDOW
from thence.core.transport.channels import PeerChannels
from thence.core.wire.messages import Envelope, Frame, GroupAcks, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import FrameRefused, ImpossibleFrame, MalformedFrame, StorageError, StrangerFrame

NAMES = ("a", "b", "c", "d")
MS = 1_000_000
RESEND = 200 * MS


def domain(**options: Any) -> dict[str, AckAll]:
    """Return a transport for each name."""
    chosen = AckOptions(scheme="distributed", **options)
    return {name: AckAll("d", name, NAMES, RESEND, chosen) for name in NAMES}


def frame(number: int, sender: str = "a", *, marker: bool = False, body: bytes = b"x") -> Frame[Any]:
    return Frame(VectorStamp(number, ()), None if marker else Envelope(sender, number, None, body))


def send(transport: AckAll, number: int, now: int = 0, to: str = "abcd") -> dict[str, Packet[Any]]:
    """Send a message, for ``to`` only; return the packets by receiver."""
    transport.push([(peer, frame(number, transport.me, marker=peer not in to)) for peer in transport.peers])
    return dict(transport.collect(now))


def arrive(transport: AckAll, peer: str, packet: Packet[Any], now: int) -> dict[str, Packet[Any]]:
    """Let a packet arrive and be taken; return the packets that follow."""
    for incoming in transport.frames_in(peer, packet, now):
        transport.take(incoming)
    return dict(transport.collect(now))


def timer(transport: AckAll, now: int) -> dict[str, Packet[Any]]:
    transport.visit_all()
    return dict(transport.collect(now))


def insides(transport: AckAll) -> dict[str, Any]:
    """Return a copy of all that a transport knows."""
    return copy.deepcopy(_fields(transport, set()))


def _fields(part: Any, seen: set[int]) -> Any:
    """Return the fields of an object, and of the parts that it owns."""
    if not type(part).__module__.startswith("thence.") or not hasattr(part, "__dict__"):
        return part
    if id(part) in seen:
        return "seen"
    seen.add(id(part))
    return {name: _fields(value, seen) for name, value in vars(part).items()}


def receipts(packet: Packet[Any]) -> GroupAcks:
    assert packet.group_acks is not None
    return packet.group_acks


def claiming(*claims: tuple[int, ...], wanted: bool = False, requests: tuple[tuple[int, ...], ...] = ()) -> Packet[Any]:
    return Packet("d", (), (), 0, (), GroupAcks(claims, wanted, requests))


# --- ack ----------------------------------------------------------------------------------------------------------


def test_each_confirms_to_all_and_the_sender_drops_what_all_have() -> None:
    members = domain()
    sent = send(members["a"], 1)
    assert list(sent) == ["b", "c", "d"]
    assert (members["a"].queued, members["a"].wake_at) == (3, RESEND)
    for name in "bcd":
        said = arrive(members[name], "a", sent[name], 1)
        assert list(said) == [other for other in NAMES if other != name], "all are told"
        assert [receipts(packet).claims for packet in said.values()] == [((0, 1),)] * 3
        assert members["a"].state.queue
        arrive(members["a"], name, said["a"], 2)
    assert (members["a"].state.queue, members["a"].queued, members["a"].queues.by_peer()) == ({}, 0, {"b": 0, "c": 0, "d": 0})
    assert timer(members["a"], RESEND) == {}
    assert members["a"].wake_at is None


def test_what_was_not_taken_is_not_confirmed_and_asked_for() -> None:
    members = domain()
    sent = send(members["a"], 1)
    assert len(members["b"].frames_in("a", sent["b"], 0)) == 1
    assert members["b"].collect(0) == []
    asked = timer(members["b"], RESEND)
    assert list(asked) == ["a"]
    assert (receipts(asked["a"]).claims, receipts(asked["a"]).requests) == ((), ((0, 1),))
    members["b"].skip("a", 1)
    assert receipts(dict(members["b"].collect(0))["a"]).claims == ((0, 1),), "what is refused for good is not asked for again"


def test_a_confirmation_waits_for_messages_or_for_time() -> None:
    members = domain(after_messages=3, after_ns=50 * MS)
    packets = [send(members["a"], number)["b"] for number in range(1, 5)]
    assert arrive(members["b"], "a", packets[0], 0) == {}
    assert members["b"].wake_at == 50 * MS
    assert arrive(members["b"], "a", packets[1], 10 * MS) == {}
    said = arrive(members["b"], "a", packets[2], 20 * MS)
    assert [receipts(packet).claims for packet in said.values()] == [((0, 3),)] * 3
    assert arrive(members["b"], "a", packets[3], 30 * MS) == {}
    assert timer(members["b"], 79 * MS) == {}
    assert members["b"].wake_at == 80 * MS
    assert receipts(timer(members["b"], 80 * MS)["c"]).claims == ((0, 4),)


def test_a_confirmation_travels_along_with_a_message() -> None:
    members = domain(after_messages=3, after_ns=50 * MS)
    arrive(members["b"], "a", send(members["a"], 1)["b"], 0)
    carrying = send(members["b"], 1, 1)
    assert receipts(carrying["a"]).claims == ((0, 1), (1, 1))
    assert timer(members["b"], 60 * MS) == {}, "it has been said already"
    arrive(members["a"], "b", carrying["a"], 2)
    assert members["a"].queues.by_peer() == {"b": 0, "c": 1, "d": 1}


def test_what_is_not_confirmed_is_sent_again_to_those_who_lack_it_and_waits_double() -> None:
    members = domain()
    send(members["a"], 1)
    arrive(members["a"], "c", claiming((0, 1)), 5)
    assert timer(members["a"], RESEND - 1) == {}
    assert list(timer(members["a"], RESEND)) == ["b", "d"]
    assert members["a"].wake_at == 3 * RESEND


def test_a_repeated_message_is_confirmed_again_at_once() -> None:
    members = domain(after_messages=3, after_ns=50 * MS)
    packet = send(members["a"], 1)["b"]
    arrive(members["b"], "a", packet, 1)
    again = arrive(members["b"], "a", packet, 2)
    assert list(again) == ["a"]
    assert (receipts(again["a"]).claims, members["b"].missing.repeated) == (((0, 1),), 1)


def test_a_claim_lists_what_is_there() -> None:
    numbers = NumberSet()
    for number in (1, 2, 4, 5, 6, 9):
        numbers.add(number)
    claim = claim_of(3, numbers)
    assert claim == (3, 2, 4, 6, 9, 9)
    assert list(claimed_beyond(claim)) == [4, 5, 6, 9]
    known = NumberSet()
    known.add(3)
    known.add(8)
    note(known, claim)
    assert (known.upto, sorted(known.beyond)) == (6, [8, 9])
    for number in range(11, 11 + 4 * MAX_CLAIMED_RANGES, 2):
        numbers.add(number)
    assert len(claim_of(3, numbers)) == 2 + 2 * MAX_CLAIMED_RANGES


# --- who has missed something asks for it ----------------------------------------------------------------------------------


def lose_at_d(to: str = "abcd", **options: Any) -> dict[str, AckAll]:
    """Let d lose a message of a, and hear from b and c that they have it."""
    members = domain(**options)
    sent = send(members["a"], 1, to=to)
    for name in "bc":
        said = arrive(members[name], "a", sent[name], 1)
        for other, packet in said.items():
            arrive(members[other], name, packet, 2)
    assert members["d"].wake_at is not None
    assert timer(members["d"], members["d"].wake_at - 1) == {}, "it may only be late"
    return members


def asked_by(transport: AckAll, now: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {peer: receipts(packet).requests for peer, packet in timer(transport, now).items() if receipts(packet).requests}


def test_a_loss_is_found_at_the_destination_which_asks_the_sender() -> None:
    members = lose_at_d()
    wake = members["d"].wake_at
    assert wake is not None
    assert asked_by(members["d"], wake) == {"a": ((0, 1),)}
    answer = arrive(members["a"], "d", claiming(requests=((0, 1),)), 7)
    assert list(answer) == ["d"]
    assert arrive(members["d"], "a", answer["d"], 8)
    assert members["d"].state.received[0].upto == 1
    assert members["d"].wake_at is not None
    assert asked_by(members["d"], 10**12) == {}
    assert timer(members["a"], RESEND) == {}, "having answered, it waits again before it repeats by itself"


def test_the_nearest_who_has_it_is_asked_and_then_the_next() -> None:
    members = lose_at_d(retransmission="nearest", sites=(("a",), ("c", "d")))
    asked = []
    for _ in range(4):
        assert members["d"].wake_at is not None
        asked += list(asked_by(members["d"], members["d"].wake_at))
    assert asked == ["c", "a", "b", "c"]
    answer = arrive(members["c"], "d", claiming(requests=((0, 1),)), 7)
    assert (receipts(answer["d"]).streams, answer["d"].numbers) == ((0,), (1,))
    (incoming,) = members["d"].frames_in("c", answer["d"], 8)
    assert (incoming.peer, incoming.number, incoming.frame) == ("a", 1, frame(1)), "as if it came from the sender"


def test_a_copy_is_repeated_only_to_whom_the_message_is_for() -> None:
    members = lose_at_d(to="b", retransmission="nearest")
    from_b = arrive(members["b"], "d", claiming(requests=((0, 1),)), 7)
    (incoming,) = members["d"].frames_in("b", from_b["d"], 8)
    assert (incoming.frame.envelope, incoming.to) == (None, (1,)), "d gets the marker"
    members = lose_at_d(to="bd", retransmission="nearest")
    from_c = arrive(members["c"], "d", claiming(requests=((0, 1),)), 7)
    assert from_c["d"].frames == (), "c has only the marker itself"
    from_b = arrive(members["b"], "d", claiming(requests=((0, 1),)), 7)
    assert from_b["d"].frames == (frame(1),)


def test_copies_are_kept_until_everybody_is_known_to_have_them() -> None:
    members = lose_at_d(retransmission="nearest")
    assert members["b"].state.copies[0]
    arrive(members["b"], "d", claiming((0, 1)), 60)
    assert not members["b"].state.copies[0]
    wanted = timer(members["c"], 10**9)
    assert {peer: receipts(packet).wanted for peer, packet in wanted.items()} == {"d": True}, "c has not heard of d, and asks"
    assert list(arrive(members["d"], "c", wanted["d"], 61)) == ["c"]


def receive(transport: AckAll, sender: str, numbers: Sequence[int], body: bytes = b"x") -> None:
    """Let messages come in one by one; nobody else has them."""
    for number in numbers:
        sent = GroupAcks(((NAMES.index(sender), number),))
        arrive(transport, sender, Packet("d", (frame(number, sender, body=body),), (number,), 0, (), sent), 0)


def test_of_each_stream_the_last_window_is_kept_and_max_copies_bounds_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "MAX_COPIES", 100)
    at_b = domain(retransmission="nearest")["b"]
    receive(at_b, "a", range(1, 3 * WINDOW + 1))
    receive(at_b, "c", range(1, 2 * WINDOW + 1))
    copies = at_b.state.copies
    assert list(copies[0]) == list(range(2 * WINDOW - 99, 3 * WINDOW + 1))
    assert list(copies[2]) == list(range(WINDOW + 1, 2 * WINDOW + 1)), "a fills the room that is for all; c has its own left"
    for peer in "cd":
        arrive(at_b, peer, claiming((0, 2 * WINDOW + 7)), 1)
    assert list(copies[0]) == list(range(2 * WINDOW + 8, 3 * WINDOW + 1))
    reborn = domain(retransmission="nearest")["b"]
    reborn.load(written(at_b))
    for again in (at_b, reborn):
        receive(again, "c", range(2 * WINDOW + 1, 3 * WINDOW + 1))
        assert list(again.state.copies[2]) == list(range(2 * WINDOW - 99, 3 * WINDOW + 1)), "now there is room again"


def test_the_copy_with_the_lowest_number_is_dropped_not_the_one_that_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "MAX_COPIES", 0)
    at_b = domain(retransmission="nearest")["b"]
    receive(at_b, "a", [WINDOW, *range(1, WINDOW), WINDOW + 1])
    assert sorted(at_b.state.copies[0]) == list(range(2, WINDOW + 2))


LARGE = bytes(1_000)
LARGE_WEIGHT = frame(1, body=LARGE).weight


def small_windows(monkeypatch: pytest.MonkeyPatch, messages: int) -> None:
    """Let so many messages with large bodies be on their way."""
    for module in (own_stream, copies_module):
        monkeypatch.setattr(module, "WINDOW_BYTES", messages * LARGE_WEIGHT)


def test_copies_are_bounded_by_bytes_too_and_what_may_be_on_its_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 10)
    monkeypatch.setattr(copies_module, "MAX_COPIES_BYTES", 5 * LARGE_WEIGHT)
    at_b = domain(retransmission="nearest")["b"]
    receive(at_b, "a", range(1, 31), LARGE)
    receive(at_b, "c", range(1, 31), LARGE)
    copies = at_b.state.copies
    assert (list(copies[0]), list(copies[2])) == (list(range(16, 31)), list(range(21, 31)))
    for peer in "cd":
        arrive(at_b, peer, claiming((0, 28)), 1)
    reborn = domain(retransmission="nearest")["b"]
    reborn.load(written(at_b))
    for again in (at_b, reborn):
        receive(again, "c", range(31, 41), LARGE)
        assert list(again.state.copies[2]) == list(range(26, 41)), "now there is room again"
        receive(again, "d", [2, 3, *range(4, 40)], LARGE)
        assert list(again.state.copies[3]) == list(range(2, 40)), "while the first one is missing, none behind it is dropped"
        receive(again, "d", [1], LARGE)
        assert sorted(again.state.copies[3]) == list(range(30, 40))


def test_what_is_not_here_is_left_to_others() -> None:
    members = domain(retransmission="nearest")
    assert arrive(members["b"], "d", claiming(requests=((0, 1, 2),)), 0)["d"].frames == ()


def test_a_request_names_only_so_many_and_the_rest_is_asked_for_next() -> None:
    members = domain()
    arrive(members["d"], "b", claiming((0, 100)), 0)
    first = asked_by(members["d"], 10 * MS)["a"][0]
    assert first == (0, *range(1, MAX_REQUESTED + 1))
    assert members["d"].wake_at is not None
    assert asked_by(members["d"], members["d"].wake_at)["a"] == ((0, *range(MAX_REQUESTED + 1, 101)),)


# --- limits and refusals ---------------------------------------------------------------------------------------------------


def test_the_window_bounds_what_is_on_its_way() -> None:
    member = domain()["a"]
    for number in range(1, WINDOW + 3):
        member.push([(peer, frame(number)) for peer in member.peers])
    packets = dict(member.collect(0))
    assert packets["b"].numbers == tuple(range(1, WINDOW + 1))
    assert receipts(packets["b"]).claims == ((0, WINDOW),), "what has not been sent cannot be missed"
    for name in "bcd":
        member.frames_in(name, claiming((0, 1)), 1)
    assert dict(member.collect(1))["c"].numbers == (WINDOW + 1,)


def test_the_window_bounds_bytes_and_a_packet_takes_so_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 10)
    monkeypatch.setattr(ack_all_state, "PACKET_BYTES", 4 * LARGE_WEIGHT)
    member = domain()["a"]
    for number in range(1, 31):
        member.push([(peer, frame(number, body=LARGE)) for peer in member.peers])
    reborn = domain()["a"]
    reborn.load(written(member))
    for again in (member, reborn):
        again.visit_all()
        sent = [packet for peer, packet in again.collect(0) if peer == "b"]
        assert [packet.numbers for packet in sent] == [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)]
        assert {receipts(packet).claims for packet in sent} == {((0, 10),)}
        for name in "bcd":
            again.frames_in(name, claiming((0, 1, 3, 5)), 1)
        assert dict(again.collect(1))["c"].numbers == (11,), "whoever lacks 2 can have 11, and no more"
        for name in "bcd":
            again.frames_in(name, claiming((0, 11)), 2)
        assert [packet.numbers[-1] for peer, packet in again.collect(2) if peer == "d"] == [15, 19, 21]


def test_one_message_that_is_larger_than_the_window_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_stream, "WINDOW_BYTES", 10)
    member = domain()["a"]
    for number in (1, 2):
        member.push([(peer, frame(number)) for peer in member.peers])
    assert dict(member.collect(0))["b"].numbers == (1,)
    for name in "bcd":
        member.frames_in(name, claiming((0, 1)), 1)
    assert dict(member.collect(1))["b"].numbers == (2,)


def test_whoever_is_behind_has_a_window_of_bytes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    small_windows(monkeypatch, 10)
    member = domain()["a"]
    member.suspect("d", True)
    for number in range(1, 31):
        member.push([(peer, frame(number, body=LARGE)) for peer in member.peers])
    got: list[int] = []
    for name, confirmed in [("b", 10), ("c", 10), ("b", 20), ("c", 20), ("b", 30), ("c", 30), ("d", 3), ("d", 13), ("d", 23)]:
        got += [number for peer, packet in member.collect(0) if peer == "d" for number in packet.numbers]
        assert got[-1] == member.state.known_of(3, 0).upto + 10
        member.frames_in(name, claiming((0, confirmed)), 0)
        member.suspect("d", False)
    got += dict(member.collect(0))["d"].numbers
    assert got == list(range(1, 31))


def test_requests_go_with_the_first_of_several_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_all_state, "PACKET_BYTES", 1)
    members = lose_at_d()
    members["d"].push([(peer, frame(1, "d")) for peer in members["d"].peers])
    members["d"].push([(peer, frame(2, "d")) for peer in members["d"].peers])
    members["d"].visit_all()
    assert members["d"].wake_at is not None
    sent = [packet for peer, packet in members["d"].collect(members["d"].wake_at) if peer == "a"]
    assert [(packet.numbers, receipts(packet).requests) for packet in sent] == [((1,), ((0, 1),)), ((2,), ())]


def test_a_number_beyond_the_window_is_ignored() -> None:
    member = domain()["b"]
    packet = Packet("d", (frame(1), frame(1)), (WINDOW + 1, WINDOW), 0, (), GroupAcks())
    assert [incoming.number for incoming in member.frames_in("a", packet, 0)] == [WINDOW]


def carrying(number: int, *, to: tuple[int, ...] | None = None, stream: int = 1, marker: bool = False) -> Packet[Any]:
    return Packet("d", (frame(1, marker=marker),), (number,), 0, (), GroupAcks((), False, (), (stream,), (to,)))


@pytest.mark.parametrize(
    ("packet", "refusal"),
    [
        (Packet("d", (), ()), MalformedFrame),
        (Packet("d", (frame(1),), (), 0, (), GroupAcks()), MalformedFrame),
        (Packet("d", (frame(1),), (1,), 0, (), GroupAcks((), False, (), (1, 1))), MalformedFrame),
        (Packet("d", (frame(1),), (1,), 0, (), GroupAcks((), False, (), (), (None, None))), MalformedFrame),
        (carrying(1, stream=0), StrangerFrame),
        (carrying(1, stream=2), StrangerFrame),
        (carrying(1, stream=4), MalformedFrame),
        (carrying(0), MalformedFrame),
        (carrying(1, to=(9,)), MalformedFrame),
        (carrying(1, to=(2,)), MalformedFrame),
        (carrying(1, marker=True), MalformedFrame),
        (carrying(1, to=(0,), marker=True), MalformedFrame),
        (claiming((0, 2)), ImpossibleFrame),
        (claiming((0, 0, 7, 7)), ImpossibleFrame),
        (claiming((4, 1)), MalformedFrame),
        (claiming((0,)), MalformedFrame),
        (claiming((0, -1)), MalformedFrame),
        (claiming((1, 0, 5)), MalformedFrame),
        (claiming((1, 0, 5, 4)), MalformedFrame),
        (claiming((1, 0, 5, WINDOW + 1)), MalformedFrame),
        (claiming(*[(1, 1)] * 5), MalformedFrame),
        (claiming(requests=((0,),)), MalformedFrame),
        (claiming(requests=((5, 1),)), MalformedFrame),
        (claiming(requests=((0, 0),)), MalformedFrame),
        (claiming(requests=((0, *range(1, MAX_REQUESTED + 2)),)), MalformedFrame),
        (claiming(requests=((0, 1),) * 5), MalformedFrame),
    ],
)
def test_a_packet_that_cannot_be_is_refused_and_changes_nothing(packet: Packet[Any], refusal: type[FrameRefused]) -> None:
    member = domain()["a"]
    send(member, 1)
    before = insides(member)
    with pytest.raises(FrameRefused) as caught:
        member.frames_in("b", packet, 1)
    assert type(caught.value) is refusal
    assert insides(member) == before


def test_who_confirms_to_everybody_is_not_understood_by_channels() -> None:
    from thence.core.ordering import ArrivalOrder

    with pytest.raises(MalformedFrame, match="nobody acks to everybody"):
        PeerChannels("d", "a", ["b"], ArrivalOrder.ANY, RESEND).frames_in("b", claiming(), 0)


# --- who is suspected ---------------------------------------------------------------------------------------------------


def run_past(members: dict[str, AckAll], dead: str, count: int) -> list[Packet[Any]]:
    """Let ``a`` send so many messages, which all but the dead ones get; return the packets for these."""
    lost = []
    for peer in dead:
        members["a"].suspect(peer, True)
    for number in range(1, count + 1):
        for peer, packet in send(members["a"], number, number * MS).items():
            if peer in dead:
                lost.append(packet)
            else:
                arrive(members["a"], peer, arrive(members[peer], "a", packet, number * MS)["a"], number * MS)
    return lost


def test_who_is_held_for_dead_does_not_hold_up_the_others_nor_when_it_is_back() -> None:
    members = domain()
    run_past(members, "d", 3 * WINDOW)
    assert members["b"].state.received[0].upto == 3 * WINDOW
    members["a"].suspect("d", False)
    sent = send(members["a"], 3 * WINDOW + 1, 10**10)
    assert (sent["b"].numbers, sent["c"].numbers) == ((3 * WINDOW + 1,), (3 * WINDOW + 1,)), "d has not caught up yet"
    assert max(sent["d"].numbers, default=0) <= WINDOW


def test_what_nobody_can_be_sent_yet_is_not_tried_time_and_again() -> None:
    members = domain()
    run_past(members, "d", 4 * WINDOW)
    for _ in range(2 * WINDOW // RESEND_BURST):
        assert sum(len(packet.numbers) for packet in timer(members["a"], 10**10).values()) <= RESEND_BURST
    assert len(members["a"].own.attempts.table) == WINDOW, "beside what was on its way to d when it was suspected"


def test_who_was_wrongly_held_for_dead_gets_the_rest_though_the_sender_says_nothing_more() -> None:
    members = domain()
    late = run_past(members, "bcd", 3 * WINDOW)
    at_b = [packet for packet in late[::3] if packet.numbers]
    assert [packet.numbers for packet in at_b] == [(number,) for number in range(1, WINDOW + 1)]
    said: dict[str, Packet[Any]] = {}
    for packet in reversed(at_b):  # So it hears nothing of what lies beyond.
        said = arrive(members["b"], "a", packet, 10**10)
    members["a"].suspect("b", False)
    now = 10**10
    while said:
        now += MS
        packets = arrive(members["a"], "b", said["a"], now)
        said = arrive(members["b"], "a", packets["b"], now) if "b" in packets else {}
    assert members["b"].state.received[0].upto == 3 * WINDOW


# --- restarts --------------------------------------------------------------------------------------------------------------


def written(transport: AckAll) -> AckAllState[Any]:
    """Return the state as it comes back from a disk."""
    kind: Any = AckAllState
    return msgspec.msgpack.decode(msgspec.msgpack.encode(transport.save()), type=kind[VectorStamp])  # type: ignore[no-any-return]


def test_after_a_restart_everything_unconfirmed_is_due_and_holes_are_asked_for() -> None:
    members = domain()
    send(members["a"], 1)
    send(members["a"], 2)
    arrive(members["a"], "b", claiming((0, 1)), 1)
    reborn = domain()["a"]
    reborn.load(written(members["a"]))
    assert (reborn.queued, reborn.queues.by_peer()) == (5, {"b": 1, "c": 2, "d": 2})
    assert {peer: packet.numbers for peer, packet in timer(reborn, 5).items()} == {"b": (2,), "c": (1, 2), "d": (1, 2)}
    packet = send(domain()["c"], 1)["a"]
    arrive(members["a"], "c", msgspec.structs.replace(packet, numbers=(3,)), 2)
    reborn = domain()["a"]
    reborn.load(written(members["a"]))
    timer(reborn, 5)
    assert asked_by(reborn, 10 * MS) == {"c": ((2, 1, 2),)}


def test_copies_come_back_from_a_snapshot_and_are_dropped_when_all_have_them() -> None:
    members = lose_at_d(retransmission="nearest")
    reborn = domain(retransmission="nearest")["b"]
    reborn.load(written(members["b"]))
    assert arrive(reborn, "d", claiming(requests=((0, 1),)), 7)["d"].frames == (frame(1),)
    assert {peer for peer, packet in timer(reborn, 10**9).items() if receipts(packet).wanted} == {"d"}, "c had told it"
    arrive(reborn, "d", claiming((0, 1)), 8)
    assert not any(reborn.state.copies)


def test_the_snapshot_of_something_else_is_refused() -> None:
    member = domain()["a"]
    with pytest.raises(StorageError, match="'d' at 'a': a snapshot with channels to b"):
        member.load({"b": None})
    strange = written(member)
    strange.received.pop()
    with pytest.raises(StorageError):
        member.load(strange)
    send(member, 1)
    strange = written(member)
    strange.queue[1].lacking[9] = None
    with pytest.raises(StorageError, match="of members that ack to all"):
        member.load(strange)
