"""A process attached to one topology: its places there, and what it keeps for the sake of them.

Rules:

* ``enter`` begins anew: nothing of the topology before is left but places that go on as they are (``core.reconfig.concern``).
  Numbers that outlive a topology (those of our own messages, the positions of deliveries) are kept elsewhere.
* What an attachment has is there because the topology asks for it: a takeover where relays have replicas, accounts where it finds
  out what is stable, notices where it finds out what is safe, a turn where we deliver only what is safe, and what is
  secured where messages are accepted only when others hold them.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from thence.core.epochs.progress import Progress
from thence.core.failover.replicas import OriginalFirst, Takeover
from thence.core.failover.secured import Secured
from thence.core.member.contract import Ready
from thence.core.member.limits import MemberOptions
from thence.core.ordering import Ordering, Wait, is_suspected, unsecured_in
from thence.core.ordering.relayed import Relayed
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.places.seen_streams import SeenStreams
from thence.core.reconfig.border import Border
from thence.core.stability.accounts import OURS, Accounts
from thence.core.stability.safe_notification import Notices, SafeNotification
from thence.core.stability.safe_turn import SafeTurn
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.transport.channel import Pace
from thence.core.transport.window import FIRST_WINDOW_BYTES, WINDOW_BYTES
from thence.core.wire.messages import Envelope, Packet
from thence.errors import ConfigError, UsageError


class Attachment:
    """One process in one topology."""

    def __init__(self, name: str, routes: Routes, options: MemberOptions) -> None:
        """Attach ``name`` to a topology; nothing has happened yet."""
        self.name = name
        self.options = options
        self.notices: Notices | None = None
        self.border = Border()
        self.seen = SeenStreams(0)
        self.domains: dict[str, DomainPlace] = {}
        self.links: dict[str, LinkPlace] = {}
        self.suspected: dict[str, None] = {}
        """Peers that we were told to suspect."""
        self.turn: SafeTurn | None = None
        self.takeover: Takeover | None = None
        self.secured: Secured | None = None
        self.enter(routes, 0)

    def enter(self, routes: Routes, delivered: int, kept: Collection[str] | None = None) -> None:
        """Take part in a topology in which nothing has happened but in places that are ``kept``.

        So many messages were delivered before, and where none is kept all are safe. ``kept`` is None if everybody held.
        """
        name, options, topology = self.name, self.options, routes.topology
        if name not in topology.homes:
            raise ConfigError(f"{name!r} is no process of fabric {topology.name!r}")
        self.routes = routes
        self.topology = topology
        resend = options.resend_after_ns if options.reliable else None
        pace = Pace(options.ack_within_ns, WINDOW_BYTES if options.durable else FIRST_WINDOW_BYTES, options.spill)
        self.kept = frozenset(kept or ())
        """The places that are older than the topology."""
        before, links_before = self.domains, self.links
        self.domains = {
            home: before[home]
            if home in self.kept
            else DomainPlace(
                topology.domains[home],
                name,
                options.max_held,
                resend,
                pace,
                stability=topology.keeps_accounts,
                groups=_groups_in(topology, home),
                max_copies_bytes=options.max_copies_bytes,
            )
            for home in topology.homes[name]
        }
        self.links = {
            link.name: links_before[link.name]
            if link.name in self.kept
            else LinkPlace(
                link,
                name,
                resend,
                pace,
                stability=topology.keeps_accounts,
                uniform=topology.uniform,
                max_early_bytes=options.max_early_bytes,
            )
            for link in topology.links.values()
            if name in link.members
        }
        self.places: dict[str, DomainPlace | LinkPlace] = {**self.domains, **self.links}
        self.whole = {home for home in self.domains if topology.domains[home].acks.whole}
        """Domains in which everybody gets every message."""
        self.flat = len(topology.domains) - len(topology.inner) == 1 and not self.whole
        """Whether there is one domain, so that nothing is to be forwarded."""
        self.takeover = _takeover_anew(name, routes, self.takeover, {place: self.places[place].peers for place in self.kept})
        self._put_up_gates()
        if kept is None:  # Else the streams go on, also where none of our places does.
            self.seen = SeenStreams.of(topology)
        for domain, first in topology.streams.items():
            ordering = self.domains[domain].ordering if domain in self.domains else None
            if isinstance(ordering, Relayed):
                ordering.join(first, topology.fellow_relays[domain][name])
        self.accounts = Accounts() if topology.keeps_accounts else None
        safe = any(topology.domains[home].delivery == "safe" for home in topology.homes[name])
        late = None if self.turn is None else self.turn.next(delivered)
        self.turn = SafeTurn() if safe or late else None
        if self.turn is not None and late:
            self.turn.put(late)
        if topology.uniform or self.notices is not None:
            self.notices = Notices(self._tellers(), delivered)
        orderings = [place.ordering for place in self.domains.values() if place.ordering.traits.secures]
        self.secured = _secured_anew(name, self.secured, orderings)
        older = [place for name, place in self.places.items() if name in self.kept]
        known = [peer for peer in self.suspected if not _is_unknown(peer, orderings)]  # Of the others we are to be told again.
        self.suspected = {peer: None for peer in known if any(peer in place.peers for place in older)}
        for peer in self.suspected:  # Also in the places that are new.
            self.suspect(peer, True)
        self.in_memory = 0
        """How many frames are not acknowledged and in memory."""
        self.count_frames()
        plain = options.reliable and not options.durable and not options.retain_bytes
        one = self.flat and len(self.places) == 1
        self.simple = one and plain and self.takeover is None and self.notices is None
        """Whether most messages can take the fast path."""

    def leave(self, delivered: int | None) -> None:
        """Take part in nothing any more; so many messages were delivered, if all of them are safe."""
        self.domains, self.links, self.places, self.flat, self.in_memory = {}, {}, {}, False, 0
        if delivered is not None and self.notices is not None:
            self.notices = Notices({}, delivered)

    def _tellers(self) -> dict[str, SafeNotification]:
        """Return by place what finds out when messages are safe."""
        return {name: place.notice for name, place in self.places.items() if place.notice is not None}

    def _put_up_gates(self) -> None:
        if self.takeover is not None and self.takeover.group:
            for name, place in self.domains.items():
                place.ordering.pending.put_up(OriginalFirst(self.takeover, self.routes, name))

    def fork(self) -> Attachment:
        """Return an attachment that goes on from here on its own."""
        twin = copy.copy(self)
        twin.domains = {name: place.fork() for name, place in self.domains.items()}
        twin.links = {name: place.fork() for name, place in self.links.items()}
        twin.places = {**twin.domains, **twin.links}
        twin.suspected, twin.border = dict(self.suspected), self.border.fork()
        twin.turn = None if self.turn is None else self.turn.fork()
        twin.seen = self.seen.fork()
        if self.takeover is not None:
            twin.takeover = self.takeover.fork()
            twin._put_up_gates()
        if self.accounts is not None:
            twin.accounts = self.accounts.fork()
        if self.notices is not None:
            twin.notices = self.notices.fork(twin._tellers())
        if self.secured is not None:
            twin.secured = self.secured.fork()
        return twin

    def knows(self, envelope: Envelope) -> bool:
        """Return whether a message comes from and goes to processes of this topology only, so that there is a way for it."""
        homes = self.topology.homes
        return envelope.origin in homes and all(name in homes for name in envelope.to or ())

    # What goes out.

    def ready(self, now: int) -> Ready:
        """Return what is to be sent, where nothing else follows from an input."""
        return Ready(send=self.collect(now), wake=self.wake())

    def collect(self, now: int) -> tuple[tuple[str, Packet[Any]], ...]:
        """Return the packets to send."""
        places = self.places.values()
        if self.accounts is not None:
            self.balance()
        if len(places) == 1:
            (place,) = places
            packets = place.collect(now)
            return tuple(packets) if packets else ()
        return tuple([packet for place in places for packet in place.collect(now)])

    def wake(self) -> int | None:
        """Return when something is to be sent again, at the latest."""
        earliest: int | None = None
        for place in self.places.values():
            wake_at = place.transport.wake_at
            if wake_at is not None and (earliest is None or wake_at < earliest):
                earliest = wake_at
        return earliest

    def balance(self) -> None:
        """Report which frames are stable by what has happened."""
        note_reports(self)
        for name, peer, number in self.accounts.balance() if self.accounts is not None else ():
            stable = self.places[name].stable
            if stable is not None:
                stable.add(peer, number)

    def count_frames(self) -> None:
        """Find out anew how many frames are in memory."""
        self.in_memory = sum(place.transport.queued for place in self.places.values())

    # Peers.

    def shared_with(self, peer: str) -> list[DomainPlace | LinkPlace]:
        """Return the domains and links in which a peer takes part; there must be one."""
        places = [place for place in self.places.values() if peer in place.peers]
        if not places:
            raise UsageError(f"{peer!r} shares no domain and no link with {self.name!r}")
        return places

    def connected(self, peer: str) -> None:
        """Send again what may have been lost on the old connection to a peer."""
        for place in self.shared_with(peer):
            place.bodies.forget_sent()
            place.transport.connected(peer)

    def visit_all(self) -> None:
        """Look at all queues the next time, for what is to be sent again."""
        for place in self.places.values():
            place.transport.visit_all()

    def suspect(self, peer: str, suspected: bool) -> None:
        """Let transports know whether a peer is suspected."""
        if suspected:
            self.suspected[peer] = None
        else:
            self.suspected.pop(peer, None)
        for place in self.places.values():
            if peer in place.peers:
                place.transport.suspect(peer, suspected)

    # For people, and for whoever looks at limits.

    def waiting(self, within: Collection[str] | None = None) -> list[Wait]:
        """List every message that waits here, or in some places: which, from whom, for which one, since when."""
        if within is not None:
            domains = [place.ordering.waiting() for name, place in self.domains.items() if name in within]
            links = [place.end.waiting() for name, place in self.links.items() if name in within]
            return [wait for waits in (*domains, *links) for wait in waits]
        waits = [wait for place in self.domains.values() for wait in place.ordering.waiting()]
        waits += () if self.turn is None else self.turn.waiting()
        for place in self.links.values():
            waits += place.end.waiting()
        return waits

    def queued(self) -> dict[str, int]:
        """Return how many frames to each peer we keep: it has not acknowledged them or, with stability, not all have them."""
        return _summed([place.transport.queues.by_peer() for place in self.places.values()])

    def unacked(self, within: Collection[str] | None = None) -> dict[str, int]:
        """Return how many frames each peer has not acknowledged yet, in all places or in some."""
        places = [place for name, place in self.places.items() if within is None or name in within]
        return _summed([place.transport.unacked.by_peer() for place in places])

    def queued_bytes_by_peer(self) -> dict[str, int]:
        """Return how many bytes each peer has not acknowledged yet, about."""
        return _summed([place.transport.queues.bytes_by_peer() for place in self.places.values()])

    @property
    def queued_bytes(self) -> int:
        """How many bytes peers have not acknowledged yet, about; a body counts once for each peer."""
        return sum([place.transport.queued_bytes for place in self.places.values()])

    def windows(self) -> dict[str, int]:
        """Return how many bytes may be on their way to each peer; of several places, the most."""
        windows: dict[str, int] = {}
        for place in self.places.values():
            for peer, size in place.transport.windows().items():
                windows[peer] = max(size, windows.get(peer, 0))
        return windows

    def progress(self, peer: str) -> dict[str, Progress]:
        """Return how far we are with a peer, in each domain and link that we share with it."""
        found = {name: place.transport.progress(peer) for name, place in self.places.items() if peer in place.peers}
        return {name: progress for name, progress in found.items() if progress is not None}

    @property
    def repeated_places(self) -> list[str]:
        """The domains and links where peers may get our frames from others, too."""
        return [name for name, place in self.places.items() if place.transport.repeated_by_others]

    def clocks(self) -> dict[str, Any]:
        """Return the state of each domain's ordering, for people."""
        return {
            name: {"ordering": place.ordering.traits.name, "state": msgspec.to_builtins(place.ordering.state)}
            for name, place in self.domains.items()
        }


