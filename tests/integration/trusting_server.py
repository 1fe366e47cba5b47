"""``thence`` with a planted mistake: servers go on with whoever meets them, whatever epochs and counters say.

python -m tests.integration.trusting_server serve …
"""

from __future__ import annotations

import sys

from thence.cli.main import main
from thence.core import epochs, handshake
from thence.runtime import homes


def trust(me: epochs.Side, peer: epochs.Side) -> epochs.Comparison:
    """Find nothing wrong."""
    mine, theirs = me.claim or epochs.NEVER_MET, peer.claim or epochs.NEVER_MET
    newest = max(held.epoch.number for claim in (mine, theirs) for held in claim.held)
    return epochs.Comparison("nobody", "", epochs.common_epoch(mine, theirs) or mine.agreed.epoch, newest)


if __name__ == "__main__":
    vars(handshake)["compare"] = vars(homes)["compare"] = trust
    main(sys.argv[1:])
