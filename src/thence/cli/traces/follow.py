"""``thence audit --follow``: violations of a trace that still grows, as they are found.

Rules:

* Violations go to standard output, one line each; how far behind this is goes to standard error, a line for each step.
* Exit codes are those of the audit. After Ctrl-C they say what was found so far, and the same command goes on from there.
* A violation may be printed again after a crash; the table of ``--out`` has it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from thence.cli import console

if TYPE_CHECKING:
    import pyarrow as pa

    from thence.pipeline.streaming.sink import FollowState, StepLag

EXIT_KEPT = 0
EXIT_VIOLATED = 1
PRINTED = 1_000
"""So many violations of a step are printed."""

Checkpoint = Annotated[
    str | None, typer.Option(help="With --follow: a folder for what a restart needs. Default: begin anew every time.")
]
UntilIdle = Annotated[
    float | None, typer.Option(min=0.0, help="With --follow: after so many seconds without a new part, declare the trace whole.")
]
WaitSeconds = Annotated[
    float | None,
    typer.Option("--patience", min=0.0, help="With --follow: how many seconds to wait for what an event needs. Default: 600."),
]


def follow_trace(
    trace: str,
    master: str | None,
    require: Sequence[str],
    out: str | None,
    checkpoint: str | None,
    until_idle: float | None,
    hold_s: float | None,
) -> int:
    """Follow a trace to its end, or to Ctrl-C; return the exit code."""
    # Imported here, so that thence --help does not wait for Spark.
    from thence.pipeline.session import spark_session
    from thence.pipeline.streaming.query import HOLD_S
    from thence.pipeline.streaming.stream import Options, follow

    options = Options(
        source=trace,
        checkpoint=checkpoint,
        out=out,
        require=require,
        until_idle_s=until_idle,
        hold_s=HOLD_S if hold_s is None else hold_s,
    )
    return _conclude(follow(spark_session(master), options, _hear), out)


def _hear(step: StepLag, found: pa.Table) -> None:
    for row in found.select(("property", "run", "detail")).slice(0, PRINTED).to_pylist():
        run = f" in run {row['run']}" if row["run"] is not None else ""
        console.say_plainly(f"{row['property']}{run}: {row['detail']}")
    if found.num_rows > PRINTED:
        console.say(f"… and {found.num_rows - PRINTED:,} more in this step; --out keeps all in a table")
    console.err.print(console.plain(status(step)), soft_wrap=True)


def status(step: StepLag) -> str:
    """Return how far behind the audit is, in a line."""
    parts = [
        f"{console.count(step.events, 'event')} judged",
        console.count(step.violations, "violation"),
        f"{console.count(step.flights, 'message')} on the way",
        f"{step.held:,} held" + (f", the oldest, {step.oldest}, for {step.oldest_s:.1f} s" if step.oldest else ""),
    ]
    if step.behind_s is not None:
        parts.append(f"about {console.count(step.unread, 'event')} and {step.behind_s:.1f} s behind")
    return f"step {step.step}: " + "; ".join(parts)


def _conclude(state: FollowState, out: str | None) -> int:
    counts, lags = state.counts, state.runs.values()
    found, held = counts.total(), sum(lag.held for lag in lags)
    verdict = "violated" if found else "kept"
    so_far = "" if state.over else " so far"
    events = sum(lag.events for lag in lags)
    console.say(f"{verdict}{so_far}: {console.count(events, 'event')}, {console.count(found, 'violation')}")
    console.out.print(console.table(("property", "violations"), [(name, counts[name]) for name in state.require]))
    if not state.over and held:
        console.say(f"{console.count(held, 'event')} held and not judged")
    if out:
        console.say(f"kept in {out}: violations, lag")
    return EXIT_VIOLATED if found else EXIT_KEPT
