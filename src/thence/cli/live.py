"""Something that is shown again and again on a terminal, and once where there is none.

Rules:

* Elsewhere than on a terminal one frame is printed and that is all: what is piped into a file must end.
* Ctrl-C ends it well: whoever looked has seen enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from thence.cli import console
from thence.runtime import event_loop

T = TypeVar("T")

Shown = Sequence[RenderableType]

Frame = Callable[[], Coroutine[Any, Any, Shown]]
"""Looks, and returns what to show."""

Every = Annotated[
    float, typer.Option("--every", min=0.1, max=3600, metavar="SECONDS", help="How often to look again; on a terminal.")
]


def show(frame: Frame, every_s: float | None) -> None:
    """Show a frame, and on a terminal the next one after a while, until Ctrl-C; None: only one."""
    if every_s is None or not console.out.is_terminal:
        for part in event_loop.run(frame()):
            console.out.print(part, soft_wrap=isinstance(part, str | Text))
        return
    try:
        event_loop.run(_again_and_again(frame, every_s))
    except KeyboardInterrupt:
        return


async def beside(work: Coroutine[Any, Any, T], frame: Frame, every_s: float) -> T:
    """Do a work, and show frames of it meanwhile if there is a terminal; return what came of it."""
    if not console.out.is_terminal:
        return await work
    showing = asyncio.create_task(_again_and_again(frame, every_s))
    try:
        return await work
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def _again_and_again(frame: Frame, every_s: float) -> None:
    # Imported here: its share of the start-up time would otherwise be paid by every command.
    from rich.live import Live

    with Live(console=console.out, screen=True, auto_refresh=False, vertical_overflow="ellipsis") as live:
        while True:
            try:
                parts = await frame()
            except OSError as error:  # Whoever watches wants to see it come back.
                parts = [Text(console.plain(str(error)), style="red")]
            live.update(Group(*parts), refresh=True)
            await asyncio.sleep(every_s)