def _groups_in(topology: Topology, domain: str) -> dict[str, tuple[str, ...]] | None:
    """Return of each replica in a domain who stands for the same relay; None: nobody finds out when all have a message."""
    if not topology.uniform:
        return None
    members = topology.domains[domain].members
    return {name: topology.fellows[name] for name in members if name in topology.fellows}


def _takeover_anew(name: str, routes: Routes, before: Takeover | None, older: Mapping[str, Collection[str]]) -> Takeover | None:
    """Return what is kept for the sake of replicas, if there are any, with what counts in places that are ``older``."""
    after = Takeover(name, routes) if routes.topology.replicas else None
    if older and before is not None and after is not None:
        after.go_on(before, older)
    return after


def _secured_anew(name: str, before: Secured | None, orderings: Sequence[Ordering]) -> Secured | None:
    """Return what is secured at ``name`` in another topology, if anything sees to that, or did.

    What goes on as it is has messages that are not. The rest was quiet, or is left with what the others have.
    """
    if before is None and not orderings:
        return None
    secured = Secured(name)
    secured.load(0 if before is None else before.last, unsecured_in(orderings))
    return secured


def _is_unknown(peer: str, orderings: Sequence[Ordering]) -> bool:
    """Return whether one of these orderings does not know that a peer is suspected."""
    return any(peer in ordering.index and not is_suspected(ordering, peer) for ordering in orderings)


