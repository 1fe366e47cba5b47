"""Who sends a message tells its receivers when all of them have it: what safe delivery and later notices have in common.

Source: interconnect §7 (uniform delivery). Design note: docs/stability.md. A transport around another one (``core.transport``).
``core.guarding`` lets frames wait for what is told here, ``core.noticing`` hands them up at once and tells the application later.

Rules:

* A message is *safe* in a domain when all to whom it went there have confirmed it, so have it on disk.
* A sender says it in the order in which it sent, by one number for each other member. It goes along with every packet, and by
  itself after ``TELL_WITHIN_NS`` where nothing else goes. Who waits and does not hear asks, less and less often.
* Only for orderings in which a message goes straight from its sender to all who need it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec

from thence.core.around import Around, Heard
from thence.core.messages import Envelope, Packet, Safety
from thence.core.transport import Frames, Incoming, Packets, Transport
from thence.errors import ImpossibleFrame, MalformedFrame

TELL_WITHIN_NS = 1_000_000
"""How long it waits for a packet that goes the same way before others are told by itself that something is safe."""

Group = tuple[tuple[str, int], ...]
"""To whom one message went, and its number there."""


class Peer(Heard):
    """One other member: what we sent it, and what it told us."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        super().__init__()
        self.sent = 0
        self.safe = 0
        """Up to which number all that we sent it is safe."""
        self.told = 0
        self.asked = False
        self.tell_at: int | None = None
        self.heard = 0
        """Up to which number it has said that its frames to us are safe."""
        self.highest = 0
        """The highest number that we have taken."""


PeerT = TypeVar("PeerT", bound=Peer)


class Telling(Around[PeerT], Generic[PeerT]):
    """See the module's text."""

    def __init__(self, inner: Transport, resend_after_ns: int | None) -> None:
        """Tell beside what ``inner`` does; ``resend_after_ns`` is None where the network is trusted to be exact."""
        super().__init__(inner, resend_after_ns, TELL_WITHIN_NS)
        self.own = 0
        """How many of our own messages are safe."""
        self.pushed = 0
        """How many there are."""
        self._unsafe: deque[Group] = deque()
        """The others of our messages, in order."""

    # What comes in.

    def check(self, peer: str, packet: Packet[Any]) -> None:
        self._check_safety(peer, packet)
        if not _only_safety(packet):
            self.inner.check(peer, packet)

    def _check_safety(self, peer: str, packet: Packet[Any]) -> None:
        safety, state = packet.safety, self._peers[peer]
        described = f"a packet from {peer!r} for {self.name!r} at {self.me!r}"
        if safety is not None and safety.upto < 0:
            raise MalformedFrame(f"{described}: {safety.upto} messages are safe")
        if safety is not None and safety.upto > state.highest:
            raise ImpossibleFrame(f"{described}: frame {safety.upto} is said to be safe, and we have taken {state.highest}")

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        safety = packet.safety
        if safety is not None:
            self.check(peer, packet)
        incoming = [] if _only_safety(packet) else self.inner.frames_in(peer, packet, now)
        if safety is not None:
            state = self._peers[peer]
            state.heard = max(state.heard, safety.upto)
            if safety.wanted:
                state.asked = True
            self._to_visit[peer] = None
        self._follow_inner()
        return incoming

    def _have_confirmed(self, group: Group) -> bool:
        """Return whether all to whom a message of ours went have confirmed it."""
        return all(self.confirmed(peer, number) for peer, number in group)

    def _tell_of_own(self, upto: int) -> None:
        while self.own < upto and self._unsafe:
            self.own += 1
            for peer, number in self._unsafe.popleft():
                self._peers[peer].safe = number
                self._to_visit[peer] = None

    # What goes out.

    def push(self, frames: Frames) -> None:
        self.inner.push(frames)
        group = []
        for peer, _ in frames:
            self._peers[peer].sent += 1
            group.append((peer, self._peers[peer].sent))
        self.pushed += 1
        if group or self._unsafe:
            self._unsafe.append(tuple(group))
        else:
            self.own = self.pushed  # It went to nobody, and nobody will confirm it.
        self._count()

    def connected(self, peer: str) -> None:
        self.inner.connected(peer)
        state = self._peers[peer]
        state.asked = state.safe > 0
        state.ask_at = 0 if self._waits(state) else None
        self._to_visit[peer] = None
        self._follow_inner()

    def collect(self, now: int) -> Packets:
        packets: Packets = []
        for peer, packet in self.inner.collect(now):
            safety = self._due(self._peers[peer], now, going=True)
            packets.append((peer, packet if safety is None else msgspec.structs.replace(packet, safety=safety)))
            self._to_visit.pop(peer, None)
        for peer in self._to_visit:
            safety = self._due(self._peers[peer], now, going=False)
            if safety is not None:
                packets.append((peer, Packet(self.name, (), safety=safety)))
        self._to_visit = {}
        self._follow_inner()
        return packets

    def _due(self, state: PeerT, now: int, *, going: bool) -> Safety | None:
        """Return what to tell a peer now: whatever there is if a packet is ``going`` there, or what cannot wait any longer."""
        wanted = self._asks(state, now)
        if state.tell_at is None and (state.asked or state.safe > state.told):
            state.tell_at = now + (0 if state.asked else self._within_ns)
        due = state.tell_at is not None and now >= state.tell_at
        if not (due or wanted or (going and state.safe)):
            self._wake_by(state.tell_at)
            return None
        state.told, state.asked, state.tell_at = state.safe, False, None
        return Safety(state.safe, wanted)

    def _follow_inner(self) -> None:
        super()._follow_inner()
        self._count()

    def _count(self) -> None:
        self.queued, self.queued_bytes = self.inner.queued, self.inner.queued_bytes

    # Outside.

    def queued_by_peer(self) -> dict[str, int]:
        return self.inner.queued_by_peer()

    def queued_bytes_by_peer(self) -> dict[str, int]:
        return self.inner.queued_bytes_by_peer()

    def unconfirmed(self) -> Iterator[Envelope]:
        return self.inner.unconfirmed()

    def fork(self) -> Self:
        return copy.deepcopy(self)

    def load(self, saved: Any) -> None:
        super().load(saved)
        self._count()


def _only_safety(packet: Packet[Any]) -> bool:
    """Return whether a packet says nothing that is for the inner transport."""
    said = packet.frames or packet.numbers or packet.taken or packet.taken_beyond or packet.receipts is not None
    return packet.safety is not None and not said
