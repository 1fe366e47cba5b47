"""Where operators look at the clients of a server, drop what waits for them, and remove them: questions and their answers.

Rules:

* A question comes in a frame of a client (``OperatorQuestion``), mostly of one without a name. Its answer is JSON.
* With an access file, whoever removes or drops something needs the right to (``clients`` or ``topology``). Everything that is
  dropped is logged, with who asked for it, and counted.
* A program that is connected under the name is told first, for good: it must not go on as if nothing had happened.
* It is answered when no crash can undo it. It waits for nothing else: not for room in a mailbox, and not for other servers.
* A server answers for its own clients. It knows where the others are, and says so.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.errors import ThenceError, UsageError
from thence.runtime.boxes import Box
from thence.runtime.complaints import escaped
from thence.runtime.door import tell
from thence.runtime.operator_questions import ListClients, PurgeClient, Question, RemoveClient, ShowClient, read_question
from thence.runtime.protocol import OperatorAnswer, OperatorQuestion
from thence.runtime.removal import Dropped

if TYPE_CHECKING:
    from thence.runtime.client_connection import ClientConnection
    from thence.runtime.server import Server

MAX_LISTED: Final = 1_000
"""How many clients, or topics of one client, an answer lists at most; it says how many it leaves out."""

Answer = Callable[[dict[str, Any]], None]
"""Takes what is to be told."""

log = logging.getLogger("thence.operator")


class OperatorDesk:
    """See the module's text."""

    def __init__(self, server: Server) -> None:
        """Answer for the clients of ``server``."""
        self._server = server

    def ask(self, asker: ClientConnection, asked: OperatorQuestion) -> None:
        """Answer an operator, now or when what was asked for is durable."""
        question = read_question(asked.question)
        changes = isinstance(question, RemoveClient | PurgeClient)
        reason = asker.rights.objection_to_removal() if changes else asker.rights.objection_to_listing()
        if reason:
            asker.complain(reason)
            tell(asker.connection, OperatorAnswer(asked.number, b"", reason, forbidden=True))
            return
        try:
            self._answer(asker, asked.number, question)
        except ThenceError as error:
            tell(asker.connection, OperatorAnswer(asked.number, b"", str(error)))

    def _answer(self, asker: ClientConnection, number: int, question: Question) -> None:
        def answer(value: dict[str, Any]) -> None:
            tell(asker.connection, OperatorAnswer(number, msgspec.json.encode(value)))

        if isinstance(question, ListClients):
            answer(self._listed(max(1, min(question.limit, MAX_LISTED))))
        elif isinstance(question, ShowClient):
            answer(self._shown(question.name, self._mailbox(question.name)))
        else:
            self._drop(asker, question, answer)

    # Looking.

    def _mailbox(self, name: str) -> Box:
        """Return the mailbox of a client of this server, or say why there is none to be seen to."""
        node = self._server.node
        if name in node.ledger.agents:
            raise UsageError(f"{name!r} is an agent of {node.name!r}, not a client: use 'thence agent'")
        box = node.office.state.boxes.get(name)
        if box is None or name == node.name:
            home = node.office.home(name)
            if home == name:
                raise UsageError(f"{name!r} is a server, not a client")
            if home is None or home == node.name:
                raise UsageError(f"{node.name!r} has no client called {name!r}, and knows of none elsewhere")
            address = node.topology.addresses.get(home)
            where = f"{home!r}" if address is None else f"{home!r}, at {address}"
            raise UsageError(f"{name!r} is a client of {where}: ask there")
        return box

    def _listed(self, limit: int) -> dict[str, Any]:
        node = self._server.node
        names = [name for name in node.office.clients() if name not in node.ledger.agents and name != node.name]
        boxes, connected = node.office.state.boxes, self._server.connected_from()
        most = heapq.nsmallest(limit, names, key=lambda name: (-boxes[name].bytes, name))
        rows = [self._row(name, boxes[name], connected.get(name, "")) for name in most]
        return {
            "server": node.name,
            "clients": rows,
            "count": len(names),
            "left_out": len(names) - len(rows),
            "stalled": self._server.stalled,
        }

    def _row(self, name: str, box: Box, address: str) -> dict[str, Any]:
        return {
            "name": name,
            "connected": bool(address),
            "from": address,
            "temporary": box.temporary,
            "waiting_messages": box.position - box.acknowledged,
            "waiting_bytes": box.bytes,
            "in_files": box.spilled_letters,
            "full": self._server.node.office.is_full(name),
        }

    def _shown(self, name: str, box: Box) -> dict[str, Any]:
        node = self._server.node
        topics = list(node.office.subscriptions.topics_of(name))
        return {
            "server": node.name,
            **self._row(name, box, self._server.connected_from().get(name, "")),
            "sent": box.sent,
            "received": box.position,
            "done": box.acknowledged,
            "topics": topics[:MAX_LISTED],
            "topics_left_out": max(0, len(topics) - MAX_LISTED),
            "stalled": self._server.stalled,
        }

    # Dropping.

    def _drop(self, asker: ClientConnection, question: RemoveClient | PurgeClient, answer: Answer) -> None:
        """Tell the program that is connected under the name, if one is; then drop, and answer."""
        server, node, name = self._server, self._server.node, question.name
        mailbox, removes = self._mailbox(name), isinstance(question, RemoveClient)
        node.removal.check_durable(name)
        waiting = mailbox.position - node.acknowledged_of(name)
        who = f"{'somebody' if asker.guest is None else asker.guest.rights.entry} at {asker.connection.address}"
        did = f"removed the client {name!r} from" if removes else f"dropped the messages that waited for {name!r} at"
        advice = "begin anew" if removes else "go on behind them"
        was_connected = server.end_session(
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
                    "stalled": server.stalled,
                }
            )

        if removes:
            node.removal.remove(name, "remove", done)
        else:
            node.removal.purge(name, done)
