"""``thence import``: make a trace of a log that nobody wrote for us.

It calls :func:`thence.pipeline.importers.import_trace` and prints what came of it, for people or as JSON.

Rules:

* Exit code 0: every line became an event or was meant to be none. 1: imported, but rows were set aside. 2: nothing was imported.
* What was guessed is said, as it decides what the trace means; so is what cannot be judged in it.
* Spark starts only when it is clear how the source will be read, as far as this machine can tell.
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
        str | None, typer.Option(metavar="FILE", help="A TOML file that says which JSON is an event, and where its columns are.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A mapping that is there: ccf-raft, etcd-raft, jaeger, kafka, otlp, shiviz, zipkin."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="The Spark master. Default: this machine, all cores.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what came of it as one JSON object.")] = False,
) -> None:
    """Make a trace of logs: Parquet, JSON lines, ShiViz and GoVector logs, any JSON.

    Presets read spans of OpenTelemetry, Zipkin and Jaeger, topics of Kafka,
    and traces of raft for TLA+. Messages of ShiViz logs are derived from
    their vector clocks. Rows that cannot be used are set aside in DIR-bad,
    with the reason.

    Exits with 0 if nothing was set aside, 1 if something was, 2 if nothing
    could be imported.

    Example: thence import shiviz.log --out run
    """
    from thence.pipeline.importers import SourceOptions, check, import_trace
    from thence.pipeline.session import spark_session

    options = SourceOptions.of(format, pattern, delimiter, mapping, preset)
    check(source, options)
    with console.progress("importing (steps)", None) as advance:
        imported = import_trace(spark_session(master), source, out, **options._asdict(), progress=lambda _step: advance())
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
    lines = console.count(imported.lines, imported.unit)
    console.say(f"from {console.count(imported.files, 'file')} with {lines}, {imported.ignored:,} ignored")
    for caveat in imported.caveats:
        console.say(f"note: {caveat}")
    if imported.bad:
        console.say(f"{console.count(imported.bad, 'bad row')} set aside in {imported.bad_rows}:")
        for row in imported.first_bad:
            console.say_plainly(f"  {row}")
        if imported.bad > len(imported.first_bad):
            console.say(f"  … and {imported.bad - len(imported.first_bad):,} more")
