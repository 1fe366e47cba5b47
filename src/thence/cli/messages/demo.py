"""``thence demo``: causal order kept where a naive network breaks it, in a minute.

First the triangle, step by step: the smallest run in which order can break. Then a fabric of real servers, a conversation of
clients, and a relay that is killed and comes back (``demo_fabric``). At last what the servers recorded is judged, and audited on
Spark, which has to find the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from thence.cli import console
from thence.cli.messages.demo_fabric import run_fabric
from thence.sim.scenario import Stage
from thence.trace.files import read_trace
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
AUDIT_SLICE_EVENTS = 2_000
"""Far less than a slice can hold, so that the run is cut into several."""

QUESTIONS, MIN_QUESTIONS, MAX_QUESTIONS = 150, 10, 10_000


def command(
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    questions: Annotated[
        int, typer.Option(min=MIN_QUESTIONS, max=MAX_QUESTIONS, help="How many questions each client asks.")
    ] = QUESTIONS,
    no_spark: Annotated[bool, typer.Option("--no-spark", help="Leave out the audit on Spark.")] = False,
) -> None:
    """Show causal order kept: a small example, then real servers, one of which is killed, audited on Spark.

    Everything it makes is in a temporary folder, which is removed.

    Exits with 0 if order was kept where it should be and broke where it
    should, with 1 if not.

    Example: thence demo
    """
    small = _only_order_broke(_triangle("unordered", "Without order")) & _triangle("matrix", "With causal order").kept
    with tempfile.TemporaryDirectory(prefix="thence-demo-") as folder:
        told = run_fabric(Path(folder), seed, questions, lambda line: console.say(f"  {line}"))
        clients = not (told.lost or told.doubled or told.too_early or told.out_of_order)
        console.say(
            f"  {told.messages:,} questions and answers, {told.deliveries:,} deliveries to clients in {told.seconds:.1f} s: "
            f"{told.lost} lost, {told.doubled} doubled, {told.out_of_order} out of order, "
            f"{console.count(told.too_early, 'answer')} before their question"
        )
        trace = Path(folder) / "trace"
        verdict = judge(read_trace(trace))
        console.say(
            f"  judge: {verdict.verdict}: {verdict.events:,} events that the servers recorded, {_counts(verdict.properties)}"
        )
        good = small and clients and verdict.kept
        proof = "the judge"
        if not no_spark:
            good = _audit(trace, verdict) and good
            proof = "the judge, and the audit on Spark"
    console.say("")
    if not good:
        console.say("This is not what the demo should show: please report it with the seed.")
        raise typer.Exit(1)
    console.say(
        f"Verdict: a relay was killed in the middle of {told.messages:,} messages between real servers, and not one was lost, "
        f"doubled or delivered before what caused it. So say {proof}, from what the servers recorded."
    )


def _only_order_broke(verdict: Verdict) -> bool:
    """Return whether order broke, and nothing else did."""
    broken = {name for name, count in verdict.properties.items() if count}
    return "causal" in broken and broken <= {"fifo", "causal"}


def _counts(properties: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in properties.items() if number) or "no violation"


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


def _audit(trace: Path, judged: Verdict) -> bool:
    """Audit what the servers recorded on Spark; return whether it found what the judge did."""
    console.err.print("auditing the same on Spark: the first time this takes half a minute", style="dim")
    # Imported here, so that the rest of the demo does not wait for Spark.
    from thence.pipeline.audit import audit_trace
    from thence.pipeline.session import spark_session

    with console.bars() as progress:
        found = audit_trace(spark_session(), str(trace), slice_events=AUDIT_SLICE_EVENTS, progress=progress)
    console.say(
        f"  Spark: {found.verdict}: {found.events:,} events, cut into {console.count(found.slices, 'slice')}, "
        f"{_counts(found.properties)} ({sum(found.seconds.values()):.1f} s)"
    )
    return found.properties == judged.properties and found.verdict == judged.verdict
