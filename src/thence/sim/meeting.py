"""A simulated process that meets its peers in epochs, as servers do, by the same handshake (``core.epochs.handshake``).

Rules:

* What two processes say to each other goes over a *link*: one connection, which one of them called for. On a link everything
  arrives in order or, if something was lost, nothing more does, as with TCP. What comes on a link that does not stand any more is
  answered with a reset.
* A process that shows itself to be an old copy, or one of two, is *fenced*: it does nothing any more.
* What the application has sent and got is part of what a copy of the disk holds (``Life``): a copy is one of a whole machine.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, EpochFit
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.core.epochs.progress import Progress
from thence.core.epochs.reach import Reach
from thence.core.member.codec import decode_record
from thence.core.member.contract import Connected, Delivery, Ready, Restored, Timer
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, MessageId, Packet
from thence.sim.disk import Disk
from thence.sim.node import Node

LOOK_NS = 50_000_000
"""How often a process looks whom to call."""

CALL_AFTER_NS = 50_000_000
"""How long after it lost a peer it calls it at first,"""

LONELY_NS = 1_000_000_000
"""and how long if it is for the other to call."""

HANDSHAKE_NS = 1_000_000_000
"""How long a handshake may take."""

PING_NS = 1_000_000_000
"""After how long a process that has nothing to say on a link says that."""

SAID_BYTES = 200
"""What a step of a handshake costs on the wire, roughly."""


class Link(NamedTuple):
    """One connection: who called whom, and the how-manieth call it was."""

    caller: str
    called: str
    call: int


class Said(NamedTuple):
    """What goes over a link. ``number`` counts what its sender has said on it."""

    link: Link
    number: int
    kind: Literal["hello", "welcome", "refused", "agreed", "packet", "ping", "reset"]
    name: str = ""
    """Of a hello: the name of the caller."""
    claim: Claim | None = None
    progress: dict[str, Progress] = {}  # noqa: RUF012  Nobody changes it.
    epoch: Epoch = Epoch()
    packet: Packet[Any] | None = None


class Stored(NamedTuple):
    """A record that is not the member's: a claim, or without a peer that the process is fenced."""

    peer: str
    claim: Claim


class Message(NamedTuple):
    """A message that an application was told to be accepted. Its body is used once, so it names the message whoever forgets."""

    id: MessageId
    to: tuple[str, ...] | None
    body: bytes


@dataclass
class Life:
    """What an application knows, and its disk with it."""

    consumed: int = 0
    last_send: int = 0
    accepted: list[Message] = field(default_factory=list)
    got: dict[bytes, None] = field(default_factory=dict)

    def copy(self) -> Life:
        """Return the same, to go on by itself."""
        return Life(self.consumed, self.last_send, list(self.accepted), dict(self.got))


class Memory(NamedTuple):
    """A snapshot of a machine that runs, with its memory. Nothing was being stored."""

    member: Member
    claims: dict[str, Claim]
    reach: Reach
    consumed: int
    last_send: int
    joined: tuple[str, ...]
    disk: Disk
    life: Life


@dataclass
class _End:
    """Our end of a link."""

    peer: str
    remote: str
    since_ns: int
    spoke_ns: int = 0
    said: int = 0
    heard: int = 0


