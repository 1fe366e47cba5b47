"""Nothing is handed up before everybody has it: what comes in is kept aside until its sender says that it is *safe*.

Source: interconnect §7 (uniform delivery). Design note: docs/stability.md. A transport around another one (``core.transport``),
in domains with ``delivery = "safe"``. A frame is taken, recorded and confirmed as ever, and then kept aside. When all to whom its
message went in this domain have confirmed it, its sender says so, and only then the ordering gets to see it. For the ordering
that is a network in which frames take longer, so whatever it keeps is kept.

Rules:

* A sender says it in the order in which it sent, by one number for each other member. It goes along with every packet, and by
  itself after ``TELL_WITHIN_NS`` where nothing else goes. Who keeps something aside and does not hear asks, less and less often.
* What passes is recorded before anything follows from it (``Passed``), so that a restart lets the same pass in the same order.
  That holds for a member's own messages too: it delivers them to itself when they are safe.
* Only for orderings in which a message goes straight from its sender to all who need it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.channel import RESEND_AT_MOST_NS
from thence.core.messages import Envelope, Frame, Packet, Safety
from thence.core.progress import Progress
from thence.core.transport import Frames, Incoming, Packets, Transport
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError

StampT = TypeVar("StampT")

TELL_WITHIN_NS = 1_000_000
"""How long it waits for a packet that goes the same way before others are told by itself that something is safe."""


class Aside(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """A frame that was taken and waits until it is safe."""

    frame: Frame[StampT]
    to: tuple[int, ...] | None
    at: int


class SavedGuarded(msgspec.Struct, Generic[StampT], array_like=True):
    """What a restart must find again of one peer."""

    sent: int
    safe: int
    passed: int
    highest: int
    aside: dict[int, Aside[StampT]]


class SavedGuarding(msgspec.Struct, Generic[StampT], array_like=True):
    """What a restart must find again."""

    own: int
    unsafe: list[list[tuple[str, int]]]
    peers: dict[str, SavedGuarded[StampT]]


class _Peer:
    """One other member: what we sent it, and what of its frames waits."""

    def __init__(self) -> None:
        self.sent = 0
        self.safe = 0
        """Up to which number all that we sent it is safe."""
        self.told = 0
        self.asked = False
        self.tell_at: int | None = None
        self.heard = 0
        """Up to which number it has said that its frames to us are safe,"""
        self.passed = 0
        """and up to which they have passed."""
        self.highest = 0
        """The highest number that we have taken."""
        self.aside: dict[int, Aside[Any]] = {}
        self.ask_at: int | None = None
        self.patience_ns = 0


class Guarding(Transport):
    """See the module's text."""

    def __init__(self, inner: Transport, resend_after_ns: int) -> None:
        """Keep aside what ``inner`` brings, until it is safe."""
        super().__init__(inner.name, inner.me, inner.peers)
        self.inner = inner
        self.own = 0
        """How many of our own messages are safe, and recorded to be."""
        self.pushed = 0
        """How many there are."""
        self._unsafe: deque[tuple[tuple[str, int], ...]] = deque()
        """For each of the others of our messages, in order: to whom it went, and its number there."""
        self._patience_ns = resend_after_ns
        self._peers = {peer: _Peer() for peer in self.peers}
        self._to_visit: dict[str, None] = {}
        self._wake: int | None = None

    # What comes in.

    def check(self, peer: str, packet: Packet[Any]) -> None:
        safety, state = packet.safety, self._peers[peer]
        described = f"a packet from {peer!r} for {self.name!r} at {self.me!r}"
        if safety is not None and safety.upto < 0:
            raise MalformedFrame(f"{described}: {safety.upto} messages are safe")
        if safety is not None and safety.upto > state.highest:
            raise ImpossibleFrame(f"{described}: frame {safety.upto} is said to be safe, and we have taken {state.highest}")
        if not _only_safety(packet):
            self.inner.check(peer, packet)

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

    def put_aside(self, incoming: Incoming, now: int) -> None:
        """Take a frame, and keep it until it is safe."""
        self.inner.take(incoming)
        state = self._peers[incoming.peer]
        state.aside[incoming.number] = Aside(incoming.frame, incoming.to, now)
        state.highest = max(state.highest, incoming.number)
        self._to_visit[incoming.peer] = None

    def take(self, incoming: Incoming) -> None:
        pass  # It was, before it was kept aside.

    def skip(self, peer: str, number: int) -> None:
        pass  # The same.

    def news(self) -> tuple[tuple[str, int], ...]:
        """Return what has become safe and is not recorded: of each peer, and under our own name how many messages of ours."""
        own = self.own
        for group in self._unsafe:
            if not all(self.inner.confirmed(peer, number) for peer, number in group):
                break
            own += 1
        news = [(peer, state.heard) for peer, state in self._peers.items() if state.heard > state.passed]
        return tuple([*news, (self.me, own)] if own > self.own else news)

    def open(self, passed: Collection[tuple[str, int]]) -> list[Incoming]:
        """Let through what is safe; return it, each sender's in order. What does not fit comes back by ``put_back``."""
        for name, upto in passed:
            if name == self.me:
                self._tell_of_own(upto)
            else:
                self._peers[name].passed = upto
                self._peers[name].heard = max(upto, self._peers[name].heard)
        free: list[Incoming] = []
        for peer, state in self._peers.items():
            for number in sorted(number for number in state.aside if number <= state.passed):
                aside = state.aside.pop(number)
                free.append(Incoming(peer, number, aside.frame, aside.to))
        return free

    def put_back(self, incoming: Incoming, now: int) -> None:
        """There is no room for a frame behind the guard: it comes again when something else passes."""
        self._peers[incoming.peer].aside[incoming.number] = Aside(incoming.frame, incoming.to, now)

    def _tell_of_own(self, upto: int) -> None:
        while self.own < upto and self._unsafe:
            self.own += 1
            for peer, number in self._unsafe.popleft():
                self._peers[peer].safe = number
                self._to_visit[peer] = None

    @property
    def aside(self) -> int:
        """How many frames are kept aside."""
        return sum([len(state.aside) for state in self._peers.values()])

    def waiting(self) -> list[tuple[str, int, Aside[Any]]]:
        """Give what is kept aside, each with its sender and its number."""
        return [(peer, number, aside) for peer, state in self._peers.items() for number, aside in state.aside.items()]

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
        state.ask_at = 0 if state.aside else None
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

    def _due(self, state: _Peer, now: int, *, going: bool) -> Safety | None:
        """Return what to tell a peer now: whatever there is if a packet is ``going`` there, or what cannot wait any longer."""
        wanted = self._asks(state, now)
        if state.tell_at is None and (state.asked or state.safe > state.told):
            state.tell_at = now + (0 if state.asked else TELL_WITHIN_NS)
        due = state.tell_at is not None and now >= state.tell_at
        if not (due or wanted or (going and state.safe)):
            self._wake_by(state.tell_at)
            return None
        state.told, state.asked, state.tell_at = state.safe, False, None
        return Safety(state.safe, wanted)

    def _asks(self, state: _Peer, now: int) -> bool:
        """Return whether it is time to ask what is safe."""
        if not state.aside:
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

    def fork(self) -> Guarding:
        return copy.deepcopy(self)

    def save(self) -> Any:
        return self.inner.save()

    def load(self, saved: Any) -> None:
        self.inner.load(saved)
        self._count()

    def save_guarding(self) -> SavedGuarding[Any]:
        """Return what a restart must find again beside what the inner transport keeps."""
        peers = {
            peer: SavedGuarded(state.sent, state.safe, state.passed, state.highest, state.aside)
            for peer, state in self._peers.items()
        }
        return SavedGuarding(self.own, [list(group) for group in self._unsafe], peers)

    def load_guarding(self, saved: SavedGuarding[Any] | None) -> None:
        """Become what ``save_guarding`` returned."""
        if saved is None or set(saved.peers) != set(self._peers):
            raise StorageError(
                f"{self.name!r} at {self.me!r}: the snapshot of a domain without safe delivery, or of other members"
            )
        self.own, self.pushed = saved.own, saved.own + len(saved.unsafe)
        self._unsafe = deque(tuple(group) for group in saved.unsafe)
        for peer, kept in saved.peers.items():
            state = self._peers[peer]
            state.sent, state.safe, state.passed, state.highest = kept.sent, kept.safe, kept.passed, kept.highest
            state.heard, state.aside = kept.passed, kept.aside


def _only_safety(packet: Packet[Any]) -> bool:
    """Return whether a packet says nothing that is for the inner transport."""
    said = packet.frames or packet.numbers or packet.taken or packet.taken_beyond or packet.receipts is not None
    return packet.safety is not None and not said
