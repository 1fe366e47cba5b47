"""The connections of a server to its peers: one each, made again for ever.

Peers are those with whom it shares a domain or a link. Of two peers, the one that the topology names first calls the
other; if that one does not for ``LONELY_S``, the other one does.

Rules:

* The first frames say which fabric, by name and fingerprint, and who calls whom. A mismatch is refused with both sides named.
* A connection stands for one version of the topology. Whoever has another one is refused and told; one that is prepared for that
  version has been waiting for this (docs/how-to/reconfiguration.md).
* A server that was declared lost is refused for good, and told (docs/how-to/removal.md).
* Two that meet go through three steps (``core.epochs.handshake``), each within a limit, and nothing else goes over a connection
  before. A peer that comes back on another store, or on an old copy of its own, has forgotten what it had acknowledged. It is
  refused, and both say so: nobody could keep order with it. What else that means is in ``node.peers.epochs``.
* Whoever has nothing to say for ``HEARTBEAT_S`` says that. Whoever is silent for ``SILENCE_S`` is taken to be gone.
* A new connection takes the place of an older one with the same peer: the older one may be dead without knowing. It does so
  when everything that it says has been checked, and before it is answered (``core.epochs.handshake`` says why). Without TLS
  nobody can prove who calls, so then a caller is told to come later while the older connection is alive, which means that it was
  heard of within ``ALIVE_S``.
* A packet that only acks waits until the turn of the loop ends, and is left out if another one for the same domain goes the
  same way meanwhile and says all that it says.
* Packets for a peer that is away are dropped here: its channel keeps them, and sends them when it is back. So are those for
  one that is ``MAX_UNSENT_BYTES`` behind: what is repeated for it would pile up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from thence.core.epochs.epoch import Epoch
from thence.core.epochs.reach import Reach
from thence.core.member.codec import limits_of
from thence.core.topology.addresses import parse_address
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet, says_all_of
from thence.errors import MalformedFrame, StrangerFrame, ThenceError
from thence.net.byte_pool import UNLIMITED
from thence.net.control import hang_up, ignore_frame, refuse, tell
from thence.net.framing import MAX_FRAME_BYTES, Connection
from thence.net.protocol import (
    OLDEST_PROTOCOL,
    PACKET_KIND,
    PROTOCOL,
    Ping,
    Refused,
    ServerAgreed,
    ServerHello,
    ServerWelcome,
    agreed,
    understand,
)
from thence.net.security.credentials import Security
from thence.node.peers.epochs import Finding, PeerEpochs
from thence.node.peers.peer import LATE_CALL_S, Peer, peers_of
from thence.node.peers.refusals import Refusals
from thence.runtime.counters import SAMPLE_EVERY
from thence.runtime.tasks import tell_if_it_fails
from thence.runtime.turn import CONFIRMATIONS, turn_of

HEARTBEAT_S: Final = 1.0
SILENCE_S: Final = 6.0
ALIVE_S: Final = 3.0
"""How long an older connection that says nothing keeps its place against a caller that proves nothing. It says something each
``HEARTBEAT_S``, so this is long enough for one whose server is busy."""
FIRST_BACKOFF_S: Final = 0.05
MAX_BACKOFF_S: Final = 5.0
LATER_BACKOFF_S: Final = 0.4
"""The longest wait before a peer is called again that has said: later."""
LONELY_S: Final = 10.0
"""How long we wait for a peer whose turn it is to call before we call it."""
CONNECT_TIMEOUT_S: Final = 5.0
"""How long a call may take until the peer is joined."""
AGREE_TIMEOUT_S: Final = 5.0
"""How long whoever called us may take to agree on the epoch that we offer, our own disk included."""
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""How much may wait on the connection to a peer that is slow; one packet more may."""

log = logging.getLogger("thence.peers")


class PeerEvents(Protocol):
    """What whoever owns the connections is told."""

    def connected(self, peer: str, incarnation: str) -> None:
        """A peer is there, and nothing is wrong with what it said."""

    def arrived(self, peer: str, packet: Packet[Any]) -> None:
        """A packet came in."""

    def told(self, peer: str, version: int, fingerprint: str) -> None:
        """A peer has another version of the topology."""

    def gone(self, peer: str) -> int:
        """Return with which version a server was declared lost; 0: it was not."""

    def expelled(self, peer: str, version: int) -> None:
        """We were declared lost with this version, a peer says."""


