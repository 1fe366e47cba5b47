"""Epochs: decide whether two sides may go on with the numbers that they have for each other.

Two peers number what they send to each other, and so do a client and its home. A side that runs on an old copy of its store, or
beside a copy of itself, uses some numbers twice; the other takes the second use for a repetition and drops it. Counters alone
do not show this: once the old copy has sent as much as it forgot, they fit again. So each pair has an *epoch*, and numbers are
valid within the epoch only.

Rules:

* An epoch has a random id, which the caller of this module draws, and a number that counts the epochs of the pair. Both sides
  keep it on disk. Each meeting replaces it.
* A meeting has three steps. The caller shows what it has (``Claim``). The called side compares, stores a new epoch as *offered*
  and shows what it has. The caller compares, stores the new epoch as *agreed*, and only then says so and sends. The called side
  then stores it as agreed, too. A crash between two steps leaves both sides with an epoch in common.
* A fresh epoch has a higher number than all that either side has stored, offers included. So of two runs of one side that both
  met the other, the one that did so last has the higher number, and the other one is fenced.
* A call that its caller has given up may arrive late, after the next one. So an offer that is replaced before it was agreed on is
  kept with those before it, as *earlier*: its caller may have agreed on it. Agreeing on one ends all others.
* So if one side has agreed on an epoch, the other has it agreed or offered. If they have no such epoch in common, one of them
  runs on an old copy, or there are two of it. The side whose newest epoch, offers included, has the lower number is the older
  one.
* A copy that was made within the epoch has the right id. Therefore each side also says its *reach*: the highest number that it
  can have sent within the epoch. A side that started again reaches as far as its store did at its *first* start within the
  epoch, or as far as it had written when it lost the connection, whichever came first. If the other has taken more, another
  run of the same store has sent it. This holds for what goes over the connection of the two only: a stream that others repeat
  has no reach.
* A peer of a version without epochs makes no claim. It is compared by counters only, until it has made its first claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from thence.core.epochs.progress import Progress, forgot

MAX_EPOCH_ID_CHARACTERS = 64
"""The longest id of an epoch that is taken from another side."""

MAX_EPOCH_NUMBER = 2**53
"""The highest number of an epoch that is. Nobody gets there by meeting."""

MAX_EPOCH_STEP = 2**24
"""How far the newest epochs of two sides that have one in common may be apart. A meeting that fails after the offer makes one
more: with a call each five seconds that takes 2.6 years. So a peer that lies cannot bring a pair near ``MAX_EPOCH_NUMBER``."""

MAX_EARLIER_OFFERS = 4
"""How many offers are kept that were replaced before they were agreed on: the newest."""


class Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One epoch of a pair. The first has number 0 and no id: the two have never met."""

    number: int = 0
    id: Annotated[str, msgspec.Meta(max_length=MAX_EPOCH_ID_CHARACTERS)] = ""

    def __str__(self) -> str:
        """Return the epoch for people."""
        return f"{self.number} ({self.id})" if self.id else "none"


class Held(msgspec.Struct, frozen=True, array_like=True):
    """An epoch that one side has stored, and its reach in it."""

    epoch: Epoch
    reach: dict[str, int] | None = None
    """By stream, the highest number that this side can have sent within the epoch; None: neither a start nor the loss of the
    connection has ended that. A stream that is not in it may have gone further: others repeat what is sent there."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What one side shows of itself when it meets the other."""

    agreed: Held
    offered: Held | None = None
    earlier: tuple[Held, ...] = ()
    """What was offered before that, since the last agreement."""

    @property
    def held(self) -> Iterator[Held]:
        """Return what is agreed, then what was offered, the newest last."""
        yield self.agreed
        yield from self.earlier
        if self.offered is not None:
            yield self.offered

    def started(self, sent: Mapping[str, int]) -> Claim:
        """Return the claim of this side after a start: ``sent`` has, by stream, the last number that its store knows."""
        offered = None if self.offered is None else _started(self.offered, sent)
        return Claim(_started(self.agreed, sent), offered, tuple([_started(held, sent) for held in self.earlier]))

    def renumbered(self, kept: Collection[str] = ()) -> Claim:
        """Return the claim of a side whose streams but those that are ``kept`` are numbered anew.

        Nothing of these was sent within an epoch of before.
        """
        agreed, *offers = [_renumbered(held, kept) for held in self.held]
        return Claim(agreed, offers.pop() if self.offered is not None else None, tuple(offers))

    def offer(self, common: Epoch, fresh: Epoch) -> Claim:
        """Return the claim of a called side that offers a fresh epoch; ``common`` is the one that the two have in common."""
        _, *offers = self.held
        if common != self.agreed.epoch:  # The other has agreed on one of them, and never will on another.
            offers = []
        return Claim(self._find(common), Held(fresh), tuple(offers[-MAX_EARLIER_OFFERS:]))

    def agree(self, fresh: Epoch) -> Claim:
        """Return the claim of a side that knows that the other has this epoch on disk."""
        return Claim(self._find(fresh))

    def _find(self, epoch: Epoch) -> Held:
        return next((held for held in self.held if held.epoch == epoch), Held(epoch))


