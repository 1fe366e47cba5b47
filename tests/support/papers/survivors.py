"""What of a run with deaths counts: who is dead need get nothing, and what it sent and nobody delivered is gone with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.judge import judge
from thence.trace.verdict import DEFAULT_REQUIRED, Violation


def dead_in(simulation: Simulation) -> list[str]:
    """Return who died for good."""
    return [node.name for node in simulation.nodes.values() if node.dead]


def wrong_among(events: Sequence[Event], dead: Collection[str], require: Collection[str] = DEFAULT_REQUIRED) -> list[Violation]:
    """Return what is wrong. Whatever survivors sent is complete; whatever others delivered reaches all."""
    rows = judge(events, [*require, *(["agreement"] if dead else [])]).violations
    heard = {event.message for event in events if event.kind == "deliver" and event.process != _sender(event.message)}
    gone = {row.later for row in rows if _sender(row.later) in dead} - heard
    return [
        row
        for row in rows
        if row.process not in dead
        and not (row.property == "agreement" and row.later in gone)
        and not (row.property == "completeness" and _sender(row.later) in dead)
    ]


def _sender(message: str | None) -> str:
    return (message or "").rpartition(":")[0]


def still_waiting(simulation: Simulation, gone: Collection[str] = ()) -> int:
    """Return how many messages of survivors, and from survivors, wait at survivors; who is ``gone`` is none.

    What a dead one passed on last may wait for what it passed on before, and nobody has: another one has passed on both.
    """
    living = [node for node in simulation.nodes.values() if not node.dead and node.name not in gone]
    names = {node.name for node in living}
    waits = [wait for node in living for wait in node.member.attachment.waiting()]
    return sum(wait.message is not None and {wait.message.origin, wait.peer} <= names for wait in waits)
