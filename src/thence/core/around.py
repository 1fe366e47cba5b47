"""A transport around another one: what all have in common that tell their peers something beside what the inner one does.

Used by ``core.settling`` (what everybody beyond the receivers has) and ``core.telling`` (what all receivers have). What is told
is not recorded. So whoever waits for news of a peer asks for it, less and less often, for ever.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import Any, Generic, TypeVar

from thence.core.channel import RESEND_AT_MOST_NS
from thence.core.messages import Packet
from thence.core.progress import Progress
from thence.core.transport import Transport


class Heard:
    """What is known of one peer: when to ask it, and how long to wait until then."""

    def __init__(self) -> None:
        """Nothing has happened yet."""
        self.ask_at: int | None = None
        self.patience_ns = 0


HeardT = TypeVar("HeardT", bound=Heard)


class Around(Transport, Generic[HeardT]):
    """See the module's text."""

    def __init__(self, inner: Transport, resend_after_ns: int | None, within_ns: int) -> None:
        """News wait up to ``within_ns`` for a packet to go with; ``resend_after_ns`` is None where the network is exact."""
        super().__init__(inner.name, inner.me, inner.peers)
        self.inner = inner
        self.exact = inner.exact
        self.one_queue = inner.one_queue
        self.repeated_by_others = inner.repeated_by_others
        self._patience_ns = resend_after_ns or 0
        self._within_ns = 0 if inner.exact else within_ns
        self._peers: dict[str, HeardT] = {peer: self._new_peer() for peer in self.peers}
        self._to_visit: dict[str, None] = {}
        self._wake: int | None = None

    @abstractmethod
    def _new_peer(self) -> HeardT:
        """Return what is known of a peer before anything has happened."""

    @abstractmethod
    def _waits(self, state: HeardT) -> bool:
        """Return whether news of a peer are waited for."""

    def _asks(self, state: HeardT, now: int) -> bool:
        """Return whether it is time to ask a peer for news."""
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

    # What the inner one does alone.

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return self.inner.had(peer, packet)

    def visit_all(self) -> None:
        self.inner.visit_all()
        self._to_visit = dict.fromkeys(self._peers)
        self._wake = None
        self._follow_inner()

    def suspect(self, peer: str, suspected: bool) -> None:
        self.inner.suspect(peer, suspected)
        self._follow_inner()

    def confirmed(self, peer: str, number: int) -> bool:
        return self.inner.confirmed(peer, number)

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        return self.inner.moved(without)

    @property
    def queues(self) -> int:
        return self.inner.queues

    def queue_of(self, peer: str) -> tuple[int, int]:
        return self.inner.queue_of(peer)

    def queue_sizes(self, *, on_the_way: bool = False) -> Iterator[tuple[int, int]]:
        return self.inner.queue_sizes(on_the_way=on_the_way)

    def slowest(self, peer: str) -> str:
        return self.inner.slowest(peer)

    def progress(self, peer: str) -> Progress | None:
        return self.inner.progress(peer)

    def windows(self) -> dict[str, int]:
        return self.inner.windows()

    def save(self) -> Any:
        return self.inner.save()

    def load(self, saved: Any) -> None:
        self.inner.load(saved)
