"""Meetings with peers: which epoch a server is in with each of them (``core.epochs.handshake``), and what if it is an old
copy.

Rules:

* A claim is shown when it is durable, never earlier: after a crash it would be another one.
* Each start since a meeting is noted with the record ``Started``: what the store knew of at the first of them is all that can
  have been sent within the epoch. A program that goes on, but in an older state, as a machine does that is brought back from a
  snapshot of its memory, knows the highest number that it wrote to a connection (``core.epochs.reach``). When the connection is
  lost, that is stored: nothing more goes out within the epoch, however much is accepted before the next start.
* In another topology numbers begin anew, so nothing is known of them from before: two servers meet anew in it, in a new epoch.
* Where others repeat what a server sends, a peer gets its frames also while the two cannot meet. There nothing is known of
  what can have been sent within the epoch, and only ids and counters are compared.
* A server that is shown to be the old copy, or the copy that has lost its place, is *fenced*, and that is stored. It must stop as
  a whole, not only towards the peer that noticed: it has forgotten messages that others have seen, so what it sends to
  anybody else, delivers to its clients or lets its agents do comes before its own causes, or contradicts them.
* It fences itself only by what a peer says that it has called, or that has proved its name by TLS. If anybody else says so,
  it calls that peer and asks.
* A peer that is shown to be the old copy is refused. This is not stored: it may come back on its newest data.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from thence.core.epochs.epoch import NEVER_MET, Behind, Claim, Epoch, EpochFit
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.core.epochs.progress import Progress
from thence.core.epochs.reach import Reach
from thence.errors import StorageError
from thence.net.framing import Connection
from thence.net.protocol import ServerHello, ServerWelcome
from thence.node.driver.driver import Driver
from thence.runtime.event_loop import ignore
from thence.storage.journal import EpochStored, FencedRecord, Met

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


class PeerTable(Protocol):
    """The connections with peers."""

    @property
    def peers(self) -> Mapping[str, object]:
        """The peers, by name."""

    @property
    def reach(self) -> Reach:
        """How far we have written to each of them."""

    def fence(self, reason: str) -> None:
        """Hang up for good."""


class PeerEpochs:
    """The epoch of a server with each of its peers, and whether the server may go on. A link is a connection."""

    def __init__(self, server: str, driver: Driver) -> None:
        """Nobody has been met. ``driver`` stores claims."""
        self._server = server
        self._driver = driver
        self._member = driver.member
        self._links: PeerTable
        self.restored = 0
        """Which restoring from a copy the store comes from; 0: none."""
        self.met: dict[str, str] = {}
        """On which store each runs whom we have met, ourselves among them."""
        self.claims: dict[str, Claim] = {}
        self.fenced = ""
        """Why this server must not go on, if so."""
        self.on_fenced: Callable[[str], None] = ignore
        self._handshakes: dict[str, Handshake] = {}

    # The store.

    def restore(self, met: Mapping[str, str], claims: Mapping[str, Claim], fenced: str) -> None:
        """Go on from a snapshot."""
        self.met, self.claims, self.fenced = dict(met), dict(claims), fenced

    def again(self, record: Met | EpochStored | FencedRecord) -> None:
        """A record was found on disk."""
        if isinstance(record, FencedRecord):
            self.fenced = record.reason
        elif isinstance(record, Met):
            self.met[record.peer] = record.store_id
        else:
            self.claims[record.peer] = record.claim

    def started(self) -> None:
        """The server starts, or did so at this point of what is brought back."""
        repeated = self._member.attachment.repeated_places
        for peer, claim in self.claims.items():
            known = self._member.attachment.progress(peer).items()
            self.claims[peer] = claim.started({place: progress.sent for place, progress in known if place not in repeated})

    def changed(self) -> None:
        """There is another topology, now or at this point of what is brought back: in each place numbers begin anew."""
        self.claims = {peer: claim.renumbered() for peer, claim in self.claims.items()}
        self._handshakes.clear()  # All connections were ended before.

    def met_on(self, peer: str, store_id: str) -> None:
        """A peer runs on this store; another one is refused from here on."""
        if peer not in self.met:
            self.met[peer] = store_id
            self._driver.write([Met(peer, store_id)])

    def begin(self, links: PeerTable) -> None:
        """Everything is brought back, and these are the peers."""
        self._links = links
        sent = {
            peer: {place: known.sent for place, known in self._member.attachment.progress(peer).items()} for peer in links.peers
        }
        links.reach.start(sent)
        if self.fenced:
            log.critical("%s stays as it was left: %s", self._server, self.fenced)
            links.fence(self.fenced)

    def _store(self, handshake: Handshake, then: Callable[[], None] | None = None) -> None:
        self.claims[handshake.peer] = handshake.claim
        self._driver.write([EpochStored(handshake.peer, handshake.claim)], then)

    async def durable(self) -> None:
        """Wait until all claims are."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._driver.when_durable(lambda: None if done.done() else done.set_result(None))
        await done

    @property
    def full(self) -> str:
        """Why nothing can be stored now, if so."""
        return self._driver.full

    # Meeting.

    def _handshake(self, peer: str) -> Handshake:
        if peer not in self._handshakes:
            self._handshakes[peer] = Handshake(self._server, peer, self.claims.get(peer, NEVER_MET))
        return self._handshakes[peer]

    def _own(self, peer: str) -> Own:
        progress, repeated = self._member.attachment.progress(peer), self._member.attachment.repeated_places
        return Own(progress, self._links.reach.of(peer, [place for place in progress if place not in repeated]))

    def introduction(self, peer: str) -> Introduction:
        """Return what to show to a peer."""
        own = self._own(peer)
        return Introduction(self._handshake(peer).shows(own), dict(own.progress), bool(self.restored))

    def call(self, peer: str, link: Connection) -> Introduction:
        """We call a peer, now that all claims are durable."""
        self._handshake(peer).call(link)
        return self.introduction(peer)

    def called(self, hello: ServerHello, link: Connection, answer: Callable[[], None]) -> Finding:
        """A peer calls us; ``answer`` is called when we may."""
        handshake = self._handshake(hello.server)
        reason = self._other_store(hello.server, hello.store_id)
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
        if hello.claim is None or self._other_store(hello.server, hello.store_id):
            return ""
        shown = Shown(hello.claim, hello.progress)
        found = self._handshake(hello.server).compare(self._own(hello.server), shown)
        return self._finding(hello.server, found, restored=hello.restored).reason if found.behind == "peer" else ""

    def counts(self, peer: str, link: Connection) -> bool:
        """Return whether this is the connection by which we want to meet a peer now."""
        return self._handshake(peer).is_current(link)

    def welcomed(self, welcome: ServerWelcome, link: Connection, join: Callable[[Epoch | None], None]) -> Finding | None:
        """A peer that we called answers; ``join`` is called when we may, with what to tell it. None: it is too late."""
        handshake = self._handshake(welcome.server)
        if not handshake.is_current(link):
            return None
        reason = self._other_store(welcome.server, welcome.store_id)
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
        """A peer that called us says that it has the epoch on disk; return whether we go on."""
        handshake = self._handshake(peer)
        if not handshake.agreed(link, epoch):
            return False
        self._store(handshake)
        return True

    def lost(self, peer: str, link: Connection, *, stopping: bool = False) -> None:
        """A connection is gone."""
        handshake = self._handshake(peer)
        if handshake.lost(link, None if stopping else self._own(peer)) and not self.full:
            with suppress(StorageError):  # A store that has failed stops the server, which says why.
                self._store(handshake)

    def break_off(self) -> None:
        """All connections are gone."""
        for handshake in self._handshakes.values():
            handshake.break_off()

    # What is wrong.

    def _other_store(self, peer: str, store_id: str) -> str:
        known = self.met.get(peer, store_id)
        if known == store_id:
            return ""
        return (
            f"{peer!r} has lost its state: it comes back with store {store_id}, and {self._server!r} knows it by {known}. "
            + _what_to_do(peer)
        )

    def _finding(self, peer: str, found: EpochFit, *, restored: bool) -> Finding:
        me = self._server
        said = [name for name, was in ((me, bool(self.restored)), (peer, restored)) if was]
        restorings = f" ({' and '.join(map(repr, said))} was restored from a copy)" if said else ""
        older = {"me": me, "peer": peer}.get(found.behind)
        return Finding(found.behind, f"something was forgotten: {found.reason}{restorings}. {_what_to_do(older)}")

    def _note_restored(self, peer: str, said: ServerHello | ServerWelcome) -> None:
        if said.restored:
            me = self._server
            log.warning("%s runs on a store that was restored from a copy; it has forgotten nothing that %s knows of", peer, me)

    def fence(self, peer: str, reason: str) -> None:
        """We are the old copy: stop for good."""
        if self.fenced:
            return
        self.fenced = f"{self._server!r} is fenced since it met {peer!r}: {reason}"[:MAX_FENCE_CHARACTERS]
        log.critical("%s takes nothing more, sends nothing and delivers nothing. %s", self._server, self.fenced)
        self._driver.write([FencedRecord(peer, self.fenced)])
        self._links.fence(self.fenced)
        self.on_fenced(self.fenced)


def _what_to_do(older: str | None) -> str:
    if older is None:
        return "Start both on their newest data, or declare the one that lost some lost: see docs/how-to/removal.md"
    return (
        f"Start {older!r} on its newest data, and only once; if that is lost, declare it lost with thence topology apply "
        f"NEW.toml --lost {older} and let it join anew under another name (docs/how-to/removal.md)"
    )
