"""``thence demo``: causal order kept where a naive network breaks it, in a minute.

First the triangle, step by step: the smallest run in which order can break. Then the same random traffic twice,
over the same slow and lossy network, once without order and once with; the judge, who knows nothing of either, says
what it found. At last both runs go to Spark as one trace, and the audit has to find the same.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from thence.cli import console
from thence.sim.options import SimulationOptions
from thence.sim.scenario import Stage
from thence.sim.simulation import Simulation
from thence.trace.events import Event
from thence.trace.files import write_trace
from thence.trace.judge import Verdict, judge

TRIANGLE = ("send A to C", "send A to B", "arrive A B", "send B to C", "arrive B C", "arrive A C")
TOLD = (
    "A writes to C. The message is slow.",
    "A writes to B.",
    "It arrives, and B reads it.",
    "B writes to C about it.",
    "B's message reaches C.",
    "A's slow message reaches C at last.",
)
TRAFFIC = SimulationOptions(
    processes=12, messages=2_000, pattern="multicast", recipients=4, loss=0.02, delay="pareto:5ms,1.6", gap="exponential:1ms"
)

AUDIT_SLICE_EVENTS = 5_000
"""Far less than a slice can hold, so that the run is cut into several."""

MIN_MESSAGES, MAX_MESSAGES = 100, 100_000
"""With very few messages chance may keep order where nothing else does."""


def command(
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    messages: Annotated[
        int, typer.Option(min=MIN_MESSAGES, max=MAX_MESSAGES, help="Messages of the larger run.")
    ] = TRAFFIC.messages,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the audit on Spark.")] = False,
) -> None:
    """Show causal order kept where a naive network breaks it."""
    broken = _triangle("unordered", "Without order")
    kept = _triangle("matrix", "With causal order")
    events: list[Event] = []
    naive = _traffic("unordered", seed, messages, events)
    causal = _traffic("matrix", seed, messages, events)
    good = _only_order_broke(broken) and kept.kept and _only_order_broke(naive) and causal.kept
    proof = "the judge"
    if not no_spark:
        good = _audit(events, naive) and good
        proof = "the judge, and the audit on Spark"
    console.say("")
    if not good:
        console.say("This is not what the demo should show: please report it with the seed.")
        raise typer.Exit(1)
    console.say(
        f"Verdict: on the same lossy network, {naive.properties['causal']:,} deliveries came before their cause without order, "
        f"and none with it. Nothing was lost or doubled in either run. So say {proof}."
    )


def _only_order_broke(verdict: Verdict) -> bool:
    """Return whether order broke, and nothing else did."""
    broken = {name for name, count in verdict.properties.items() if count}
    return "causal" in broken and broken <= {"fifo", "causal"}


def _triangle(ordering: str, title: str) -> Verdict:
    """Play the triangle on an ordering and tell what happens."""
    stage = Stage()
    stage.do(f"domain d {ordering} A B C")
    rows = []
    for command_text, told in zip(TRIANGLE, TOLD, strict=True):
        seen = stage.do(command_text).splitlines()
        delivered = [line.strip() for line in seen if " delivers " in line or " waits " in line]
        rows.append((told, "; ".join(delivered) or "-"))
    console.out.print(
        console.table(("what happens", "what the ordering does"), rows, title=f"{title} ({ordering}): the triangle")
    )
    verdict = judge(stage.events)
    said = verdict.violations[0].detail if verdict.violations else "everything came after what caused it"
    console.say(f"Judge: {verdict.verdict}: {said}.\n")
    return verdict


def _audit(events: list[Event], naive: Verdict) -> bool:
    """Audit both runs on Spark, from a trace on disk; return whether it found what the judge did."""
    with tempfile.TemporaryDirectory(prefix="thence-demo-") as folder:
        trace = Path(folder) / "trace"
        count = write_trace(trace, events)
        console.err.print("auditing both runs on Spark: the first time this takes half a minute", style="dim")
        # Imported here, so that the rest of the demo does not wait for Spark.
        from thence.pipeline.auditing import audit
        from thence.pipeline.session import spark_session

        with console.steps() as progress:
            found = audit(spark_session(), str(trace), slice_events=AUDIT_SLICE_EVENTS, progress=progress)
    runs = sorted({violation.run for violation in found.violations if violation.run is not None})
    counts = ", ".join(f"{name} {number:,}" for name, number in found.properties.items() if number) or "no violation"
    console.say(
        f"{'Spark':>9}: {found.verdict}: {counts}, all in run {', '.join(runs)}   "
        f"({count:,} events of {found.runs} runs, cut into {found.slices} slices, {sum(found.seconds.values()):.1f} s)"
    )
    return found.properties == naive.properties and runs == ["unordered"]


def _traffic(ordering: str, seed: int, messages: int, keep: list[Event]) -> Verdict:
    """Simulate the larger run on an ordering, judge its trace, and keep that."""
    options = msgspec.structs.replace(TRAFFIC, ordering=ordering, seed=seed, messages=messages)
    events: list[Event] = []
    began = time.perf_counter()
    with console.progress(f"{ordering} (messages)", messages) as advance:
        result = Simulation(options, events.append, progress=advance).run()
    verdict = judge(events)
    keep += [msgspec.structs.replace(event, run=ordering) for event in events]
    statistics = result.statistics
    counts = ", ".join(f"{name} {count:,}" for name, count in verdict.properties.items() if count) or "no violation"
    console.say(
        f"{ordering:>9}: {statistics.messages:,} messages to {options.recipients} of {options.processes} processes, "
        f"{statistics.deliveries:,} deliveries, {result.network['lost']:,} packets lost on the way and sent again; "
        f"half arrive within {statistics.delay_ns(0.5) / 1e6:.0f} ms, all within {statistics.delay_ns(1) / 1e6:,.0f} ms"
    )
    console.say(f"{'judge':>9}: {verdict.verdict}: {counts}   ({time.perf_counter() - began:.1f} s)")
    console.say(f"{'again':>9}: {options.replay()}")
    return verdict
