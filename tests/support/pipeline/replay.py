"""Vector clocks of a trace, computed from its order alone: what the importers' results are compared with.

It shares no code with the importers or the judge. A process's rows go by index; a delivery waits for its send, and joins its
clock, unless nobody sent it. The kinds in ``ticks`` count as events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
Clock = dict[str, int]


def replay(rows: Iterable[Row], ticks: Collection[str]) -> dict[tuple[str, int], Clock]:
    """Return the clock of each row, by process and index."""
    histories: dict[str, list[Row]] = {}
    for row in rows:
        histories.setdefault(row["process"], []).append(row)
    for process, history in histories.items():
        history.sort(key=lambda row: int(row["index"]))
        assert [row["index"] for row in history] == list(range(len(history))), process
    sends = {row["message"] for history in histories.values() for row in history if row["kind"] == "send"}
    done: dict[tuple[str, int], Clock] = {}
    sent: dict[str, Clock] = {}
    clocks: dict[str, Clock] = {process: {} for process in histories}
    at = dict.fromkeys(histories, 0)
    moved = True
    while moved:
        moved = False
        for process, history in histories.items():
            while at[process] < len(history):
                row = history[at[process]]
                waits = row["kind"] == "deliver" and row["message"] in sends and row["message"] not in sent
                if waits:
                    break
                clocks[process] = done[process, at[process]] = _step(row, clocks[process], sent, row["kind"] in ticks)
                at[process] += 1
                moved = True
    assert all(at[process] == len(history) for process, history in histories.items()), "deliveries wait in a circle"
    return done


def _step(row: Row, clock: Clock, sent: dict[str, Clock], tick: bool) -> Clock:
    after = dict(clock)
    if row["kind"] == "deliver":
        for name, count in sent.get(row["message"], {}).items():
            after[name] = max(after.get(name, 0), count)
    if tick:
        after[row["process"]] = after.get(row["process"], 0) + 1
    if row["kind"] == "send":
        sent[row["message"]] = after
    return after
