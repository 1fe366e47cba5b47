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
* *Senders shared out.* Where the replicas are relays of a FIFO link, each sender has an order of its own of those who forward its
  messages. The two rules above hold for each sender by itself, and nothing holds between senders.
* *The original first.* A replica takes note of what another one forwarded only when it has itself got the message from where it
  comes from. What it forwards afterwards would otherwise depend on a message of which its clock there knows nothing. A *gate* of
  the ordering makes the copy, and what depends on it, wait (``core.ordering``). Waits lead only to what was sent earlier, so
  there is no deadlock.
* *What a replica sends, it sends as a member of its local domain.* What is for it from outside goes into that domain too, and it
  delivers the copy that comes out there. So it is a member like any other who happens to live in one process with a replica, and
  nothing of the above changes. Without a local domain it sends nothing: its own message could overtake what it keeps for the one
  who forwards.
* *Two have a message before it leaves its domain.* What another member sent is at its sender and here. What we sent ourselves
  waits, and what we forward behind it, until another member has it, where that can be found out. Otherwise our death could leave
  a message beyond whose causes nobody has.
* *What is found out to be safe is kept until it is.* Where the fabric finds that out (``Topology.uniform``), a replica keeps what
  another one forwarded until it is told that all have it. If it comes to suspect the other one, it forwards that again: so it can
  report what the dead one can report no more, by its own copy. What it was told of is recorded with the suspicion, since what
  goes out must follow from records.
* Else what another replica has forwarded is kept no longer here: if the forwarder dies before all have got it, the domain's
  transport gets it from whoever has it (``core.transport.ack_all``, with ``nearest`` and ``whole``). With other transports
  nothing is lost either, but what depends on it waits until the dead one is back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from thence.core.ordering import Gate
from thence.core.topology.routing import Routes
from thence.core.transport.base import Transport
from thence.core.wire.messages import Envelope, Frame, MessageId, weight_of

MAX_KEPT = 100_000
"""How many messages a replica keeps for the one who forwards, before it takes no more frames and so pushes back."""


class Kept(NamedTuple):
    """A message that another replica should forward, and to whom within the domain (None: all)."""

    envelope: Envelope
    members: tuple[str, ...] | None


class StillKept:
    """What another replica forwarded and we keep until all have it, by domain, in the order in which it was forwarded."""

    def __init__(self, domains: Iterable[str]) -> None:
        """Nothing is kept."""
        self.table: dict[str, dict[str, Kept]] = {name: {} for name in domains}
        self._numbers: dict[str, dict[str, deque[int]]] = {}
        """By origin and domain."""
        self._news: dict[str, None] = {}
        """The origins of what came since we last looked what is safe."""

    def keep(self, domain: str, kept: Kept) -> None:
        """Keep a message."""
        origin = kept.envelope.origin
        self.table[domain][str(kept.envelope.id)] = kept
        self._numbers.setdefault(origin, {}).setdefault(domain, deque()).append(kept.envelope.number)
        self._news[origin] = None

    def drop_safe(self, safe_of: Mapping[str, int], origins: Iterable[str]) -> list[tuple[str, Envelope]]:
        """Keep no longer what all have, by origin up to a number; return it, and where it went.

        Only of these ``origins`` is there news.
        """
        dropped = []
        for origin in dict.fromkeys((*origins, *self._news)):
            for domain, numbers in self._numbers.get(origin, {}).items():
                while numbers and numbers[0] <= safe_of.get(origin, 0):
                    kept = self.table[domain].pop(str(MessageId(origin, numbers.popleft())), None)
                    if kept is not None:
                        dropped.append((domain, kept.envelope))
        self._news = {}
        return dropped

    def take(self, domain: str, is_ours: Callable[[str], bool]) -> list[Kept]:
        """Return what went into a domain and is ours to forward again, by origin, and keep it no longer."""
        ours = [kept for kept in self.table.get(domain, {}).values() if is_ours(kept.envelope.origin)]
        for kept in ours:
            del self.table[domain][str(kept.envelope.id)]
        return ours

    def fork(self) -> StillKept:
        """Return an independent copy."""
        twin = StillKept(self.table)
        for domain, table in self.table.items():
            for kept in table.values():
                twin.keep(domain, kept)
        twin._news = dict(self._news)
        return twin


