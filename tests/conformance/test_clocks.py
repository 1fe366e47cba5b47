"""Every matrix clock keeps the rules of ``core.ordering.matrix_clock``, whatever it writes; broken ones do not pass.

A domain of four members runs at random: frames overtake each other, members restart. What happened is known from the sends and
deliveries alone, by sets of messages, and each clock is held to that. Vector stamps have no clock of their own behind an
interface: the suite of orderings tries each of their forms. Time is an argument of each step, so nothing implements it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from thence.core.ordering import matrix_entries
from thence.core.ordering.matrix_clock import FullMatrix, FullMatrixStamp, MatrixClock, MatrixState, UpdatesMatrix
from thence.core.ordering.matrix_entries import PackedMatrixStamp
from thence.core.ordering.pending import HeldFrame
from thence.core.wire.messages import Frame
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError

NAMES = ("A", "B", "C", "D")
COUNT = len(NAMES)
SEEDS = range(8)
STEPS = 120
NEVER_DENSE = 10**9

Make = Callable[[Sequence[str], int], MatrixClock]
Message = tuple[int, int, int]
"""The member that sent it, the one it is for, and which of these it is."""


class Kind(NamedTuple):
    """A clock, and from how many entries on it goes over to arrays."""

    make: Make
    dense_from: int = NEVER_DENSE
    whole_share: int = matrix_entries.WHOLE_SHARE


KINDS = {
    "updates": Kind(UpdatesMatrix),
    "updates, later packed": Kind(UpdatesMatrix, dense_from=6),
    "updates, packed whole": Kind(UpdatesMatrix, dense_from=1, whole_share=COUNT**2),
    "full": Kind(FullMatrix),
}


@contextmanager
def written_as(kind: Kind) -> Iterator[Make]:
    """Let the clocks of a kind be made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix_entries, "FEWEST_DENSE", kind.dense_from)
        patch.setattr(matrix_entries, "WHOLE_SHARE", kind.whole_share)
        yield kind.make


class Copy(NamedTuple):
    """A frame on its way, and what its sender knew when it was sent, the messages of the same multicast included."""

    message: Message
    stamp: Any
    known: frozenset[Message]

    def held(self) -> HeldFrame[Any]:
        """Return the frame as a receiver has it."""
        return HeldFrame(self.message[0], self.message[0], self.message[2], Frame(self.stamp, None), 0)


class Domain:
    """Four clocks, what is on its way to each member, and what each of them really knows."""

    def __init__(self, make: Make, seed: int) -> None:
        self.make, self.chance = make, Random(seed)
        self.clocks = [make(NAMES, me) for me in range(COUNT)]
        self.known: list[set[Message]] = [set() for _ in NAMES]
        self.sent = dict.fromkeys(product(range(COUNT), repeat=2), 0)
        self.coming: list[list[Copy]] = [[] for _ in NAMES]
        self.taken: list[set[Message]] = [set() for _ in NAMES]

    def send(self, me: int, columns: Sequence[int]) -> None:
        """Send one message to several members."""
        clock, messages = self.clocks[me], []
        clock.count_sent(columns)
        for column in columns:
            self.sent[me, column] += 1
            messages.append((me, column, self.sent[me, column]))
        self.known[me].update(messages)
        for message in messages:
            self.coming[message[1]].append(Copy(message, clock.stamp_for(message[1]), frozenset(self.known[me])))

    def before(self, me: int, copied: Copy) -> set[Message]:
        """Return which messages to ``me`` come before this one and are not there yet."""
        return {one for one in copied.known if one[1] == me and one != copied.message} - self.taken[me]

    def take(self, me: int, at: int) -> bool:
        """Let a frame arrive: it is delivered if its clock says so. Return whether it was."""
        copied = self.coming[me][at]
        self.clocks[me].check(copied.message[0], copied.stamp)
        if self.clocks[me].missing(held := copied.held()) is not None:
            return False
        del self.coming[me][at]
        self.clocks[me].release(held)
        self.taken[me].add(copied.message)
        self.known[me] |= copied.known
        return True

    def restart(self, me: int) -> None:
        """Make a clock again, of what it saved."""
        saved = msgspec.msgpack.decode(msgspec.msgpack.encode(self.clocks[me].save()), type=MatrixState)
        self.clocks[me] = self.make(NAMES, me)
        self.clocks[me].load(saved)

    def step(self) -> None:
        """Let something happen."""
        me = self.chance.randrange(COUNT)
        if self.chance.random() < 0.4:
            others = [member for member in range(COUNT) if member != me]
            self.send(me, sorted(self.chance.sample(others, self.chance.randint(1, len(others)))))
        elif self.coming[me]:
            self.take(me, self.chance.randrange(len(self.coming[me])))

    def finish(self) -> None:
        """Let everything arrive."""
        while any(self.take(me, at) for me in range(COUNT) for at in range(len(self.coming[me]))):
            pass


