"""``thence`` with small limits, so that a short run reaches what otherwise takes hours: snapshots, full boxes, full queues.

python -m tests.integration.small_server serve …
"""

from __future__ import annotations

import sys
from functools import partial

from thence.cli import serve
from thence.cli.main import main
from thence.core.member import MemberOptions
from thence.runtime import boxes, driver, history
from thence.runtime.node_options import NodeOptions


def make_small() -> None:
    """Lower the limits of this program."""
    vars(driver)["COMPACT_BYTES"] = 100_000
    vars(history)["ROWS_PER_PART"] = 200
    vars(boxes)["MAX_BOX_LETTERS"] = 150
    vars(boxes)["SPILL_AFTER_LETTERS"] = 20
    vars(boxes)["BLOCK_BUNDLES"] = 4
    vars(serve)["NodeOptions"] = partial(NodeOptions, member=MemberOptions(max_unconsumed=100, max_queued=200))


if __name__ == "__main__":
    make_small()
    main(sys.argv[1:])
