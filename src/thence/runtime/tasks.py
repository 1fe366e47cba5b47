"""Tasks that run for as long as a server does. One that ends with an error has met a mistake of ours, and is heard of.

Otherwise a server would go on without its clock, its connections or its agents, and nobody would know why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thence.errors import InternalError


def tell_if_it_fails(task: asyncio.Task[None], what: str, failed: Callable[[Exception], None]) -> None:
    """Call ``failed`` if a task ends with an error; ``what`` it does, and whose it is, is said with that."""

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            failed(InternalError(f"{what}: {type(error).__name__}: {error}"))

    task.add_done_callback(ended)
