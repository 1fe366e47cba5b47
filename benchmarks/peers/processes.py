"""Worker processes of one run: all are ready before any begins, none leaves before all are done, and each reports.

A *role* is a coroutine function at the top of a module: ``async def role(turn, **options) -> Any``. Each worker runs one.

Rules: the clock is the system's monotonic one, which all processes of a machine share. A worker that fails or is silent for
``RUN_WITHIN_S`` ends the run with its traceback, and none is left behind.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from thence.runtime import event_loop

RUN_WITHIN_S = 3600.0
END_WITHIN_S = 10.0

Role = Callable[..., Coroutine[Any, Any, Any]]


class Worker(NamedTuple):
    """What one process is to do."""

    role: Role
    options: dict[str, Any]


class Turn:
    """How a worker waits for the others."""

    def __init__(self, barrier: Any) -> None:
        """``barrier`` is shared by all workers of a run."""
        self._barrier = barrier
        self._cpu_s: list[float] = []

    async def all(self) -> None:
        """Wait until every worker has come here."""
        self._cpu_s.append(time.process_time())
        await asyncio.get_running_loop().run_in_executor(None, self._barrier.wait, RUN_WITHIN_S)

    @property
    def cpu_s(self) -> float:
        """How much the processor worked from the first wait to the last."""
        return self._cpu_s[-1] - self._cpu_s[0] if self._cpu_s else 0.0


class Report(NamedTuple):
    """What a worker has to say, and what it cost."""

    said: Any
    cpu_s: float


class WorkerFailed(Exception):
    """A worker could not do its part."""


def run(workers: Sequence[Worker]) -> list[Report]:
    """Run all workers together; return what each of them reports, in their order."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(len(workers))
    processes, ends = [], []
    for worker in workers:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(worker, barrier, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
        ends.append(ours)
    try:
        return [_report(end) for end in ends]
    finally:
        for process in processes:
            process.join(END_WITHIN_S)
            if process.is_alive():
                process.kill()
                process.join()


def _report(end: Connection) -> Report:
    if not end.poll(RUN_WITHIN_S):
        raise WorkerFailed(f"a worker was silent for {RUN_WITHIN_S:g} s")
    try:
        failed, said, cpu_s = end.recv()
    except EOFError:
        raise WorkerFailed("a worker has ended without a word") from None
    if failed:
        raise WorkerFailed(said)
    return Report(said, cpu_s)


def _work(worker: Worker, barrier: Any, end: Connection) -> None:
    try:
        turn = Turn(barrier)
        said = event_loop.run(worker.role(turn, **worker.options))
        end.send((False, said, turn.cpu_s))
    except BaseException:  # noqa: BLE001  Whatever it is, whoever waits must hear of it.
        barrier.abort()
        end.send((True, traceback.format_exc(), 0.0))
