"""Limits by bytes on what peers can make a member keep: each follows the options, so that a budget can make it smaller."""

from __future__ import annotations

import pytest

from thence.core.failover.early_payloads import AHEAD, MAX_AHEAD_BYTES, MAX_AHEAD_KEPT_BYTES
from thence.core.member import admission, limits
from thence.core.member.contract import Arrived, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.ordering import ArrivalOrder
from thence.core.places.link_end import LinkTransfer
from thence.core.topology.toml import parse
from thence.core.transport import channel as channel_module
from thence.core.transport.ack_all import copies as copies_module
from thence.core.transport.ack_all.copies import Copies
from thence.core.transport.ack_all.state import StreamMessage
from thence.core.transport.channel import Channel
from thence.core.wire.messages import FRAME_WEIGHT, Envelope, Frame, Packet, StableAck
from thence.errors import Busy, OverflowingFrame

MIB = 1024 * 1024
SMALL = MemberOptions(max_queued_bytes=1)


def message(number: int, size: int = 100) -> Envelope:
    return Envelope("a", number, None, bytes(size))


def packet(*numbers: int) -> Packet[None]:
    return Packet("d", tuple(Frame(None, message(number)) for number in numbers), numbers)


def test_frames_before_their_turn_are_few_by_bytes_and_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured peer leaves the first one out, and sends a window full of large ones."""
    monkeypatch.setattr(channel_module, "WINDOW_BYTES", 2 * (FRAME_WEIGHT + 100))
    channel = Channel(ArrivalOrder.FIFO)
    assert channel.arrived(packet(*range(2, 12)), 0) == []
    assert list(channel.inbound.early) == [2, 3]
    assert [number for number, _ in channel.arrived(packet(1), 0)] == [1, 2, 3]
    for number in (1, 2, 3):
        channel.state.received.add(number)
    assert [number for number, _ in channel.arrived(packet(*range(4, 12)), 0)] == list(range(4, 12))


def test_bodies_that_went_ahead_are_few_by_bytes() -> None:
    domain = 'name = "f"\n[domains.d]\nmembers = ["a", "b"]\n[domains.e]\nmembers = ["b", "c"]\n'
    b = Member("b", parse(domain))
    for number in range(1, 9):
        body = Envelope("a", number, None, bytes(MAX_AHEAD_BYTES))
        b.step(Arrived("a", Packet("d", (Frame(AHEAD, body),), (0,))), 0)
    store = b.attachment.domains["d"].bodies.stores["a"]
    assert sum(len(envelope.body) for envelope in store.bodies.values()) == MAX_AHEAD_KEPT_BYTES


LINKED = """
name = "linked"
[domains.A]
members = ["a1", "a2"]
[domains.B]
members = ["b1", "b2"]
[[links]]
name = "l"
between = ["A", "B"]
relays = [["a1", "b1"], ["a2", "b2"]]
"""


def test_early_frames_of_a_link_follow_the_options() -> None:
    end = Member("b1", parse(LINKED), MemberOptions(max_early_bytes=2 * (FRAME_WEIGHT + 100))).attachment.links["l"].end
    for number in (3, 5):
        end.accept("a1", Frame(LinkTransfer(number), message(number)), 0)
    with pytest.raises(OverflowingFrame, match="MAX_EARLY_BYTES is 328"):
        end.accept("a1", Frame(LinkTransfer(7), message(7)), 0)


def test_copies_to_repeat_follow_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "WINDOW_BYTES", 4 * (FRAME_WEIGHT + 100))
    copies = Copies([{}], [0], limit_bytes=0)
    for number in range(1, 21):
        copies.add(0, number, StreamMessage(None, message(number), None), number)
    assert copies.count == 4
    nearest = 'name = "f"\n[domains.d]\nmembers = ["a", "b", "c"]\nordering = "vector"\n'
    nearest += 'confirmation = {scheme = "distributed", retransmission = "nearest"}\n'
    member = Member("a", parse(nearest), MemberOptions(max_copies_bytes=7))
    assert member.attachment.domains["d"].transport.copies.held.limit_bytes == 7  # type: ignore[attr-defined]


def refused_by(member: Member, sender: Member, messages: int) -> tuple[int, str]:
    """Let a member take messages of a peer, and answer to nobody; return how many it took, and why no more."""
    for taken in range(messages):
        ready = sender.step(Submit(None, bytes(36)), 0)
        (came,) = [one for peer, one in ready.send if peer == member.name]
        if refused := member.step(Arrived(sender.name, came), 0).refused:
            return taken, str(refused[0])
    return messages, ""


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let frames of 100 bytes count."""
    monkeypatch.setattr(limits, "MIN_QUEUED_BYTES_HARD", 1_000)
    monkeypatch.setattr(admission, "MAX_ECHO_BYTES", 500)
    monkeypatch.setattr(admission, "MAX_BODY_BYTES", 0)
    monkeypatch.setattr(admission, "held_bytes", lambda _: 300)


