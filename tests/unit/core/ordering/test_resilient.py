"""What ``resilient`` adds to ``matrix``: any k members may die, and nobody who is left lacks what another one got."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from tests.support import golden_bytes
from tests.support.mortal import MortalRun, play
from tests.support.planted.planted_resilient import PLANTED
from tests.support.runs import Run
from thence.core.member.codec import decode_packet
from thence.core.ordering.base import Output
from thence.core.ordering.matrix_clock import MatrixStamp
from thence.core.ordering.resilience.stamps import MAX_AHEAD, ResilientEnough, ResilientHeld, ResilientMessage
from thence.core.ordering.resilient import Resilient
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ConfigError, ImpossibleFrame, MalformedFrame
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.judge import judge

NAMES = ("A", "B", "C", "D", "E", "F")


def found_in(kind: str | type[Resilient], seed: int) -> list[str]:
    """Return what is wrong after a random run with deaths, of k members, or of more, one after the other."""
    run = play(kind, NAMES[: 2 + seed % 5], 1 + seed // 5 % 3, seed, one_after_the_other=seed % 2 == 0)
    waits = [str(wait.message) for name in run.living for wait in run.orderings[name].waiting() if wait.peer not in run.dead]
    return run.missing() + run.broken() + waits


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_d7_any_k_members_may_die(first: int) -> None:
    """D7, D9, §3.4 (ii): deaths, omissions and wrong suspicions leave no hole: nothing is missing, doubled or out of order."""
    assert {seed: found for seed in range(first, first + 100) if (found := found_in("resilient", seed))} == {}


@pytest.mark.parametrize("mistake", [name for name in PLANTED if name != "ForgettingEarly"])
def test_planted_mistakes_are_found(mistake: str) -> None:
    assert any(found_in(PLANTED[mistake], seed) for seed in range(300))


def lost_on_the_way(kind: str | type[Resilient]) -> MortalRun:
    """A writes to B, C and D; the frame to B gets lost; C and D get it; A dies; C writes to B."""
    run = MortalRun(kind, NAMES[:4], {"copies": 1})
    run.send("A", ("B", "C", "D"))
    run.arrive("A", "C")
    run.arrive("A", "D")
    assert run.deliveries("C") == run.deliveries("D") == ["A:1"], "with k = 1 whoever has it knows that two have it"
    run.die("A", Random(0), omission=1.0)
    run.send("C", ("B",))
    run.end(Random(0))
    return run


def test_d7_the_frame_that_was_lost_is_handed_on() -> None:
    """D7: the run of docs/research/errata.md in which B waited for ever for what C and D had delivered."""
    assert lost_on_the_way("resilient").deliveries("B") == ["A:1", "C:1"]
    assert lost_on_the_way(PLANTED["NotHandedOn"]).deliveries("B") == []


def fig2(kind: str | type[Resilient]) -> MortalRun:
    """daisy Fig. 2: A writes m1 to B, which gets lost, then m2 to C and D. A dies, and C writes to B."""
    run = MortalRun(kind, NAMES[:4], {"copies": 1})
    run.send("A", ("B",))
    run.send("A", ("C", "D"))
    run.arrive("A", "C")
    run.arrive("A", "D")
    run.die("A", Random(0), omission=1.0)
    run.end(Random(0))
    run.send("C", ("B",))
    run.end(Random(0))
    return run


def test_fig2_leaves_no_hole() -> None:
    """Nobody but A had m1, so nobody delivers m2 either, and B does not wait for m1."""
    run = fig2("resilient")
    assert run.deliveries("C") == run.deliveries("D") == []
    assert run.deliveries("B") == ["C:1"]
    assert run.secured == {"C:1"}


def test_fig2_as_printed_leaves_one() -> None:
    """With k + 1 who have m2 itself, C delivers it, and what it then sends to B waits for m1 for ever."""
    run = fig2(PLANTED["AsPrinted"])
    assert run.deliveries("C") == ["A:2"]
    assert run.deliveries("B") == []
    assert any(str(wait.message) == "C:1" for wait in run.orderings["B"].waiting())


def forgotten(kind: str | type[Resilient]) -> list[str]:
    """A's first message comes to B alone; its second one to B, too, before A dies."""
    run = MortalRun(kind, NAMES[:3], {"copies": 1})
    run.send("A", ("B", "C"))
    run.arrive("A", "B")
    run.arrive("B", "A")
    run.send("A", ("B", "C"))
    run.arrive("A", "B")
    run.die("A", Random(0), omission=1.0)
    run.end(Random(0))
    return run.missing()


