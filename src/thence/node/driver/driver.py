"""The loop around ``member.step`` in a running program. The simulator's ``node`` is the other caller of ``step``.

It does with a ``Ready`` what the contract says, in that order: first the store, then the network and what was accepted, then
deliveries. Steps that come while the store is busy share its next commit (``node.driver.commits``).

Rules:

* What follows from a step happens when its records are durable, and in the order of the steps: a packet may ack what an
  earlier step took.
* While the disk is full, what comes in is not taken, so that others keep it and send it again.
* A step is only made if what it writes can be appended: once the member has made it, it cannot be taken back.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from thence.core.member.contract import Arrived, Delivery, Input, Ready, Timer
from thence.core.member.member import Member
from thence.core.wire.messages import Envelope, Packet
from thence.errors import Busy, FrameRefused, StorageError
from thence.node.driver.commits import Commits, Upkeep
from thence.storage.journal import Written, encode_entry
from thence.storage.store import MAX_BUFFERED_BYTES, MAX_ENTRY_BYTES, MemoryStore, Store

MAX_PENDING_STEPS: Final = 50_000
"""How many steps may wait for the store before nothing more is taken."""

NEVER_NS: Final = 2**63
"""A time that does not come."""

MAX_PENDING_BYTES: Final = (MAX_BUFFERED_BYTES - MAX_ENTRY_BYTES) // 2
"""How many bytes may: one more step of any size fits behind them, and then many small records that nobody can refuse."""

STOPPING: Final = "the server is stopping"
"""Why a driver that is closed takes nothing."""


class Actions(Upkeep, Protocol):
    """What follows from steps."""

    @property
    def records(self) -> bool:
        """Whether it wants to be told of steps where nothing has to be durable."""

    def stepped(self, sequence: int, step_input: Input, ready: Ready) -> None:
        """The member has made a step; what follows from it happens when the entry with this number is durable."""

    def transmit(self, peer: str, packet: Packet[Any]) -> None:
        """Send a packet."""

    def accepted(self, envelope: Envelope) -> None:
        """A message of ours is durable."""

    def secured(self, upto: int) -> None:
        """Our messages up to this number outlive us."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Messages for us, in order."""

    def stable(self, upto: int) -> None:
        """All have our messages up to this number."""

    def safe(self, upto: int) -> None:
        """All deliveries up to this position are safe."""

    def refused(self, peer: str, refusal: FrameRefused) -> None:
        """A frame of a peer was not taken; for the log."""


class Clock:
    """Nanoseconds since 1970 that never go back while the program runs."""

    def __init__(self) -> None:
        """Start with the time of the system."""
        self.offset_ns = time.time_ns() - time.monotonic_ns()

    def now(self) -> int:
        """Return the time."""
        return time.monotonic_ns() + self.offset_ns


