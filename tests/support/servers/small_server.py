"""``thence`` with small limits, so that a short run reaches what otherwise takes hours: snapshots, full mailboxes, full queues.

python -m tests.support.servers.small_server serve …
"""

from __future__ import annotations

import sys
from functools import partial

from thence.cli.main import main
from thence.cli.servers import serve
from thence.core.member.limits import MemberOptions
from thence.node import history
from thence.node.driver import commits
from thence.node.options import NodeOptions
from thence.storage import mailbox


def make_small() -> None:
    """Lower the limits of this program."""
    vars(commits)["COMPACT_BYTES"] = 100_000
    vars(history)["ROWS_PER_PART"] = 200
    vars(mailbox)["MAX_MAILBOX_MESSAGES"] = 150
    vars(mailbox)["SPILL_AFTER_MESSAGES"] = 20
    vars(mailbox)["BLOCK_BATCHES"] = 4
    vars(serve)["NodeOptions"] = partial(NodeOptions, member=MemberOptions(max_unconsumed=100, max_queued=200))


if __name__ == "__main__":
    make_small()
    main(sys.argv[1:])