def test_a_copy_is_kept_until_all_recipients_have_the_message() -> None:
    assert forgotten("resilient") == []
    assert forgotten(PLANTED["ForgettingEarly"]) != []


def test_copies_go_when_all_have_the_message() -> None:
    """Nothing is kept for ever: what the others hold of A is what its next frame to them says that all have."""
    run = Run("resilient", NAMES[:4], {"copies": 2})
    for _ in range(50):
        run.send("A", ("B", "C"))
        run.send("A", ("D",))
        run.arrive_everything(Random(0))
    held = {name: len(ordering.custody.held) for name, ordering in run.orderings.items() if isinstance(ordering, Resilient)}
    assert held.pop("A") == 0
    assert max(held.values()) <= 2, held


def test_a_message_waits_until_k_others_hold_it() -> None:
    """With k = 2 a message for one recipient goes to one more as a copy, and waits for the sender to have heard of both."""
    run = Run("resilient", NAMES[:4], {"copies": 2})
    run.send("A", ("C",))
    assert {peer: frames[0].stamp.to for (_, peer), frames in run.on_the_way.items()} == {"B": (2,), "C": (2,)}, "B keeps a copy"
    run.arrive("A", "C")
    (wait,) = run.orderings["C"].waiting()
    assert wait.missing == ("acks of A", 1)
    (wait,) = run.orderings["A"].waiting()
    assert wait.missing == ("copies at C", 1)
    run.arrive_everything(Random(0))
    assert [run.deliveries(name) for name in run.members] == [[], [], ["A:1"], []]
    assert run.waiting() == 0


def test_a_holder_who_is_suspected_is_replaced() -> None:
    run = MortalRun("resilient", NAMES[:4], {"copies": 1})
    run.send("A", ("A",))
    assert list(run.on_the_way) == [("A", "B")], "a message to oneself, kept by the next one"
    run.suspect("A", "B", suspected=True)
    assert [pair for pair, frames in run.on_the_way.items() if frames] == [("A", "B"), ("A", "C")]
    assert run.secured == set()
    run.arrive("A", "C")
    run.arrive("C", "A")
    assert run.secured == {"A:1"}


def test_a_wrong_suspicion_costs_frames_alone() -> None:
    """C hands on to B what A sends to B itself; whichever comes first counts."""
    for first in (("A", "B"), ("C", "B")):
        run = MortalRun("resilient", NAMES[:3], {"copies": 1})
        run.suspect("C", "A", suspected=True)
        run.send("A", ("B", "C"))
        run.arrive("A", "C")
        run.arrive(*first)
        run.end(Random(0))
        assert (run.deliveries("B"), run.missing(), run.broken()) == (["A:1"], [], [])


def test_without_copies_it_is_the_matrix_ordering() -> None:
    plain, none = Run("matrix", NAMES[:3]), Run("resilient", NAMES[:3], {"copies": 0})
    for run in (plain, none):
        run.send("A", ("B", "C"))
        run.arrive("A", "B")
        run.send("B", ("C",))
        run.arrive_everything(Random(0))
    assert none.outputs != plain.outputs, "what is secured is told"
    assert [run.deliveries("C") for run in (plain, none)] == [["A:1", "B:1"]] * 2
    assert all(isinstance(frame.stamp, MatrixStamp) for frames in none.on_the_way.values() for frame in frames)


