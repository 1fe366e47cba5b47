"""What a member puts into a domain may come back to it: nobody waits for that, and there is a limit on how much does."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.member import admission, limits
from thence.core.member.contract import Arrived, Consumed, Input, Ready, Restored, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.messages import FRAME_WEIGHT, Packet
from thence.errors import Busy

TWO = """
name = "two"
[domains.A]
members = ["a", "s", "r"]
ordering = {{ name = "{ordering}"{options} }}
[domains.B]
members = ["b", "r"]
"""
WAYS = [
    pytest.param("sequenced", ', coordinator = "s"', id="sequenced"),
    pytest.param("grouped", ', groups = [["s", "r"], ["a"]]', id="grouped"),
    pytest.param("clocked", "", id="clocked"),
]
GATEWAYS = """
name = "gateways"
[domains.A]
members = ["g", "m", "h", "n"]
ordering = { name = "grouped", groups = [["g", "m"], ["h", "n"]] }
[domains.B]
members = ["m", "b"]
"""


class Fabric:
    """All members of a topology, with packets that wait until they are carried."""

    def __init__(self, topology: Topology) -> None:
        self.members = {name: Member(name, topology, MemberOptions()) for name in topology.processes}
        self.got: dict[str, list[bytes]] = {name: [] for name in self.members}
        self.packets: list[tuple[str, str, Packet[Any]]] = []

    def step(self, name: str, event: Input) -> Ready:
        ready = self.members[name].step(event, 0)
        self.packets += [(name, peer, packet) for peer, packet in ready.send]
        for delivery in ready.deliver:
            self.got[name].append(delivery.envelope.body)
            self.step(name, Consumed(delivery.position))
        return ready

    def carry(self, within: tuple[str, ...] = ()) -> None:
        """Carry packets, between these if some are named, until there are no more; the others wait."""
        others = []
        while self.packets:
            sender, receiver, packet = self.packets.pop(0)
            if within and not {sender, receiver} <= set(within):
                others.append((sender, receiver, packet))
                continue
            assert not self.step(receiver, Arrived(sender, packet)).refused
        self.packets = others

    def send(self, name: str, *bodies: bytes) -> None:
        for body in bodies:
            self.step(name, Submit(None, body))

    def echoes(self, name: str) -> tuple[int, int]:
        place = self.members[name].attachment.domains["A"]
        return len(place.echoes), place.echo_bytes


@pytest.mark.parametrize("limit", ["MAX_ECHOES", "MAX_ECHO_BYTES"])
@pytest.mark.parametrize(("ordering", "options"), WAYS)
def test_what_is_beyond_the_limit_is_put_in_for_all_but_us(
    ordering: str, options: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, limit, 2 if limit == "MAX_ECHOES" else 2 * FRAME_WEIGHT + 2)
    fabric = Fabric(parse(TWO.format(ordering=ordering, options=options)))
    bodies = [b"%d" % number for number in range(6)]
    for body in bodies[:3]:  # They come to the relay from the other domain, and nobody in this one answers.
        fabric.send("b", body)
        fabric.carry(within=("b", "r"))
    fabric.send("r", *bodies[3:])
    assert fabric.echoes("r") == (2, 2 * FRAME_WEIGHT + 2)
    fabric.carry()
    assert fabric.echoes("r") == (0, 0)
    for name in fabric.members:
        assert fabric.got[name] == bodies, name
    fabric.send("a", b"later")
    fabric.carry()
    fabric.send("r", b"last")
    fabric.carry()
    assert [got[6:] for got in fabric.got.values()] == [[b"later", b"last"]] * 4


def test_a_restart_knows_how_much_will_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_ECHO_BYTES", 2 * FRAME_WEIGHT)
    topology = parse(TWO.format(ordering="sequenced", options=', coordinator = "s"'))
    fabric = Fabric(topology)
    fabric.send("r", b"1", b"2")
    again = Member("r", topology, MemberOptions())
    again.step(Restored(fabric.members["r"].snapshot(), (), 0), 0)
    fabric.members["r"] = again
    assert fabric.echoes("r") == (2, 2 * FRAME_WEIGHT + 2)
    fabric.send("r", b"3")
    assert fabric.echoes("r") == (2, 2 * FRAME_WEIGHT + 2)


def test_gateways_that_are_full_of_what_they_have_for_each_other_still_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric(parse(GATEWAYS))
    fabric.send("g", b"1", b"2", b"3")
    kept = [one for one in fabric.packets if one[1] == "h"]
    fabric.carry(within=("g", "m", "b"))
    fabric.packets = kept
    fabric.send("h", b"4")
    fabric.packets = [one for one in fabric.packets if one[:2] == ("h", "g")]
    for limit in ("MAX_QUEUED_HARD", "MAX_ECHOES", "MAX_QUEUED_BYTES_HARD", "MAX_ECHO_BYTES", "MAX_BODY_BYTES"):
        monkeypatch.setattr(admission, limit, 1)
    monkeypatch.setattr(limits, "MAX_QUEUED_BYTES_HARD", 1)
    monkeypatch.setattr(admission, "held_bytes", lambda _: 1)
    fabric.carry()
    assert fabric.got["g"] == [b"1", b"2", b"3", b"4"]


def test_a_coordinator_keeps_room_for_what_it_hands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_QUEUED_HARD", 6)
    fabric = Fabric(parse(TWO.format(ordering="sequenced", options=', coordinator = "s"')))
    with pytest.raises(Busy, match="MAX_QUEUED_HARD is 6"):
        fabric.send("s", *[b""] * 7)
