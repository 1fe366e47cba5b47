"""Random executions with vector clocks, for hypothesis, and what they look like as logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from thence.pipeline.importers.clocks import Logged
from thence.pipeline.importers.logtext import KNOWN, Grammar
from thence.pipeline.importers.shiviz import derived_rows, parsed_rows

HOSTS = ("a", "b", "node-3", "d:1")
GOVECTOR = Grammar(next(iter(KNOWN.values())))

Step = tuple[int, list[int]]


@st.composite
def executions(draw: st.DrawFn, max_events: int = 14) -> list[Logged]:
    """Events in an order in which they may have happened: each hears of some earlier ones, in any order, also again."""
    steps: list[Step] = draw(
        st.lists(
            st.tuples(st.integers(0, len(HOSTS) - 1), st.lists(st.integers(0, max_events), max_size=2)),
            min_size=1,
            max_size=max_events,
        )
    )
    events: list[Logged] = []
    own: dict[str, dict[str, int]] = {}
    for number, (host, heard) in enumerate(steps):
        name = HOSTS[host]
        clock = dict(own.get(name, {}))
        for place in heard:
            if place < number:
                for key, count in events[place].clock.items():
                    clock[key] = max(clock.get(key, 0), count)
        clock[name] = clock.get(name, 0) + 1
        own[name] = clock
        events.append(Logged(name, clock))
    return events


def happens_before(one: Logged, other: Logged) -> bool:
    """What the clocks say."""
    return one is not other and one.number <= other.clock.get(one.host, 0)


def govector(events: Sequence[Logged]) -> str:
    """The log that GoVector would write."""
    return "".join(f"{event.host} {json.dumps(dict(event.clock))}\nsomething {number}\n" for number, event in enumerate(events))


def imported(text: str, grammar: Grammar | None = GOVECTOR) -> list[Mapping[str, Any]]:
    """The rows of a log, by the kernels alone; all runs."""
    rows = list(parsed_rows("file:/x.log", text.encode(), grammar))
    runs = sorted({row["run"] for row in rows}, key=str)
    return [row for run in runs for row in derived_rows(row for row in rows if row["run"] == run)]
