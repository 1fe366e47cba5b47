"""Every ack policy keeps the rules of ``core.stability.policy``: acks of stable and of safe frames. Broken ones do not pass.

Two members, a teller and a waiter; the packets between them are made by hand. ``unit/core/stability`` tries what an ack means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from thence.core.ordering import ArrivalOrder
from thence.core.ordering.vector import VectorStamp
from thence.core.stability.policy import AckPolicy
from thence.core.stability.safe import SAFE_WITHIN_NS, SafeAcks
from thence.core.stability.stable import STABLE_WITHIN_NS, StableAcks
from thence.core.transport.acks import RESEND_AT_MOST_NS
from thence.core.transport.base import Packets, Transport
from thence.core.transport.channels import PeerChannels
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Frame, Packet, SafeAck, StableAck
from thence.errors import ImpossibleFrame, MalformedFrame

RESEND_NS = 200_000_000
OTHER = {"a": "b", "b": "a"}
PACKET: Packet[Any] = Packet("d", ())
FRAMES: Packet[Any] = Packet("d", (Frame(VectorStamp(1, ()), Envelope("x", 1, None, b"")),), (1,))
"""A packet that goes for its own reasons."""


class Pair:
    """A teller and a waiter with one kind of acks between them."""

    policy: ClassVar[type[Any]]
    ack: ClassVar[type[Any]]
    within_ns: ClassVar[int]

    def __init__(self, policy: type[Any] | None = None, *, exact: bool = False) -> None:
        self.teller, self.waiter = self.made(policy, "b", exact=exact), self.made(policy, "a", exact=exact)

    def made(self, policy: type[Any] | None, me: str, *, exact: bool) -> AckPolicy[Any]:
        inner: Transport = Direct("d", me, [OTHER[me]])
        if not exact:
            inner = PeerChannels("d", me, [OTHER[me]], ArrivalOrder.ANY, RESEND_NS)
        made: AckPolicy[Any] = (policy or self.policy)(inner, None if exact else RESEND_NS)
        return made

    def frame(self) -> None:
        """A frame went from one to the other, and whoever waits begins to wait."""
        raise NotImplementedError

    def news(self, number: int) -> None:
        """The teller learns that this frame is what the ack says."""
        raise NotImplementedError

    def told(self) -> int:
        """Return up to which frame the waiter has been told."""
        raise NotImplementedError

    def after(self, number: int) -> None:
        """So many frames went, and the teller knows of all of them."""
        for at in range(1, number + 1):
            self.frame()
            self.news(at)


class Stable(Pair):
    """The sender waits; the receiver tells it which frames are stable."""

    policy, ack, within_ns = StableAcks, StableAck, STABLE_WITHIN_NS
    teller: StableAcks
    waiter: StableAcks

    def frame(self) -> None:
        self.waiter.pushed([("b", Frame(VectorStamp(1, ()), Envelope("a", self.waiter.peers["b"].sent + 1, None, b"")))], "")

    def news(self, number: int) -> None:
        self.teller.add("a", number)

    def told(self) -> int:
        return self.waiter.peers["b"].gone_upto


class Safe(Pair):
    """The receiver waits; the sender tells it which frames are safe."""

    policy, ack, within_ns = SafeAcks, SafeAck, SAFE_WITHIN_NS
    teller: SafeAcks
    waiter: SafeAcks

    def frame(self) -> None:
        number = self.teller.peers["a"].sent + 1
        self.teller.pushed([("a", Frame(VectorStamp(number, ()), Envelope("b", number, None, b"")))], "")
        self.waiter.took("b", number)

    def news(self, number: int) -> None:
        self.teller.tell_own(number)

    def told(self) -> int:
        return self.waiter.peers["b"].heard


PAIRS: tuple[type[Pair], ...] = (Stable, Safe)
Make = Callable[..., Pair]


def going(policy: AckPolicy[Any], now: int, packets: Packets | None = None) -> list[Any]:
    """Return the acks that go out now, with these packets or alone."""
    policy.visit_all()
    return [getattr(packet, policy.part) for _, packet in policy.attach(packets or [], now)]


def bring(policy: AckPolicy[Any], ack: Any, now: int) -> None:
    """Let an ack arrive."""
    (peer,) = policy.peers
    packet: Packet[Any] = Packet("d", (), **{policy.part: ack})
    policy.check(peer, packet)
    policy.came(peer, packet, now)


# --- the rules ---------------------------------------------------------------------------------------------------------


def it_goes_with_the_next_packet(make: Make) -> None:
    pair = make()
    pair.after(2)
    packets = pair.teller.attach([("a", FRAMES)], 0)
    (told,) = [getattr(packet, pair.teller.part) for _, packet in packets]
    assert told == pair.ack(2)
    assert packets[0][1].frames == FRAMES.frames
    bring(pair.waiter, told, 1)
    assert pair.told() == 2
    assert going(pair.teller, 10**12) == [], "it was told"


def it_goes_alone_after_a_while(make: Make) -> None:
    pair = make()
    pair.after(1)
    assert going(pair.teller, 7) == []
    assert pair.teller.wake_at == 7 + pair.within_ns
    assert going(pair.teller, pair.teller.wake_at - 1) == []
    (told,) = going(pair.teller, 7 + pair.within_ns)
    assert told == pair.ack(1)
    assert going(pair.teller, 10**12) == []
    assert vars(pair.teller)["wake_at"] is None


def who_waits_asks_less_and_less_often_for_ever(make: Make) -> None:
    pair = make()
    pair.frame()
    now, waits = 0, []
    for _ in range(12):
        assert going(pair.waiter, now) == []
        assert pair.waiter.wake_at is not None
        waits.append(pair.waiter.wake_at - now)
        now = pair.waiter.wake_at
        (question,) = going(pair.waiter, now)
        assert question.wanted
    assert (waits[0], waits[-1]) == (RESEND_NS, RESEND_AT_MOST_NS)
    assert waits == sorted(waits)


def who_is_asked_tells_everything_again(make: Make) -> None:
    pair = make()
    pair.after(3)
    assert len(going(pair.teller, 0, [("a", FRAMES)])) == 1, "and this is lost"
    going(pair.waiter, 0)
    (question,) = going(pair.waiter, RESEND_NS)
    bring(pair.teller, question, RESEND_NS)
    (answer,) = going(pair.teller, RESEND_NS)
    assert answer == pair.ack(3)
    bring(pair.waiter, answer, RESEND_NS)
    assert pair.told() == 3
    assert going(pair.waiter, 10**12) == [], "nobody waits any longer"
    assert vars(pair.waiter)["wake_at"] is None


def a_new_connection_asks_and_tells_at_once(make: Make) -> None:
    pair = make()
    pair.after(1)
    going(pair.teller, 0, [("a", FRAMES)])
    pair.teller.connected("a")
    pair.waiter.connected("b")
    (told,) = pair.teller.attach([], 1)
    (asked,) = pair.waiter.attach([], 1)
    assert getattr(told[1], pair.teller.part).upto == 1
    assert getattr(asked[1], pair.waiter.part).wanted


def what_cannot_be_is_refused_and_changes_nothing(make: Make) -> None:
    pair, twin = make(), make()
    for one in (pair, twin):
        one.frame()
    for broken, error in ((pair.ack(2), ImpossibleFrame), (pair.ack(-1), MalformedFrame), (pair.ack(2, True), ImpossibleFrame)):
        with pytest.raises(error):
            bring(pair.waiter, broken, 0)
    assert pair.told() == 0
    assert pair.waiter.to_visit == twin.waiter.to_visit
    for now in (0, RESEND_NS - 1, RESEND_NS, 10**10):
        assert going(pair.waiter, now) == going(twin.waiter, now)


def an_old_ack_takes_nothing_back(make: Make) -> None:
    pair = make()
    pair.after(3)
    for upto in (2, 1, 2, 3, 1):
        bring(pair.waiter, pair.ack(upto), 0)
    assert pair.told() == 3
    assert going(pair.waiter, 10**12) == []


def where_the_network_is_exact_nobody_asks_or_waits(make: Make) -> None:
    pair = make(exact=True)
    pair.after(1)
    assert going(pair.waiter, 10**12) == []
    assert vars(pair.waiter)["wake_at"] is None
    (told,) = going(pair.teller, 5)
    assert told == pair.ack(1)


Rule = Callable[[Make], None]
RULES: tuple[Rule, ...] = (
    it_goes_with_the_next_packet,
    it_goes_alone_after_a_while,
    who_waits_asks_less_and_less_often_for_ever,
    who_is_asked_tells_everything_again,
    a_new_connection_asks_and_tells_at_once,
    what_cannot_be_is_refused_and_changes_nothing,
    an_old_ack_takes_nothing_back,
    where_the_network_is_exact_nobody_asks_or_waits,
)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__.lower())
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_an_ack_policy(rule: Rule, pair: type[Pair]) -> None:
    rule(pair)


# --- planted -----------------------------------------------------------------------------------------------------------


class GoesAlone(SafeAcks):
    """Takes no packet that goes there anyway."""

    def attach(self, packets: Packets, now: int) -> Packets:
        return packets + super().attach([], now)


class WaitsForAPacket(StableAcks):
    """Never goes alone."""

    def attach(self, packets: Packets, now: int) -> Packets:
        return super().attach(packets, now)[: len(packets)]


class AsksAllTheTime(SafeAcks):
    """Asks as often in the end as in the beginning."""

    def _asks(self, peer: Any, now: int) -> bool:
        asks = super()._asks(peer, now)
        if asks:
            peer.ask.due = now + self._wait_ns
            self.wake_at = peer.ask.due
        return asks


class AsksOnce(StableAcks):
    """Gives up."""

    def _asks(self, peer: Any, now: int) -> bool:
        asks = super()._asks(peer, now)
        if asks:
            peer.ask.due = 10**15
            self.wake_at = None
        return asks


class AnswersNobody(StableAcks):
    """Does not look at questions."""

    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        ack = packet.stable_ack
        assert ack is not None
        super().came(peer, Packet("d", (), stable_ack=StableAck(ack.upto)), now)


class NoticesNoConnection(SafeAcks):
    """Goes on as if nothing had been lost."""

    def connected(self, peer: str) -> None:
        pass


class BelievesAnything(StableAcks):
    """Refuses nothing."""

    def check(self, peer: str, packet: Packet[Any]) -> None:
        pass


class BelievesTheLast(SafeAcks):
    """Takes back what it was told before."""

    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        super().came(peer, packet, now)
        if packet.safe_ack is not None:
            self.peers[peer].heard = packet.safe_ack.upto


class DistrustsTheNetwork(StableAcks):
    """Lets acks wait where nothing is lost."""

    def __init__(self, inner: Transport, resend_after_ns: int | None) -> None:
        super().__init__(inner, resend_after_ns)
        for peer in self.peers.values():
            peer.timer.within_ns = STABLE_WITHIN_NS


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (GoesAlone, it_goes_with_the_next_packet),
        (WaitsForAPacket, it_goes_alone_after_a_while),
        (AsksAllTheTime, who_waits_asks_less_and_less_often_for_ever),
        (AsksOnce, who_waits_asks_less_and_less_often_for_ever),
        (AnswersNobody, who_is_asked_tells_everything_again),
        (NoticesNoConnection, a_new_connection_asks_and_tells_at_once),
        (BelievesAnything, what_cannot_be_is_refused_and_changes_nothing),
        (BelievesTheLast, an_old_ack_takes_nothing_back),
        (DistrustsTheNetwork, where_the_network_is_exact_nobody_asks_or_waits),
    ],
)
def test_a_broken_policy_is_noticed(broken: type[StableAcks | SafeAcks], rule: Rule) -> None:
    pair = Stable if issubclass(broken, StableAcks) else Safe

    def make(**options: Any) -> Pair:
        return pair(broken, **options)

    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        rule(make)
