"""One process of a fabric: ``step(input, now) -> Ready``.

This is the one contract of the house. The simulator and the server's driver are its only two callers, and both do
the same with what it returns, in this order:

1. make ``persist`` durable; 2. then ``send`` the packets, and tell the application that what it submitted is
``accepted``; 3. then ``deliver``, in order.

Rules:

* Same inputs, same outputs. Nothing in here looks at a clock or draws a number.
* Nothing is acknowledged, to a peer or to the application, before it is on disk: acknowledgements are in ``send``
  and ``accepted``, and these come after ``persist``.
* ``step`` either does all that an input asks for or raises and has changed nothing. A packet holds several frames;
  those that are refused are listed in ``refused``, each by name, and the others are taken.
* After a crash, a new member gets ``Restored`` as its first input, steps through the records again and goes on.
  What the application had not consumed is delivered again; what it had is not.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from thence.core.epochs.progress import Progress, forgotten
from thence.core.failover.replicas import Takeover
from thence.core.member.contract import (
    Arrived,
    Connected,
    Consumed,
    Delivery,
    Fetched,
    Input,
    Ready,
    Repeated,
    Restored,
    Spilled,
    Submit,
    SubmitAll,
    Suspicion,
    Timer,
    as_values,
)
from thence.core.member.fast_path import send_at_once, take_at_once
from thence.core.member.forward import notifying
from thence.core.member.limits import MAX_QUEUED, MAX_QUEUED_BYTES, Limiting
from thence.core.member.limits import MemberOptions as MemberOptions  # noqa: PLC0414  A name of this module, too.
from thence.core.member.reconfigure import Deliverable as Deliverable  # noqa: PLC0414  A name of this module, too.
from thence.core.ordering import Predecessor, Wait
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.protocol import FABRIC, BarLost, Expel, Flush, Hold, Prepare, Resume, Switch, View, ViewInput
from thence.core.reconfig.retention import Retention
from thence.core.stability.accounts import Accounts
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.transport.channel import Pace
from thence.core.transport.quotas import harmless
from thence.core.transport.window import FIRST_WINDOW_BYTES, WINDOW_BYTES
from thence.core.wire.messages import MAX_BODY_BYTES, MAX_DESTINATIONS, Envelope, Frame, MessageId, Packet
from thence.core.wire.records import Passed, Received, Record, Skipped, Submitted, Suspecting
from thence.errors import (
    ConfigError,
    FrameRefused,
    OverflowingFrame,
    StrangerFrame,
    UsageError,
)

StampT = TypeVar("StampT")


class Member(Limiting):
    """One process of a fabric. See the module's text for the rules."""

    def __init__(self, name: str, where: Domain | Topology | Routes, options: MemberOptions | None = None) -> None:
        """Make the member called ``name`` of a domain or a fabric; nothing has happened yet."""
        self.name = name
        self.options = options or MemberOptions()
        self._position = 0
        self._enter(
            where if isinstance(where, Routes) else Routes(where if isinstance(where, Topology) else Topology.flat(where))
        )
        self.view = View()
        self._retained = Retention(name, self.options.retain_bytes) if self.options.retain_bytes else None
        self._givable: dict[MessageId, Envelope] | None = None
        self._number = 0
        self._unconsumed: dict[int, tuple[str, Frame[Any]]] = {}
        self._unconsumed_bytes = 0
        self._consumed_upto = 0
        self._started = False
        self._restoring = False

    def _enter(self, routes: Routes) -> None:
        """Take part in a fabric, as one to whom nothing has happened there yet."""
        name = self.name
        self.routes = routes
        self.topology = routes.topology
        if name not in self.topology.homes:
            raise ConfigError(f"{name!r} is no process of fabric {self.topology.name!r}")
        resend = self.options.resend_after_ns if self.options.reliable else None
        window = WINDOW_BYTES if self.options.durable else FIRST_WINDOW_BYTES
        pace = Pace(self.options.ack_within_ns, window, self.options.spill)
        stability = self.topology.stability
        self._domains = {
            home: DomainPlace(
                self.topology.domains[home],
                name,
                self.options.max_held,
                resend,
                pace,
                stability=stability,
                max_copies_bytes=self.options.max_copies_bytes,
            )
            for home in self.topology.homes[name]
        }
        self._links = {
            link.name: LinkPlace(
                link,
                name,
                resend,
                pace,
                stability=stability,
                notify=any(end in self.topology.notifying for end in link.between),
                max_early_bytes=self.options.max_early_bytes,
            )
            for link in self.topology.links.values()
            if name in link.members
        }
        self._places: dict[str, DomainPlace | LinkPlace] = {**self._domains, **self._links}
        self._whole = {name for name in self._domains if self.topology.domains[name].acks.whole}
        self._flat = len(self.topology.domains) - len(self.topology.inner) == 1 and not self._whole
        self._takeover = Takeover(name, self.routes) if self.topology.replicas else None
        self._ledger = Accounts() if stability else None
        self._late = deque() if any(place.guard is not None for place in self._domains.values()) else None
        self._late_bytes = 0
        self._unsafe = {}
        self._begin_notices(notifying(self._places))
        self._put_up_gates()
        self._suspected: dict[str, None] = {}
        self._simple = self._flat and len(self._places) == 1 and self._takeover is None
        self._simple = (
            self._simple
            and self._notices is None
            and self.options.reliable
            and not self.options.durable
            and not self.options.retain_bytes
        )
        """Whether most messages can go the short way."""
        self._queued = 0

    def step(self, step_input: Input, now: int) -> Ready:
        """Do what the input asks for; return what must be done outside."""
        if isinstance(step_input, Arrived):  # First what comes most often.
            self._started, self._restoring = True, False
            return (self._simple and self._arrived_at_once(step_input, now)) or self._arrived(step_input, now)
        if isinstance(step_input, Submit):
            self._started, self._restoring = True, False
            return (self._simple and self._submit_at_once(step_input, now)) or self._submit(step_input, now)
        if isinstance(step_input, Restored | Repeated):
            return self._brought_back(step_input, now)
        self._started = True
        if isinstance(step_input, Consumed):
            self._consumed(step_input.position)  # Also between records that are repeated: what they deliver is consumed at once.
            return Ready(wake=self._wake())
        if isinstance(step_input, Spilled | Fetched):
            return self._moved_elsewhere(step_input, now)  # So are these, if records make more frames than memory should hold.
        self._restoring = False
        return self._seldom(step_input, now)

    def _seldom(self, step_input: SubmitAll | Connected | Suspicion | Timer | ViewInput, now: int) -> Ready:
        if isinstance(step_input, SubmitAll):
            return self._submit(step_input, now)
        if isinstance(step_input, Connected):
            return self._connected(step_input.peer, now)
        if isinstance(step_input, Suspicion):
            return self._suspicion(step_input, now)
        if isinstance(step_input, Hold | Prepare | Flush | BarLost | Switch | Resume | Expel):
            return self._change(step_input, now)
        for place in self._places.values():
            place.transport.visit_all()
        return Ready(send=self._collect(now), wake=self._wake())

    def waiting(self) -> list[Wait]:
        """List every message that waits here: which, from whom, for which one, since when."""
        waits = [wait for place in self._domains.values() for wait in place.ordering.waiting()]
        for guard in [place.guard for place in self._domains.values() if place.guard is not None]:
            for peer, number, aside in guard.waiting():
                message = None if aside.frame.envelope is None else aside.frame.envelope.id
                waits.append(Wait(message, peer, Predecessor(f"{peer}, until all have it", number), aside.at))
        for place in self._links.values():
            waits += place.end.waiting()
        return waits

    def queued(self) -> dict[str, int]:
        """Return how many frames to each peer we keep: it has not acknowledged them or, with stability, not all have them."""
        return _summed([place.transport.queues.by_peer() for place in self._places.values()])

    def unacked_by_peer(self) -> dict[str, int]:
        """Return how many frames each peer has not acknowledged yet."""
        return _summed([place.transport.unacked.by_peer() for place in self._places.values()])

    def queued_bytes_by_peer(self) -> dict[str, int]:
        """Return how many bytes each peer has not acknowledged yet, about."""
        queued: dict[str, int] = {}
        for place in self._places.values():
            for peer, size in place.transport.queues.bytes_by_peer().items():
                queued[peer] = queued.get(peer, 0) + size
        return queued

    def progress(self, peer: str) -> dict[str, Progress]:
        """Return how far we are with a peer, in each domain and link that we share with it."""
        found = {name: place.transport.progress(peer) for name, place in self._places.items() if peer in place.peers}
        return {name: progress for name, progress in found.items() if progress is not None}

    @property
    def repeated_places(self) -> list[str]:
        """The domains and links where peers may get our frames from others, too."""
        return [name for name, place in self._places.items() if place.transport.repeated_by_others]

    def forgotten(self, peer: str, says: dict[str, Progress]) -> str:
        """Say who of the two has forgotten what, if anybody has; ``says`` is how far the peer says it is."""
        mine = self.progress(peer)
        found = [forgotten(mine[name], theirs, self.name, peer, name) for name, theirs in says.items() if name in mine]
        return next(filter(None, found), "")

    def windows(self) -> dict[str, int]:
        """Return how many bytes may be on their way to each peer; of several places, the most."""
        windows: dict[str, int] = {}
        for place in self._places.values():
            for peer, size in place.transport.windows().items():
                windows[peer] = max(size, windows.get(peer, 0))
        return windows

    def clocks(self) -> dict[str, Any]:
        """Return the state of each domain's ordering, for people."""
        return {
            name: {"ordering": place.ordering.traits.name, "state": msgspec.to_builtins(place.ordering.state)}
            for name, place in self._domains.items()
        }

    @property
    def submitted(self) -> int:
        """How many messages we have sent since the first start."""
        return self._number

    @property
    def delivered(self) -> int:
        """How many were delivered here since the first start."""
        return self._position

    @property
    def takeover(self) -> Takeover | None:
        """What we keep for the sake of replicas, in a fabric that has some."""
        return self._takeover

    @property
    def last_number(self) -> int:
        """The number of the last message of our own that was accepted."""
        return self._number

    @property
    def stable_upto(self) -> int:
        """Up to which number all messages of our own are on the disks of all their recipients, where that is found out."""
        return 0 if self._ledger is None else self._ledger.stable.upto

    def unstable(self) -> list[int]:
        """Return the numbers of our own messages that we keep since not all have them, where that is found out."""
        return [] if self._ledger is None else self._ledger.unstable()

    @property
    def suspected(self) -> tuple[str, ...]:
        """Whom we were told to suspect."""
        return tuple(self._suspected)

    # Inputs.

    def _submit(self, step_input: Submit | SubmitAll, now: int) -> Ready:
        """Whatever can be refused is, before anything is sent."""
        submits: tuple[Submit, ...] = (step_input,) if isinstance(step_input, Submit) else step_input.submits
        if isinstance(step_input, SubmitAll):
            for name in {name for submit in submits for name in submit.to or () if name not in self.topology.homes}:
                raise UsageError(f"there is no process {name!r} in fabric {self.topology.name!r}")
        for submit in submits:
            self._check(submit)
        self._check_room(submits, hard=isinstance(step_input, SubmitAll))
        envelopes: list[Envelope] = []
        sent: list[Envelope] = []
        deliver: Deliverable = []
        for submit in submits:
            depth = 0 if self._retained is None else self._retained.depth + 1
            envelope = Envelope(self.name, self._number + 1, submit.to, submit.body, depth)
            going, delivered = self._send_or_wait(envelope)
            sent += going
            deliver += delivered
            envelopes.append(envelope)
        deliveries = self._deliver(deliver)
        safe = self._safe_news()
        return Ready(
            persist=tuple([Submitted(envelope, now) for envelope in envelopes]) if self.options.durable else (),
            send=self._collect(now),
            accepted=tuple(envelopes),
            deliver=deliveries,
            wake=self._wake(),
            sent=tuple(sent),
            stable=self._ledger.news() if self._ledger is not None else 0,
            safe=safe,
        )

    def _check(self, submit: Submit) -> None:
        if len(submit.body) > MAX_BODY_BYTES:
            raise UsageError(f"a body of {len(submit.body)} bytes; MAX_BODY_BYTES is {MAX_BODY_BYTES}")
        if self.name in self.topology.fellows:
            raise UsageError(f"{self.name!r} is a replica of a relay: it carries messages of others and sends none itself")
        if submit.to is not None and not 0 < len(submit.to) <= MAX_DESTINATIONS:
            raise UsageError(f"{len(submit.to)} destinations; there must be 1 to {MAX_DESTINATIONS} (MAX_DESTINATIONS)")
        if self.view.state.phase != "normal":
            self._check_held(submit)

    def _submit_at_once(self, submit: Submit, now: int) -> Ready | None:
        """What ``_submit`` does, if nothing is unusual."""
        to, body = submit.to, submit.body
        if len(body) > MAX_BODY_BYTES or self._queued >= harmless(self.options.max_queued) or (to is not None and len(to) != 1):
            return None
        if self.view.state.phase != "normal":
            return None
        (place,) = self._domains.values()
        if place.transport.queued_bytes >= harmless(self.options.max_queued_bytes):
            return None
        envelope = Envelope(self.name, self._number + 1, to, body)
        sent = send_at_once(place, envelope, now)
        if sent is None:
            return None
        packets, deliver = sent
        self._number += 1
        self._queued += len(packets)
        deliveries = self._deliver([(place.name, frame) for frame in deliver]) if deliver else ()
        return Ready((), tuple(packets), (envelope,), deliveries, (), place.transport.wake_at, (envelope,))

    def _arrived_at_once(self, arrived: Arrived, now: int) -> Ready | None:
        """What ``_arrived`` does, if nothing is unusual."""
        packet = arrived.packet
        place = self._domains.get(packet.domain)
        if place is None or self._queued >= MAX_QUEUED or place.transport.queued_bytes >= MAX_QUEUED_BYTES:
            return None
        queued = place.transport.queued
        frame = take_at_once(place, arrived.peer, packet, now)
        if frame is None:
            return None
        self._queued += place.transport.queued - queued
        self._position += 1
        send = tuple(place.transport.collect(now))
        return Ready((), send, (), (Delivery(self._position, place.name, frame),), (), place.transport.wake_at)

    def _arrived(self, arrived: Arrived, now: int) -> Ready:
        if self.view.state.lost and self.view.deaf_to(arrived.peer):
            return Ready(wake=self._wake())
        return self._take_packet(arrived.peer, arrived.packet, now)

    def _take_packet(self, peer: str, packet: Packet[Any], now: int) -> Ready:
        place = self._places.get(packet.domain)
        try:
            if place is None:
                raise self._stranger(peer, packet)
            queued = place.transport.queued
            frames = place.frames_in(peer, packet, now)
        except FrameRefused as refusal:
            return Ready(refused=as_values([refusal]), wake=self._wake())
        if queued:
            self._queued += place.transport.queued - queued
        if self._ledger is not None:
            self._note_stable(place)
        records: list[Record] = []
        refused: list[FrameRefused] = []
        deliver: Deliverable = []
        durable = self.options.durable
        for incoming in frames:
            may_be_full = self._queued or self._unconsumed or self._takeover is not None or self._late is not None
            full = self._full_for(place, incoming) if may_be_full or self._notices is not None else ""
            if full:
                refused.append(OverflowingFrame(f"frames from {peer!r} at {self.name!r}: {full}"))
                break
            try:
                deliver += self._take(place, incoming, now)
            except OverflowingFrame as refusal:
                # It will come again; what follows it must not overtake it.
                refused.append(refusal)
                break
            except FrameRefused as refusal:
                refused.append(refusal)
                if durable and self.options.reliable:
                    records.append(Skipped(packet.domain, incoming.peer, incoming.number))
                continue
            if durable:
                records.append(Received(packet.domain, incoming.peer, incoming.number, incoming.frame, now, incoming.to))
        if place.guard is not None and (news := place.guard.news()):
            passed = Passed(packet.domain, news, now)
            more, refusals = self._pass(place, passed)
            deliver += more
            refused += refusals
            records += [passed] if durable else []
        deliveries = self._deliver(deliver) if deliver or self._late else ()
        safe = self._safe_news() if self._notices is not None else 0
        return Ready(
            persist=tuple(records) if records else (),
            send=self._collect(now),
            deliver=deliveries,
            refused=as_values(refused) if refused else (),
            wake=self._wake(),
            stable=self._ledger.news() if self._ledger is not None else 0,
            safe=safe,
        )

    def _connected(self, peer: str, now: int) -> Ready:
        places = [place for place in self._places.values() if peer in place.peers]
        if not places:
            raise UsageError(f"{peer!r} shares no domain and no link with {self.name!r}")
        for place in places:
            place.bodies.forget_sent()
            place.transport.connected(peer)
        return Ready(send=self._collect(now), wake=self._wake())

    def _suspicion(self, suspicion: Suspicion, now: int) -> Ready:
        peer, suspected = suspicion
        if not any(peer in place.peers for place in self._places.values()):
            raise UsageError(f"{peer!r} shares no domain and no link with {self.name!r}")
        self._tell_transports(peer, suspected)
        takeover = self._takeover
        if takeover is None or peer not in takeover.fellows or suspected == (peer in takeover.suspected):
            return Ready(send=self._collect(now), wake=self._wake())
        deliver = self._suspect(peer, suspected)
        persist = (Suspecting(peer, suspected, now),) if self.options.durable else ()
        deliveries = self._deliver(deliver)
        safe = self._safe_news()
        return Ready(persist=persist, send=self._collect(now), deliver=deliveries, wake=self._wake(), safe=safe)

    def _stranger(self, peer: str, packet: Packet[Any]) -> StrangerFrame:
        return StrangerFrame(
            f"a packet for {packet.domain!r} from {peer!r} at {self.name!r}, which takes part in {', '.join(self._places)}"
        )

    # To the outside.

    def _collect(self, now: int) -> tuple[tuple[str, Packet[Any]], ...]:
        places = self._places.values()
        if self._ledger is not None:
            self._balance()
        if len(places) == 1:
            (place,) = places
            packets = place.collect(now)
            return tuple(packets) if packets else ()
        return tuple([packet for place in places for packet in place.collect(now)])

    def _count_queued(self) -> None:
        self._queued = sum(place.transport.queued for place in self._places.values())

    def _wake(self) -> int | None:
        earliest: int | None = None
        for place in self._places.values():
            wake_at = place.transport.wake_at
            if wake_at is not None and (earliest is None or wake_at < earliest):
                earliest = wake_at
        return earliest

    def _deliver(self, deliverable: Deliverable) -> tuple[Delivery, ...]:
        deliveries = []
        retained = self._retained
        for place, frame in deliverable if self._late is None else self._in_turn(deliverable):
            self._position += 1
            if retained is not None and frame.envelope is not None and frame.envelope.origin != FABRIC:
                retained.delivered(frame.envelope)
            if self.options.durable:
                self._unconsumed[self._position] = (place, frame)
                self._unconsumed_bytes += frame.weight
            if self._notices is not None:
                ours = frame.envelope is not None and frame.envelope.origin == self.name
                self._notices.delivered(self._position, put_out=ours or place in self._links)
            deliveries.append(Delivery(self._position, place, frame))
        return tuple(deliveries)

    def _consumed(self, position: int) -> None:
        for consumed in range(self._consumed_upto + 1, min(position, self._position) + 1):
            delivered = self._unconsumed.pop(consumed, None)
            if delivered is not None:
                self._unconsumed_bytes -= delivered[1].weight
            self._consumed_upto = consumed

    # Copies of it, in memory and on disk.

    def fork(self) -> Member:
        """Return a member that goes on from here on its own, for a search that tries several futures."""
        twin = copy.copy(self)
        twin._domains = {name: place.fork() for name, place in self._domains.items()}
        twin._links = {name: place.fork() for name, place in self._links.items()}
        twin._places = {**twin._domains, **twin._links}
        twin._unconsumed = dict(self._unconsumed)
        twin._suspected = dict(self._suspected)
        twin._late = None if self._late is None else deque(self._late)
        if self._takeover is not None:
            twin._takeover = self._takeover.fork()
            twin._put_up_gates()
        if self._ledger is not None:
            twin._ledger = self._ledger.fork()
        if self._notices is not None:
            twin._notices = self._notices.fork(notifying(twin._places))
        twin.view = self.view.fork()
        twin._retained = None if self._retained is None else self._retained.fork()
        return twin


def _summed(tables: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return what all tables together say of each peer."""
    total: dict[str, int] = {}
    for table in tables:
        for peer, count in table.items():
            total[peer] = total.get(peer, 0) + count
    return total


def describe_wait(wait: Wait, now: int) -> str:
    """Say in words which message waits, for which one, from whom, and for how long."""
    what = str(wait.message) if wait.message else "a marker"
    since = f", since {(now - wait.since) / 1e9:.3f} s" if wait.since else ""  # It is not known of all: see ``Wait``.
    return f"{what} from {wait.peer} waits for number {wait.missing.number} of {wait.missing.sender}{since}"
