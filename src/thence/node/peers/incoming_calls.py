"""The calls of peers to a server: what is checked, in which order, before a peer is joined.

Rules:

* The first frames say which fabric, by name and fingerprint, and who calls whom. A mismatch is refused with both sides named.
* A connection stands for one version of the topology. Whoever has another one is refused and told; one that is prepared for that
  version has been waiting for this, and one that had no part in the change goes on to it (docs/how-to/reconfiguration.md).
* A server that was declared lost is refused for good, and told (docs/how-to/removal.md).
* A caller takes the place of an older connection when everything that it says has been checked, and before it is answered
  (``core.epochs.handshake`` says why). Without TLS nobody can prove who calls, so then a caller is told to come later while the
  older connection is alive, which means that it was heard of within ``ALIVE_S``.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from thence.core.topology.toml import write
from thence.errors import MalformedFrame
from thence.net.control import refuse, tell
from thence.net.framing import Connection
from thence.net.protocol import MAX_NEWS_BYTES, Ping, Refused, ServerAgreed, ServerHello, ServerWelcome, agreed, understand
from thence.net.security.credentials import Security
from thence.node.peers.epochs import Finding
from thence.node.peers.peer import Peer

if TYPE_CHECKING:
    from thence.node.peers.connections import Peers

ALIVE_S: Final = 3.0
"""How long an older connection that says nothing keeps its place against a caller that proves nothing. It says something each
``HEARTBEAT_S``, so this is long enough for one whose server is busy."""
AGREE_TIMEOUT_S: Final = 5.0
"""How long whoever called us may take to agree on the epoch that we offer, our own disk included."""


class IncomingCalls:
    """Answers peers that call."""

    def __init__(self, peers: Peers, security: Security) -> None:
        """``peers`` hears which connections are made; ``security`` says how callers prove who they are."""
        self._peers = peers
        self._security = security

    def called(self, connection: Connection, hello: ServerHello) -> bool:
        """Somebody at the listener says that it is a peer; return whether we go on with it."""
        claims, topology = f"server {hello.server!r}", self._peers.topology
        ours = topology.version, topology.fingerprint
        reason = self._security.doubt_server(connection, hello.server)  # Before anything else that it says counts.
        reason = reason or self._peers.epochs.fenced
        gone = self._peers.events.gone(hello.server) if not reason and hello.fabric == topology.name else 0
        if gone:
            reason = (
                f"{hello.server} was declared lost, and {topology.name!r} has gone on without it since version {gone}. "
                "What it has that others lack is lost; start it as a new server, under a new name"
            )
            refuse(connection, Refused(reason, False, *ours, gone), claims=claims)
            return False
        if not reason and hello.fabric == topology.name and (self._peers.between or hello.version != topology.version):
            if not self._refused_as_old(connection, hello):
                self._refuse_version(connection, hello, claims)
            return False
        reason = reason or self._objection(hello)
        if reason:
            refuse(connection, reason, claims=claims)
            return False
        peer = self._peers.peers[hello.server]
        full = self._peers.epochs.full
        reason = f"{self._peers.me} can store nothing now: {full}" if full else self._objection_to_place(peer)
        if reason:
            later = Refused(reason, later=True)
            refuse(connection, later if peer.connection is None else self._peers.epochs.refuse(hello, reason), claims=claims)
            return False
        peer.protocol = agreed(hello)
        finding = self._peers.epochs.called(hello, connection, partial(self._answer, peer, connection))
        if finding.reason and finding.behind == "nobody":
            refuse(connection, Refused(finding.reason, later=True), claims=claims)
            return False
        if finding.reason:
            self._answer(peer, connection)  # It finds out by itself.
            self._peers.object_to(peer, connection, finding, proven=self._security.outgoing is not None, late=True)
            return False
        self._peers.make_way(peer)
        connection.on_lost = lambda lost, error: self._peers.lost(peer, lost, error)
        if hello.claim is None:
            self._peers.joined(peer, connection, hello.store_id)
            return True
        peer.joining = connection
        connection.on_frame = partial(self._agreed, peer, hello)
        asyncio.get_running_loop().call_later(AGREE_TIMEOUT_S, self._too_slow, peer, connection)
        return True

    def _refuse_version(self, connection: Connection, hello: ServerHello, claims: str) -> None:
        topology = self._peers.topology
        ours = topology.version, topology.fingerprint
        refuse(connection, Refused(self._behind(hello), True, *ours, text=self._news_for(hello)), claims=claims)
        if hello.version > topology.version and not self._peers.between:
            self._peers.events.other_version(hello.server, hello.version, hello.fingerprint, "")
            peer = self._peers.peers.get(hello.server)
            if peer is not None and self._peers.topology is topology:
                peer.call_soon.set()  # It answers with its topology: we may be late, and go on to that.

    def _refused_as_old(self, connection: Connection, hello: ServerHello) -> bool:
        """Refuse a caller with an earlier version of the topology that runs on an old copy: no change leads it on."""
        peers, peer = self._peers, self._peers.peers.get(hello.server)
        if peer is None or peers.between or hello.version >= peers.topology.version:
            return False
        refused = peers.epochs.refuse(hello, "")
        if refused.behind:
            finding, proven = Finding("peer", refused.reason), self._security.outgoing is not None
            peers.object_to(peer, connection, finding, proven=proven, late=True, refused=refused)
        return refused.behind

    def _answer(self, peer: Peer, connection: Connection) -> None:
        me, epochs = self._peers.me, self._peers.epochs
        claim, progress, restored, shown, stated = epochs.introduction(peer.name)
        tell(connection, ServerWelcome(me, epochs.met[me], progress, peer.protocol, claim, restored, shown, stated))
        connection.writer.flush()

    def _agreed(self, peer: Peer, hello: ServerHello, connection: Connection, frame: memoryview) -> None:
        said = understand(frame, peer.name)
        if isinstance(said, Refused):
            raise MalformedFrame(f"{peer.name} refused us: {said.reason}")
        if not isinstance(said, ServerAgreed) or not self._peers.epochs.agreed(hello, connection, said):
            raise MalformedFrame(f"a {type(said).__name__} from {peer.name}, which has not agreed on the epoch that was offered")
        peer.joining = None
        self._peers.joined(peer, connection, hello.store_id)

    def _too_slow(self, peer: Peer, connection: Connection) -> None:
        if peer.joining is connection:
            connection.fail(TimeoutError(f"{peer.name} has not agreed on an epoch within {AGREE_TIMEOUT_S:g} s"))

    def _behind(self, hello: ServerHello) -> str:
        topology = self._peers.topology
        if self._peers.between:
            return f"{self._peers.me} is between two versions of the topology, or has left"
        return (
            f"{hello.server} has version {hello.version} of the topology of {topology.name!r}, {hello.fingerprint}; "
            f"{self._peers.me} has version {topology.version}, {topology.fingerprint}. "
            "thence topology apply leads from one to the next"
        )

    def _news_for(self, hello: ServerHello) -> str:
        """Return the text of our topology, for one of ours that may have missed a change."""
        topology = self._peers.topology
        if self._peers.between or hello.version >= topology.version or hello.server not in self._peers.peers:
            return ""
        text = write(topology)
        return text if len(text.encode()) <= MAX_NEWS_BYTES else ""

    def _objection(self, hello: ServerHello) -> str:
        topology = self._peers.topology
        if hello.fabric != topology.name:
            return f"{hello.server} is of fabric {hello.fabric!r}; {self._peers.me} is of fabric {topology.name!r}"
        if hello.fingerprint != topology.fingerprint:
            return (
                f"{hello.server} has a topology of {topology.name!r} with fingerprint {hello.fingerprint}; "
                f"{self._peers.me} has one with {topology.fingerprint}"
            )
        if hello.called != self._peers.me:
            return f"{hello.server} calls {hello.called!r}; this is {self._peers.me}"
        if hello.server not in self._peers.peers:
            return f"{hello.server!r} shares no domain and no link with {self._peers.me}"
        return ""

    def _objection_to_place(self, peer: Peer) -> str:
        """Say why a caller may not take the place of the connection that there is."""
        older = peer.connection
        if older is None or self._security.outgoing is not None:
            return ""
        silent_s = asyncio.get_running_loop().time() - older.heard_at
        if silent_s > ALIVE_S:
            return ""
        tell(older, Ping())  # If there is nobody at its other end any more, the system there says so at once.
        return (
            f"{self._peers.me} is connected with {peer.name} at {older.address}, which said something {silent_s:.1f} s ago. "
            f"Without TLS nobody can prove to be {peer.name}: it keeps its place until it is silent for {ALIVE_S:g} s (ALIVE_S)"
        )
