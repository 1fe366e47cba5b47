"""What a server states to its peers, and they to it: how far each is with the other (``core.epochs.statement``).

Rules:

* A peer is told how far we are when the two meet, and then with what goes out to it, when that is durable, each
  ``STATE_EVERY_S`` at most. An old copy that was never told of is refused, and cannot be shown why: it goes on with others, and
  what it sends them may come before its causes at the peer that refuses it. So the first of several packets is told of at once.
* A peer of a version that makes no statements is told nothing after the meeting: it would not understand.
* What a peer states is written at once if nothing was for ``WRITE_EVERY_S``, and otherwise at a heartbeat, however often it does.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from thence.core.epochs.epoch import Claim, Epoch
from thence.core.epochs.handshake import Own
from thence.core.epochs.statement import KEY_BYTES, Statement, goes_beyond, seal
from thence.errors import MalformedFrame
from thence.net.control import tell
from thence.net.framing import Connection
from thence.net.protocol import Stated
from thence.node.driver.driver import Driver
from thence.storage.journal import KeyDrawn, StatementKept, Written

WRITE_EVERY_S: Final = 0.5
"""How often what a peer states is written, at most."""


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
        """What each peer has stated last."""
        self._unwritten: set[str] = set()
        """Peers whose last statement is not written yet."""
        self._written_at: dict[str, float] = {}
        """When a statement of each peer was written last."""
        self._ours: dict[str, Statement] = {}
        """What we have stated to each peer that wants to know, since we met."""

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

    def may_write(self, peer: str) -> bool:
        """Return whether what a peer states is to be written at once."""
        return time.monotonic() - self._written_at.get(peer, -inf) >= WRITE_EVERY_S

    def keep(self, peer: str) -> None:
        """Write what a peer has stated."""
        if not self._driver.full and (unwritten := self.unwritten(peer)):
            self._driver.write(unwritten)

    def unwritten(self, peer: str) -> list[Written]:
        """Return what is to be written now of what a peer has stated."""
        if peer not in self._unwritten:
            return []
        self._unwritten.remove(peer)
        self._written_at[peer] = time.monotonic()
        return [StatementKept(peer, self.kept[peer])]

    def prove(self, peer: str, shown: Statement | None, claim: Claim, own: Own) -> bool:
        """Return whether what a peer shows is our own statement, and goes beyond what we know."""
        if shown is None or not hmac.compare_digest(seal(self.key, peer, shown).seal, shown.seal):
            return False
        return goes_beyond(shown, self.version(), claim, own.progress)
