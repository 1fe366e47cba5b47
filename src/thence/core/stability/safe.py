"""Acks of safe messages: a sender tells the receivers of a message when all have it.

Source: interconnect §7 (uniform delivery). Design note: docs/concepts/stability.md. ``core.stability.safe_notification`` finds
out which messages are safe; ``core.stability.safe_turn`` delivers nothing before it is.

Rules:

* A message is *safe* when all who get it, in whatever domain, have it on disk.
* The ack goes from the sender of a frame to its receivers: all its frames up to a number are safe. Messages become safe in the
  order in which they were sent.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from thence.core.stability.policy import AckPeer, AckPolicy
from thence.core.transport.base import Frames, Transport
from thence.core.wire.messages import Packet, SafeAck
from thence.errors import ImpossibleFrame, MalformedFrame

SAFE_WITHIN_NS = 1_000_000
"""How long these acks wait for a packet."""

Group = tuple[tuple[str, int], ...]
"""To whom one message went, and its number there."""


class SafePeer(AckPeer):
    """One other member: what we sent it, and what it told us."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        super().__init__()
        self.safe = 0
        """All that we sent it up to this number is safe."""
        self.heard = 0
        """Its frames to us up to this number are safe."""
        self.highest = 0
        """The highest number that we have taken."""

    @property
    def upto(self) -> int:
        return self.safe

    @property
    def awaits(self) -> bool:
        return self.highest > self.heard


class SafeAcks(AckPolicy[SafePeer]):
    """Tells receivers which of our messages are safe, and hears which of theirs are."""

    part = "safe_ack"

    def __init__(self, inner: Transport, resend_after_ns: int | None) -> None:
        """``resend_after_ns`` is None where the network is exact."""
        super().__init__(inner, {peer: SafePeer() for peer in inner.peers}, resend_after_ns, SAFE_WITHIN_NS)
        self.own = 0
        """How many of our own messages are safe."""
        self.sent = 0
        """How many there are."""
        self.unsafe: deque[Group] = deque()
        """Those that are not safe, in order."""

    def check(self, peer: str, packet: Packet[Any]) -> None:
        safety, highest = packet.safe_ack, self.peers[peer].highest
        if safety is not None and safety.upto < 0:
            raise MalformedFrame(f"{self._described(peer)}: {safety.upto} messages are safe")
        if safety is not None and safety.upto > highest:
            raise ImpossibleFrame(f"{self._described(peer)}: frame {safety.upto} is said to be safe, and we have taken {highest}")

    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        safety, state = packet.safe_ack, self.peers[peer]
        if safety is None:
            return
        state.heard = max(state.heard, safety.upto)
        if safety.wanted:
            state.tell_again()
        self.to_visit[peer] = None

    def took(self, peer: str, number: int) -> None:
        state = self.peers[peer]
        state.highest = max(state.highest, number)
        self.to_visit[peer] = None

    skipped = took

    def all_have(self, group: Group) -> bool:
        """Return whether all to whom a message of ours went have acknowledged it."""
        return all(self.inner.acked(peer, number) for peer, number in group)

    def tell_own(self, upto: int) -> None:
        """Note that our own messages up to this one are safe."""
        while self.own < upto and self.unsafe:
            self.own += 1
            for peer, number in self.unsafe.popleft():
                self.peers[peer].safe = number
                self.to_visit[peer] = None

    def pushed(self, frames: Frames, came_by: str) -> None:
        group = []
        for peer, _ in frames:
            self.peers[peer].sent += 1
            group.append((peer, self.peers[peer].sent))
        self.sent += 1
        if group or self.unsafe:
            self.unsafe.append(tuple(group))
        else:
            self.own = self.sent  # It went to nobody, and nobody will ack it.

    def _ack(self, peer: SafePeer, now: int, *, wanted: bool) -> SafeAck:
        return SafeAck(peer.safe, wanted)

    def fork(self, inner: Transport) -> SafeAcks:
        """Return an independent copy around ``inner``."""
        twin = super().fork(inner)
        twin.unsafe = deque(self.unsafe)
        return twin

    def load(self, own: int, unsafe: list[list[tuple[str, int]]]) -> None:
        """Restore how many of our messages are safe, and the others."""
        self.own, self.sent = own, own + len(unsafe)
        self.unsafe = deque(tuple(group) for group in unsafe)