def _summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return what all tables together say of each peer."""
    total: dict[str, int] = {}
    for table in tables:
        for peer, count in table.items():
            total[peer] = total.get(peer, 0) + count
    return total


# What a replica that does not forward reports (docs/concepts/stability.md): a message that it keeps for another one has an open
# account, until we forward it ourselves or are told that it is safe. One of our own is closed when the other one reports it.


def into(domain: str) -> str:
    """Return what keeps an account open while another replica should forward a message into a domain."""
    return f"into {domain}"


def way_of(here: Attachment, envelope: Envelope) -> str:
    """Return by which place a message came here."""
    return OURS if envelope.origin == here.name else here.routes.upstream(here.name, envelope.origin)


def note_reports(here: Attachment) -> None:
    """Note in the accounts what others have reported, or need not report."""
    accounts, takeover = here.accounts, here.takeover
    if accounts is None:
        return
    for place in here.places.values():
        if place.stable is None:
            continue
        for envelope, came_by in place.stable.take_news():
            accounts.became_stable(envelope, came_by)
        stand_ins = place.stable.stand_ins
        reported, stand_ins.reported_by_fellows = stand_ins.reported_by_fellows, []
        for envelope, came_by in reported:
            if takeover is not None and came_by == OURS and place.name == takeover.local:
                for domain in here.domains:
                    accounts.close(envelope, OURS, into(domain))


def forget_safe(here: Attachment) -> None:
    """Keep no longer what another replica forwarded and is known to be safe by now, and report it."""
    takeover, carried = here.takeover, None if here.notices is None else here.notices.carried
    if takeover is None or carried is None or not takeover.uniform:
        return
    for domain, envelope in takeover.forwarded.drop_safe(carried.safe_of, carried.take_news()):
        if here.accounts is not None:
            here.accounts.close(envelope, way_of(here, envelope), into(domain))
