"""One simulated process: the loop around ``step``, with a disk that forgets what was not synced and an application that does not.

This does with a ``Ready`` exactly what the server's driver does: first the disk, then the network and the
acknowledgement, then the application. Records that come while the disk is busy share the next sync.

The application is one that stores its position together with the effects of a delivery, as the guarantees ask for.
So after a crash the member is told that position and delivers from there on.

A process may have two more parts. With ``connections`` it talks to its peers over links, in epochs, and can be copied; without
them the network carries its packets as they are. With ``participant`` it takes part in changes of the topology.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NamedTuple

import msgspec

from thence.core.failover.early_payloads import BodyAhead
from thence.core.member.codec import decode_record, encode_record
from thence.core.member.contract import Arrived, Connected, Consumed, Delivery, Input, Ready, Restored, Submit, Suspicion, Timer
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.reconfig.protocol import FABRIC
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, MessageId, Packet, control_bytes
from thence.errors import Busy, UsageError
from thence.sim.disk import Disk
from thence.sim.kernel import Kernel
from thence.sim.network import Network
from thence.sim.parts.connections import ClaimRecord, ConnectionMemory, Connections, Surroundings
from thence.sim.parts.participant import Participant, VersionedPacket
from thence.sim.parts.sync_queue import Alarm, SyncQueue
from thence.sim.statistics import Statistics
from thence.trace.recorder import Recorder

CONSUME_EVERY = 64
"""How many deliveries the application makes before it tells the member how far it is."""

FRAME_BYTES = 24
"""What a frame costs on the wire beside its stamp and its body, roughly."""


class AcceptedMessage(NamedTuple):
    """A message whose application knows that it was accepted. Its body is used once, so it names the message whoever forgets."""

    id: MessageId
    to: tuple[str, ...]
    body: bytes


@dataclass
class Knowledge:
    """What an application knows. It is part of what a copy of the disk holds: a copy is one of a whole machine."""

    consumed: int = 0
    last_send: int = 0
    accepted: list[AcceptedMessage] = field(default_factory=list)
    """This and the next one only where the process can be copied."""
    got: dict[bytes, None] = field(default_factory=dict)

    def copy(self) -> Knowledge:
        """Return the same, to go on by itself."""
        return Knowledge(self.consumed, self.last_send, list(self.accepted), dict(self.got))


class MachineCopy(NamedTuple):
    """A copy of a disk, and what the application knew then."""

    disk: Disk
    knowledge: Knowledge


class Memory(NamedTuple):
    """A snapshot of a machine that runs, with its memory. Nothing was being stored."""

    member: Member
    connections: ConnectionMemory
    machine: MachineCopy


class SimulatedNode:
    """A process that is up and has done nothing yet."""

    connected = False
    """Whether it has connections also where nobody runs on a copy. This and the next two are for tests and planted mistakes."""
    connections_type = Connections
    participant_type = Participant

    def __init__(
        self,
        name: str,
        routes: Routes,
        options: MemberOptions,
        kernel: Kernel,
        network: Network,
        disk: Disk,
        recorder: Recorder,
        statistics: Statistics,
    ) -> None:
        """Make a process without connections that takes part in no change."""
        self.name = name
        self.up = True
        self.dead = False
        """Whether it is down for good."""
        self.on_deliver: Callable[[SimulatedNode, Delivery], None] | None = None
        self.member = Member(name, routes, options)
        """The member as it is now; a restart makes a new one."""
        self.connections: Connections | None = None
        self.participant: Participant | None = None
        self.knowledge = Knowledge()
        self.frames_refused = 0
        self.queue = SyncQueue(disk, kernel, self._snapshot)
        self._made_of = (routes, options)
        self._kernel = kernel
        self._network = network
        self._recorder = recorder
        self._statistics = statistics
        self._alarm = Alarm(kernel, self.queue, lambda: self._step(Timer()))

    def connect(self, address: str, chance: Random) -> None:
        """Talk to peers over links from now on. Others call a process at its address, which is its name unless it is a copy."""
        process = Surroundings(lambda: self.member, self._take, self._joined)
        parts = (peers(self.member.topology, self.name), chance, self._kernel, self._network, self.queue, process)
        self.connections = self.connections_type((self.name, address), *parts)
        self.connections.look(self.queue.life)

    def take_part(self) -> Participant:
        """Take part in changes of the topology from now on."""
        self.participant = self.participant_type(self._kernel, self.queue, lambda: self.member, self._step)
        return self.participant

    @property
    def fenced(self) -> bool:
        """Whether it does nothing any more since it is an old copy."""
        return self.connections is not None and bool(self.connections.fenced)

    def submit(self, to: tuple[str, ...] | None, body: bytes) -> bool:
        """Let the application send; return whether that is done with. Where the topology changes, what cannot be is dropped."""
        if self.connections is not None and self.connections.fenced:
            return False
        try:
            self._handle(self.member.step(Submit(to, body), self._kernel.now))
        except Busy:
            self._statistics.busy += 1
            return False
        except UsageError:
            if self.participant is None:
                raise
            self._statistics.refused += 1
        return True

    def receive(self, source: str, packet: Any) -> None:
        """Take what has come in from the network; nothing while the process is down or fenced."""
        if self.up and self.connections is None:
            self._take(source, packet)
        elif self.up and self.connections is not None and not self.connections.fenced:
            self.connections.receive(source, packet)

    def suspect(self, peer: str, suspected: bool) -> None:
        """Begin or end to suspect a peer."""
        if not self.up or self.fenced:
            return
        topology = self.member.topology
        if self.participant is None or (self.member.view.state.phase != "left" and peer in peers(topology, self.name)):
            self._step(Suspicion(peer, suspected))

    def crash(self) -> None:
        """Lose everything but what the disk has synced, and all connections."""
        self.up = False
        self._alarm.forget()
        self.queue.crash()
        self._recorder.note(self.name, "crash", self._kernel.now)
        self._statistics.crashes += 1
        if self.connections is not None:
            self._network.drop_in_flight(self.connections.address)

    def restart(self) -> None:
        """Come back with what is on the disk."""
        if self.dead or self.fenced or self.up:
            return  # Up: it came back on a copy before the end of its crash.
        now = self._kernel.now
        self._recorder.note(self.name, "recover", now)
        self.up = True
        self.member = Member(self.name, *self._made_of)
        ready = self._bring_back(now)
        # A submission that reached the disk just before the crash was accepted, though nobody was told: it counts as
        # sent from here on, and before whatever is delivered now, which it may have been caused by.
        for envelope in ready.sent:
            if envelope.number > self.knowledge.last_send:
                self._accepted(envelope)
        self._handle(msgspec.structs.replace(ready, sent=()))
        if self.connections is not None:
            self.connections.look(self.queue.life)
        if self.participant is not None:
            self.participant.started()

    def _bring_back(self, now: int) -> Ready:
        snapshot, claims = self.queue.disk.snapshot or (None, {})
        records = self.queue.disk.records()
        mine = [decode_record(record) for record in records if type(record) is not ClaimRecord]
        ready = self.member.step(Restored(snapshot, mine, self.knowledge.consumed), now)
        if self.connections is not None:
            there = [] if self.member.view.state.phase == "left" else peers(self.member.topology, self.name)
            self.connections.restart(there, claims, [record for record in records if type(record) is ClaimRecord])
        return ready

    def _snapshot(self) -> object:
        """Return what stands for everything on the disk."""
        return self.member.snapshot(), {} if self.connections is None else dict(self.connections.claims)

    def _joined(self, peer: str) -> None:
        if any(peer in place.peers for place in self.member.attachment.places.values()):  # Else we have left, and it has not.
            self._step(Connected(peer))

    # Copies.

    def copied(self) -> MachineCopy:
        """Return a copy of the machine, as it would come back from a crash now."""
        return MachineCopy(self.queue.disk.copy(), self.knowledge.copy())

    def return_to(self, machine: MachineCopy) -> None:
        """Be on this copy from the next start on."""
        chance = None if self.connections is None else self.connections.chance
        self.queue.disk, self.knowledge = machine.disk.copy(chance), machine.knowledge.copy()

    def beside(self, address: str, chance: Random) -> SimulatedNode:
        """Return another process under the same name, elsewhere, on an empty disk."""
        disk = Disk(self.queue.disk.options, chance)
        made = type(self)(self.name, *self._made_of, self._kernel, self._network, disk, self._recorder, self._statistics)
        made.on_deliver = self.on_deliver
        made.connect(address, chance)
        return made

    def memory(self) -> Memory | None:
        """Return a snapshot of the machine with its memory; None: not now, since something is being stored."""
        if not self.up or not self.queue.idle or self.connections is None:
            return None
        return Memory(self.member.fork(), self.connections.memory(), self.copied())

    def resume(self, memory: Memory) -> None:
        """Go on from a snapshot, without a start."""
        self.up = True
        self.queue.drop()
        self._alarm.forget()
        self.member = memory.member.fork()
        self.return_to(memory.machine)
        if self.connections is not None:
            self.connections.resume(memory.connections)
            self.connections.look(self.queue.life)
        if self.participant is not None:
            self.participant.started()
        self._step(Timer())

    # The loop.

    def _step(self, step_input: Input) -> None:
        self._handle(self.member.step(step_input, self._kernel.now))

    def _take(self, source: str, packet: Any) -> None:
        """Let the member have a packet."""
        if self.participant is not None:
            packet = self.participant.opened(source, packet)
            if packet is None:
                return
        now = self._kernel.now
        for frame in packet.frames:
            envelope = frame.envelope
            if envelope is not None and type(frame.stamp) is not BodyAhead:
                self._statistics.arrived(self.name, envelope, now)
                if self._recorder.arrivals and envelope.is_for(self.name, self.member.view.state.since):
                    self._recorder.arrive(self.name, envelope, now, packet.domain)
        self._handle(self.member.step(Arrived(source, packet), now))

    def _handle(self, ready: Ready) -> None:
        """First the disk; the rest when that is done, in order."""
        if ready.refused:
            self._statistics.refused += len(ready.refused)
            self.frames_refused += len(ready.refused)
        for delivery in ready.deliver:
            if delivery.envelope.origin != FABRIC:
                self._statistics.ordered(self.name, delivery.envelope, self._kernel.now)
        if self.participant is not None and ready.send:
            sealed: Any = tuple((peer, self.participant.sealed(packet)) for peer, packet in ready.send)
            ready = msgspec.structs.replace(ready, send=sealed)
        if not ready.persist and not self.queue.waiting:
            self._perform(ready)
        else:
            self.queue.store(map(encode_record, ready.persist), partial(self._perform, ready))

    def _perform(self, ready: Ready) -> None:
        """Send, acknowledge, deliver: what comes after the disk."""
        for peer, packet in ready.send:
            self._transmit(peer, packet)
        for envelope in ready.sent:
            self._accepted(envelope)
        for delivery in ready.deliver:
            self._deliver(delivery)
        if ready.wake is not None:
            self._alarm.set(ready.wake)

    def _transmit(self, peer: str, packet: Any) -> None:
        plain: Packet[Any] = packet.packet if type(packet) is VersionedPacket else packet
        size = FRAME_BYTES + control_bytes(plain.group_acks) + control_bytes(plain.stable_ack) + control_bytes(plain.safe_ack)
        for frame in plain.frames:
            stamp_bytes = control_bytes(frame.stamp, frame.envelope)
            self._statistics.frames += 1
            self._statistics.control_bytes += stamp_bytes
            size += FRAME_BYTES + stamp_bytes + (len(frame.envelope.body) if frame.envelope else 0)
        if self.connections is None:
            self._network.send(self.name, peer, packet, size)
        else:
            self.connections.send(peer, packet, plain, size)

    def _accepted(self, envelope: Envelope) -> None:
        now, topology = self._kernel.now, self.member.topology
        self.knowledge.last_send = envelope.number
        self._recorder.send(self.name, envelope, now, topology.homes[self.name][0], topology.processes)
        self._statistics.sent(envelope, now)
        if self.connections is not None:
            to = topology.processes if envelope.to is None else envelope.to
            self.knowledge.accepted.append(AcceptedMessage(envelope.id, to, envelope.body))

    def _deliver(self, delivery: Delivery) -> None:
        if delivery.position <= self.knowledge.consumed:
            self._statistics.repeated_deliveries += 1
        self.knowledge.consumed = delivery.position
        now = self._kernel.now
        if delivery.news is not None:
            self._recorder.view(self.name, delivery.news.lost, now)
            return
        if self.connections is not None:
            self.knowledge.got[delivery.envelope.body] = None
        self._recorder.deliver(self.name, delivery.envelope, now, delivery.domain, delivery.frame.stamp)
        self._statistics.delivered(self.name, delivery.envelope, now)
        if self._made_of[1].durable and delivery.position % CONSUME_EVERY == 0:
            self.member.step(Consumed(delivery.position), now)
        if self.on_deliver is not None:
            self.on_deliver(self, delivery)


def peers(topology: Topology, process: str) -> list[str]:
    """Return who shares a domain or a link with a process."""
    names = {name for home in topology.homes[process] for name in topology.domains[home].members}
    names.update(name for link in topology.links.values() if process in link.members for name in link.members)
    return sorted(names - {process})
