"""Money that moves between agents is neither lost nor made, wherever their servers crash: every point is tried, and chance.

A run without a crash counts the single things that happen (``tests/support/crashes/agent_crashes.py``); then there is a run for
each of them in which the server crashes there. Whatever was in memory is gone. The books must balance all the same, and again
after one more start.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.crashes.agent_crashes import HOMES, Bank
from tests.support.crashes.bank import Move, Poison, tree
from thence.agents import engine
from thence.core.member.contract import Submit
from thence.node.messages.intake import Intake
from thence.storage.journal import Written

MAX_EXAMPLES = 30
PATIENCE_S = 60.0

SOME: tuple[tuple[str, Move | Poison], ...] = (
    ("ann", Move("1", 0, [("bob", Move("1.0", 10, [("carl", Move("1.0.0", 4)), ("ann", Move("1.0.1", 3))]))])),
    ("bob", Poison("2")),
    ("carl", Move("3", 0, [("bob", Move("3.0", 5)), ("bob", Move("3.1", 6, [("bob", Move("3.1.0", 1))]))])),
)


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Retry at once; and a kill takes nothing from the system's memory, so that nothing need be synced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "FIRST_RETRY_S", 0.0)
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(os, "fdatasync", lambda _: None)
        yield


async def run(
    folder: Path, moves: Collection[tuple[str, Move | Poison]], crash_at: Collection[int] = (), compact_every: int = 0
) -> Bank:
    """Make one run; the bank is closed, and balanced."""
    bank = Bank(folder, crash_at=crash_at, compact_every=compact_every)
    await bank.open()
    for account, move in moves:
        bank.send(account, move)
    await bank.settle()
    bank.armed = False
    wrong = bank.wrong()
    bank.dead.update(bank.nodes)
    await bank.settle()  # Once more, from what is on disk alone.
    wrong += [f"after one more start: {what}" for what in bank.wrong()]
    await bank.close()
    assert not wrong, f"{wrong}; crashes at {sorted(crash_at)}: {bank.crashes}"
    return bank


def go(moves: Collection[tuple[str, Move | Poison]], crash_at: Collection[int] = (), compact_every: int = 0) -> Bank:
    """Make one run in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(asyncio.wait_for(run(Path(folder), moves, crash_at, compact_every), PATIENCE_S))


@pytest.mark.parametrize("compact_every", [0, 3])
def test_a_crash_at_any_single_point_changes_nothing(compact_every: int) -> None:
    whole = go(SOME, compact_every=compact_every)
    assert whole.kinds_of_operation >= {
        "persist",
        "persisted",
        "send",
        "sent",
        "accept",
        "deliver",
        "acknowledge",
        "acknowledged",
    }
    assert ("snapshot" in whole.kinds_of_operation) == (compact_every > 0)
    assert whole.operations > 60
    runs = [(point, go(SOME, {point}, compact_every)) for point in range(1, whole.operations + 1)]
    # Acks may wait for company, so that on a busy machine a run may have fewer operations than the first one.
    assert all(bank.crashes or bank.operations < point for point, bank in runs)
    assert sum(bool(bank.crashes) for _, bank in runs) > 60


@settings(max_examples=MAX_EXAMPLES, deadline=None)
@given(seed=st.integers(0, 2**32), crash_at=st.sets(st.integers(1, 400), max_size=6), compact_every=st.sampled_from([0, 1, 7]))
def test_many_crashes_in_random_traffic_change_nothing(seed: int, crash_at: set[int], compact_every: int) -> None:
    chance = Random(seed)
    accounts = list(HOMES)
    moves: list[tuple[str, Move | Poison]] = []
    for number in range(chance.randint(1, 8)):
        what = Poison(str(number)) if chance.random() < 0.15 else tree(chance, accounts, str(number))
        moves.append((chance.choice(accounts), what))
    bank = go(moves, crash_at, compact_every)
    # That the books are right is asserted in ``run``; here, that what should have ended a server did.
    assert len(bank.crashes) == len([point for point in crash_at if point <= bank.operations])


def _submit_alone(intake: Intake, submit: Submit) -> None:
    intake.submitted.append(None)
    intake.driver.step(submit)


def _state_first(intake: Intake, submits: list[Submit], record: Written, then: Callable[[], None] | None) -> None:
    """A planted mistake: what is sent is submitted when the new state is on disk."""

    def send() -> None:
        if then is not None:
            then()
        for submit in submits:
            _submit_alone(intake, submit)

    intake.driver.write([record], send)


def _sends_first(intake: Intake, submits: list[Submit], record: Written, then: Callable[[], None] | None) -> None:
    """Another one: the new state is written when what is sent is on disk."""
    for submit in submits:
        _submit_alone(intake, submit)
    intake.driver.when_durable(lambda: intake.driver.write([record], then))


@pytest.mark.parametrize(("planted", "found"), [(_state_first, "was not made"), (_sends_first, "times")])
def test_a_reaction_in_two_entries_is_found(planted: Callable[..., None], found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Intake, "write_together", planted)
    points = go(SOME).operations  # Without a crash nothing is wrong with it.
    complaints = []
    for point in range(1, points + 1):
        try:
            go(SOME, {point})
        except AssertionError as error:
            complaints.append(str(error))
    assert any(found in complaint for complaint in complaints)
