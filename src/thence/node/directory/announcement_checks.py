"""What other servers tell of their clients: each of its own alone, and no more than a server can have.

Rules:

* Of the clients of a server that server alone tells. Of what a client follows, too, unless nobody else has told of that client.
* All servers know of all clients and of what they follow, so each is held to twice the limits of a server on its own clients
  (``node.directory.directory``): a name is given up some time after its mailbox. What is beyond that is left out.
* How much each server has told is counted by what became more, or less, when that was taken. It is no part of the state: after a
  restart it is counted anew, by who has each client.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from thence.core.reconfig.protocol import FABRIC
from thence.core.wire.messages import MAX_NAME_CHARACTERS, Envelope
from thence.errors import MalformedFrame
from thence.net.names import MAX_TOPIC_CHARACTERS, RETURNED
from thence.net.protocol import count_messages
from thence.node.directory.directory import MAX_CLIENTS, Directory, DirectoryChange
from thence.node.directory.subscriptions import MAX_SUBSCRIPTIONS
from thence.storage.bodies import Body, Follows, Joined, Known
from thence.storage.mailbox import Batch

MAX_ANNOUNCED_CLIENTS: Final = 2 * MAX_CLIENTS
"""Of how many clients another server may tell."""

MAX_ANNOUNCED_FOLLOWS: Final = 2 * MAX_SUBSCRIPTIONS
"""Of how many subscriptions of its clients another server may tell."""


class AnnouncementChecks:
    """Checks what other servers announce: of their own clients only, and within the limits."""

    def __init__(self, directory: Directory) -> None:
        """Look after what comes to a directory."""
        self._directory = directory
        self._state = directory.state
        self._clients: Counter[str | None] = Counter()
        self._follows: Counter[str | None] = Counter()

    def check(self, body: Body, origin: str) -> None:
        """Refuse what a server cannot tell."""
        if isinstance(body, Batch):
            _check_batch(body, origin)
            return
        if isinstance(body, Follows):
            claims = self._directory.state.claims.get(body.client)
            if body.client != origin and claims and origin not in claims:
                raise MalformedFrame(f"a message of {origin!r} about what a client of {claims[0]!r} follows")
        elif body.server != origin:
            raise MalformedFrame(f"a message of {origin!r} about clients of {body.server!r}, which alone tells of them")
        if origin != self._directory.server:
            self._check_count(body, origin)

    def _check_count(self, body: Body, origin: str) -> None:
        self._count()
        known, followed = self._directory.state.claims, self._directory.subscriptions.follows
        names = body.clients if isinstance(body, Known) else (body.client,) if isinstance(body, Joined) else ()
        follows = body.follows if isinstance(body, Known) else ()
        if isinstance(body, Follows) and body.wanted:
            follows = [(body.client, body.topic)]
        if self._clients[origin] + sum([name not in known for name in names]) > MAX_ANNOUNCED_CLIENTS:
            raise MalformedFrame(f"{origin!r} tells of more clients than MAX_ANNOUNCED_CLIENTS ({MAX_ANNOUNCED_CLIENTS})")
        if self._follows[origin] + sum([not followed(*one) for one in follows]) > MAX_ANNOUNCED_FOLLOWS:
            raise MalformedFrame(f"{origin!r} tells of more subscriptions than MAX_ANNOUNCED_FOLLOWS ({MAX_ANNOUNCED_FOLLOWS})")

    def take(self, body: Body, envelope: Envelope) -> DirectoryChange:
        """Let the directory take a notice, and count what that makes more or less."""
        directory, origin = self._directory, envelope.origin
        self._count()
        clients, follows = len(directory.state.claims), directory.subscriptions.total
        change = directory.take(body, envelope)
        self._clients[origin] += len(directory.state.claims) - clients
        self._follows[origin] += directory.subscriptions.total - follows
        return change

    def _count(self) -> None:
        """Count anew if the directory has another state: it was brought back."""
        state = self._directory.state
        if state is not self._state:
            self._state = state
            self._clients = Counter(claims[0] for claims in state.claims.values())
            self._follows = Counter()
            for followers in state.followers.values():
                self._follows.update(map(self._directory.home, followers))


def _check_batch(batch: Batch, origin: str) -> None:
    """Refuse a batch of another server that has other messages than it claims, or longer names: mailboxes count what it
    claims."""
    if batch.sender == FABRIC:
        raise MalformedFrame(f"a message of {origin!r} speaks for the fabric itself")
    longest = max(map(len, batch.to)) if batch.to else 0
    if len(batch.sender) > MAX_NAME_CHARACTERS:  # One that was returned has a mark in front.
        longest = max(longest, len(batch.sender.removeprefix(RETURNED)))
    if longest > MAX_NAME_CHARACTERS or (batch.topic is not None and len(batch.topic) > MAX_TOPIC_CHARACTERS):
        raise MalformedFrame(f"a message of {origin!r} with a name or a topic that is too long")
    held = count_messages(batch.messages)
    if batch.count < 1 or held != batch.count:
        holds = "no list of messages" if held < 0 else f"{held}"
        raise MalformedFrame(f"a message of {origin!r} claims {batch.count} messages of {batch.sender!r}, and holds {holds}")
