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
* It fences itself only if it is shown a statement of its own that goes beyond its state (``core.epochs.statement``). Otherwise
  a captured peer could stop it for good. Who claims so without one is not believed: the connection with it ends, and both say so.
* A store that has met nobody holds nothing, and knows no statement of the store in whose place it may be.
  It believes a peer that it has called, or that has proved its name by TLS. If anybody else says so, it calls that peer and asks.
* A peer that is shown to be the old copy is refused. This is not stored: it may come back on its newest data.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from thence.core.epochs.epoch import NEVER_MET, Behind, Claim, Epoch, EpochFit
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.core.epochs.progress import Progress
from thence.core.epochs.reach import Reach
from thence.core.epochs.statement import Statement
from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.errors import StorageError
from thence.net.framing import Connection
from thence.net.protocol import Refused, ServerAgreed, ServerHello, ServerWelcome, Stated
from thence.node.driver.driver import Driver
from thence.node.peers.statements import Statements
from thence.runtime.event_loop import ignore
from thence.storage.journal import EpochStored, FencedRecord, Met

EPOCH_ID_BYTES: Final = 16
"""How many random bytes the id of an epoch has."""

MAX_FENCE_CHARACTERS: Final = 2_000
"""How much of the reason is stored why a server is fenced."""

LAST_STATEMENT_S: Final = 2.0
"""How long a server that leaves waits for its store, to tell its peers how far it is."""

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
    shown: Statement | None
    """What the peer has stated."""
    stated: Statement | None
    """What we state, if we offer an epoch."""


class PeerTable(Protocol):
    """The connections with peers."""

    @property
    def topology(self) -> Topology:
        """The topology in force."""

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
        self._noted: set[str] = set()
        """Of whom the log says that its store was restored from a copy."""
        self.statements = Statements(driver)

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
        """There is another topology, now or at this point of what is brought back: in each new place numbers begin anew."""
        kept = self._member.attachment.kept
        self.claims = {peer: claim.renumbered(kept) for peer, claim in self.claims.items()}
        self._handshakes.clear()  # All connections were ended before.

    def met_on(self, peer: str, store_id: str) -> None:
        """A peer runs on this store; another one is refused from here on."""
        if peer not in self.met:
            self.met[peer] = store_id
            self._driver.write([Met(peer, store_id)])

    def begin(self, links: PeerTable) -> None:
        """Everything is brought back, and these are the peers."""
        self._links = links
        self.statements.version = lambda: links.topology.version
        links.reach.start(sent_to(self._member, links.peers))
        if self.fenced:
            log.critical("%s stays as it was left: %s", self._server, self.fenced)
            links.fence(self.fenced)

    def _store(self, handshake: Handshake, then: Callable[[], None] | None = None) -> None:
        self.claims[handshake.peer] = handshake.claim
        self._driver.write([EpochStored(handshake.peer, handshake.claim), *self.statements.unwritten(handshake.peer)], then)

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

    def introduction(self, peer: str, link: Connection | None = None) -> Introduction:
        """Return what to show to a peer: one that we call by ``link``, or one that has called us. All claims must be durable."""
        own, handshake = self._own(peer), self._handshake(peer)
        if link is not None:
            handshake.call(link)
        stated = self.statements.make(peer, handshake.fresh, own) if handshake.stage == "offered" else None
        return Introduction(handshake.shows(own), dict(own.progress), bool(self.restored), self.statements.kept.get(peer), stated)

    def called(self, hello: ServerHello, link: Connection, answer: Callable[[], None]) -> Finding:
        """A peer calls us; ``answer`` is called when we may."""
        handshake = self._handshake(hello.server)
        reason = _other_store(self._server, hello, self.met)
        if reason:
            return Finding("peer", reason)
        shown = Shown(hello.claim, hello.progress)
        found = handshake.hello(link, self._own(hello.server), shown, os.urandom(EPOCH_ID_BYTES).hex())
        if found.reason and found.behind == "nobody":
            return Finding("nobody", found.reason)
        if found.reason:
            return self._finding(hello.server, found, hello)

        def stored() -> None:
            if handshake.offering(link):
                answer()

        if hello.claim is None:
            answer()
        else:
            self._store(handshake, stored)
        return Finding("nobody", "")

    def refuse(self, hello: ServerHello, why: str) -> Refused:
        """Return with what words a caller is refused that may come later, unless it runs on an old copy. This changes nothing."""
        if hello.claim is None or _other_store(self._server, hello, self.met):
            return Refused(why, later=True)
        own, shown = self._own(hello.server), Shown(hello.claim, hello.progress)
        if hello.version != self.statements.version():  # Numbers were others there; epochs are the same.
            own, shown = Own({}), Shown(hello.claim, {})
        found = self._handshake(hello.server).compare(own, shown)
        if found.behind != "peer":
            return Refused(why, later=True)
        older = self._finding(hello.server, found, hello).reason
        return Refused(f"{older}. {why}" if why else older, behind=True, shown=self.statements.kept.get(hello.server))

    def counts(self, peer: str, link: Connection) -> bool:
        """Return whether this is the connection by which we want to meet a peer now."""
        return self._handshake(peer).is_current(link)

    def welcomed(self, welcome: ServerWelcome, link: Connection, join: Callable[[ServerAgreed | None], None]) -> Finding | None:
        """A peer that we called answers; ``join`` is called when we may, with what to tell it. None: it is too late."""
        handshake = self._handshake(welcome.server)
        if not handshake.is_current(link):
            return None
        reason = _other_store(self._server, welcome, self.met)
        if reason:
            handshake.lost(link)
            return Finding("peer", reason)
        own = self._own(welcome.server)
        self.statements.check(welcome.server, welcome.stated, own)  # Before anything changes that would not be stored.
        found = handshake.welcome(link, own, Shown(welcome.claim, welcome.progress))
        if found is None:
            return None
        if found.reason:
            return self._finding(welcome.server, found, welcome)
        _note_restored(self._server, welcome, self._noted)
        stated = self.statements.make(welcome.server, handshake.fresh, own)
        self.statements.met(welcome.server, welcome.stated, stated, own)

        def stored() -> None:
            epoch = handshake.agreeing(link)
            if epoch is not None:
                join(ServerAgreed(epoch, stated))

        if welcome.claim is None:
            join(None)
        else:
            self._store(handshake, stored)
        return Finding("nobody", "")

    def agreed(self, hello: ServerHello, link: Connection, said: ServerAgreed) -> bool:
        """A peer that called us says that it has the epoch on disk; return whether we go on."""
        peer, handshake = hello.server, self._handshake(hello.server)
        own = self._own(peer)
        self.statements.check(peer, said.stated, own)
        if not handshake.agreed(link, said.epoch):
            return False
        _note_restored(self._server, hello, self._noted)
        self.statements.met(peer, said.stated, self.statements.make(peer, said.epoch, own), own)
        self._store(handshake)
        return True

    def lost(self, peer: str, link: Connection, *, stopping: bool = False) -> None:
        """A connection is gone. What the peer has stated last is written: with that it left, if it stopped in order."""
        handshake = self._handshake(peer)
        news = handshake.lost(link, None if stopping else self._own(peer))
        if self.full:
            return
        with suppress(StorageError):  # A store that has failed stops the server, which says why.
            self.statements.keep(peer)
            if news:
                self._store(handshake)

    # What is stated.

    def restate(self, peer: str, link: Connection) -> None:
        """Tell a peer how far we are."""
        handshake = self._handshake(peer)
        if handshake.stage == "joined" and handshake.link is link and not self.full:
            ours = self.statements.make(peer, handshake.claim.agreed.epoch, self._own(peer))
            self.statements.tell(peer, link, ours)

    def stated(self, peer: str, link: Connection, said: Stated) -> None:
        """A peer tells how far it is."""
        if self.counts(peer, link):
            self.statements.take(peer, said.stated, self._own(peer))
            if self.statements.may_write(peer):
                self.statements.keep(peer)

    def believes(self, peer: str, shown: Statement | None) -> bool:
        """Return whether we are the old copy, if a peer says so and shows this."""
        if self.met.keys() <= {self._server} and all(claim.agreed.epoch == Epoch() for claim in self.claims.values()):
            return True
        own = self._own(peer)
        return self.statements.prove(peer, shown, self._handshake(peer).shows(own), own)

    def break_off(self) -> None:
        """All connections are gone."""
        for handshake in self._handshakes.values():
            handshake.break_off()

    # What is wrong.

    def _finding(self, peer: str, found: EpochFit, said: ServerHello | ServerWelcome) -> Finding:
        me = self._server
        copies = [name for name, was in ((me, bool(self.restored)), (peer, said.restored)) if was]
        restorings = f" ({' and '.join(map(repr, copies))} was restored from a copy)" if copies else ""
        if found.behind == "me" and not self.believes(peer, said.shown):
            claims = f"{peer!r} claims that something was forgotten, and shows no statement of {me!r} that proves it"
            return Finding("unclear", f"{claims}: {found.reason}{restorings}. {_what_to_do(None)}")
        older = {"me": me, "peer": peer}.get(found.behind)
        return Finding(found.behind, f"something was forgotten: {found.reason}{restorings}. {_what_to_do(older)}")

    def fence(self, peer: str, reason: str) -> None:
        """We are the old copy: stop for good."""
        if self.fenced:
            return
        self.fenced = f"{self._server!r} is fenced since it met {peer!r}: {reason}"[:MAX_FENCE_CHARACTERS]
        log.critical("%s takes nothing more, sends nothing and delivers nothing. %s", self._server, self.fenced)
        self._driver.write([FencedRecord(peer, self.fenced)])
        self._links.fence(self.fenced)
        self.on_fenced(self.fenced)