def runs(make: Make) -> Iterator[Domain]:
    for seed in SEEDS:
        yield Domain(make, seed)


# --- the rules ---------------------------------------------------------------------------------------------------------


def nothing_is_delivered_before_its_causes(make: Make) -> None:
    for domain in runs(make):
        for _ in range(STEPS):
            for me, coming in enumerate(domain.coming):
                for copied in coming:
                    if domain.clocks[me].missing(copied.held()) is None:
                        assert domain.before(me, copied) == set()
            domain.step()


def nothing_waits_in_vain(make: Make) -> None:
    """What is named as missing comes before the frame and is not there; so everything is delivered at last."""
    for domain in runs(make):
        for _ in range(STEPS):
            for me, coming in enumerate(domain.coming):
                for copied in coming:
                    missing = domain.clocks[me].missing(copied.held())
                    assert missing is None or (missing[0], me, missing[1]) in domain.before(me, copied)
            domain.step()
        domain.finish()
        assert domain.coming == [[], [], [], []]


def it_knows_what_it_was_told_and_no_more(make: Make) -> None:
    for domain in runs(make):
        for _ in range(STEPS):
            domain.step()
        for me, clock in enumerate(domain.clocks):
            assert clock.delivered == [sum(one[0] == row for one in domain.taken[me]) for row in range(COUNT)]
            told = dict.fromkeys(product(range(COUNT), repeat=2), 0)
            for row, column, number in domain.known[me]:
                told[row, column] = max(number, told[row, column])
            assert {place: clock.value(*place) for place in told} == told


def a_restart_changes_nothing(make: Make) -> None:
    """Two runs of one seed, in one of which members restart all the time, write the same stamps."""
    for seed in SEEDS:
        plain, restarted = Domain(make, seed), Domain(make, seed)
        for step in range(STEPS):
            plain.step()
            restarted.step()
            restarted.restart(step % COUNT)
            assert restarted.coming == plain.coming
            assert restarted.taken == plain.taken


