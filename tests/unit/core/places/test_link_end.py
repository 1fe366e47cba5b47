"""One relay's end of a link: what it sends, what it passes on and when, what it refuses, and that a restart finds it again."""

from __future__ import annotations

import msgspec
import pytest

from thence.core.member.contract import Arrived, Restored, Submit
from thence.core.member.member import Member, describe_wait
from thence.core.ordering import Predecessor, Wait
from thence.core.ordering.vector import VectorStamp
from thence.core.places import link_end
from thence.core.places.link_end import LinkCarried, LinkCarry, LinkEnd, LinkOutput, LinkState, LinkTransfer
from thence.core.wire.messages import Envelope, Frame, Packet, weight_of
from thence.errors import FrameRefused, MalformedFrame, OverflowingFrame, ReplayedFrame, StorageError, StrangerFrame
from thence.sim.options import SimulationOptions
from thence.sim.scenario import Stage
from thence.sim.simulation import Simulation, simulate
from thence.studies.parts.linked_systems import Mode, two
from thence.trace.events import Event
from thence.trace.judge import judge

LINK = two((3, 3), 3).links["L"]


def end(me: str, mode: Mode = "causal") -> LinkEnd:
    return LinkEnd(LINK._replace(mode=mode), me)


def message(number: int, origin: str = "x") -> Envelope:
    return Envelope(origin, number, None, b"")


def state(of: LinkEnd) -> bytes:
    return msgspec.msgpack.encode(of.state)


# --- causal ------------------------------------------------------------------------------------------------------------


def test_the_sequencer_lets_the_pairs_carry_in_turn() -> None:
    sequencer = end("a1")
    sent = [sequencer.cross(message(at), "").send[0] for at in range(1, 5)]
    assert sent == [
        ("b1", Frame(LinkTransfer(1), message(1))),
        ("a2", Frame(LinkCarry(2), message(2))),
        ("a3", Frame(LinkCarry(3), message(3))),
        ("b1", Frame(LinkTransfer(4), message(4))),
    ]


def test_a_relay_carries_and_hands_over() -> None:
    assert end("a2").accept("a1", Frame(LinkCarry(2), message(2)), 0).send == [("b2", Frame(LinkTransfer(2), message(2)))]
    assert end("b2").accept("a2", Frame(LinkTransfer(2), message(2)), 0) == LinkOutput(
        [("b1", Frame(LinkCarried(2), message(2)))], []
    )


def test_the_receiving_sequencer_passes_on_in_the_order_of_the_numbers() -> None:
    receiver = end("b1")
    assert receiver.accept("b3", Frame(LinkCarried(3), message(3)), 6).pass_on == []
    assert receiver.accept("b2", Frame(LinkCarried(2), message(2)), 7).pass_on == []
    missing = Predecessor("link L", 1)
    assert receiver.waiting() == [Wait(message(2).id, "b2", missing, 7), Wait(message(3).id, "b3", missing, 6)]
    assert receiver.accept("a1", Frame(LinkTransfer(1), message(1)), 0).pass_on == [message(1), message(2), message(3)]
    assert receiver.waiting() == []


def test_both_directions_are_numbered_by_themselves() -> None:
    sequencer = end("b1")
    sequencer.accept("a1", Frame(LinkTransfer(1), message(1)), 0)
    assert sequencer.cross(message(1, "y"), "").send == [("a1", Frame(LinkTransfer(1), message(1, "y")))]


# --- FIFO --------------------------------------------------------------------------------------------------------------


def test_in_fifo_mode_each_relay_has_its_partner_and_nothing_waits() -> None:
    for me, partner in (("a1", "b1"), ("a2", "b2"), ("b3", "a3")):
        assert end(me, "fifo").cross(message(1), me).send == [(partner, Frame(LinkTransfer(0), message(1)))]
    receiver = end("b2", "fifo")
    assert receiver.accept("a2", Frame(LinkTransfer(0), message(7)), 0) == LinkOutput([], [message(7)])


