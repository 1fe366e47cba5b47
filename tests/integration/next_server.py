"""``thence`` as a later version might be: it speaks other protocols, and says more in its hello than this version knows.

python -m tests.integration.next_server OLDEST NEWEST serve …
"""

from __future__ import annotations

import sys

from thence.cli.main import main
from thence.runtime import client, door, peers, protocol
from thence.runtime.protocol import ServerHello


class LaterHello(ServerHello, frozen=True, array_like=True, tag=1):
    """With a field that this version does not know."""

    mood: str = "good"


def become_later(oldest: int, newest: int) -> None:
    """Speak these protocols."""
    for module in (protocol, door, peers, client):
        vars(module).update(OLDEST_PROTOCOL=oldest, PROTOCOL=newest)
    vars(peers)["ServerHello"] = LaterHello


if __name__ == "__main__":
    become_later(int(sys.argv[1]), int(sys.argv[2]))
    main(sys.argv[3:])
