"""The handshake of two peers: three steps, after which both are in a fresh epoch (``core.epochs.epoch``). No sockets, no disk.

The server and the simulator drive this, each with its own connections and its own store. A *link* is whatever stands for one
connection there; a link is used for one handshake and never again.

Rules:

* The caller shows its claim, and only what is durable of it. The called side compares, stores an offer and answers when that is
  durable. The caller compares, stores that it agrees and, when that is durable, says so. Then both are *joined*.
* Nothing else may be sent or taken on a link before it is joined. A new handshake ends the one before, and with it the
  connection that stood: whoever offers an epoch takes nothing more from an older connection, since another run of the same peer
  may be at its other end.
* Whoever is called while it calls lets its own call go. So an answer that comes late, to a call that was let go, changes nothing:
  otherwise each side could agree on what the other has offered, and they would have no epoch in common.
* A call that crosses ours may show what its caller had before it answered us. So one that does not fit is told to come later
  while we agree, and is refused without an alarm while we are joined: if its caller means it, it compares by itself.
* A comparison that finds something wrong changes nothing. A caller that does not fit takes nobody's place.
* When two that were joined are so no more, each stores how far it can have come in the epoch. Otherwise a side that goes on from
  a snapshot of its memory, accepts as much as it has forgotten, and starts again would say that it has sent all of it.
* A peer that makes no claim is of a version without epochs. It is joined as soon as it has shown itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Literal, NamedTuple

from thence.core.epochs.epoch import MAX_EPOCH_ID_CHARACTERS, NEVER_MET, Claim, Epoch, EpochFit, Side, compare
from thence.core.epochs.progress import Progress

Stage = Literal["idle", "calling", "offering", "offered", "agreeing", "joined"]


class Own(NamedTuple):
    """What we know of ourselves at a meeting."""

    progress: Mapping[str, Progress]
    reach: Mapping[str, int] | None = None
    """By stream, the highest number that we can have sent at all; None: that is not known beyond what the claim says."""


class Shown(NamedTuple):
    """What the other side shows of itself."""

    claim: Claim | None
    """None: it knows no epochs."""
    progress: Mapping[str, Progress]


class Handshake:
    """Our side of the handshakes with one peer, one after the other."""

    def __init__(self, me: str, peer: str, claim: Claim = NEVER_MET) -> None:
        """Go on with the claim that is stored."""
        self.me = me
        self.peer = peer
        self.claim = claim
        """To be stored whenever a step below has changed it."""
        self.stage: Stage = "idle"
        self.link: Hashable = None
        """The connection that counts."""
        self.fresh = Epoch()
        """The epoch that is being agreed on over ``link``."""

    def shows(self, own: Own) -> Claim:
        """Return the claim to show."""
        return self.claim if own.reach is None else self.claim.started(own.reach)

    def compare(self, own: Own, shown: Shown) -> EpochFit:
        """Compare what we have with what a peer shows. This changes nothing."""
        return compare(Side(self.me, self.shows(own), own.progress), Side(self.peer, shown.claim, shown.progress))

    def is_current(self, link: Hashable) -> bool:
        """Whether this link is the one that counts."""
        return self.stage != "idle" and self.link == link

    # The caller.

    def call(self, link: Hashable) -> None:
        """We call on this link: whatever was before is over."""
        self._begin(link, "calling")

    def welcome(self, link: Hashable, own: Own, shown: Shown) -> EpochFit | None:
        """The called side answers; None: the call was let go before. If nothing is wrong, store the claim, then ``agreeing``."""
        if self.stage != "calling" or self.link != link:
            return None
        found = self.compare(own, shown)
        if not found.reason and shown.claim is not None:
            found = self._check_offer(found, shown.claim)
        if found.reason:
            self.break_off()
        elif shown.claim is None:
            self.stage = "joined"
        else:
            self.claim = self.claim.agree(self.fresh)
            self.stage = "agreeing"
        return found

    def _check_offer(self, found: EpochFit, claim: Claim) -> EpochFit:
        offered = None if claim.offered is None else claim.offered.epoch
        # Above all that we hold: agreeing on a lower one would let go of a number that we have stated to the peer.
        newest = max(held.epoch.number for held in self.claim.held)
        fits = offered is not None and offered.number > newest and 0 < len(offered.id) <= MAX_EPOCH_ID_CHARACTERS
        if offered is None or not fits:
            what = "nothing" if offered is None else f"epoch {offered.number}"
            return EpochFit("unclear", f"{self.peer!r} offers {what} to {self.me!r}, which has met it in epoch {newest}", Epoch())
        self.fresh = offered
        return found

    def agreeing(self, link: Hashable) -> Epoch | None:
        """What we agreed on is durable: return the epoch to tell the peer; None: the call was let go meanwhile."""
        if self.stage != "agreeing" or self.link != link:
            return None
        self.stage = "joined"
        return self.fresh

    # The called side.

    def hello(self, link: Hashable, own: Own, shown: Shown, fresh_id: str) -> EpochFit:
        """A peer calls. If nothing is wrong, whatever was before is over: store the claim, then ``offering``.

        ``fresh_id`` was drawn for this call. A reason where nobody is behind means: later.
        """
        found = self.compare(own, shown)
        if found.reason and self.stage == "agreeing":
            # It may have called before it answered us, and what it showed then is old.
            return EpochFit("nobody", f"{self.me!r} agrees with {self.peer!r} on an epoch over another connection", Epoch())
        if found.reason:
            return found
        if shown.claim is None:
            self._begin(link, "joined")
        else:
            self._end_epoch(own)
            self._begin(link, "offering")
            self.fresh = Epoch(found.next_number, fresh_id)
            self.claim = self.claim.offer(found.common, self.fresh)
        return found

    def offering(self, link: Hashable) -> bool:
        """What we offer is durable: return whether to answer; not if the caller was let go meanwhile."""
        if self.stage != "offering" or self.link != link:
            return False
        self.stage = "offered"
        return True

    def agreed(self, link: Hashable, epoch: Epoch) -> bool:
        """The caller says that it has the epoch on disk; return whether we are joined.

        Then store the claim; nothing has to wait for that.
        """
        if self.stage != "offered" or self.link != link or epoch != self.fresh:
            return False
        self.claim = self.claim.agree(epoch)
        self.stage = "joined"
        return True

    # Both.

    def lost(self, link: Hashable, own: Own | None = None) -> bool:
        """A link is gone; return whether the claim is another one, which is to be stored before anything else is accepted."""
        before = self.claim
        if self.link == link:
            if own is not None:
                self._end_epoch(own)
            self.break_off()
        return self.claim != before

    def _end_epoch(self, own: Own) -> None:
        """Nothing more goes out within the epoch that we were joined in: what did is all that we can have sent."""
        if self.stage == "joined" and own.reach is not None and self.claim.agreed.epoch != Epoch():
            self.claim = self.claim.started(own.reach)

    def break_off(self) -> None:
        """Whatever was begun is over."""
        self._begin(None, "idle")

    def _begin(self, link: Hashable, stage: Stage) -> None:
        self.link, self.stage, self.fresh = link, stage, Epoch()
