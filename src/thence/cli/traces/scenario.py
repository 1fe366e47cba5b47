"""``thence scenario``: run scenario files, or rewrite what they expect."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from thence.cli import console
from thence.cli.manual import Subcommands
from thence.errors import ConfigError
from thence.sim.scenario import Difference, run_file
from thence.studies.parts.printed_links import PRINTED

command = Subcommands(
    "Run scenarios: runs written down as text, with what is expected to happen below each command. "
    "Without any network or chance in them, they show step by step what an ordering does."
)

Files = Annotated[list[Path], typer.Argument(help="Scenario files, or folders of .txt files.")]


@command.add("run")
def run(files: Files) -> None:
    """Run scenarios and compare with what they expect.

    Exits with 0 if everything is as expected, with 1 if something differs,
    with 2 if a file cannot be read.

    Example: thence scenario run tests/scenarios
    """
    different = 0
    found = _files(files)
    for path in found:
        differences = run_file(path, link_ends=PRINTED)
        different += bool(differences)
        console.say(f"{path}: {'as expected' if not differences else _differing(len(differences))}")
        for difference in differences:
            _print(path, difference)
    if different:
        of = console.count(len(found), "scenario")
        console.err.print(f"Other than expected: {different} of {of}. If the new output is right: thence scenario rewrite FILE")
        raise typer.Exit(1)


@command.add("rewrite")
def rewrite(files: Files) -> None:
    """Run scenarios and write what really happens into them, to be read before it is committed.

    Exits with 0, or with 2 if a file cannot be read.

    Example: thence scenario rewrite tests/scenarios/triangle.txt
    """
    for path in _files(files):
        differences = run_file(path, rewrite=True, link_ends=PRINTED)
        rewritten = f"{console.count(len(differences), 'command')} rewritten"
        console.say(f"{path}: {rewritten if differences else 'unchanged'}")


def _files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.txt")) if path.is_dir() else [path]
    if not found:
        raise ConfigError(f"no scenario (.txt) in {', '.join(map(str, paths))}")
    return found


def _differing(number: int) -> str:
    return f"{console.count(number, 'command')} {'differs' if number == 1 else 'differ'}"


def _print(path: Path, difference: Difference) -> None:
    block = difference.block
    console.say(f"  {path}:{block.line}: {block.command}")
    for line in unified_diff(block.expected.splitlines(), difference.found.splitlines(), "expected", "found", lineterm="", n=1):
        console.say(f"    {line}")
