"""How one kind of ack travels beside the packets of a transport. ``core.stability.layer`` owns one policy for each kind.

Rules:

* An ack is one number for each peer, and what its policy adds to it. It goes along with every packet to the peer. Where nothing
  else goes it waits for a while and then goes alone.
* Acks are not recorded. A member that waits for an ack of a peer asks for it, less and less often, for ever. Whoever is asked, or
  has a new connection, tells everything again.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import msgspec

from thence.core.transport.acks import AckTimer, Attempt
from thence.core.transport.base import Frames, Packets, Transport
from thence.core.wire.messages import Packet
from thence.errors import StorageError


class AckPeer(ABC):
    """What one kind of ack knows of one peer."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.sent = 0
        """How many frames we sent it."""
        self.said = 0
        """The last number that we told it."""
        self.timer = AckTimer(0)
        self.ask: Attempt | None = None
        """When we ask for its ack; None: we wait for none."""

    @property
    @abstractmethod
    def upto(self) -> int:
        """The number that we tell it."""

    @property
    @abstractmethod
    def awaits(self) -> bool:
        """Whether we wait for its ack."""

    @property
    def has_news(self) -> bool:
        """Whether there is something that we have not told it."""
        return self.upto > self.said

    def tell_again(self) -> None:
        """Tell it everything at the next opportunity."""
        if self.upto:
            self.timer.hurry()

    def fork(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.timer, twin.ask = copy.copy(self.timer), copy.copy(self.ask)
        return twin


Groups = Mapping[str, tuple[str, ...]]
"""Of each replica at a place, who stands for the same relay, itself included."""

PeerT = TypeVar("PeerT", bound=AckPeer)


class AckPolicy(ABC, Generic[PeerT]):
    """One kind of ack in one domain or link."""

    part: str
    """The field of a packet that holds the acks."""

    def __init__(self, inner: Transport, peers: Mapping[str, PeerT], resend_after_ns: int | None, within_ns: int) -> None:
        """Let acks wait up to ``within_ns`` for a packet; ``resend_after_ns`` is None where the network is exact."""
        self.inner = inner
        self.peers = peers
        self.to_visit: dict[str, None] = {}
        self.wake_at: int | None = None
        self._wait_ns = resend_after_ns or 0
        for peer in peers.values():
            peer.timer.within_ns = 0 if inner.exact else within_ns

    @abstractmethod
    def check(self, peer: str, packet: Packet[Any]) -> None:
        """Refuse impossible acks."""

    @abstractmethod
    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        """Note the acks of a packet."""

    @abstractmethod
    def pushed(self, frames: Frames, came_by: str) -> None:
        """Note the frames of one message that came here by a place and goes out now."""

    def took(self, peer: str, number: int) -> None:
        """Note that a frame of a peer was accepted."""

    def skipped(self, peer: str, number: int) -> None:
        """Note that a frame of a peer was refused for good."""

    def suspect(self, peer: str, suspected: bool) -> None:
        """Note that a peer is suspected, or no longer."""

    @abstractmethod
    def _ack(self, peer: PeerT, now: int, *, wanted: bool) -> Any:
        """Return what a packet says now; ``wanted``: it asks the peer for the same."""

    def connected(self, peer: str) -> None:
        """Tell and ask again over a new connection."""
        state = self.peers[peer]
        state.tell_again()
        state.ask = Attempt(0, state.ask.wait_ns if state.ask else self._wait_ns) if state.awaits else None
        self.to_visit[peer] = None

    def visit_all(self) -> None:
        """Visit all peers when packets are collected next."""
        self.to_visit = dict.fromkeys(self.peers)
        self.wake_at = None

    def attach(self, packets: Packets, now: int) -> Packets:
        """Return packets with their acks, and packets for acks that go alone."""
        all_packets: Packets = []
        for peer, packet in packets:
            ack = self._due(self.peers[peer], now, going=True)
            all_packets.append((peer, packet if ack is None else msgspec.structs.replace(packet, **{self.part: ack})))
            self.to_visit.pop(peer, None)
        for peer in self.to_visit:
            ack = self._due(self.peers[peer], now, going=False)
            if ack is not None:
                all_packets.append((peer, Packet(self.inner.name, (), **{self.part: ack})))
        self.to_visit = {}
        return all_packets

    def _due(self, peer: PeerT, now: int, *, going: bool) -> Any:
        """Return what to tell a peer now: whatever there is if a packet is ``going`` there, else what cannot wait any longer."""
        wanted = self._asks(peer, now)
        if peer.has_news:
            peer.timer.start(now)
        ack = None
        if wanted or peer.timer.is_due(now) or (going and peer.upto):
            peer.said, peer.timer.at = peer.upto, None
            ack = self._ack(peer, now, wanted=wanted)
        self._wake_by(peer.timer.at)
        return ack

    def _asks(self, peer: PeerT, now: int) -> bool:
        """Return whether it is time to ask a peer for its acks."""
        if self.inner.exact or not peer.awaits:
            peer.ask = None
            return False
        if peer.ask is None:
            peer.ask = Attempt.after(now, self._wait_ns)
        wanted = now >= peer.ask.due
        if wanted:
            peer.ask.again(now)
        self._wake_by(peer.ask.due)
        return wanted

    def _wake_by(self, time: int | None) -> None:
        if time is not None and (self.wake_at is None or time < self.wake_at):
            self.wake_at = time

    def fork(self, inner: Transport) -> Self:
        """Return an independent copy around ``inner``."""
        twin = copy.copy(self)
        twin.inner, twin.to_visit = inner, dict(self.to_visit)
        twin.peers = {peer: state.fork() for peer, state in self.peers.items()}
        return twin

    def refuse_snapshot(self, lacks: str) -> StorageError:
        """Return the error for a snapshot without the acks of this policy, or of other members."""
        return StorageError(
            f"{self.inner.name!r} at {self.inner.me!r}: the snapshot of a fabric without {lacks}, or of other members"
        )

    def _described(self, peer: str) -> str:
        return f"a packet from {peer!r} for {self.inner.name!r} at {self.inner.me!r}"
