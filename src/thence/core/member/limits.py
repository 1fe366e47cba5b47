"""How much a member takes and accepts: its limits, and which one is reached.

This is the lower half of ``core.member.member``, below ``core.member.spill``, in a file of its own so that each can be read in
one go.

Rules:

* What cannot be taken is not acknowledged, so that whoever sent it keeps it and pushes back in turn.
* Nobody may refuse what somebody else waits for, in order to wait for that one itself. So a frame is refused only for want of
  room where it would go from here, never for what goes the other way: domains form no cycle, so waits lead ever further away
  from where they began, and come to an end. Two relays that are full of what each has for the other still take it.
* A peer that is away holds up what goes to it, and nothing else: each queue has a share of a limit that no other can take
  (``core.transport.quotas``). What the application sends is refused only because of a queue that it would go into: its own
  messages wait in order behind it, and those for others go on. A message for everyone goes into all queues. Where others get a
  marker of a message that is not for them (``vector``, ``clocked``), their queues count by the hard limit.
* What is sent on is refused in the same way, by the share of each queue in the domain or link that it goes into, as itself or as
  a marker. So a frame waits only for a queue that leads further away than the one it is in. With less than its share in it no
  queue is waited for at all.
* Only what is on its way counts then. A frame that was acknowledged may be kept until all have its message
  (``core.stability.stable``), and that may have to wait for just the one that asks for room: a later one of the link, or what a
  fellow replica is to forward. How much is kept so is bounded where messages come from: there the application is refused for it,
  by ``unstable_bytes``. Only what nobody can have who keeps to that is refused on its way.
* Who hands on a message within a domain and hands it back to its sender, too (``sequenced``, ``grouped``), does not refuse it for
  want of room in the queue to that one, or to its fellows where it is a replica, as for others: it may be full of what goes the
  other way. There is room behind that for all that can come back.
* *What comes back* to a member that put it into a domain (its *echo*) is of no use to it where there are several domains: the
  message was delivered here, and forwarded, before it was put in. But it comes behind what goes the other way, and that may have
  to wait for room elsewhere. So nobody may wait for an echo. Otherwise what a relay puts into one domain waits for what comes out
  of it, and, where there is a second such domain beyond this relay or the next, that waits for what it puts in. Nor may echoes
  fill queues without end. So a member that expects ``MAX_ECHOES`` or ``MAX_ECHO_BYTES`` in a domain puts further messages in for
  all but itself, as it does with every message that is for some members only. Nothing comes back then, and nothing is refused.
  So the queue to it, at whoever hands back, holds what others sent (below the hard limit when each was put in, and that also
  keeps for what its application sends), what waited there for its turn (``max_held``), and at most so many echoes: less than
  what it would be refused for. That limit strikes only where there is one domain, and the echo is the delivery: there it is up
  to the application, which does not consume. Links ``as printed`` that wait until a message is delivered here need the echo:
  there alone it is waited for, and two such relays can wait for each other.
* *Around a ring* (``flood``) waits do not lead away: they would lead back. There a place is kept free, as in rings of switches
  ("bubble flow control"). A message is put into the ring, by the application or from another domain, while less than the limit
  waits in our queue there; it is handed on around the ring while less than the limit and one more does. What waits here in other
  domains for its turn, and will go into the ring without being asked, counts with the queue, and its most with the limit. So a
  member's *load* is its queue and what waits here, and its *room* the limit, the most that may wait here, and one. Putting a
  message in leaves the load below the room; handing on never takes it above; and both ends of a hop are counted once, when the
  frame is acknowledged. So when a message was last put in, the loads of all together were below their rooms, and handing on does
  not add to that: some member has room, the one before it can hand on its first frame or has none, and so on around the ring.
  By bytes the room has one message of the largest size more for each member. What the application sends into a ring keeps to
  the hard limit, too, however large ``max_queued`` is. Other circles than a ring: see ``docs/concepts/orderings/flood.md``.
* *A replica that does not forward* puts nothing into queues, and is refused nothing for want of room there. It refuses what it
  would keep beyond ``MAX_KEPT``; what another one has forwarded already does not count, though that copy may still have to wait
  here for others. So it waits for the one that forwards, and that one for nobody but those further away. Otherwise two directions
  could wait for each other here: the copies that go one way wait for messages that come the other way.
* For want of room for what is not known to be safe (``core.stability.safe_notification``) no frame is refused: whatever holds
  that up is not acknowledged by somebody, and fills a queue.
* In a domain with safe delivery
  (``core.stability.safe_delivery``) a member waits until all others have taken a message of its own, and whatever it would
  deliver behind it waits too. How much of that there is (``late``) does not keep it from taking the others' frames: they may wait
  for just that. It keeps it from taking frames in other domains, and from accepting more of its own.
* For the same reason each member has a share of the room for what is kept aside. A sender's first message that not all have
  has room wherever it is missing, since all before it have passed there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence

import msgspec

from thence.core.failover.replicas import MAX_KEPT, OriginalFirst
from thence.core.member.contract import Submit
from thence.core.member.spill import Spilling
from thence.core.ordering import MAX_HELD
from thence.core.ordering.pending import held_bytes
from thence.core.places.link_end import MAX_EARLY, MAX_EARLY_BYTES
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.stable import UNSTABLE_SLACK_BYTES, unstable_bytes
from thence.core.topology.ack_options import RESEND_AFTER_NS
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan
from thence.core.transport.ack_all.copies import MAX_COPIES_BYTES
from thence.core.transport.base import Incoming
from thence.core.transport.quotas import FullQueue, Limit, QueueLimits, first_full, fullest, harmless
from thence.core.transport.spill_queue import SpillRoom
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope, weight_of
from thence.errors import Busy

MAX_QUEUED = 100_000
"""How many frames may wait for acknowledgement, in all queues together. Each queue has its share (``core.transport.quotas``):
when one is full, what the application sends by way of it is refused as busy."""

MAX_QUEUED_HARD = 16 * MAX_QUEUED
"""The same for frames that we send on for others, in all queues of one domain or link. What would go into a queue that is full is
not taken, so that its senders push back in turn."""

MAX_QUEUED_BYTES = 256 * 1024 * 1024
"""How many bytes those frames may take before the application's sends are refused as busy."""

