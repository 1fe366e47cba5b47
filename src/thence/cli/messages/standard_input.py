"""Standard input for commands with a loop: read by a thread, since neither files nor pipes may hold up what else the loop does.

Rules:

* At most ``MAX_UNREAD_PIECES`` of ``READ_BYTES`` are read ahead; whoever uses them slowly is read slowly.
* The thread reads the file itself, not Python's stream on top of it, whose lock it would keep when the program ends meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final

from thence.errors import UsageError

MAX_UNREAD_PIECES: Final = 16
READ_BYTES: Final = 65_536

Piece = bytes | OSError


async def pieces() -> AsyncIterator[bytes]:
    """Give what comes, as it comes, until its end."""
    if sys.stdin is None:
        raise UsageError("there is no standard input: it is closed")
    read: asyncio.Queue[Piece] = asyncio.Queue(MAX_UNREAD_PIECES)
    arguments = (sys.stdin.fileno(), asyncio.get_running_loop(), read.put)
    threading.Thread(target=_read, args=arguments, name="thence-input", daemon=True).start()
    while piece := await read.get():
        if isinstance(piece, OSError):
            raise UsageError(f"standard input cannot be read: {piece.strerror or piece}")
        yield piece


def _read(descriptor: int, loop: asyncio.AbstractEventLoop, put: Callable[[Piece], Coroutine[Any, Any, None]]) -> None:
    """Read to the end, and say when that is reached; no quicker than it is used."""
    piece: Piece = b"nothing yet"
    while piece and not isinstance(piece, OSError):
        try:
            piece = os.read(descriptor, READ_BYTES)
        except OSError as error:
            piece = error
        queued = put(piece)
        try:
            asyncio.run_coroutine_threadsafe(queued, loop).result()
        except (RuntimeError, CancelledError):  # The loop has ended before the input.
            queued.close()
            return
