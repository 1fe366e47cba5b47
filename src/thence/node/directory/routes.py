"""Which servers a batch goes to: those of the clients that it names, or of those who follow its topic."""

from __future__ import annotations

from collections.abc import Collection

from thence.errors import UsageError
from thence.node.directory.claims import Claims
from thence.node.directory.subscriptions import EVERYTHING, Subscriptions
from thence.storage.mailbox import Batch


class TopicRoutes:
    """The servers of topics, kept until somebody follows or leaves."""

    def __init__(self, claims: Claims, subscriptions: Subscriptions, silent: str | None) -> None:
        """``claims`` say where clients are; ``silent`` is the server itself, if no program runs in it that could read."""
        self.subscriptions = subscriptions
        self._claims = claims
        self._silent = silent
        self._leaving: frozenset[str] = frozenset()
        self.by_topic: dict[str, tuple[str, ...]] = {}

    def of(self, batch: Batch) -> tuple[str, ...] | None:
        """Return the servers that a batch must go to (None: all; empty: nobody wants it)."""
        if batch.topic is not None:
            return self._of_topic(batch.topic)
        if batch.to is None:
            return None
        if len(batch.to) == 1:
            (client,) = batch.to
            if client in self._claims.servers and client != self._silent:
                return batch.to
            return (self._home_of(client),)
        return tuple(sorted({self._home_of(client) for client in batch.to}))

    def _of_topic(self, topic: str) -> tuple[str, ...]:
        servers = self.by_topic.get(topic)
        if servers is None:
            followers, all_topics = self.subscriptions.followers_of(topic), self.subscriptions.followers_of(EVERYTHING)
            homes = {self._claims.home(client) for client in (*followers, *all_topics)} - {None, *self._leaving}
            servers = tuple(sorted(home for home in homes if home is not None))
            if followers:  # Otherwise not remembered: there is no end of topics that nobody follows.
                self.by_topic[topic] = servers
        return servers

    def _home_of(self, client: str) -> str:
        if client == self._silent:
            raise UsageError(f"{client!r} is a server in which no program runs: nobody would ever read that")
        home = self._claims.home(client)
        if home is None:
            me = self._claims.server
            raise UsageError(f"nobody is called {client!r}, as far as {me!r} knows; a client exists once it connected")
        return home

    def hold(self, leaving: Collection[str]) -> None:
        """These servers are about to leave: what is published on a topic does not go there any more."""
        self._leaving = frozenset(leaving)
        self.forget()

    def forget(self) -> None:
        """Anybody may be elsewhere."""
        self.by_topic = {}

    def forget_topic(self, topic: str) -> None:
        """Others follow a topic from here on."""
        self.by_topic.pop(topic, None)

    def forget_client(self, client: str) -> None:
        """A client has come, gone, or is elsewhere: what it follows goes another way."""
        for topic in self.subscriptions.topics_of(client):
            self.by_topic.pop(topic, None)
