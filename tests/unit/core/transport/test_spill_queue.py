"""Frames that are too many for memory go elsewhere and come back in their turn, whatever the peer has or has not."""

from __future__ import annotations

import copy

import pytest

from tests.unit.core.transport.test_channel import frame, packet, sent, take_all
from thence.core.member import admission
from thence.core.member.contract import Arrived, Connected, Fetched, Restored, Spilled, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.member.spill import Way
from thence.core.ordering import ArrivalOrder
from thence.core.topology.domain import Domain
from thence.core.topology.toml import parse
from thence.core.transport import channel as channel_module
from thence.core.transport.channel import Channel, Pace
from thence.core.transport.spill_queue import Numbered, SpillRoom
from thence.core.wire.messages import FRAME_WEIGHT
from thence.errors import Busy, UsageError

ROOM = SpillRoom(10, 1_000_000, 4, 1_000_000)


@pytest.fixture(autouse=True)
def _small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "WINDOW", 5)


def spilling(room: SpillRoom | None = ROOM) -> Channel:
    return Channel(ArrivalOrder.FIFO, pace=Pace(spill=room))


def pushed(channel: Channel, *numbers: int) -> None:
    for number in numbers:
        channel.push(frame(number))


def spill_all(channel: Channel) -> dict[int, object]:
    """Let all go elsewhere that should, and return it."""
    elsewhere: dict[int, object] = {}
    while block := channel.block_to_spill():
        elsewhere.update(block)
        channel.spilled(block[-1][0])
    return elsewhere


def away(channel: Channel) -> tuple[int, int] | None:
    found = channel.state.elsewhere
    return None if found is None else (found.first, found.last)


def wants(channel: Channel) -> bool:
    return channel.wanted


def test_what_the_peer_may_be_sent_stays_and_what_is_too_much_behind_it_goes() -> None:
    channel = spilling()
    pushed(channel, *range(1, 10))
    assert list(sent(channel).numbers) == [1, 2, 3, 4, 5]
    assert spill_all(channel) == {}
    pushed(channel, *range(10, 16))
    assert list(spill_all(channel)) == list(range(6, 14))
    assert (away(channel), list(channel.state.queue)) == ((6, 13), [1, 2, 3, 4, 5])
    assert channel.state.elsewhere is not None
    assert list(channel.state.elsewhere.behind) == [14, 15]
    assert (channel.queued, channel.here, channel.queued_bytes) == (15, 7, 7 * FRAME_WEIGHT)


def test_what_comes_later_goes_behind_a_block_at_a_time() -> None:
    channel = spilling()
    pushed(channel, *range(1, 16))
    sent(channel)
    spill_all(channel)
    pushed(channel, 16)
    assert channel.block_to_spill() == []
    pushed(channel, 17)
    assert list(spill_all(channel)) == [14, 15, 16, 17]
    assert (away(channel), channel.here) == ((6, 17), 5)


def test_bytes_count_as_frames_do() -> None:
    channel = spilling(SpillRoom(1_000, 4 * FRAME_WEIGHT, 1_000, 3 * FRAME_WEIGHT))
    pushed(channel, *range(1, 6))
    sent(channel)
    pushed(channel, 6, 7, 8)
    assert channel.block_to_spill() == []
    pushed(channel, 9)
    assert [number for number, _ in channel.block_to_spill()] == [6, 7, 8]


def test_it_is_asked_for_when_the_window_gets_there_and_comes_in_order() -> None:
    channel = spilling()
    pushed(channel, *range(1, 16))
    sent(channel)
    elsewhere = spill_all(channel)
    assert not wants(channel), "five are on their way, and no more may be"
    channel.arrived(packet(taken=3), 0)
    assert wants(channel)
    channel.fetched([(number, frame(number)) for number in range(6, 10)])
    assert (away(channel), elsewhere[6]) == ((10, 13), frame(6))
    assert list(sent(channel).numbers) == [6, 7, 8]
    assert not wants(channel), "one is here that may not be sent yet"
    channel.arrived(packet(taken=8), 0)
    assert list(sent(channel).numbers) == [9]
    assert wants(channel)
    channel.fetched([(number, frame(number)) for number in range(10, 14)])
    assert (away(channel), list(channel.state.queue)) == (None, [9, 10, 11, 12, 13, 14, 15])
    assert (channel.queued, channel.here, channel.queued_bytes, channel.behind_bytes) == (7, 7, 7 * FRAME_WEIGHT, 0)
    assert list(sent(channel).numbers) == [10, 11, 12, 13]


