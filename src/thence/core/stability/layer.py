"""One layer for all kinds of ack: what was received, what is stable, and what is safe.

The inner transport carries frames and acknowledges those that were received. The acks of ``core.stability.stable`` and
``core.stability.safe`` go with its packets, by the rules of ``core.stability.policy``. All are timed by ``core.transport.acks``.
An ack of a received frame decides what a packet holds, and the question for it is the frame sent again: so it is the transport's,
not one more addition to a finished packet (docs/concepts/acks.md).
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from typing import Any

from thence.core.epochs.progress import Progress
from thence.core.stability.policy import Groups
from thence.core.stability.safe import SafeAcks
from thence.core.stability.safe_notification import SafeNotification, SavedSafeNotification
from thence.core.stability.stable import SavedStable, StableAcks
from thence.core.transport.base import Frames, Incoming, Packets, Transport
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Packet

SavedAcks = tuple[SavedStable | None, SavedSafeNotification | None]
"""What a restart needs of each policy."""


class AckLayer(Transport):
    """An inner transport, and the policies whose acks go with its packets."""

    def __init__(
        self,
        inner: Transport,
        resend_after_ns: int | None,
        *,
        stable: bool = False,
        uniform: bool = False,
        groups: Groups | None = None,
    ) -> None:
        """``stable``: messages are kept until they are stable. ``uniform``: it is found out when they are safe.

        ``groups`` says of each replica who stands for the same relay, where one is not waited for if another one stands in.
        """
        super().__init__(inner.name, inner.me, inner.peers, inner.queues)
        self.inner = inner
        self.exact, self.repeated_by_others = inner.exact, inner.repeated_by_others
        self.safe = SafeAcks(inner, resend_after_ns, groups or {}) if uniform else None
        self.safe_notification = None if self.safe is None else SafeNotification(self.safe)
        self.stable = StableAcks(inner, resend_after_ns, groups or {}) if stable else None
        self._put_together()
        if isinstance(inner, Direct):
            inner.numbers, inner.acks = True, self.safe is not None

    def _put_together(self) -> None:
        self.policies = tuple(policy for policy in (self.safe, self.stable) if policy is not None)
        self.kept = self.inner if self.stable is None else self.stable
        self.queues, self.unacked = self.kept.queues, self.inner.unacked

    def _follow(self) -> None:
        """Take over what the inner transport and the policies say."""
        times = [one.wake_at for one in (self.inner, *self.policies) if one.wake_at is not None]
        self.wake_at = min(times, default=None)
        self.queued, self.queued_bytes = self.kept.queued, self.kept.queued_bytes

    def check(self, peer: str, packet: Packet[Any]) -> None:
        for policy in self.policies:
            policy.check(peer, packet)
        if not self._has_only_acks(packet):
            self.inner.check(peer, packet)

    def _has_only_acks(self, packet: Packet[Any]) -> bool:
        """Return whether a packet holds nothing for the inner transport."""
        said = packet.frames or packet.numbers or packet.acked or packet.acked_beyond or packet.group_acks is not None
        return not said and any(getattr(packet, policy.part) is not None for policy in self.policies)

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        return self.inner.had(peer, packet)

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        for policy in self.policies:
            policy.check(peer, packet)
        incoming = [] if self._has_only_acks(packet) else self.inner.frames_in(peer, packet, now)
        for policy in self.policies:
            policy.came(peer, packet, now)
        self._follow()
        return incoming

    def take(self, incoming: Incoming) -> None:
        self.inner.take(incoming)
        for policy in self.policies:
            policy.took(incoming.peer, incoming.number)

    def skip(self, peer: str, number: int) -> None:
        self.inner.skip(peer, number)
        for policy in self.policies:
            policy.skipped(peer, number)

    def push(self, frames: Frames, came_by: str = "") -> None:
        """Queue the frames of one message, which came here by a place; ``collect`` sends them."""
        self.inner.push(frames)
        for policy in self.policies:
            policy.pushed(frames, came_by)
        if self.safe_notification is not None:
            self.safe_notification.pushed()
        self._follow()

    def visit_all(self) -> None:
        for one in (self.inner, *self.policies):
            one.visit_all()
        self._follow()

    def connected(self, peer: str) -> None:
        for one in (self.inner, *self.policies):
            one.connected(peer)
        self._follow()

    def suspect(self, peer: str, suspected: bool) -> None:
        self.inner.suspect(peer, suspected)
        for policy in self.policies:
            policy.suspect(peer, suspected)
        self._follow()

    def collect(self, now: int) -> Packets:
        packets = self.inner.collect(now)
        for policy in self.policies:
            packets = policy.attach(packets, now)
        self._follow()
        return packets

    def acked(self, peer: str, number: int) -> bool:
        return self.inner.acked(peer, number)

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        return self.inner.moved(without)

    def unacked_messages(self) -> Iterator[Envelope]:
        """Yield the messages that somebody has not acknowledged, or that are not stable."""
        return self.inner.unacked_messages() if self.stable is None else self.stable.messages()

    def progress(self, peer: str) -> Progress | None:
        return self.inner.progress(peer)

    def windows(self) -> dict[str, int]:
        return self.inner.windows()

    def fork(self) -> AckLayer:
        twin = copy.copy(self)
        twin.inner = self.inner.fork()
        if self.safe is not None and self.safe_notification is not None:
            twin.safe = self.safe.fork(twin.inner)
            twin.safe_notification = self.safe_notification.fork(twin.safe)
        twin.stable = None if self.stable is None else self.stable.fork(twin.inner)
        twin._put_together()
        return twin

    def save(self) -> Any:
        return self.inner.save()

    def load(self, saved: Any) -> None:
        self.inner.load(saved)
        self._follow()

    def save_acks(self) -> SavedAcks:
        """Return what a restart needs beside the state of the inner transport."""
        stable, notification = self.stable, self.safe_notification
        return None if stable is None else stable.save(), None if notification is None else notification.save()

    def load_acks(self, saved: SavedAcks) -> None:
        """Restore what ``save_acks`` returned."""
        if self.stable is not None:
            self.stable.load(saved[0])
        if self.safe_notification is not None:
            self.safe_notification.load(saved[1])
        self._follow()