async def state_last(epochs: PeerEpochs, links: Collection[tuple[str, Connection]]) -> None:
    """Tell peers how far we are before we leave: what goes out is durable, and a store may be slow or full."""
    for peer, link in links:
        epochs.restate(peer, link)
        epochs.statements.keep(peer)
    if links and not epochs.full:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_STATEMENT_S):
                await epochs.durable()


def sent_to(member: Member, peers: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return up to which number a member has frames for each peer, by place."""
    return {peer: {place: known.sent for place, known in member.attachment.progress(peer).items()} for peer in peers}


def _other_store(me: str, said: ServerHello | ServerWelcome, met: Mapping[str, str]) -> str:
    known, peer = met.get(said.server, said.store_id), said.server
    if known == said.store_id:
        return ""
    changed = f"it comes back with store {said.store_id}, and {me!r} knows it by {known}"
    return f"{peer!r} has lost its state: {changed}. {_what_to_do(peer)}"


def _note_restored(me: str, said: ServerHello | ServerWelcome, noted: set[str]) -> None:
    """Say once of a peer that it goes on with a copy: it has the same store for ever."""
    if said.restored and said.server not in noted:
        noted.add(said.server)
        log.warning(
            "%s runs on a store that was restored from a copy; it has forgotten nothing that %s knows of", said.server, me
        )


def _what_to_do(older: str | None) -> str:
    if older is None:
        return "Start both on their newest data, or declare the one that lost some lost: see docs/how-to/removal.md"
    return (
        f"Start {older!r} on its newest data, and only once; if that is lost, declare it lost with thence topology apply "
        f"NEW.toml --lost {older} and let it join anew under another name (docs/how-to/removal.md)"
    )