def test_what_a_captured_member_says_is_checked() -> None:
    run = Run("resilient", NAMES[:4], {"copies": 1})
    envelope = run.send("A", ("B", "C"))
    b = run.orderings["B"]
    message = run.on_the_way["A", "B"][0].stamp
    before = b.snapshot()
    for stamp, body, kind in (
        (ResilientHeld(1, 1, 1), None, ImpossibleFrame),  # It holds what I have not sent.
        (ResilientEnough(1, 1, 7, (), ()), None, ImpossibleFrame),  # Enough hold what I have not sent.
        (ResilientMessage(1, 1, 1, 0, None, (), ()), envelope, ImpossibleFrame),  # It hands me a message of my own.
        (ResilientMessage(1, 0, 1, 0, (1,), (), ()), envelope, MalformedFrame),  # It does not say which one to me it is.
        (ResilientMessage(1, 0, 1, 1, None, message.updates, ()), envelope, MalformedFrame),  # It was safe before it was sent.
        (ResilientEnough(1, 2, 1, (2, 3), ()), None, MalformedFrame),  # What it lists behind a hole is behind none.
        (ResilientEnough(1, 2, 1, (9, MAX_AHEAD + 2), ()), None, MalformedFrame),  # It would take much memory.
    ):
        with pytest.raises(kind):
            b.accept("D", Frame(stamp, body), 0)
        assert b.snapshot() == before


def test_what_earlier_versions_sent_and_stored_is_read() -> None:
    """Frames and snapshots of the time when nobody handed anything on: they are ordered as by ``matrix``."""
    told = golden_bytes.read(golden_bytes.FOLDER / "protocol-1-2.txt")
    frames = {}
    for name, data in told.items():
        if name.startswith("resilient"):
            frames[name.rpartition(" ")[2]] = decode_packet(memoryview(data)[1:], "an old server").frames[0]
    assert {"MatrixStamp", "EarlierKept", "EarlierSafe"} <= set(map(_kind_of, frames.values()))
    run = Run("resilient", ("a", "b", "c"))
    a, b = run.orderings["a"], run.orderings["b"]
    assert b.accept("a", frames["MatrixStamp"], 0).deliver == [frames["MatrixStamp"]]
    assert a.accept("b", frames["ResilientKept"], 0) == b.accept("a", frames["ResilientSafe"], 0) == Output([], [])
    name, me, members, options, state, _ = msgspec.msgpack.decode(a.snapshot())
    held = (0, 1, 1, (MatrixStamp(1, ()), Envelope("b", 1, None, b"")), 0, 0)
    state = {"matrix": state["matrix"], "safe": [0, 0, 0], "kept": [(0, {})] * 3, "unsafe": []}
    a.restore(msgspec.msgpack.encode((name, me, members, options, state, [(len(members) + 1, 1, (1, *held[1:]))])))
    assert [str(wait.message) for wait in a.waiting()] == ["b:1"], "for an ack, which nobody will send"
    assert isinstance(a, Resilient)
    assert [str(frame.envelope.id) for frame in a.survival.suspect("c", True).deliver if frame.envelope] == ["b:1"]
    assert len(a.send(Envelope("a", 1, None, b""), None).send) == 2


def _kind_of(frame: Frame[Any]) -> str:
    return type(frame.stamp).__name__


def test_copies_must_make_sense() -> None:
    for copies in (-1, 65, "two"):
        with pytest.raises(ConfigError, match=r"copies"):
            Run("resilient", NAMES, {"copies": copies})


@pytest.mark.parametrize("seed", range(6))
def test_faults_do_not_hurt(seed: int) -> None:
    """Loss, repetition, overtaking, crashes that come back from disk: all is delivered, in order."""
    options = SimulationOptions(
        ordering="resilient",
        ordering_options={"copies": 1 + seed % 2},
        messages=60,
        pattern=("broadcast", "multicast", "unicast")[seed % 3],
        loss=0.1,
        duplication=0.1,
        crashes=3,
        seed=seed,
    )
    result, events = simulate(options)
    assert judge(events, {"well-formed", "creation", "duplication", "completeness", "causal"}).violations == [], options.replay()
    assert result.waiting == 0