def looking_changes_nothing(make: Make) -> None:
    for domain in runs(make):
        for _ in range(STEPS // 2):
            domain.step()
        for me, clock in enumerate(domain.clocks):
            before = copy.deepcopy(clock.save())
            for copied in domain.coming[me]:
                clock.check(copied.message[0], copied.stamp)
                clock.missing(copied.held())
            assert clock.save() == before


def a_frame_goes_on_where_it_was_checked(make: Make) -> None:
    """A frame that is looked at again and again is released when one that is looked at for the first time is."""
    for domain in runs(make):
        waiting: dict[tuple[int, Message], HeldFrame[Any]] = {}
        for _ in range(STEPS):
            for me, coming in enumerate(domain.coming):
                for copied in coming:
                    held = waiting.setdefault((me, copied.message), copied.held())
                    assert domain.clocks[me].missing(held) == domain.clocks[me].missing(copied.held())
            domain.step()


def what_cannot_be_is_refused(make: Make) -> None:
    """A count of messages that were never sent, another number than the stamp's own, the stamp of another clock, half a stamp."""
    domain = Domain(make, 0)
    domain.send(0, [1])
    stamp = domain.coming[1][0].stamp
    clock = domain.clocks[1]
    before = copy.deepcopy(clock.save())
    for broken in (None, *unfit(stamp)):
        with pytest.raises(MalformedFrame):
            clock.check(0, broken)
    ghost, a, d = make(NAMES, 1), make(NAMES, 0), make(NAMES, 3)
    for columns in ([2], [0]):  # Not B, but somebody in its name writes to C and to A; A tells D of it, and D tells B.
        ghost.count_sent(columns)
    a.release(HeldFrame(1, 1, 1, Frame(ghost.stamp_for(0), None), 0))
    a.count_sent([3])
    d.release(HeldFrame(0, 0, 1, Frame(a.stamp_for(3), None), 0))
    d.count_sent([1])
    with pytest.raises(ImpossibleFrame, match=r"I sent 1 message to '[AC]', but I sent 0"):
        clock.check(3, d.stamp_for(1))
    assert clock.save() == before


def unfit(stamp: Any) -> Iterator[Any]:
    """Yield stamps that are none of this clock."""
    match stamp:
        case FullMatrixStamp(number, matrix):
            yield FullMatrixStamp(number + 1, matrix)
            yield FullMatrixStamp(number, matrix[:-4])
        case PackedMatrixStamp(number, width, steps, values):
            yield PackedMatrixStamp(number + 1, width, steps, values)
            yield PackedMatrixStamp(number, width, steps + b"\1", values)
        case _:
            yield msgspec.structs.replace(stamp, updates=(1,))
            yield msgspec.structs.replace(stamp, updates=(COUNT**2, 1))
    yield FullMatrixStamp(1, bytes(4))


def a_state_without_its_matrix_is_refused(make: Make) -> None:
    with pytest.raises(StorageError, match="without the matrix"):
        make(NAMES, 0).load(MatrixState([0] * COUNT, None, None))


Rule = Callable[[Make], None]
RULES: tuple[Rule, ...] = (
    nothing_is_delivered_before_its_causes,
    nothing_waits_in_vain,
    it_knows_what_it_was_told_and_no_more,
    a_restart_changes_nothing,
    looking_changes_nothing,
    a_frame_goes_on_where_it_was_checked,
    what_cannot_be_is_refused,
    a_state_without_its_matrix_is_refused,
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_clock(rule: Rule, kind: Kind) -> None:
    with written_as(kind) as make:
        rule(make)


def test_each_way_to_write_is_tried() -> None:
    """Or a kind of the table would be another one."""
    for name, kind in KINDS.items():
        with written_as(kind) as make:
            domain = Domain(make, 1)
            stamps = []
            for _ in range(STEPS):
                domain.step()
                stamps += [copied.stamp for coming in domain.coming for copied in coming]
        found = {type(stamp).__name__ for stamp in stamps}
        whole = [stamp for stamp in stamps if isinstance(stamp, PackedMatrixStamp) and not stamp.steps]
        assert (
            found
            == {
                "updates": {"MatrixStamp"},
                "updates, later packed": {"MatrixStamp", "PackedMatrixStamp"},
                "updates, packed whole": {"PackedMatrixStamp"},
                "full": {"FullMatrixStamp"},
            }[name]
        )
        assert whole or name != "updates, packed whole"


# --- planted -----------------------------------------------------------------------------------------------------------


class ForgetsThirdParties(UpdatesMatrix):
    """Looks at what its sender sent to it, and at nobody else."""

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        missing = super().missing(held)
        return missing if missing is not None and missing[0] == held.sender else None


class CountsItselfAlone(FullMatrix):
    """Counts a multicast one by one, so that a recipient does not hear of the others."""

    def stamp_for(self, column: int) -> FullMatrixStamp:
        matrix = self.read(self._written).copy()
        others = [other for other in range(COUNT) if other != column]
        matrix[self._me, others] -= matrix[self._me, others] > 0
        return FullMatrixStamp(self.value(self._me, column), matrix.tobytes())


class NamesAnother(UpdatesMatrix):
    """Names the last message that it waits for, not one that exists."""

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        missing = super().missing(held)
        return None if missing is None else (missing[0], missing[1] + 1)


class Gullible(FullMatrix):
    """Believes that everybody sent as much as somebody did."""

    def release(self, held: HeldFrame[Any]) -> None:
        super().release(held)
        self._matrix[self._me] = self._matrix.max()


class ForgetsPositions(UpdatesMatrix):
    """Writes everything again after a restart."""

    def load(self, state: MatrixState) -> None:
        super().load(state)
        self._positions = [0] * self._count


class LearnsWhenItLooks(FullMatrix):
    """Takes over what a frame says before the frame is delivered."""

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        self._maximum(self._matrix, self.read(held.frame.stamp.matrix), out=self._matrix)
        return super().missing(held)


class SkipsOne(UpdatesMatrix):
    """Goes on one entry behind the one that it waited for."""

    def missing(self, held: HeldFrame[Any]) -> tuple[int, int] | None:
        cursor = held.cursor
        missing = super().missing(held)
        if held.cursor != cursor:
            held.cursor += 2
        return missing


class TakesAnything(FullMatrix):
    """Refuses nothing."""

    def check(self, sender: int, stamp: Any) -> None:
        pass


class BeginsAnew(FullMatrix):
    """Begins anew if there is nothing to load."""

    def load(self, state: MatrixState) -> None:
        if state.full is not None:
            super().load(state)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (ForgetsThirdParties, nothing_is_delivered_before_its_causes),
        (CountsItselfAlone, nothing_is_delivered_before_its_causes),
        (NamesAnother, nothing_waits_in_vain),
        (Gullible, it_knows_what_it_was_told_and_no_more),
        (ForgetsPositions, a_restart_changes_nothing),
        (LearnsWhenItLooks, looking_changes_nothing),
        (SkipsOne, a_frame_goes_on_where_it_was_checked),
        (TakesAnything, what_cannot_be_is_refused),
        (BeginsAnew, a_state_without_its_matrix_is_refused),
    ],
)
def test_a_broken_clock_is_noticed(broken: Make, rule: Rule) -> None:
    with written_as(Kind(broken)) as make, pytest.raises((AssertionError, pytest.fail.Exception)):
        rule(make)
