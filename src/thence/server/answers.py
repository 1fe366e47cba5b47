"""Answers questions about a server as a whole: its status, its agents, its clients, and its view.

Rules:

* Whoever has no name may ask, too. With an access file, each kind of question needs a right of its own.
* A question has its turn (``server.admission``), and the next one of the same connection comes when its answer is out.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from thence.agents.admin import AgentAdmin
from thence.errors import ThenceError
from thence.net.control import tell
from thence.net.protocol import (
    AgentAnswer,
    AgentQuestion,
    OperatorAnswer,
    OperatorQuestion,
    StatusAnswer,
    StatusQuestion,
    ViewRequest,
)
from thence.net.questions import PurgeClient, RemoveClient, read_about_clients
from thence.node.node import Node
from thence.server.admin import ClientAdmin
from thence.server.admission import Answering, Done
from thence.server.status import ServerStatus

if TYPE_CHECKING:
    from thence.server.connection import ClientConnection

AnyQuestion = StatusQuestion | AgentQuestion | OperatorQuestion | ViewRequest


class ServerAnswers:
    """Answers the questions of all connections of one server."""

    def __init__(self, node: Node, status: ServerStatus, agents: AgentAdmin, clients: ClientAdmin) -> None:
        """Answer for ``node`` by its ``status``, and by those who know its agents and its clients."""
        self.turns = Answering()
        """The turns of those who ask."""
        self._node = node
        self._status = status
        self._agents = agents
        self._clients = clients

    def answer(self, asker: ClientConnection, asked: AnyQuestion, done: Done) -> None:
        """Answer a question, now or later, and call ``done`` when its answer is out."""
        looks = False
        if isinstance(asked, StatusQuestion):
            if not asker.denied("question", "", asker.rights.objection_to_status()):
                tell(asker.connection, StatusAnswer(msgspec.json.encode(self._status.report())))
        elif isinstance(asked, AgentQuestion):
            looks = self._about_agents(asker, asked)
        elif isinstance(asked, OperatorQuestion):
            self._about_clients(asker, asked)
        elif not asker.denied("question", "", asker.rights.objection_to_change()):
            self._node.reconfiguration.request(asked, partial(tell, asker.connection))
            looks = True
        if looks:
            self._node.driver.when_durable(done)  # Behind the answer, which is long and waits for the same.
        else:
            done()

    def _about_agents(self, asker: ClientConnection, asked: AgentQuestion) -> bool:
        """Answer about agents; return whether the question only looks."""

        def answer(value: bytes, error: str) -> None:
            tell(asker.connection, AgentAnswer(asked.number, value, error))

        reason = asker.rights.objection_to_agents()
        if reason:
            asker.complain(reason)
            tell(asker.connection, AgentAnswer(asked.number, b"", reason, forbidden=True))
            return False
        return self._agents.answer(asked.question, answer, "" if asker.guest is None else asker.rights.entry)

    def _about_clients(self, asker: ClientConnection, asked: OperatorQuestion) -> None:
        def answer(value: dict[str, Any]) -> None:
            tell(asker.connection, OperatorAnswer(asked.number, msgspec.json.encode(value)))

        question = read_about_clients(asked.question)
        changes = isinstance(question, RemoveClient | PurgeClient)
        reason = asker.rights.objection_to_removal() if changes else asker.rights.objection_to_listing()
        if reason:
            asker.complain(reason)
            tell(asker.connection, OperatorAnswer(asked.number, b"", reason, forbidden=True))
            return
        try:
            self._clients.answer(asker, question, answer)
        except ThenceError as error:
            tell(asker.connection, OperatorAnswer(asked.number, b"", str(error)))
