"""The directory of a server: which clients there are and where, which topics they follow, and what waits for whom.

It is a state machine on top of the member, without I/O. Clients of all servers are addressed by name; the directory turns names
and topics into servers on the way out, and servers into mailboxes of clients on the way in.

Rules:

* Its state follows from what the member delivered, in that order, and from what clients acknowledged. So after a crash the same
  deliveries make it again.
* Who is where, and who follows what, is told to all servers by a *notice*: a message like any other, to everyone, in causal
  order. So whoever learns of a client or a subscription from a message can use it: the notice came first.
* Two servers may give the same name at the same time: both claim it. Of those that claim a name the server whose name comes
  first has it, everywhere; the client of the other is told, and its server takes its claim back. So all come to agree, in
  whatever order they hear of it.
* An agent (``agents.engine``) is a client that lives in the server: the notice of it says its class and what it begins with.
* A client sends messages in batches (``Publish``): consecutive messages for the same recipients are one message of the member.
  Nobody but clients looks into them.
* The name of a server is an address too, of the program that runs in it (``client.embedded``).
* What waits in mailboxes, and when one is full, is in ``node.directory.mailboxes``.
* A server has so many clients, and they follow so many topics, since all servers know of all of them. That is looked at before a
  notice goes out, with those that are under way, and never when one comes in: all servers must do the same with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from thence.core.wire.messages import UNREADABLE, Envelope
from thence.errors import StorageError, UsageError
from thence.node.directory.announcement_memory import MAX_TOPICS_BYTES
from thence.node.directory.claims import Claims
from thence.node.directory.closings import Closings
from thence.node.directory.mailboxes import Mailboxes
from thence.node.directory.routes import TopicRoutes
from thence.node.directory.subscriptions import EVERYTHING, Subscriptions
from thence.storage.bodies import (
    MAX_KNOWN,
    Body,
    Closing,
    Follows,
    Joined,
    Known,
    Left,
    read_body,
    write_body,
)
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom
from thence.storage.spill import Spill

MAX_CLIENTS: Final = 1_000_000
"""How many clients and agents one server has: each takes about 510 bytes there, up to 1,160 when programs came back under its
name, and 240 at every other server."""


class DirectoryState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    mailboxes: dict[str, Mailbox] = msgspec.field(default_factory=dict)
    claims: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The servers that claim each client, in the order of their names: the first one has it. Mostly there is only that."""
    followers: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)
    """The clients that follow each topic."""
    closed: dict[str, str] = msgspec.field(default_factory=dict)
    """Clients whose mailbox is closed, and their servers."""


class DirectoryChange(msgspec.Struct, frozen=True):
    """What a delivery changed for clients of this server."""

    mailboxes: tuple[str, ...] = ()
    """Clients with new messages."""
    joined: str | None = None
    """A client, of any server, that there is from now on."""
    left: str | None = None
    """A client of this server that has lost its name."""
    yielded: str | None = None
    """A client that this server claims and another one has: the claim must be taken back."""
    follows: Follows | None = None
    known: tuple[str, ...] = ()
    """Clients of another server that there are from now on."""
    made: Joined | None = None
    """An agent of this server that there is from now on."""
    gone: str | None = None
    """A name that this server claimed, and does not any more."""
    opened: bool = False
    """Whether a mailbox that was closed is open again, or gone, or is out of the way of a topic."""
    lost: Mailbox | None = None
    """The mailbox of the client that has lost its name to another server: what is in it goes back."""