# --- refusals ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, Mode, str, Frame[object], type[FrameRefused]]] = [
    ("b1", "causal", "a1", Frame(VectorStamp(1, ()), message(1)), MalformedFrame),
    ("b1", "causal", "a1", Frame(None, message(1)), MalformedFrame),
    ("b1", "causal", "a1", Frame(LinkTransfer(0), message(1)), MalformedFrame),
    ("b1", "causal", "a1", Frame(LinkTransfer(-1), message(1)), MalformedFrame),
    ("b1", "causal", "a1", Frame(LinkTransfer(2), None), MalformedFrame),
    ("b1", "causal", "b2", Frame(LinkTransfer(2), message(2)), StrangerFrame),
    ("b1", "causal", "a2", Frame(LinkCarried(2), message(2)), StrangerFrame),
    ("b2", "causal", "b3", Frame(LinkCarried(2), message(2)), StrangerFrame),
    ("b2", "causal", "b3", Frame(LinkCarry(2), message(2)), StrangerFrame),
    ("b2", "causal", "b1", Frame(LinkCarry(3), message(3)), StrangerFrame),
    ("b2", "fifo", "b1", Frame(LinkCarry(2), message(2)), StrangerFrame),
    ("b1", "fifo", "b2", Frame(LinkCarried(2), message(2)), StrangerFrame),
    ("b2", "fifo", "a2", Frame(LinkTransfer(-1), message(2)), MalformedFrame),
]


@pytest.mark.parametrize(("me", "mode", "peer", "frame", "kind"), REFUSED)
def test_what_is_refused_changes_nothing(me: str, mode: Mode, peer: str, frame: Frame[object], kind: type[FrameRefused]) -> None:
    given = end(me, mode)
    if mode != "fifo":
        given.accept("a3" if me != "b2" else "a2", Frame(LinkTransfer(5), message(5)), 0)
    before = state(given)
    with pytest.raises(kind, match="link 'L': a frame from"):
        given.accept(peer, frame, 0)
    assert state(given) == before


def test_a_replay_is_refused_and_changes_nothing() -> None:
    receiver = end("b1")
    receiver.accept("a1", Frame(LinkTransfer(1), message(1)), 0)
    receiver.accept("b3", Frame(LinkCarried(3), message(3)), 0)
    before = state(receiver)
    for peer, frame in (("a1", Frame(LinkTransfer(1), message(1))), ("b3", Frame(LinkCarried(3), message(3)))):
        with pytest.raises(ReplayedFrame, match="came before"):
            receiver.accept(peer, frame, 0)
    assert state(receiver) == before


def test_what_waits_is_weighed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_end, "MAX_EARLY_BYTES", 2 * weight_of(message(2)))
    receiver = end("b1")
    receiver.accept("b2", Frame(LinkCarried(2), message(2)), 0)
    receiver.accept("b3", Frame(LinkCarried(3), message(3)), 0)
    reborn = end("b1")
    reborn.load(msgspec.msgpack.decode(msgspec.msgpack.encode(receiver.state), type=LinkState))
    for again in (receiver, reborn):
        with pytest.raises(OverflowingFrame, match="MAX_EARLY_BYTES"):
            again.accept("a1", Frame(LinkTransfer(4), message(4)), 0)
        assert again.accept("a1", Frame(LinkTransfer(1), message(1)), 0).pass_on == [message(1), message(2), message(3)]
        again.accept("b2", Frame(LinkCarried(5), message(5)), 0)
        assert again.early == (1, weight_of(message(5)))


def test_waiting_is_bounded_and_what_is_next_always_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_end, "MAX_EARLY", 2)
    receiver = end("b1")
    receiver.accept("b2", Frame(LinkCarried(2), message(2)), 0)
    receiver.accept("b3", Frame(LinkCarried(3), message(3)), 0)
    before = state(receiver)
    with pytest.raises(OverflowingFrame, match="MAX_EARLY"):
        receiver.accept("a1", Frame(LinkTransfer(4), message(4)), 0)
    assert state(receiver) == before
    assert receiver.accept("a1", Frame(LinkTransfer(1), message(1)), 0).pass_on == [message(1), message(2), message(3)]


# --- restarts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", ["a1", "a2", "b1", "b2", "b3"])
def test_a_restart_in_the_middle_of_a_transfer_changes_nothing(restarted: str) -> None:
    """Three messages cross by three pairs and arrive last first; somebody goes on from its snapshot after every step."""
    commands = [
        "send a3 to everyone",
        "send a3 to everyone",
        "send b3 to everyone",
        "arrive a3 a1",
        "arrive a3 a1",
        "arrive a1 a2",
    ]
    commands += ["arrive a2 b2", "arrive b2 b1", "send b3 to everyone", "arrive b3 b1 2", "arrive everything", "waits"]
    seen = []
    for names in ((), (restarted,)):
        stage = Stage()
        for line in ("domain A vector a1 a2 a3", "domain B vector b1 b2 b3", "link L A B a1=b1 a2=b2 a3=b3"):
            stage.do(line)
        found = []
        for command in commands:
            found.append([line for line in stage.do(command).splitlines() if "it waits for" not in line])
            for name in names:
                stage.do(f"restart {name}")
        seen.append(found)
        assert judge(stage.events).kept
    assert seen[0] == seen[1]


