"""What a run adds up to: deliveries, delays, waits and control bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from thence.core.wire.messages import Envelope


@dataclass
class Statistics:
    """Counts of one run. Times are nanoseconds of simulated time."""

    messages: int = 0
    deliveries: int = 0
    frames: int = 0
    control_bytes: int = 0
    refused: int = 0
    busy: int = 0
    crashes: int = 0
    suspicions: int = 0
    """How many times a process suspected another one, rightly or not."""
    repeated_deliveries: int = 0
    delays_ns: list[int] = field(default_factory=list)
    longest_wait_ns: int = 0
    waited: int = 0
    """How many deliveries had to wait for another one after they had arrived."""
    _sent_at: dict[tuple[str, int], int] = field(default_factory=dict)
    _arrived_at: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def sent(self, envelope: Envelope, now: int) -> None:
        """A message was accepted."""
        self.messages += 1
        self._sent_at[envelope.origin, envelope.number] = now

    def arrived(self, process: str, envelope: Envelope, now: int) -> None:
        """A copy of a message reached a process; the first one counts, if it is for that process and not only to be relayed."""
        if envelope.to is None or process in envelope.to:
            self._arrived_at.setdefault((process, envelope.origin, envelope.number), now)

    def delivered(self, process: str, envelope: Envelope, now: int) -> None:
        """A message was delivered."""
        self.deliveries += 1
        sent_at = self._sent_at.get((envelope.origin, envelope.number))
        if sent_at is not None:
            self.delays_ns.append(now - sent_at)

    def ordered(self, process: str, envelope: Envelope, now: int) -> None:
        """A message's turn has come; what the disk takes from here on is no wait for another message."""
        waited_ns = now - self._arrived_at.pop((process, envelope.origin, envelope.number), now)
        if waited_ns:
            self.waited += 1
            self.longest_wait_ns = max(self.longest_wait_ns, waited_ns)

    def delay_ns(self, share: float) -> int:
        """Return the delay that this share of the deliveries did not exceed."""
        if not self.delays_ns:
            return 0
        ordered = sorted(self.delays_ns)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
