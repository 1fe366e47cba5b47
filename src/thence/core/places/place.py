"""Where a member takes part: a domain or a link, each with its own way to the others who take part in it.

A place hides how frames get there (``transport``): whether they are numbered, acknowledged and repeated, by whom, or handed to a
network that is trusted to be exact. Frames of different places never share a channel: their orderings may need different orders
of arrival.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from thence.core.failover.early_payloads import Bodies, SavedBodies
from thence.core.ordering import ArrivalOrder, Ordering, make_ordering
from thence.core.places.link_end import LINK_STAMPS, MAX_EARLY_BYTES, LinkEnd, LinkState
from thence.core.stability.layer import AckLayer
from thence.core.stability.safe_notification import SavedSafeNotification
from thence.core.stability.stable import SavedStable
from thence.core.topology.domain import Domain
from thence.core.topology.link import Link, MakeLinkEnd
from thence.core.transport.ack_all.copies import MAX_COPIES_BYTES
from thence.core.transport.ack_all.state import AckAllState
from thence.core.transport.ack_all.transport import AckAll
from thence.core.transport.base import Incoming, Packets, Transport
from thence.core.transport.channel import UNHURRIED, ChannelState, Pace
from thence.core.transport.channels import PeerChannels
from thence.core.transport.direct import Direct
from thence.core.wire.messages import Envelope, Packet, weight_of
from thence.errors import StorageError, StrangerFrame

StampT = TypeVar("StampT")


class SavedPlace(msgspec.Struct, Generic[StampT], array_like=True):
    """A place's snapshot: one of ``ordering`` and ``link`` is there."""

    ordering: bytes | None
    link: LinkState | None
    transport: dict[str, ChannelState[StampT]] | AckAllState[StampT]
    echoes: list[str]
    bodies: SavedBodies[StampT] | None = None
    stable: SavedStable | None = None
    was_aside: None = None
    """What versions before 0.2.0 kept aside until it was safe in its domain."""
    safe_notification: SavedSafeNotification | None = None
    echo_bytes: int = 0


class Place(ABC):
    """One domain or link, as one member sees it."""

    def __init__(self, name: str, me: str, transport: Transport) -> None:
        """``transport`` leads to the others who take part."""
        self.name = name
        self.me = me
        self.transport = transport
        self.peers = dict.fromkeys(transport.peers)
        layer = transport if isinstance(transport, AckLayer) else None
        self.stable = None if layer is None else layer.stable
        """What keeps messages until they are stable, if something does."""
        self.notice = None if layer is None else layer.safe_notification
        """What finds out when everybody has them, if something does."""
        self.bodies = Bodies(transport.exact)
        self.echoes: dict[str, None] = {}
        """Messages that we put into this domain for all, and that will come back to us: nothing is done with them then."""
        self.echo_bytes = 0
        """How many bytes they have, about."""

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        """Return the frames of a packet that are to be taken now."""
        if peer not in self.peers:
            raise StrangerFrame(
                f"a packet for {self.name!r} from {peer!r} at {self.me!r}, where the others are {', '.join(self.peers)}"
            )
        bodies = self.bodies
        if not (bodies.stores and bodies.keeps_from(peer)) and not Bodies.concern(packet):
            return self.transport.frames_in(peer, packet, now)
        if Bodies.check(peer, packet):
            parts = list(self.bodies.came(peer, packet))
        else:
            self.transport.check(peer, packet)
            parts = [self.bodies.complete(peer, packet, self.transport.had(peer, packet))]
        return [incoming for part in parts for incoming in self.transport.frames_in(peer, part, now)]

    def expect_echo(self, envelope: Envelope) -> None:
        """Note that a message that we put into this domain will come back to us."""
        self.echoes[str(envelope.id)] = None
        self.echo_bytes += weight_of(envelope)

    def is_echo(self, envelope: Envelope) -> bool:
        """Return whether a message that came is one that we put into this domain, and expect it no more."""
        if self.echoes.pop(str(envelope.id), 1) is not None:
            return False
        # A snapshot of version 0.1 does not say how many bytes there were.
        self.echo_bytes = max(0, self.echo_bytes - weight_of(envelope)) if self.echoes else 0
        return True

    @abstractmethod
    def hands_on_to(self, peer: str) -> Collection[str]:
        """Return the others here to whom a message that comes from ``peer`` may be handed on."""

    def collect(self, now: int) -> Packets:
        """Return the packets to send."""
        packets = self.transport.collect(now)
        return self.bodies.collect(self.name, packets) if self.bodies.sent else packets

    def fork(self) -> Place:
        """Return a place that goes on from here on its own."""
        twin = copy.copy(self)
        twin.transport = self.transport.fork()
        if isinstance(twin.transport, AckLayer):
            layer = twin.transport
            twin.stable, twin.notice = layer.stable, layer.safe_notification
        twin.bodies = self.bodies.fork()
        twin.echoes = dict(self.echoes)
        return twin

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        acks = self.transport.save_acks() if isinstance(self.transport, AckLayer) else (None, None)
        transport, echoes, bodies = self.transport.save(), list(self.echoes), self.bodies.save()
        return SavedPlace(None, None, transport, echoes, bodies, acks[0], None, acks[1], self.echo_bytes)

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        self.transport.load(saved.transport)
        if isinstance(self.transport, AckLayer):
            self.transport.load_acks((saved.stable, saved.safe_notification))
        self.echoes = dict.fromkeys(saved.echoes)
        self.echo_bytes = saved.echo_bytes
        self.bodies.load(saved.bodies)


