"""Planted mistakes in the resilient ordering: each is found by the tests that follow its runs with deaths."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from thence.core.ordering.pending import HeldFrame
from thence.core.ordering.resilience.custody import Custody, HeldMessage, Key, Out
from thence.core.ordering.resilient import Resilient
from thence.core.wire.messages import Envelope


class NotHandedOn(Custody):
    """Whoever holds a message keeps it to himself, whoever is suspected."""

    def _attend(self, key: Key, out: Out) -> None:
        kept = self.held.get(key)
        if kept is not None and kept.givers:
            kept.givers.append(self._me)  # Whom nobody suspects.
        super()._attend(key, out)


class NotReplaced(Custody):
    """Nobody takes the place of a holder who is suspected."""

    def suspect(self, member: int, suspected: bool, out: Out) -> None:
        super().suspect(member, suspected, [] if suspected else out)


class CountingTheDead(Custody):
    """As many must hold a message as if all were alive."""

    def _attend(self, key: Key, out: Out) -> None:
        suspected, self.suspected = self.suspected, {}
        super()._attend(key, out)
        self.suspected = suspected


class NotTellingAll(Custody):
    """What somebody knows of a suspected sender he keeps to himself."""

    def _tell_all(self, stream: int, upto: int, ranges: tuple[int, ...], out: Out) -> None:
        pass


class ForgettingEarly(Custody):
    """Copies go when enough hold a message, though not all its recipients do."""

    def _recipients(self, kept: HeldMessage) -> list[int]:
        members = super()._recipients(kept)
        return members if not set(members) <= set(kept.given) else [member for member in members if member in kept.holders]


class AcceptingEarly(Custody):
    """A message is accepted when it is sent."""

    def send(self, envelope: Envelope, to: tuple[int, ...] | None, updates: tuple[int, ...], out: Out) -> None:
        super().send(envelope, to, updates, out)
        self.secured.append(envelope)


class ForgettingToAnswer(Custody):
    """Whoever has a message twice says so only once, so that its second giver never knows."""

    def take(self, giver: int, stamp: msgspec.Struct, envelope: Envelope, out: Out, *, had: bool) -> None:
        before = (stamp.stream, stamp.sequence) in self.held or had  # type: ignore[attr-defined]
        super().take(giver, stamp, envelope, [] if before else out, had=had)  # type: ignore[arg-type]


def with_custody(custody: type[Custody]) -> type[Resilient]:
    """Return the ordering with this in place of what sees to copies."""

    class Planted(Resilient):
        custody_type = custody

    return Planted


class AsPrinted(Resilient):
    """As daisy §3.4 (ii) is printed: a message is delivered when enough hold it, whatever became of earlier ones to others."""

    def _is_safe(self, held: HeldFrame) -> bool:  # type: ignore[type-arg]
        return held.frame.stamp.sequence in self.custody.enough[held.stream]

    def follow(self, said: Out, out: object) -> object:  # type: ignore[override]
        self.custody.advanced.update(dict.fromkeys(range(len(self.members))))
        return super().follow(said, out)  # type: ignore[arg-type]


class NotWaiting(Resilient):
    """A message is delivered before others are known to hold it."""

    def _is_safe(self, held: HeldFrame) -> bool:  # type: ignore[type-arg]
        return True


PLANTED: Mapping[str, type[Resilient]] = {
    **{
        kind.__name__: with_custody(kind)
        for kind in (
            NotHandedOn,
            NotReplaced,
            CountingTheDead,
            NotTellingAll,
            ForgettingEarly,
            AcceptingEarly,
            ForgettingToAnswer,
        )
    },
    "AsPrinted": AsPrinted,
    "NotWaiting": NotWaiting,
}
