"""``thence`` as a later version might be: it speaks other protocols, and says more in its hello than this version knows.

python -m tests.support.servers.next_server OLDEST NEWEST serve …
"""

from __future__ import annotations

import sys

from thence.cli.main import main
from thence.client import client
from thence.net import protocol
from thence.net.protocol import ServerHello
from thence.node import listener
from thence.node.peers import incoming_calls, outgoing_calls


class LaterHello(ServerHello, frozen=True, array_like=True, tag=1):
    """With a field that this version does not know."""

    mood: str = "good"


def become_later(oldest: int, newest: int) -> None:
    """Speak these protocols."""
    for module in (protocol, listener, incoming_calls, outgoing_calls, client):
        vars(module).update(OLDEST_PROTOCOL=oldest, PROTOCOL=newest)
    vars(outgoing_calls)["ServerHello"] = LaterHello


if __name__ == "__main__":
    become_later(int(sys.argv[1]), int(sys.argv[2]))
    main(sys.argv[3:])
