"""Every transport keeps the rules of ``core.transport.base``; broken ones that are planted here do not pass."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.transports import MEMBERS, MS, TRANSPORTS, Faults, Make, Net, channels, peers_of, state_of
from thence.core.transport.base import Incoming, Packets
from thence.core.transport.channels import PeerChannels
from thence.core.wire.messages import Packet
from thence.errors import FrameRefused, StorageError

SEEDS = range(6)
BAD_NETWORK = Faults(loss=0.2, twice=0.2, overtaking=0.4)

every_transport = pytest.mark.parametrize("make", TRANSPORTS.values(), ids=TRANSPORTS)
NOT_EXACT = {name: make for name, make in TRANSPORTS.items() if not make("a").exact}
every_transport_that_repeats = pytest.mark.parametrize("make", NOT_EXACT.values(), ids=NOT_EXACT)


def busy(make: Make, seed: int, messages: int = 20, faults: Faults = BAD_NETWORK) -> Net:
    """Return a run in the middle: some messages have come, some are on their way."""
    net = Net(make, seed, faults)
    for number in range(messages):
        net.send(MEMBERS[number % len(MEMBERS)])
        net.step()
    return net


# --- the rules ---------------------------------------------------------------------------------------------------------


def each_message_is_taken_once(make: Make) -> None:
    for seed in SEEDS:
        net = busy(make, seed)
        net.finish()
        for name in MEMBERS:
            expected = [(peer, number) for peer in peers_of(name) for number in range(1, net.sent[peer] + 1)]
            assert sorted(net.taken[name]) == sorted(expected), f"seed {seed}"


def nothing_is_sent_when_all_is_said(make: Make) -> None:
    net = busy(make, 1)
    net.finish()
    for _ in range(200):
        net.step()
    net.faults = Faults()
    for _ in range(30):  # What may still be asked is asked, and answered.
        net.step()
    assert not any(net.flying.values())
    assert [net.collect(name) for name in MEMBERS] == [0, 0, 0]
    for transport in net.members.values():
        assert sum(transport.queues.by_peer().values()) == 0
        assert transport.queued == transport.queued_bytes == 0


def it_counts_what_moved(make: Make) -> None:
    net = busy(make, 2)
    net.finish()
    for name, transport in net.members.items():
        sent = dict.fromkeys(peers_of(name), net.sent[name])
        taken = {peer: net.sent[peer] for peer in peers_of(name)}
        assert transport.moved() == (sum(sent.values()), sum(taken.values()))
        for peer in peers_of(name):
            assert transport.moved([peer]) == (sum(sent.values()) - sent[peer], sum(taken.values()) - taken[peer])


def nothing_is_acked_before_it_is_taken(make: Make) -> None:
    """Whoever refuses a frame for now gets it again; until it takes it, its sender has to keep it."""
    net = Net(make)
    for _ in range(3):
        net.send("a")
    net.refuse = lambda name, incoming: name == "b" and incoming.number == 2
    for _ in range(300):
        net.step()
    assert ("a", 2) not in net.taken["b"]
    assert not net.members["a"].acked("b", 2)
    assert any(envelope.number == 2 for envelope in net.members["a"].unacked_messages())
    assert net.members["a"].queued > 0
    net.refuse = lambda _, __: False
    net.finish()


def what_is_skipped_does_not_come_again(make: Make) -> None:
    net = Net(make)
    skipped: list[Incoming] = []

    def skip(name: str, incoming: Incoming) -> bool:
        if name == "b" and incoming.number == 2:
            net.members[name].skip(incoming.peer, incoming.number)
            skipped.append(incoming)
            return True
        return False

    net.refuse = skip
    for _ in range(3):
        net.send("a")
    for _ in range(300):
        net.step()
    assert len(skipped) == 1
    assert net.members["a"].acked("b", 2)
    assert [envelope for envelope in net.members["a"].unacked_messages() if envelope.number == 2] == []


def it_knows_what_it_had(make: Make) -> None:
    net = Net(make)
    net.send("a")
    net.collect("a")
    packet = net.flying["a", "b"][0]
    assert net.members["b"].had("a", packet) == [False]
    net.arrive("a", "b")
    assert net.members["b"].had("a", packet) == [True]
    assert net.members["b"].frames_in("a", packet, net.now + MS) == []


def a_fork_goes_its_own_way(make: Make) -> None:
    net = busy(make, 3)
    for name, transport in net.members.items():
        before = state_of(transport)
        twin = transport.fork()
        assert state_of(twin) == before
        net.members[name] = twin
        for _ in range(3):
            net.send(name)
        net.collect(name)
        for peer in peers_of(name):
            while net.flying[peer, name]:
                net.arrive(peer, name)
        assert state_of(transport) == before
        assert transport.moved() != twin.moved()


def a_restart_changes_nothing(make: Make) -> None:
    for seed in SEEDS:
        net = Net(make, seed, BAD_NETWORK)
        for number in range(18):
            net.send(MEMBERS[number % 3])
            net.step()
            net.restart(MEMBERS[seed % 3])
        net.finish()
        for name in MEMBERS:
            assert len(net.taken[name]) == len(set(net.taken[name])) == 12, f"seed {seed}"


def impossible_packets_are_refused_and_change_nothing(make: Make) -> None:
    net = busy(make, 4, faults=Faults())
    for name in MEMBERS:
        net.collect(name)
    tried = 0
    for (source, target), packets in net.flying.items():
        transport = net.members[target]
        for packet in packets:
            for bad in spoilt(packet):
                before = state_of(transport)
                with pytest.raises(FrameRefused):
                    transport.check(source, bad)
                with pytest.raises(FrameRefused):
                    transport.frames_in(source, bad, net.now)
                assert state_of(transport) == before
                tried += 1
    assert tried > 0
    net.finish()


def spoilt(packet: Packet[Any]) -> list[Packet[Any]]:
    """Return packets that cannot be: a number too few, and acks of what was never sent."""
    short = Packet(packet.domain, packet.frames, packet.numbers[1:], packet.acked, packet.acked_beyond, packet.group_acks)
    huge = Packet(packet.domain, packet.frames, packet.numbers, 10**6, (), packet.group_acks)
    return [*([short] if packet.numbers else []), *([huge] if packet.group_acks is None else [])]


def the_snapshot_of_another_kind_is_refused(make: Make) -> None:
    for other in TRANSPORTS.values():
        saved = other("a").save()
        fresh = make("a")
        if type(saved) is not type(fresh.save()) or (isinstance(saved, dict) and set(saved) != set(fresh.save())):
            with pytest.raises(StorageError):
                fresh.load(copy.deepcopy(saved))


FOR_ALL: tuple[Callable[[Make], None], ...] = (
    each_message_is_taken_once,
    nothing_is_sent_when_all_is_said,
    it_counts_what_moved,
    a_fork_goes_its_own_way,
    the_snapshot_of_another_kind_is_refused,
)
"""Rules that hold wherever frames are carried."""
FOR_REPEATING: tuple[Callable[[Make], None], ...] = (
    nothing_is_acked_before_it_is_taken,
    what_is_skipped_does_not_come_again,
    it_knows_what_it_had,
    a_restart_changes_nothing,
    impossible_packets_are_refused_and_change_nothing,
)
"""Rules of whoever does not trust the network."""


@every_transport
@pytest.mark.parametrize("rule", FOR_ALL, ids=lambda rule: rule.__name__)
def test_a_transport(make: Make, rule: Callable[[Make], None]) -> None:
    rule(make)


@every_transport_that_repeats
@pytest.mark.parametrize("rule", FOR_REPEATING, ids=lambda rule: rule.__name__)
def test_a_transport_that_repeats(make: Make, rule: Callable[[Make], None]) -> None:
    rule(make)


# --- planted -----------------------------------------------------------------------------------------------------------


class TakesTwice(PeerChannels):
    """Gives frames again that it has."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        super().frames_in(peer, packet, now)
        return [Incoming(peer, number, frame) for number, frame in zip(packet.numbers, packet.frames, strict=True)]


