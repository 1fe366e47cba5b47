"""Safe delivery: a frame waits until its sender says that all have it, and only then the ordering sees it.

Source: interconnect §7 (uniform delivery). Design note: docs/concepts/stability.md. Used in domains with ``delivery = "safe"``.
A frame is taken, recorded and acknowledged as ever, then put aside until it is safe (``core.stability.safe``). To the ordering
this looks like a slower network, so it keeps its guarantees.

Rule: what passes is recorded before anything follows from it (``Passed``), so that a restart lets the same frames pass in the
same order. This holds for a member's own messages too: it delivers them to itself when they are safe.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.stability.safe import SafeAcks
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Frame
from thence.errors import StorageError

StampT = TypeVar("StampT")


class Aside(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """A frame that was taken and waits until it is safe."""

    frame: Frame[StampT]
    to: tuple[int, ...] | None
    at: int


class SavedAside(msgspec.Struct, Generic[StampT], array_like=True):
    """What a restart needs of one peer."""

    sent: int
    safe: int
    passed: int
    highest: int
    aside: dict[int, Aside[StampT]]


class SavedSafeDelivery(msgspec.Struct, Generic[StampT], array_like=True):
    """What a restart needs."""

    own: int
    unsafe: list[list[tuple[str, int]]]
    peers: dict[str, SavedAside[StampT]]


class PeerAside:
    """The frames of one peer that wait."""

    def __init__(self) -> None:
        """Nothing waits yet."""
        self.passed = 0
        """Its frames up to this number have passed."""
        self.frames: dict[int, Aside[Any]] = {}
        self.bytes = 0

    def put(self, incoming: Incoming, now: int) -> None:
        """Add a frame."""
        self.frames[incoming.number] = Aside(incoming.frame, incoming.to, now)
        self.bytes += incoming.frame.weight


class SafeDelivery:
    """The frames of one domain that wait until they are safe."""

    def __init__(self, acks: SafeAcks) -> None:
        """``acks`` says what is safe."""
        self.acks = acks
        self._aside = {peer: PeerAside() for peer in acks.peers}

    @property
    def own(self) -> int:
        """How many of our own messages are safe."""
        return self.acks.own

    @property
    def pushed(self) -> int:
        """How many messages we have sent."""
        return self.acks.sent

    def put_aside(self, incoming: Incoming, now: int) -> None:
        """Take a frame, and keep it until it is safe."""
        self.acks.inner.take(incoming)
        self._aside[incoming.peer].put(incoming, now)
        self.acks.has(incoming.peer, incoming.number)

    def news(self) -> tuple[tuple[str, int], ...]:
        """Return what has become safe and is not recorded: of each peer, and under our own name how many messages of ours."""
        acks = self.acks
        own = acks.own
        for group in acks.unsafe:
            if not acks.all_have(group):
                break
            own += 1
        news = [(peer, acks.peers[peer].heard) for peer, aside in self._aside.items() if acks.peers[peer].heard > aside.passed]
        return tuple([*news, (acks.inner.me, own)] if own > acks.own else news)

    def open(self, passed: Collection[tuple[str, int]]) -> list[Incoming]:
        """Return the frames that are safe, each sender's in order. What finds no room comes back by ``put_back``."""
        for name, upto in passed:
            if name == self.acks.inner.me:
                self.acks.tell_own(upto)
            else:
                self._aside[name].passed = upto
                self.acks.peers[name].heard = max(upto, self.acks.peers[name].heard)
        free: list[Incoming] = []
        for peer, waiting in self._aside.items():
            for number in sorted(number for number in waiting.frames if number <= waiting.passed):
                aside = waiting.frames.pop(number)
                waiting.bytes -= aside.frame.weight
                free.append(Incoming(peer, number, aside.frame, aside.to))
        return free

    def put_back(self, incoming: Incoming, now: int) -> None:
        """Keep a frame that found no room until something else passes."""
        self._aside[incoming.peer].put(incoming, now)

    def aside_of(self, peer: str) -> tuple[int, int]:
        """Return how many frames of a peer wait, and about how many bytes they take."""
        return len(self._aside[peer].frames), self._aside[peer].bytes

    def waiting(self) -> list[tuple[str, int, Aside[Any]]]:
        """Return what waits, each with its sender and its number."""
        return [(peer, number, aside) for peer, waiting in self._aside.items() for number, aside in waiting.frames.items()]

    def save(self) -> SavedSafeDelivery[Any]:
        """Return what a restart needs beside the state of the inner transport."""
        peers = {
            peer: SavedAside(state.sent, state.safe, self._aside[peer].passed, state.highest, self._aside[peer].frames)
            for peer, state in self.acks.peers.items()
        }
        return SavedSafeDelivery(self.acks.own, [list(group) for group in self.acks.unsafe], peers)

    def load(self, saved: SavedSafeDelivery[Any] | None) -> None:
        """Restore what ``save`` returned."""
        name, me = self.acks.inner.name, self.acks.inner.me
        if saved is None or set(saved.peers) != set(self.acks.peers):
            raise StorageError(f"{name!r} at {me!r}: the snapshot of a domain without safe delivery, or of other members")
        self.acks.load(saved.own, saved.unsafe)
        for peer, kept in saved.peers.items():
            state, waiting = self.acks.peers[peer], self._aside[peer]
            state.sent, state.safe, state.highest, state.heard = kept.sent, kept.safe, kept.highest, kept.passed
            waiting.passed, waiting.frames = kept.passed, kept.aside
            waiting.bytes = sum(aside.frame.weight for aside in kept.aside.values())
