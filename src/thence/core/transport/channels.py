"""A transport with a channel to each peer: whoever receives a frame acks it to its sender, who repeats it until then."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from thence.core.epochs.progress import Progress
from thence.core.ordering import ArrivalOrder
from thence.core.topology.ack_options import AT_ONCE, AckOptions
from thence.core.transport.base import Frames, Incoming, Packets, Queues, Transport, refuse_snapshot
from thence.core.transport.channel import UNHURRIED, Channel, ChannelState, Pace
from thence.core.transport.spill_queue import Numbered
from thence.core.wire.messages import Envelope, Packet
from thence.errors import MalformedFrame


class PeerChannels(Transport):
    """A channel to each peer: the receiver of a frame acks it to the sender, and the sender repeats it."""

    def __init__(
        self,
        name: str,
        me: str,
        peers: Iterable[str],
        arrival: ArrivalOrder,
        resend_after_ns: int,
        acks: AckOptions = AT_ONCE,
        pace: Pace = UNHURRIED,
    ) -> None:
        names = tuple(peers)
        self.channels = {peer: Channel(arrival, resend_after_ns, acks, pace) for peer in names}
        super().__init__(name, me, names, Queues(self.channels))
        self._spills = pace.spill is not None
        self.to_visit: dict[str, None] = {}

    def check(self, peer: str, packet: Packet[Any]) -> None:
        if packet.group_acks is not None:
            raise MalformedFrame(f"a packet from {peer!r} for {self.name!r} at {self.me!r}: here nobody acks to everybody")
        self.channels[peer].check(peer, packet)

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        channel = self.channels[peer]
        return [number in channel.state.received or number in channel.inbound.early for number in packet.numbers]

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        channel = self.channels[peer]
        state = channel.state
        if packet.acked > state.last_number or packet.acked_beyond or packet.group_acks is not None:
            self.check(peer, packet)
        elif len(packet.numbers) != len(packet.frames):
            self.check(peer, packet)  # Which refuses it.
        if state.elsewhere is not None:
            self.attention[peer] = None  # Perhaps the peer has what was spilled.
        before, bytes_before = channel.here, channel.queued_bytes
        frames = channel.arrived(packet, now)
        ack_at = channel.acks.at
        if before:
            self.queued += channel.here - before
            self.queued_bytes += channel.queued_bytes - bytes_before
        if state.queue or state.elsewhere is not None or (ack_at is not None and ack_at <= now):
            self.to_visit[peer] = None
        elif ack_at is not None and (self.wake_at is None or ack_at < self.wake_at):
            self.wake_at = ack_at
        return [Incoming(peer, number, frame) for number, frame in frames] if frames else []

    def take(self, incoming: Incoming) -> None:
        received = self.channels[incoming.peer].state.received
        if incoming.number == received.upto + 1 and not received.beyond:
            received.upto = incoming.number
        else:
            received.add(incoming.number)

    def skip(self, peer: str, number: int) -> None:
        self.channels[peer].state.received.add(number)

    def push(self, frames: Frames) -> None:
        channels, to_visit = self.channels, self.to_visit
        for peer, frame in frames:
            weight = frame.weight
            channels[peer].push(frame, weight)
            to_visit[peer] = None
            self.queued_bytes += weight
        self.queued += len(frames)
        if self._spills:
            for peer, _ in frames:
                if channels[peer].crowded:
                    self.attention[peer] = None

    def visit_all(self) -> None:
        self.to_visit = dict.fromkeys(self.channels)
        self.wake_at = None

    def connected(self, peer: str) -> None:
        self.channels[peer].connected()
        self.to_visit[peer] = None

    def collect(self, now: int) -> Packets:
        packets: Packets = []
        if not self.to_visit:
            return packets
        for peer in self.to_visit:
            channel = self.channels[peer]
            packet = channel.collect(self.name, now)
            if packet is not None:
                packets.append((peer, packet))
                while channel.more and (packet := channel.collect(self.name, now)) is not None:
                    packets.append((peer, packet))
            wake_at, ack_at = channel.resend_at, channel.acks.at
            if wake_at is None or (ack_at is not None and ack_at < wake_at):
                wake_at = ack_at
            if channel.state.elsewhere is not None and channel.wanted:
                self.attention[peer] = None
            if wake_at is not None and (self.wake_at is None or wake_at < self.wake_at):
                self.wake_at = wake_at
        self.to_visit = {}
        return packets

    def acked(self, peer: str, number: int) -> bool:
        return not self.channels[peer].state.lacks(number)

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        states = [channel.state for peer, channel in self.channels.items() if peer not in without]
        return sum(state.last_number for state in states), sum(state.received.count for state in states)

    def unacked_messages(self) -> Iterator[Envelope]:
        for state in [channel.state for channel in self.channels.values()]:
            behind = () if state.elsewhere is None else state.elsewhere.behind.values()
            yield from [frame.envelope for frame in (*state.queue.values(), *behind) if frame.envelope is not None]

    def progress(self, peer: str) -> Progress | None:
        return self.channels[peer].progress

    def windows(self) -> dict[str, int]:
        return {peer: channel.window.bytes for peer, channel in self.channels.items()}

    def save(self) -> dict[str, ChannelState[Any]]:
        return {peer: channel.state for peer, channel in self.channels.items()}

    def load(self, saved: Any) -> None:
        if not isinstance(saved, dict) or set(saved) != set(self.channels):
            raise refuse_snapshot(self, saved)
        for peer, state in saved.items():
            self.channels[peer].load(state)
        self._count()

    def _count(self) -> None:
        self.queued_bytes = sum(channel.queued_bytes for channel in self.channels.values())
        self.queued = sum(channel.here for channel in self.channels.values())

    def spilled(self, peer: str, upto: int) -> None:
        """Note that the next frames for a peer, up to a number, are on disk."""
        self.channels[peer].spilled(upto)
        self._count()

    def fetched(self, peer: str, frames: Numbered) -> None:
        """Put back the next frames for a peer that were on disk."""
        self.channels[peer].fetched(frames)
        self._count()
        self.to_visit[peer] = None
