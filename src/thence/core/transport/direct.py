"""A transport over a network that neither loses nor repeats anything, as the explorer has it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from itertools import repeat
from typing import Any

from thence.core.epochs.progress import Progress
from thence.core.transport.base import Frames, Incoming, Packets, Queues, Transport, refuse_snapshot
from thence.core.transport.channel import ChannelState
from thence.core.wire.messages import Frame, Packet
from thence.core.wire.number_set import NumberSet


class DirectPeer:
    """What was exchanged with one peer over an exact network."""

    def __init__(self) -> None:
        """Nothing has been exchanged yet."""
        self.sent = self.came = 0
        """How many frames."""
        self.numbered = 0
        """The number of the last frame that was sent."""
        self.received = NumberSet()
        """Which frames of the peer we acknowledge."""
        self.acked = NumberSet()
        """Which frames of ours it has acknowledged."""
        self.must_ack = False

    def fork(self) -> DirectPeer:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.received, twin.acked = self.received.copy(), self.acked.copy()
        return twin


class Direct(Transport):
    """Hands frames to an exact network. Frames have no numbers and no acks, unless an ack policy needs them."""

    exact = True

    def __init__(self, name: str, me: str, peers: Iterable[str]) -> None:
        super().__init__(name, me, peers, Queues({}))
        self.numbers = self.acks = False
        """Whether packets carry numbers, and whether they carry acks."""
        self.ends = {peer: DirectPeer() for peer in self.peers}
        self._frames: Frames = []

    def check(self, peer: str, packet: Packet[Any]) -> None:
        pass

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return [False] * len(packet.frames)

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        if self.acks:
            acked = self.ends[peer].acked
            acked.add_upto(packet.acked)
            for number in packet.acked_beyond:
                acked.add(number)
        numbers = zip(packet.numbers or repeat(0), packet.frames, strict=False)
        return [Incoming(peer, number, frame) for number, frame in numbers]

    def take(self, incoming: Incoming) -> None:
        self.ends[incoming.peer].came += 1
        self.skip(incoming.peer, incoming.number)

    def skip(self, peer: str, number: int) -> None:
        if self.acks:
            end = self.ends[peer]
            end.must_ack = end.received.add(number) or end.must_ack

    def push(self, frames: Frames) -> None:
        self._frames += frames
        for peer, _ in frames:
            self.ends[peer].sent += 1

    def visit_all(self) -> None:
        pass

    def connected(self, peer: str) -> None:
        pass

    def collect(self, now: int) -> Packets:
        if not self._frames and not self.acks:
            return []
        by_peer: dict[str, list[Frame[Any]]] = {}
        for peer, frame in self._frames:
            by_peer.setdefault(peer, []).append(frame)
        self._frames = []
        if self.acks:
            for peer, end in self.ends.items():
                if end.must_ack:
                    by_peer.setdefault(peer, [])
        return [(peer, self._packet(self.ends[peer], tuple(frames))) for peer, frames in by_peer.items()]

    def _packet(self, end: DirectPeer, frames: tuple[Frame[Any], ...]) -> Packet[Any]:
        numbers: tuple[int, ...] = ()
        if self.numbers:
            end.numbered += len(frames)
            numbers = tuple(range(end.numbered - len(frames) + 1, end.numbered + 1))
        if not end.must_ack:
            return Packet(self.name, frames, numbers)
        end.must_ack = False
        return Packet(self.name, frames, numbers, end.received.upto, tuple(sorted(end.received.beyond)))

    def acked(self, peer: str, number: int) -> bool:
        return not self.acks or number in self.ends[peer].acked

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        ends = [end for peer, end in self.ends.items() if peer not in without]
        return sum([end.sent for end in ends]), sum([end.came for end in ends])

    def progress(self, peer: str) -> Progress | None:
        return None

    def fork(self) -> Direct:
        twin = copy.copy(self)
        twin._frames = list(self._frames)
        twin.ends = {peer: end.fork() for peer, end in self.ends.items()}
        return twin

    def save(self) -> dict[str, ChannelState[Any]]:
        return {}

    def load(self, saved: Any) -> None:
        if saved != {}:
            raise refuse_snapshot(self, saved)
