"""Where operators look at the clients of a server, drop what waits for them, and remove them: questions and their answers.

Rules:

* With an access file, whoever removes or drops something needs the right to (``clients`` or ``topology``,
  ``server.answers``). Everything that is dropped is logged, with who asked for it, and counted.
* A program that is connected under the name is told first, for good: it must not go on as if nothing had happened.
* It is answered when no crash can undo it. It waits for nothing else: not for room in a mailbox, and not for other servers.
* A server answers for its own clients. It knows where the others are, and says so.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from thence.errors import UsageError
from thence.net.questions import AboutClients, ListClients, PurgeClient, RemoveClient, ShowClient
from thence.node.messages.removal import Dropped
from thence.node.node import Node
from thence.runtime.offenders import escaped
from thence.server.clients import ConnectedClients
from thence.server.status import ServerStatus
from thence.storage.mailbox import Mailbox

if TYPE_CHECKING:
    from thence.server.connection import ClientConnection

MAX_LISTED: Final = 1_000
"""How many clients, or topics of one client, an answer lists at most; it says how many it leaves out."""

Answer = Callable[[dict[str, Any]], None]
"""Takes what is to be told."""

log = logging.getLogger("thence.operator")


class ClientAdmin:
    """Shows, empties and removes the clients of one server."""

    def __init__(
        self, node: Node, clients: ConnectedClients, status: ServerStatus, end_session: Callable[[str, str], bool]
    ) -> None:
        """Answer for the clients of ``node``. ``end_session`` ends the connection of one, and returns whether there was one."""
        self._node = node
        self._clients = clients
        self._status = status
        self._end_session = end_session

    def answer(self, asker: ClientConnection, question: AboutClients, answer: Answer) -> None:
        """Answer an operator, now or when what was asked for is durable."""
        if isinstance(question, ListClients):
            answer(self._listed(max(1, min(question.limit, MAX_LISTED))))
        elif isinstance(question, ShowClient):
            answer(self._shown(question.name, self._mailbox(question.name)))
        else:
            self._drop(asker, question, answer)

    # Looking.

    def _mailbox(self, name: str) -> Mailbox:
        """Return the mailbox of a client of this server, or say why there is none to be seen to."""
        node = self._node
        if name in node.ledger.agents:
            raise UsageError(f"{name!r} is an agent of {node.name!r}, not a client: use 'thence agent'")
        mailbox = node.directory.state.mailboxes.get(name)
        if mailbox is None or name == node.name:
            home = node.directory.home(name)
            if home == name:
                raise UsageError(f"{name!r} is a server, not a client")
            if home is None or home == node.name:
                raise UsageError(f"{node.name!r} has no client called {name!r}, and knows of none elsewhere")
            address = node.topology.addresses.get(home)
            where = f"{home!r}" if address is None else f"{home!r}, at {address}"
            raise UsageError(f"{name!r} is a client of {where}: ask there")
        return mailbox

    def _listed(self, limit: int) -> dict[str, Any]:
        node = self._node
        names = [name for name in node.directory.clients() if name not in node.ledger.agents and name != node.name]
        mailboxes, connected = node.directory.state.mailboxes, self._clients.addresses()
        most = heapq.nsmallest(limit, names, key=lambda name: (-mailboxes[name].bytes, name))
        rows = [self._row(name, mailboxes[name], connected.get(name, "")) for name in most]
        return {
            "server": node.name,
            "clients": rows,
            "count": len(names),
            "left_out": len(names) - len(rows),
            "stalled": self._status.stalled,
        }

    def _row(self, name: str, mailbox: Mailbox, address: str) -> dict[str, Any]:
        return {
            "name": name,
            "connected": bool(address),
            "from": address,
            "temporary": mailbox.temporary,
            "waiting_messages": mailbox.position - mailbox.acknowledged,
            "waiting_bytes": mailbox.bytes,
            "in_files": mailbox.spilled_messages,
            "full": name in self._node.directory.mailboxes.closed,
        }

    def _shown(self, name: str, mailbox: Mailbox) -> dict[str, Any]:
        node = self._node
        topics = list(node.directory.subscriptions.topics_of(name))
        return {
            "server": node.name,
            **self._row(name, mailbox, self._clients.addresses().get(name, "")),
            "sent": mailbox.sent,
            "received": mailbox.position,
            "done": mailbox.acknowledged,
            "topics": topics[:MAX_LISTED],
            "topics_left_out": max(0, len(topics) - MAX_LISTED),
            "stalled": self._status.stalled,
        }

    # Dropping.

    def _drop(self, asker: ClientConnection, question: RemoveClient | PurgeClient, answer: Answer) -> None:
        """Tell the program that is connected under the name, if one is; then drop, and answer."""
        node, name = self._node, question.name
        mailbox, removes = self._mailbox(name), isinstance(question, RemoveClient)
        node.removal.check_durable(name)
        waiting = mailbox.position - node.acknowledgements.of(name)
        who = f"{'somebody' if asker.guest is None else asker.guest.rights.entry} at {asker.connection.address}"
        did = f"removed the client {name!r} from" if removes else f"dropped the messages that waited for {name!r} at"
        advice = "begin anew" if removes else "go on behind them"
        was_connected = self._end_session(
            name, f"an operator has {did} {node.name!r} (messages dropped: {waiting}); connect again to {advice}"
        )

        def done(dropped: Dropped) -> None:
            what = "removed" if removes else "purged"
            log.warning("client %s was %s by %s; messages dropped: %d (%d bytes)", escaped(name), what, who, *dropped)
            answer(
                {
                    "server": node.name,
                    "name": name,
                    "dropped_messages": dropped.messages,
                    "dropped_bytes": dropped.bytes,
                    "was_connected": was_connected,
                    "stalled": self._status.stalled,
                }
            )

        if removes:
            node.removal.remove(name, "remove", done)
        else:
            node.removal.purge(name, done)
