"""``thence import``: make a trace of a log that nobody wrote for us.

It calls :func:`thence.pipeline.importers.import_trace` and prints what came of it, for people or as JSON.

Rules:

* Exit code 0: every line became an event or was meant to be none. 1: imported, but rows were set aside. 2: nothing was imported.
* What was guessed is said, as it decides what the trace means.
* Spark is imported only here, when the command runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from thence.cli import console

if TYPE_CHECKING:
    from thence.pipeline.importers import Imported

EXIT_BAD_ROWS: Final = 1


def command(
    source: Annotated[str, typer.Argument(help="A file, a folder, a glob, or a URL that Spark can read.")],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where the trace goes: a folder of Parquet parts.")],
    format: Annotated[  # noqa: A002 - what it is called everywhere
        str | None, typer.Option(help="parquet, jsonl, shiviz or ndjson. Guessed from the files when not given.")
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="How an event of a ShiViz log looks, with the groups (?<host>…) and (?<clock>…)."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="REGEX", help="What separates the runs in a ShiViz log; (?<trace>…) names them.")
    ] = None,
    mapping: Annotated[
        str | None, typer.Option(metavar="FILE", help="A TOML file that says where the columns are in NDJSON rows.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="The Spark master. Default: this machine, all cores.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what came of it as one JSON object.")] = False,
) -> None:
    """Make a trace of logs: Parquet, JSON lines, ShiViz and GoVector logs, any NDJSON.

    Messages of ShiViz logs are derived from their vector clocks. Rows that
    cannot be used are set aside in DIR-bad, with the reason.

    Exits with 0 if nothing was set aside, 1 if something was, 2 if nothing
    could be imported.

    Example: thence import shiviz.log --out run
    """
    from thence.pipeline.importers import import_trace
    from thence.pipeline.session import spark_session

    with console.progress("importing (steps)", None) as advance:
        imported = import_trace(
            spark_session(master),
            source,
            out,
            format=format,
            pattern=pattern,
            delimiter=delimiter,
            mapping=mapping,
            progress=lambda _step: advance(),
        )
    if json:
        console.say_json(imported.to_json())
    else:
        _print(imported)
    if imported.bad:
        raise typer.Exit(EXIT_BAD_ROWS)


def _print(imported: Imported) -> None:
    if imported.guessed:
        console.say(f"taken for {imported.format}: {imported.guessed}")
    console.say(
        f"{imported.trace}: {console.count(imported.events, 'event')}, {console.count(imported.processes, 'process')}, "
        f"{console.count(imported.messages, 'message')}, {console.count(imported.runs, 'run')}"
    )
    console.say(
        f"from {console.count(imported.files, 'file')} with {console.count(imported.lines, 'line')}, {imported.ignored:,} ignored"
    )
    if imported.bad:
        console.say(f"{console.count(imported.bad, 'bad row')} set aside in {imported.bad_rows}:")
        for row in imported.first_bad:
            console.say_plainly(f"  {row}")
        if imported.bad > len(imported.first_bad):
            console.say(f"  … and {imported.bad - len(imported.first_bad):,} more")