class Directory:
    """The clients, subscriptions and mailboxes that one server knows of."""

    def __init__(
        self,
        server: str,
        servers: Collection[str],
        *,
        embedded: bool = False,
        spill: Spill | None = None,
        spill_beyond: MailboxRoom | None = None,
    ) -> None:
        """Open the directory of ``server``; ``servers`` are all of the fabric. ``embedded``: a program runs in it, as a client.

        ``spill`` has the files of a store; ``spill_beyond`` says how much of a mailbox stays in memory, if the rest may go there.
        """
        self.server = server
        self.state = DirectoryState({server: Mailbox()} if embedded else {})
        self.mailboxes = Mailboxes(self.state.mailboxes, spill, spill_beyond)
        self.claims = Claims(server, servers, self.state.claims)
        self.closings = Closings(self.claims, self.state.closed, self.mailboxes.closed)
        self._embedded = embedded
        self._most_clients, self._most_subscriptions, self._most_topics_bytes = 2**62, 2**62, MAX_TOPICS_BYTES
        """Limits that a budget makes smaller (``limit``)."""
        self.joining: dict[str, None] = {}
        """Names of clients of ours that the notice is under way of."""
        self.subscriptions = self._subscribed()
        self.routes = TopicRoutes(self.claims, self.subscriptions, None if embedded else server)
        self._written: tuple[bytes, Body | None] = (b"", None)
        """What was written last: where it is delivered here too, it need not be read."""

    # Limits.

    def limit(self, mailboxes_bytes: int, clients: int, subscriptions: int, names_bytes: int, topics_bytes: int) -> None:
        """Make limits smaller, where these are; the last two are for what each other server tells of."""
        self.mailboxes.limit, self._most_clients = mailboxes_bytes, clients
        self._most_subscriptions = self.subscriptions.most = subscriptions
        self.claims.announced.limit, self._most_topics_bytes = names_bytes, topics_bytes
        self.subscriptions.announced.limit = topics_bytes

    def check(self, notice: Body) -> None:
        """Refuse as ``UsageError`` a notice of ours by which there would be too many clients or subscriptions."""
        if isinstance(notice, Joined) and (objection := self.objection(notice.client)):
            raise UsageError(objection)
        if isinstance(notice, Follows) and notice.wanted:
            self.subscriptions.check(notice.client, notice.topic)

    def objection(self, client: str) -> str:
        """Say why no client of this name may come in, if so; one that is known always may."""
        count = len(self.state.mailboxes) + len(self.joining)
        if client in self.state.mailboxes or client in self.joining or count < (most := min(MAX_CLIENTS, self._most_clients)):
            return ""
        return f"{self.server!r} has {count} clients; MAX_CLIENTS is {most}: connect to another server"

    @contextmanager
    def announcing(self, notice: Body) -> Iterator[None]:
        """Count a notice of ours as under way from here on, unless it is refused."""
        self.check(notice)
        # Counted before it goes out: what is only in memory comes back at once.
        if isinstance(notice, Joined):
            self.joining[notice.client] = None
        elif isinstance(notice, Follows) and notice.wanted:
            self.subscriptions.asks(notice.client, notice.topic)
        try:
            yield
        except UsageError:
            if isinstance(notice, Joined):
                self.joining.pop(notice.client, None)
            elif isinstance(notice, Follows):
                self.subscriptions.asks_no_longer(notice.client, notice.topic)
            raise

    def _subscribed(self) -> Subscriptions:
        made = Subscriptions(self.server, lambda client: client in self.state.mailboxes, self.state.followers, self.home)
        made.most, made.announced.limit = self._most_subscriptions, self._most_topics_bytes
        return made

    # Messages out.

    def write(self, body: Body) -> bytes:
        """Return the body of a message of ours."""
        written = write_body(body)
        self._written = (written, body)
        return written

    def home(self, client: str) -> str | None:
        """Return the server of a client."""
        return self.claims.home(client)

    def route(self, batch: Batch) -> tuple[str, ...] | None:
        """Return the servers that a batch must go to (None: all; empty: nobody wants it)."""
        return self.routes.of(batch)

    # Messages in.

    def deliver(self, envelope: Envelope) -> DirectoryChange:
        """Take what the member delivered."""
        return self.take(self.read(envelope), envelope)

    def read(self, envelope: Envelope) -> Body:
        """Return what the member delivered."""
        if envelope.body is self._written[0] and self._written[1] is not None:
            return self._written[1]
        return read_body(envelope.body, envelope.origin)

    def take(self, body: Body, envelope: Envelope) -> DirectoryChange:
        """Do what the body of a message says."""
        if isinstance(body, Batch):
            return DirectoryChange(mailboxes=self._put(body))
        if isinstance(body, Joined):
            return self._joined(body, envelope.number)
        if isinstance(body, Left):
            return self._left(body)
        if isinstance(body, Known):
            return self._known(body)
        if isinstance(body, Closing):
            return DirectoryChange(opened=self.closings.take(body))
        return self._follows(body, envelope.origin)

    def clients(self) -> list[str]:
        """Return who has a mailbox here that somebody empties."""
        return [name for name in self.state.mailboxes if name != self.server or self._embedded]

    def _put(self, batch: Batch) -> tuple[str, ...]:
        all_mailboxes, names = self.state.mailboxes, batch.to
        if names is not None:
            if len(names) != 1 or names[0] not in all_mailboxes:
                # A server in which no program runs has no mailbox of its own: nobody would ever empty it.
                names = tuple([name for name in names if name in all_mailboxes])
        elif batch.topic is not None:
            names = tuple([name for name in self.subscriptions.followers_of(batch.topic) if name in all_mailboxes])
        else:
            names = tuple(self.clients())
        self.mailboxes.put(batch, names)
        return names

    def _joined(self, notice: Joined, number: int) -> DirectoryChange:
        claims = self._claimed(notice.client, notice.server)
        if claims is None:
            return DirectoryChange()
        change = DirectoryChange(joined=notice.client)
        if notice.server == self.server:
            self.joining.pop(notice.client, None)
        if claims[0] == self.server == notice.server:
            if notice.client not in self.state.mailboxes:
                self.state.mailboxes[notice.client] = Mailbox(notice.temporary, since=number, id=notice.mailbox_id)
                self.subscriptions.is_ours_now(notice.client)  # What it follows may be of the server that had the name before.
                change = msgspec.structs.replace(change, made=notice if notice.kind else None)
            if notice.entry and not notice.kind:
                self.state.mailboxes[notice.client].entry = notice.entry
        elif claims[0] != self.server and self.server in claims:
            lost, change = self.state.mailboxes.get(notice.client), self._drop(notice.client, keep_files=True)
            change = msgspec.structs.replace(change, joined=notice.client, yielded=notice.client, lost=lost)
        return change

    def _claimed(self, client: str, server: str) -> list[str] | None:
        """Take note that a server claims a name; return all who do, or None if the name was left out for want of room."""
        claims, is_new = self.claims.add(client, server)
        if is_new:
            self.routes.forget_client(client)
        return claims

    def _left(self, notice: Left) -> DirectoryChange:
        had_it = self.claims.drop(notice.client, notice.server)
        if had_it is None:
            return DirectoryChange()
        self.routes.forget_client(notice.client)
        opened = self.closings.forget(notice.client, notice.server)
        if had_it:
            self.subscriptions.unfollow_all(notice.client)
        if notice.server != self.server:
            return DirectoryChange(opened=opened)
        return msgspec.structs.replace(self._drop(notice.client), gone=notice.client, opened=opened)

    def remove(self, client: str) -> DirectoryChange:
        """Drop a client's mailbox. Its name is claimed until ``Left`` comes."""
        change = self._drop(client)
        self.mailboxes.look_for_room()
        return change

    def _drop(self, client: str, *, keep_files: bool = False) -> DirectoryChange:
        dropped = self.mailboxes.drop(client, keep_files=keep_files)
        if dropped is None:
            return DirectoryChange()
        self.subscriptions.was_ours(client)
        return DirectoryChange(left=client)

    def _follows(self, notice: Follows, origin: str) -> DirectoryChange:
        if notice.wanted:
            if self.subscriptions.follow(notice.client, notice.topic, origin):
                self.routes.forget()
        else:
            self.subscriptions.unfollow(notice.client, notice.topic)
        self.routes.forget_topic(notice.topic)
        return DirectoryChange(follows=notice, opened=not notice.wanted and self.closings.is_closed(notice.client))

    # Changes of the fabric.

    def change(self, servers: Collection[str]) -> None:
        """The fabric has these servers now. Clients of others are gone."""
        self.routes.hold(())
        for client in self.claims.change(servers):
            self.subscriptions.unfollow_all(client)
        for server in [name for name in self.subscriptions.followers_of(EVERYTHING) if name not in self.claims.servers]:
            self.subscriptions.unfollow(server, EVERYTHING)
        self.closings.change()

    def greetings(self) -> Iterator[bytes]:
        """Give the bodies of messages that tell others of our clients."""
        clients = {name: mailbox.temporary for name, mailbox in self.state.mailboxes.items() if name != self.server}
        follows = [
            (client, topic)
            for topic, followers in self.state.followers.items()
            for client in followers
            if client in clients or client == self.server
        ]
        names = list(clients)
        for at in range(0, len(names), MAX_KNOWN):
            yield write_body(Known(self.server, {name: clients[name] for name in names[at : at + MAX_KNOWN]}, []))
        for at in range(0, len(follows), MAX_KNOWN):
            yield write_body(Known(self.server, {}, follows[at : at + MAX_KNOWN]))
        if closed := self.closings.of(self.server):
            yield write_body(Closing(self.server, tuple(closed), closed=True))

    def _known(self, notice: Known) -> DirectoryChange:
        if notice.server == self.server:
            return DirectoryChange()
        known = [client for client in notice.clients if self._claimed(client, notice.server) is not None]
        for client, topic in notice.follows:
            self.subscriptions.follow(client, topic, notice.server)
        self.routes.forget()
        return DirectoryChange(known=tuple(known))

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encoder.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Become what ``snapshot`` returned."""
        self.state = read_state(snapshot, self.server)
        if self._embedded:
            self.state.mailboxes.setdefault(self.server, Mailbox())
        self.claims.restore(self.state.claims)
        self.subscriptions = self.routes.subscriptions = self._subscribed()
        self.routes.forget()
        self.closings.restore(self.state.closed)
        self.mailboxes.restore(self.state.mailboxes, {*self.closings.of(self.server)})


_encoder = msgspec.msgpack.Encoder()
_state_decoder = msgspec.msgpack.Decoder(DirectoryState)


def read_state(snapshot: bytes, server: str) -> DirectoryState:
    """Return the state that a directory saved."""
    try:
        return _state_decoder.decode(snapshot)
    except UNREADABLE as error:
        raise StorageError(f"the directory of {server!r}: a snapshot that cannot be read: {error}") from None
