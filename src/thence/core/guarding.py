"""Nothing is handed up before everybody has it: what comes in is kept aside until its sender says that it is *safe*.

Source: interconnect §7 (uniform delivery). Design note: docs/stability.md. Used in domains with ``delivery = "safe"``. A frame is
taken, recorded and confirmed as ever, and then kept aside. When all to whom its message went in this domain have confirmed it,
its sender says so (``core.telling``), and only then the ordering gets to see it. For the ordering that is a network in which
frames take longer, so whatever it keeps is kept.

Rules:

* What passes is recorded before anything follows from it (``Passed``), so that a restart lets the same pass in the same order.
  That holds for a member's own messages too: it delivers them to itself when they are safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.messages import Frame
from thence.core.telling import Peer, Telling
from thence.core.transport import Incoming
from thence.errors import StorageError

StampT = TypeVar("StampT")


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


class _Guarded(Peer):
    """What of a peer's frames waits."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0
        """Up to which number its frames have passed."""
        self.aside: dict[int, Aside[Any]] = {}


class Guarding(Telling[_Guarded]):
    """See the module's text."""

    def _new_peer(self) -> _Guarded:
        return _Guarded()

    def _waits(self, state: _Guarded) -> bool:
        return bool(state.aside)

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
            if not self._have_confirmed(group):
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

    def aside_of(self, peer: str) -> int:
        """How many frames of a peer are kept aside."""
        return len(self._peers[peer].aside)

    def waiting(self) -> list[tuple[str, int, Aside[Any]]]:
        """Give what is kept aside, each with its sender and its number."""
        return [(peer, number, aside) for peer, state in self._peers.items() for number, aside in state.aside.items()]

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