class Peers:
    """See the module's text."""

    def __init__(
        self,
        topology: Topology,
        me: str,
        events: PeerEvents,
        epochs: PeerEpochs,
        security: Security | None = None,
    ) -> None:
        """``security`` says how peers prove who they are; without, they are taken at their word."""
        self.me = me
        self.on_failed: Callable[[Exception], None] = _ignore
        """Told if something goes wrong that should not be able to."""
        self.topology = topology
        self.events = events
        self.epochs = epochs
        """In which epoch we are with each peer, and whether we may go on at all."""
        self._security = security or Security()
        self.reach = Reach()
        self.peers = self._find_peers(topology)
        self.refusals = Refusals()
        """Frames of peers that were not taken."""
        self.pool = UNLIMITED
        """What all peers may have on its way."""
        self._cut = False
        """Whether we are between two topologies, and talk to nobody."""
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._soon = turn_of(asyncio.get_running_loop()).soon
        self._closing = False

    def _find_peers(self, topology: Topology) -> dict[str, Peer]:
        order = {name: at for at, name in enumerate(topology.processes)}
        where, written_to, limits = topology.addresses.get, self.reach.written_to, limits_of(topology)
        return {
            name: Peer(name, where(name), called=order[self.me] < order[name], written=written_to(name), limits=limits)
            for name in peers_of(topology, self.me)
        }

    @property
    def between(self) -> bool:
        """Whether we are between two topologies, or have left."""
        return self._cut

    def cut(self) -> None:
        """Hang up, before anything of another version can come or go on a connection of this one."""
        self._cut = True
        for task in self._tasks:
            task.cancel()
        self.epochs.break_off()  # Also what is being stored for a connection that is not joined.
        for peer in self.peers.values():
            for connection in (peer.connection, peer.meeting):
                if connection is not None:
                    connection.on_frame = ignore_frame
                    connection.close()
            peer.connection = peer.meeting = None

    def fence(self, reason: str) -> None:
        """Hang up for good: we are an old copy."""
        self.cut()
        for peer in self.peers.values():
            self._note_trouble(peer, reason, logging.INFO)  # The log has said so.

    def enter(self, topology: Topology | None) -> None:
        """Call the peers that this topology gives us; None: we have left, and there are none."""
        self.reach = Reach()
        self.peers = {} if topology is None else self._find_peers(topology)
        self.topology = topology or self.topology
        self._cut = topology is None or bool(self.epochs.fenced)
        if not self._closing and not self._cut:
            self.start()
        self._changed.set()

    def start(self) -> None:
        """Begin to call, unless there is nobody to talk to any more."""
        if self._cut:
            return
        loop = asyncio.get_running_loop()
        within_reach = [peer for peer in self.peers.values() if peer.address]
        self._tasks = [loop.create_task(self._call(peer) if peer.called else self._call_lonely(peer)) for peer in within_reach]
        self._tasks.append(loop.create_task(self._beat()))
        for task in self._tasks:
            tell_if_it_fails(task, f"the connections of {self.me!r}", self.on_failed)

    async def wait_connected(self) -> None:
        """Wait until all peers are connected."""
        while not all(peer.up for peer in self.peers.values()):
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Hang up."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers.values():
            for connection in (peer.connection, peer.meeting):
                if connection is not None:
                    connection.close()

    def hungriest(self) -> Callable[[str], None] | None:
        """Return how to end the connection for which most is kept, if there is one: what was on its way comes again."""
        held = {peer: peer.connection.held for peer in self.peers.values() if peer.connection is not None}
        most = max(held, key=held.__getitem__, default=None)
        if most is None or not held[most] or (connection := most.connection) is None:
            return None
        return lambda why: connection.fail(MalformedFrame(f"{held[most]} bytes are on their way to and from it; {why}"))

    def send(self, name: str, packet: Packet[Any]) -> None:
        """Send a packet, if the peer is there."""
        if self._cut:
            return
        peer = self.peers[name]
        connection = peer.connection
        if connection is None or (connection.full and connection.unsent_bytes >= MAX_UNSENT_BYTES):
            return
        earlier = peer.confirmations.get(packet.domain) if peer.confirmations and packet.receipts is None else None
        if earlier is not None and not says_all_of(packet, earlier):
            connection.send(PACKET_KIND, earlier)
        if not packet.frames and packet.receipts is None:
            if not peer.confirmations:
                self._soon(peer.ack, CONFIRMATIONS)
            peer.confirmations[packet.domain] = packet
            return
        if earlier is not None:
            del peer.confirmations[packet.domain]
        if not peer.packets % SAMPLE_EVERY:
            peer.sample(packet)
        peer.packets += 1
        self.reach.write(peer.written, packet)
        connection.send(PACKET_KIND, packet)

    # Calling.

    async def _call(self, peer: Peer) -> None:
        """Call again and again, ever more patiently, as long as we live."""
        backoff = FIRST_BACKOFF_S
        while True:
            began = time.monotonic()
            try:
                while peer.busy:  # noqa: ASYNC110  It has called us, which is rare.
                    await asyncio.sleep(HEARTBEAT_S)
                lost = await self._call_once(peer)
                await lost.wait()
                if time.monotonic() - began > HEARTBEAT_S:
                    backoff = FIRST_BACKOFF_S  # It did stand. One that ends at once was refused by one of us.
            except (OSError, ValueError, ThenceError) as error:  # ValueError: a name that the system cannot even look up.
                self._note_failed_call(peer, error)
            # Two that lost each other at the same moment should not meet at the same moment for ever.
            await asyncio.sleep(backoff * random.uniform(0.5, 1.0))  # noqa: S311  It is no secret.
            backoff = min(2 * backoff, LATER_BACKOFF_S if peer.later else MAX_BACKOFF_S)

    async def _call_lonely(self, peer: Peer) -> None:
        """It is for the peer to call. If it does not, call it to hear why: it may have gone on without us."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LONELY_S * random.uniform(0.5, 1.0)):  # noqa: S311  It is no secret.
                    await peer.call_soon.wait()
            asked = peer.call_soon.is_set()
            peer.call_soon.clear()
            if peer.busy:
                continue
            if not asked and time.monotonic() - peer.since < LONELY_S:
                continue
            try:
                lost = await self._call_once(peer)
                await lost.wait()
            except (OSError, ValueError, ThenceError) as error:  # ValueError: a name that the system cannot even look up.
                self._note_failed_call(peer, error)

    async def _call_once(self, peer: Peer) -> asyncio.Event:
        host, port = parse_address(peer.address or "")
        tls = self._security.outgoing
        call = _Call(self, peer, self.epochs, tls=tls is not None)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                Connection, host, port, ssl=tls, server_hostname=peer.name if tls else None
            )
            connection.on_lost, connection.on_frame = call.on_lost, call.on_frame
            try:
                await self.epochs.durable()
                if not peer.busy:
                    tell(connection, self._hello(peer.name, connection))
                    connection.flush()
                    await call.answered
            except BaseException:
                self.epochs.lost(peer.name, connection)
                connection.close()
                raise
            if not call.answered.done():  # It has called us meanwhile.
                connection.close()
        return call.lost

    def refused_by(self, peer: Peer, said: Refused) -> None:
        """A peer that we called refuses us."""
        peer.later = said.later
        if said.gone:
            self.events.expelled(peer.name, said.gone)
        if said.version > self.topology.version:
            self.events.told(peer.name, said.version, said.fingerprint)

    def _hello(self, called: str, connection: Connection) -> ServerHello:
        topology, store = self.topology, self.epochs.met[self.me]
        fabric = (topology.name, topology.fingerprint)
        claim, progress, restored = self.epochs.call(called, connection)
        first = ServerHello(PROTOCOL, *fabric, self.me, called, store, topology.version, progress, OLDEST_PROTOCOL)
        return msgspec.structs.replace(first, claim=claim, restored=restored)

    # Being called.

    def called(self, connection: Connection, hello: ServerHello) -> bool:
        """Somebody at the listener says that it is a peer; return whether we go on with it."""
        claims, topology = f"server {hello.server!r}", self.topology
        version, fingerprint = topology.version, topology.fingerprint
        reason = self._security.doubt_server(connection, hello.server)  # Before anything else that it says counts.
        reason = reason or self.epochs.fenced
        gone = self.events.gone(hello.server) if not reason and hello.fabric == topology.name else 0
        if gone:
            reason = (
                f"{hello.server} was declared lost, and {topology.name!r} has gone on without it since version {gone}. "
                "What it has that others lack is lost; start it as a new server, under a new name"
            )
            refuse(connection, reason, claims=claims, version=version, fingerprint=fingerprint, gone=gone)
            return False
        if not reason and hello.fabric == topology.name and (self._cut or hello.version != topology.version):
            refuse(connection, self._behind(hello), claims=claims, later=True, version=version, fingerprint=fingerprint)
            if hello.version > topology.version and not self._cut:
                self.events.told(hello.server, hello.version, hello.fingerprint)
            return False
        reason = reason or self._objection(hello)
        if reason:
            refuse(connection, reason, claims=claims)
            return False
        peer = self.peers[hello.server]
        full = self.epochs.full
        reason = f"{self.me} can store nothing now: {full}" if full else self._objection_to_place(peer)
        if reason:
            older = self.epochs.check(hello) if peer.connection is not None else ""
            refuse(connection, f"{older}. {reason}" if older else reason, claims=claims, later=not older, behind=bool(older))
            return False
        peer.protocol = agreed(hello)
        finding = self.epochs.called(hello, connection, partial(self._answer, peer, connection))
        if finding.reason and finding.behind == "nobody":
            refuse(connection, finding.reason, claims=claims, later=True)
            return False
        if finding.reason:
            self._answer(peer, connection)  # It finds out by itself.
            self.object_to(peer, connection, finding, proven=self._security.outgoing is not None, late=True)
            return False
        self._make_way(peer)
        connection.on_lost = lambda lost, error: self.lost(peer, lost, error)
        if hello.claim is None:
            self.joined(peer, connection, hello.incarnation)
            return True
        peer.meeting = connection
        connection.on_frame = partial(self._agreed, peer, hello.incarnation)
        asyncio.get_running_loop().call_later(AGREE_TIMEOUT_S, self._too_slow, peer, connection)
        return True

    def _answer(self, peer: Peer, connection: Connection) -> None:
        claim, progress, restored = self.epochs.introduction(peer.name)
        tell(connection, ServerWelcome(self.me, self.epochs.met[self.me], progress, peer.protocol, claim, restored))
        connection.flush()

    def _make_way(self, peer: Peer) -> None:
        """End what there is with a peer: it has called anew."""
        for older in (peer.connection, peer.meeting):
            if older is not None:
                older.fail(ConnectionResetError("a newer connection took its place"))
        if peer.connection is not None:
            peer.connection, peer.since = None, time.monotonic()
        peer.meeting = None

    def _agreed(self, peer: Peer, incarnation: str, connection: Connection, frame: memoryview) -> None:
        said = understand(frame, peer.name)
        if isinstance(said, Refused):
            raise MalformedFrame(f"{peer.name} refused us: {said.reason}")
        if not isinstance(said, ServerAgreed) or not self.epochs.agreed(peer.name, connection, said.epoch):
            raise MalformedFrame(f"a {type(said).__name__} from {peer.name}, which has not agreed on the epoch that was offered")
        peer.meeting = None
        self.joined(peer, connection, incarnation)

    def _too_slow(self, peer: Peer, connection: Connection) -> None:
        if peer.meeting is connection:
            connection.fail(TimeoutError(f"{peer.name} has not agreed on an epoch within {AGREE_TIMEOUT_S:g} s"))

    def _behind(self, hello: ServerHello) -> str:
        topology = self.topology
        if self._cut:
            return f"{self.me} is between two versions of the topology, or has left"
        return (
            f"{hello.server} has version {hello.version} of the topology of {topology.name!r}, {hello.fingerprint}; "
            f"{self.me} has version {topology.version}, {topology.fingerprint}. thence topology apply leads from one to the next"
        )

    def _objection(self, hello: ServerHello) -> str:
        topology = self.topology
        if hello.fabric != topology.name:
            return f"{hello.server} is of fabric {hello.fabric!r}; {self.me} is of fabric {topology.name!r}"
        if hello.fingerprint != topology.fingerprint:
            return (
                f"{hello.server} has a topology of {topology.name!r} with fingerprint {hello.fingerprint}; "
                f"{self.me} has one with {topology.fingerprint}"
            )
        if hello.called != self.me:
            return f"{hello.server} calls {hello.called!r}; this is {self.me}"
        if hello.server not in self.peers:
            return f"{hello.server!r} shares no domain and no link with {self.me}"
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
            f"{self.me} is connected with {peer.name} at {older.address}, which said something {silent_s:.1f} s ago. "
            f"Without TLS nobody can prove to be {peer.name}: it keeps its place until it is silent for {ALIVE_S:g} s (ALIVE_S)"
        )

    # Connected.

    def object_to(self, peer: Peer, connection: Connection, finding: Finding, *, proven: bool, late: bool = False) -> None:
        """Do not go on with a peer. ``proven``: whether it is known who that is; ``late``: whether it may have been."""
        hang_up(connection, Refused(finding.reason))
        if peer.connection is not None:
            connection.complain(f"refused another connection of server {peer.name!r}: {finding.reason}")
        elif late and finding.behind == "peer":
            asyncio.get_running_loop().call_later(LATE_CALL_S, self._object, peer, finding, proven)
        else:
            self._object(peer, finding, proven)

    def _object(self, peer: Peer, finding: Finding, proven: bool) -> None:
        if peer.connection is not None or self._closing:
            return
        peer.forgot = True
        self._note_trouble(peer, finding.reason, logging.ERROR)
        if finding.behind == "me" and proven:
            self.epochs.fence(peer.name, finding.reason)
        elif finding.behind == "me":
            peer.call_soon.set()

    def joined(self, peer: Peer, connection: Connection, incarnation: str) -> None:
        """Go on with a peer."""
        if peer.connection is not None:  # One that called us while we called it.
            self._make_way(peer)
        connection.max_frame_bytes = MAX_FRAME_BYTES
        connection.enter(self.pool)
        connection.on_frame = partial(self._frame, peer)
        peer.connection = connection
        peer.forgot = False
        self.events.connected(peer.name, incarnation)
        peer.since, peer.trouble = time.monotonic(), ""
        peer.count(connection)
        if peer.may_log():
            log.info("connected with %s at %s", peer.name, connection.address)
        self._changed.set()

    def _frame(self, peer: Peer, _: Connection, frame: memoryview) -> None:
        packet = peer.heard(frame)
        if packet is not None:
            self.events.arrived(peer.name, packet)

    def lost(self, peer: Peer, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""
        self.epochs.lost(peer.name, connection, stopping=self._closing)
        if peer.meeting is connection:
            peer.meeting = None
            if not self._closing and peer.connection is None:
                self._note_trouble(peer, f"connection lost before an epoch was agreed on: {error or 'closed by the other side'}")
        if peer.connection is connection:
            peer.connection = None
            peer.since = time.monotonic()
            if not self._closing:
                # Whoever leaves in order hangs up. If it stays away, the next call says so, as a warning.
                level = logging.INFO if error is None else logging.WARNING
                self._note_trouble(peer, f"connection lost: {error or 'closed by the other side'}", level)

    def _note_failed_call(self, peer: Peer, error: Exception) -> None:
        if peer.busy:
            return  # It called us meanwhile, and that counts.
        if isinstance(error, ConnectionRefusedError):
            # Where all are started at once, somebody is first: that is no reason to warn.
            level = logging.INFO if peer.connections == 0 else logging.WARNING
            self._note_trouble(peer, f"nobody listens at {peer.address}", level)
        else:
            self._note_trouble(peer, str(error) or type(error).__name__)

    def _note_trouble(self, peer: Peer, trouble: str, level: int = logging.WARNING) -> None:
        """Say what is wrong, once."""
        if trouble != peer.trouble:
            peer.trouble = trouble
            if peer.may_log():
                log.log(level, "%s: %s", peer.name, trouble)

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(HEARTBEAT_S / 2)
            now = loop.time()
            for peer in self.peers.values():
                connection = peer.connection
                if connection is None:
                    continue
                connection.rest()
                if now - connection.heard_at > SILENCE_S:
                    connection.fail(TimeoutError(f"silent for {SILENCE_S:g} s"))
                elif now - connection.wrote_at > HEARTBEAT_S:
                    tell(connection, Ping())


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
            if said.behind and self._epochs.counts(peer.name, connection):
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

    def _joined(self, connection: Connection, said: ServerWelcome, epoch: Epoch | None) -> None:
        if epoch is not None:
            tell(connection, ServerAgreed(epoch))
        self._peer.protocol = said.protocol
        if not self.answered.done():
            self.answered.set_result(None)
        self._peers.joined(self._peer, connection, said.incarnation)

    def _fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


def _ignore(_: Exception) -> None:
    """Do nothing."""