NEVER_MET = Claim(Held(Epoch()))
"""What a side shows to one that it has never met."""

Behind = Literal["nobody", "me", "peer", "unclear"]


class EpochFit(NamedTuple):
    """What a meeting shows."""

    behind: Behind
    """Who runs on an old copy of its store, or beside a newer copy."""
    reason: str
    """Why the two must not go on, naming both; empty: they may."""
    common: Epoch
    """The epoch that they have in common, if they may go on."""
    newest: int = 0
    """The highest number of an epoch that either has stored."""

    @property
    def next_number(self) -> int:
        """The number of the epoch to offer."""
        return max(self.common.number, self.newest) + 1


class Side(NamedTuple):
    """One side at a meeting."""

    name: str
    claim: Claim | None
    """None: it knows no epochs."""
    progress: Mapping[str, Progress]
    """How far it is with the other, by stream."""


def compare(me: Side, peer: Side) -> EpochFit:
    """Compare what two sides show of themselves. Both come to the same finding, each from its own place."""
    mine, theirs = me.claim or NEVER_MET, peer.claim or NEVER_MET
    if peer.claim is None and mine.agreed.epoch == Epoch():
        return _compare_progress(me, peer, Epoch())
    here, there = (max(held.epoch.number for held in claim.held) for claim in (mine, theirs))
    newest = max(here, there)
    if newest >= MAX_EPOCH_NUMBER:
        return EpochFit("unclear", f"{peer.name!r} shows an epoch with the number {newest} to {me.name!r}", Epoch())
    common = common_epoch(mine, theirs)
    if common is None:
        return _no_common_epoch(me.name, mine, peer.name, theirs)
    if abs(here - there) > MAX_EPOCH_STEP:
        said = f"{me.name!r} has epochs up to {here} with {peer.name!r}, which has epochs up to {there} with {me.name!r}"
        return EpochFit("unclear", f"{said}: they may be {MAX_EPOCH_STEP} apart (MAX_EPOCH_STEP)", Epoch())
    if reason := _beyond_reach(peer, me, common):
        return EpochFit("peer", reason, Epoch())
    if reason := _beyond_reach(me, peer, common):
        return EpochFit("me", reason, Epoch())
    return _compare_progress(me, peer, common)._replace(newest=newest)


def common_epoch(mine: Claim, theirs: Claim) -> Epoch | None:
    """Return the newest epoch that one side has agreed on and the other has stored; None: there is none."""
    found = {held.epoch for held in theirs.held if held.epoch == mine.agreed.epoch}
    found.update(held.epoch for held in mine.held if held.epoch == theirs.agreed.epoch)
    return max(found, key=lambda epoch: epoch.number, default=None)


def _no_common_epoch(me: str, mine: Claim, peer: str, theirs: Claim) -> EpochFit:
    here, there = mine.agreed.epoch, theirs.agreed.epoch
    said = f"{me!r} is in epoch {here} with {peer!r}, and {peer!r} is in epoch {there} with {me!r}"
    # What one has offered counts: it did so after it had met the other, or another run of it, in all epochs before.
    newest_here, newest_there = (max(held.epoch.number for held in claim.held) for claim in (mine, theirs))
    if newest_here == newest_there:
        return EpochFit("unclear", f"{said}: one of them runs on an old copy of its store, or there are two of it", Epoch())
    behind: Behind = "me" if newest_here < newest_there else "peer"
    older, epoch = (me, here) if behind == "me" else (peer, there)
    if epoch == Epoch():
        return EpochFit(behind, f"{said}: {older!r} has lost its state, or runs on an old copy of its store", Epoch())
    return EpochFit(behind, f"{said}: {older!r} runs on an old copy of its store, or another copy of it has its place", Epoch())


def _beyond_reach(who: Side, other: Side, common: Epoch) -> str:
    """Say what ``other`` has taken from ``who`` that ``who`` cannot have sent."""
    held = next((held for held in (who.claim or NEVER_MET).held if held.epoch == common), None)
    if held is None or held.reach is None:
        return ""
    for stream, progress in other.progress.items():
        reach = held.reach.get(stream)
        if reach is not None and progress.received_highest > reach:
            return (
                f"{other.name!r} has taken number {progress.received_highest} of {stream!r} from {who.name!r}, which knew of "
                f"{reach} when it started again: {who.name!r} runs on an old copy of its store"
            )
    return ""


def _compare_progress(me: Side, peer: Side, common: Epoch) -> EpochFit:
    for stream, theirs in peer.progress.items():
        mine = me.progress.get(stream)
        if mine is None:
            continue
        if reason := forgot(mine, theirs, me.name, peer.name, stream):
            return EpochFit("peer", reason, Epoch())
        if reason := forgot(theirs, mine, peer.name, me.name, stream):
            return EpochFit("me", reason, Epoch())
    return EpochFit("nobody", "", common)


def _renumbered(held: Held, kept: Collection[str]) -> Held:
    reach = {stream: number for stream, number in (held.reach or {}).items() if stream in kept}
    return Held(held.epoch, reach or None)


def _started(held: Held, sent: Mapping[str, int]) -> Held:
    return held if held.reach is not None else Held(held.epoch, dict(sent))
