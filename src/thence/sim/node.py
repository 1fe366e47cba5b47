"""One simulated process: the loop around ``step``, with a disk that forgets what was not synced and an application that does not.

This does with a ``Ready`` exactly what the server's driver does: first the disk, then the network and the
acknowledgement, then the application. Records that come while the disk is busy share the next sync.

The application is one that stores its position together with the effects of a delivery, as the guarantees ask for.
So after a crash the member is told that position and delivers from there on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from thence.core.failover.early_payloads import BodyAhead
from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Consumed, Delivery, Ready, Restored, Submit, Suspicion, Timer
from thence.core.member.member import Member, MemberOptions
from thence.core.reconfig.protocol import FABRIC
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Packet, control_bytes
from thence.errors import Busy
from thence.sim import kernel as kernels
from thence.sim.disk import Disk
from thence.sim.network import Network
from thence.sim.statistics import Statistics
from thence.trace.recorder import Recorder

CONSUME_EVERY = 64
"""How many deliveries the application makes before it tells the member how far it is."""

COMPACT_EVERY = 256
"""How many records the disk collects before a snapshot replaces them."""

FRAME_BYTES = 24
"""What a frame costs on the wire beside its stamp and its body, roughly."""


class Node:
    """See the module's text."""

    def __init__(
        self,
        name: str,
        routes: Routes,
        options: MemberOptions,
        kernel: kernels.Kernel,
        network: Network,
        disk: Disk,
        recorder: Recorder,
        statistics: Statistics,
    ) -> None:
        """Make a process that is up and has done nothing yet."""
        self.name = name
        self.up = True
        self.dead = False
        """Whether it is down for good."""
        self.on_deliver: Callable[[Node, Delivery], None] | None = None
        self._routes = routes
        self._options = options
        self._kernel = kernel
        self._network = network
        self._disk = disk
        self._recorder = recorder
        self._statistics = statistics
        self._member = Member(name, routes, options)
        self._pending: deque[Ready | Callable[[], None]] = deque()
        """What follows from what the disk has not synced."""
        self._syncing = False
        self._life = 0
        """Counts restarts: what was scheduled in an earlier life does not happen."""
        self._wake: kernels.Timer | None = None
        self._wake_at = 0
        self._consumed = 0
        self._last_recorded_send = 0

    @property
    def member(self) -> Member:
        """The member as it is now; a restart makes a new one."""
        return self._member

    def submit(self, to: tuple[str, ...] | None, body: bytes) -> bool:
        """Let the application send; return whether it was taken."""
        try:
            self._handle(self._member.step(Submit(to, body), self._kernel.now))
        except Busy:
            self._statistics.busy += 1
            return False
        return True

    def receive(self, source: str, packet: Packet[object]) -> None:
        """A packet has come in from the network."""
        if not self.up:
            self._statistics.missed_while_down += 1
            return
        now = self._kernel.now
        for frame in packet.frames:
            if frame.envelope is not None and type(frame.stamp) is not BodyAhead:
                self._statistics.arrived(self.name, frame.envelope, now)
                self._record_arrival(frame.envelope, packet.domain, now)
        self._handle(self._member.step(Arrived(source, packet), now))

    def suspect(self, peer: str, suspected: bool) -> None:
        """Somebody who watches over the processes holds a peer for dead, or no longer."""
        if self.up:
            self._handle(self._member.step(Suspicion(peer, suspected), self._kernel.now))

    def _record_arrival(self, envelope: Envelope, domain: str, now: int) -> None:
        if self._recorder.arrivals and (envelope.to is None or self.name in envelope.to):
            self._recorder.arrive(self.name, envelope, now, domain)

    def crash(self) -> None:
        """Lose everything but what the disk has synced."""
        self.up = False
        self._life += 1
        self._pending.clear()
        self._syncing = False
        self._wake = None
        self._disk.crash()
        self._recorder.note(self.name, "crash", self._kernel.now)
        self._statistics.crashes += 1

    def restart(self) -> None:
        """Come back with what is on the disk."""
        if self.dead:
            return
        now = self._kernel.now
        self._recorder.note(self.name, "recover", now)
        self.up = True
        self._member = Member(self.name, self._routes, self._options)
        ready = self._bring_back(now)
        # A submission that reached the disk just before the crash was accepted, though nobody was told: it counts as
        # sent from here on, and before whatever is delivered now, which it may have been caused by.
        for envelope in ready.sent:
            if envelope.number > self._last_recorded_send:
                self._accepted(envelope)
        self._handle(msgspec.structs.replace(ready, sent=()))

    def _bring_back(self, now: int) -> Ready:
        records = [decode_record(record) for record in self._disk.records()]
        return self._member.step(Restored(self._disk.snapshot, records, self._consumed), now)

    def _snapshot(self) -> object:
        """Return what stands for everything on the disk."""
        return self._member.snapshot()

    def _handle(self, ready: Ready) -> None:
        """First the disk; the rest when that is done, in order."""
        if ready.refused:
            self._statistics.refused += len(ready.refused)
        for delivery in ready.deliver:
            if delivery.envelope.origin != FABRIC:
                self._statistics.ordered(self.name, delivery.envelope, self._kernel.now)
        for record in ready.persist:
            self._disk.append(encode_record(record))
        if not ready.persist and not self._pending:
            self._perform(ready)
            return
        self._pending.append(ready)
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._syncing = True
        token = self._disk.begin_sync()
        self._kernel.schedule(self._disk.sync_delay_ns(), self._synced, self._life, token, len(self._pending))

    def _synced(self, life: int, token: int, count: int) -> None:
        if life != self._life:
            return
        self._disk.complete_sync(token)
        for _ in range(count):
            what = self._pending.popleft()
            if isinstance(what, Ready):
                self._perform(what)
            else:
                what()
            if life != self._life:
                return
        self._syncing = False  # Not before: what follows may have to be stored, and needs the next sync.
        if len(self._disk.records()) >= COMPACT_EVERY and not self._pending:
            self._disk.compact(self._snapshot())
        if self._pending and not self._syncing:
            self._sync()

    def _perform(self, ready: Ready) -> None:
        """Send, acknowledge, deliver: what comes after the disk."""
        for peer, packet in ready.send:
            self._transmit(peer, packet)
        for envelope in ready.sent:
            self._accepted(envelope)
        for delivery in ready.deliver:
            self._deliver(delivery)
        self._set_wake(ready.wake)

    def _transmit(self, peer: str, packet: Packet[object]) -> None:
        size = FRAME_BYTES + control_bytes(packet.group_acks) + control_bytes(packet.stable_ack) + control_bytes(packet.safe_ack)
        for frame in packet.frames:
            stamp_bytes = control_bytes(frame.stamp)
            self._statistics.frames += 1
            self._statistics.control_bytes += stamp_bytes
            size += FRAME_BYTES + stamp_bytes + (len(frame.envelope.body) if frame.envelope else 0)
        self._put_on(peer, packet, size)

    def _put_on(self, peer: str, packet: Packet[object], size_bytes: int) -> None:
        self._network.send(self.name, peer, packet, size_bytes)

    def _accepted(self, envelope: Envelope) -> None:
        now = self._kernel.now
        self._last_recorded_send = envelope.number
        topology = self._member.topology
        self._recorder.send(self.name, envelope, now, topology.homes[self.name][0], topology.processes)
        self._statistics.sent(envelope, now)

    def _deliver(self, delivery: Delivery) -> None:
        if delivery.position <= self._consumed:
            self._statistics.repeated_deliveries += 1
        self._consumed = delivery.position
        now = self._kernel.now
        news = delivery.news
        if news is not None:
            self._recorder.view(self.name, news.lost, now)
            return
        self._recorder.deliver(self.name, delivery.envelope, now, delivery.domain, delivery.frame.stamp)
        self._statistics.delivered(self.name, delivery.envelope, now)
        if self._options.durable and delivery.position % CONSUME_EVERY == 0:
            self._member.step(Consumed(delivery.position), now)
        if self.on_deliver is not None:
            self.on_deliver(self, delivery)

    def _set_wake(self, wake: int | None) -> None:
        if wake is None or (self._wake is not None and self._wake_at <= wake):
            return
        if self._wake is not None:
            self._kernel.cancel(self._wake)
        self._wake_at = wake
        self._wake = self._kernel.timer(max(0, wake - self._kernel.now), self._woken, self._life)

    def _woken(self, life: int) -> None:
        if life == self._life:
            self._wake = None
            self._handle(self._member.step(Timer(), self._kernel.now))
