"""The post office of a server: which clients there are and where, which topics they follow, and what waits for whom.

It is a state machine on top of the member, without I/O. Clients of all servers are addressed by name; the office turns names and
topics into servers on the way out, and servers into boxes of clients on the way in.

Rules:

* Its state follows from what the member delivered, in that order, and from what clients acknowledged. So after a crash the same
  deliveries make it again.
* Who is where, and who follows what, is told to all servers by a *notice*: a message like any other, to everyone, in causal
  order. So whoever learns of a client or a subscription from a message can use it: the notice came first.
* Two servers may give the same name at the same time: both claim it. Of those that claim a name the server whose name comes
  first has it, everywhere; the client of the other is told, and its server takes its claim back. So all come to agree, in
  whatever order they hear of it.
* An agent (``runtime.engine``) is a client that lives in the server: the notice of it says its class and what it begins with.
* A client sends letters in bundles (``Publish``): consecutive letters for the same recipients are one message of the member.
  Nobody but clients looks into them.
* The name of a server is an address too, of the program that runs in it (``runtime.embedded``).
* A box that has more letters than its room in memory is full, and then no more deliveries are taken; or, where letters may be
  spilled (``runtime.spill``), what is too much goes to files, and the box is full when these may not hold more. A box is full,
  too, if all boxes together have too much in memory when it gets a letter; before that, those that may spill do so earlier.
* A server has so many clients, and they follow so many topics, since all servers know of all of them. That is looked at before a
  notice goes out, with those that are under way, and never when one comes in: all servers must do the same with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from thence.core.messages import UNREADABLE, Envelope
from thence.errors import MalformedFrame, StorageError, UsageError
from thence.runtime import boxes
from thence.runtime.boxes import Box, Bundle, ReadBundle, Room, SpillFile, weight_of
from thence.runtime.rejections import Rejected
from thence.runtime.spill import Spill
from thence.runtime.subscriptions import Subscriptions

MAX_TOPIC_CHARACTERS: Final = 200

MAX_CLIENTS: Final = 1_000_000
"""How many clients and agents one server has: each takes about 510 bytes there, up to 1,160 when programs came back under its
name, and 240 at every other server."""

MAX_KNOWN: Final = 10_000
"""How many clients or subscriptions one message lists that tells a new server of them."""


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """There is a client of this name at ``server``."""

    client: str
    server: str
    temporary: bool
    kind: str = ""
    """Of an agent: its class, by name."""
    state: bytes = b""
    """Of an agent: what it begins with."""
    entry: str = ""
    """By which entry of the access file it came in, or whoever made the agent; nothing if there is no such file."""
    mailbox: int = 0
    """The id of the mailbox that it gets, drawn for it."""


class Left(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The client at ``server`` is gone, with all that waits for it and all that it follows."""

    client: str
    server: str


