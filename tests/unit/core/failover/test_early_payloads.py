"""Bodies that go ahead of their messages, step by step: who sends them, what waits for what, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.failover import early_payloads
from thence.core.failover.early_payloads import AHEAD, MAX_AHEAD, MAX_AHEAD_KEPT, BodyAhead
from thence.core.member.contract import Arrived, Ready, Restored, Submit, Timer
from thence.core.member.member import Member
from thence.core.ordering.vector import VectorStamp
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.records import Received
from thence.errors import MalformedFrame, StorageError
from thence.sim.world import World

RESEND_NS = 200_000_000
ALL = AckOptions(scheme="distributed")


def chain(forward_early: int | None = 0, acks: AckOptions | None = None) -> Topology:
    """Return a process X, its server S, and another server Z behind it."""
    return Topology(
        "chain",
        [
            Domain("local", ("X", "S"), "vector", forward_early=forward_early),
            Domain("servers", ("S", "Z"), "vector", acks=acks or AckOptions()),
        ],
    )


def packets_to(ready: Ready, peer: str) -> list[Packet[Any]]:
    return [packet for target, packet in ready.send if target == peer]


class Chain:
    """X has written ``bodies`` to Z; S has got all but the first one."""

    def __init__(self, where: Topology, *bodies: bytes) -> None:
        self.where = where
        self.members = {name: Member(name, where) for name in "XSZ"}
        sent = [packets_to(self.members["X"].step(Submit(("Z",), body), 0), "S")[0] for body in bodies]
        self.first = sent[0]
        self.waiting = [self.members["S"].step(Arrived("X", packet), 1) for packet in sent[1:]]

    def release(self) -> list[Packet[Any]]:
        """Let the first one come; return what S then sends to Z."""
        return packets_to(self.members["S"].step(Arrived("X", self.first), 2), "Z")

    def arrive(self, packet: Packet[Any], at: str = "Z", source: str = "S", now: int = 3) -> list[bytes]:
        """Let a packet arrive; return the bodies of what is delivered."""
        ready = self.members[at].step(Arrived(source, packet), now)
        assert ready.refused == ()
        return [delivery.envelope.body for delivery in ready.deliver]


@pytest.mark.parametrize("acks", [AckOptions(), ALL], ids=["channels", "distributed"])
def test_a_body_goes_ahead_and_its_message_follows_without_it(acks: AckOptions) -> None:
    run = Chain(chain(acks=acks), b"one", b"two")
    (early,) = packets_to(run.waiting[0], "Z")
    assert early.frames == (Frame(AHEAD, Envelope("X", 2, ("Z",), b"two")),)
    (late,) = run.release()
    assert [(frame.envelope and frame.envelope.body, frame.bodiless) for frame in late.frames] == [(b"one", False), (b"", True)]
    assert run.arrive(early) == []
    assert run.members["Z"].attachment.domains["servers"].bodies.kept() == 1
    assert run.arrive(late) == [b"one", b"two"]
    assert run.members["Z"].attachment.domains["servers"].bodies.kept() == 0


@pytest.mark.parametrize("acks", [AckOptions(), ALL], ids=["channels", "distributed"])
def test_a_message_waits_for_its_body_unconfirmed_and_out_of_sight(acks: AckOptions) -> None:
    run = Chain(chain(acks=acks), b"one", b"two")
    (early,), (late,) = packets_to(run.waiting[0], "Z"), run.release()
    ready = run.members["Z"].step(Arrived("S", late), 3)
    assert [delivery.envelope.body for delivery in ready.deliver] == [b"one"]
    assert [record.number for record in ready.persist if isinstance(record, Received)] == [1]
    run.members["S"].step(Arrived("Z", packets_to(ready, "S")[0]), 4)
    assert run.members["S"].attachment.queued()["Z"] == 1, "only one is acknowledged"
    assert run.arrive(early) == [b"two"]


@pytest.mark.parametrize("acks", [AckOptions(), ALL], ids=["channels", "distributed"])
def test_what_is_repeated_is_whole(acks: AckOptions) -> None:
    run = Chain(chain(acks=acks), b"one", b"two")
    (early,), (late,) = packets_to(run.waiting[0], "Z"), run.release()
    (again,) = packets_to(run.members["S"].step(Timer(), 2 + RESEND_NS), "Z")
    assert [frame.envelope and frame.envelope.body for frame in again.frames] == [b"one", b"two"]
    assert not any(frame.bodiless for frame in again.frames)
    assert run.arrive(late) == [b"one"]
    assert run.arrive(again) == [b"two"]
    assert run.arrive(late) == [], "what we had is a repetition, body or no body"
    assert run.members["Z"].attachment.domains["servers"].bodies.kept() == 0
    assert run.arrive(early) == []


def test_a_relay_that_restarts_sends_everything_whole() -> None:
    run = Chain(chain(), b"one", b"two")
    records = [record for ready in run.waiting for record in ready.persist]
    reborn = run.members["S"] = Member("S", run.where)
    assert packets_to(reborn.step(Restored(None, records, 0), 1), "Z") == []
    (late,) = run.release()
    assert run.arrive(late) == [b"one", b"two"]


def test_a_receiver_that_restarts_gets_it_again() -> None:
    run = Chain(chain(), b"one", b"two")
    (early,), (late,) = packets_to(run.waiting[0], "Z"), run.release()
    run.arrive(early)
    run.members["Z"] = Member("Z", run.where)
    run.members["Z"].step(Restored(None, (), 0), 2)
    assert run.arrive(late) == [b"one"]
    (again,) = packets_to(run.members["S"].step(Timer(), 2 + RESEND_NS), "Z")
    assert run.arrive(again) == [b"two"]


@pytest.mark.parametrize(("at_least", "goes"), [(None, 0), (4, 0), (3, 1), (0, 1)])
def test_only_bodies_of_the_length_asked_for_go_ahead(at_least: int | None, goes: int) -> None:
    run = Chain(chain(at_least), b"one", b"two")
    assert len(packets_to(run.waiting[0], "Z")) == goes
    assert run.arrive(run.release()[0]) == ([b"one"] if goes else [b"one", b"two"])


def test_a_sender_whose_room_is_full_does_not_send_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Chain(chain(), *[b"x"] * (MAX_AHEAD + 3))
    assert [len(packets_to(ready, "Z")) for ready in run.waiting] == [1] * MAX_AHEAD + [0, 0]
    assert [frame.bodiless for packet in run.release() for frame in packet.frames] == [False, True, True, False, False]
    monkeypatch.setattr(early_payloads, "MAX_AHEAD_BYTES", 5)
    run = Chain(chain(), b"", b"four", b"two", b"1")
    assert [len(packets_to(ready, "Z")) for ready in run.waiting] == [1, 0, 1]


def test_a_receiver_keeps_only_the_newest() -> None:
    member = Member("Z", chain())
    for number in range(1, 2 * MAX_AHEAD_KEPT):
        member.step(Arrived("S", Packet("servers", (Frame(AHEAD, Envelope("X", number, None, b"x")),), (0,))), 0)
        bodiless = Frame(VectorStamp(number, ()), Envelope("Y", number, None, b""), True)
        member.step(Arrived("S", Packet("servers", (bodiless,), (number,))), 0)
    assert member.attachment.domains["servers"].bodies.kept() == 2 * MAX_AHEAD_KEPT


def test_a_body_also_goes_ahead_over_a_link_with_one_pair() -> None:
    domains = [Domain("A", ("a", "r"), "vector", forward_early=0), Domain("B", ("s", "b"), "vector")]
    for pairs, goes in (((("r", "s"),), 1), ((("r", "s"), ("a", "b")), 0)):
        where = Topology("linked", domains, [Link("L", ("A", "B"), pairs)])
        source, relay = Member("a", where), Member("r", where)
        first, second = (packets_to(source.step(Submit(("b",), body), 0), "r")[0] for body in (b"one", b"two"))
        early = packets_to(relay.step(Arrived("a", second), 1), "s")
        assert len(early) == goes
        sent = [frame.bodiless for _, packet in relay.step(Arrived("a", first), 2).send for frame in packet.frames]
        assert sent == [False, bool(goes)]


def test_over_an_exact_network_a_snapshot_keeps_what_waits() -> None:
    for restarted in ("", "body", "message"):
        world, _ = World.of(chain()).send("X", ("Z",), b"one")
        world, _ = world.send("X", ("Z",), b"two")
        world, _ = world.arrive("X", "S", 1)
        world, _ = world.arrive("X", "S", 0)
        stamps = [type(flight.frame.stamp) for flight in world.flights["S", "Z"] if flight.frame is not None]
        assert stamps == [BodyAhead, VectorStamp, VectorStamp]
        first, then = (0, 1) if restarted == "body" else (2, 0)
        world, nothing = world.arrive("S", "Z", first)
        assert nothing.delivered == ()
        world = world.restart("Z") if restarted else world
        world, _ = world.arrive("S", "Z", then)
        world, after = world.arrive("S", "Z", 0)
        assert [delivery.envelope.body for delivery in after.delivered][-1] == b"two"
        assert world.quiet


# --- refusals ----------------------------------------------------------------------------------------------------------------


def packets(*listed: Packet[Any]) -> list[Packet[Any]]:
    return list(listed)


WHOLE = Frame(VectorStamp(1, ()), Envelope("S", 1, None, b"x"))
BODY = Frame(AHEAD, Envelope("S", 1, None, b"x"))


@pytest.mark.parametrize(
    "packet",
    packets(
        Packet("servers", (Frame(VectorStamp(1, ()), Envelope("S", 1, None, b"x"), True),), (1,)),
        Packet("servers", (Frame(VectorStamp(1, ()), None, True),), (1,)),
        Packet("servers", (Frame(VectorStamp(1, ()), Envelope("S", 1, None, b""), True),), ()),
        Packet("servers", (BODY, WHOLE), (0, 1)),
        Packet("servers", (BODY,), (1,)),
        Packet("servers", (BODY,), (0,), 1),
        Packet("servers", (BODY,), (0,), 0, (1,)),
        Packet("servers", (Frame(AHEAD, None),), (0,)),
        Packet("servers", (Frame(AHEAD, Envelope("S", 1, None, b""), True),), (0,)),
        Packet("servers", (BODY,) * (MAX_AHEAD + 1), (0,) * (MAX_AHEAD + 1)),
        Packet("servers", (Frame(AHEAD, Envelope("S", 1, None, bytes(early_payloads.MAX_AHEAD_BYTES + 1))),), (0,)),
    ),
    ids=range(11),
)
def test_what_cannot_be_is_refused_and_changes_nothing(packet: Packet[Any]) -> None:
    member = Member("Z", chain())
    before = member.snapshot()
    ready = member.step(Arrived("S", packet), 0)
    assert [type(refusal) for refusal in ready.refused] == [MalformedFrame]
    assert (member.snapshot(), member.attachment.domains["servers"].bodies.kept(), ready.send) == (before, 0, ())


def test_a_stored_frame_without_its_body_is_refused() -> None:
    record = Received("servers", "S", 1, Frame(VectorStamp(1, ()), Envelope("S", 1, None, b""), True))
    with pytest.raises(StorageError, match="without its body"):
        Member("Z", chain()).step(Restored(None, [record], 0), 0)
