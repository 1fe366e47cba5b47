"""Replicas: several processes that stand for one relay, so that the death of one interrupts nothing for long.

Source: daisy §3.1.3 (a causal server's successor forwards what it missed), interconnect §7 (a relay that dies before or after it
passed a message on). Design note: docs/concepts/takeover.md.

All replicas are members of the same domains, and whatever goes through the relay is handed to all of them. One forwards: the
first in their order that is not suspected. The others keep what it should forward, in the order in which they would have done it,
until they see it in the domain that it goes into. Who comes to suspect all before it forwards what it keeps, and goes on. Nobody
has to agree: if the suspicion was wrong, two forward, and everybody takes the first copy of each message.

Rules:

* *First copy wins.* Each replica forwards causes before effects, so the first copies of two messages of one sender come in the
  order of their numbers wherever they go. A copy with a number that is not above the last one of its sender is a second copy:
  one number for each sender is all that has to be remembered.
* *The original first.* A replica takes note of what another one forwarded only when it has itself got the message from where it
  comes from. What it forwards afterwards would otherwise depend on a message of which its clock there knows nothing. A *gate* of
  the ordering makes the copy, and what depends on it, wait (``core.ordering``). Waits lead only to what was sent earlier, so
  there is no deadlock.
* *A replica sends nothing itself*: its own message could overtake what it keeps for the one who forwards.
* What another replica has forwarded, and who saw it, is kept no longer here: if the forwarder dies before all have got it, the
  domain's transport gets it from whoever has it (``core.transport.ack_all``, with ``nearest`` and ``whole``). With other
  transports nothing is lost either, but what depends on it waits until the dead one is back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from thence.core.ordering import Gate
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame, weight_of

MAX_KEPT = 100_000
"""How many messages a replica keeps for the one who forwards, before it takes no more frames and so pushes back."""


class Kept(NamedTuple):
    """A message that another replica should forward, and to whom within the domain (None: all)."""

    envelope: Envelope
    members: tuple[str, ...] | None


class SavedTakeover(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    latest: list[tuple[str, int]]
    suspected: list[str]
    kept: dict[str, list[tuple[Envelope, tuple[str, ...] | None]]]


class Takeover:
    """What one member of a fabric with replicas keeps for their sake, whether it is one itself or not."""

    def __init__(self, me: str, routes: Routes) -> None:
        """Start as a member that suspects nobody."""
        self.me = me
        self._routes = routes
        self.group = routes.topology.fellows.get(me, ())
        """All that stand for our relay, ourselves included; empty if we are no replica."""
        self.fellows = tuple(other for other in self.group if other != me)
        self.suspected: dict[str, None] = {}
        self._latest: dict[str, int] = {}
        """The number of the last message of each origin that has come here."""
        self._kept: dict[str, dict[str, Kept]] = {name: {} for name in routes.topology.homes[me]} if self.group else {}
        self._kept_bytes = dict.fromkeys(self._kept, 0)

    @property
    def forwards(self) -> bool:
        """Whether it is up to us to forward: we are no replica, or suspect all before us."""
        return not self.group or all(other in self.suspected for other in self.group[: self.group.index(self.me)])

    def suspect(self, peer: str, suspected: bool) -> None:
        """Suspect another replica, or no longer."""
        if suspected:
            self.suspected[peer] = None
        else:
            self.suspected.pop(peer, None)

    @property
    def kept(self) -> int:
        """How many messages we keep for the one who forwards."""
        return sum([len(kept) for kept in self._kept.values()])

    def kept_for(self, domain: str) -> int:
        """How many of them go into this domain."""
        return len(self._kept.get(domain, ()))

    def kept_bytes_for(self, domain: str) -> int:
        """How many bytes these have, about."""
        return self._kept_bytes.get(domain, 0)

    @property
    def kept_bytes(self) -> int:
        """How many bytes all that we keep has, about."""
        return sum(self._kept_bytes.values())

    def keeps(self, domain: str, envelope: Envelope) -> bool:
        """Return whether we keep a message that goes into this domain."""
        return str(envelope.id) in self._kept.get(domain, ())

    def is_copy(self, domain: str, envelope: Envelope) -> bool:
        """Return whether a message that came by this domain is one that another replica forwarded into it."""
        return bool(self.group) and domain != self._routes.upstream(self.me, envelope.origin)

    def is_first(self, envelope: Envelope) -> bool:
        """Note that a message came from where it comes from; return whether that is news."""
        if envelope.number <= self._latest.get(envelope.origin, 0):
            return False
        self._latest[envelope.origin] = envelope.number
        return True

    def has(self, envelope: Envelope) -> bool:
        """Return whether a message, or a later one of the same origin, has come from where it comes from."""
        return envelope.number <= self._latest.get(envelope.origin, 0)

    def with_fellows(self, members: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return to whom what is for ``members`` (None: all) is forwarded: the other replicas are to see that it was."""
        return members if members is None else tuple(dict.fromkeys((*members, *self.fellows)))

    def keep(self, domain: str, envelope: Envelope, members: tuple[str, ...] | None) -> None:
        """Keep what another replica should forward into a domain."""
        self.seen(domain, envelope)  # If we keep it already, it does not count twice.
        self._kept[domain][str(envelope.id)] = Kept(envelope, members)
        self._kept_bytes[domain] += weight_of(envelope)

    def seen(self, domain: str, envelope: Envelope) -> None:
        """Another replica has forwarded this into a domain."""
        if self._kept[domain].pop(str(envelope.id), None) is not None:
            self._kept_bytes[domain] -= weight_of(envelope)

    def take_kept(self, domain: str) -> list[Kept]:
        """Return what is to be forwarded into a domain now, in order, and keep it no longer."""
        kept, self._kept[domain], self._kept_bytes[domain] = self._kept[domain], {}, 0
        return list(kept.values())

    def fork(self) -> Takeover:
        """Return one that goes on from here on its own."""
        twin = Takeover(self.me, self._routes)
        twin.suspected = dict(self.suspected)
        twin._latest = dict(self._latest)
        twin._kept = {name: dict(kept) for name, kept in self._kept.items()}
        twin._kept_bytes = dict(self._kept_bytes)
        return twin

    def save(self) -> SavedTakeover:
        """Return everything, for a snapshot. Equal states give equal bytes."""
        kept = {name: [(one.envelope, one.members) for one in kept.values()] for name, kept in self._kept.items()}
        return SavedTakeover(sorted(self._latest.items()), sorted(self.suspected), kept)

    def load(self, saved: SavedTakeover) -> None:
        """Become what ``save`` returned."""
        self._latest = dict(saved.latest)
        self.suspected = dict.fromkeys(saved.suspected)
        self._kept = {
            name: {str(envelope.id): Kept(envelope, members) for envelope, members in kept} for name, kept in saved.kept.items()
        }
        self._kept_bytes = {name: sum([weight_of(one.envelope) for one in kept.values()]) for name, kept in self._kept.items()}


class OriginalFirst(Gate):
    """Lets a copy that another replica forwarded into a domain pass only when we have the message from where it comes from."""

    def __init__(self, takeover: Takeover, routes: Routes, domain: str) -> None:
        """Stand before ``domain``."""
        self._takeover = takeover
        self._routes = routes
        self._domain = domain

    def missing(self, frame: Frame[Any]) -> tuple[int, int] | None:
        envelope = frame.envelope
        if envelope is None or not self._takeover.is_copy(self._domain, envelope) or self._takeover.has(envelope):
            return None
        return self.awaited(envelope)

    def awaited(self, envelope: Envelope) -> tuple[int, int]:
        """Return what a copy of this message waits for."""
        return -1 - self._routes.number_of(envelope.origin), envelope.number

    def name(self, stream: int) -> str:
        return f"{self._routes.topology.processes[-1 - stream]}, by its own way"
