"""Fig. 5 of interconnect as printed: what an end sends, waits for and refuses, and that it is for simulations only."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from thence.core.member.codec import encode_packet
from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.member import Member
from thence.core.places.link_end import MAX_EARLY_BYTES, LinkCarry, LinkTransfer
from thence.core.topology.link import MakeLinkEnd
from thence.core.topology.model import Link, Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.errors import (
    ConfigError,
    FrameRefused,
    MalformedFrame,
    OverflowingFrame,
    ReplayedFrame,
    StorageError,
    StrangerFrame,
)
from thence.sim.options import Pattern, SimulationOptions
from thence.sim.simulation import simulate
from thence.studies.parts import printed_links
from thence.studies.parts.linked_systems import two
from thence.studies.parts.printed_links import PRINTED, LinkNumber, PrintedEnd, printed_delivered, printed_sent
from thence.trace.judge import judge

LINK = two((3, 3), 3).links["L"]


def end(me: str, make: Callable[[Link, str, int], PrintedEnd] = printed_delivered) -> PrintedEnd:
    return make(LINK, me, MAX_EARLY_BYTES)


def message(number: int, origin: str = "x") -> Envelope:
    return Envelope(origin, number, None, b"")


@pytest.mark.parametrize("number_first", [True, False])
def test_a_relay_needs_the_message_and_its_number(number_first: bool) -> None:
    assert end("a1").cross(message(1), "a2").send == [("a2", Frame(LinkNumber(1, "x", 1), None))]
    relay, out = end("a2"), [("b2", Frame(LinkTransfer(1), message(1)))]
    if number_first:
        assert relay.accept("a1", Frame(LinkNumber(1, "x", 1), None), 0).send == []
        assert relay.cross(message(1), "a2").send == out
    else:
        assert relay.cross(message(1), "a2").send == []
        assert relay.accept("a1", Frame(LinkNumber(1, "x", 1), None), 0).send == out
    assert (relay.state.unclaimed, relay.state.unnumbered) == ({}, {})


@pytest.mark.parametrize(("make", "at_once"), [(printed_delivered, [message(1)]), (printed_sent, [message(1), message(2)])])
def test_a_relay_waits_for_the_delivery_of_its_own_or_not(
    make: Callable[[Link, str, int], PrintedEnd], at_once: list[Envelope]
) -> None:
    relay = end("b2", make)
    relay.accept("a2", Frame(LinkTransfer(2), message(2)), 0)
    assert relay.accept("a2", Frame(LinkTransfer(1), message(1)), 0).pass_on == at_once
    assert relay.delivered(echo=True).pass_on == [message(2)][len(at_once) - 1 :]
    assert relay.early == (0, 0)


REFUSED: list[tuple[str, Frame[object], type[FrameRefused]]] = [
    ("b3", Frame(LinkNumber(1, "y", 1), None), StrangerFrame),
    ("b1", Frame(LinkNumber(0, "y", 1), None), MalformedFrame),
    ("b1", Frame(LinkCarry(2), message(2)), MalformedFrame),
    ("b1", Frame(LinkTransfer(2), message(2)), StrangerFrame),
    ("a2", Frame(LinkTransfer(2), None), MalformedFrame),
    ("b1", Frame(LinkNumber(1, "z", 1), None), ReplayedFrame),
    ("a2", Frame(LinkTransfer(1), message(1)), ReplayedFrame),
    ("a2", Frame(LinkTransfer(5), message(5)), ReplayedFrame),
    ("b1", Frame(LinkNumber(2, "z", 2), None), OverflowingFrame),
]


@pytest.mark.parametrize(("peer", "frame", "kind"), REFUSED)
def test_what_is_refused_changes_nothing(
    peer: str, frame: Frame[object], kind: type[FrameRefused], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(printed_links, "MAX_EARLY", 1)
    given = end("b2")
    given.accept("a2", Frame(LinkTransfer(1), message(1)), 0)
    given.accept("a2", Frame(LinkTransfer(5), message(5)), 0)
    given.accept("b1", Frame(LinkNumber(1, "z", 1), None), 0)
    before = msgspec.msgpack.encode(given.state)
    with pytest.raises(kind, match="link 'L': a frame from"):
        given.accept(peer, frame, 0)
    assert msgspec.msgpack.encode(given.state) == before


@pytest.mark.parametrize("ordering", ["vector", "sequenced", "clocked"])
@pytest.mark.parametrize("pattern", ["broadcast", "multicast", "unicast"])
@pytest.mark.parametrize("make", PRINTED)
def test_everything_comes_through_once(make: MakeLinkEnd, pattern: Pattern, ordering: str) -> None:
    """Whoever is written to, and whether a relay's own message comes back to it at once or later."""
    options = SimulationOptions(messages=60, pattern=pattern, loss=0.1, duplication=0.1, reordering=0.1, replies=0.6, seed=1)
    result, events = simulate(options, two((4, 4), 3, make, ordering=ordering))
    assert result.waiting == 0
    verdict = judge(events, ["well-formed", "creation", "duplication", "completeness", "fifo"])
    assert verdict.kept, verdict.violations[:3]


def test_nobody_comes_back_from_a_snapshot() -> None:
    topology = two((2, 2), 2, printed_delivered)
    member = Member("a1", topology)
    member.step(Submit(None), 0)
    with pytest.raises(StorageError, match="does not come back from a snapshot"):
        Member("a1", topology).step(Restored(member.snapshot(), (), 0), 0)


@pytest.mark.parametrize("make", PRINTED)
def test_no_file_names_it(make: MakeLinkEnd) -> None:
    text = write(two((2, 2), 2, make))
    with pytest.raises(ConfigError, match=f"link 1: mode: Invalid enum value '{make.__name__}'"):
        parse(text)


def test_nobody_takes_over_from_its_relays() -> None:
    topology = two((3, 3), 2, printed_delivered)
    links = [link._replace(takeover=True) for link in topology.links.values()]
    with pytest.raises(ConfigError, match="link 'L': takeover is for mode = 'causal' or 'fifo'"):
        Topology("two", topology.domains.values(), links, promise="fifo")


def test_a_number_is_refused_by_every_other_link() -> None:
    """Servers of version 0.1 could send them; the tag is not given to anything else."""
    packet = Packet("L", (Frame(LinkNumber(1, "a1", 1), None),), (1,))
    assert encode_packet(packet)
    for mode in ("causal", "fifo"):
        member = Member("b2", two((2, 2), 2, mode))
        (refused,) = member.step(Arrived("b1", packet), 0).refused
        assert isinstance(refused, MalformedFrame)