MAX_QUEUED_BYTES_HARD = 4 * MAX_QUEUED_BYTES
"""The same for frames that we send on for others."""

MIN_QUEUED_BYTES_HARD = 64 * 1024 * 1024
"""The least that it is made where ``max_queued_bytes`` is less than usual: a few messages as large as can be."""

MAX_ECHOES = MAX_QUEUED_HARD
"""How many messages that we put into a domain may be on their way back to us, by way of a sequencer: we keep their names. Further
ones are put in for all but us."""

MAX_ECHO_BYTES = 64 * 1024 * 1024
"""How many bytes those messages may have. Whoever hands them back has room for so many for each member: so it is the same for all
members, however much memory they have."""

MAX_UNCONSUMED = 100_000
"""How many deliveries may wait for the application to be done with them before no more frames are taken."""

MAX_UNCONSUMED_BYTES = 256 * 1024 * 1024
"""How many bytes those deliveries may have."""

MAX_LATE_HARD = 16 * MAX_UNCONSUMED
"""How many may wait until all have a message of our own, before even what follows from deliveries is refused as busy, and frames
of domains in which all wait for each other are not taken."""

MAX_LATE_BYTES_HARD = 16 * MAX_UNCONSUMED_BYTES
"""How many bytes those may have."""

MIN_LATE_BYTES_HARD = MAX_LATE_BYTES_HARD // 16
"""The least that it is made where ``max_unconsumed_bytes`` is less than usual."""


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member works. The defaults are for a real network and a real disk."""

    reliable: bool = True
    """Number, acknowledge and repeat frames. Without it the network is trusted to be exact, as in the explorer."""
    durable: bool = True
    """Ask for records to be made durable, and keep deliveries until they are consumed."""
    max_held: int = MAX_HELD
    max_queued: int = MAX_QUEUED
    max_queued_bytes: int = MAX_QUEUED_BYTES
    max_unconsumed: int = MAX_UNCONSUMED
    max_unconsumed_bytes: int = MAX_UNCONSUMED_BYTES
    max_early_bytes: int = MAX_EARLY_BYTES
    """How many bytes may have come over each link and wait for those before them,"""
    max_copies_bytes: int = MAX_COPIES_BYTES
    """and how many of others' messages are kept to repeat them, beside what may be on its way
    (``core.transport.ack_all.copies``)."""
    resend_after_ns: int = RESEND_AFTER_NS
    ack_within_ns: int = 0
    """How long an ack may wait for a frame that goes the same way, where the domain does not say
    (``core.transport.channel``)."""
    retain_bytes: int = 0
    """How many bytes of copies of messages to keep, so that members can be lost without harm to others
    (``core.reconfig.retention``)."""
    spill: SpillRoom | None = None
    """How much may wait for a peer in memory, where whoever runs the member keeps more of it elsewhere
    (``core.transport.spill_queue``)."""


class Limiting(Spilling):
    """See the module's text."""

    @abstractmethod
    def queued(self) -> dict[str, int]:
        """Return how many frames to each peer we keep."""

    @property
    def queued_bytes(self) -> int:
        """How many bytes peers have not acknowledged yet, about; a body counts once for each peer."""
        return sum([place.transport.queued_bytes for place in self._places.values()])

    def _check_room(self, submits: Sequence[Submit], *, hard: bool) -> None:
        """Refuse what there is no room for. Only queues count that it would go into, and whatever it would wait behind."""
        if self._late and (too_late := self._too_late(hard=hard)):
            # Messages to ourselves queue for nobody, and yet wait behind those that others have to ack.
            raise Busy(too_late)
        if self._may_be_full:
            for submit in submits:
                if found := self.full_queue(submit, hard=hard):
                    raise Busy(str(found))

    @property
    def _may_be_full(self) -> bool:
        """Whether a queue may be full for what the application sends."""
        # ``harmless``, written out: this is asked for every message that is sent.
        options, twice = self.options, 2 * self._queued
        if twice >= options.max_queued or twice >= MAX_QUEUED_HARD:
            return True
        twice = 2 * self.queued_bytes
        if twice >= options.max_queued_bytes or twice >= MAX_QUEUED_BYTES_HARD:
            return True
        if self._ledger is not None and 2 * twice >= unstable_bytes(len(self.topology.homes)):
            return True
        if not self._flat and self._echoes >= MAX_ECHOES:
            return True
        return self._notices is not None and self._notices.unsafe >= options.max_queued

    def _limits(self) -> QueueLimits:
        """Return the limits on what the application sends, for all domains and links together."""
        frames = Limit("max_queued", self.options.max_queued, "frames")
        most = self.options.max_queued_bytes
        part = unstable_bytes(len(self.topology.homes)) // 2  # The other half: one queue does not stop what goes to others.
        if self._ledger is not None and part < most:
            return QueueLimits(frames, Limit("half of unstable_bytes", part, "bytes"))
        return QueueLimits(frames, Limit("max_queued_bytes", most, "bytes"))

    def full_queue(self, submit: Submit, *, hard: bool = False) -> FullQueue | None:
        """Return which queue keeps us from taking a message of the application, if one does.

        Notices, and what goes together (``hard``), are refused as late as what is forwarded.
        """
        if not self._may_be_full:
            return None
        if self._ledger is not None and (full := full_of_unstable(self._places, self.topology, self.name)):
            return full
        ways = self._ways_of(submit.to)
        if not hard and not submit.notice:
            transports = [place.transport for place in self._places.values()]
            asked = [(place.transport, peer) for place, peers in ways for peer in peers]
            found = first_full(self._limits(), transports, asked)
            if found is not None:
                return found
        for place, peers in ways:
            if full := self._full_beside(place, peers, hard=hard or submit.notice):
                return full
        return None

    def full_queues(self) -> list[FullQueue]:
        """Return all queues that take nothing more of what the application sends."""
        if not self._may_be_full:
            return []
        transports, limits = [place.transport for place in self._places.values()], self._limits()
        ways = [(transport, peer) for transport in transports for peer in transport.peers]
        found = [first_full(limits, transports, [way]) for way in ways]
        return list(dict.fromkeys([full for full in found if full is not None]))

    @property
    def fullest_queue(self) -> float:
        """Which part of what it may hold now the fullest queue holds: with 1 it is full."""
        return fullest(self._limits(), [place.transport for place in self._places.values()])

    def _ways_of(self, to: Collection[str] | None) -> list[tuple[DomainPlace | LinkPlace, list[str]]]:
        """Return into which domains and links a message of ours goes, and in whose queues it needs room there."""
        if self._flat:
            (place,) = self._domains.values()
            return [(place, _carries_to(place, to))]
        plan = self.routes.plan(self.name, self.name, to, None)
        return [(self._places[name], self._room_in(name, plan)) for name in (*plan.into, *plan.across)]

    def _room_in(self, name: str, plan: RoutePlan) -> list[str]:
        """Return the peers in whose queues a message needs room that is put into a domain or handed to a link."""
        if name not in plan.into:
            return self._links[name].end.carries_to()
        members = None if name in self._whole else plan.into[name]
        if self._takeover is not None:
            members = self._takeover.with_fellows(members)
        return _carries_to(self._domains[name], members)

    def _full_beside(self, place: DomainPlace | LinkPlace, peers: Collection[str], *, hard: bool) -> FullQueue | None:
        """Return what else keeps a message of ours from a domain or link, if something does."""
        # Others may get a marker. Into a ring nothing is put beyond the limit on what is sent on, whoever it comes from.
        # Nor where we hand messages back to their senders: those count on our queue to them to be no longer (the module's text).
        ordering = place.ordering if isinstance(place, DomainPlace) else None
        strict = ordering is not None and (ordering.paths.circular or any(map(ordering.paths.hands_back_to, place.peers)))
        others = peers if hard or strict else [peer for peer in place.peers if peer not in peers]
        most = MAX_QUEUED_HARD if hard else self.options.max_queued
        full = self._full_of_echoes(place)
        if not full and place.notice is not None and place.notice.unsafe >= most:
            full = f"{place.notice.unsafe} messages that were sent from here are not safe; max_queued is {most}"
        if full:
            return FullQueue(place.name, place.transport.queues.slowest(place.transport.peers[0]), full)
        return self._full_place(place, others) if self._may_be_full_for_others else None

    def _too_late(self, *, hard: bool, beside: tuple[int, int] = (0, 0)) -> str:
        """Say which limit is reached by what waits until all have a message of ours, if one is; so much counts ``beside``."""
        late = self._late
        if not late:
            return ""
        count, size = len(late) + beside[0], self._late_bytes + beside[1]
        most, most_bytes = (MAX_LATE_HARD, late_bytes(self.options)) if hard else self._most_unconsumed
        first = late[0][1].envelope
        waiting = f"{len(late)} deliveries wait until all have {first.id if first else 'a message'}"
        if count >= most:
            return f"{waiting}; {'MAX_LATE_HARD' if hard else 'max_unconsumed'} is {most}"
        if size >= most_bytes:
            limit = "MAX_LATE_BYTES_HARD" if hard else "max_unconsumed_bytes"
            return f"{waiting}, of {self._late_bytes} bytes; {limit} is {most_bytes}"
        return ""

    @property
    def _most_unconsumed(self) -> tuple[int, int]:
        return self.options.max_unconsumed, self.options.max_unconsumed_bytes

    @property
    def _may_be_full_for_others(self) -> bool:
        """Whether what we would send on may have to be refused somewhere."""
        if self._queued >= harmless(MAX_QUEUED_HARD) or self.queued_bytes >= harmless(hard_bytes(self.options)):
            return True
        if not self._flat and self._echoes >= MAX_ECHOES:
            return True
        if self._ledger is not None and self.queued_bytes >= unstable_bytes(len(self.topology.homes)):
            return True
        takeover = self._takeover
        return takeover is not None and (takeover.kept >= MAX_KEPT or takeover.kept_bytes >= hard_bytes(self.options))

    def _full_for(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit keeps us from taking a frame, if one does."""
        unconsumed, unconsumed_bytes = len(self._unconsumed), self._unconsumed_bytes
        most, most_bytes = self._most_unconsumed
        if unconsumed >= most:
            return f"the application has not consumed {unconsumed} deliveries; the limit is max_unconsumed"
        if unconsumed_bytes >= most_bytes:
            return f"the application has not consumed {unconsumed_bytes} bytes of deliveries; the limit is max_unconsumed_bytes"
        hard = place.guard is not None
        if place.guard is not None and (full := self._full_aside(*place.guard.aside_of(incoming.peer), len(place.peers))):
            return full
        if too_late := self._too_late(hard=hard, beside=(0, 0) if hard else (unconsumed, unconsumed_bytes)):
            return too_late
        return self._full_ahead(place, incoming) if self._may_be_full_for_others else ""

    def _full_aside(self, count: int, size: int, peers: int) -> str:
        """Say which limit is reached by what of one of so many peers is kept aside, if one is."""
        share, share_bytes = max(1, self.options.max_held // peers), held_bytes(self.options.max_held) // peers
        if count >= share:
            return f"{count} of its frames wait until all members have them; its share of max_held is {share}"
        if size >= share_bytes:
            return f"{size} bytes of its frames wait until all members have them; its share of MAX_HELD_BYTES is {share_bytes}"
        return ""

    def _full_ahead(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit is reached where a frame would go from here, if one is."""
        peer, envelope = incoming.peer, incoming.frame.envelope
        if envelope is not None and self._ledger is not None:
            unstable = full_of_unstable(self._places, self.topology, envelope.origin, UNSTABLE_SLACK_BYTES)
            if unstable is not None:
                return str(unstable)
        back = self.topology.fellows.get(peer, (peer,))
        next_hops = place.hands_on_to(peer)
        full = self._full_of_returned(place, peer, back)
        if next_hops and full is None:
            within = [name for name in next_hops if name not in back]
            around = isinstance(place, DomainPlace) and place.ordering.paths.circular
            full = self._full_around(place, within) if around else self._full_place(place, within)
        if full is not None or (next_hops and isinstance(place, LinkPlace)):  # Another relay of the link puts it into the domain.
            return str(full or "")
        if envelope is None or not self._knows(envelope) or str(envelope.id) in place.echoes:
            return ""
        takeover = self._takeover
        if takeover is not None and (takeover.is_copy(place.name, envelope) or takeover.has(envelope)):
            return ""
        plan = self.routes.plan(self.name, envelope.origin, envelope.to, place.name)
        return next(filter(None, [self._full_in(name, envelope, plan) for name in (*plan.into, *plan.across)]), "")

    def _full_in(self, name: str, envelope: Envelope, plan: RoutePlan) -> str:
        """Say which limit keeps us from putting a message into a domain or link, if one does."""
        place = self._places[name]
        if full := self._full_of_echoes(place):
            return full
        if isinstance(place, LinkPlace) and (full := place.end.unnumbered_full):
            return f"{name!r}: {full}"
        if full := self._full_of_kept(place, envelope):
            return full
        if self._takeover is not None and not self._takeover.forwards and name in plan.into:
            return ""  # It is kept, and goes into no queue.
        # A marker is small, but there may be as many as messages: whoever acknowledges nothing must not make us keep them all.
        marks = isinstance(place, DomainPlace) and place.ordering.traits.marks
        return str(self._full_place(place, place.peers if marks else self._room_in(name, plan)) or "")

    def _full_of_kept(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> str:
        """Say that too much is kept for the replica that forwards, if so and this message would be kept, too."""
        if self._takeover is None:
            return ""
        most = hard_bytes(self.options)
        kept, size = self._takeover.kept_for(place.name), self._takeover.kept_bytes_for(place.name)
        if (kept < MAX_KEPT and size < most) or self._copy_waits(place, envelope):
            return ""
        copies, copied = self._copies_in(place)
        if kept - copies < MAX_KEPT and size - copied < most:
            return ""
        limit = f"MAX_KEPT is {MAX_KEPT}, MAX_QUEUED_BYTES_HARD {most}"
        return f"{place.name!r}: {kept} of {size} bytes are kept for the replica that forwards; {limit}"

    def _full_place(self, place: DomainPlace | LinkPlace, peers: Collection[str]) -> FullQueue | None:
        """Return which queue of a domain or link has no room for what we send on for others, if one has none."""
        return first_full(
            _hard_limits(self.options), [place.transport], [(place.transport, peer) for peer in peers], unacked=True
        )

    def _full_around(self, place: DomainPlace | LinkPlace, peers: Collection[str]) -> FullQueue | None:
        """Return which queue has no room for what is handed on around a ring, if one has none. See the module's text."""
        options, frames = self.options, MAX_QUEUED_HARD + 1
        size = hard_bytes(options) + (len(place.peers) + 2) * MAX_BODY_BYTES
        held = waiting_bytes = 0
        for other in self._places.values():
            if other is place:
                continue
            of_domain = (options.max_held, held_bytes(options.max_held))
            room = (MAX_EARLY, options.max_early_bytes) if isinstance(other, LinkPlace) else of_domain
            waits = other.end.early if isinstance(other, LinkPlace) else other.ordering.pending.size
            frames, size = frames + room[0], size + room[1]
            held, waiting_bytes = held + waits[0], waiting_bytes + waits[1]
        for peer in peers:
            count, weight = place.transport.unacked.size(peer)
            if count + held >= frames:
                return FullQueue(place.name, peer, f"{count} frames are not acknowledged; the limit around a ring is {frames}")
            if weight + waiting_bytes >= size:
                return FullQueue(place.name, peer, f"{weight} bytes are not acknowledged; the limit around a ring is {size}")
        return None

    def _copy_waits(self, place: DomainPlace | LinkPlace, envelope: Envelope) -> bool:
        """Return whether another replica has forwarded a message already, and what came behind it waits for the original."""
        if not isinstance(place, DomainPlace) or not isinstance(place.ordering.pending.gate, OriginalFirst):
            return False
        return place.ordering.pending.awaits(*place.ordering.pending.gate.awaited(envelope))

    def _copies_in(self, place: DomainPlace | LinkPlace) -> tuple[int, int]:
        """Return of how many messages that we keep the copy that another replica forwarded is here and waits; and their bytes."""
        takeover = self._takeover
        if takeover is None or not isinstance(place, DomainPlace):
            return 0, 0
        found = [weight_of(one) for one in place.ordering.pending.messages() if takeover.keeps(place.name, one)]
        return len(found), sum(found)

    def _full_of_returned(self, place: DomainPlace | LinkPlace, peer: str, fellows: Collection[str]) -> FullQueue | None:
        """Return the queue to whom a frame comes from, or to a fellow, without room even for what comes back to them, if any."""
        if isinstance(place, LinkPlace) or not place.ordering.paths.hands_back_to(peer):
            return None
        # What others sent, what waited here for its turn, what comes back; and of each kind one message beyond its limit.
        most = MAX_QUEUED_HARD + self.options.max_held + MAX_ECHOES + 3
        most_bytes = hard_bytes(self.options) + held_bytes(self.options.max_held) + MAX_ECHO_BYTES + 3 * MAX_BODY_BYTES
        for name in [name for name in fellows if name in place.peers]:
            count, weight = place.transport.unacked.size(name)
            if count >= most or weight >= most_bytes:
                return FullQueue(place.name, name, f"{count} frames of {weight} bytes are not acknowledged, most of them its own")
        return None

    @property
    def _echoes(self) -> int:
        return sum([len(place.echoes) for place in self._domains.values()])

    def _has_room_for_echo(self, place: DomainPlace) -> bool:
        if len(place.echoes) < MAX_ECHOES and place.echo_bytes < MAX_ECHO_BYTES:
            return True
        return place.name in self._whole or self._counts_echoes(place)

    def _counts_echoes(self, place: DomainPlace | LinkPlace) -> bool:
        """Return whether a link waits for what comes back to us in a domain."""
        return any(link.end.counts_own and link.end.domain == place.name for link in self._links.values())

    def _full_of_echoes(self, place: DomainPlace | LinkPlace) -> str:
        """Say that too many that we put into a domain have not come back to us, if that is so and they must."""
        count = len(place.echoes)
        if count < MAX_ECHOES or not self._counts_echoes(place):
            return ""
        return f"{place.name!r}: {count} have not come back to us; the limit is MAX_ECHOES"


def hard_bytes(options: MemberOptions) -> int:
    """Return how many bytes may be queued of what we send on for others: less where the application's limit is less."""
    return min(MAX_QUEUED_BYTES_HARD, max(4 * options.max_queued_bytes, MIN_QUEUED_BYTES_HARD))


def late_bytes(options: MemberOptions) -> int:
    """Return how many bytes may wait until all have a message of ours, at most: less where the application's limit is less."""
    return min(MAX_LATE_BYTES_HARD, max(16 * options.max_unconsumed_bytes, MIN_LATE_BYTES_HARD))


def full_of_unstable(
    places: Mapping[str, DomainPlace | LinkPlace], topology: Topology, origin: str, beyond: int = 0
) -> FullQueue | None:
    """Return where as much is kept of the messages of a process until all have them as may be, and so much ``beyond``."""
    most = unstable_bytes(len(topology.homes)) + beyond
    for place in places.values():
        if (kept := place.stable) is not None and (size := kept.bytes_of.get(origin, 0)) >= most:
            why = f"{size} bytes of {origin!r} are kept until all have them; the limit is {most}"
            return FullQueue(place.name, place.transport.queues.slowest(place.transport.peers[0]), why)
    return None


def _hard_limits(options: MemberOptions) -> QueueLimits:
    """Return the limits on what we send on for others, for each domain and link."""
    frames = Limit("MAX_QUEUED_HARD", MAX_QUEUED_HARD, "frames")
    return QueueLimits(frames, Limit("MAX_QUEUED_BYTES_HARD", hard_bytes(options), "bytes"))


def _carries_to(place: DomainPlace, to: Collection[str] | None) -> list[str]:
    """Return in whose queues a message needs room within a domain."""
    peers = place.ordering.paths.carries_to(to)
    if not peers and place.transport.queues.shared:
        return list(place.transport.peers[:1])  # Also for what is a marker to all of them.
    return peers
