"""Keeps what agents raise from ending their server.

Rules:

* Whatever a reaction raises is about its message, also what ends programs elsewhere: a message must not end the server, at every
  start again. The same holds in tasks that a reaction starts, as ``asyncio.wait_for`` does: ``asyncio`` lets ``SystemExit`` and
  ``KeyboardInterrupt`` of any task out of its loop.
* Two of these are not the agent's: ``KeyboardInterrupt``, if a signal may have raised it, and ``GeneratorExit``, if a coroutine
  is closed because its loop has ended.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable
from contextvars import ContextVar
from functools import partial
from typing import Any

reacting: ContextVar[bool] = ContextVar("reacting", default=False)
"""Whether what runs, and what it starts, is part of a reaction."""


def is_of_others(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Say whether an error that came out of a reaction, or of a task that it started, may not be the agent's."""
    if isinstance(error, GeneratorExit):
        return task is None or asyncio.current_task(task.get_loop()) is not task
    return isinstance(error, KeyboardInterrupt) and _signals_raise()


def _signals_raise() -> bool:
    """Say whether SIGINT may raise ``KeyboardInterrupt`` here: not where a loop handles it, as in ``thence serve``."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    return handler is signal.default_int_handler or isinstance(handler, partial)  # A part of ``asyncio.Runner``.


def guard_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let no task that a reaction starts end the loop."""
    make = loop.get_task_factory() or _task
    if getattr(make, "func", None) is not _holding:
        loop.set_task_factory(partial(_holding, make))


def _holding(make: Any, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    if not reacting.get():
        return make(loop, coro, **options)
    task = make(loop, _held(coro), **options)
    task.add_done_callback(lambda _: coro.close())  # If it was cancelled before it began, nobody else has.
    return task


def _task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coro, loop=loop, **options)


async def _held(coro: Awaitable[Any]) -> Any:
    try:
        return await coro
    except (SystemExit, KeyboardInterrupt) as error:
        if is_of_others(error, None):
            raise
        raise RuntimeError(f"a task of a reaction raised {type(error).__name__}") from error
