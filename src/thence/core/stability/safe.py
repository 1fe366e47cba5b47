"""Acks of safe messages: a sender tells the receivers of a message when all have it.

Source: interconnect §7 (uniform delivery). Design note: docs/concepts/stability.md. ``core.stability.safe_notification`` finds
out which messages are safe; ``core.stability.safe_turn`` delivers nothing before it is.

Rules:

* A message is *safe* when all who get it, in whatever domain, have it on disk.
* The ack goes from the sender of a frame to its receivers: all its frames up to a number are safe. Messages become safe in the
  order in which they were sent.
* Who stands for the same relay as another one says the same for that one's frames, if it suspects it or is asked: all of them get
  one stamp and number. So nobody waits for the notices of a replica that is dead. Nor do its acks count while it is suspected:
  it may be told of what it has not got yet.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from thence.core.stability.policy import AckPeer, AckPolicy, Groups
from thence.core.transport.base import Frames, Packets, Transport
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
        self.awaits_fellow = False
        """Whether we wait for what one that stands for the same relay should tell us: this one may know it, too."""
        self.tell_of_fellows = False
        """Whether it is to be told what we know of those who stand for our relay."""

    @property
    def upto(self) -> int:
        return self.safe

    @property
    def awaits(self) -> bool:
        return self.highest > self.heard or self.awaits_fellow

    @property
    def has_news(self) -> bool:
        return self.tell_of_fellows or super().has_news


class SafeAcks(AckPolicy[SafePeer]):
    """Tells receivers which of our messages are safe, and hears which of theirs are."""

    part = "safe_ack"

    def __init__(self, inner: Transport, resend_after_ns: int | None, groups: Groups | None = None) -> None:
        """``resend_after_ns`` is None where the network is exact; ``groups`` are the replicas that stand in for each other."""
        super().__init__(inner, {peer: SafePeer() for peer in inner.peers}, resend_after_ns, SAFE_WITHIN_NS)
        self.replicas = {name: tuple(other for other in group if other != name) for name, group in (groups or {}).items()}
        """Of each replica here, who else stands for the same relay."""
        self.fellows = self.replicas.get(inner.me, ())
        self.suspected: dict[str, None] = {}
        """The replicas that are suspected."""
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
        fellows = () if safety is None else safety.fellows
        if fellows and (len(fellows) != len(self.replicas.get(peer, ())) or min(fellows) < 0):
            raise MalformedFrame(f"{self._described(peer)}: {fellows} messages of those who stand for its relay are safe")
        if safety is not None and safety.upto > highest and not self.fellows:
            raise ImpossibleFrame(f"{self._described(peer)}: frame {safety.upto} is said to be safe, and we have taken {highest}")

    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        safety, state = packet.safe_ack, self.peers[peer]
        if safety is None:
            return
        if safety.upto > state.heard:
            self.learned(peer, safety.upto)
        for fellow, upto in zip(self.replicas.get(peer, ()) if safety.fellows else (), safety.fellows, strict=True):
            if fellow != self.inner.me:
                self.peers[fellow].heard = max(self.peers[fellow].heard, upto)
        if safety.wanted:
            state.tell_again()
            if self.fellows:
                state.tell_of_fellows = True
                state.timer.hurry()
        self.to_visit[peer] = None

    def took(self, peer: str, number: int) -> None:
        state = self.peers[peer]
        state.highest = max(state.highest, number)
        self.to_visit[peer] = None
        self.to_visit |= dict.fromkeys(name for name in self.replicas.get(peer, ()) if name != self.inner.me)

    skipped = took

    def all_have(self, group: Group) -> bool:
        """Return whether all to whom a message of ours went have acknowledged it."""
        return all(self.inner.acked(peer, number) or peer in self.suspected for peer, number in group)

    def suspect(self, peer: str, suspected: bool) -> None:
        if peer not in self.replicas:
            return
        if not suspected:
            self.suspected.pop(peer, None)
            return
        self.suspected[peer] = None
        if peer in self.fellows:
            self._tell_of_fellows()

    def _tell_of_fellows(self) -> None:
        """Tell all others what we know of those who stand for our relay."""
        for peer, state in self.peers.items():
            state.tell_of_fellows = True
            self.to_visit[peer] = None

    def learned(self, peer: str, upto: int) -> None:
        """Note that all frames of a replica up to this one carry messages that are known to be safe."""
        self.peers[peer].heard = upto
        if peer in self.fellows and peer in self.suspected:
            self._tell_of_fellows()

    def attach(self, packets: Packets, now: int) -> Packets:
        for name, others in self.replicas.items():
            if name != self.inner.me:
                known = [self.peers[other] for other in others if other != self.inner.me]
                self.peers[name].awaits_fellow = any(other.highest > other.heard for other in known)
        return super().attach(packets, now)

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
        also = peer.tell_of_fellows or any(fellow in self.suspected for fellow in self.fellows)
        peer.tell_of_fellows = False
        return SafeAck(peer.safe, wanted, tuple([self.peers[fellow].heard for fellow in self.fellows]) if also else ())

    def fork(self, inner: Transport) -> SafeAcks:
        """Return an independent copy around ``inner``."""
        twin = super().fork(inner)
        twin.unsafe, twin.suspected = deque(self.unsafe), dict(self.suspected)
        return twin

    def load(self, own: int, unsafe: list[list[tuple[str, int]]]) -> None:
        """Restore how many of our messages are safe, and the others."""
        self.own, self.sent = own, own + len(unsafe)
        self.unsafe = deque(tuple(group) for group in unsafe)