def test_nothing_is_put_between_numbers_that_were_confirmed_out_of_turn() -> None:
    channel = Channel(ArrivalOrder.ANY, pace=Pace(spill=ROOM))
    pushed(channel, *range(1, 8))
    sent(channel)
    channel.arrived(packet(taken=1, beyond=(4,)), 0)
    channel.connected()
    pushed(channel, *range(8, 20))
    assert next(iter(spill_all(channel))) == 5, "4 is taken, and what is elsewhere has no holes"
    assert list(channel.state.queue) == [2, 3]
    again = spilling()
    state = copy.deepcopy(channel.state)
    state.elsewhere = None
    state.queue = {number: frame(number) for number in (2, 3, *range(5, 20))}
    again.load(state)
    assert next(iter(spill_all(again))) == 5, "a snapshot says nothing of what was acknowledged, but its holes do"


@pytest.mark.parametrize("upto", [4, 5, 6, 9, 13, 14, 15])
def test_a_peer_may_have_taken_what_is_elsewhere_before_we_came_back(upto: int) -> None:
    channel = spilling()
    pushed(channel, *range(1, 16))
    sent(channel)
    spill_all(channel)
    again = spilling()
    again.load(copy.deepcopy(channel.state))
    assert (again.queued, again.here, again.queued_bytes) == (15, 7, 7 * FRAME_WEIGHT)
    again.connected()
    again.arrived(packet(taken=upto), 0)
    assert again.queued == 15 - upto
    assert again.progress.acked == upto
    assert [again.state.lacks(number) for number in (upto, upto + 1)] == [False, upto < 15]
    receiver = Channel(ArrivalOrder.FIFO)
    receiver.state.received.upto = upto
    taken: list[int] = []
    for _ in range(20):
        if (found := again.collect("d", 0)) is not None:
            taken += take_all(receiver, found)
            again.arrived(packet(taken=receiver.state.received.upto), 0)
        if again.wanted and again.state.elsewhere is not None:
            again.fetched([(again.state.elsewhere.first, frame(again.state.elsewhere.first))])
    assert taken == list(range(upto + 1, 16))
    assert (again.queued, again.queued_bytes, again.unsent_bytes, again.behind_bytes) == (0, 0, 0, 0)


def test_what_is_said_to_be_elsewhere_or_here_again_must_be_next() -> None:
    channel = spilling()
    pushed(channel, *range(1, 16))
    sent(channel)
    with pytest.raises(UsageError, match="up to 5 are said to be elsewhere, and the next one is 6 of 15"):
        channel.spilled(5)
    with pytest.raises(UsageError, match="that were not elsewhere"):
        channel.fetched([(6, frame(6))])
    spill_all(channel)
    with pytest.raises(UsageError, match="frame 7 is said to be here again, and the next one elsewhere is 6"):
        channel.fetched([(7, frame(7))])
    with pytest.raises(UsageError, match="that were not elsewhere"):
        channel.fetched([(number, frame(number)) for number in range(6, 15)])


# Members.

PAIR = Domain("D", ("a", "b"), "vector")
TO_B = Way("D", "b")


def member(room: SpillRoom | None = ROOM, max_queued: int = 18) -> Member:
    return Member("a", PAIR, MemberOptions(spill=room, max_queued=max_queued))


def write(one: Member, files: list[tuple[int, object]]) -> None:
    for way in one.spill.take_attention():
        while block := one.spill.block(way):
            files += block
            one.step(Spilled(*way, block[-1][0]), 0)


