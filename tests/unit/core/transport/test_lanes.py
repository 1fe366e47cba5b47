"""A domain that spans two sites: who carries what across, who hands it on, how long it is waited for, what if one is dead."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from thence.core.ordering.vector import VectorStamp
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.transport.ack_all.lanes import Lanes
from thence.core.transport.ack_all.transport import AckAll
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import ConfigError

NAMES = ("a1", "a2", "b1", "b2")
PAIRS = (("a1", "b1"), ("a2", "b2"))
MS = 1_000_000
RESEND = 200 * MS
NEAREST = AckOptions(scheme="distributed", retransmission="nearest", whole=True, sites=(NAMES[:2], NAMES[2:]))

Crossed = list[tuple[str, str, int]]
"""From whom to whom a message went, and its number."""


class Sites:
    """Transports of two sites, and what is on its way between them."""

    def __init__(self) -> None:
        self.members = {name: AckAll("L", name, NAMES, RESEND, NEAREST, PAIRS) for name in NAMES}
        self.crossed: Crossed = []
        self.flights: list[tuple[str, str, Packet[Any]]] = []
        self.dead: set[str] = set()

    def send(self, sender: str, number: int, now: int = 0) -> None:
        transport = self.members[sender]
        frame = Frame(VectorStamp(number, ()), Envelope(sender, number, None, b"x"))
        transport.push([(peer, frame) for peer in transport.peers])
        self._follow(sender, now)

    def _follow(self, name: str, now: int) -> None:
        for peer, packet in self.members[name].collect(now):
            self.flights.append((name, peer, packet))
            self.crossed += [(name, peer, number) for number in packet.numbers]

    def arrive(self, now: int = 0) -> None:
        """Let everything arrive, the oldest first."""
        while self.flights:
            source, target, packet = self.flights.pop(0)
            if target not in self.dead:
                transport = self.members[target]
                for incoming in transport.frames_in(source, packet, now):
                    transport.take(incoming)
                self._follow(target, now)

    def wake(self, now: int) -> None:
        for name, transport in self.members.items():
            if name not in self.dead:
                transport.visit_all()
                self._follow(name, now)
        self.arrive(now)

    def suspect(self, dead: str) -> None:
        self.dead.add(dead)
        for name, transport in self.members.items():
            if name != dead:
                transport.suspect(dead, True)

    def has(self, name: str, sender: str) -> int:
        """Return up to which number somebody has what another one sent."""
        return self.members[name].state.received[NAMES.index(sender)].upto


def test_pairs_carry_in_turn_and_a_message_crosses_once() -> None:
    sites = Sites()
    for number in range(1, 5):
        sites.send("a1", number)
    sites.arrive()
    across = [way for way in sites.crossed if way[0][0] != way[1][0]]
    assert sorted(across) == [("a1", "b1", 2), ("a1", "b1", 4), ("a2", "b2", 1), ("a2", "b2", 3)]
    within = Counter((source, target) for source, target, _ in sites.crossed if source[0] == target[0])
    assert within == {("a1", "a2"): 4, ("b1", "b2"): 2, ("b2", "b1"): 2}
    assert [sites.has(name, "a1") for name in ("a2", "b1", "b2")] == [4, 4, 4]


def test_both_directions_take_turns_by_themselves() -> None:
    sites = Sites()
    sites.send("b2", 1)
    sites.send("b2", 2)
    sites.arrive()
    assert sorted(way for way in sites.crossed if way[0][0] != way[1][0]) == [("b1", "a1", 2), ("b2", "a2", 1)]
    assert [sites.has(name, "b2") for name in ("a1", "a2", "b1")] == [2, 2, 2]


@pytest.mark.parametrize("dead", ["a2", "b1", "b2"])
def test_who_is_held_for_dead_carries_nothing(dead: str) -> None:
    sites = Sites()
    sites.suspect(dead)
    for number in range(1, 5):
        sites.send("a1", number)
    sites.arrive()
    assert [sites.has(name, "a1") for name in NAMES if name not in ("a1", dead)] == [4, 4]


@pytest.mark.parametrize("dead", ["a2", "b2"])
def test_what_was_on_its_way_with_a_dead_one_is_asked_for(dead: str) -> None:
    """Nobody knows yet that it is dead: the others have heard of number 1, and ask for it when nothing comes."""
    sites = Sites()
    sites.dead.add(dead)
    sites.send("a1", 1)
    sites.send("a1", 2)
    sites.arrive()
    assert sites.has("b1", "a1") == 0
    sites.wake(99 * MS)
    assert sites.has("b1", "a1") == 0
    sites.wake(100 * MS)
    assert sites.has("b1", "a1") == 2


def test_what_a_dead_sender_gave_to_its_own_site_alone_gets_across() -> None:
    sites = Sites()
    sites.send("a1", 1)
    sites.send("a1", 2)
    sites.flights = [flight for flight in sites.flights if flight[1] == "a2"]
    sites.suspect("a1")
    sites.arrive()
    sites.wake(100 * MS)
    sites.wake(400 * MS)
    assert [sites.has(name, "a1") for name in ("a2", "b1", "b2")] == [2, 2, 2]


def test_as_long_as_messages_come_out_of_a_lane_those_behind_are_waited_for() -> None:
    lanes = Lanes(2, [(0, 2), (1, 3)])
    assert lanes.patient_until(0, 4, 100) == 0, "nothing has come"
    lanes.now = 50
    lanes.came_out(0, 2)
    assert lanes.patient_until(0, 4, 100) == 150
    assert lanes.patient_until(0, 5, 100) == 0, "that is another lane"
    assert lanes.patient_until(1, 4, 100) == 0, "and that another stream"
    lanes.came_out(0, 6)
    assert lanes.patient_until(0, 4, 100) == 0, "it has been overtaken"


def test_a_repetition_crosses_once_too_and_each_time_to_another() -> None:
    lanes = Lanes(0, [(0, 2), (1, 3)])
    assert [lanes.again({1: None, 2: None, 3: None}, attempts) for attempts in range(3)] == [[1, 2], [1, 3], [1, 2]]
    assert lanes.again({1: None}, 0) == [1]


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ((("a", "b"), ("c", "x")), "'x' is not among the members a, b, c"),
        ((("a", "b"), ("b", "c")), "'b' stands on both sides"),
        ((("a", "b"),), "'c' is in none of them"),
        ((("a", "b"), ("c", "b"), ("a", "b")), "one is listed twice"),
    ],
)
def test_pairs_that_cannot_be(pairs: tuple[tuple[str, str], ...], says: str) -> None:
    confirmation = AckOptions(scheme="distributed", retransmission="nearest")
    with pytest.raises(ConfigError, match=says):
        Domain("L", ("a", "b", "c"), "vector", {}, confirmation, pairs=pairs).check_pairs()


def test_who_repeats_nothing_of_others_carries_nothing() -> None:
    with pytest.raises(ConfigError, match="it needs retransmission 'nearest'"):
        Domain("L", ("a", "b"), "vector", pairs=(("a", "b"),)).check_pairs()