class Follows(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The client follows a topic from here on, or no longer."""

    client: str
    topic: str
    wanted: bool


class Known(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """A server's clients and what they follow, for servers that have just come in (docs/evolution.md)."""

    server: str
    clients: dict[str, bool]
    """By name: whether it is temporary."""
    follows: list[tuple[str, str]]
    """Clients and topics."""


Body = Bundle | Joined | Left | Follows | Known


class OfficeState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    boxes: dict[str, Box] = msgspec.field(default_factory=dict)
    claims: dict[str, list[str]] = msgspec.field(default_factory=dict)
    """The servers that claim each client, in the order of their names: the first one has it. Mostly there is only that."""
    followers: dict[str, dict[str, None]] = msgspec.field(default_factory=dict)
    """The clients that follow each topic."""


class Handed(msgspec.Struct, frozen=True):
    """What a delivery changed for clients of this server."""

    boxes: tuple[str, ...] = ()
    """Clients with new letters."""
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
    lost: Box | None = None
    """The mailbox of the client that has lost its name to another server: what is in it goes back."""


class Office:
    """See the module's text."""

    def __init__(
        self,
        server: str,
        servers: Collection[str],
        *,
        embedded: bool = False,
        spill: Spill | None = None,
        spill_beyond: Room | None = None,
    ) -> None:
        """Open the office of ``server``; ``servers`` are all of the fabric. ``embedded``: a program runs in it, as a client.

        ``spill`` has the files of a store; ``spill_beyond`` says how much of a box stays in memory, if the rest may go there.
        """
        self.server = server
        self.spill = spill
        self.spills = spill is not None and spill_beyond is not None
        """Whether boxes may spill. If not, those that did before only become empty."""
        in_memory = Room(boxes.MAX_BOX_LETTERS, boxes.MAX_BOX_BYTES)
        self.room = in_memory if spill is None or spill_beyond is None else spill_beyond
        """How much of a box may be in memory."""
        self._embedded = embedded
        self._most_subscriptions = 2**62
        self.state = OfficeState({server: Box()} if embedded else {})
        self._servers = frozenset(servers)
        self._leaving: frozenset[str] = frozenset()
        self._routes: dict[str | None, tuple[str, ...]] = {}
        """Servers by topic, until somebody follows or leaves."""
        self.here: set[str] = set()
        """The clients that take letters now; others are away, and little of what waits for them needs to be in memory."""
        self.in_memory = 0
        """How many bytes all boxes have in memory."""
        self._most_bytes, self._most_clients = 2**62, 2**62
        """Limits that a budget makes smaller (``limit``)."""
        self._full: dict[str, None] = {}
        self.full = ""
        """The client whose box is full, if there is one: then no more deliveries are taken."""
        self._joining: dict[str, None] = {}
        """Names of clients of ours that the notice is under way of."""
        self.subscriptions = self._subscribed()
        self._written: tuple[bytes, Body | None] = (b"", None)
        """What was written last: where it is delivered here too, it need not be read."""

    # Limits.

    def check(self, notice: Body) -> None:
        """Refuse as ``UsageError`` a notice of ours by which there would be too many clients or subscriptions."""
        if isinstance(notice, Joined) and (objection := self.objection(notice.client)):
            raise UsageError(objection)
        if isinstance(notice, Follows) and notice.wanted:
            self.subscriptions.check(notice.client, notice.topic)

    def limit(self, boxes_bytes: int, clients: int, subscriptions: int) -> None:
        """Make limits smaller, where these are."""
        self._most_bytes, self._most_clients = boxes_bytes, clients
        self._most_subscriptions = self.subscriptions.most = subscriptions

    @property
    def most_bytes(self) -> int:
        """How many bytes all boxes may have in memory."""
        return min(boxes.MAX_BOXES_BYTES, self._most_bytes)

    def objection(self, client: str) -> str:
        """Say why no client of this name may come in, if so; one that is known always may."""
        count = len(self.state.boxes) + len(self._joining)
        if client in self.state.boxes or client in self._joining or count < (most := min(MAX_CLIENTS, self._most_clients)):
            return ""
        return f"{self.server!r} has {count} clients; MAX_CLIENTS is {most}: connect to another server"

    @contextmanager
    def announcing(self, notice: Body) -> Iterator[None]:
        """Count a notice of ours as under way from here on, unless it is refused."""
        self.check(notice)
        self._announced(notice)  # Before: what is only in memory comes back at once.
        try:
            yield
        except UsageError:
            self._not_announced(notice)
            raise

    def _announced(self, notice: Body) -> None:
        if isinstance(notice, Joined):
            self._joining[notice.client] = None
        elif isinstance(notice, Follows) and notice.wanted:
            self.subscriptions.asks(notice.client, notice.topic)

    def _not_announced(self, notice: Body) -> None:
        if isinstance(notice, Joined):
            self._joining.pop(notice.client, None)
        elif isinstance(notice, Follows):
            self.subscriptions.asks_no_longer(notice.client, notice.topic)

    def _subscribed(self) -> Subscriptions:
        made = Subscriptions(self.server, lambda client: client in self.state.boxes, self.state.followers)
        made.most = self._most_subscriptions
        return made

    def _forget_routes_of(self, client: str) -> None:
        """A client has come, gone, or is elsewhere: what it follows goes another way."""
        for topic in self.subscriptions.topics_of(client):
            self._routes.pop(topic, None)

    # Letters out.

    def write(self, body: Body) -> bytes:
        """Return the body of a message of ours."""
        written = write_body(body)
        self._written = (written, body)
        return written

    def home(self, client: str) -> str | None:
        """Return the server of a client."""
        if client in self._servers:
            return client
        claims = self.state.claims.get(client)
        return claims[0] if claims else None

    def route(self, bundle: Bundle) -> tuple[str, ...] | None:
        """Return the servers that a bundle must go to (None: all; empty: nobody wants it)."""
        if bundle.topic is not None:
            servers = self._routes.get(bundle.topic)
            if servers is None:
                followers = self.subscriptions.followers_of(bundle.topic)
                if not followers:
                    return ()  # Not remembered: there is no end of topics that nobody follows.
                homes = {self.home(client) for client in followers}
                homes -= {None, *self._leaving}
                servers = self._routes[bundle.topic] = tuple(sorted(home for home in homes if home is not None))
            return servers
        if bundle.to is None:
            return None
        if len(bundle.to) == 1:
            home = self._home_of(bundle.to[0])
            return bundle.to if home == bundle.to[0] else (home,)
        return tuple(sorted({self._home_of(client) for client in bundle.to}))

    def _home_of(self, client: str) -> str:
        if client == self.server and not self._embedded:
            raise UsageError(f"{client!r} is a server in which no program runs: nobody would ever read that")
        home = client if client in self._servers else self.home(client)
        if home is None:
            raise UsageError(f"nobody is called {client!r}, as far as {self.server!r} knows; a client exists once it connected")
        return home

    def sent(self, client: str, upto: int) -> int:
        """Note that letters of a client were submitted; return up to which number they were before."""
        box = self.state.boxes.get(client)
        if box is None:
            return 0  # It has left meanwhile.
        before, box.sent = box.sent, max(box.sent, upto)
        return before

    def unsend(self, client: str, upto: int) -> None:
        """Take back what ``sent`` noted: they were not submitted after all."""
        if client in self.state.boxes:
            self.state.boxes[client].sent = upto

    def reject(self, rejected: Rejected) -> None:
        """Note that letters of a client were rejected."""
        box = self.state.boxes.get(rejected.client)
        if box is not None:  # It may have left meanwhile.
            box.reject(rejected)

    # Letters in.

    def deliver(self, envelope: Envelope) -> Handed:
        """Take what the member delivered."""
        return self.take(self.read(envelope), envelope)

    def read(self, envelope: Envelope) -> Body:
        """Return what the member delivered."""
        if envelope.body is self._written[0] and self._written[1] is not None:
            return self._written[1]
        return read_body(envelope.body, envelope.origin)

    def take(self, body: Body, envelope: Envelope) -> Handed:
        """Do what the body of a message says."""
        if isinstance(body, Bundle):
            return Handed(boxes=self._put(body))
        if isinstance(body, Joined):
            return self._joined(body, envelope.number)
        if isinstance(body, Left):
            return self._left(body)
        if isinstance(body, Known):
            return self._known(body)
        return self._follows(body)

    def clients(self) -> list[str]:
        """Return who has a box here that somebody empties."""
        return [name for name in self.state.boxes if name != self.server or self._embedded]

    def _put(self, bundle: Bundle) -> tuple[str, ...]:
        all_boxes, names = self.state.boxes, bundle.to
        if names is not None:
            if len(names) != 1 or names[0] not in all_boxes:
                # A server in which no program runs has no box of its own: nobody would ever empty it.
                names = tuple([name for name in names if name in all_boxes])
        elif bundle.topic is not None:
            names = tuple([name for name in self.subscriptions.followers_of(bundle.topic) if name in all_boxes])
        else:
            names = tuple(self.clients())
        self.in_memory += weight_of(bundle) * len(names)
        room = self._room()
        for name in names:
            if all_boxes[name].put(bundle, room):
                self._crowded(name, all_boxes[name])
        return names

    def _room(self) -> Room:
        """Return how much of a box may be in memory now."""
        if self.in_memory < self.most_bytes // 2:
            return self.room
        if self.spills:
            return Room(boxes.BLOCK_BUNDLES, boxes.BLOCK_BYTES)
        return self.room if self.in_memory < self.most_bytes else Room(0, 0)

    def _crowded(self, name: str, box: Box) -> None:
        """A box has no room in memory."""
        if self.spill is not None and (self.spills or box.spilling):
            box.spilling = True
            self._relieve(name, box, self.spill)
        if self._is_full(box):
            self._full[name] = None
            self.full = self.full or name

    def _relieve(self, name: str, box: Box, spill: Spill) -> None:
        before = box.in_memory
        spill.relieve(name, box, self._room(), here=name in self.here or not self.spills)
        self.in_memory -= before - box.in_memory

    def _is_full(self, box: Box) -> bool:
        if self.in_memory >= self.most_bytes and box.in_memory:
            return True
        if self.spills and self.spill is not None:
            return box.spilling and bool(self.spill.full)
        return box.full(self.room)

    def _joined(self, notice: Joined, number: int) -> Handed:
        claims = self.state.claims.setdefault(notice.client, [])
        if notice.server not in claims:
            claims.append(notice.server)
            claims.sort()
            self._forget_routes_of(notice.client)
        handed = Handed(joined=notice.client)
        if notice.server == self.server:
            self._joining.pop(notice.client, None)
        if claims[0] == self.server == notice.server:
            if notice.client not in self.state.boxes:
                self.state.boxes[notice.client] = Box(notice.temporary, since=number, id=notice.mailbox)
                self.subscriptions.is_ours_now(notice.client)  # What it follows may be of the server that had the name before.
                handed = msgspec.structs.replace(handed, made=notice if notice.kind else None)
            if notice.entry and not notice.kind:
                self.state.boxes[notice.client].entry = notice.entry
        elif claims[0] != self.server and self.server in claims:
            lost, handed = self.state.boxes.get(notice.client), self._drop(notice.client, keep_files=True)
            handed = msgspec.structs.replace(handed, joined=notice.client, yielded=notice.client, lost=lost)
        return handed

    def _left(self, notice: Left) -> Handed:
        claims = self.state.claims.get(notice.client, [])
        if notice.server not in claims:
            return Handed()
        had_it = claims[0] == notice.server
        claims.remove(notice.server)
        if not claims:
            del self.state.claims[notice.client]
        self._forget_routes_of(notice.client)
        if had_it:
            self.subscriptions.unfollow_all(notice.client)
        if notice.server != self.server:
            return Handed()
        return msgspec.structs.replace(self._drop(notice.client), gone=notice.client)

    def yielded(self) -> list[str]:
        """Return the clients that this server claims and has no box for: their claims must be taken back."""
        return [
            client for client, claims in self.state.claims.items() if self.server in claims and client not in self.state.boxes
        ]

    def remove(self, client: str) -> Handed:
        """Drop a client's mailbox. Its name is claimed until ``Left`` comes."""
        handed = self._drop(client)
        self.look_for_room()
        return handed

    def _drop(self, client: str, *, keep_files: bool = False) -> Handed:
        box = self.state.boxes.pop(client, None)
        if box is not None:
            self.subscriptions.was_ours(client)
            self.in_memory -= box.in_memory
            if self.spill is not None and not keep_files:
                self.spill.done_with(box.spilled)
        self.here.discard(client)
        self._full.pop(client, None)
        self.full = next(iter(self._full), "")
        return Handed(left=client if box is not None else None)

    def _follows(self, notice: Follows) -> Handed:
        if notice.wanted:
            self.subscriptions.follow(notice.client, notice.topic)
        else:
            self.subscriptions.unfollow(notice.client, notice.topic)
        self._routes.pop(notice.topic, None)
        return Handed(follows=notice)

    # Changes of the fabric.

    def hold(self, leaving: Collection[str]) -> None:
        """These servers are about to leave: what is published on a topic does not go there any more."""
        self._leaving = frozenset(leaving)
        self._routes = {}

    def change(self, servers: Collection[str]) -> None:
        """The fabric has these servers now. Clients of others are gone."""
        self.hold(())
        self._servers = frozenset(servers)
        for client, claims in list(self.state.claims.items()):
            claims[:] = [server for server in claims if server in self._servers or server == self.server]
            if not claims:
                del self.state.claims[client]
                self.subscriptions.unfollow_all(client)

    def directory(self) -> Iterator[bytes]:
        """Give the bodies of messages that tell others of our clients."""
        clients = {name: box.temporary for name, box in self.state.boxes.items() if name != self.server}
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

    def _known(self, notice: Known) -> Handed:
        if notice.server == self.server:
            return Handed()
        for client in notice.clients:
            claims = self.state.claims.setdefault(client, [])
            if notice.server not in claims:
                claims.append(notice.server)
                claims.sort()
        for client, topic in notice.follows:
            self.subscriptions.follow(client, topic)
        self._routes = {}
        return Handed(known=tuple(notice.clients))

    # Clients.

    def acknowledge(self, client: str, upto: int) -> None:
        """A client has done with its letters up to a position."""
        box = self.state.boxes.get(client)
        if box is not None:
            before = box.in_memory
            gone = box.acknowledge(upto)
            self.in_memory -= before - box.in_memory
            if gone and self.spill is not None:
                self.spill.done_with(gone)
            if self._full:
                self.look_for_room()

    def look_for_room(self) -> None:
        """See which of the boxes that were full still are, and write what could not be written before."""
        all_boxes = self.state.boxes
        if self.spill is not None and self.spill.trouble:
            for name in self._full:
                self._relieve(name, all_boxes[name], self.spill)
        self._full = {name: None for name in self._full if self._is_full(all_boxes[name])}
        self.full = next(iter(self._full), "")

    @property
    def why_full(self) -> str:
        """Say whose box is full, and why, if one is."""
        if not self.full:
            return ""
        if self.in_memory >= self.most_bytes:
            largest = max(self.state.boxes, key=lambda name: self.state.boxes[name].in_memory)
            limit = f"MAX_BOXES_BYTES is {self.most_bytes}"
            return f"{self.in_memory} bytes wait in memory in all boxes, most of them for {largest!r}; {limit}"
        because = f": {self.spill.full}" if self.spills and self.spill is not None else ""
        return f"the box of {self.full!r} is full{because}"

    def spilled(self) -> list[SpillFile]:
        """Return the files that boxes need."""
        return [file for box in self.state.boxes.values() for file in box.spilled]

    def is_full(self, client: str) -> bool:
        """Whether the box of a client is full."""
        return client in self._full

    # Snapshots.

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encoder.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Become what ``snapshot`` returned."""
        self.state = read_state(snapshot, self.server)
        if self._embedded:
            self.state.boxes.setdefault(self.server, Box())
        self._routes = {}
        self.subscriptions = self._subscribed()
        for box in self.state.boxes.values():
            box.weigh()
        self.in_memory = sum([box.in_memory for box in self.state.boxes.values()])
        self._full = {name: None for name, box in self.state.boxes.items() if self._is_full(box)}
        self.full = next(iter(self._full), "")


_encoder = msgspec.msgpack.Encoder()
_body_decoder = msgspec.msgpack.Decoder(ReadBundle | Joined | Left | Follows | Known)
_decode_body: Any = _body_decoder.decode
_state_decoder = msgspec.msgpack.Decoder(OfficeState)


write_body: Callable[[Body], bytes] = _encoder.encode
"""Returns the body of a message between offices."""


def read_body(written: bytes, origin: str) -> Body:
    """Return what an office wrote."""
    try:
        return _decode_body(written)  # type: ignore[no-any-return]
    except UNREADABLE as error:
        raise MalformedFrame(f"a message of {origin!r} that no office wrote: {error}") from None


def read_state(snapshot: bytes, server: str) -> OfficeState:
    """Return the state that an office saved."""
    try:
        return _state_decoder.decode(snapshot)
    except UNREADABLE as error:
        raise StorageError(f"the office of {server!r}: a snapshot that cannot be read: {error}") from None
