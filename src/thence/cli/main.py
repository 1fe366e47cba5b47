"""The ``thence`` command: the table of commands, and what happens when one of them fails.

This file exists so that there is one place to see every command. To add one:

1. write ``src/thence/cli/NAME.py`` (``NAME_.py`` where Python keeps the name for itself) with a function ``command`` (or a
   ``typer.Typer`` of that name, for a command with commands of its own); its docstring is what ``thence NAME --help`` prints;
2. add one line to ``COMMANDS``.

Rules:

* A command's file is imported only when that command is called, so ``thence --help`` stays quick.
* An error of ours is one line on standard error and exit code 2. With ``THENCE_DEBUG=1`` the traceback comes too.
* Exit codes are 0, 1 and 2 as ``EPILOG`` says. A command that ends well but found something says so with
  ``raise typer.Exit(1)``; code 1 never means that something broke.
"""

from __future__ import annotations

import codecs
import importlib
import keyword
import os
import sys
import traceback
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

from thence import __version__
from thence.cli import console
from thence.cli.manual import ManualCommand, ManualGroup
from thence.errors import ThenceError
from thence.runtime import logs
from thence.runtime.printable import escape_unwritable

if TYPE_CHECKING:
    from collections.abc import Sequence

START: Final = "Start here"
TRY: Final = "Run orderings without a network"
JUDGE: Final = "Look at what happened"
SERVE: Final = "Run servers"

EXIT_FAILED: Final = 2
EXIT_INTERRUPTED: Final = 130


class CommandLine(NamedTuple):
    """One line of the table of commands."""

    name: str
    package: str
    panel: str
    summary: str

    @property
    def module(self) -> str:
        """Return the module of the command; its name gets an underscore if it is a keyword of Python."""
        return f"thence.cli.{self.package}.{self.name}{'_' if keyword.iskeyword(self.name) else ''}"


COMMANDS: Final = (
    CommandLine("demo", "messages", START, "Show causal order kept where a naive network breaks it."),
    CommandLine("chat", "messages", START, "Show order kept over slow links, and what it looks like without; or talk in a room."),
    CommandLine("orderings", "traces", START, "List the orderings and what each of them promises."),
    CommandLine("topology", "servers", TRY, "Check, draw and make fabrics of several domains; change one that runs."),
    CommandLine("simulate", "traces", TRY, "Run a workload on an ordering and write the trace of it."),
    CommandLine("explore", "traces", TRY, "Try every interleaving of a small case and print the shortest bad one."),
    CommandLine("scenario", "traces", TRY, "Run scenario files and compare with what they expect, or rewrite that."),
    CommandLine("study", "traces", TRY, "Run studies of what the papers claim, thousands of simulations each, on Spark."),
    CommandLine("import", "traces", JUDGE, "Make a trace of logs: Parquet, JSON lines, ShiViz and GoVector logs, any NDJSON."),
    CommandLine("judge", "traces", JUDGE, "Check a trace for order, losses and duplicates, and explain each violation."),
    CommandLine("audit", "traces", JUDGE, "The same for traces of any size, on Spark."),
    CommandLine("serve", "servers", SERVE, "Run one server of a fabric."),
    CommandLine("up", "servers", SERVE, "Run all servers of a fabric on this machine, for development."),
    CommandLine("status", "servers", SERVE, "Ask a server how it is: peers, queues, clocks, and what waits for what."),
    CommandLine("top", "servers", SERVE, "Watch all servers of a fabric: links, queues, waits and rates, live."),
    CommandLine("token", "servers", SERVE, "Make tokens for clients of servers with an access file."),
    CommandLine("send", "messages", SERVE, "Send a message by way of a server."),
    CommandLine("listen", "messages", SERVE, "Print the messages that come for a client."),
    CommandLine("client", "servers", SERVE, "List, show and remove clients of a server; drop what waits for one of them."),
    CommandLine(
        "agent",
        "servers",
        SERVE,
        "Make, list, show and remove agents of a server; look through messages they could not react to.",
    ),
    CommandLine("bench", "messages", SERVE, "Measure how fast messages go through a server and back."),
    CommandLine(
        "store", "servers", SERVE, "Look into the store of a server, check it, print its entries; back it up and restore it."
    ),
)

