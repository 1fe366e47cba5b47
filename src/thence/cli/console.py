"""How commands speak: results on standard output, everything else on standard error.

This file exists so that all commands look alike. Rules:

* ``out`` carries results and nothing else, so that it can be piped; ``err`` carries progress, notes and errors.
* A progress bar shows itself only on a terminal; in a log it would be noise.
* Nothing is marked up unless asked: names that come from a user may contain square brackets.
* Nothing reaches the terminal that is a command to it, unless we mean it so: whatever is printed here has its control characters
  and marks of direction escaped (``runtime.printable``), wherever the text came from. JSON has them escaped as JSON does.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from textwrap import indent
from typing import TYPE_CHECKING, Literal, Protocol

import typer

from thence.runtime.printable import LINES, printable, printable_json
from thence.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.table import Table

    out: Console
    err: Console


def __getattr__(name: str) -> Console:
    """Return ``out`` or ``err``, made when somebody asks for it: a server that runs prints nothing."""
    if name not in {"out", "err"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from thence.cli.safe_console import make_console

    made = globals()[name] = make_console(stderr=name == "err")
    return made


def _console(name: Literal["out", "err"]) -> Console:
    """Return one of the two, for use in this file, whose own names do not come by ``__getattr__``."""
    found: Console = getattr(sys.modules[__name__], name)
    return found


def error(message: str) -> None:
    """Print the one line that says what went wrong, in the form every command uses."""
    from rich.text import Text

    _console("err").print(Text.assemble(("thence: error: ", "bold red"), plain(" ".join(message.split()))), soft_wrap=True)


def say_traceback(text: str) -> None:
    """Print where an error came from. What the error says may come from outside: no line of it looks like one of ours."""
    from rich.text import Text

    _console("err").print(Text(indent(printable(text, keep=LINES), "  ")), soft_wrap=True, end="")


def say_json(text: str | bytes) -> None:
    """Print a result that is JSON."""
    typer.echo(printable_json(text if isinstance(text, str) else text.decode()))


def say_object(value: object, *, ensure_ascii: bool = True) -> None:
    """Print a result as JSON."""
    say_json(json.dumps(value, ensure_ascii=ensure_ascii))


def say(text: str, end: str = "\n") -> None:
    """Print a result that is text; a long line stays one line, so that it can be copied, and read back from a file."""
    _console("out").print(text, end=end, soft_wrap=True)


def plain(text: str) -> str:
    """Return text that comes from files or from others, as one line, with what cannot be printed shown escaped."""
    return printable(text)


def say_plainly(line: str) -> None:
    """Print a result that holds names from files."""
    say(plain(line))


count = counted
"""How every command writes a number of things."""


class Advance(Protocol):
    """Tells a progress bar that some more of the work is done."""

    def __call__(self, steps: int = 1) -> None:
        """Count ``steps`` more."""


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs; ``total=None`` when the end is not known.

    >>> with progress("simulating", total=100) as advance:
    ...     for _ in range(100):
    ...         advance()
    """
    done = 0

    def advance(steps: int = 1) -> None:
        nonlocal done
        done += steps
        show(description, done, total)

    with bars() as show:
        show(description, 0, total)
        yield advance


class ShowStep(Protocol):
    """Shows how much of a step is done, and of how much."""

    def __call__(self, step: str, done: int, total: int | None, note: str = "") -> None:
        """Show it; ``note`` stands behind the bar."""


def _unseen(step: str, done: int, total: int | None, note: str = "") -> None:
    """Show nothing: nobody is looking."""


@contextmanager
def bars() -> Iterator[ShowStep]:
    """Show a bar on standard error for each step of a long work while the block runs; nothing where there is no terminal."""
    err = _console("err")
    if not err.is_terminal:
        yield _unseen
        return
    # Imported here: its share of the start-up time would otherwise be paid by every command.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=err, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int | None, note: str = "") -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(step, total=total, note=note)
            bar.update(tasks[step], completed=done, total=total, note=note)

        yield show


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, most: int | None = None
) -> Table:
    """Lay out rows under the named columns, ``most`` of them; a column that holds only numbers is set flush right.

    Floats are shown with three significant decimals at most; pass a string, or a text with a style, to show something else.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    left_out = 0 if most is None else len(cells) - most
    cells = cells[:most]
    caption = f"… and {left_out:,} more" if left_out > 0 else None
    result = Table(
        title=title,
        caption=caption,
        caption_justify="left",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for position, name in enumerate(columns):
        numeric = bool(cells) and all(_is_number(row[position]) for row in cells)
        result.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        result.add_row(*(cell if isinstance(cell, Text) else Text(plain(_shown(cell))) for cell in row))
    return result


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _shown(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.3f}".rstrip("0").rstrip(".")
    return str(cell)
