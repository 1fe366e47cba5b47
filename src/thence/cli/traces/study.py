"""``thence study``: run the studies, go on with one that was stopped, report on it, and do one of its runs again.

Rules:

* Exit code 0: done, whatever the claims came to, since a claim that does not hold is a finding. 1: some runs failed. 2: a
  study, an option or a folder cannot be used.
* Progress goes to standard error: a bar on a terminal, a line now and then elsewhere.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from thence.cli import console
from thence.cli.manual import Subcommands
from thence.errors import ConfigError

if TYPE_CHECKING:
    from thence.studies.results import Folder
    from thence.studies.rounds import Crew, Outcome, StudyProgress
    from thence.studies.study import Study

RUNS: Final = "study-runs"
"""Where results go if nobody says otherwise: a folder for each study in here."""
HERE: Final = "here"
EVERY: Final = "all"
LINE_EVERY_S: Final = 10.0
SHOWN_FAILURES: Final = 5
EXIT_FAILED_RUNS: Final = 1

command = Subcommands(
    "Run studies: thousands of simulations on Spark that measure what the papers claim, and the verdict on each claim. "
    "A study is one TOML file; those of the papers come with thence."
)

Name = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A study of the list, or a .toml file of your own.")]
Master = Annotated[
    str | None, typer.Option(help="The Spark master, or 'here' for this process without Spark. Default: all cores.")
]
SmallOption = Annotated[bool, typer.Option("--small", help="The small version, which takes seconds.")]
Traces = Literal["none", "first", "all"]


@command.add("list")
def list_() -> None:
    """List the studies: what each is about, and how many points it has.

    Exits with 0.

    Example: thence study list
    """
    from thence.studies.study import study_named, study_names

    rows = []
    for name in study_names():
        study = study_named(name)
        rows.append((name, study.paper, sum(1 for _ in study.points()), study.title))
    console.out.print(console.table(("study", "paper", "points", "about"), rows))


@command.add("run")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE|all", help="A study of the list, a .toml file, or all of the list.")],
    master: Master = None,
    out: Annotated[
        Path | None, typer.Option(help=f"Where results go; on a cluster, a shared folder. Default: {RUNS}/NAME.")
    ] = None,
    small: SmallOption = False,
    traces: Annotated[Traces, typer.Option(help="Which traces to keep: of the first run of each point, of all, none.")] = "first",
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove what an earlier study left in the folder.")] = False,
) -> None:
    """Run a study: repeat every point until the intervals are narrow enough.

    What was run stays in the folder whatever happens; thence study resume
    goes on with it, and comes to the same numbers.

    Exits with 0 when the study is done, whatever its claims came to, 1 if
    some runs failed, 2 if the study or an option cannot be used.

    Example: thence study run daisy-load --small
    """
    from thence.studies.models import model_named
    from thence.studies.results import Folder
    from thence.studies.study import study_named, study_names

    every = name == EVERY
    studies = [study_named(one, small=small) for one in (study_names() if every else [name])]
    folders = []
    for study in studies:
        base = out or Path(RUNS)
        folders.append(Folder(base / study.name if every or out is None else base))
    for study, folder in zip(studies, folders, strict=True):
        model_named(study.model)
        folder.check_free(fresh=fresh)
    crew = _crew(master)
    failed = False
    for study, folder in zip(studies, folders, strict=True):
        folder.begin(study, traces, fresh=fresh)
        failed = _run(study, folder, crew, traces) or failed
    if failed:
        raise typer.Exit(EXIT_FAILED_RUNS)


@command.add("resume")
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study that was stopped.")],
    master: Master = None,
) -> None:
    """Go on with a study that was stopped or killed. Only what is missing is run, and what failed.

    Exits with 0 when done, with 1 if some runs failed, with 2 if it cannot
    be done.

    Example: thence study resume study-runs/daisy-load
    """
    from thence.studies.results import Folder

    place = Folder(folder)
    study, settings = place.study()
    if _run(study, place, _crew(master), settings.traces):
        raise typer.Exit(EXIT_FAILED_RUNS)


@command.add("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study that is done.")],
    to: Annotated[Path | None, typer.Option(help="Where the report goes. Default: DIR itself.")] = None,
) -> None:
    """Write the report on a study: Markdown with its plots and CSV files, and one HTML file that needs nothing else.

    Exits with 0, or with 2 if the folder holds no study.

    Example: thence study report study-runs/daisy-load
    """
    from thence.studies.report import write_report
    from thence.studies.results import Folder

    for path in write_report(Folder(folder), to or folder):
        console.say(str(path))


@command.add("replay")
def replay(
    name: Name,
    point: Annotated[str, typer.Option(metavar="KEY=VALUE,…", help="The point, by the parameters of the grid.")] = "",
    repetition: Annotated[int, typer.Option(min=0, help="Which of its repetitions.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write its trace here, as thence simulate does.")] = None,
    small: SmallOption = False,
) -> None:
    """Do one run of a study again, alone, without Spark, and print what it measures.

    Exits with 0, or with 2 if there is no such point or the run fails.

    Example: thence study replay daisy-load --small --repetition 3
    """
    from thence.studies.runs import Traced, run_once
    from thence.studies.study import study_named

    study = study_named(name, small=small)
    chosen = study.point_labelled(point)
    if trace is None:
        row, events = run_once(study, chosen, repetition), 0
    else:
        with Traced(trace, study, chosen, repetition) as traced:
            row = run_once(study, chosen, repetition, traced.write)
        events = traced.events
    if row.error is not None:
        raise ConfigError(f"the run failed: {row.error}")
    title = f"{study.name}, {study.label(chosen) or 'its only point'}, repetition {repetition}, seed {row.seed}"
    rows = [(measure, repr(value), study.measures[measure].unit) for measure, value in row.measures.items()]
    console.say(title)
    console.out.print(console.table(("measure", "value", "unit"), rows))
    if trace is not None:
        written = f"Trace: {trace}   {console.count(events, 'event')}" if events else "Trace: none, this model records no events"
        console.say(written)


def _crew(master: str | None) -> Crew:
    from thence.studies.rounds import Alone, WithSpark

    return Alone() if master == HERE else WithSpark(master)


def _run(study: Study, folder: Folder, crew: Crew, traces: Traces) -> bool:
    """Run a study to its end and say what came out; return whether some runs failed."""
    from thence.studies.claims import judge
    from thence.studies.report import write_report
    from thence.studies.rounds import run_study

    begun = time.monotonic()
    with console.bars() as show:
        outcome = run_study(study, folder, crew, traces, _Progress(study.name, show).tell)
    judged = judge(study, outcome.means)
    rows = [(one.claim.id, one.claim.text, one.verdict, one.numbers) for one in judged]
    console.out.print(console.table(("claim", "says", "verdict", "measured"), rows, title=study.title))
    points = console.count(sum(1 for _ in study.points()), "point")
    took = f"{time.monotonic() - begun:.1f} s on {console.count(crew.cores, 'core')}"
    console.say(f"{console.count(outcome.runs, 'run')} of {points}, {took}; results in {folder.path}")
    pages = write_report(folder, folder.path)
    console.say(f"report: {pages[0]}")
    _tell_failures(study, outcome)
    return bool(outcome.failures)


def _tell_failures(study: Study, outcome: Outcome) -> None:
    import json

    from thence.studies.runs import replay_command

    if not outcome.failures:
        return
    console.err.print(f"{console.count(len(outcome.failures), 'run')} failed, and the numbers are without them:")
    for failure in outcome.failures[:SHOWN_FAILURES]:
        point = json.loads(failure.point)
        console.err.print(f"  {study.label(point)}, repetition {failure.repetition}: {failure.error}", soft_wrap=True)
        console.err.print(f"    {replay_command(study, point, failure.repetition)}", soft_wrap=True)
    if len(outcome.failures) > SHOWN_FAILURES:
        console.err.print(f"  … and {len(outcome.failures) - SHOWN_FAILURES:,} more")


class _Progress:
    """Shows how far a study is: a bar on a terminal, elsewhere a line when a round begins, and one every few seconds."""

    def __init__(self, name: str, show: console.ShowStep) -> None:
        self._name, self._show, self._round, self._said_s = name, show, "", -math.inf

    def tell(self, told: StudyProgress) -> None:
        """Show it."""
        now_s, words = time.monotonic(), left(told)
        if console.err.is_terminal:
            self._show(f"{self._name}, {told.round}", told.done, told.total, words)
        elif told.round != self._round or now_s - self._said_s >= LINE_EVERY_S:
            self._round, self._said_s = told.round, now_s
            more = f", {words}" if words else ""
            console.err.print(f"{self._name}, {told.round}: {told.done:,} of {told.total:,} runs{more}")


def left(told: StudyProgress) -> str:
    """Return the time left, in words; nothing before it can be known."""
    if math.isnan(told.left_s):
        return ""
    seconds = math.ceil(told.left_s)
    words = f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"
    return f"{'at least' if told.at_least else 'about'} {words} left"