# Line breaks are kept as they stand here, so lines end before a terminal of 80 columns does.
HELP: Final = """
Causally ordered messaging that scales by domains.

A message may be delivered only after everything that led to it. thence
keeps that order among the members of a domain, judges whether a recorded
run kept it, and searches for runs in which an ordering would break it.
"""

EPILOG: Final = """
[bold]Exit codes[/bold]
  0  done, and nothing bad was found
  1  done, and a violation was found or a result is not the expected one
  2  not done: wrong usage, unreadable input or an error

[bold]Examples[/bold]
  thence demo
  thence simulate --ordering matrix --seed 7 --trace run.jsonl
  thence judge run.jsonl && echo kept
  thence judge run.jsonl --json
  thence up city.toml --data data
  thence top data/topology.toml
  thence listen thence://127.0.0.1:7401 --name bob
  thence send thence://127.0.0.1:7401 bob "hello"
  thence chat thence://127.0.0.1:7401 --name ada
  thence COMMAND --help

[bold]Completion[/bold]
  thence --install-completion  for the shell in use; then start a new one

[bold]Environment[/bold]
  THENCE_DEBUG=1  show the traceback of an error
  THENCE_TOKEN    the token of commands that connect to a server
  THENCE_CA       the file with whoever signs the certificates of servers
"""


class LazyCommand(ManualCommand):
    """Stands for a command in the list; becomes the real one when it is called."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Import the command's file and go on with what is in there."""
        module = importlib.import_module(next(entry.module for entry in COMMANDS if entry.name == self.name))
        app = module.command
        if not isinstance(app, typer.Typer):
            function = app
            app = typer.Typer(add_completion=False, rich_markup_mode="rich")
            app.command(name=self.name, cls=ManualCommand)(function)
        return get_command(app).make_context(*args, **kwargs)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.out.print(f"thence {__version__}")
        raise typer.Exit


def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Hold the options that come before the command."""


def build() -> TyperGroup:
    """Make the command group from the table."""
    app = typer.Typer(
        cls=ManualGroup,
        rich_markup_mode="rich",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=HELP, epilog=EPILOG)(_options)
    group = get_command(app)
    if not isinstance(group, TyperGroup):
        raise TypeError("typer made a single command where a group was asked for")
    for entry in COMMANDS:
        group.add_command(LazyCommand(entry.name, help=entry.summary, rich_help_panel=entry.panel))
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit the process."""
    _open_what_is_closed()
    _escape_what_cannot_be_written()
    logs.set_up_last_resort()
    try:
        build().main(args=arguments, prog_name="thence")
    except (ThenceError, OSError) as error:
        if os.environ.get("THENCE_DEBUG", "0") not in {"", "0"}:
            console.say_traceback(traceback.format_exc())
        console.error(str(error) or type(error).__name__)
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - a bug must not leave with Python's exit code 1, which means "violated"
        console.say_traceback(traceback.format_exc())
        console.error(f"this is a bug in thence: {type(error).__name__}: {error}")
        sys.exit(EXIT_FAILED)


def _open_what_is_closed() -> None:
    """Give standard input, output and error something, where a shell has closed them (``<&-``).

    Otherwise the first socket would get one of their numbers, and uvloop ends the process if it has to close such a one.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest number that is free, which is this one.
    # Python has no streams for those that were closed when it began.
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  It is open to the end.
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _escape_what_cannot_be_written() -> None:
    """Escape what the encodings of standard output and error lack: otherwise a message would end its reader whenever it comes."""
    codecs.register_error("thence", escape_unwritable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="thence")


if __name__ == "__main__":
    main()
