"""The connections of a server to its peers: one each, made again for ever.

Peers are those with whom it shares a domain or a link. Of two peers, the one that the topology names first calls the other
(``node.peers.outgoing_calls``, ``node.peers.incoming_calls``).

Rules:

* Two that meet go through three steps (``core.epochs.handshake``), each within a limit, and nothing else goes over a connection
  before. A peer that comes back on another store, or on an old copy of its own, has forgotten what it had acknowledged. It is
  refused, and both say so: nobody could keep order with it. What else that means is in ``node.peers.epochs``.
* Whoever has nothing to say for ``HEARTBEAT_S`` says that. Whoever is silent for ``SILENCE_S`` is taken to be gone.
* A new connection takes the place of an older one with the same peer: the older one may be dead without knowing
  (``node.peers.incoming_calls``).
* A packet that only acks waits until the turn of the loop ends, and is left out if another one for the same domain goes the
  same way meanwhile and says all that it says.
* Packets for a peer that is away are dropped here: its channel keeps them, and sends them when it is back. So are those for
  one that is ``MAX_UNSENT_BYTES`` behind: what is repeated for it would pile up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from thence.core.epochs.reach import Reach
from thence.core.member.codec import limits_of
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet, says_all_of
from thence.errors import MalformedFrame
from thence.net.byte_pool import UNLIMITED
from thence.net.control import hang_up, ignore_frame
from thence.net.framing import MAX_FRAME_BYTES, Connection
from thence.net.protocol import (
    PACKET_KIND,
    Refused,
)
from thence.net.reconnect import Heartbeat
from thence.net.security.credentials import Security
from thence.node.peers.epochs import Finding, PeerEpochs, state_last
from thence.node.peers.incoming_calls import IncomingCalls
from thence.node.peers.outgoing_calls import OutgoingCalls
from thence.node.peers.peer import HEARTBEAT_S, LATE_CALL_S, Peer, Refusals, peers_of
from thence.runtime.counters import SAMPLE_EVERY
from thence.runtime.event_loop import ACKS, ignore, repeat, tell_if_it_fails, turn_of

SILENCE_S: Final = 6.0
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""How much may wait on the connection to a peer that is slow; one packet more may."""

STATE_EVERY_S: Final = 0.01
"""How often a peer is told how far we are, at most: with the packet that goes out, or so much later."""

ENOUGH_SAY_SO: Final = 2
"""How many peers must say that we were declared lost, or which topology to follow; with one peer, one."""

log = logging.getLogger("thence.peers")


class PeerEvents(Protocol):
    """What whoever owns the connections is told."""

    def connected(self, peer: str, store_id: str) -> None:
        """A peer is there, and nothing is wrong with what it said."""

    def arrived(self, peer: str, packet: Packet[Any]) -> None:
        """A packet came in."""

    def other_version(self, peer: str, version: int, fingerprint: str, text: str) -> None:
        """A peer has another version of the topology, and may have told it."""

    def gone(self, peer: str) -> int:
        """Return with which version a server was declared lost; 0: it was not."""

    def expelled(self, peer: str, version: int) -> None:
        """We were declared lost with this version, a peer says."""


