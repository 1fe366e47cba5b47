"""``thence demo``: causal order kept where a naive network breaks it, in a minute.

First the triangle, step by step: the smallest run in which order can break. Then the same random traffic twice,
over the same slow and lossy network, once without order and once with; the judge, who knows nothing of either, says
what it found.
"""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
import typer

from thence.cli import console
from thence.sim.options import SimulationOptions
from thence.sim.scenario import Stage
from thence.sim.simulation import Simulation
from thence.trace.events import Event
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

MIN_MESSAGES, MAX_MESSAGES = 100, 100_000
"""With very few messages chance may keep order where nothing else does."""


def command(
    seed: Annotated[int, typer.Option(help="Another seed, another run.")] = 1,
    messages: Annotated[
        int, typer.Option(min=MIN_MESSAGES, max=MAX_MESSAGES, help="Messages of the larger run.")
    ] = TRAFFIC.messages,
) -> None:
    """Show causal order kept where a naive network breaks it."""
    broken = _triangle("unordered", "Without order")
    kept = _triangle("matrix", "With causal order")
    naive = _traffic("unordered", seed, messages)
    causal = _traffic("matrix", seed, messages)
    console.say("")
    if not (_only_order_broke(broken) and kept.kept and _only_order_broke(naive) and causal.kept):
        console.say("This is not what the demo should show: please report it with the seed.")
        raise typer.Exit(1)
    console.say(
        f"Verdict: on the same lossy network, {naive.properties['causal']:,} deliveries came before their cause without order, "
        f"and none with it. Nothing was lost or doubled in either run."
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


def _traffic(ordering: str, seed: int, messages: int) -> Verdict:
    """Simulate the larger run on an ordering and judge its trace."""
    options = msgspec.structs.replace(TRAFFIC, ordering=ordering, seed=seed, messages=messages)
    events: list[Event] = []
    began = time.perf_counter()
    with console.progress(f"{ordering} (messages)", messages) as advance:
        result = Simulation(options, events.append, progress=advance).run()
    verdict = judge(events)
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