def carried(*numbers: int) -> Arrived:
    """Return what b2 hands over to its sequencer b1: messages that came across with these numbers."""
    frames = tuple(Frame(LinkCarried(number), Envelope("a2", number, None, b"")) for number in numbers)
    return Arrived("b2", Packet("L", frames, tuple(range(1, len(numbers) + 1))))


def test_a_wait_at_a_link_says_from_whom_and_since_when() -> None:
    member = Member("b1", two((2, 2), 2))
    taken = member.step(carried(2, 4), 5).persist
    assert [describe_wait(wait, 1_000_000_005) for wait in member.attachment.waiting()] == [
        "a2:2 from b2 waits for number 1 of link L, since 1.000 s",
        "a2:4 from b2 waits for number 1 of link L, since 1.000 s",
    ]
    twin = member.fork()
    assert twin.attachment.waiting() == member.attachment.waiting()
    again, later = Member("b1", two((2, 2), 2)), Member("b1", two((2, 2), 2))
    again.step(Restored(None, taken, 0), 9)
    assert again.attachment.waiting() == member.attachment.waiting(), "a record says when"
    later.step(Restored(member.snapshot(), (), 0), 9)
    assert later.attachment.waiting() == [wait._replace(since=9) for wait in member.attachment.waiting()], (
        "a snapshot does not: since the restart"
    )
    first = Packet("L", (Frame(LinkTransfer(1), Envelope("a1", 1, None, b"")),), (1,))
    for one in (member, later):
        one.step(Arrived("a1", first), 10)
        assert [(str(wait.message), wait.missing.number) for wait in one.attachment.waiting()] == [("a2:4", 3)]
        assert one.attachment.links["L"].end.came.keys() == {4}
    assert len(twin.attachment.waiting()) == 2


def test_a_snapshot_of_another_link_is_refused() -> None:
    saved = Member("a1", two((2, 2), 2))
    saved.step(Submit(None), 0)
    same, other = Member("a1", two((2, 3), 2)), Member("a1", two((2, 3), 1))
    with pytest.raises(StorageError, match="'L' at 'a1': a snapshot with channels to a2, b1, b2"):
        other.step(Restored(saved.snapshot(), (), 0), 0)
    assert [peer for peer, packet in same.step(Restored(saved.snapshot(), (), 0), 0).send] == ["a2", "b1"]


@pytest.mark.parametrize("mode", ["causal", "fifo"])
@pytest.mark.parametrize("seed", range(5))
def test_relays_that_crash_lose_and_double_nothing(mode: Mode, seed: int) -> None:
    """Crashes, loss, duplication and reordering everywhere: every process of these fabrics is a relay of the link."""
    topology = two((2, 2), 2, mode)
    options = SimulationOptions(
        messages=80,
        gap="exponential:100ms",
        crashes=20,
        loss=0.1,
        duplication=0.1,
        reordering=0.1,
        replies=0.6,
        body_bytes=0,
        seed=seed,
    )
    result, events = simulate(options, topology)
    assert (result.statistics.crashes > 5, result.waiting) == (True, 0)
    verdict = judge(events, ["well-formed", "creation", "duplication", "completeness", *topology.guarantees])
    assert verdict.kept, verdict.violations[:3]


def test_a_sequencer_that_crashes_again_and_again_gives_each_number_once() -> None:
    events: list[Event] = []
    simulation = Simulation(
        SimulationOptions(messages=100, gap="exponential:10ms", loss=0.05, durable=True, body_bytes=0, seed=3),
        events.append,
        where=two((3, 3), 3),
    )
    for at in range(1, 15):
        node = simulation.nodes["a1" if at % 2 else "b1"]
        simulation.kernel.schedule(at * 40_000_000, simulation.failures.crash, node, 15_000_000)
    result = simulation.run()
    assert result.statistics.crashes >= 14
    assert judge(events).kept
    ends = {name: simulation.nodes[name].member.attachment.links["L"].end.state for name in ("a1", "b1")}
    assert ends["a1"].numbered == ends["b1"].passed > 10
    assert ends["b1"].numbered == ends["a1"].passed > 10
