"""Meetings with neighbours: which epoch a server is in with each of them (``core.handshake``), and what if it is an old copy.

Rules:

* A claim is shown when it is durable, never earlier: after a crash it would be another one.
* Each start since a meeting is noted with the record ``Started``: what the store knew of at the first of them is all that can
  have been sent within the epoch. A program that goes on, but in an older state, as a machine does that is brought back from a
  snapshot of its memory, knows the highest number that it wrote to a connection (``Reach``).
* Where others repeat what a server sends, a neighbour gets its frames also while the two cannot meet. There nothing is known of
  what can have been sent within the epoch, and only ids and counters are compared.
* A server that is shown to be the old copy, or the copy that has lost its place, is *fenced*, and that is stored. It must stop as
  a whole, not only towards the neighbour that noticed: it has forgotten messages that others have seen, so what it sends to
  anybody else, delivers to its clients or lets its agents do comes before its own causes, or contradicts them.
* It fences itself only by what a neighbour says that it has called, or that has proved its name by TLS. If anybody else says so,
  it calls that neighbour and asks.
* A neighbour that is shown to be the old copy is refused. This is not stored: it may come back on its newest data.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from thence.core.epochs import NEVER_MET, Behind, Claim, Comparison, Epoch
from thence.core.handshake import Handshake, Own, Shown
from thence.core.messages import Packet
from thence.core.progress import Progress
from thence.runtime.journal import EpochStored, Fenced, Met
from thence.runtime.protocol import ServerHello, ServerWelcome

if TYPE_CHECKING:
    from typing import Any

    from thence.runtime.node import Node
    from thence.runtime.peers import Peers
    from thence.runtime.wire import Connection

EPOCH_ID_BYTES: Final = 16
"""How many random bytes the id of an epoch has."""

MAX_FENCE_CHARACTERS: Final = 2_000
"""How much of the reason is stored why a server is fenced."""

log = logging.getLogger("thence.meetings")


class Finding(NamedTuple):
    """What a meeting shows, in words for people."""

    behind: Behind
    reason: str
    """Why the two do not go on; empty: they do."""


class Introduction(NamedTuple):
    """What we show of ourselves."""

    claim: Claim
    progress: dict[str, Progress]
    restored: bool


class Reach:
    """The highest number that went out to each neighbour in each place, since the start or before it."""

    def __init__(self) -> None:
        """Nothing has."""
        self._before: Mapping[str, Mapping[str, int]] = {}
        self._written: dict[str, dict[str, int]] = {}
        self._repeated: set[str] = set()
        """Places where others repeat our frames: there a neighbour may have more than we wrote to it."""

    def start(self, before: Mapping[str, Mapping[str, int]]) -> None:
        """Note what the store knew of when we started."""
        self._before = before

    def written_to(self, peer: str) -> dict[str, int]:
        """Return the highest number that was written to a neighbour, by place, to be kept up to date."""
        return self._written.setdefault(peer, {})

    def note_repeated(self, packet: Packet[Any]) -> None:
        """Note a packet of a place where all repeat."""
        self._repeated.add(packet.domain)

    def of(self, peer: str, progress: Mapping[str, Progress]) -> dict[str, int]:
        """Return how far we can have come with a neighbour."""
        before, written = self._before.get(peer, {}), self._written.get(peer, {})
        return {
            place: known.sent if place in self._repeated else max(before.get(place, 0), written.get(place, 0))
            for place, known in progress.items()
        }


class Meetings:
    """See the module's text. Links are connections."""

    def __init__(self, node: Node) -> None:
        """Nobody has been met."""
        self._node = node
        self.met: dict[str, str] = {}
        """On which store each runs whom we have met, ourselves among them."""
        self.claims: dict[str, Claim] = {}
        self.fenced = ""
        """Why this server must not go on, if so."""
        self.on_fenced: Callable[[str], None] = _ignore
        self._handshakes: dict[str, Handshake] = {}

    # The store.

    def restore(self, met: Mapping[str, str], claims: Mapping[str, Claim], fenced: str) -> None:
        """Go on from a snapshot."""
        self.met, self.claims, self.fenced = dict(met), dict(claims), fenced

    def again(self, record: Met | EpochStored | Fenced) -> None:
        """A record was found on disk."""
        if isinstance(record, Fenced):
            self.fenced = record.reason
        elif isinstance(record, Met):
            self.met[record.peer] = record.incarnation
        else:
            self.claims[record.peer] = record.claim

    def started(self) -> None:
        """The server starts, or did so at this point of what is brought back."""
        repeated = self._node.member.repeated_places
        for peer, claim in self.claims.items():
            known = self._node.progress(peer).items()
            self.claims[peer] = claim.started({place: progress.sent for place, progress in known if place not in repeated})

    def begin(self, peers: Peers) -> None:
        """Everything is brought back, and these are the neighbours."""
        sent = {peer: {place: known.sent for place, known in self._node.progress(peer).items()} for peer in peers.neighbours}
        peers.reach.start(sent)
        if self.fenced:
            log.critical("%s stays as it was left: %s", self._node.name, self.fenced)
            peers.fence(self.fenced)

    def _store(self, handshake: Handshake, then: Callable[[], None] | None = None) -> None:
        self.claims[handshake.peer] = handshake.claim
        self._node.driver.write([EpochStored(handshake.peer, handshake.claim)], then)

    async def durable(self) -> None:
        """Wait until all claims are."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._node.driver.when_durable(lambda: None if done.done() else done.set_result(None))
        await done

    @property
    def full(self) -> str:
        """Why nothing can be stored now, if so."""
        return self._node.driver.full

    # Meeting.

    def _handshake(self, peer: str) -> Handshake:
        if peer not in self._handshakes:
            self._handshakes[peer] = Handshake(self._node.name, peer, self.claims.get(peer, NEVER_MET))
        return self._handshakes[peer]

    def _own(self, peer: str) -> Own:
        progress = self._node.progress(peer)
        return Own(progress, self._node.peers.reach.of(peer, progress))

    def introduction(self, peer: str) -> Introduction:
        """Return what to show to a neighbour."""
        own = self._own(peer)
        return Introduction(self._handshake(peer).shows(own), dict(own.progress), bool(self._node.restored))

    def call(self, peer: str, link: Connection) -> Introduction:
        """We call a neighbour, now that all claims are durable."""
        self._handshake(peer).call(link)
        return self.introduction(peer)

    def called(self, hello: ServerHello, link: Connection, answer: Callable[[], None]) -> Finding:
        """A neighbour calls us; ``answer`` is called when we may."""
        handshake = self._handshake(hello.server)
        reason = self._other_store(hello.server, hello.incarnation)
        if reason:
            return Finding("peer", reason)
        shown = Shown(hello.claim, hello.progress)
        found = handshake.hello(link, self._own(hello.server), shown, os.urandom(EPOCH_ID_BYTES).hex())
        if found.reason and found.behind == "nobody":
            return Finding("nobody", found.reason)
        if found.reason:
            return self._finding(hello.server, found, restored=hello.restored)
        self._note_restored(hello.server, hello)

        def stored() -> None:
            if handshake.offering(link):
                answer()

        if hello.claim is None:
            answer()
        else:
            self._store(handshake, stored)
        return Finding("nobody", "")

    def check(self, hello: ServerHello) -> str:
        """Say whether a caller runs on an old copy, where it is refused in any case. This changes nothing."""
        if hello.claim is None or self._other_store(hello.server, hello.incarnation):
            return ""
        shown = Shown(hello.claim, hello.progress)
        found = self._handshake(hello.server).compare(self._own(hello.server), shown)
        return self._finding(hello.server, found, restored=hello.restored).reason if found.behind == "peer" else ""

    def counts(self, peer: str, link: Connection) -> bool:
        """Return whether this is the connection by which we want to meet a neighbour now."""
        return self._handshake(peer).is_current(link)

    def welcomed(self, welcome: ServerWelcome, link: Connection, join: Callable[[Epoch | None], None]) -> Finding | None:
        """A neighbour that we called answers; ``join`` is called when we may, with what to tell it. None: it is too late."""
        handshake = self._handshake(welcome.server)
        if not handshake.is_current(link):
            return None
        reason = self._other_store(welcome.server, welcome.incarnation)
        if reason:
            handshake.lost(link)
            return Finding("peer", reason)
        found = handshake.welcome(link, self._own(welcome.server), Shown(welcome.claim, welcome.progress))
        if found is None:
            return None
        if found.reason:
            return self._finding(welcome.server, found, restored=welcome.restored)
        self._note_restored(welcome.server, welcome)

        def stored() -> None:
            epoch = handshake.agreeing(link)
            if epoch is not None:
                join(epoch)

        if welcome.claim is None:
            join(None)
        else:
            self._store(handshake, stored)
        return Finding("nobody", "")

    def agreed(self, peer: str, link: Connection, epoch: Epoch) -> bool:
        """A neighbour that called us says that it has the epoch on disk; return whether we go on."""
        handshake = self._handshake(peer)
        if not handshake.agreed(link, epoch):
            return False
        self._store(handshake)
        return True

    def lost(self, peer: str, link: Connection) -> None:
        """A connection is gone."""
        self._handshake(peer).lost(link)

    def break_off(self) -> None:
        """All connections are gone."""
        for handshake in self._handshakes.values():
            handshake.break_off()

    # What is wrong.

    def _other_store(self, peer: str, incarnation: str) -> str:
        known = self.met.get(peer, incarnation)
        if known == incarnation:
            return ""
        return (
            f"{peer!r} has lost its state: it comes back with store {incarnation}, and {self._node.name!r} knows it by {known}. "
            + _what_to_do(peer)
        )

    def _finding(self, peer: str, found: Comparison, *, restored: bool) -> Finding:
        me = self._node.name
        said = [name for name, was in ((me, bool(self._node.restored)), (peer, restored)) if was]
        restorings = f" ({' and '.join(map(repr, said))} was restored from a copy)" if said else ""
        older = {"me": me, "peer": peer}.get(found.behind)
        return Finding(found.behind, f"something was forgotten: {found.reason}{restorings}. {_what_to_do(older)}")

    def _note_restored(self, peer: str, said: ServerHello | ServerWelcome) -> None:
        if said.restored:
            me = self._node.name
            log.warning("%s runs on a store that was restored from a copy; it has forgotten nothing that %s knows of", peer, me)

    def fence(self, peer: str, reason: str) -> None:
        """We are the old copy: stop for good."""
        if self.fenced:
            return
        self.fenced = f"{self._node.name!r} is fenced since it met {peer!r}: {reason}"[:MAX_FENCE_CHARACTERS]
        log.critical("%s takes nothing more, sends nothing and delivers nothing. %s", self._node.name, self.fenced)
        self._node.driver.write([Fenced(peer, self.fenced)])
        self._node.peers.fence(self.fenced)
        self.on_fenced(self.fenced)


def _what_to_do(older: str | None) -> str:
    if older is None:
        return "Start both on their newest data, or declare the one that lost some lost: see docs/removal.md"
    return (
        f"Start {older!r} on its newest data, and only once; if that is lost, declare it lost with thence topology apply "
        f"NEW.toml --lost {older} and let it join anew under another name (docs/removal.md)"
    )


def _ignore(_: str) -> None:
    """Do nothing."""
