"""Processes that people declared dead, and that the others went on without: what is then expected of whom.

A ``view`` names them in ``to`` (docs/how-to/removal.md). A run in which there are some is judged as another run, made of it here,
in which nothing is expected that cannot be. The audit does the same to its table (``pipeline.lost``), so both judge alike.

Rules:

* A lost process crashed for good, as if it had said so last.
* Processes may be lost one after the other: who has told of a view without another one went on without it, and may be lost later.
  A message of a lost process that nobody delivered who went on without it is given up: it was for nobody of those.
* The trace of a lost process may have ended before it did. What was delivered of it without a send, by its name (``NAME:7``),
  only arrived, as far as the checks are concerned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from thence.trace.events import ARRIVE, CRASH, DELIVER, SEND, VIEW, Event


def lost_in(events: Sequence[Event]) -> Mapping[str, frozenset[str]]:
    """Return who was lost in a run, and of each who has told so."""
    tellers: dict[str, set[str]] = {}
    for event in events:
        for name in event.to or () if event.kind == VIEW else ():
            tellers.setdefault(name, set()).add(event.process)
    return {name: frozenset(survivors) for name, survivors in tellers.items()}


def without_the_lost(events: Sequence[Event]) -> Sequence[Event]:
    """Return the run to judge instead of this one."""
    lost = lost_in(events)
    if not lost:
        return events
    sent: dict[str | None, str] = {}
    for event in events:
        if event.kind == SEND:
            sent[event.message] = min(event.process, sent.get(event.message, event.process))
    known = {
        event.message for event in events if event.kind == DELIVER and _went_on(event.process, lost, sent.get(event.message, ""))
    }
    last = dict.fromkeys(sorted(lost), -1)
    judged: list[Event] = []
    for event in events:
        if event.process in last:
            last[event.process] = max(event.index, last[event.process])
        judged.append(_as_judged(event, lost, sent, known))
    run = events[0].run
    return [*judged, *(Event(run=run, process=name, index=index + 1, kind=CRASH) for name, index in last.items())]


def _went_on(process: str, lost: Mapping[str, frozenset[str]], other: str) -> bool:
    """Return whether a process was not lost when another one was."""
    return process not in lost or process in lost.get(other, ())


def _as_judged(event: Event, lost: Mapping[str, frozenset[str]], sent: Mapping[str | None, str], known: set[str | None]) -> Event:
    """Return an event as the checks see it."""
    if event.kind == SEND and event.process in lost and event.to is not None and event.message not in known:
        return msgspec.structs.replace(event, to=tuple(name for name in event.to if not _went_on(name, lost, event.process)))
    if event.kind == DELIVER and event.message not in sent and (event.message or "").rpartition(":")[0] in lost:
        return msgspec.structs.replace(event, kind=ARRIVE)
    return event