class DomainPlace(Place):
    """A domain, with the ordering kept in it."""

    def __init__(
        self,
        domain: Domain,
        me: str,
        max_held: int,
        resend_after_ns: int | None,
        pace: Pace = UNHURRIED,
        *,
        stability: bool = False,
        groups: Mapping[str, tuple[str, ...]] | None = None,
        max_copies_bytes: int = MAX_COPIES_BYTES,
    ) -> None:
        """Take part in ``domain`` as ``me``. ``resend_after_ns`` is None where the network is trusted to be exact.

        ``stability``: messages are kept until all have them. ``groups``: it is found out when all have them, and of each group of
        replicas one stands in for the others; None: it is not.
        """
        self._max_copies_bytes = max_copies_bytes
        self.ordering: Ordering = make_ordering(domain.ordering, me, domain.members, domain.options, max_held=max_held)
        self.forward_early = domain.forward_early
        if stability or self.ordering.traits.keeps_sent:
            pace = pace._replace(spill=None)  # What is kept for other reasons, too, is not kept elsewhere.
        transport = self._transport(domain, me, resend_after_ns, pace)
        if stability or groups is not None:
            transport = AckLayer(transport, resend_after_ns, stable=stability, uniform=groups is not None, groups=groups)
        super().__init__(domain.name, me, transport)

    def _transport(self, domain: Domain, me: str, resend_after_ns: int | None, pace: Pace) -> Transport:
        peers = [member for member in domain.members if member != me]
        if resend_after_ns is None:
            return Direct(domain.name, me, peers)
        domain.acks.check(type(self.ordering), domain.members)
        domain.acks.check_wait(resend_after_ns)
        if domain.acks.scheme == "distributed":
            acks, most = domain.acks, self._max_copies_bytes
            return AckAll(domain.name, me, domain.members, resend_after_ns, acks, domain.pairs, domain.by_sender, most)
        arrival = self.ordering.traits.arrival
        return PeerChannels(domain.name, me, peers, arrival, resend_after_ns, domain.acks, pace)

    def hands_on_to(self, peer: str) -> Collection[str]:
        return self.ordering.paths.hands_on_to(peer)

    @property
    def stamps(self) -> tuple[type, ...]:
        """The kinds of stamp that travel here."""
        return self.ordering.traits.stamps

    def fork(self) -> DomainPlace:
        """Return a place that goes on from here on its own."""
        twin = cast("DomainPlace", super().fork())
        twin.ordering = self.ordering.fork()
        return twin

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        saved = super().save()
        saved.ordering = self.ordering.snapshot()
        return saved

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        if saved.ordering is None:
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a domain without its ordering")
        super().load(saved)
        self.ordering.restore(saved.ordering)


class LinkPlace(Place):
    """A link, with our end of it."""

    stamps = LINK_STAMPS

    def __init__(
        self,
        link: Link,
        me: str,
        resend_after_ns: int | None,
        pace: Pace = UNHURRIED,
        *,
        stability: bool = False,
        uniform: bool = False,
        max_early_bytes: int = MAX_EARLY_BYTES,
    ) -> None:
        """Take part in ``link`` as ``me``; ``uniform``: it is found out when all have a message."""
        make_end: MakeLinkEnd = LinkEnd if isinstance(link.mode, str) else link.mode
        self.end = make_end(link, me, max_early_bytes)
        # Without numbers, the order in which a relay transfers is the order that the far side must keep.
        arrival = ArrivalOrder.FIFO if link.mode == "fifo" else ArrivalOrder.ANY
        peers = [member for member in link.members if member != me]
        transport: Transport = Direct(link.name, me, peers)
        if resend_after_ns is not None:
            pace = pace._replace(spill=None) if stability else pace
            transport = PeerChannels(link.name, me, peers, arrival, resend_after_ns, pace=pace)
        if stability or uniform:
            transport = AckLayer(transport, resend_after_ns, stable=stability, uniform=uniform)
        super().__init__(link.name, me, transport)

    def hands_on_to(self, peer: str) -> Collection[str]:
        return self.end.hands_on_to(peer)

    def fork(self) -> LinkPlace:
        """Return a place that goes on from here on its own."""
        twin = cast("LinkPlace", super().fork())
        twin.end = self.end.fork()
        return twin

    def save(self) -> SavedPlace[Any]:
        """Return everything, for a snapshot."""
        saved = super().save()
        saved.link = self.end.state
        return saved

    def load(self, saved: SavedPlace[Any]) -> None:
        """Become what ``save`` returned."""
        if saved.link is None:
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a link without its state")
        super().load(saved)
        self.end.load(saved.link)
