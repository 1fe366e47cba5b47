"""Which clients follow which topics, both ways: who gets what is published, and what goes when somebody leaves.

It is a part of the directory (``node.directory.directory``), which owns it, and a state machine without I/O.

Rules:

* Who follows each topic is part of the directory's state. What each client follows is an index of that, made again at a restart:
  whoever leaves costs what it follows, and not what there is.
* There are so many subscriptions of clients of this server, since all servers know of all of them. That is looked at before a
  notice goes out, with those that are under way, and never when one comes in: all servers must do the same with it.
* A server that tells of more than there is room for (``node.directory.announcement_memory``) *follows everything*: it is a
  follower of the topic ``EVERYTHING``, which nobody can publish on, until it leaves the fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from thence.errors import UsageError
from thence.node.directory.announcement_memory import MAX_TOPICS_BYTES, TOPIC_BYTES, Announced

MAX_SUBSCRIPTIONS_EACH: Final = 100_000
"""How many topics one client follows."""

MAX_SUBSCRIPTIONS: Final = 1_000_000
"""How many topics all clients of one server follow together. One that two of them follow counts twice. Each takes 170 bytes at
every server, and 380 if nobody else follows the topic."""

EVERYTHING: Final = ""
"""The topic of servers that follow every topic. Those of clients have a character at least."""

Followers = dict[str, dict[str, None]]
"""The clients that follow each topic."""

_NOTHING: Final[dict[str, None]] = {}


class Subscriptions:
    """The topics that clients follow, by client and by topic."""

    def __init__(
        self,
        server: str,
        is_ours: Callable[[str], bool],
        followers: Followers,
        home: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        """``is_ours`` tells whether a client is one of ``server``; ``followers`` is changed here and saved elsewhere.

        ``home`` returns the server of a client.
        """
        self._server = server
        self._is_ours = is_ours
        self.followers = followers
        self.topics: dict[str, dict[str, None]] = {}
        """What each client follows."""
        self.most = MAX_SUBSCRIPTIONS
        """How many there may be, if that is less than ``MAX_SUBSCRIPTIONS``."""
        self.count = 0
        """How many subscriptions clients of ours have."""
        self.total = 0
        """How many clients of all servers have."""
        self.asking: dict[tuple[str, str], None] = {}
        """Clients of ours and topics, of which the notice is under way."""
        self.asking_each: dict[str, int] = {}
        """How many of these each client has."""
        self.announced = Announced(MAX_TOPICS_BYTES, TOPIC_BYTES)
        self._announced_by: dict[str, str] = {}
        """The servers of clients of others that follow something."""
        for topic, clients in followers.items():
            for client in clients:
                self.topics.setdefault(client, {})[topic] = None
                self._weigh(client, topic, home(client))
        self.count = sum([len(topics) for client, topics in self.topics.items() if is_ours(client)])
        self.total = sum(map(len, followers.values()))

    # What there is.

    def followers_of(self, topic: str) -> Collection[str]:
        """Return who follows a topic."""
        return self.followers.get(topic, _NOTHING)

    def follows(self, client: str, topic: str) -> bool:
        """Return whether a client follows a topic."""
        return client in self.followers_of(topic)

    def topics_of(self, client: str) -> Collection[str]:
        """Return what a client follows."""
        return self.topics.get(client, _NOTHING)

    # What comes to pass.

    def follow(self, client: str, topic: str, server: str | None = None) -> bool:
        """A client follows a topic from here on, as ``server`` tells (None: we do); return whether that one follows all now."""
        self.asks_no_longer(client, topic)
        if client in self.followers_of(topic):
            return False
        if server not in (None, self._server) and not self.announced.has_room(server, topic):
            client, topic = server, EVERYTHING
            if client in self.followers_of(topic):
                return False
        self.followers.setdefault(topic, {})[client] = None
        self.topics.setdefault(client, {})[topic] = None
        self._weigh(client, topic, server)
        self.count += self._is_ours(client)
        self.total += 1
        return topic == EVERYTHING

    def _weigh(self, client: str, topic: str, server: str | None) -> None:
        if server not in (None, self._server) and topic != EVERYTHING:
            self.announced.add(self._announced_by.setdefault(client, server), topic)

    def unfollow(self, client: str, topic: str) -> None:
        """It does no longer."""
        followers = self.followers.get(topic, {})
        if followers.pop(client, 1) is not None:
            return
        if not followers:
            del self.followers[topic]
        topics = self.topics[client]
        del topics[topic]
        if client in self._announced_by:
            self.announced.drop(self._announced_by[client], topic)
        if not topics:
            del self.topics[client]
            self._announced_by.pop(client, None)
        self.count -= self._is_ours(client)
        self.total -= 1

    def unfollow_all(self, client: str) -> list[str]:
        """It follows nothing any more; return what it did."""
        topics = list(self.topics_of(client))
        for topic in topics:
            self.unfollow(client, topic)
        return topics

    def is_ours_now(self, client: str) -> None:
        """A name that may have been another server's is one of ours."""
        self.count += len(self.topics_of(client))

    def was_ours(self, client: str) -> None:
        """It is no longer; what is followed under it may go on."""
        self.count -= len(self.topics_of(client))

    # What is asked for.

    def check(self, client: str, topic: str) -> None:
        """Refuse as ``UsageError`` what would be one too many."""
        if self.known(client, topic):
            return
        count = len(self.topics_of(client)) + self.asking_each.get(client, 0)
        if count >= MAX_SUBSCRIPTIONS_EACH:
            raise UsageError(f"{client!r} follows {count} topics; MAX_SUBSCRIPTIONS_EACH is {MAX_SUBSCRIPTIONS_EACH}")
        count = self.count + len(self.asking)
        if count >= (most := min(MAX_SUBSCRIPTIONS, self.most)):
            raise UsageError(
                f"clients of {self._server!r} follow topics {count} times; MAX_SUBSCRIPTIONS is {most}: "
                "follow it as a client of another server"
            )

    def known(self, client: str, topic: str) -> bool:
        """Whether a client follows a topic, or the notice of it is under way."""
        return (client, topic) in self.asking or self.follows(client, topic)

    def asks(self, client: str, topic: str) -> None:
        """The notice that it follows a topic is under way."""
        if not self.known(client, topic):
            self.asking[client, topic] = None
            self.asking_each[client] = self.asking_each.get(client, 0) + 1

    def asks_no_longer(self, client: str, topic: str) -> None:
        """It has come back, or never went out."""
        if self.asking.pop((client, topic), 1) is None:
            self.asking_each[client] -= 1
            if not self.asking_each[client]:
                del self.asking_each[client]