class Driver:
    """Steps a member, stores what a step says, and does what follows when that is durable."""

    def __init__(self, member: Member, store: Store | MemoryStore) -> None:
        """Drive ``member``; ``attach`` makes it work."""
        self.member = member
        self.store = store
        self.clock = Clock()
        self.commits = Commits(store, self._perform_upto)
        self.recovering = True
        """Whether what is in the store is being brought back; then nothing waits for room."""
        self.steps = 0
        self.stepped_at = 0
        """When the last step was made."""
        self.after_step: Callable[[], None] | None = None
        """Called behind each step, when what follows from it is seen to: the member may want something of the disk
        (``core.transport.spill_queue``)."""
        self.actions: Actions
        self.volatile = isinstance(store, MemoryStore)
        """Whether nothing has to be durable."""
        self._at_once = False
        """Whether nothing has to be durable or told: then nothing has to wait either."""
        self._pending: deque[tuple[int, Ready | Callable[[], None]]] = deque()
        """What follows from entries that are not durable yet, by their numbers."""
        self._loop = asyncio.get_running_loop()
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at = NEVER_NS
        # What waits is committed right before a snapshot, whatever the limit says: it must not be far over it.
        limit = store.limit_bytes
        self._most_pending_bytes = MAX_PENDING_BYTES if limit is None else min(MAX_PENDING_BYTES, limit // 8)

    def attach(self, actions: Actions) -> None:
        """Begin: ``actions`` do what follows from steps."""
        self.actions = actions
        self._at_once = self.volatile and not actions.records
        self.commits.attach(actions)

    # Inputs.

    @property
    def full(self) -> str:
        """Why no more input is taken now, if so."""
        if self.commits.closed:
            return STOPPING
        if self.commits.stalled:
            return self.commits.stalled
        if self.store.buffered_bytes >= self._most_pending_bytes:
            return f"{self.store.buffered_bytes} bytes wait for the store"
        return f"{len(self._pending)} steps wait for the store" if len(self._pending) >= MAX_PENDING_STEPS else ""

    def step(self, step_input: Input, also: Sequence[Written] = (), then: Callable[[], None] | None = None) -> Ready:
        """Step, and see to what follows. A submission that cannot be taken raises ``Busy``.

        ``also`` is stored in the same entry, behind what the member has to store; ``then`` is called behind what follows from it.
        """
        if self.commits.closed:
            raise Busy(STOPPING)
        self.steps += 1
        self.stepped_at = now = self.clock.now()
        ready = self.member.step(step_input, now)
        if ready.refused and isinstance(step_input, Arrived):
            for refusal in ready.refused:
                self.actions.refused(step_input.peer, refusal)
        if ready.wake is not None and ready.wake < self._wake_at:
            self._set_wake(ready.wake)
        if self._at_once:
            self._perform(ready)
        else:
            self._store(step_input, ready, also)
        if then is not None:
            self.when_durable(then)
        if self.after_step is not None:
            self._look_after()
        return ready

    def _look_after(self) -> None:
        try:
            if self.after_step is not None:
                self.after_step()
        except StorageError as error:
            self.commits.fail(error)

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` when everything that was written so far is durable and has had its consequences."""
        if self.volatile or (not self._pending and self.store.durable >= self.store.appended):
            then()
        else:
            self._pending.append((self.store.appended, then))

    def write(self, records: Sequence[Written], then: Callable[[], None] | None = None) -> None:
        """Store what is not the member's. ``then`` is called when it is durable, in its turn among what follows from steps."""
        if self.commits.closed:
            return
        if self.volatile:
            if then is not None:
                then()
            return
        self.store.append(encode_entry(records))
        if then is not None:
            self._pending.append((self.store.appended, then))
        self.commits.begin()

    def _store(self, step_input: Input, ready: Ready, also: Sequence[Written]) -> None:
        if self.volatile:
            self.actions.stepped(0, step_input, ready)
            self._perform(ready)
            self.actions.stored(0)
            return
        if ready.persist:
            self.store.append(encode_entry((*ready.persist, *also) if also else ready.persist))
        self.actions.stepped(self.store.appended, step_input, ready)
        if ready.persist or self._pending:
            if ready.persist or ready.send or ready.deliver or ready.stable or ready.safe or ready.secured:
                self._pending.append((self.store.appended, ready))
            self.commits.begin()
        else:
            self._perform(ready)

    # What follows.

    def _perform(self, ready: Ready) -> None:
        actions = self.actions
        if ready.send:
            for peer, packet in ready.send:
                actions.transmit(peer, packet)
        if ready.accepted:
            for envelope in ready.accepted:
                actions.accepted(envelope)
        if ready.secured:
            actions.secured(ready.secured)
        if ready.deliver:
            actions.deliver(ready.deliver)
        if ready.stable:
            actions.stable(ready.stable)
        if ready.safe:
            actions.safe(ready.safe)

    def _perform_upto(self, durable: int) -> None:
        pending = self._pending
        while pending and pending[0][0] <= durable:
            _, what = pending.popleft()
            if isinstance(what, Ready):
                self._perform(what)
            else:
                what()

    # Time.

    def _set_wake(self, wake: int) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_at = wake
        self._wake = self._loop.call_later(max(0.0, (wake - self.clock.now()) / 1e9), self._woken)

    def _woken(self) -> None:
        self._wake = None
        self._wake_at = NEVER_NS
        if not self.commits.closed:
            self.step(Timer())

    async def close(self) -> None:
        """Make durable what was taken, and stop."""
        await self.commits.close()
        self.stop_waking()

    def stop_waking(self) -> None:
        """Step no more for want of time."""
        if self._wake is not None:
            self._wake.cancel()