def test_a_member_whose_frames_go_elsewhere_takes_more() -> None:
    one, files = member(), list[tuple[int, object]]()
    for number in range(100):
        one.step(Submit(None, b"%d" % number), 0)
        write(one, files)
    assert [number for number, _ in files] == list(range(6, 6 + len(files)))
    assert one.spill.elsewhere(TO_B) == (6, 5 + len(files))
    assert (one.attachment.queued(), one.attachment.in_memory) == ({"b": 100}, 100 - len(files))
    assert one.attachment.in_memory <= 5 + ROOM.frames
    while one.attachment.in_memory < 18:
        one.step(Submit(None, b"nobody writes this"), 0)
    with pytest.raises(Busy, match="18 frames are not acknowledged; max_queued is 18"):
        one.step(Submit(None, b"one more"), 0)


def test_a_snapshot_says_what_is_elsewhere_and_holds_none_of_it() -> None:
    one, files = member(), list[tuple[int, object]]()
    for _ in range(100):
        one.step(Submit(("b",), bytes(1_000)), 0)
        write(one, files)
    snapshot = one.snapshot()
    assert len(snapshot) < 30_000
    again = member(room=None)
    again.step(Restored(snapshot, (), 0), 0)
    assert (again.spill.elsewhere(TO_B), again.attachment.queued(), again.attachment.in_memory) == (
        one.spill.elsewhere(TO_B),
        {"b": 100},
        one.attachment.in_memory,
    )
    assert [again.spill.used(), again.spill.wants(TO_B)] == [[TO_B], False]
    again.step(Connected("b"), 0)
    assert not again.spill.wants(TO_B), "a whole window is here"


def test_what_is_said_of_a_way_that_is_none_is_refused() -> None:
    frames: Numbered = [(1, frame(1))]
    for way in (("D", "c"), ("E", "b")):
        with pytest.raises(UsageError, match="is no way of 'a'"):
            member().step(Spilled(*way, 1), 0)
        with pytest.raises(UsageError, match="is no way of 'a'"):
            member().step(Fetched(*way, frames), 0)
        assert (member().spill.elsewhere(Way(*way)), member().spill.wants(Way(*way)), member().spill.block(Way(*way))) == (
            None,
            False,
            [],
        )


@pytest.mark.parametrize(
    "text",
    [
        'name = "n"\nstability = true\n[domains.D]\nmembers = ["a", "b"]\n',
        'name = "n"\n[domains.D]\nmembers = ["a", "b"]\ndelivery = "safe"\n',
        'name = "n"\n[domains.D]\nmembers = ["a", "b"]\nordering = "resilient"\n',
        'name = "n"\n[domains.D]\nmembers = ["a", "b"]\nordering = "vector"\nconfirmation = { scheme = "distributed" }\n',
    ],
    ids=["stability", "safe", "resilient", "distributed"],
)
def test_where_frames_are_kept_for_other_reasons_too_limits_hold_as_ever(text: str) -> None:
    one, files = Member("a", parse(text), MemberOptions(spill=ROOM, max_queued=18)), list[tuple[int, object]]()
    for _ in range(18):
        one.step(Submit(None, b""), 0)
        write(one, files)
    assert files == []
    with pytest.raises(Busy):
        one.step(Submit(None, b""), 0)


RELAY = """
name = "n"
[domains.A]
members = ["a", "r"]
[domains.B]
members = ["s", "r"]
ordering = "sequenced"
"""


def test_a_relay_whose_sequencer_is_away_remembers_a_bounded_number_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_ECHOES", 30)
    topology = parse(RELAY)
    relay, files = Member("r", topology, MemberOptions(spill=ROOM)), list[tuple[int, object]]()
    for _ in range(40):
        relay.step(Submit(None, b""), 0)
        write(relay, files)
    assert files, "its frames are elsewhere, and count no more"
    other = Member("a", topology, MemberOptions())
    ((_, packet_to_relay),) = other.step(Submit(None, b""), 0).send
    assert not relay.step(Arrived("a", packet_to_relay), 0).refused
    assert len(relay.attachment.domains["B"].echoes) == 30
