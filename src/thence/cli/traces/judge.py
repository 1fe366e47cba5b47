"""``thence judge``: was order kept in this trace?

It reads a trace, puts it before :mod:`thence.trace.judge` and prints the verdict, for people or as JSON.

Rules:

* Exit code 0: kept. 1: violated. 2: the trace or an option cannot be read.
* ``--json`` prints one object, with every violation; ``--limit`` only shortens what people read.
* What an import noted that a trace cannot show is said with the verdict; in JSON as ``notes``, where there is any.
* Names come from files: what cannot be printed is shown escaped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from thence.cli import console
from thence.cli.properties import Require, required_properties
from thence.errors import TraceError
from thence.trace.files import PARQUET_ENDING, read_trace, trace_files, trace_size_bytes
from thence.trace.judge import judge
from thence.trace.words import tell_chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thence.trace.events import Event
    from thence.trace.verdict import Verdict, Violation

DEFAULT_LIMIT: Final = 20
LARGE_TRACE_BYTES: Final = 4 * 2**20
"""From this size on, a terminal gets a progress bar."""

EXIT_VIOLATED: Final = 1
EXIT_BAD_INPUT: Final = 2


def command(
    trace: Annotated[Path, typer.Argument(help="A .jsonl or .parquet file, or a folder of such files.")],
    require: Require = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="How many violations to print.")] = DEFAULT_LIMIT,
) -> None:
    """Check a trace for order, losses and duplicates, and explain each violation.

    Order is judged by each process's own sequence of events, and by the rule
    that sending comes before delivering; never by clocks.

    Exits with 0 if everything required was kept, 1 if something was violated,
    2 if the trace or an option cannot be read.

    Example: thence judge run.jsonl
    """
    required = required_properties(require)
    try:
        events = _read(trace)
    except TraceError as error:
        first, *others = str(error).splitlines()
        console.error(first)
        for line in others:
            console.err.print(console.plain(line), soft_wrap=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    with console.progress("judging", None) as advance:
        verdict = judge(events, required, lambda _done, _total: advance())
    notes = _caveats(trace)
    if json:
        console.say_json(msgspec.json.encode({**msgspec.to_builtins(verdict), "notes": notes}) if notes else verdict.to_json())
    else:
        _print(verdict, events, limit)
        for caveat in notes:
            console.say_plainly(f"note: {caveat}")
    if not verdict.kept:
        raise typer.Exit(EXIT_VIOLATED)


def _read(trace: Path) -> list[Event]:
    size = trace_size_bytes(trace)
    if size < LARGE_TRACE_BYTES:
        return read_trace(trace)
    with console.progress("reading (bytes)", size) as advance:
        return read_trace(trace, advance)


def _caveats(trace: Path) -> list[str]:
    """Say what an import noted about the trace. JSON lines hold no such notes, and need no Parquet to be read."""
    if not any(file.name.endswith(PARQUET_ENDING) for file in trace_files(trace)):
        return []
    from thence.pipeline.importers import caveats

    return caveats(str(trace))


def _print(verdict: Verdict, events: Sequence[Event], limit: int) -> None:
    counts = f"{console.count(verdict.events, 'event')}, {console.count(len(verdict.violations), 'violation')}"
    console.out.print(f"{verdict.verdict}: {counts}")
    console.out.print(console.table(("property", "violations"), list(verdict.properties.items())))
    rows = verdict.violations[:limit]
    senders = _senders(events, rows)
    for row in rows:
        run = f" in run {row.run}" if row.run is not None else ""
        console.say_plainly(f"{row.property}{run}: {row.detail}")
        if row.chain:
            names = {message: senders[row.run, message] for message in row.chain}
            console.say_plainly(f"    because {tell_chain(row.chain, names)}")
    if len(verdict.violations) > limit:
        left = len(verdict.violations) - limit
        console.out.print(f"… and {left:,} more; --limit prints more of them, --json all")


def _senders(events: Sequence[Event], rows: Sequence[Violation]) -> dict[tuple[str | None, str], str]:
    """Return who sent the messages in the chains of the rows: the sender with the smallest name, as in the judge."""
    wanted = {(row.run, message) for row in rows for message in row.chain}
    senders: dict[tuple[str | None, str], str] = {}
    for event in events if wanted else ():
        if event.kind == "send" and event.message is not None and (event.run, event.message) in wanted:
            key = event.run, event.message
            senders[key] = min(senders.get(key, event.process), event.process)
    return senders