def test_what_is_handed_on_around_a_ring_follows_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    ring = parse('name = "f"\n[domains.d]\nmembers = ["a", "b", "c", "e"]\nordering = {name = "flood", links = "ring"}\n')
    taken, why = refused_by(Member("b", ring, SMALL), Member("a", ring), 50)
    assert (taken, "the limit around a ring is 1000" in why) == (10, True), why


def test_what_goes_back_to_its_sender_follows_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    domain = parse('name = "f"\n[domains.d]\nmembers = ["s", "r"]\nordering = {name = "sequenced", coordinator = "s"}\n')
    taken, why = refused_by(Member("s", domain, SMALL), Member("r", domain), 50)
    assert (taken, "most of them its own" in why) == (18, True), why


TWIN = """
name = "twin"
[domains.A]
members = ["a", "r1", "r2"]
ordering = "matrix"
[domains.D]
members = ["d", "r1", "r2"]
ordering = "matrix"
[[relays]]
replicas = ["r1", "r2"]
"""


def test_what_is_kept_for_another_replica_follows_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    twin = parse(TWIN)
    replica = Member("r2", twin, SMALL)
    taken, why = refused_by(replica, Member("a", twin), 50)
    assert (taken, "kept for the replica that forwards" in why) == (10, True), why
    takeover = replica.attachment.takeover
    assert takeover is not None
    assert takeover.kept_bytes == takeover.fork().kept_bytes == 1_000
    takeover.load(takeover.save())
    assert takeover.kept_bytes_for("D") == 1_000
    takeover.suspect("r1", True)
    takeover.take_kept("D")
    assert takeover.kept_bytes == 0


RELAYED = """
name = "relayed"
stability = true
[domains.A]
members = ["a", "r"]
[domains.B]
members = ["r", "b"]
"""


def weigh(monkeypatch: pytest.MonkeyPatch, *, most: int, slack: int) -> None:
    """Let so many bytes of one process not be stable."""
    monkeypatch.setattr(admission, "unstable_bytes", lambda _: most)
    monkeypatch.setattr(admission, "UNSTABLE_SLACK_BYTES", slack)


def acked(member: Member, *peers: str) -> None:
    """Let peers acknowledge all frames, and say of none that all have it."""
    for place in member.attachment.places.values():
        for peer in [peer for peer in peers if peer in place.peers]:
            assert place.stable is not None
            sent = place.stable.peers[peer].sent
            member.step(Arrived(peer, Packet(place.name, (), (), sent)), 1)


def send_until_refused(member: Member, *, notice: bool) -> tuple[int, str]:
    """Let a member send, and its peer acknowledge; return how many messages it took, and why no more."""
    for sent in range(50):
        try:
            member.step(Submit(None, bytes(36), notice), 0)
        except Busy as error:
            return sent, str(error)
        acked(member, "r")
    return 50, ""


