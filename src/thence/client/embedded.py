"""A member inside a program: the API of a client, with nothing in between but the network to the other members.

``async with thence.Member(topology, name="A") as member`` starts the member of that name. The others run in other programs, or
in servers, of the same topology; their names are addresses.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from thence.client.endpoint import Endpoint
from thence.client.node_link import NodeLink
from thence.client.parts.departure import CLOSE_TIMEOUT_S
from thence.core.topology.model import Topology
from thence.errors import ConfigError, MalformedFrame, StorageError
from thence.net.control import refuse, tell
from thence.net.framing import MAX_CLIENT_FRAME_BYTES, Connection
from thence.net.protocol import (
    ClientHello,
    ClientWelcome,
    Denied,
    Ping,
    StatusQuestion,
    ViewRequest,
    understand,
)
from thence.net.security.access import EVERYTHING, Guest
from thence.net.security.tls import TlsFiles
from thence.node.listener import Listener
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.runtime.files import read_topology
from thence.words import article


class Member(Endpoint):
    """A member of a topology inside this program, used as an asynchronous context manager. It has the API of a client."""

    _link: NodeLink

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
        self._link = NodeLink(self._parts)

    async def __aenter__(self) -> Self:
        address = self._listen or self.topology.addresses.get(self.name)
        if address is None:
            raise ConfigError(f"no address for {self.name!r}: the topology needs [servers.{self.name}] address, or give listen=")
        node = Node(self.topology, self.name, self._options)
        if node.peers.epochs.fenced:
            await node.close()
            raise StorageError(node.peers.epochs.fenced)
        on_client = partial(_only_questions, node)
        self._listener = Listener((self.name, node.topology.name), node.security, node.peers.callers.called, on_client)
        try:
            await self._listener.open(address, peers=bool(node.peers.peers))
        except ConfigError:
            await node.close()
            raise
        self._parts.state.enter()
        self._link.begin(node, in_memory=self._options.data is None)
        node.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            await self._parts.departure.leave(orderly=kind is None, within=CLOSE_TIMEOUT_S)
        finally:
            self._parts.state.close()
            await self._inbox.end_at_once()
            await self._listener.close()
            if self._link.node is not None:
                await self._link.node.close()

    async def connected(self) -> None:
        """Wait until all peers are connected."""
        await self._link.running[0].peers.wait_connected()


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
            node.reconfiguration.request(said, lambda answer: tell(asking, answer))
        elif isinstance(said, StatusQuestion):
            why = f"{node.name!r} is a member inside a program; only servers say how they are"
            tell(asking, Denied("question", "", why, forbidden=False))
        elif not isinstance(said, Ping):
            raise MalformedFrame(f"{article(type(said).__name__)} to a member that takes no clients")

    connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
    connection.on_frame = on_frame
    tell(connection, ClientWelcome(node.name, node.topology.name, 0, 0, 0, proof=b"" if guest is None else guest.proof))
    return True
