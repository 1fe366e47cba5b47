"""A few members on disks of their own, driven by hand, any of which may crash before any single thing it does.

The contract of ``Ready`` is carried out here one operation at a time: make durable, send each packet, tell what was accepted,
hand over each delivery. A crash may come between any two of them. What is on disk stays, everything else is gone.

Rules that are checked all the way: nothing is acknowledged to a peer, and nothing is called accepted, unless its record is
on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from thence.core.codec import decode_packet, decode_record, encode_packet, encode_record
from thence.core.contract import Arrived, Consumed, Input, Ready, Restored, Submit, Timer
from thence.core.domain import Domain
from thence.core.member import Member, MemberOptions
from thence.core.messages import Packet
from thence.core.records import Skipped, Submitted, Taken
from thence.trace.events import Event

MAX_ROUNDS = 2_000


class Crash(Exception):
    """The process is gone."""


class Disk:
    """What survives: records and snapshot of the member, and how far the application has consumed."""

    def __init__(self) -> None:
        self.snapshot: bytes | None = None
        self.records: list[bytes] = []
        self.consumed = 0
        self.submitted: set[str] = set()
        self.taken: dict[str, set[int]] = {}


class Fleet:
    """The members of one domain. ``crash_at`` counts single operations of the whole fleet, from 1."""

    def __init__(
        self,
        domain: Domain,
        *,
        crash_at: Collection[int] = (),
        snapshots: bool = False,
        lose_every: int = 0,
        options: MemberOptions | None = None,
    ) -> None:
        self.domain = domain
        self.options = options or MemberOptions()
        self.crash_at = frozenset(crash_at)
        self.snapshots = snapshots
        self.lose_every = lose_every
        self.operations = 0
        self.crashes: list[str] = []
        self.packets = 0
        self.now = 0
        self.disks = {name: Disk() for name in domain.members}
        self.members = {name: Member(name, domain, self.options) for name in domain.members}
        self.wakes: dict[str, int | None] = dict.fromkeys(domain.members)
        self.network: list[tuple[str, str, bytes]] = []
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.events: list[Event] = []

    def submit(self, name: str, to: tuple[str, ...] | None, body: bytes = b"") -> None:
        """Let the application of ``name`` send; after a crash it tries again if nothing of it is on disk."""
        before = len(self.disks[name].submitted)
        while len(self.disks[name].submitted) == before:
            self.step(name, Submit(to, body))

    def step(self, name: str, step_input: Input) -> None:
        """Let a member take an input and carry out what follows, unless it crashes on the way."""
        try:
            self._carry_out(name, self.members[name].step(step_input, self.now))
        except Crash:
            self._restart(name)

    def arrive(self, place: int) -> None:
        """Let the packet at ``place`` arrive."""
        source, target, written = self.network.pop(place)
        self.step(target, Arrived(source, decode_packet(written, source)))

    def settle(self, choose: Callable[[int], int]) -> None:
        """Let everything arrive, and time pass, until nobody has anything left to say."""
        for _ in range(MAX_ROUNDS):
            if self.network:
                self.arrive(choose(len(self.network)))
                continue
            if not any(count for member in self.members.values() for count in member.queued().values()):
                return
            self.now = min(wake for wake in self.wakes.values() if wake is not None)
            for name, wake in self.wakes.items():
                if wake is not None and wake <= self.now:
                    self.step(name, Timer())
        raise AssertionError("the fleet never comes to rest")

    def _carry_out(self, name: str, ready: Ready) -> None:
        disk = self.disks[name]
        self.wakes[name] = ready.wake
        if ready.persist:
            self._operation()
            self._persist(name, ready)
        for peer, packet in ready.send:
            self._operation()
            self._check_acknowledged(name, peer, packet)
            self.packets += 1
            if not self.lose_every or self.packets % self.lose_every:
                self.network.append((name, peer, encode_packet(packet)))
        for envelope in ready.accepted:
            self._operation()
            assert str(envelope.id) in disk.submitted, "accepted before it was on disk"
            self.accepted.append(str(envelope.id))
        for delivery in ready.deliver:
            self._operation()
            assert delivery.position == disk.consumed + 1, "a delivery is repeated or lost"
            disk.consumed = delivery.position
            self._note(name, "deliver", str(delivery.envelope.id))
            self.members[name].step(Consumed(delivery.position), self.now)
        self.refused += [str(refusal) for refusal in ready.refused]
        if self.snapshots:
            self._operation()
            disk.snapshot, disk.records = self.members[name].snapshot(), []

    def _operation(self) -> None:
        self.operations += 1
        if self.operations in self.crash_at:
            raise Crash

    def _persist(self, name: str, ready: Ready) -> None:
        disk = self.disks[name]
        for record in ready.persist:
            disk.records.append(encode_record(record))
            if isinstance(record, Submitted):
                disk.submitted.add(str(record.envelope.id))
                self._note(name, "send", str(record.envelope.id), record.envelope.to or self.domain.members)
            elif isinstance(record, Taken | Skipped):
                disk.taken.setdefault(record.peer, set()).add(record.number)

    def _check_acknowledged(self, name: str, peer: str, packet: Packet[Any]) -> None:
        on_disk = self.disks[name].taken.get(peer, set())
        said = {*range(1, packet.taken + 1), *packet.taken_beyond}
        assert said <= on_disk, f"{name} acknowledges {sorted(said - on_disk)} of {peer} before they are on disk"

    def _restart(self, name: str) -> None:
        self.crashes.append(name)
        disk = self.disks[name]
        member = Member(name, self.domain, self.options)
        self.members[name] = member
        records = [decode_record(written) for written in disk.records]
        self.step(name, Restored(disk.snapshot, records, disk.consumed))

    def _note(self, process: str, kind: str, message: str, to: tuple[str, ...] | None = None) -> None:
        index = sum(event.process == process for event in self.events)
        self.events.append(Event(process=process, index=index, kind=kind, message=message, to=to))


def domain_of(ordering: str, members: tuple[str, ...], options: Mapping[str, Any] | None = None) -> Domain:
    """Return a domain called d."""
    return Domain("d", members, ordering, options or {})
