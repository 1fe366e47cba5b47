"""The connections of a simulated process with its peers, made by the handshake that servers use (``core.epochs.handshake``).

Rules:

* What two processes say to each other goes over a *link*: one connection, which one of them called for. On a link everything
  arrives in order or, if something was lost, nothing more does, as with TCP. What comes on a link that does not stand any more is
  answered with a reset.
* A process that shows itself to be an old copy, or one of two, is *fenced*: it does nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal, NamedTuple

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, EpochFit
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.core.epochs.progress import Progress
from thence.core.epochs.reach import Reach
from thence.core.member.member import Member
from thence.sim.kernel import Kernel
from thence.sim.network import Network
from thence.sim.parts.sync_queue import SyncQueue

LOOK_NS = 50_000_000
"""How often a process looks whom to call."""

CALL_AFTER_NS = 50_000_000
"""How long after it lost a peer it calls it at first."""

LONELY_NS = 1_000_000_000
"""How long if it is for the other to call."""

HANDSHAKE_NS = 1_000_000_000
"""How long a handshake may take."""

PING_NS = 1_000_000_000
"""After how long a process that has nothing to say on a link says that."""

SAID_BYTES = 200
"""What a step of a handshake costs on the wire, roughly."""


class LinkId(NamedTuple):
    """One connection: who called whom, and which call of the caller it was."""

    caller: str
    called: str
    call: int


class LinkFrame(NamedTuple):
    """What goes over a link. ``number`` counts what its sender has said on it."""

    link: LinkId
    number: int
    kind: Literal["hello", "welcome", "refused", "agreed", "packet", "ping", "reset"]
    name: str = ""
    """Of a hello: the name of the caller."""
    claim: Claim | None = None
    progress: Mapping[str, Progress] = {}
    epoch: Epoch = Epoch()
    packet: Any = None


class ClaimRecord(NamedTuple):
    """A record on the disk: what a process claims towards a peer."""

    peer: str
    claim: Claim


class ConnectionMemory(NamedTuple):
    """What connections keep in memory, and with whom the process was joined."""

    claims: dict[str, Claim]
    reach: Reach
    joined: tuple[str, ...]
    peers: tuple[str, ...]


class Surroundings(NamedTuple):
    """What connections know of the process that they belong to."""

    member: Callable[[], Member]
    """Gives its member, which another one replaces at each start."""
    take: Callable[[str, Any], None]
    """Called with a peer and a packet of it."""
    joined: Callable[[str], None]
    """Called with a peer that it is connected with from now on."""


@dataclass
class _LinkEnd:
    """Our end of a link."""

    peer: str
    remote: str
    since_ns: int
    spoke_ns: int = 0
    said: int = 0
    heard: int = 0


class Connections:
    """One process's links, and what it has agreed on with each peer."""

    handshake_type = Handshake
    """For planted mistakes."""

    def __init__(
        self,
        names: tuple[str, str],
        peers: list[str],
        chance: Random,
        kernel: Kernel,
        network: Network,
        queue: SyncQueue,
        process: Surroundings,
    ) -> None:
        """Belong to a process with these names: its own, and the one by which it is called."""
        self.name, self.address = names
        self.peers = peers
        self.refused: dict[str, str] = {}
        """With whom the process does not go on, and why."""
        self.fenced = ""
        """Why it does nothing any more, if so."""
        self.chance = chance
        self._kernel = kernel
        self._network = network
        self._queue = queue
        self._process = process
        self._calls = 0
        self.claims: dict[str, Claim] = {}
        """What it claims towards each peer."""
        self._reach = Reach()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._handshakes: dict[str, Handshake] = {}
        self._ends: dict[LinkId, _LinkEnd] = {}
        self.joined: dict[str, LinkId] = {}
        self._call_at: dict[str, int] = {}
        self.follow(self.peers)

    def send(self, peer: str, packet: Any, plain: Any, size_bytes: int) -> None:
        """Send a packet to a peer, if it is joined; ``plain`` is what of it has numbers."""
        link = self.joined.get(peer)
        if link is not None:
            self._reach.write(self._reach.written_to(peer), plain)
            self._say(link, "packet", size_bytes, packet=packet)

    def follow(self, peers: list[str]) -> None:
        """Have other peers from now on, as after a change of the topology."""
        self.peers = peers
        for link in [link for link, end in self._ends.items() if end.peer not in peers]:
            self._break(link)
        for peer in [peer for peer in peers if peer not in self._handshakes]:
            self._handshakes[peer] = self.handshake_type(self.name, peer, self.claims.get(peer, NEVER_MET))
            self._call_at[peer] = 0

    # Starts and copies.

    def restart(self, peers: list[str], claims: Mapping[str, Claim], records: Iterable[ClaimRecord]) -> None:
        """Begin anew with what is on the disk, also if the topology there is an older one, with other peers."""
        self.peers = peers
        self.claims = {**claims, **{record.peer: record.claim for record in records}}
        sent = {
            peer: {place: known.sent for place, known in self._process.member().attachment.progress(peer).items()}
            for peer in self.peers
        }
        for peer, claim in [(peer, claim) for peer, claim in self.claims.items() if peer in sent]:
            self.claims[peer] = self._started(claim, sent[peer])
            self._queue.disk.append(ClaimRecord(peer, self.claims[peer]))
        self._reach = Reach()
        self._reach.start(sent)
        self._begin_anew()

    def _started(self, claim: Claim, sent: dict[str, int]) -> Claim:
        return claim.started(sent)

    def memory(self) -> ConnectionMemory:
        """Return a copy of what is in memory."""
        return ConnectionMemory(dict(self.claims), deepcopy(self._reach), tuple(self.joined), tuple(self.peers))

    def resume(self, memory: ConnectionMemory) -> None:
        """Go on from such a copy. Links are gone: others have gone on with them."""
        self.claims, self._reach, self.peers = dict(memory.claims), deepcopy(memory.reach), list(memory.peers)
        self._begin_anew()
        for peer in [peer for peer in memory.joined if peer in self._handshakes]:
            self._handshakes[peer].link, self._handshakes[peer].stage = "gone", "joined"
            if self._handshakes[peer].lost("gone", self._own(peer)):
                self._store(peer, _nothing)

    # Whom to call.

    def look(self, life: int) -> None:
        """Call whom the process is not connected with, now and from time to time."""
        if life != self._queue.life or self.fenced:
            return
        now = self._kernel.now
        for link, end in list(self._ends.items()):
            if self.joined.get(end.peer) != link and now - end.since_ns > HANDSHAKE_NS:
                self._break(link)
        for link in list(self.joined.values()):
            if now - self._ends[link].spoke_ns > PING_NS:
                self._say(link, "ping")
        for peer in self.peers:
            if self._handshakes[peer].stage == "idle" and now >= self._call_at[peer]:
                self._call_at[peer] = now + HANDSHAKE_NS
                self._queue.store((), partial(self._call, peer))
        self._kernel.schedule(LOOK_NS, self.look, life)

    def _call(self, peer: str) -> None:
        if self._handshakes[peer].stage != "idle":
            return  # It has called us meanwhile.
        self._calls += 1
        link = LinkId(self.address, peer, self._calls)
        self._ends[link] = _LinkEnd(peer, peer, self._kernel.now)
        self._handshakes[peer].call(link)
        self._say(link, "hello", name=self.name, **self._shown(peer))

    # What goes out.

    def _store(self, peer: str, then: Callable[[], None]) -> None:
        self.claims[peer] = self._handshakes[peer].claim
        self._queue.store([ClaimRecord(peer, self.claims[peer])], then)

    def _own(self, peer: str) -> Own:
        progress = self._process.member().attachment.progress(peer)
        return Own(progress, self._reach.of(peer, progress))

    def _shown(self, peer: str) -> dict[str, Any]:
        own = self._own(peer)
        return {"claim": self._handshakes[peer].shows(own), "progress": dict(own.progress)}

    def _say(self, link: LinkId, kind: Any, size_bytes: int = SAID_BYTES, **what: Any) -> None:
        end = self._ends[link]
        self._network.send(self.address, end.remote, LinkFrame(link, end.said, kind, **what), size_bytes)
        end.said += 1
        end.spoke_ns = self._kernel.now

    # What comes in.

    def receive(self, source: str, said: LinkFrame) -> None:
        """Take what was said on a link, if it is the next thing there."""
        if said.kind == "reset":
            if said.link in self._ends:
                self._lose(said.link)
            return
        if said.kind == "hello" and said.link not in self._ends and said.name in self.peers:
            self._ends[said.link] = _LinkEnd(said.name, source, self._kernel.now)
        end = self._ends.get(said.link)
        if end is None:
            self._network.send(self.address, source, LinkFrame(said.link, 0, "reset"), SAID_BYTES)
        elif said.number != end.heard:
            self._break(said.link)
        else:
            end.heard += 1
            self._take(said, end.peer)

    def _take(self, said: LinkFrame, peer: str) -> None:
        link, shown = said.link, Shown(said.claim, said.progress)
        if said.kind == "ping":
            pass  # It shows that the link stands at its other end; if not here, that was answered with a reset.
        elif said.kind == "packet":
            if self.joined.get(peer) == link:
                self._process.take(peer, said.packet)
            else:
                self._break(link)
        elif said.kind == "hello":
            self._hello(link, peer, shown)
        elif said.kind == "welcome":
            self._welcome(link, peer, shown)
        elif said.kind == "agreed":
            self._agreed(link, peer, said.epoch)
        else:
            found = self._handshakes[peer].compare(self._own(peer), shown)
            current = self._handshakes[peer].is_current(link)
            self._lose(link)
            if current:
                self._found(peer, found)

    def _hello(self, link: LinkId, peer: str, shown: Shown) -> None:
        fresh_id = f"{self.address}/{self.chance.getrandbits(64):x}"
        found = self._handshakes[peer].hello(link, self._own(peer), shown, fresh_id)
        if found.reason:
            self._say(link, "refused", **self._shown(peer))
            del self._ends[link]
            if found.behind != "nobody" and peer not in self.joined:
                self._found(peer, found)
            return
        for older in [other for other, end in self._ends.items() if end.peer == peer and other != link]:
            self._break(older)
        self._store(peer, partial(self._offered, link, peer))

    def _offered(self, link: LinkId, peer: str) -> None:
        if self._handshakes[peer].offering(link):
            self._say(link, "welcome", **self._shown(peer))

    def _welcome(self, link: LinkId, peer: str, shown: Shown) -> None:
        found = self._handshakes[peer].welcome(link, self._own(peer), shown)
        if found is None:
            self._break(link)
        elif found.reason:
            self._lose(link)
            self._found(peer, found)
        else:
            self._store(peer, partial(self._agree, link, peer))

    def _agree(self, link: LinkId, peer: str) -> None:
        epoch = self._handshakes[peer].agreeing(link)
        if epoch is not None:
            self._say(link, "agreed", epoch=epoch)
            self._join(link, peer)

    def _agreed(self, link: LinkId, peer: str, epoch: Epoch) -> None:
        if self._handshakes[peer].agreed(link, epoch):
            self._store(peer, _nothing)
            self._join(link, peer)
        else:
            self._break(link)

    def _join(self, link: LinkId, peer: str) -> None:
        self.joined[peer] = link
        self.refused.pop(peer, None)
        self._process.joined(peer)

    # What goes wrong.

    def _break(self, link: LinkId) -> None:
        """End a link, and tell the other side."""
        self._network.send(self.address, self._ends[link].remote, LinkFrame(link, 0, "reset"), SAID_BYTES)
        self._lose(link)

    def _lose(self, link: LinkId) -> None:
        peer = self._ends.pop(link).peer
        if self._handshakes[peer].lost(link, self._own(peer)):
            self._store(peer, _nothing)
        if self.joined.get(peer) == link:
            del self.joined[peer]
        wait_ns = CALL_AFTER_NS if self.name < peer else LONELY_NS
        self._call_at[peer] = self._kernel.now + self.chance.randrange(wait_ns // 2, wait_ns)

    def _found(self, peer: str, found: EpochFit) -> None:
        """The two do not go on, and say so."""
        self.refused[peer] = found.reason or "the other side refused"
        if found.behind == "me":
            for link in list(self._ends):
                self._break(link)
            self.fenced = found.reason
            self._queue.drop()
            self._queue.disk.sync()


def _nothing() -> None:
    """Do nothing."""