class MeetingNode(Node):
    """See the module's text."""

    handshake_type = Handshake
    """For planted mistakes."""
    address = ""
    """Where it is. Others call a process at its name; a copy that runs beside it is elsewhere, and calls them."""
    fenced = ""
    """Why it does nothing any more, if so."""
    frames_refused = 0
    """How many frames it refused, aloud, since they depend on what it has forgotten itself."""
    chance = Random(0)

    def begin(self, peers: list[str], chance: Random) -> None:
        """Look for these peers from now on."""
        self.address = self.address or self.name
        self.peers = peers
        self.chance = chance
        self.refused: dict[str, str] = {}
        """With whom it does not go on, and why."""
        self.life = Life()
        self._calls = 0
        self._claims: dict[str, Claim] = {}
        self.reach = Reach()
        self._meet_anew()
        self._look(self._life)

    def _meet_anew(self) -> None:
        self._handshakes = {peer: self.handshake_type(self.name, peer, self._claims.get(peer, NEVER_MET)) for peer in self.peers}
        self._ends: dict[Link, _End] = {}
        self._joined: dict[str, Link] = {}
        self._call_at = dict.fromkeys(self.peers, 0)

    def is_joined(self, peer: str) -> bool:
        """Return whether it is connected with a peer."""
        return peer in self._joined

    # Copies.

    def copied(self) -> tuple[Disk, Life]:
        """Return a copy of the machine, as it would come back from a crash now."""
        return self._disk.copy(self.chance), self.life.copy()

    def return_to(self, disk: Disk, life: Life) -> None:
        """Be on this disk from the next start on."""
        self._disk, self.life = disk.copy(self.chance), life.copy()

    def beside(self, address: str, disk: Disk) -> MeetingNode:
        """Return another process under the same name, elsewhere, which has not begun."""
        parts = (self._routes, self._options, self._kernel, self._network, disk, self._recorder, self._statistics)
        made = type(self)(self.name, *parts)
        made.address = address
        return made

    def memory(self) -> Memory | None:
        """Return a snapshot of the machine with its memory; None: not now, since something is being stored."""
        if not self.up or self._pending or self._syncing:
            return None
        parts = (self._member.fork(), dict(self._claims), deepcopy(self.reach), self._consumed, self._last_recorded_send)
        return Memory(*parts, tuple(self._joined), *self.copied())

    def resume(self, memory: Memory) -> None:
        """Go on from a snapshot, without a start. Connections are gone: others have gone on with them."""
        self.up = True
        self._life += 1
        self._pending.clear()
        self._syncing, self._wake = False, None
        self._member, self._claims, self.reach = memory.member.fork(), dict(memory.claims), deepcopy(memory.reach)
        self._consumed, self._last_recorded_send = memory.consumed, memory.last_send
        self.return_to(memory.disk, memory.life)
        self._meet_anew()
        for peer in memory.joined:
            self._handshakes[peer].link, self._handshakes[peer].stage = "gone", "joined"
            if self._handshakes[peer].lost("gone", self._own(peer)):
                self._store(peer, _nothing)
        self._look(self._life)
        self._handle(self._member.step(Timer(), self._kernel.now))

    def crash(self) -> None:
        """Lose everything but what the disk has synced, and all connections."""
        super().crash()
        self._network.drop_in_flight(self.address)

    def restart(self) -> None:
        """Come back with what is on the disk."""
        if self.fenced or self.up:
            return  # Up: it came back on a copy before the end of its crash.
        self._consumed, self._last_recorded_send = self.life.consumed, self.life.last_send
        super().restart()
        if not self.fenced:
            self._look(self._life)

    def _bring_back(self, now: int) -> Ready:
        snapshot, self._claims, self.fenced = self._disk.snapshot or (None, {}, "")
        self._claims = dict(self._claims)
        records = []
        for record in self._disk.records():
            if not isinstance(record, Stored):
                records.append(decode_record(record))
            elif record.peer:
                self._claims[record.peer] = record.claim
        ready = self._member.step(Restored(snapshot, records, self._consumed), now)
        for peer, claim in self._claims.items():
            self._claims[peer] = self._started(claim, {place: known.sent for place, known in self._member.progress(peer).items()})
            self._disk.append(Stored(peer, self._claims[peer]))
        self.reach = Reach()
        self.reach.start({peer: {name: known.sent for name, known in self._member.progress(peer).items()} for peer in self.peers})
        self._meet_anew()
        return ready

    def _started(self, claim: Claim, sent: dict[str, int]) -> Claim:
        return claim.started(sent)

    def _snapshot(self) -> object:
        return self._member.snapshot(), dict(self._claims), self.fenced

    # Meeting.

    def _look(self, life: int) -> None:
        if life != self._life or self.fenced or not self.up:
            return
        now = self._kernel.now
        for link, end in list(self._ends.items()):
            if self._joined.get(end.peer) != link and now - end.since_ns > HANDSHAKE_NS:
                self._break(link)
        for link in list(self._joined.values()):
            if now - self._ends[link].spoke_ns > PING_NS:
                self._say(link, "ping")
        for peer, handshake in self._handshakes.items():
            if handshake.stage == "idle" and now >= self._call_at[peer]:
                self._call_at[peer] = now + HANDSHAKE_NS
                self._when_durable(partial(self._call, peer))
        self._kernel.schedule(LOOK_NS, self._look, life)

    def _when_durable(self, then: Callable[[], None]) -> None:
        if self._pending:
            self._pending.append(then)
        else:
            then()

    def _store(self, peer: str, then: Callable[[], None]) -> None:
        self._claims[peer] = self._handshakes[peer].claim
        self._disk.append(Stored(peer, self._claims[peer]))
        self._pending.append(then)
        if not self._syncing:
            self._sync()

    def _own(self, peer: str) -> Own:
        progress = self._member.progress(peer)
        return Own(progress, self.reach.of(peer, progress))

    def _shown(self, peer: str) -> dict[str, Any]:
        own = self._own(peer)
        return {"claim": self._handshakes[peer].shows(own), "progress": dict(own.progress)}

    def _call(self, peer: str) -> None:
        if self._handshakes[peer].stage != "idle":
            return  # It has called us meanwhile.
        self._calls += 1
        link = Link(self.address, peer, self._calls)
        self._ends[link] = _End(peer, peer, self._kernel.now)
        self._handshakes[peer].call(link)
        self._say(link, "hello", name=self.name, **self._shown(peer))

    def _say(self, link: Link, kind: Any, size_bytes: int = SAID_BYTES, **what: Any) -> None:
        end = self._ends[link]
        self._network.send(self.address, end.remote, Said(link, end.said, kind, **what), size_bytes)
        end.said += 1
        end.spoke_ns = self._kernel.now

    def _put_on(self, peer: str, packet: Packet[object], size_bytes: int) -> None:
        link = self._joined.get(peer)
        if link is not None:
            self.reach.write(self.reach.written_to(peer), packet)
            self._say(link, "packet", size_bytes, packet=packet)

    # What comes in.

    def receive(self, source: str, packet: Any) -> None:
        """Something was said on a link."""
        said: Said = packet
        if not self.up or self.fenced:
            self._statistics.missed_while_down += 1
            return
        if said.kind == "reset":
            if said.link in self._ends:
                self._lose(said.link)
            return
        if said.kind == "hello" and said.link not in self._ends:
            self._ends[said.link] = _End(said.name, source, self._kernel.now)
        end = self._ends.get(said.link)
        if end is None:
            self._network.send(self.address, source, Said(said.link, 0, "reset"), SAID_BYTES)
        elif said.number != end.heard:
            self._break(said.link)
        else:
            end.heard += 1
            self._take(said, end.peer)

    def _take(self, said: Said, peer: str) -> None:
        link = said.link
        if said.kind == "ping":
            pass  # It shows that the link stands at its other end; if not here, that was answered with a reset.
        elif said.kind == "packet":
            if self._joined.get(peer) == link and said.packet is not None:
                super().receive(peer, said.packet)
            else:
                self._break(link)
        elif said.kind == "hello":
            self._hello(link, peer, Shown(said.claim, said.progress))
        elif said.kind == "welcome":
            self._welcome(link, peer, Shown(said.claim, said.progress))
        elif said.kind == "agreed":
            self._agreed(link, peer, said.epoch)
        else:
            found = self._handshakes[peer].compare(self._own(peer), Shown(said.claim, said.progress))
            current = self._handshakes[peer].is_current(link)
            self._lose(link)
            if current:
                self._found(peer, found)

    def _hello(self, link: Link, peer: str, shown: Shown) -> None:
        handshake = self._handshakes[peer]
        found = handshake.hello(link, self._own(peer), shown, f"{self.address}/{self.chance.getrandbits(64):x}")
        if found.reason:
            self._say(link, "refused", **self._shown(peer))
            del self._ends[link]
            if found.behind != "nobody" and peer not in self._joined:
                self._found(peer, found)
            return
        self._make_way(peer, link)
        self._store(peer, partial(self._offered, link, peer))

    def _make_way(self, peer: str, newer: Link) -> None:
        for link in [link for link, end in self._ends.items() if end.peer == peer and link != newer]:
            self._break(link)

    def _offered(self, link: Link, peer: str) -> None:
        if self._handshakes[peer].offering(link):
            self._say(link, "welcome", **self._shown(peer))

    def _welcome(self, link: Link, peer: str, shown: Shown) -> None:
        found = self._handshakes[peer].welcome(link, self._own(peer), shown)
        if found is None:
            self._break(link)
        elif found.reason:
            self._lose(link)
            self._found(peer, found)
        else:
            self._store(peer, partial(self._agree, link, peer))

    def _agree(self, link: Link, peer: str) -> None:
        epoch = self._handshakes[peer].agreeing(link)
        if epoch is not None:
            self._say(link, "agreed", epoch=epoch)
            self._join(link, peer)

    def _agreed(self, link: Link, peer: str, epoch: Epoch) -> None:
        if self._handshakes[peer].agreed(link, epoch):
            self._store(peer, _nothing)
            self._join(link, peer)
        else:
            self._break(link)

    def _join(self, link: Link, peer: str) -> None:
        self._joined[peer] = link
        self.refused.pop(peer, None)
        self._handle(self._member.step(Connected(peer), self._kernel.now))

    # What goes wrong.

    def _break(self, link: Link) -> None:
        """End a link, and tell the other side."""
        end = self._ends[link]
        self._network.send(self.address, end.remote, Said(link, 0, "reset"), SAID_BYTES)
        self._lose(link)

    def _lose(self, link: Link) -> None:
        peer = self._ends.pop(link).peer
        if self._handshakes[peer].lost(link, self._own(peer)):
            self._store(peer, _nothing)
        if self._joined.get(peer) == link:
            del self._joined[peer]
        patience = CALL_AFTER_NS if self.name < peer else LONELY_NS
        self._call_at[peer] = self._kernel.now + self.chance.randrange(patience // 2, patience)

    def _found(self, peer: str, found: EpochFit) -> None:
        """The two do not go on, and say so."""
        self.refused[peer] = found.reason or "the other side refused"
        if found.behind == "me":
            for link in list(self._ends):
                self._break(link)
            self.fenced = found.reason
            self._life += 1
            self._pending.clear()
            self._disk.append(Stored("", NEVER_MET))
            self._disk.sync()

    def _handle(self, ready: Ready) -> None:
        self.frames_refused += len(ready.refused)
        super()._handle(ready)

    # The application.

    def submit(self, to: tuple[str, ...] | None, body: bytes) -> bool:
        """Let the application send; return whether it was taken."""
        return not self.fenced and super().submit(to, body)

    def _accepted(self, envelope: Envelope) -> None:
        super()._accepted(envelope)
        self.life.last_send = envelope.number
        self.life.accepted.append(Message(envelope.id, envelope.to, envelope.body))

    def _deliver(self, delivery: Delivery) -> None:
        self.life.got[delivery.envelope.body] = None
        self.life.consumed = delivery.position
        super()._deliver(delivery)


def peers_of(topology: Topology, name: str) -> list[str]:
    """Return whom a process meets."""
    found = {other for home in topology.homes[name] for other in topology.domains[home].members}
    found.update(other for link in topology.links.values() if name in link.members for other in link.members)
    return sorted(found - {name})


def _nothing() -> None:
    """Do nothing."""
