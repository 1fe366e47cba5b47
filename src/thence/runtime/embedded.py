"""A member inside a program: the API of a client, with nothing in between but the network to the other members.

``async with thence.Member(topology, name="A") as member`` starts the member of that name. The others run in other programs, or
in servers, of the same topology; their names are addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from thence.core.topology import Topology
from thence.errors import ConfigError, MalformedFrame, StorageError, UsageError
from thence.runtime.access import EVERYTHING, Guest
from thence.runtime.acks import WINDOW_LETTERS
from thence.runtime.boxes import Bundle
from thence.runtime.door import Door, refuse, tell
from thence.runtime.endpoint import CLOSE_TIMEOUT_S, Endpoint
from thence.runtime.letters import checked_topic
from thence.runtime.node import Node
from thence.runtime.node_options import NodeOptions
from thence.runtime.office import Handed
from thence.runtime.protocol import ClientHello, ClientWelcome, Denied, Ping, Publish, StatusQuestion, ViewRequest, understand
from thence.runtime.reloading import LOOK_EVERY_S
from thence.runtime.sessions import Session
from thence.runtime.tasks import tell_if_it_fails
from thence.runtime.tls import TlsFiles
from thence.runtime.topology_file import read_topology
from thence.runtime.wire import MAX_CLIENT_FRAME_BYTES, Connection


class Member(Endpoint):
    """See the module's text. Use it as an asynchronous context manager."""

    def __init__(
        self,
        topology: Topology | str | Path,
        *,
        name: str,
        data: str | Path | None = None,
        trace: str | Path | None = None,
        tls: TlsFiles | None = None,
        access: str | Path | None = None,
        insecure: bool = False,
        listen: str | None = None,
    ) -> None:
        """Be the member ``name`` of a topology, or of the file that describes one.

        ``data`` is where it keeps what must survive; without it, everything is in memory, and a member that stops is gone.
        ``access`` is a file that says who may lead changes of the fabric; without it, whoever connects may. ``insecure`` lets it
        listen beyond this machine without TLS. ``listen`` is where it listens if that is not the address in the topology.
        """
        super().__init__(name)
        self.topology = topology if isinstance(topology, Topology) else read_topology(Path(topology))
        self._options = NodeOptions(
            data=None if data is None else Path(data),
            trace=None if trace is None else Path(trace),
            tls=tls,
            access=None if access is None else Path(access),
            insecure=insecure,
            embedded=True,
        )
        self._listen = listen
        self._node: Node | None = None
        self._session: Session | None = None
        self._following: dict[str, asyncio.Future[None]] = {}
        self._looked_for: dict[str, asyncio.Future[None]] = {}
        self._unstable: dict[asyncio.Future[None], None] = {}
        """Who waits until all have what was sent."""
        self._ticker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        address = self._listen or self.topology.addresses.get(self.name)
        if address is None:
            raise ConfigError(f"no address for {self.name!r}: the topology needs [servers.{self.name}] address, or give listen=")
        node = self._node = Node(self.topology, self.name, self._options)
        if node.meetings.fenced:
            await node.close()
            raise StorageError(node.meetings.fenced)
        on_client = partial(_only_questions, node)
        self._door = Door((self.name, node.topology.name), node.security, node.peers.called, on_client)
        try:
            await self._door.open(address, neighbours=bool(node.peers.neighbours))
        except ConfigError:
            await node.close()
            raise
        self._enter()
        self._begin(node)
        node.start()
        return self

    def _begin(self, node: Node) -> None:
        box = node.office.state.boxes[self.name]
        self._number = self._accepted = box.sent
        self._inbox.received = box.acknowledged
        self._acks.begin(box.acknowledged)
        self._session = session = Session(node, self.name, self)
        node.office.here.add(self.name)
        node.on_answered = session.answered
        node.on_letters = self._letters
        node.on_safe = lambda _: session.tell_safe()
        if self._options.data is None:
            node.on_bundle = session.hand
        node.on_notice = self._notice
        node.on_room = session.go_on
        node.on_failed = node.peers.on_failed = self._fail
        node.meetings.on_fenced = self._fenced
        session.acknowledge(box.acknowledged, box.acknowledged + WINDOW_LETTERS)
        self._ticker = self._loop.create_task(self._tick(node))
        tell_if_it_fails(self._ticker, f"the clock of {self.name!r}", self._fail)

    def _fenced(self, reason: str) -> None:
        self._fail(StorageError(reason))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._leave_block(orderly=kind is None, within=CLOSE_TIMEOUT_S)
        finally:
            self._close()
            if self._ticker is not None:
                self._ticker.cancel()
            await self._inbox.end_at_once()
            await self._door.close()
            if self._node is not None:
                await self._node.close()

    async def connected(self) -> None:
        """Wait until all neighbours are connected."""
        self._check_usable()
        await self._running.peers.wait_connected()

    @property
    def _running(self) -> Node:
        if self._node is None:
            raise UsageError("use the member in an 'async with' block")
        return self._node

    async def _tick(self, node: Node) -> None:
        """Write the history even when nothing happens, and try again what had to wait."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            node.history.tick()
            node.evolution.tick()
            node.look_after_backlog()
            node.security.look()
            node.on_room()

    # Endpoint.

    @property
    def _in_use(self) -> Session:
        self._check_usable()
        if self._session is None:
            raise UsageError(f"{self.name!r} has not begun yet")
        return self._session

    def _transmit(self, publish: Publish) -> None:
        self._in_use.submit(publish)

    def _acknowledge(self, upto: int, limit: int, answer: bool) -> None:
        if self._session is not None:
            self._session.acknowledge(upto, limit, partial(self._acks.on_durable, upto) if answer else None)

    async def subscribe(self, topic: str) -> None:
        await self._follow(topic, wanted=True)

    async def unsubscribe(self, topic: str) -> None:
        await self._follow(topic, wanted=False)

    async def _follow(self, topic: str, *, wanted: bool) -> None:
        session = self._in_use
        done = self._following.setdefault(checked_topic(topic), self._loop.create_future())
        session.follow(topic, wanted)
        await asyncio.shield(done)

    async def known(self, name: str) -> None:
        self._check_usable()
        if self._running.office.home(name) is None:
            found = self._looked_for.setdefault(name, self._loop.create_future())
            await asyncio.shield(found)

    async def _until_stable(self) -> None:
        done: asyncio.Future[None] = self._loop.create_future()

        def then(reason: str) -> None:
            self._unstable.pop(done, None)
            if reason and not done.done():
                done.set_exception(UsageError(reason))
            elif not done.done():
                done.set_result(None)

        self._unstable[done] = None
        self._running.patience.ask(self, then)
        await done

    def _ask_safety(self) -> None:
        self._in_use.want_safety()

    def _others_waiting(self) -> Iterable[asyncio.Future[Any]]:
        return (*self._following.values(), *self._looked_for.values(), *self._unstable)

    # Outlet.

    def accepted(self, upto: int) -> None:
        """Our letters are accepted."""
        self._on_accepted(upto)

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Some never will be."""
        self._on_undeliverable(first, count, reason, forbidden=forbidden)

    def deliver(self, position: int, skip: int, bundle: Bundle) -> None:
        """Letters for us."""
        everyone = bundle.to is None and bundle.topic is None
        self._on_deliver(position, skip, bundle.sender, bundle.topic, bundle.letters, everyone)

    def told_safe(self, upto: int, reason: str) -> None:
        """Some of our letters are safe, or nobody finds out."""
        self._on_safe(upto, reason)

    def damaged(self, error: StorageError) -> None:
        """What is kept for us cannot be read."""
        self._fail(error)

    def subscribed(self, topic: str, wanted: bool) -> None:
        """We follow a topic, or no longer."""
        done = self._following.pop(topic, None)
        if done is not None and not done.done():
            done.set_result(None)

    def not_subscribed(self, topic: str, reason: str) -> None:
        """That cannot be done any more."""
        done = self._following.pop(topic, None)
        if done is not None and not done.done():
            done.set_exception(UsageError(reason))

    blocked = False

    def _letters(self, clients: Collection[str]) -> None:
        if self._session is not None:
            self._session.feed()

    def _notice(self, handed: Handed) -> None:
        for name in (*handed.known, handed.joined):
            found = self._looked_for.pop(name, None) if name is not None else None
            if found is not None and not found.done():
                found.set_result(None)
        if handed.follows is not None and handed.follows.client == self.name and self._session is not None:
            self._session.followed(handed.follows)


def _only_questions(node: Node, connection: Connection, hello: ClientHello, guest: Guest | None) -> bool:
    """Let nobody in but who leads a change of the fabric."""
    reason = EVERYTHING.objection_to_change() if guest is None else guest.rights.objection_to_change()
    if hello.name:
        reason = f"this member takes no clients, so {hello.name!r} must connect to a server"
    if reason:
        refuse(connection, reason, claims=f"client {hello.name!r}")
        return False

    def on_frame(asking: Connection, frame: memoryview) -> None:
        asking.keep_back()
        said = understand(frame, "somebody with questions")
        if isinstance(said, ViewRequest):
            node.evolution.request(said, lambda answer: tell(asking, answer))
        elif isinstance(said, StatusQuestion):
            why = f"{node.name!r} is a member inside a program; only servers say how they are"
            tell(asking, Denied("question", "", why, forbidden=False))
        elif not isinstance(said, Ping):
            raise MalformedFrame(f"a {type(said).__name__} to a member that takes no clients")

    connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    connection.on_frame = on_frame
    tell(connection, ClientWelcome(node.name, node.topology.name, 0, 0, 0, proof=b"" if guest is None else guest.proof))
    return True
