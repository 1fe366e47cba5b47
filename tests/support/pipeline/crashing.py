"""Follow a trace, and be killed at a chosen moment: ``python -m tests.support.pipeline.crashing SOURCE CHECKPOINT OUT MOMENT
STEP``.

The moments: ``unsaved``, before the state of the step is written; ``saved``, after that and before its rows are published;
``published``, after that and before Spark hears that the batch is done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from thence.pipeline.session import spark_session
from thence.pipeline.streaming import store, stream
from thence.pipeline.streaming.follower import FOLLOWED


def killed_around(method: Callable[..., None], step: int, *, before: bool) -> Callable[..., None]:
    """The same method, but the process ends by it."""

    def called(self: store.FollowStore, state: store.FollowState) -> None:
        if not before:
            method(self, state)
        if state.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        if before:
            method(self, state)

    return called


def main(source: str, checkpoint: str, out: str, moment: str, step: str) -> None:
    """See the module's text."""
    patched: Any = store.FollowStore
    if moment == "unsaved":
        patched.save = killed_around(patched.save, int(step), before=True)
    else:
        patched.publish = killed_around(patched.publish, int(step), before=moment == "saved")
    stream.PARTS_PER_BATCH = 1  # type: ignore[misc]
    stream.follow(spark_session("local[1]"), stream.Options(source, checkpoint, out, FOLLOWED), lambda _told, _found: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
