"""Handshakes and processes with a mistake in each, for checking that random runs with old copies, and the search, see it.

A mistake is a subclass of ``Handshake``, or of ``Connections`` where it is about what is stored when. ``tests/properties/
test_copies.py`` asks the simulator for each of them, ``tests/unit/sim/search/test_epochs.py`` the search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from tests.support.crashes.copied import ConnectedNode
from thence.core.epochs.epoch import Claim, Epoch, EpochFit, Held, common_epoch
from thence.core.epochs.handshake import Handshake, Own, Shown
from thence.sim.node import SimulatedNode
from thence.sim.parts.connections import Connections


class FindsNothing(Handshake):
    """Every comparison says that nobody is behind."""

    def compare(self, own: Own, shown: Shown) -> EpochFit:
        found = super().compare(own, shown)
        common = common_epoch(self.claim, shown.claim) if shown.claim is not None else None
        return EpochFit("nobody", "", common or Epoch(), found.newest)


class ComparesCountersOnly(Handshake):
    """As before there were epochs: claims are not looked at."""

    def compare(self, own: Own, shown: Shown) -> EpochFit:
        bare = Handshake(self.me, self.peer)
        found = bare.compare(Own(own.progress), Shown(None, shown.progress))
        common = common_epoch(self.claim, shown.claim) if shown.claim is not None else None
        return found._replace(common=common or Epoch())

    def _check_offer(self, found: EpochFit, claim: Claim) -> EpochFit:
        self.fresh = claim.offered.epoch if claim.offered is not None else Epoch()
        return found


class ShowsNoReach(Handshake):
    """A claim shows its epochs, and not how far its side can have come."""

    def shows(self, own: Own) -> Claim:
        agreed, *offers = (Held(held.epoch) for held in self.claim.held)
        return Claim(agreed, offers[-1] if offers else None, tuple(offers[:-1]))


class KeepsTheEpoch(Handshake):
    """The called side offers a fresh epoch, and both go on with the old one."""

    def welcome(self, link: Hashable, own: Own, shown: Shown) -> EpochFit | None:
        before = self.claim
        found = super().welcome(link, own, shown)
        if self.stage == "agreeing" and before.agreed.epoch.number:
            self.claim = before
        return found

    def agreed(self, link: Hashable, epoch: Epoch) -> bool:
        before = self.claim.agreed
        joined = super().agreed(link, epoch)
        if joined and before.epoch.number:
            self.claim = Claim(before)
        return joined


class TakesLateAnswers(Handshake):
    """An answer to a call that was let go is acted on."""

    def welcome(self, link: Hashable, own: Own, shown: Shown) -> EpochFit | None:
        if self.link != link:
            self.call(link)
        return super().welcome(link, own, shown)


class ForgetsTheEpochInCommon(Handshake):
    """The called side stores what it offers as if it were agreed on."""

    def hello(self, link: Hashable, own: Own, shown: Shown, fresh_id: str) -> EpochFit:
        found = super().hello(link, own, shown, fresh_id)
        if self.stage == "offering":
            self.claim = Claim(Held(self.fresh), Held(self.fresh))
        return found


class ForgetsEarlierOffers(Handshake):
    """The called side keeps its last offer only: a call that comes late takes the place of one that is being answered."""

    def hello(self, link: Hashable, own: Own, shown: Shown, fresh_id: str) -> EpochFit:
        found = super().hello(link, own, shown, fresh_id)
        self.claim = Claim(self.claim.agreed, self.claim.offered)
        return found


class KeepsNoReach(Handshake):
    """What was written to a connection is not stored when that is lost."""

    def _end_epoch(self, own: Own) -> None:
        """Do nothing."""


class TrustsItsMemory(Connections):
    """What was written to connections is not noted: a process that did not start may have sent all that it has."""

    def _own(self, peer: str) -> Own:
        return super()._own(peer)._replace(reach=None)


class ReachesAnewAtEachStart(Connections):
    """Each start since a handshake counts for how far its side can have come, not only the first."""

    def _started(self, claim: Claim, sent: dict[str, int]) -> Claim:
        offered = claim.offered
        anew = Claim(Held(claim.agreed.epoch), None if offered is None else Held(offered.epoch))
        return anew.started(sent)


class AgreesBeforeItIsStored(Connections):
    """The caller says that it agrees, and sends, before that is on its disk."""

    def _store(self, peer: str, then: Callable[[], None]) -> None:
        if isinstance(then, partial) and then.func == self._agree:
            then()
            super()._store(peer, lambda: None)
        else:
            super()._store(peer, then)


class AnswersBeforeItIsStored(Connections):
    """The called side answers before its offer is on its disk."""

    def _store(self, peer: str, then: Callable[[], None]) -> None:
        if isinstance(then, partial) and then.func == self._offered:
            then()
            super()._store(peer, lambda: None)
        else:
            super()._store(peer, then)


class StoresNoClaims(Connections):
    """Epochs are kept in memory only."""

    def _store(self, peer: str, then: Callable[[], None]) -> None:
        self.claims[peer] = self._handshakes[peer].claim
        self._queue.store((), then)


def node_with(mistake: type[Handshake | Connections]) -> type[SimulatedNode]:
    """Return a process that makes this mistake."""
    if issubclass(mistake, Handshake):
        mistake = type(f"With{mistake.__name__}", (Connections,), {"handshake_type": mistake})
    return type(f"With{mistake.__name__}", (ConnectedNode,), {"connections_type": mistake})