class SavedTakeover(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    latest: list[tuple[str, int]]
    suspected: list[str]
    kept: dict[str, list[tuple[Envelope, tuple[str, ...] | None]]]
    delivered: list[tuple[str, int]] = []
    alone: list[tuple[int, int]] = []
    seen: dict[str, list[tuple[Envelope, tuple[str, ...] | None]]] = {}


class Takeover:
    """What one member of a fabric with replicas keeps for their sake, whether it is one itself or not."""

    def __init__(self, me: str, routes: Routes) -> None:
        """Start as a member that suspects nobody."""
        self.me = me
        self._routes = routes
        self.group = routes.topology.fellows.get(me, ())
        """All that stand for our relay, ourselves included; empty if we are no replica."""
        self.fellows = tuple(other for other in self.group if other != me)
        homes = routes.topology.homes[me] if self.group else ()
        self._by_sender = any(routes.topology.domains[home].by_sender for home in homes)
        """Whether it depends on the sender who forwards."""
        self._order: dict[tuple[str, str], tuple[str, ...]] = {}
        """Who forwards, by origin and domain, as far as it was asked for."""
        self.suspected: dict[str, None] = {}
        self.local = routes.topology.local.get(me)
        """The domain of which we are an ordinary member beside that; None: we only carry."""
        self._latest: dict[str, int] = {}
        """The number of the last message of each origin that has come here."""
        self._delivered: dict[str, int] = {}
        """The number of the last message of each origin that we delivered as a member of our local domain."""
        self.alone: dict[int, int] = {}
        """Messages of our own that nobody else is known to have, by number, each with its number in the stream of our domain."""
        self._kept: dict[str, dict[str, Kept]] = {name: {} for name in homes}
        self._kept_bytes = dict.fromkeys(self._kept, 0)
        self.uniform = bool(self.group) and routes.topology.uniform
        """Whether we keep what another replica forwarded until all have it."""
        self.forwarded = StillKept(homes)

    @property
    def forwards(self) -> bool:
        """Whether it is up to us to forward something: we are no replica, have senders of our own, or suspect all before us."""
        return not self.group or self._by_sender or self.group[0] == self.me or self._suspects_before(self.group)

    def forwards_for(self, origin: str, domain: str) -> bool:
        """Return whether it is up to us to forward messages of an origin into a domain."""
        if not self._by_sender:
            return self.forwards
        order = self._order.get((origin, domain))
        if order is None:
            order = self._order[origin, domain] = self._routes.carriers(self.me, origin, domain)
        return self._suspects_before(order)

    def _suspects_before(self, order: tuple[str, ...]) -> bool:
        return all(other in self.suspected for other in order[: order.index(self.me)])

    def go_on(self, before: Takeover, older: Mapping[str, Collection[str]]) -> None:
        """Take from the topology before what counts in places that are older than this one, given with our peers there.

        Numbers of messages outlive a topology. Nothing was on its way in the other places.
        """
        self._latest, self._delivered = before._latest, before._delivered
        self.suspected = {name: None for name in before.suspected if any(name in peers for peers in older.values())}
        if self.local in older:
            self.alone = before.alone
        for domain in older:
            if domain in self._kept and domain in before._kept:
                self._kept[domain], self._kept_bytes[domain] = before._kept[domain], before._kept_bytes[domain]

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

    def keeps_much(self, most_bytes: int) -> bool:
        """Return whether we keep so much that a domain may take no more."""
        return bool(self.group) and (self.kept >= MAX_KEPT or self.kept_bytes >= most_bytes)

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

    def delivers(self, domain: str, envelope: Envelope) -> bool:
        """Note that a message for us has its turn in a domain; return whether it is to be delivered for that."""
        if self.local is None:
            return not self.is_copy(domain, envelope)
        if domain != self.local or envelope.number <= self._delivered.get(envelope.origin, 0):
            return False
        self._delivered[envelope.origin] = envelope.number
        return True

    def holders(self, transport: Transport, suspected: Collection[str]) -> int:
        """Return up to which number others have messages of our own that nobody else was known to have; 0: that is no news.

        Where nobody else is left in our domain, there is nobody to wait for.
        """
        others = [transport.progress(peer) for peer in transport.peers if peer not in suspected]
        there = max([progress.acked for progress in others if progress is not None], default=None)
        return max([number for number, at in self.alone.items() if there is None or at <= there], default=0)

    def found_holders(self, upto: int) -> None:
        """Note that others have all messages of our own up to this number."""
        self.alone = {number: at for number, at in self.alone.items() if number > upto}

    def with_fellows(self, members: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """Return to whom what is for ``members`` (None: all) is forwarded: the other replicas are to see that it was."""
        return members if members is None else tuple(dict.fromkeys((*members, *self.fellows)))

    def keep(self, domain: str, envelope: Envelope, members: tuple[str, ...] | None) -> None:
        """Keep what another replica should forward into a domain."""
        self.seen(domain, envelope, forwarded=False)  # If we keep it already, it does not count twice.
        self._kept[domain][str(envelope.id)] = Kept(envelope, members)
        self._kept_bytes[domain] += weight_of(envelope)

    def seen(self, domain: str, envelope: Envelope, *, forwarded: bool = True) -> None:
        """Another replica has ``forwarded`` this into a domain, or we do so now."""
        kept = self._kept[domain].pop(str(envelope.id), None)
        if kept is not None:
            self._kept_bytes[domain] -= weight_of(envelope)
        if kept is not None and forwarded and self.uniform:
            self.forwarded.keep(domain, kept)

    def take_kept(self, domain: str, *, everything: bool = False) -> list[Kept]:
        """Return what is up to us to forward into a domain now, or ``everything``, in order, and keep it no longer."""
        kept_here = self._kept.get(domain, {})  # Who is no replica keeps nothing.
        ours = list(kept_here.values()) if everything else []
        for kept in () if everything else kept_here.values():
            if kept.envelope.origin == self.me and kept.envelope.number in self.alone:
                break  # A message of our own that we alone have does not leave, and nothing overtakes it.
            if self.forwards_for(kept.envelope.origin, domain):
                ours.append(kept)
        for kept in ours:
            self.seen(domain, kept.envelope, forwarded=False)
        return ours

    def fork(self) -> Takeover:
        """Return one that goes on from here on its own."""
        twin = Takeover(self.me, self._routes)
        twin.suspected = dict(self.suspected)
        twin._latest = dict(self._latest)
        twin._kept = {name: dict(kept) for name, kept in self._kept.items()}
        twin._kept_bytes = dict(self._kept_bytes)
        twin._delivered, twin.alone = dict(self._delivered), dict(self.alone)
        twin.forwarded = self.forwarded.fork()
        return twin

    def save(self) -> SavedTakeover:
        """Return everything, for a snapshot. Equal states give equal bytes."""
        kept, seen = (
            {name: [(one.envelope, one.members) for one in kept.values()] for name, kept in table.items()}
            for table in (self._kept, self.forwarded.table if self.uniform else {})
        )
        delivered, alone = sorted(self._delivered.items()), sorted(self.alone.items())
        return SavedTakeover(sorted(self._latest.items()), sorted(self.suspected), kept, delivered, alone, seen)

    def load(self, saved: SavedTakeover) -> None:
        """Become what ``save`` returned."""
        self._latest = dict(saved.latest)
        self.suspected = dict.fromkeys(saved.suspected)
        self._delivered, self.alone = dict(saved.delivered), dict(saved.alone)
        self._kept = {name: _by_id(kept) for name, kept in saved.kept.items()}
        for name, seen in saved.seen.items():
            for kept in _by_id(seen).values():
                self.forwarded.keep(name, kept)
        self._kept_bytes = {name: sum([weight_of(one.envelope) for one in kept.values()]) for name, kept in self._kept.items()}


def _by_id(kept: Iterable[tuple[Envelope, tuple[str, ...] | None]]) -> dict[str, Kept]:
    return {str(envelope.id): Kept(envelope, members) for envelope, members in kept}


class OriginalFirst(Gate):
    """Lets a copy that another replica forwarded into a domain pass only when we have the message from where it comes from."""

    def __init__(self, takeover: Takeover, routes: Routes, domain: str) -> None:
        """Stand before ``domain``."""
        self._takeover = takeover
        self._domain = domain
        self._names = sorted(routes.topology.processes)

    def missing(self, frame: Frame[Any]) -> tuple[int, int] | None:
        envelope = frame.envelope
        if envelope is None or not self._takeover.is_copy(self._domain, envelope) or self._takeover.has(envelope):
            return None
        return self.awaited(envelope)

    def awaited(self, envelope: Envelope) -> tuple[int, int]:
        """Return what a copy of this message waits for."""
        return -1 - bisect_left(self._names, envelope.origin), envelope.number

    def name(self, stream: int) -> str:
        return f"{self._names[-1 - stream]}, by its own way"
