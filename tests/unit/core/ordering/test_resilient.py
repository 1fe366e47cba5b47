"""What ``resilient`` adds to ``matrix``: whatever is delivered, it and all that led to it are kept by enough others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import PATTERNS, Run, destinations
from thence.core.ordering.base import Output
from thence.core.ordering.matrix_clock import MatrixStamp
from thence.core.ordering.resilient import Resilient, ResilientCopy
from thence.core.wire.messages import Frame
from thence.errors import ConfigError
from thence.sim.options import SimulationOptions
from thence.sim.simulation import simulate
from thence.trace.judge import judge

NAMES = ("A", "B", "C", "D", "E")


class Hasty(Resilient):
    """As daisy §3.4 (ii) is printed: a message is acknowledged when enough keep it, whatever became of earlier ones to others."""

    def _ack(self, out: Output) -> None:
        unsettled: set[int] = set()
        for message in list(self._unsafe):
            places = {member for member, _ in message.holders} | ({self.my_index} if message.ours_too else set())
            if message.left <= 0 and not places & unsettled and message in self._unsafe:
                self._unsafe.remove(message)
                self._unsafe.appendleft(message)
                super()._ack(out)
            unsettled |= places


class Watch:
    """Follows a run: who holds which message, and what happened before it."""

    def __init__(self, run: Run, copies: int) -> None:
        self.run = run
        self.copies = copies
        self.holders: dict[str, set[str]] = {}
        self.recipients: dict[str, set[str]] = {}
        self.past: dict[str, set[str]] = {name: set() for name in run.members}
        self.causes: dict[str, set[str]] = {}
        self.seen = 0
        self.lacking: list[str] = []

    def arrive(self, source: str, target: str, place: int) -> None:
        frame: Frame[Any] = self.run.on_the_way[source, target][place]
        if isinstance(frame.stamp, MatrixStamp) and frame.envelope is not None:
            self.holders[str(frame.envelope.id)].add(target)
        self.run.arrive(source, target, place)
        self.hear()

    def hear(self) -> None:
        for event in self.run.events[self.seen :]:
            message, process = str(event.message), event.process
            if event.kind == "send":
                self.holders[message], self.recipients[message] = set(), set(event.to or ()) - {process}
                self.causes[message] = set(self.past[process])
            else:
                self.check(process, message)
                self.past[process] |= self.causes[message]
            self.past[process].add(message)
        self.seen = len(self.run.events)

    def check(self, process: str, message: str) -> None:
        """Note which of the messages before this delivery, and of itself, too few keep."""
        others = len(self.run.members) - 1
        if len(self.holders[message] - {process}) < min(self.copies, others - (process not in message)):
            self.lacking.append(f"{process} delivers {message}, kept by {sorted(self.holders[message])}")
        for cause in self.causes[message]:
            enough = self.copies + bool(self.recipients[cause]) if self.copies else 0
            if len(self.holders[cause]) < min(enough, others):
                self.lacking.append(f"{process} delivers {message} after {cause}, kept by {sorted(self.holders[cause])}")


def watched(kind: type[Resilient], members: int, copies: int, chance: Random, *, pairs: bool = False) -> Watch:
    """Play a random run; with ``pairs`` each message goes to two others, and later frames mostly overtake earlier ones."""
    run = Run(kind, NAMES[:members], {"copies": copies})
    watch = Watch(run, copies)
    for _ in range(60):
        flights = run.flights()
        if flights and chance.random() < 0.7:
            flight = chance.choice(flights[-3:] if pairs else flights)
            watch.arrive(flight.source, flight.target, flight.place)
        else:
            sender = chance.choice(run.members)
            two = chance.sample([name for name in run.members if name != sender], 2) if pairs else None
            run.send(sender, two or destinations(chance, run.members, sender, chance.choice(PATTERNS)))
            watch.hear()
    while flights := run.flights():
        flight = chance.choice(flights)
        watch.arrive(flight.source, flight.target, flight.place)
    return watch


@given(members=st.integers(2, 5), copies=st.integers(0, 4), seed=st.integers(0, 10**6))
def test_whatever_is_delivered_is_kept_by_enough(members: int, copies: int, seed: int) -> None:
    watch = watched(Resilient, members, copies, Random(seed))
    assert watch.lacking == []
    assert watch.run.complaints() == []
    assert watch.run.waiting() == 0


def test_confirming_out_of_order_is_found() -> None:
    """Without the rule that a sender acks in order, something is delivered though too few keep what led to it."""
    assert any(watched(Hasty, 5, 1, Random(seed), pairs=True).lacking for seed in range(60))
    assert not any(watched(Resilient, 5, 1, Random(seed), pairs=True).lacking for seed in range(60))


def fig2(kind: type[Resilient]) -> tuple[Run, list[str]]:
    """daisy Fig. 2: a writes m1 to b, where it gets lost, and x; then m2 to c and d. All else arrives. Return c's deliveries."""
    run = Run(kind, ("a", "b", "c", "d", "x"), {"copies": 1})
    run.send("a", ("b", "x"))
    run.send("a", ("c", "d"))
    lost = run.on_the_way.pop(("a", "b"))
    assert [str(frame.envelope.id) for frame in lost if frame.envelope] == ["a:1"]
    run.arrive_everything(Random(0))
    return run, run.deliveries("c")


def test_fig2_leaves_no_hole() -> None:
    """As long as b lacks m1, c does not deliver m2, so nothing that b gets from c can depend on m1; and x keeps m1."""
    run, delivered = fig2(Resilient)
    assert delivered == []
    waits = {str(wait.message): wait.missing for wait in run.orderings["a"].waiting()}
    assert waits["a:1"] == ("copies at b", 1)
    kept = [held.frame for _, _, held in run.orderings["x"].pending.entries()]
    assert [str(frame.envelope.id) for frame in kept if frame.envelope] == ["a:1"]


def test_fig2_as_printed_leaves_one() -> None:
    """Acknowledged out of order, c delivers m2, and what it then sends to b waits for m1 for ever."""
    run, delivered = fig2(Hasty)
    assert delivered == ["a:2"]
    run.send("c", ("b",))
    run.arrive_everything(Random(0))
    assert run.deliveries("b") == []
    assert any(str(wait.message) == "c:1" for wait in run.orderings["b"].waiting())


def test_a_message_waits_for_its_confirmation() -> None:
    run = Run("resilient", ("A", "B", "C", "D"), {"copies": 1})
    run.send("A", ("C",))
    kinds = {peer: type(frames[0].stamp) for (_, peer), frames in run.on_the_way.items()}
    assert kinds == {"B": ResilientCopy, "C": MatrixStamp}, "B keeps a copy"
    run.arrive("A", "C")
    (wait,) = run.orderings["C"].waiting()
    assert wait.missing == ("acks of A", 1)
    run.arrive("A", "B")
    run.arrive_everything(Random(0))
    assert [run.deliveries(name) for name in run.members] == [[], [], ["A:1"], []]
    assert run.waiting() == 0


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
