"""Exactly once over a network that loses, repeats and reorders."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.ordering import ArrivalOrder
from thence.core.ordering.fifo import FifoStamp
from thence.core.topology.ack_options import RESEND_AFTER_NS, AckOptions
from thence.core.transport.acks import ACK_BYTES, RESEND_AT_MOST_NS
from thence.core.transport.channel import ACK_EVERY, RESEND_BURST, WINDOW, Channel, Pace
from thence.core.transport.window import FIRST_WINDOW_BYTES, PACKET_BYTES, WINDOW_BYTES
from thence.core.wire.messages import FRAME_WEIGHT, Envelope, Frame, Packet
from thence.errors import ImpossibleFrame, MalformedFrame

MS = 1_000_000
BOTH = pytest.mark.parametrize("arrival", list(ArrivalOrder), ids=lambda arrival: arrival.value)


def frame(number: int) -> Frame[FifoStamp]:
    return Frame(FifoStamp(number), Envelope("A", number, None, b""))


def sending(count: int, arrival: ArrivalOrder = ArrivalOrder.ANY) -> Channel:
    channel = Channel(arrival)
    for number in range(1, count + 1):
        channel.push(frame(number))
    return channel


def packet(*numbers: int, taken: int = 0, beyond: tuple[int, ...] = ()) -> Packet[Any]:
    return Packet("d", tuple(frame(number) for number in numbers), numbers, taken, beyond)


def sent(channel: Channel, now: int = 0) -> Packet[Any]:
    found = channel.collect("d", now)
    assert found is not None
    return found


def wake_at(channel: Channel) -> int | None:
    """Return when there will be something to do, if nothing comes in before."""
    return min([time for time in (channel.resend_at, channel.acks.at) if time is not None], default=None)


def take_all(channel: Channel, arrived: Packet[Any], now: int = 0) -> list[int]:
    fresh = channel.arrived(arrived, now)
    for number, _ in fresh:
        assert channel.state.received.add(number)
    return [number for number, _ in fresh]


# --- sending -----------------------------------------------------------------------------------------------------------


def test_frames_go_out_once_and_in_order() -> None:
    channel = sending(3)
    assert sent(channel).numbers == (1, 2, 3)
    assert channel.collect("d", 1) is None
    channel.push(frame(4))
    assert sent(channel, 2).numbers == (4,)


def test_nothing_to_say_is_no_packet() -> None:
    assert Channel(ArrivalOrder.ANY).collect("d", 0) is None


def test_what_is_acknowledged_is_dropped() -> None:
    channel = sending(5)
    sent(channel)
    channel.arrived(packet(taken=2, beyond=(4,)), 1)
    assert list(channel.state.queue) == [3, 5]
    channel.arrived(packet(taken=5), 2)
    assert channel.state.queue == {}
    assert channel.resend_at is None


def test_sending_again_backs_off_and_never_gives_up() -> None:
    channel = sending(1)
    sent(channel, 0)
    waits, now = [], 0
    for _ in range(9):
        assert channel.resend_at is not None
        waits.append(channel.resend_at - now)
        assert channel.collect("d", channel.resend_at - 1) is None, "not before its time"
        now = channel.resend_at
        assert sent(channel, now).numbers == (1,)
    assert waits[:4] == [RESEND_AFTER_NS, 2 * RESEND_AFTER_NS, 4 * RESEND_AFTER_NS, 8 * RESEND_AFTER_NS]
    assert waits[-1] == RESEND_AT_MOST_NS
    assert channel.resent == 9


def test_an_acknowledgement_restores_patience() -> None:
    channel = sending(2)
    sent(channel, 0)
    for _ in range(4):
        assert channel.resend_at is not None
        sent(channel, channel.resend_at)
    channel.arrived(packet(taken=1), 10**12)
    assert channel.resend_at == 10**12 + RESEND_AFTER_NS


def test_one_attempt_repeats_the_oldest() -> None:
    channel = sending(RESEND_BURST + 10)
    sent(channel, 0)
    assert sent(channel, RESEND_AFTER_NS).numbers == tuple(range(1, RESEND_BURST + 1))


def test_the_window_bounds_what_is_on_its_way() -> None:
    channel = sending(WINDOW + 5)
    assert sent(channel).numbers[-1] == WINDOW
    assert channel.collect("d", 1) is None
    channel.arrived(packet(taken=3), 2)
    assert sent(channel, 2).numbers == (WINDOW + 1, WINDOW + 2, WINDOW + 3)
    channel.arrived(packet(taken=3, beyond=tuple(range(5, 100))), 3)
    assert channel.collect("d", 3) is None, "the oldest one still holds the window"


def test_the_window_bounds_bytes_too() -> None:
    channel = Channel(ArrivalOrder.ANY)
    third = FIRST_WINDOW_BYTES // 3
    for number in range(1, 6):
        channel.push(Frame(FifoStamp(number), Envelope("A", number, None, bytes(third - FRAME_WEIGHT))))
    assert channel.queued_bytes == 5 * third
    assert sent(channel).numbers == (1, 2, 3)
    assert channel.collect("d", 1) is None
    channel.arrived(packet(taken=1, beyond=(3,)), 2)
    assert sent(channel, 2).numbers == (4, 5)
    channel.arrived(packet(taken=5), 3)
    assert channel.queued_bytes == 0


def test_what_is_more_than_a_packet_goes_in_several() -> None:
    channel = Channel(ArrivalOrder.ANY, pace=Pace(least_window_bytes=WINDOW_BYTES))
    count = WINDOW_BYTES // (64 * 1024)
    for number in range(1, count + 1):
        channel.push(large(number))
    packets = [sent(channel)]
    while channel.more:
        packets.append(sent(channel))
    sizes = [sum(frame.weight for frame in each.frames) for each in packets]
    assert [number for each in packets for number in each.numbers] == list(range(1, count))
    assert max(sizes) <= PACKET_BYTES
    assert min(sizes[:-1]) > PACKET_BYTES - 2 * 64 * 1024
    assert channel.collect("d", 0) is None, "the window is full"


def test_one_frame_may_be_larger_than_the_window() -> None:
    channel = sending(1)
    channel.push(Frame(FifoStamp(2), Envelope("A", 2, None, bytes(FIRST_WINDOW_BYTES))))
    assert sent(channel).numbers == (1,)
    channel.arrived(packet(taken=1), 1)
    assert sent(channel, 1).numbers == (2,)


def large(number: int) -> Frame[FifoStamp]:
    return Frame(FifoStamp(number), Envelope("A", number, None, bytes(64 * 1024)))


def rounds(channel: Channel, round_trip_ns: Callable[[int], int], count: int = 12) -> list[int]:
    """Send without end over a line whose round trip depends on what is on its way; return the window after each round."""
    now, windows = 0, []
    for _ in range(count):
        for _ in range(2 * WINDOW_BYTES // (64 * 1024)):
            channel.push(large(channel.state.last_number + 1))
        numbers = sent(channel, now).numbers
        while channel.more:
            numbers += sent(channel, now).numbers
        now += round_trip_ns(len(numbers) * 64 * 1024)
        channel.arrived(packet(taken=numbers[-1]), now)
        windows.append(channel.window.bytes)
    return windows


def test_the_window_grows_on_a_long_line_up_to_its_limit() -> None:
    windows = rounds(sending(0), lambda _: 100 * MS)
    assert windows[:3] == [2 * FIRST_WINDOW_BYTES, 4 * FIRST_WINDOW_BYTES, 8 * FIRST_WINDOW_BYTES]
    assert windows[-1] == WINDOW_BYTES


def test_the_window_stays_small_where_more_would_only_wait() -> None:
    channel = sending(1)
    sent(channel, 0)
    channel.arrived(packet(taken=1), MS // 10)
    assert set(rounds(channel, lambda flying: flying * 10)) == {FIRST_WINDOW_BYTES}


def test_where_a_disk_is_waited_for_the_window_is_large_from_the_beginning() -> None:
    channel = Channel(ArrivalOrder.ANY, pace=Pace(least_window_bytes=WINDOW_BYTES))
    sent_first = rounds(channel, lambda flying: flying * 10)
    assert set(sent_first) == {WINDOW_BYTES}


def test_the_window_of_a_new_way_is_small_again() -> None:
    channel = sending(0)
    assert rounds(channel, lambda _: 100 * MS)[-1] == WINDOW_BYTES
    channel.connected()
    assert channel.window.bytes == FIRST_WINDOW_BYTES


def test_a_round_in_which_something_was_repeated_says_nothing() -> None:
    channel = sending(0)
    for number in range(1, 10):
        channel.push(large(number))
    first = sent(channel, 0).numbers
    assert channel.resend_at is not None
    assert sent(channel, channel.resend_at).numbers == first
    channel.arrived(packet(taken=first[-1]), RESEND_AFTER_NS + 1)
    assert channel.window.bytes == FIRST_WINDOW_BYTES


def test_over_a_new_way_everything_unacknowledged_is_due_at_once() -> None:
    channel = sending(4)
    assert sent(channel).numbers == (1, 2, 3, 4)
    channel.arrived(packet(taken=1, beyond=(3,)), MS)
    assert channel.collect("d", MS) is None
    channel.connected()
    assert sent(channel, MS).numbers == (2, 4)
    assert wake_at(channel) == MS + RESEND_AFTER_NS


def test_after_a_restart_everything_unacknowledged_is_due() -> None:
    channel = sending(3)
    sent(channel)
    channel.arrived(packet(taken=1), 1)
    reborn = Channel(ArrivalOrder.ANY)
    reborn.state = channel.state
    assert sent(reborn, 5).numbers == (2, 3)


def test_what_is_acknowledged_meanwhile_does_not_put_off_what_is_lost() -> None:
    channel = sending(1)
    sent(channel, 0)
    for now in range(50, 201, 50):
        channel.push(frame(channel.state.last_number + 1))
        sent(channel, now * MS - 1)
        channel.arrived(packet(beyond=(channel.state.last_number,)), now * MS - 1)
    assert channel.resend_at == RESEND_AFTER_NS
    assert sent(channel, RESEND_AFTER_NS).numbers == (1,)


# --- delayed ack ----------------------------------------------------------------------------------------------

DELAYED = AckOptions(after_messages=3, after_ns=50 * MS)


def test_a_confirmation_waits_for_frames_or_for_time() -> None:
    channel = Channel(ArrivalOrder.ANY, RESEND_AFTER_NS, DELAYED)
    take_all(channel, packet(1), 0)
    assert channel.collect("d", 0) is None
    take_all(channel, packet(2), 10 * MS)
    assert channel.collect("d", 10 * MS) is None
    assert wake_at(channel) == 50 * MS, "from the first one on"
    take_all(channel, packet(3), 20 * MS)
    assert sent(channel, 20 * MS).acked == 3
    take_all(channel, packet(4), 30 * MS)
    assert channel.collect("d", 80 * MS - 1) is None
    assert wake_at(channel) == 80 * MS
    assert sent(channel, 80 * MS).acked == 4
    assert wake_at(channel) is None


def test_a_confirmation_travels_along() -> None:
    channel = Channel(ArrivalOrder.ANY, RESEND_AFTER_NS, DELAYED)
    take_all(channel, packet(1), 0)
    channel.push(frame(1))
    assert sent(channel, 1).acked == 1
    assert channel.collect("d", 60 * MS) is None, "it has been said already"
    assert wake_at(channel) == 1 + RESEND_AFTER_NS


def test_what_comes_again_is_confirmed_at_once() -> None:
    channel = Channel(ArrivalOrder.ANY, RESEND_AFTER_NS, DELAYED)
    take_all(channel, packet(1), 0)
    assert channel.collect("d", 0) is None
    take_all(channel, packet(1), 1)
    assert sent(channel, 1).acked == 1


# --- receiving ---------------------------------------------------------------------------------------------------------


@BOTH
def test_each_number_is_let_through_once(arrival: ArrivalOrder) -> None:
    channel = Channel(arrival)
    assert take_all(channel, packet(1, 2)) == [1, 2]
    assert take_all(channel, packet(2, 1, 3)) == [3]
    assert channel.inbound.repeated == 2


def test_any_order_is_let_through_where_any_will_do() -> None:
    channel = Channel(ArrivalOrder.ANY)
    assert take_all(channel, packet(3, 1)) == [3, 1]
    answer = sent(channel)
    assert (answer.acked, answer.acked_beyond) == (1, (3,))


def test_early_frames_wait_unacknowledged_where_fifo_is_needed() -> None:
    channel = Channel(ArrivalOrder.FIFO)
    assert take_all(channel, packet(3, 2)) == []
    answer = sent(channel)
    assert (answer.acked, answer.acked_beyond) == (0, ())
    assert take_all(channel, packet(1)) == [1, 2, 3]
    assert sent(channel).acked == 3


@BOTH
def test_a_number_beyond_the_window_is_ignored(arrival: ArrivalOrder) -> None:
    """Who keeps to the window never sends it; it would make us remember holes without bound."""
    channel = Channel(arrival)
    assert take_all(channel, packet(WINDOW + 1)) == []
    assert sent(channel).acked_beyond == ()
    assert take_all(channel, packet(WINDOW)) == ([WINDOW] if arrival is ArrivalOrder.ANY else [])


def test_a_repeated_frame_is_acknowledged_again() -> None:
    channel = Channel(ArrivalOrder.ANY)
    take_all(channel, packet(1))
    sent(channel)
    take_all(channel, packet(1))
    assert sent(channel).acked == 1
    assert channel.collect("d", 1) is None


def test_numbers_and_frames_must_match() -> None:
    with pytest.raises(MalformedFrame, match=r"'B'.*1 frame and 0 numbers"):
        Channel(ArrivalOrder.ANY).check("B", Packet("d", (frame(1),)))


@pytest.mark.parametrize("claim", [packet(taken=3), packet(beyond=(7,)), packet(taken=1, beyond=(3,))])
def test_what_was_never_sent_cannot_be_acknowledged(claim: Packet[Any]) -> None:
    channel = sending(2)
    with pytest.raises(ImpossibleFrame, match="of 2"):
        channel.check("B", claim)
    channel.check("B", packet(taken=2))


# --- both ends together ------------------------------------------------------------------------------------------------


class Pair:
    """Two ends of a channel and a bad network between them."""

    def __init__(self, arrival: ArrivalOrder, chance: random.Random) -> None:
        self.ends = (Channel(arrival), Channel(arrival))
        self.network: list[tuple[int, Packet[Any]]] = []
        self.got: tuple[list[int], list[int]] = ([], [])
        self.chance = chance
        self.now = 0

    def speak(self, end: int, keep: Callable[[], bool]) -> None:
        found = self.ends[end].collect("d", self.now)
        if found is not None:
            self.network += [(1 - end, found)] * (1 + (self.chance.random() < 0.2)) if keep() else []

    def hear(self) -> None:
        end, found = self.network.pop(self.chance.randrange(len(self.network)))
        self.ends[end].check("peer", found)
        for number, heard in self.ends[end].arrived(found, self.now):
            if self.ends[end].state.received.add(number):
                assert heard.envelope is not None
                self.got[end].append(heard.envelope.number)

    def settle(self) -> None:
        """Let time pass on a network that loses nothing any more, until both ends have nothing left to say."""
        for _ in range(400):
            self.now += RESEND_AT_MOST_NS
            for end in (0, 1):
                self.speak(end, lambda: True)
            while self.network:
                self.hear()
            if not any(end.state.queue for end in self.ends):
                return
        raise AssertionError("a frame never gets through")


@BOTH
@given(seed=st.integers(0, 2**32), loss=st.sampled_from([0.0, 0.3, 0.8]))
def test_exactly_once_whatever_the_network_does(arrival: ArrivalOrder, seed: int, loss: float) -> None:
    chance = random.Random(seed)
    pair = Pair(arrival, chance)
    pushed = [0, 0]
    for _ in range(80):
        pair.now += chance.choice([0, 1, RESEND_AFTER_NS // 2, RESEND_AFTER_NS])
        end = chance.randrange(2)
        if chance.random() < 0.4:
            pushed[end] += 1
            pair.ends[end].push(frame(pushed[end]))
        pair.speak(end, lambda: chance.random() >= loss)
        if pair.network and chance.random() < 0.6:
            pair.hear()
    pair.settle()
    for end in (0, 1):
        expected = list(range(1, pushed[1 - end] + 1))
        assert sorted(pair.got[end]) == expected
        if arrival is ArrivalOrder.FIFO:
            assert pair.got[end] == expected


# --- acks that wait for company ---------------------------------------------------------------------------------


def waiting(frames: int) -> Channel:
    """A channel that has taken some small frames, one at a time, and may wait a little before it says so."""
    channel = Channel(ArrivalOrder.ANY, pace=Pace(ack_within_ns=5 * MS))
    for number in range(1, frames + 1):
        take_all(channel, packet(number))
    return channel


def test_a_confirmation_goes_with_a_frame_that_goes_the_same_way() -> None:
    channel = waiting(1)
    assert channel.collect("d", 0) is None
    assert wake_at(channel) == 5 * MS
    channel.push(frame(1))
    assert (sent(channel, MS).numbers, channel.acks.at) == ((1,), None)


def test_a_confirmation_waits_for_so_long() -> None:
    channel = waiting(1)
    assert channel.collect("d", 5 * MS - 1) is None
    assert sent(channel, 5 * MS).acked == 1


def test_a_confirmation_waits_for_so_many_frames_and_bytes() -> None:
    assert waiting(ACK_EVERY - 1).collect("d", 0) is None
    assert sent(waiting(ACK_EVERY), 0).acked == ACK_EVERY
    channel = waiting(1)
    take_all(channel, Packet("d", (Frame(FifoStamp(2), Envelope("A", 2, None, bytes(ACK_BYTES))),), (2,)))
    assert sent(channel, 0).acked == 2


def test_what_comes_twice_is_confirmed_at_once() -> None:
    channel = waiting(2)
    assert take_all(channel, packet(2)) == []
    assert sent(channel, 0).acked == 2
