"""The calls of a server to its peers: whom it calls, how often, and the three steps of a call until the peer is joined.

Rules:

* We call a peer that is ours to call again and again, with the waits of ``net.reconnect``.
* If a peer that should call us does not for ``LONELY_S``, we call it to hear why: it may have gone on without us.
* A call, with all its steps, takes ``CONNECT_TIMEOUT_S`` at most.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from thence.core.topology.addresses import parse_address
from thence.errors import MalformedFrame, StrangerFrame, ThenceError
from thence.net.control import tell
from thence.net.framing import Connection
from thence.net.protocol import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Refused,
    ServerAgreed,
    ServerHello,
    ServerWelcome,
    understand,
)
from thence.net.reconnect import Backoff
from thence.net.security.credentials import Security
from thence.node.peers.epochs import PeerEpochs
from thence.node.peers.peer import HEARTBEAT_S, Peer
from thence.runtime.deadline import within

if TYPE_CHECKING:
    from thence.node.peers.connections import Peers

FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 5.0
LATER_BACKOFF_S: Final = 0.4
"""The longest wait before a peer is called again that has said: later."""
LONELY_S: Final = 10.0
"""How long we wait for a peer whose turn it is to call before we call it."""
CONNECT_TIMEOUT_S: Final = 5.0
"""How long a call may take until the peer is joined."""


class OutgoingCalls:
    """Calls peers."""

    def __init__(self, peers: Peers, security: Security) -> None:
        """``peers`` hears which connections are made; ``security`` has our certificate."""
        self._peers = peers
        self._security = security

    async def keep_calling(self, peer: Peer) -> None:
        """Call a peer, or wait for its calls, as long as we live."""
        await (self._call(peer) if peer.called else self._call_lonely(peer))

    async def _call(self, peer: Peer) -> None:
        backoff = Backoff(FIRST_BACKOFF_S, MAX_BACKOFF_S)
        while True:
            began = time.monotonic()
            while peer.busy:  # noqa: ASYNC110  It has called us, which is rare.
                await asyncio.sleep(HEARTBEAT_S)
            if await self._stayed(peer) and time.monotonic() - began > HEARTBEAT_S:
                backoff.reset()  # It did stand. One that ends at once was refused by one of us.
            await backoff.wait(LATER_BACKOFF_S if peer.later else None)

    async def _call_lonely(self, peer: Peer) -> None:
        """It is for the peer to call. If it does not, call it."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONELY_S * random.uniform(0.5, 1.0)):  # noqa: S311  It is no secret.
                    await peer.call_soon.wait()
            asked = peer.call_soon.is_set()
            peer.call_soon.clear()
            if not peer.busy and (asked or time.monotonic() - peer.since >= LONELY_S):
                await self._stayed(peer)

    async def _stayed(self, peer: Peer) -> bool:
        """Call a peer, and wait until the connection is lost; return whether there was one."""
        try:
            lost = await self._call_once(peer)
            await lost.wait()
        except (OSError, ValueError, ThenceError) as error:  # ValueError: a name that the system cannot even look up.
            _note_failed_call(peer, error)
            return False
        return True

    async def _call_once(self, peer: Peer) -> asyncio.Event:
        host, port = parse_address(peer.address or "")
        tls = self._security.outgoing
        call = _Call(self._peers, peer, self._peers.epochs, tls=tls is not None)
        async with within(CONNECT_TIMEOUT_S, f"no answer from {peer.name} at {peer.address}"):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, host, port, ssl=tls, server_hostname=peer.name if tls else None
            )
            connection.on_lost, connection.on_frame = call.on_lost, call.on_frame
            try:
                await self._peers.epochs.durable()
                if not peer.busy:
                    tell(connection, self._hello(peer.name, connection))
                    connection.writer.flush()
                    await call.answered
            except BaseException:
                self._peers.epochs.lost(peer.name, connection)
                connection.close()
                raise
            if not call.answered.done():  # It has called us meanwhile.
                connection.close()
        return call.lost

    def _hello(self, called: str, connection: Connection) -> ServerHello:
        peers, me = self._peers, self._peers.me
        topology, store = peers.topology, peers.epochs.met[me]
        fabric = (topology.name, topology.fingerprint)
        claim, progress, restored, shown, _ = peers.epochs.introduction(called, connection)
        first = ServerHello(PROTOCOL, *fabric, me, called, store, topology.version, progress, OLDEST_PROTOCOL)
        return msgspec.structs.replace(first, claim=claim, restored=restored, shown=shown)


class _Call:
    """One call of a peer, until it is joined."""

    def __init__(self, peers: Peers, peer: Peer, epochs: PeerEpochs, *, tls: bool) -> None:
        loop = asyncio.get_running_loop()
        self.answered: asyncio.Future[None] = loop.create_future()
        """Done when the peer is joined, or with the reason why it is not."""
        self.lost = asyncio.Event()
        self._peers = peers
        self._epochs = epochs
        self._tls = tls
        self._peer = peer
        self._heard = False

    def on_lost(self, connection: Connection, error: Exception | None) -> None:
        peer = self._peer
        if not self.answered.done():
            # asyncio ends a connection whose certificate it does not accept without telling the other side why.
            guess = "; its log says why, if it does not accept our certificate" if self._tls else ""
            self._fail(ConnectionResetError(f"{peer.name} at {peer.address} hung up{guess} ({error or 'closed'})"))
        self.lost.set()
        self._peers.lost(peer, connection, error)

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        peer = self._peer
        if self.answered.done():
            raise MalformedFrame(f"{peer.name} goes on before we do")
        said = understand(frame, peer.name)
        if isinstance(said, Refused):
            if said.behind and self._epochs.counts(peer.name, connection) and self._epochs.believes(peer.name, said.shown):
                self._epochs.fence(peer.name, said.reason)
            self._fail(StrangerFrame(f"{peer.name} at {peer.address} refused us: {said.reason}"))
            self._peers.refused_by(peer, said)
        elif isinstance(said, ServerWelcome) and said.server == peer.name and not self._heard:
            self._heard = True
            self._welcomed(connection, said)
        else:
            self._fail(StrangerFrame(f"{peer.address} is not {peer.name}: {said}"))

    def _welcomed(self, connection: Connection, said: ServerWelcome) -> None:
        finding = self._epochs.welcomed(said, connection, partial(self._joined, connection, said))
        if finding is None:
            self._fail(ConnectionResetError(f"{self._peer.name} called us meanwhile"))
        elif finding.reason:
            self._peers.object_to(self._peer, connection, finding, proven=True)
            self._fail(StrangerFrame(finding.reason))

    def _joined(self, connection: Connection, said: ServerWelcome, agreed: ServerAgreed | None) -> None:
        if agreed is not None:
            tell(connection, agreed)
        self._peer.protocol = said.protocol
        if not self.answered.done():
            self.answered.set_result(None)
        self._peers.joined(self._peer, connection, said.store_id)

    def _fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


def _note_failed_call(peer: Peer, error: Exception) -> None:
    if peer.busy:
        return  # It called us meanwhile, and that counts.
    if isinstance(error, ConnectionRefusedError):
        # Where all are started at once, somebody is first: that is no reason to warn.
        level = logging.INFO if peer.traffic.connections == 0 else logging.WARNING
        peer.note_trouble(f"nobody listens at {peer.address}", level)
    else:
        peer.note_trouble(str(error) or type(error).__name__)