class Peers:
    """The connections of one server to its peers."""

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
        self.on_failed: Callable[[Exception], None] = ignore
        """Told if something goes wrong that should not be able to."""
        self.topology = topology
        self.events = events
        self.epochs = epochs
        """In which epoch we are with each peer, and whether we may go on at all."""
        security = security or Security()
        self.calls = OutgoingCalls(self, security)
        self.callers = IncomingCalls(self, security)
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
            for connection in (peer.connection, peer.joining):
                if connection is not None:
                    connection.on_frame = ignore_frame
                    connection.close()
            peer.connection = peer.joining = None

    def fence(self, reason: str) -> None:
        """Hang up for good: we are an old copy."""
        self.cut()
        for peer in self.peers.values():
            peer.note_trouble(reason, logging.INFO)  # The log has said so.

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
        self._tasks = [loop.create_task(self.calls.keep_calling(peer)) for peer in within_reach]
        self._tasks.append(loop.create_task(repeat(HEARTBEAT_S / 2, self._beat)))
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
        there = [(peer.name, peer.connection) for peer in self.peers.values() if peer.connection is not None]
        await state_last(self.epochs, there)
        for peer in self.peers.values():
            for connection in (peer.connection, peer.joining):
                if connection is not None:
                    connection.close()

    def hungriest(self) -> Callable[[str], None] | None:
        """Return how to end the connection for which most is kept, if there is one: what was on its way comes again."""
        held = {peer: peer.connection.holding.bytes for peer in self.peers.values() if peer.connection is not None}
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
        if connection is None or (connection.writer.full and connection.writer.unsent_bytes >= MAX_UNSENT_BYTES):
            return
        if not peer.states_soon:
            self._state_soon(peer)
        earlier = peer.acks.get(packet.domain) if peer.acks and packet.group_acks is None else None
        if earlier is not None and not says_all_of(packet, earlier):
            connection.writer.send(PACKET_KIND, earlier)
        if not packet.frames and packet.group_acks is None:
            if not peer.acks:
                self._soon(peer.ack, ACKS)
            peer.acks[packet.domain] = packet
            return
        if earlier is not None:
            del peer.acks[packet.domain]
        traffic = peer.traffic
        if not traffic.packets % SAMPLE_EVERY:
            traffic.sample(packet)
        traffic.packets += 1
        self.reach.write(peer.written, packet)
        connection.writer.send(PACKET_KIND, packet)

    # Connected.

    def make_way(self, peer: Peer) -> None:
        """End what there is with a peer: it has called anew."""
        for older in (peer.connection, peer.joining):
            if older is not None:
                older.fail(ConnectionResetError("a newer connection took its place"))
        if peer.connection is not None:
            peer.connection, peer.since = None, time.monotonic()
        peer.joining = None

    def refused_by(self, peer: Peer, said: Refused) -> None:
        """A peer that we called refuses us."""
        newer = said.version > self.topology.version
        peer.later, peer.gone, peer.newer = said.later, said.gone, said.fingerprint if newer else ""
        if said.gone and self._all_say_gone():
            self.events.expelled(peer.name, said.gone)
        if newer:
            alike = sum(other.newer == peer.newer for other in self.peers.values())
            text = said.text if self._is_enough(alike) else ""
            self.events.other_version(peer.name, said.version, said.fingerprint, text)

    def _is_enough(self, peers: int) -> bool:
        """Return whether so many peers are believed: one may lie."""
        return peers >= min(ENOUGH_SAY_SO, len(self.peers))

    def _all_say_gone(self) -> bool:
        """Return whether enough peers say that we were declared lost, and none goes on with us."""
        say_so = sum(bool(peer.gone) for peer in self.peers.values())
        return self._is_enough(say_so) and not any(peer.up for peer in self.peers.values())

    def object_to(
        self,
        peer: Peer,
        connection: Connection,
        finding: Finding,
        *,
        proven: bool,
        late: bool = False,
        refused: Refused | None = None,
    ) -> None:
        """Do not go on with a peer. ``proven``: whether it is known who that is; ``late``: whether it may have been.

        ``refused``: what to tell it, if that is more than the finding.
        """
        hang_up(connection, refused or Refused(finding.reason))
        if peer.connection is not None:
            connection.complain(f"refused another connection of server {peer.name!r}: {finding.reason}")
        elif late and finding.behind == "peer":
            asyncio.get_running_loop().call_later(LATE_CALL_S, self._object, peer, finding, proven)
        else:
            self._object(peer, finding, proven)

    def _object(self, peer: Peer, finding: Finding, proven: bool) -> None:
        if peer.connection is not None or self._closing:
            return
        peer.behind = finding.behind
        peer.note_trouble(finding.reason, logging.ERROR)
        if finding.behind == "me" and proven:
            self.epochs.fence(peer.name, finding.reason)
        elif finding.behind != "peer" and not proven:
            peer.call_soon.set()

    def joined(self, peer: Peer, connection: Connection, store_id: str) -> None:
        """Go on with a peer."""
        if peer.connection is not None:  # One that called us while we called it.
            self.make_way(peer)
        connection.max_frame_bytes = MAX_FRAME_BYTES
        connection.holding.enter(self.pool)
        connection.on_frame = partial(self._frame, peer)
        peer.connection = connection
        peer.behind, peer.gone, peer.newer = "nobody", 0, ""
        self.events.connected(peer.name, store_id)
        peer.since, peer.trouble = time.monotonic(), ""
        peer.traffic.count(connection)
        if peer.may_log():
            log.info("connected with %s at %s", peer.name, connection.address)
        self._changed.set()

    def _frame(self, peer: Peer, connection: Connection, frame: memoryview) -> None:
        heard = peer.heard(frame)
        if isinstance(heard, Packet):
            self.events.arrived(peer.name, heard)
        elif heard is not None:
            self.epochs.stated(peer.name, connection, heard)

    def lost(self, peer: Peer, connection: Connection, error: Exception | None) -> None:
        """A connection is gone."""
        self.epochs.lost(peer.name, connection, stopping=self._closing)
        if peer.joining is connection:
            peer.joining = None
            if not self._closing and peer.connection is None:
                peer.note_trouble(f"connection lost before an epoch was agreed on: {error or 'closed by the other side'}")
        if peer.connection is connection:
            peer.connection = None
            peer.since = time.monotonic()
            if not self._closing:
                # Whoever leaves in order hangs up. If it stays away, the next call says so, as a warning.
                level = logging.INFO if error is None else logging.WARNING
                peer.note_trouble(f"connection lost: {error or 'closed by the other side'}", level)

    def _beat(self) -> None:
        now, heartbeat = asyncio.get_running_loop().time(), Heartbeat(HEARTBEAT_S, SILENCE_S)
        for peer in self.peers.values():
            if peer.connection is not None:
                heartbeat.beat(peer.connection, now)
                self.epochs.statements.keep(peer.name)

    def _state_soon(self, peer: Peer) -> None:
        peer.states_soon, loop = True, asyncio.get_running_loop()
        if loop.time() - peer.stated_at >= STATE_EVERY_S:
            self._soon(partial(self._state, peer), ACKS)
        else:
            loop.call_at(peer.stated_at + STATE_EVERY_S, self._state, peer)

    def _state(self, peer: Peer) -> None:
        peer.states_soon, peer.stated_at = False, asyncio.get_running_loop().time()
        if peer.connection is not None and not self._closing:
            self.epochs.restate(peer.name, peer.connection)