class NeverAgain(PeerChannels):
    """Sends everything once."""

    def visit_all(self) -> None:
        self.wake_at = None


class AcksAtOnce(PeerChannels):
    """Acks a frame before the member has taken it."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        found = super().frames_in(peer, packet, now)
        for one in found:
            self.skip(peer, one.number)
        return found


class SkipsNothing(PeerChannels):
    """Does not note what is refused for good."""

    def skip(self, peer: str, number: int) -> None:
        pass


class ShallowFork(PeerChannels):
    """Shares its channels with its fork."""

    def fork(self) -> PeerChannels:
        return copy.copy(self)


class ForgetsState(PeerChannels):
    """Starts anew whatever was saved."""

    def load(self, saved: Any) -> None:
        pass


class ChecksNothing(PeerChannels):
    """Lets every packet in."""

    def check(self, peer: str, packet: Packet[Any]) -> None:
        pass


class HadNothing(PeerChannels):
    """Does not know what it had."""

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [False] * len(packet.frames)


class CountsWrong(PeerChannels):
    """Counts what it sends twice."""

    def moved(self, without: Any = ()) -> tuple[int, int]:
        sent, taken = super().moved(without)
        return 2 * sent, taken


class NeverQuiet(PeerChannels):
    """Says something whenever it is asked."""

    def collect(self, now: int) -> Packets:
        return super().collect(now) or [(self.peers[0], Packet(self.name, ()))]


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (TakesTwice, each_message_is_taken_once),
        (NeverAgain, each_message_is_taken_once),
        (AcksAtOnce, nothing_is_acked_before_it_is_taken),
        (SkipsNothing, what_is_skipped_does_not_come_again),
        (ShallowFork, a_fork_goes_its_own_way),
        (ForgetsState, a_restart_changes_nothing),
        (ForgetsState, the_snapshot_of_another_kind_is_refused),
        (ChecksNothing, impossible_packets_are_refused_and_change_nothing),
        (HadNothing, it_knows_what_it_had),
        (CountsWrong, it_counts_what_moved),
        (NeverQuiet, nothing_is_sent_when_all_is_said),
    ],
)
def test_a_broken_transport_is_noticed(kind: type[PeerChannels], rule: Callable[[Make], None]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, FrameRefused)):
        rule(channels(kind=kind))
