"""A few members on disks of their own, driven by hand, any of which may crash before any single thing it does.

The contract of ``Ready`` is carried out here one operation at a time: make durable, send each packet, tell what was accepted,
hand over each delivery. A crash may come before each of them, and when all is done. What is on disk stays, everything else is
gone. They are the members of one domain, or of a whole fabric with its relays and links.

Rules that are checked all the way: nothing is acknowledged to a peer, and nothing is called accepted, unless its record is
on disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from itertools import permutations
from typing import Any

from thence.core.member.codec import decode_packet, decode_record, encode_packet, encode_record
from thence.core.member.contract import Arrived, Consumed, Input, Ready, Restored, Submit, Suspicion, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.transport.ack_all.claims import claimed_beyond
from thence.core.wire.messages import Packet
from thence.core.wire.records import Received, Skipped, Submitted
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
        self.taken: dict[tuple[str, str], set[int]] = {}
        """By domain or link, and by peer: the two may share several."""


class Fleet:
    """The members of a domain or a fabric. ``crash_at`` counts single operations of the whole fleet, from 1.

    Who crashes is back at once. A replica of a relay stays away until all others have come to rest, if another one can take over.
    """

    checked = True
    """Whether the rules are checked all the way. Without that, a mistake has to be found in what came of it."""

    def __init__(
        self,
        where: Domain | Topology,
        *,
        crash_at: Collection[int] = (),
        snapshots: bool = False,
        lose_every: int = 0,
        options: MemberOptions | None = None,
    ) -> None:
        self.topology = where if isinstance(where, Topology) else Topology.flat(where)
        self.routes = Routes(self.topology)
        self.options = options or MemberOptions()
        self.crash_at = frozenset(crash_at)
        self.snapshots = snapshots
        self.lose_every = lose_every
        self.operations = 0
        self.crashes: list[tuple[str, str]] = []
        """Who crashed, and before what."""
        self.away: list[str] = []
        self._chance = random.Random(lose_every)
        self.now = 0
        processes = self.topology.processes
        self.disks = {name: Disk() for name in processes}
        self.members = {name: Member(name, self.routes, self.options) for name in processes}
        self.wakes: dict[str, int | None] = dict.fromkeys(processes)
        self.network: list[tuple[str, str, bytes]] = []
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.events: list[Event] = []
        self._indices = dict.fromkeys(processes, 0)

    def submit(self, name: str, to: tuple[str, ...] | None, body: bytes = b"") -> None:
        """Let the application of ``name`` send; after a crash it tries again if nothing of it is on disk."""
        before = len(self.disks[name].submitted)
        while len(self.disks[name].submitted) == before:
            self.step(name, Submit(to, body))

    def step(self, name: str, step_input: Input) -> None:
        """Let a member take an input and carry out what follows, unless it crashes on the way."""
        try:
            self._carry_out(name, self.members[name].step(step_input, self.now))
        except Crash as crash:
            self.crashes.append((name, str(crash)))
            self._crashed(name)

    def suspect(self, name: str, peer: str, suspected: bool) -> None:
        """Let ``name`` hold a peer for dead, or no longer; after a crash it is told again if nothing of it is on disk."""
        while name not in self.away and (peer in self.members[name].attachment.suspected) != suspected:
            self.step(name, Suspicion(peer, suspected))

    def arrive(self, place: int) -> None:
        """Let the packet at ``place`` arrive, if there is somebody."""
        source, target, written = self.network.pop(place)
        if target in self.away:
            return
        self.step(target, Arrived(source, decode_packet(written, source)))

    def settle(self, choose: Callable[[int], int]) -> None:
        """Let everything arrive, and time pass, until nobody has anything left to say."""
        for _ in range(MAX_ROUNDS):
            if self.network:
                self.arrive(choose(len(self.network)))
                continue
            if self.away:
                self._come_back(self.away[0])
                continue
            if not any(self._has_work(member) for member in self.members.values()):
                return
            wakes = [wake for wake in self.wakes.values() if wake is not None]
            if not wakes:
                return  # Nobody will ever do anything again: the judge sees what is missing.
            self.now = min(wakes)
            for name, wake in self.wakes.items():
                if wake is not None and wake <= self.now:
                    self.step(name, Timer())
        raise AssertionError("the fleet never comes to rest")

    def _has_work(self, member: Member) -> bool:
        """Return whether somebody is to hear of something, or something waits to be delivered."""
        return (
            any(member.attachment.queued().values())
            or bool(member.attachment.waiting())
            or bool(member.forwarder.unstable())
            or member.log.unsafe > 0
        )

    def _carry_out(self, name: str, ready: Ready) -> None:
        """What the contract of ``Ready`` says, in its order."""
        before = self.operations
        self.wakes[name] = ready.wake
        self._persist(name, ready)
        self._send(name, ready)
        self._accept(name, ready)
        self._deliver(name, ready)
        self.refused += [str(refusal) for refusal in ready.refused]
        if self.snapshots:
            self._operation("snapshot")
            self.disks[name].snapshot, self.disks[name].records = self.members[name].snapshot(), []
        if self.operations > before:
            self._operation("rest")

    def _operation(self, what: str) -> None:
        self.operations += 1
        if self.operations in self.crash_at:
            raise Crash(what)

    def _persist(self, name: str, ready: Ready) -> None:
        disk = self.disks[name]
        if ready.persist:
            self._operation("persist")
        for record in ready.persist:
            disk.records.append(encode_record(record))
            if isinstance(record, Submitted):
                disk.submitted.add(str(record.envelope.id))
                self._note(name, "send", str(record.envelope.id), record.envelope.to or self.topology.processes)
            elif isinstance(record, Received | Skipped):
                disk.taken.setdefault((record.domain, record.peer), set()).add(record.number)

    def _send(self, name: str, ready: Ready) -> None:
        for peer, packet in ready.send:
            self._operation("send" if packet.frames else "acknowledge")
            self._check_acknowledged(name, peer, packet)
            # By chance: if it were each so many-th, one that is repeated with others in a round would be lost in each of them.
            if not self.lose_every or self._chance.randrange(self.lose_every):
                self.network.append((name, peer, encode_packet(packet)))

    def _accept(self, name: str, ready: Ready) -> None:
        for envelope in ready.accepted:
            self._operation("accept")
            assert not self.checked or str(envelope.id) in self.disks[name].submitted, "accepted before it was on disk"
            self.accepted.append(str(envelope.id))

    def _deliver(self, name: str, ready: Ready) -> None:
        disk = self.disks[name]
        for delivery in ready.deliver:
            self._operation("deliver")
            assert delivery.position == disk.consumed + 1, "a delivery is repeated or lost"
            disk.consumed = delivery.position
            self._note(name, "deliver", str(delivery.envelope.id))
            self.members[name].step(Consumed(delivery.position), self.now)

    def _check_acknowledged(self, name: str, peer: str, packet: Packet[Any]) -> None:
        said = {peer: {*range(1, packet.acked + 1), *packet.acked_beyond}}
        if packet.group_acks is not None:  # It says to everybody what it has of whom.
            members = self.topology.domains[packet.domain].members
            for claim in packet.group_acks.claims:
                said[members[claim[0]]] = {*range(1, claim[1] + 1), *claimed_beyond(claim)}
            said.pop(name, None)
        for sender, numbers in said.items():
            early = numbers - self.disks[name].taken.get((packet.domain, sender), set())
            assert not self.checked or not early, f"{name} acknowledges {sorted(early)} of {sender} before they are on disk"

    def _crashed(self, name: str) -> None:
        """Let it come back at once, or later if another replica can do its work."""
        fellows = self.topology.fellows.get(name, ())
        if len(fellows) < 2 or any(fellow in self.away for fellow in fellows):
            self._restart(name)
            return
        self.away.append(name)
        self.wakes[name] = None
        self._tell_of_each_other(fellows)

    def _come_back(self, name: str) -> None:
        self._restart(name)
        self.away.remove(name)
        self._tell_of_each_other(self.topology.fellows[name])

    def _tell_of_each_other(self, fellows: tuple[str, ...]) -> None:
        for name, peer in permutations(fellows, 2):
            self.suspect(name, peer, peer in self.away)

    def _restart(self, name: str) -> None:
        disk = self.disks[name]
        self.members[name] = Member(name, self.routes, self.options)
        records = [decode_record(written) for written in disk.records]
        self.step(name, Restored(disk.snapshot, records, disk.consumed))

    def _note(self, process: str, kind: str, message: str, to: tuple[str, ...] | None = None) -> None:
        index = self._indices[process]
        self._indices[process] += 1
        self.events.append(Event(process=process, index=index, kind=kind, message=message, to=to))


def domain_of(ordering: str, members: tuple[str, ...], options: Mapping[str, Any] | None = None) -> Domain:
    """Return a domain called d."""
    return Domain("d", members, ordering, options or {})
