"""Two channels over a network that loses and delays, one of them with frames elsewhere and killed at any moment: each comes once.

What is elsewhere is a table. The reference is a list: what was pushed, in that order. Writing may be refused, as on a full disk.
After a kill there are the last snapshot and what was pushed since, and the peer may have more than that snapshot knows of.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thence.core.ordering import ArrivalOrder
from thence.core.ordering.fifo import FifoStamp
from thence.core.transport import channel as channel_module
from thence.core.transport.channel import Channel, ChannelState, Pace
from thence.core.transport.spill_queue import SpillRoom
from thence.core.wire.messages import Envelope, Frame, Packet

MAX_EXAMPLES = 100
ROOM = SpillRoom(6, 100_000, 3, 100_000)
WINDOW = 4
TURN_NS = 300_000_000
MAX_TURNS = 2_000

actions = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["send", "confirm", "fetch", "connect", "snapshot", "wait"]), st.none()),
    st.tuples(st.sampled_from(["arrive", "lose"]), st.integers(0, 5)),
    st.tuples(st.just("full"), st.booleans()),
    st.tuples(st.just("kill"), st.booleans()),
)


def frame(number: int) -> Frame[FifoStamp]:
    return Frame(FifoStamp(number), Envelope("A", number, None, b"%d" % number))


class Story:
    """A sender, a receiver and what is on its way between them."""

    def __init__(self, arrival: ArrivalOrder) -> None:
        self.arrival = arrival
        self.sender = Channel(arrival, pace=Pace(spill=ROOM))
        self.receiver = Channel(arrival)
        self.network: list[tuple[Channel | None, Packet[Any]]] = []
        """Packets to the receiver, or, with who was running then, to that sender."""
        self.pushed = 0
        self.got: list[int] = []
        self.elsewhere: dict[int, Frame[Any]] = {}
        self.saved: tuple[ChannelState[Any], dict[int, Frame[Any]], int] = (copy.deepcopy(self.sender.state), {}, 0)
        self.full = False
        self.spills = True
        self.now = 0

    def act(self, what: str, how: Any) -> None:
        if what == "push":
            self._push(how)
        elif what == "send":
            self._send()
        elif what == "confirm":
            self._ack()
        elif what == "fetch":
            self._fetch()
        elif what == "connect":
            self._connect()
        elif what == "snapshot":
            self.saved = (copy.deepcopy(self.sender.state), dict(self.elsewhere), self.pushed)
        elif what == "wait":
            self.now += TURN_NS
        elif what == "full":
            self.full = how
            self._spill()
        elif what == "kill":
            self._kill(spills=how)
        elif self.network:
            to, packet = self.network.pop(min(how, len(self.network) - 1))
            if what == "arrive":
                self._arrive(to, packet)

    def _push(self, count: int) -> None:
        for _ in range(count):
            self.pushed += 1
            self.sender.push(frame(self.pushed))
            self._spill()
        if not self.full and self.spills:
            assert self.sender.here <= self.sender.sent_upto - self.sender.gone_upto + ROOM.frames + 2 * WINDOW

    def _spill(self) -> None:
        while not self.full and (block := self.sender.block_to_spill()):
            self.elsewhere.update(block)
            self.sender.spilled(block[-1][0])

    def _fetch(self) -> None:
        if self.sender.wanted and self.sender.state.elsewhere is not None:
            first, last = self.sender.state.elsewhere.first, self.sender.state.elsewhere.last
            self.sender.fetched([(number, self.elsewhere[number]) for number in range(first, min(last, first + 2) + 1)])

    def _send(self) -> None:
        while (packet := self.sender.collect("d", self.now)) is not None:
            self.network.append((None, packet))
            if not self.sender.more:
                return

    def _ack(self) -> None:
        if (packet := self.receiver.collect("d", self.now)) is not None:
            self.network.append((self.sender, packet))

    def _connect(self) -> None:
        self.network.clear()
        self.sender.connected()
        self.receiver.connected()

    def _arrive(self, to: Channel | None, packet: Packet[Any]) -> None:
        if to is None:
            for number, came in self.receiver.arrived(packet, self.now):
                assert self.receiver.state.received.add(number), "a frame comes a second time"
                assert came == frame(number)
                self.got.append(number)
        elif to is self.sender:
            self.sender.check("b", packet)
            self.sender.arrived(packet, self.now)

    def _kill(self, *, spills: bool) -> None:
        """Come back with the last snapshot, what was pushed since, and perhaps other options."""
        state, elsewhere, pushed = self.saved
        self.spills = spills
        self.sender = Channel(self.arrival, pace=Pace(spill=ROOM if spills else None))
        self.sender.load(copy.deepcopy(state))
        self.elsewhere = dict(elsewhere)
        for number in range(pushed + 1, self.pushed + 1):
            self.sender.push(frame(number))
            self._spill()
        self._connect()

    def settle(self) -> None:
        self.full = False
        for _ in range(MAX_TURNS):
            if not self.sender.queued:
                return
            self.now += TURN_NS
            self._spill()
            self._fetch()
            self._send()
            while self.network:
                self.act("arrive", 0)
            self._ack()
            while self.network:
                self.act("arrive", 0)
        raise AssertionError(f"{self.sender.queued} frames never arrive")


@pytest.mark.parametrize("arrival", list(ArrivalOrder), ids=lambda arrival: arrival.value)
@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(story=st.lists(actions, min_size=5, max_size=80))
def test_every_frame_comes_once_whatever_is_elsewhere(arrival: ArrivalOrder, story: list[tuple[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channel_module, "WINDOW", WINDOW)
        told = Story(arrival)
        for what, how in story:
            told.act(what, how)
        told.settle()
    assert sorted(told.got) == list(range(1, told.pushed + 1))
    if arrival is not ArrivalOrder.ANY:
        assert told.got == sorted(told.got)
    sender = told.sender
    assert (sender.here, sender.queued_bytes, sender.unsent_bytes, sender.behind_bytes) == (0, 0, 0, 0)
