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
    from thence.pipeline.streaming.store import FollowState, StepLag
    from thence.trace.verdict import Violation

EXIT_KEPT = 0
EXIT_VIOLATED = 1

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
    from thence.pipeline.streaming.stream import HOLD_S, Options, follow

    options = Options(
        source=trace,
        checkpoint=checkpoint,
        out=out,
        require=require,
        until_idle_s=until_idle,
        hold_s=HOLD_S if hold_s is None else hold_s,
    )
    return _conclude(follow(spark_session(master), options, _hear), out)


def _hear(step: StepLag, found: Sequence[Violation]) -> None:
    for violation in found:
        run = f" in run {violation.run}" if violation.run is not None else ""
        console.say_plainly(f"{violation.property}{run}: {violation.detail}")
    console.err.print(console.plain(status(step)), soft_wrap=True)


def status(step: StepLag) -> str:
    """Return how far behind the audit is, in a line."""
    lag = step.lag
    parts = [
        f"{console.count(lag.events, 'event')} judged",
        console.count(lag.violations, "violation"),
        f"{console.count(lag.flights, 'message')} on the way",
        f"{lag.held:,} held" + (f", the oldest, {lag.oldest}, for {lag.oldest_s:.1f} s" if lag.oldest else ""),
    ]
    if step.behind_s is not None:
        parts.append(f"{step.behind_s:.1f} s behind the newest part")
    return f"step {step.step}: " + "; ".join(parts)


def _conclude(state: FollowState, out: str | None) -> int:
    follower = state.follower
    found = follower.counts.total()
    verdict = "violated" if found else "kept"
    so_far = "" if state.over else " so far"
    console.say(f"{verdict}{so_far}: {console.count(follower.events, 'event')}, {console.count(found, 'violation')}")
    console.out.print(console.table(("property", "violations"), [(name, follower.counts[name]) for name in follower.require]))
    if not state.over and follower.held:
        console.say(f"{console.count(follower.held, 'event')} held and not judged")
    if out:
        console.say(f"kept in {out}: violations, lag")
    return EXIT_VIOLATED if found else EXIT_KEPT
