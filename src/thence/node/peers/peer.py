"""One peer of a server, connected or not: what is known of it, and what went to it and came from it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final

from thence.core.epochs.epoch import Behind
from thence.core.member.codec import PacketLimits, decode_packet
from thence.core.topology.model import Topology
from thence.core.wire.messages import Packet, control_bytes
from thence.errors import FrameRefused, MalformedFrame, OverflowingFrame
from thence.net.framing import Connection
from thence.net.protocol import MAX_SHORT_BYTES, PACKET, PACKET_KIND, Ping, Refused, Stated, understand
from thence.runtime.counters import TrafficCounts
from thence.runtime.offenders import BURST_LINES, LINE_EVERY_S, Allowance, Offender, cut, escaped

HEARTBEAT_S: Final = 1.0
"""After how long a peer that gets nothing from us gets a ping."""
LATE_CALL_S: Final = 2.0
"""How long a peer whose call shows an older epoch has to come with a newer one before it is said to run on an old copy: the
call may be one of before a crash that comes late."""

log = logging.getLogger("thence.peers")
node_log = logging.getLogger("thence.node")


class PeerTraffic:
    """What went to one peer and came from it, over all connections with it."""

    def __init__(self) -> None:
        """Start with no connection."""
        self.connections = 0
        self.packets = 0
        """How many packets with messages went to it. Of some of them, the samples, we know the bytes of stamps and bodies."""
        self.sampled_stamp_bytes = 0
        self.sampled_body_bytes = 0
        self._counted: Connection | None = None
        self._earlier = TrafficCounts()
        """What went over the connections before that one."""

    @property
    def total(self) -> TrafficCounts:
        """What went over all connections."""
        return self._earlier if self._counted is None else self._earlier.plus(self._counted.traffic)

    def count(self, connection: Connection) -> None:
        """Count what goes over this connection, too."""
        self._earlier, self._counted = self.total, connection
        self.connections += 1

    def sample(self, packet: Packet[Any]) -> None:
        """Look at how much of a packet is control information."""
        for frame in packet.frames:
            self.sampled_stamp_bytes += control_bytes(frame.stamp, frame.envelope)
            if frame.envelope is not None:
                self.sampled_body_bytes += len(frame.envelope.body)


class Peer:
    """One peer, connected or not."""

    def __init__(self, name: str, address: str | None, *, called: bool, written: dict[str, int], limits: PacketLimits) -> None:
        """``called``: whether it is we who call; ``written``: where to note what goes to it; ``limits`` are on what comes."""
        self.name = name
        self._limits = limits
        self.address = address
        self.called = called
        self.connection: Connection | None = None
        self.joining: Connection | None = None
        """The connection on which we offer it an epoch, and it has not agreed."""
        self.call_soon = asyncio.Event()
        """Set if we should call it, though it is for it to call."""
        self.written = written
        """The highest number that was written to a connection with it, by place."""
        self.since = time.monotonic()
        """Since when it is connected, or is not. The time of day may be set back meanwhile, and this counts what goes by."""
        self.trouble = "not connected yet"
        self._lines = Allowance(BURST_LINES, LINE_EVERY_S, self.since)
        self.later = False
        """Whether it has said that it may go on with us later."""
        self.gone = 0
        """With which version we were declared lost, as it says; 0: it does not."""
        self.newer = ""
        """The fingerprint of the newer topology that it says it has; empty: it does not."""
        self.protocol = 0
        """Which protocol is spoken with it, or was when it was last connected."""
        self.behind: Behind = "nobody"
        """Which of us runs on an old copy of its store, or beside another one, if we do not go on with it for that reason."""
        self.states_soon = False
        """Whether it is about to be told how far we are."""
        self.stated_at = -inf
        """When it was told last how far we are."""
        self.traffic = PeerTraffic()
        self.acks: dict[str, Packet[Any]] = {}
        """The last packet for each domain that only acks, and that has not gone out."""

    def may_log(self) -> bool:
        """Say whether the log has room for another line about it: one that comes and goes all the time must not fill it."""
        return self._lines.take(time.monotonic())

    def note_trouble(self, trouble: str, level: int = logging.WARNING) -> None:
        """Say what is wrong, once."""
        trouble = cut(trouble)
        if trouble != self.trouble:
            self.trouble = trouble
            if self.may_log():
                log.log(level, "%s: %s", self.name, trouble)

    def heard(self, frame: memoryview) -> Packet[Any] | Stated | None:
        """Return the packet that came, or what the peer states; None: it has only said that it is there."""
        if frame[0] == PACKET:
            return decode_packet(frame[1:], self.name, self._limits)
        if len(frame) > MAX_SHORT_BYTES:
            raise MalformedFrame(f"{len(frame)} bytes from {self.name} that are no packet; MAX_SHORT_BYTES is {MAX_SHORT_BYTES}")
        said = understand(frame, self.name)
        if isinstance(said, Refused):
            raise MalformedFrame(f"{self.name} refused us: {said.reason}")
        if isinstance(said, Stated):
            return said
        if not isinstance(said, Ping):
            raise MalformedFrame(f"a {type(said).__name__} from {self.name}, which is a server")
        return None

    def ack(self) -> None:
        """Send what no other packet has acknowledged meanwhile."""
        acks, self.acks = self.acks, {}
        if self.connection is not None:
            for packet in acks.values():
                self.connection.writer.send(PACKET_KIND, packet)

    @property
    def busy(self) -> bool:
        """Whether there is a connection with it, joined or about to be."""
        return self.connection is not None or self.joining is not None

    @property
    def up(self) -> bool:
        """Whether packets can be sent."""
        return self.connection is not None


class Refusals:
    """Counts the frames of peers that were not taken, by what was wrong with them, and logs each reason once.

    Who sends such frames without end sends a great many that are alike. A peer has the limits on lines of any other offender.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` tells seconds."""
        self.counts: dict[str, int] = {}
        """How many there were, by the names of their errors."""
        self._clock = clock
        self._peers: dict[str, Offender] = {}

    def note(self, peer: str, refusal: FrameRefused) -> None:
        """Count a frame of a peer that was not taken; say why, once."""
        kind, now, text = type(refusal).__name__, self._clock(), str(refusal)
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        place = self._peers.get(peer)
        if place is None:
            place = self._peers[peer] = Offender(now)
        if place.may_say(f"{kind}: {text}", now):
            level = logging.INFO if isinstance(refusal, OverflowingFrame) else logging.WARNING
            node_log.log(level, "%s: %s (%d so far): %s", peer, kind, count, escaped(text))


def peers_of(topology: Topology, me: str) -> list[str]:
    """Return everybody with whom ``me`` shares a domain or a link, in the order of the topology."""
    found = {name for home in topology.homes[me] for name in topology.domains[home].members}
    found.update(name for link in topology.links.values() if me in link.members for name in link.members)
    return [name for name in topology.processes if name in found and name != me]
