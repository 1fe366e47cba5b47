"""What becomes of that which the access file allowed once and does not allow any more: subscriptions, and agents.

It is looked at when the server starts, when the file changes, and when a client comes in by another entry than before.

Rules:

* A client has the rights of the entry by which it last came in, also while it is away (``Mailbox.entry``). Of one that came
  before that was noted, or while there was no access file, nobody knows the entry: then any that lets it be called so counts.
* A subscription without a right to it is ended by a notice to all servers, as if its client had ended it: that is durable. The
  client is told, now or when it comes back, and the log says it once. From the moment the file is read nothing on the topic is
  delivered any more: what waits in the mailbox is withheld when its turn comes (``node.sessions.feed``), by the rights then.
* ``MAX_UNTOLD`` ends are kept in memory for those who are away. A program may stay up while its server restarts, and would never
  learn why nothing comes.
* An agent rests while the entry by which it was made may not make agents. What is written to it waits. The reaction that it
  is in is dropped, and done again when it may go on.
* A pass looks at ``TOPICS_AT_ONCE`` topics in a turn of the loop, so that a server with very many serves its clients meanwhile.
  What there is no room to tell other servers of is tried again by the clock.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from thence.agents.engine import AgentEngine
from thence.errors import Busy, UsageError
from thence.node.node import Node
from thence.server.clients import ConnectedClients
from thence.storage.bodies import Follows, Joined

if TYPE_CHECKING:
    from thence.net.security.access import AccessFile
    from thence.server.connection import ClientConnection

TOPICS_AT_ONCE: Final = 2_000
"""How many topics a pass looks at before others have their turn."""

MAX_LINES: Final = 100
"""About how many clients the log has a line of their own after one pass."""

MAX_UNTOLD: Final = 10_000
"""How many ends of subscriptions are kept to be told to clients that are away; further ones are not."""

log = logging.getLogger("thence.revocation")


class Revocation:
    """Ends subscriptions, and stops agents, that the access file does not allow any more."""

    def __init__(self, node: Node, clients: ConnectedClients, engine: AgentEngine) -> None:
        """Look after the clients and agents of ``node``; ``review`` begins."""
        self.withheld = 0
        """How many messages clients did not get, since they may not follow the topic any more."""
        self._node = node
        self._clients = clients
        self._engine = engine
        self._topics: list[str] = []
        """Which topics the pass has still to look at."""
        self._unnoted: dict[str, ClientConnection] = {}
        """Clients that came in by another entry, of which there was no room to tell."""
        self._passing = False
        self._ending: dict[tuple[str, str], str] = {}
        """Clients and topics whose end is announced and has not come to pass, and why."""
        self._ended: dict[str, tuple[int, str]] = {}
        """How many subscriptions of each client this pass has ended, and why the first of them."""
        self._untold: dict[str, list[tuple[str, str]]] = {}
        """By clients that are away: topics that they follow no longer, and why."""
        self._untold_count = 0

    @property
    def _access(self) -> AccessFile | None:
        return self._node.security.access

    def review(self) -> None:
        """Look at everything that there is."""
        if self._access is None:
            return
        self._review_agents(self._access)
        self._topics = list(self._node.directory.state.followers)
        self._go_on()

    def came(self, client: ClientConnection) -> None:
        """A client is here: tell it what has ended meanwhile, and note its entry, if that is another one than before."""
        for topic, reason in self._forget_untold(client.name):
            self._clients.tell_withdrawn(client.name, topic, reason)
        mailbox = self._node.directory.state.mailboxes.get(client.name)
        if client.guest is None or mailbox is None or mailbox.entry == client.guest.rights.entry:
            return
        try:
            self._node.intake.announce(Joined(client.name, self._node.name, mailbox.temporary, entry=client.guest.rights.entry))
        except UsageError:
            self._unnoted[client.name] = client  # There is no room now, and the clock tries it again.
            return
        self.review()

    def tick(self) -> None:
        """Go on with what there was no room for."""
        if self._access is not None:
            for name in self._untold.keys() - self._node.directory.state.mailboxes.keys():
                self._forget_untold(name)
            unnoted, self._unnoted = self._unnoted, {}
            for client in unnoted.values():
                self.came(client)
            if self._topics and not self._passing:
                self._go_on()

    def followed(self, notice: Follows) -> None:
        """A client of ours follows a topic, or no longer: it may have asked for it before the right was withdrawn."""
        if notice.wanted:
            self._check(notice.client, notice.topic)
            self._say()
        else:
            self._ending.pop((notice.client, notice.topic), None)

    # Subscriptions.

    def _go_on(self) -> None:
        self._passing = False
        mailboxes, followers = self._node.directory.state.mailboxes, self._node.directory.state.followers
        for _ in range(min(TOPICS_AT_ONCE, len(self._topics))):
            topic = self._topics[-1]
            if not all(self._check(client, topic) for client in list(followers.get(topic, ())) if client in mailboxes):
                break  # There is no room to tell it.
            self._topics.pop()
        else:
            if self._topics:
                self._passing = True
                asyncio.get_running_loop().call_soon(self._go_on)
                return
        self._say()

    def _check(self, client: str, topic: str) -> bool:
        """End a subscription that is not allowed; return whether that could be done."""
        access = self._access
        if access is None or client in self._node.ledger.agents or client not in self._node.directory.state.mailboxes:
            return True
        reason = access.objection_to_follower(client, self._entry_of(client), topic)
        if not reason or (client, topic) in self._ending:
            return True
        try:
            self._ending[client, topic] = reason  # Before: what is only in memory comes back at once.
            self._node.intake.announce(Follows(client, topic, wanted=False))
        except Busy:
            del self._ending[client, topic]
            return False
        except UsageError:
            del self._ending[client, topic]  # We have left, and nothing is published here any more.
            return True
        count, first = self._ended.get(client, (0, reason))
        self._ended[client] = (count + 1, first)
        if not self._clients.tell_withdrawn(client, topic, reason) and self._untold_count < MAX_UNTOLD:
            self._untold.setdefault(client, []).append((topic, reason))
            self._untold_count += 1
        return True

    def _forget_untold(self, client: str) -> list[tuple[str, str]]:
        untold = self._untold.pop(client, [])
        self._untold_count -= len(untold)
        return untold

    def _entry_of(self, client: str) -> str:
        here = self._clients.guest(client)
        return self._node.directory.state.mailboxes[client].entry if here is None else here.rights.entry

    def _say(self) -> None:
        ended, self._ended = self._ended, {}
        for client, (count, reason) in list(ended.items())[:MAX_LINES]:
            log.warning("client %s: subscriptions ended by the access file: %d; %s", client, count, reason)
        if len(ended) > MAX_LINES:
            log.warning("subscriptions of %d more clients were ended by the access file", len(ended) - MAX_LINES)

    # Agents.

    def _review_agents(self, access: AccessFile) -> None:
        stopped = {
            name: reason
            for name, kept in self._node.ledger.agents.items()
            if kept.entry and (reason := access.objection_to_maker(kept.entry))
        }
        engine = self._engine
        before = engine.stopped
        engine.stop(stopped)
        for name in stopped.keys() - before.keys():
            log.warning("agent %s is stopped: %s", name, stopped[name])
        for name in before.keys() - stopped.keys():
            log.info("agent %s goes on: the access file allows it again", name)
