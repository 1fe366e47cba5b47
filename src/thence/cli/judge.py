"""``thence judge``: was order kept in this trace?

It reads a trace, puts it before :mod:`thence.trace.judge` and prints the verdict, for people or as JSON.

Rules:

* Exit code 0: kept. 1: violated. 2: the trace or an option cannot be read.
* ``--json`` prints one object, with every violation; ``--limit`` only shortens what people read.
* Names come from files: what cannot be printed is shown escaped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from thence.cli import console
from thence.errors import TraceError
from thence.trace.files import read_trace, trace_size_bytes
from thence.trace.judge import DEFAULT_REQUIRED, PROPERTIES, judge
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
    require: Annotated[
        str | None,
        typer.Option(
            help=f"What to check, with commas between. Known: {', '.join(PROPERTIES)}. Default: all but total and agreement."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="How many violations to print.")] = DEFAULT_LIMIT,
) -> None:
    """Check a trace for order, losses and duplicates, and explain each violation.

    Order is judged by each process's own sequence of events, and by the rule
    that sending comes before delivering; never by clocks.

    Exits with 0 if everything required was kept, 1 if something was violated,
    2 if the trace or an option cannot be read.
    """
    required = DEFAULT_REQUIRED if require is None else _names(require)
    try:
        events = _read(trace)
    except TraceError as error:
        first, *others = str(error).splitlines()
        console.error(first)
        for line in others:
            console.err.print(_plain(line), soft_wrap=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    with console.progress("judging", None) as advance:
        verdict = judge(events, required, lambda _done, _total: advance())
    if json:
        typer.echo(verdict.to_json())
    else:
        _print(verdict, events, limit)
    if not verdict.kept:
        raise typer.Exit(EXIT_VIOLATED)


def _names(require: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in require.split(",") if name.strip())
    unknown = [name for name in names if name not in PROPERTIES]
    if unknown or not names:
        what = f"unknown property {', '.join(map(repr, unknown))}" if unknown else "no property is named"
        console.error(f"--require: {what}; the properties are {', '.join(PROPERTIES)}")
        raise typer.Exit(EXIT_BAD_INPUT)
    return names


def _read(trace: Path) -> list[Event]:
    size = trace_size_bytes(trace)
    if size < LARGE_TRACE_BYTES:
        return read_trace(trace)
    with console.progress("reading (bytes)", size) as advance:
        return read_trace(trace, advance)


def _print(verdict: Verdict, events: Sequence[Event], limit: int) -> None:
    counts = f"{console.count(verdict.events, 'event')}, {console.count(len(verdict.violations), 'violation')}"
    console.out.print(f"{verdict.verdict}: {counts}")
    console.out.print(console.table(("property", "violations"), list(verdict.properties.items())))
    rows = verdict.violations[:limit]
    senders = _senders(events, rows)
    for row in rows:
        run = f" in run {row.run}" if row.run is not None else ""
        _say(f"{row.property}{run}: {row.detail}")
        if row.chain:
            names = {message: senders[row.run, message] for message in row.chain}
            _say(f"    because {tell_chain(row.chain, names)}")
    if len(verdict.violations) > limit:
        left = len(verdict.violations) - limit
        console.out.print(f"… and {left:,} more; --limit prints more of them, --json all")


def _senders(events: Sequence[Event], rows: Sequence[Violation]) -> dict[tuple[str | None, str], str]:
    """Who sent the messages in the chains of the rows: the sender with the smallest name, as in the judge."""
    wanted = {(row.run, message) for row in rows for message in row.chain}
    senders: dict[tuple[str | None, str], str] = {}
    for event in events if wanted else ():
        if event.kind == "send" and event.message is not None and (event.run, event.message) in wanted:
            key = event.run, event.message
            senders[key] = min(senders.get(key, event.process), event.process)
    return senders


def _say(line: str) -> None:
    console.say(_plain(line))


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
