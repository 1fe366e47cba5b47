"""``thence audit``: was order kept in this trace, however large?

It runs :mod:`thence.pipeline.audit` on Spark and prints the verdict, for people or as JSON.

Rules:

* Exit code 0: kept. 1: violated, or some rows could not be read. 2: the trace or an option cannot be used.
* What Spark has to say goes to standard error; ``--json`` prints one object on standard output and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from thence.cli import console
from thence.cli.properties import Require, required_properties
from thence.cli.traces import follow as traces_follow
from thence.cli.traces.follow import Checkpoint, UntilIdle, WaitSeconds
from thence.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from thence.pipeline.result import AuditResult

DEFAULT_LIMIT: Final = 20
FEWEST_SLICE_EVENTS: Final = 1_000
EXIT_VIOLATED: Final = 1
WORST: Final = 3
"""Of so many missing messages it is printed what they caused."""


def command(
    trace: Annotated[
        str, typer.Argument(help="A file, a folder, a glob, a URL, or table:NAME. What is no Parquet trace is imported.")
    ],
    master: Annotated[str | None, typer.Option(help="The Spark master. Default: all cores of this machine.")] = None,
    require: Require = None,
    out: Annotated[str | None, typer.Option(help="Where to keep the tables: a folder, or table:PREFIX.")] = None,
    slice_events: Annotated[
        int | None,
        typer.Option(min=FEWEST_SLICE_EVENTS, help="About how many events a task holds in memory. Default: a million."),
    ] = None,
    format: Annotated[  # noqa: A002 - what it is called everywhere
        str | None, typer.Option(help="What it is, if it is no Parquet trace: as for thence import.")
    ] = None,
    pattern: Annotated[str | None, typer.Option(metavar="REGEX", help="For ShiViz logs: as for thence import.")] = None,
    mapping: Annotated[str | None, typer.Option(metavar="FILE", help="For JSON: as for thence import.")] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="For JSON: as for thence import.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Measure the trace too: tables, a report here, and one HTML file (with --out).")
    ] = False,
    explain: Annotated[int, typer.Option(min=0, help="For how many violations to find the shortest causal chain.")] = 1_000,
    cones: Annotated[int, typer.Option(min=0, help="Of how many of those to export all that lies between (with --out).")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="How many violations to print.")] = DEFAULT_LIMIT,
    follow: Annotated[bool, typer.Option("--follow", help="Follow a folder to which finished parts are added.")] = False,
    checkpoint: Checkpoint = None,
    until_idle: UntilIdle = None,
    wait_s: WaitSeconds = None,
) -> None:
    """Check a trace of any size for order, losses and duplicates, on Spark.

    The same questions as thence judge, with the same answers, for traces
    that no memory can hold. Clocks are not believed: order is what each
    process recorded, and that sending comes before delivering.

    A trace of up to two million events on this machine is audited without
    Spark, unless --master, --out or --slice-events is given.

    With --follow a trace is judged while it grows, until it is idle for
    --until-idle seconds or you press Ctrl-C.

    Exits with 0 if everything required was kept, 1 if something was violated
    or could not be read, 2 if the trace or an option cannot be used.

    Example: thence audit run --out tables
    """
    required = required_properties(require)
    if report and out is None:
        raise ConfigError("--report needs --out, where the measurements go")
    if follow:
        if json:
            raise ConfigError("--json is for a verdict, and --follow gives violations as they come; --out keeps them in a table")
        if out is not None and out.startswith("table:"):
            raise ConfigError("--follow keeps its tables in a folder; for a table of a catalog, write audit_stream to it")
        raise typer.Exit(traces_follow.follow_trace(trace, master, required, out, checkpoint, until_idle, wait_s))
    if checkpoint is not None or until_idle is not None or wait_s is not None:
        raise ConfigError("--checkpoint, --until-idle and --patience go with --follow")
    from thence.pipeline.importers import SourceOptions, check

    options = SourceOptions.of(format, pattern, None, mapping, preset)
    check(trace, options)
    result = None
    if master is None and out is None and slice_events is None and not any(options):
        result = _audit_small(trace, required, explain)
    if result is None:
        result = _audit_on_spark(trace, master, required, slice_events, out, report, explain, cones, options._asdict())
    if json:
        console.say_json(result.to_json())
    else:
        _print(result, limit, out, report)
    if result.verdict == "violated" or result.bad_rows:
        raise typer.Exit(EXIT_VIOLATED)


def _audit_small(trace: str, required: Sequence[str], explain: int) -> AuditResult | None:
    """Audit a trace that is so small that Spark need not be started for it; nothing if it is not."""
    from thence.pipeline.audit.local import audit_small, read_small

    table = read_small(trace)
    if table is None:
        return None
    with console.bars() as progress:
        progress("audit", 0, 1)
        result = audit_small(table, required, explain=explain, source=trace)
        progress("audit", 1, 1)
    return result


def _audit_on_spark(
    trace: str,
    master: str | None,
    required: Sequence[str],
    slice_events: int | None,
    out: str | None,
    report: bool,
    explain: int,
    cones: int,
    importing: Mapping[str, str | None],
) -> AuditResult:
    # Imported here, so that thence --help does not wait for Spark.
    from thence.pipeline.audit import audit_trace
    from thence.pipeline.catalog import is_table, refuse_forgetful
    from thence.pipeline.kernels.plan import SLICE_EVENTS
    from thence.pipeline.session import spark_session

    spark = spark_session(master)
    if out is not None and is_table(out):
        refuse_forgetful(spark, out)
    with console.bars() as progress:
        return audit_trace(
            spark,
            trace,
            require=required,
            slice_events=slice_events or SLICE_EVENTS,
            out=out,
            explain=explain,
            cones=cones,
            report=report,
            importing=importing,
            progress=progress,
        )


def _print_missing(result: AuditResult) -> None:
    """Say which missing messages are the reason of most violations: one loss may have thousands of consequences."""
    if result.findings:
        console.say(f"{console.count(result.findings, 'message')} missing somewhere, for good or too long; what that caused:")
    for one in result.worst[:WORST]:
        how = "never came to" if one.lost else "was missing at"
        console.say_plainly(f"    {one.message} {how} {one.process}: {one.fifo} times fifo, {one.causal} times causal")


def _print(result: AuditResult, limit: int, out: str | None, report: bool) -> None:
    found = sum(result.properties.values())
    console.say(f"{result.verdict}: {console.count(result.events, 'event')}, {console.count(found, 'violation')}")
    if result.bad_rows:
        console.say(f"{console.count(result.bad_rows, 'row')} could not be read, so this is not the whole story:")
        for example in result.bad_examples:
            console.say_plainly(f"    {example}")
    console.out.print(console.table(("property", "violations"), list(result.properties.items())))
    _print_missing(result)
    for violation in result.violations[:limit]:
        run = f" in run {violation.run}" if violation.run is not None else ""
        console.say_plainly(f"{violation.property}{run}: {violation.detail}")
        story = result.stories.get(violation)
        if story:
            console.say_plainly(f"    because {story}")
    if found > limit:
        console.say(f"… and {found - limit:,} more; --limit prints more of them, --out keeps all in a table")
    if result.clocks:
        console.say(
            f"logged clocks: {result.clocks['compared']:,} compared, {result.clocks['differ']:,} differ from the computed ones"
        )
    for note in result.notes:
        console.say_plainly(f"note: {note}")
    for repair in result.repairs:
        console.say_plainly(f"cuts repaired: {repair}")
    seconds = sum(result.seconds.values())
    console.say(
        f"{console.count(result.runs, 'run')}, processes: {result.processes:,}, {console.count(result.slices, 'slice')}, "
        f"{seconds:.1f} s, {result.events / max(seconds, 1e-9):,.0f} events/s"
    )
    if out:
        there = {"report.html": report, "violations": True, "findings": True, "bad": result.bad_rows, "cones": result.cones}
        kept = [name for name, is_there in there.items() if is_there]
        console.say(f"kept in {out}: {', '.join(kept)}")
    if report and out:
        from thence.pipeline.report import print_report

        print_report(f"{out}/metrics", result, console.out, with_order=False)
