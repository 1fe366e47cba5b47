"""``docs/errors.md``, made from the classes in ``thence.errors``.

    python -m tests.error_page      write the page

A test compares the page with what this would write.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from thence import errors
from thence.errors import ThenceError

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "errors.md"
WRITE: Final = ".venv/bin/python -m tests.error_page"

HEAD: Final = f"""\
# Errors

Everything that thence raises on purpose is a `ThenceError`. Each class says whose mistake it is (`fault`) and whether the thing
asked for may have happened all the same (`happened`): whoever sees *no* may simply try again. A message names the thing and the
place.

Faults are the `caller`'s (change the call), a `peer`'s (the other side did something wrong, or too much), the `input`'s
(change the file), the `machine`'s (look at its disk) and `ours` (please report it).

Written by `{WRITE}` from `src/thence/errors.py`.

## The tree

```
"""

TAIL: Final = """
## On the command line

An error is one line on standard error, `thence: error: …`, and exit code 2. With `THENCE_DEBUG=1` the traceback comes too. Exit
code 1 never means that something broke: it means that a violation was found, or a result that is not the expected one.
"""


def classes(root: type[ThenceError] = ThenceError) -> Iterator[type[ThenceError]]:
    """Give the error and those below it, in the order in which they are defined."""
    yield root
    for kind in vars(errors).values():
        if isinstance(kind, type) and root in kind.__bases__:
            yield from classes(kind)


def page() -> str:
    """Return the text of the page."""
    rows = [f"| `{kind.__name__}` | {kind.fault} | {kind.happened} | {inspect.getdoc(kind)} |" for kind in classes()]
    table = ["", "## Each of them", "", "| error | fault | happened | meaning |", "|---|---|---|---|", *rows]
    return HEAD + drawing() + "\n```\n" + "\n".join(table) + "\n" + TAIL


def drawing() -> str:
    """Return the tree as the module's own text draws it."""
    text = inspect.getdoc(errors) or ""
    lines = [line.removeprefix("    ") for line in text.splitlines() if line.startswith("    ")]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