def test_a_process_sends_no_more_than_others_keep_for_it_until_all_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    weigh(monkeypatch, most=2_000, slack=300)
    member = Member("a", parse(RELAYED))
    sent, why = send_until_refused(member, notice=False)
    assert (sent, "half of unstable_bytes is 1000" in why) == (10, True), why
    sent, why = send_until_refused(member, notice=True)
    assert (sent, "2000 bytes of 'a' are kept until all have them; the limit is 2000" in why) == (10, True), why


def test_a_relay_keeps_no_more_of_a_process_than_that_may_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured server keeps to no limit, and another acknowledges everything and says of nothing that all have it."""
    topology = parse(RELAYED)
    captured, relay = Member("a", topology), Member("r", topology)
    weigh(monkeypatch, most=2_000, slack=300)
    monkeypatch.setattr(captured.admission, "check", lambda *_, **__: None)
    taken, why = 0, ""
    while taken < 50 and not why:
        (came,) = [packet for _, packet in captured.step(Submit(None, bytes(36)), 0).send]
        why = " ".join(map(str, relay.step(Arrived("a", came), 0).refused))
        acked(relay, "b")
        taken += not why
    assert (taken, "2300 bytes of 'a' are kept until all have them; the limit is 2300" in why) == (23, True), why
    kept = relay.attachment.domains["B"].stable
    assert kept is not None
    assert (kept.bytes_of, kept.fork(kept.inner).bytes_of) == ({"a": 2_300}, {"a": 2_300})
    saved = kept.save()
    kept.load(saved)
    assert kept.bytes_of == {"a": 2_300}
    relay.step(Arrived("b", Packet("B", (), (), stable_ack=StableAck(23))), 2)
    assert kept.bytes_of == {"a": 0}


MARKED = """
name = "marked"
stability = {stability}
[domains.A]
members = ["a", "r"]
[domains.B]
members = ["r", "b", "captured"]
ordering = "{ordering}"
"""


def send_past(text: str, *peers: str) -> tuple[Member, int, str]:
    """Let ``a`` send to ``b`` by a relay, of whose peers these acknowledge all; return it, how many it took, and why no more."""
    topology = parse(text)
    sender, relay = Member("a", topology), Member("r", topology)
    for at in range(50):
        for _, came in sender.step(Submit(("b",), bytes(36)), at).send:
            if refused := relay.step(Arrived("a", came), at).refused:
                return relay, at, str(refused[0])
        for peer in peers:
            ack = StableAck(at + 1) if topology.stability and peer == "b" else None
            relay.step(Arrived(peer, Packet("B", (), (), at + 1, stable_ack=ack)), at)
    return relay, 50, ""


@pytest.mark.parametrize("ordering", ["vector", "clocked"])
def test_a_relay_keeps_no_markers_for_a_peer_that_acknowledges_and_never_reports(ordering: str) -> None:
    """A captured server says of nothing that all have it. Messages for another one leave only markers for it, which end here."""
    relay, taken, _ = send_past(MARKED.format(ordering=ordering, stability="true"), "b", "captured")
    assert (taken, relay.attachment.queued()["captured"], relay.attachment.queued()["b"]) == (50, 0, 0)
    assert not relay.step(Arrived("captured", Packet("B", (), (), 50, stable_ack=StableAck(50))), 51).refused


@pytest.mark.parametrize("ordering", ["vector", "clocked"])
@pytest.mark.parametrize("stability", ["true", "false"])
def test_markers_for_a_peer_that_acknowledges_nothing_are_few(
    ordering: str, stability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 10)
    _, taken, why = send_past(MARKED.format(ordering=ordering, stability=stability), "b")
    assert (taken, "the queue to 'captured' in 'B' is full: 8 frames are not acknowledged; MAX_QUEUED_HARD is 10" in why) == (
        8,
        True,
    ), why
