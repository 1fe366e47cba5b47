"""The consoles that commands print on, apart from ``thence.cli.console``: rich takes longer to import than most of a server.

Text from outside is never a command to the terminal: whatever comes by here has its control characters escaped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from thence.runtime.printable import LINES, printable

# Away from a terminal there is no width to respect; rich would otherwise cut tables at 80 columns.
WIDTH_WITHOUT_TERMINAL_COLUMNS: Final = 160


class SafeConsole(Console):
    """A console to which text is text: only styles and movements of our own are commands."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of what is to be printed. Everything comes by here, also what is shown again and again."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep=LINES), segment.style)


def make_console(*, stderr: bool) -> Console:
    """Return a console on standard output or standard error."""
    stream = sys.stderr if stderr else sys.stdout  # None: the shell has closed it.
    width = None if stream is not None and stream.isatty() else WIDTH_WITHOUT_TERMINAL_COLUMNS
    return SafeConsole(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)
