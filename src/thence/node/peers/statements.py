"""What a server states to its peers, and they to it: how far each is with the other (``core.epochs.statement``).

Rules:

* A peer is told how far we are when the two meet, and then at each heartbeat if that has changed, when it is durable.
* A peer of a version that makes no statements is told nothing after the meeting: it would not understand.
* What a peer states is written at a heartbeat, however often it does.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Mapping

from thence.core.epochs.epoch import Claim, Epoch
from thence.core.epochs.handshake import Own
from thence.core.epochs.statement import KEY_BYTES, Statement, goes_beyond, seal
from thence.errors import MalformedFrame
from thence.net.control import tell
from thence.net.framing import Connection
from thence.net.protocol import Stated
from thence.node.driver.driver import Driver
from thence.storage.journal import KeyDrawn, StatementKept, Written


class Statements:
    """What was stated to us, and the seal of what we state."""

    def __init__(self, driver: Driver) -> None:
        """Nothing was. ``driver`` stores what will be."""
        self._driver = driver
        self.version: Callable[[], int]
        """Returns the version of the topology in force."""
        self.key = b""
        """With which we seal."""
        self.kept: dict[str, Statement] = {}
        """What each peer has stated last,"""
        self._unwritten: set[str] = set()
        """of whom that is not written yet,"""
        self._ours: dict[str, Statement] = {}
        """and what we have stated to each that wants to know, since we met."""

    def restore(self, key: bytes, kept: Mapping[str, Statement]) -> None:
        """Go on from a snapshot."""
        self.key, self.kept = key, dict(kept)

    def again(self, record: KeyDrawn | StatementKept) -> None:
        """A record was found on disk."""
        if isinstance(record, KeyDrawn):
            self.key = record.key
        else:
            self.kept[record.peer] = record.statement

    def draw_key(self) -> None:
        """See to it that the store has a key."""
        if not self.key:
            self.key = os.urandom(KEY_BYTES)
            self._driver.write([KeyDrawn(self.key)])

    def make(self, peer: str, epoch: Epoch, own: Own) -> Statement:
        """Return how far we are with a peer, under our seal. All of it must be durable before it goes out."""
        places = {place: (sent, own.progress[place].received) for place, sent in (own.reach or {}).items()}
        return seal(self.key, peer, Statement(self.version(), epoch.number, places))

    def met(self, peer: str, theirs: Statement | None, ours: Statement, own: Own) -> None:
        """We are joined with a peer, and this is what both have stated, if it does."""
        self._ours.pop(peer, None)
        if theirs is not None:
            self.take(peer, theirs, own)
            self._ours[peer] = ours

    def tell(self, peer: str, link: Connection, ours: Statement) -> None:
        """Tell a peer how far we are, if it wants to know and has not heard it."""
        if self._ours.get(peer, ours) != ours:
            self._ours[peer] = ours
            self._driver.when_durable(lambda: tell(link, Stated(ours)))

    def check(self, peer: str, theirs: Statement | None, own: Own) -> None:
        """Refuse what a peer cannot state."""
        unknown = () if theirs is None else theirs.places.keys() - own.progress.keys()
        if unknown:
            raise MalformedFrame(f"{peer} states how far it is in {min(unknown)!r}, where we do not meet it")

    def take(self, peer: str, theirs: Statement, own: Own) -> None:
        """A peer tells how far it is."""
        self.check(peer, theirs, own)
        self.kept[peer] = theirs
        self._unwritten.add(peer)

    def unwritten(self, peer: str) -> list[Written]:
        """Return what is to be written now of what a peer has stated."""
        if peer not in self._unwritten:
            return []
        self._unwritten.remove(peer)
        return [StatementKept(peer, self.kept[peer])]

    def prove(self, peer: str, shown: Statement | None, claim: Claim, own: Own) -> bool:
        """Return whether what a peer shows is our own statement, and goes beyond what we know."""
        if shown is None or not hmac.compare_digest(seal(self.key, peer, shown).seal, shown.seal):
            return False
        return goes_beyond(shown, self.version(), claim, own.progress)
