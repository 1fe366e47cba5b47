"""``thence`` with a planted mistake: servers go on with whoever meets them, whatever epochs and counters say.

python -m tests.support.campaigns.trusting_server serve …
"""

from __future__ import annotations

import sys

from thence.cli.main import main
from thence.core.epochs import epoch, handshake
from thence.node.directory import homes


def trust(me: epoch.Side, peer: epoch.Side) -> epoch.EpochFit:
    """Find nothing wrong."""
    mine, theirs = me.claim or epoch.NEVER_MET, peer.claim or epoch.NEVER_MET
    newest = max(held.epoch.number for claim in (mine, theirs) for held in claim.held)
    return epoch.EpochFit("nobody", "", epoch.common_epoch(mine, theirs) or mine.agreed.epoch, newest)


if __name__ == "__main__":
    vars(handshake)["compare"] = vars(homes)["compare"] = trust
    main(sys.argv[1:])
