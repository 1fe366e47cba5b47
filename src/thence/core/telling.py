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
from abc import abstractmethod
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Generic, Self, TypeVar

import msgspec

from thence.core.channel import RESEND_AT_MOST_NS
from thence.core.messages import Envelope, Packet, Safety
from thence.core.progress import Progress
from thence.core.transport import Frames, Incoming, Packets, Transport
from thence.errors import ImpossibleFrame, MalformedFrame

TELL_WITHIN_NS = 1_000_000
"""How long it waits for a packet that goes the same way before others are told by itself that something is safe."""

Group = tuple[tuple[str, int], ...]
"""To whom one message went, and its number there."""


class Peer:
    """One other member: what we sent it, and what it told us."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
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
        self.ask_at: int | None = None
        self.patience_ns = 0


PeerT = TypeVar("PeerT", bound=Peer)


class Telling(Transport, Generic[PeerT]):
    """See the module's text."""

    def __init__(self, inner: Transport, resend_after_ns: int | None) -> None:
        """Tell beside what ``inner`` does; ``resend_after_ns`` is None where the network is trusted to be exact."""
        super().__init__(inner.name, inner.me, inner.peers)
        self.inner = inner
        self.exact = inner.exact
        self.own = 0
        """How many of our own messages are safe."""
        self.pushed = 0
        """How many there are."""
        self._unsafe: deque[Group] = deque()
        """The others of our messages, in order."""
        self._patience_ns = resend_after_ns or 0
        self._within_ns = 0 if inner.exact else TELL_WITHIN_NS
        self._peers: dict[str, PeerT] = {peer: self._new_peer() for peer in self.peers}
        self._to_visit: dict[str, None] = {}
        self._wake: int | None = None

    @abstractmethod
    def _new_peer(self) -> PeerT:
        """Return what is kept of a peer, before anything has happened."""

    @abstractmethod
    def _waits(self, state: PeerT) -> bool:
        """Return whether we have frames of a peer of which we have not heard that they are safe."""

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

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return self.inner.had(peer, packet)

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

    def visit_all(self) -> None:
        self.inner.visit_all()
        self._to_visit = dict.fromkeys(self._peers)
        self._wake = None
        self._follow_inner()

    def connected(self, peer: str) -> None:
        self.inner.connected(peer)
        state = self._peers[peer]
        state.asked = state.safe > 0
        state.ask_at = 0 if self._waits(state) else None
        self._to_visit[peer] = None
        self._follow_inner()

    def suspect(self, peer: str, suspected: bool) -> None:
        self.inner.suspect(peer, suspected)
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

    def _asks(self, state: PeerT, now: int) -> bool:
        """Return whether it is time to ask what is safe."""
        if self.exact or not self._waits(state):
            state.ask_at, state.patience_ns = None, self._patience_ns
            return False
        wanted = state.ask_at is not None and now >= state.ask_at
        if wanted:
            state.patience_ns = min(2 * state.patience_ns, RESEND_AT_MOST_NS)
        if wanted or state.ask_at is None:
            state.patience_ns = state.patience_ns or self._patience_ns
            state.ask_at = now + state.patience_ns
        self._wake_by(state.ask_at)
        return wanted

    def _wake_by(self, time: int | None) -> None:
        if time is not None and (self._wake is None or time < self._wake):
            self._wake = time

    def _follow_inner(self) -> None:
        times = [time for time in (self._wake, self.inner.wake_at) if time is not None]
        self.wake_at = min(times, default=None)
        self._count()

    def _count(self) -> None:
        self.queued, self.queued_bytes = self.inner.queued, self.inner.queued_bytes

    # Outside.

    def confirmed(self, peer: str, number: int) -> bool:
        return self.inner.confirmed(peer, number)

    def queued_by_peer(self) -> dict[str, int]:
        return self.inner.queued_by_peer()

    def queued_bytes_by_peer(self) -> dict[str, int]:
        return self.inner.queued_bytes_by_peer()

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        return self.inner.moved(without)

    def unconfirmed(self) -> Iterator[Envelope]:
        return self.inner.unconfirmed()

    def progress(self, peer: str) -> Progress | None:
        return self.inner.progress(peer)

    def windows(self) -> dict[str, int]:
        return self.inner.windows()

    def fork(self) -> Self:
        return copy.deepcopy(self)

    def save(self) -> Any:
        return self.inner.save()

    def load(self, saved: Any) -> None:
        self.inner.load(saved)
        self._count()


def _only_safety(packet: Packet[Any]) -> bool:
    """Return whether a packet says nothing that is for the inner transport."""
    said = packet.frames or packet.numbers or packet.taken or packet.taken_beyond or packet.receipts is not None
    return packet.safety is not None and not said
