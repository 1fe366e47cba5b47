"""The commands, called as the installed script calls them: through ``main``, with what they print and how they exit."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from thence.cli.main import main


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run(*arguments: str | Path) -> Ran:
    """Run ``thence`` with these arguments, in this process."""
    out, err = io.BytesIO(), io.BytesIO()
    code: object = "did not exit"
    with redirect_stdout(_text(out)), redirect_stderr(_text(err)):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int), code
    return Ran(code, out.getvalue().decode(), err.getvalue().decode())


def _text(stream: io.BytesIO) -> io.TextIOWrapper:
    """Return a stream of text on top of one of bytes, as the standard ones are."""
    return _Open(stream, encoding="utf-8", write_through=True)


class _Open(io.TextIOWrapper):
    """Leaves what is below open when it goes."""

    def close(self) -> None:
        self.flush()


def refusal(*arguments: str | Path) -> str:
    """Run what must be refused: exit code 2, nothing on standard output, and one line that says why. Return what it says."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("thence: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("thence: error: ").rstrip("\n")
