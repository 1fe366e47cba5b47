"""Follow a trace, and be killed at a chosen moment: ``python -m tests.support.pipeline.crashing SOURCE CHECKPOINT OUT MOMENT
STEP``.

The moments: ``unsaved``, when a batch is judged and before anything of it is written; ``saved``, when its tables are written and
before that is noted; ``published``, when that is noted and before Spark hears that the batch is done.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.support.pipeline.followed import FOLLOWED
from thence.pipeline.session import spark_session
from thence.pipeline.streaming import sink, stream


def main(source: str, checkpoint: str, out: str, moment: str, step: str) -> None:
    """See the module's text."""
    patched: Any = sink
    write, publish = patched.write_whole, patched.FollowSink.publish
    at: list[int] = []

    def publishing(self: Any, state: Any, reports: Any, number: int, lag_of: Any) -> Any:
        at.append(number)
        if moment == "unsaved" and number == int(step):
            os.kill(os.getpid(), signal.SIGKILL)
        return publish(self, state, reports, number, lag_of)

    def writing(path: Path, content: bytes) -> None:
        is_note = path.name == "follow.json" and at[-1:] == [int(step)]
        if is_note and moment == "saved":
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, content)
        if is_note and moment == "published":
            os.kill(os.getpid(), signal.SIGKILL)

    patched.write_whole, patched.FollowSink.publish = writing, publishing
    options = stream.Options(source, checkpoint, out, FOLLOWED, parts_per_batch=1)
    stream.follow(spark_session("local[1]"), options, lambda _told, _found: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
