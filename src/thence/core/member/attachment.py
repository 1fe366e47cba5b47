"""A process attached to one topology: its places there, and what it keeps for the sake of them.

Rules:

* ``enter`` begins anew: nothing of the topology before is left. Numbers that outlive a topology (those of our own messages, the
  positions of deliveries) are kept elsewhere.
* What an attachment has is there because the topology asks for it: a takeover where relays have replicas, accounts where it finds
  out what is stable, notices where it tells what is safe, a turn where it delivers only what is safe.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec

from thence.core.epochs.progress import Progress
from thence.core.failover.replicas import OriginalFirst, Takeover
from thence.core.member.contract import Ready
from thence.core.member.limits import MemberOptions
from thence.core.ordering import Predecessor, Wait
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.accounts import Accounts
from thence.core.stability.safe_delivery import SafeDelivery
from thence.core.stability.safe_notification import Notices, SafeNotification
from thence.core.stability.safe_turn import SafeTurn
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
        self.enter(routes, 0)

    def enter(self, routes: Routes, delivered: int) -> None:
        """Take part in a topology in which nothing has happened; so many messages were delivered before, and all are safe."""
        name, options, topology = self.name, self.options, routes.topology
        if name not in topology.homes:
            raise ConfigError(f"{name!r} is no process of fabric {topology.name!r}")
        self.routes = routes
        self.topology = topology
        resend = options.resend_after_ns if options.reliable else None
        pace = Pace(options.ack_within_ns, WINDOW_BYTES if options.durable else FIRST_WINDOW_BYTES, options.spill)
        self.domains = {
            home: DomainPlace(
                topology.domains[home],
                name,
                options.max_held,
                resend,
                pace,
                stability=topology.stability,
                max_copies_bytes=options.max_copies_bytes,
            )
            for home in topology.homes[name]
        }
        self.links = {
            link.name: LinkPlace(
                link,
                name,
                resend,
                pace,
                stability=topology.stability,
                notify=any(end in topology.notifying for end in link.between),
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
        self.takeover = Takeover(name, routes) if topology.replicas else None
        self._put_up_gates()
        self.accounts = Accounts() if topology.stability else None
        guards, notifying = self._safety()
        self.turn = SafeTurn(name, guards) if guards else None
        if notifying or self.notices is not None:
            self.notices = Notices(notifying, delivered)
        self.suspected: dict[str, None] = {}
        """Peers that we were told to suspect."""
        self.in_memory = 0
        """How many frames are not acknowledged and in memory."""
        plain = options.reliable and not options.durable and not options.retain_bytes
        one = self.flat and len(self.places) == 1
        self.simple = one and plain and self.takeover is None and self.notices is None
        """Whether most messages can take the fast path."""

    def leave(self, delivered: int | None) -> None:
        """Take part in nothing any more; so many messages were delivered, if all of them are safe."""
        self.domains, self.links, self.places, self.flat, self.in_memory, self.turn = {}, {}, {}, False, 0, None
        if delivered is not None and self.notices is not None:
            self.notices = Notices({}, delivered)

    def _safety(self) -> tuple[dict[str, SafeDelivery], dict[str, SafeNotification]]:
        """Return by place what keeps frames until they are safe, and what finds out when they are."""
        guards = {name: place.guard for name, place in self.domains.items() if place.guard is not None}
        return guards, {name: place.notice for name, place in self.places.items() if place.notice is not None}

    def _put_up_gates(self) -> None:
        if self.takeover is not None and self.takeover.group:
            for name, place in self.domains.items():
                place.ordering.pending.gate = OriginalFirst(self.takeover, self.routes, name)

    def fork(self) -> Attachment:
        """Return an attachment that goes on from here on its own."""
        twin = copy.copy(self)
        twin.domains = {name: place.fork() for name, place in self.domains.items()}
        twin.links = {name: place.fork() for name, place in self.links.items()}
        twin.places = {**twin.domains, **twin.links}
        twin.suspected = dict(self.suspected)
        guards, notifying = twin._safety()
        twin.turn = None if self.turn is None else self.turn.fork(guards)
        if self.takeover is not None:
            twin.takeover = self.takeover.fork()
            twin._put_up_gates()
        if self.accounts is not None:
            twin.accounts = self.accounts.fork()
        if self.notices is not None:
            twin.notices = self.notices.fork(notifying)
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

    def waiting(self) -> list[Wait]:
        """List every message that waits here: which, from whom, for which one, since when."""
        waits = [wait for place in self.domains.values() for wait in place.ordering.waiting()]
        for guard in self._safety()[0].values():
            for peer, number, aside in guard.waiting():
                message = None if aside.frame.envelope is None else aside.frame.envelope.id
                waits.append(Wait(message, peer, Predecessor(f"{peer}, until all have it", number), aside.at))
        for place in self.links.values():
            waits += place.end.waiting()
        return waits

    def queued(self) -> dict[str, int]:
        """Return how many frames to each peer we keep: it has not acknowledged them or, with stability, not all have them."""
        return _summed([place.transport.queues.by_peer() for place in self.places.values()])

    def unacked(self) -> dict[str, int]:
        """Return how many frames each peer has not acknowledged yet."""
        return _summed([place.transport.unacked.by_peer() for place in self.places.values()])

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


def _summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return what all tables together say of each peer."""
    total: dict[str, int] = {}
    for table in tables:
        for peer, count in table.items():
            total[peer] = total.get(peer, 0) + count
    return total
