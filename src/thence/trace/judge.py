"""The judge: was order kept?

It takes events in any order, splits them by run, and puts each run before the checks that are required. It believes
the index and the message of each event and nothing else, and shares no code with what it judges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from thence.errors import ConfigError
from thence.trace.checks import CHECKS
from thence.trace.events import Event
from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import History
from thence.trace.evidence.lost import without_the_lost
from thence.trace.verdict import DEFAULT_REQUIRED, PROPERTIES, Verdict, Violation, conclude

__all__ = ["DEFAULT_REQUIRED", "PROPERTIES", "Verdict", "Violation", "judge"]

Progress = Callable[[int, int], None]
"""Hears how many checks are done, and how many there are."""


def judge(events: Iterable[Event], require: Iterable[str] = DEFAULT_REQUIRED, progress: Progress | None = None) -> Verdict:
    """Judge a trace. Only what is required is checked, and decides.

    >>> judge([Event(process="A", index=0, kind="send", message="m", to=("B",))]).properties["completeness"]
    1
    """
    required = _known(require)
    runs: dict[str | None, list[Event]] = defaultdict(list)
    for event in events:
        runs[event.run].append(event)
    count = sum(map(len, runs.values()))
    violations: list[Violation] = []
    done, total = 0, len(runs) * len(required)
    while runs:
        run, of_run = runs.popitem()
        evidence = Evidence(History(run, without_the_lost(of_run)))
        for name in required:
            violations.extend(CHECKS[name](evidence))
            done += 1
            if progress:
                progress(done, total)
    return conclude(count, required, violations)


def _known(require: Iterable[str]) -> tuple[str, ...]:
    required = set(require)
    for name in sorted(required.difference(PROPERTIES)):
        raise ConfigError(f"unknown property {name!r}; the properties are {', '.join(PROPERTIES)}")
    if not required:
        raise ConfigError(f"no property is required; the properties are {', '.join(PROPERTIES)}")
    return tuple(name for name in PROPERTIES if name in required)
