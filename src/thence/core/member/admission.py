"""Room for what is submitted and for what arrives: which limit is reached, if one is.

What is not admitted is not acknowledged: whoever sent it keeps it, and pushes back in turn. No two may wait for each other. That
holds by these rules:

* **Only room ahead counts.** A frame is refused only for want of room where it goes from here, never for what goes the other way.
  Domains form no cycle, so waits lead ever further away from where they began, and end. Two relays that are full of what each has
  for the other still take it.
* **Each queue has its share** (``core.transport.quotas``). A peer that is away holds up what goes to it, and nothing else. A
  message for everyone needs room in all queues. Where others get a marker of a message that is not for them (``vector``,
  ``clocked``), their queues count by the hard limit, also for what is sent on.
  With less than its share in it, nobody waits for a queue.
* **Only what is not acknowledged counts for what is sent on.** What is kept until it is stable may wait for just the frame that
  asks for room. It is bounded at its origin, by ``unstable_bytes``; on the way, only what is beyond that is refused.
* **What comes back to its sender** (``sequenced``, ``grouped``) is not refused for want of room in the queue to that sender, or
  to its fellow replicas: that queue may be full of what goes the other way. Behind it there is room for all that can come back.
* **Nobody waits for an echo**, a message that comes back to the relay that put it into a domain. It comes behind what goes the
  other way; with a second such domain further on, two would wait for each other. So a member that expects ``MAX_ECHOES`` or
  ``MAX_ECHO_BYTES`` puts further messages in for all but itself, and nothing comes back. The queue to it, at whoever hands back,
  thus holds what others sent (below the hard limit when it was put in), what waited for its turn (``max_held``), and so many
  echoes: less than what is refused. Where there is one domain, the echo is the delivery, and consuming it is up to the
  application.
* **Around a ring** (``flood``) waits would lead back, so one place is kept free ("bubble flow control"). A member's *load* is its
  queue and what waits here in other places and will go into the ring. Its *room* is the limit, the most that may wait here, and
  one. A message is put into the ring while the queue is below the limit, which leaves the load below the room. It is handed on
  while the load is below the room, and counts at one end of a hop. So all loads together stay below all rooms: some member has
  room, the one before it can hand on to it, and so on around. By bytes the room has one message of the largest size more for each
  member. What the application sends keeps to the hard limit there, however large ``max_queued`` is. For other circles see
  ``docs/concepts/orderings/flood.md``.
* **A replica that does not forward** puts nothing into queues. It refuses what it would keep beyond ``MAX_KEPT``, except what
  another replica has forwarded already, though that copy may still wait here. So it waits for the one that forwards, and that one
  only for those further away. Otherwise copies that go one way would wait for messages that come the other way.
* **Safe delivery and notices.** A report that all have a message waits for no notice, so notices need nobody to take more than
  takes what the reports are about. Each process has no more than ``unstable_bytes`` of its own that is not safe. What waits for
  notices to be handed up is refused only beyond that: only a process that does not keep to it can have so much.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from thence.core.failover.replicas import MAX_KEPT, OriginalFirst
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Submit
from thence.core.member.deliver import DeliveryLog
from thence.core.member.limits import (
    MAX_ECHO_BYTES,
    MAX_ECHOES,
    MAX_QUEUED_BYTES_HARD,
    MAX_QUEUED_HARD,
    hard_bytes,
)
from thence.core.ordering.pending import held_bytes
from thence.core.places.link_end import MAX_EARLY
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.stable import UNSTABLE_SLACK_BYTES, unstable_bytes
from thence.core.topology.routing import RoutePlan
from thence.core.transport.base import Incoming
from thence.core.transport.quotas import FullQueue, Limit, QueueLimits, first_full, fullest, harmless
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope, weight_of
from thence.errors import Busy


class Admission:
    """Says for a submission or a frame whether there is room for it."""

    def __init__(self, attachment: Attachment, log: DeliveryLog) -> None:
        """Look at the queues of ``attachment`` and at what ``log`` has not consumed."""
        self._attachment = attachment
        self._log = log
        self._options = attachment.options

    # What is submitted.

    def check(self, submits: Sequence[Submit], *, hard: bool) -> None:
        """Raise ``Busy`` if there is no room. Only queues count that a message goes into, and whatever it would wait behind."""
        if too_late := self._too_late(self._attachment.name):
            # Messages to ourselves queue for nobody, and yet wait behind those that others have to ack.
            raise Busy(too_late)
        if self.may_be_full:
            for submit in submits:
                if found := self.full_queue(submit, hard=hard):
                    raise Busy(str(found))

    @property
    def may_be_full(self) -> bool:
        """Whether a queue may be full for what the application sends."""
        # ``harmless``, written out: this is asked for every message that is sent.
        here, options = self._attachment, self._options
        twice = 2 * here.in_memory
        if twice >= options.max_queued or twice >= MAX_QUEUED_HARD:
            return True
        twice = 2 * here.queued_bytes
        if twice >= options.max_queued_bytes or twice >= MAX_QUEUED_BYTES_HARD:
            return True
        if here.accounts is not None and 2 * twice >= unstable_bytes(len(here.topology.homes)):
            return True
        if here.takeover is not None and here.takeover.keeps_much(hard_bytes(options)):
            return True
        return here.notices is not None and (
            here.notices.unsafe >= options.max_queued or here.notices.bytes_of_ours >= unstable_bytes(len(here.topology.homes))
        )

    def full_queue(self, submit: Submit, *, hard: bool = False) -> FullQueue | None:
        """Return which queue keeps us from taking a message of the application, if one does.

        Notices, and what goes together (``hard``), are refused as late as what is forwarded.
        """
        if not self.may_be_full:
            return None
        here, hard = self._attachment, hard or submit.notice
        if here.accounts is not None and (full := self._full_of_unstable(here.name)):
            return full
        ways = self._ways_of(submit.to)
        if not hard:
            transports = [place.transport for place in here.places.values()]
            asked = [(place.transport, peer) for place, peers in ways for peer in peers]
            if found := first_full(self._limits, transports, asked):
                return found
        return next(filter(None, [self._full_beside(place, peers, hard=hard) for place, peers in ways]), None)

    def full_queues(self) -> list[FullQueue]:
        """Return all queues that take nothing more of what the application sends."""
        if not self.may_be_full:
            return []
        transports, limits = [place.transport for place in self._attachment.places.values()], self._limits
        ways = [(transport, peer) for transport in transports for peer in transport.peers]
        found = [first_full(limits, transports, [way]) for way in ways]
        return list(dict.fromkeys([full for full in found if full is not None]))

    @property
    def fullest(self) -> float:
        """Which part of what it may hold now the fullest queue holds: with 1 it is full."""
        return fullest(self._limits, [place.transport for place in self._attachment.places.values()])

    @property
    def _limits(self) -> QueueLimits:
        """The limits on what the application sends, for all domains and links together."""
        here, most = self._attachment, self._options.max_queued_bytes
        frames = Limit("max_queued", self._options.max_queued, "frames")
        part = unstable_bytes(len(here.topology.homes)) // 2  # The other half: one queue does not stop what goes to others.
        if here.accounts is not None and part < most:
            return QueueLimits(frames, Limit("half of unstable_bytes", part, "bytes"))
        return QueueLimits(frames, Limit("max_queued_bytes", most, "bytes"))

    def _ways_of(self, to: Collection[str] | None) -> list[tuple[DomainPlace | LinkPlace, list[str]]]:
        """Return into which domains and links a message of ours goes, and in whose queues it needs room there."""
        here = self._attachment
        if here.flat:
            (place,) = here.domains.values()
            return [(place, _carries_to(place, to))]
        plan = here.routes.plan(here.name, here.name, to, None)
        return [(here.places[name], self._room_in(name, plan)) for name in (*plan.into, *plan.across)]

    def _room_in(self, name: str, plan: RoutePlan) -> list[str]:
        """Return the peers in whose queues a message needs room that is put into a domain or handed to a link."""
        here = self._attachment
        if name not in plan.into:
            return here.links[name].end.carries_to()
        members = None if name in here.whole else plan.into[name]
        if here.takeover is not None:
            members = here.takeover.with_fellows(members)
        return _carries_to(here.domains[name], members)

    def _full_beside(self, place: DomainPlace | LinkPlace, peers: Collection[str], *, hard: bool) -> FullQueue | None:
        """Return what else keeps a message of ours from a domain or link, if something does."""
        # Others may get a marker. Into a ring nothing is put beyond the limit on what is sent on, whoever it comes from.
        # Nor where we hand messages back to their senders: those count on our queue to them to be no longer (the rule on echoes).
        ordering = place.ordering if isinstance(place, DomainPlace) else None
        strict = ordering is not None and (ordering.paths.circular or any(map(ordering.paths.hands_back_to, place.peers)))
        others = peers if hard or strict else [peer for peer in place.peers if peer not in peers]
        most = MAX_QUEUED_HARD if hard else self._options.max_queued
        full = self._full_of_kept(place)
        if not full and place.notice is not None and place.notice.unsafe >= most:
            full = f"{place.notice.unsafe} messages that were sent from here are not safe; max_queued is {most}"
        if full:
            return FullQueue(place.name, place.transport.queues.slowest(place.transport.peers[0]), full)
        most = unstable_bytes(len(self._attachment.topology.homes))
        if place.notice is not None and place.notice.bytes_of_ours >= most:
            full = f"{place.notice.bytes_of_ours} bytes that were sent from here are not safe; the limit is {most}"
            return FullQueue(place.name, place.transport.queues.slowest(place.transport.peers[0]), full)
        return self._full_place(place, others) if self._may_be_full_for_others else None

    def _too_late(self, origin: str, beyond: int = 0) -> str:
        """Say that as much of a process waits here until all have it as may be, if so, and so much ``beyond``."""
        here = self._attachment
        most = unstable_bytes(len(here.topology.homes)) + beyond
        if here.turn is None or (size := here.turn.bytes_of.get(origin, 0)) < most:
            return ""
        return f"{size} bytes of {origin!r} are delivered here and wait until all have them; the limit is {most}"

    # What arrives.

    @property
    def _may_be_full_for_others(self) -> bool:
        """Whether what we would send on may have to be refused somewhere."""
        here = self._attachment
        if here.in_memory >= harmless(MAX_QUEUED_HARD) or here.queued_bytes >= harmless(hard_bytes(self._options)):
            return True
        if here.accounts is not None and here.queued_bytes >= unstable_bytes(len(here.topology.homes)):
            return True
        return here.takeover is not None and here.takeover.keeps_much(hard_bytes(self._options))

    def full_for(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit keeps us from taking a frame, if one does."""
        here, log, options = self._attachment, self._log, self._options
        special = here.takeover is not None or here.turn is not None or here.notices is not None
        if here.border.crossings and (full := _full_border(here, place, incoming)):
            return full
        if not (special or here.in_memory or log.unconsumed):
            return ""  # Nothing is kept anywhere.
        unconsumed, unconsumed_bytes = log.to_consume
        if unconsumed >= options.max_unconsumed:
            return f"the application has not consumed {unconsumed} deliveries; the limit is max_unconsumed"
        if unconsumed_bytes >= options.max_unconsumed_bytes:
            return f"the application has not consumed {unconsumed_bytes} bytes of deliveries; the limit is max_unconsumed_bytes"
        envelope = incoming.frame.envelope
        if envelope is not None and (too_late := self._too_late(envelope.origin, UNSTABLE_SLACK_BYTES)):
            return too_late
        return self._full_ahead(place, incoming) if self._may_be_full_for_others else ""

    def _full_ahead(self, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
        """Say which limit is reached where a frame would go from here, if one is."""
        here, peer, envelope = self._attachment, incoming.peer, incoming.frame.envelope
        if envelope is not None and here.accounts is not None:
            unstable = self._full_of_unstable(envelope.origin, UNSTABLE_SLACK_BYTES)
            if unstable is not None:
                return str(unstable)
        back = here.topology.fellows.get(peer, (peer,))
        next_hops = place.hands_on_to(peer)
        full = self._full_of_returned(place, peer, back)
        if next_hops and full is None:
            within = [name for name in next_hops if name not in back]
            around = isinstance(place, DomainPlace) and place.ordering.paths.circular
            full = self._full_around(place, within) if around else self._full_place(place, within)
        if full is not None or (next_hops and isinstance(place, LinkPlace)):  # Another relay of the link puts it into the domain.
            return str(full or "")
        if envelope is None or not here.knows(envelope) or str(envelope.id) in place.echoes:
            return ""
        takeover = here.takeover
        if takeover is not None and (takeover.is_copy(place.name, envelope) or takeover.has(envelope)):
            return ""
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        return next(filter(None, [self._full_in(name, envelope, plan) for name in (*plan.into, *plan.across)]), "")

    def _full_in(self, name: str, envelope: Envelope, plan: RoutePlan) -> str:
        """Say which limit keeps us from putting a message into a domain or link, if one does."""
        place, takeover = self._attachment.places[name], self._attachment.takeover
        if takeover is not None and name in plan.into and not takeover.forwards_for(envelope.origin, name):
            return self._full_of_kept(place, envelope)  # It is kept, and goes into no queue.
        # A marker is small, but there may be as many as messages: whoever acknowledges nothing must not make us keep them all.
        marks = isinstance(place, DomainPlace) and place.ordering.traits.marks
        return str(self._full_place(place, place.peers if marks else self._room_in(name, plan)) or "")

    def _full_of_kept(self, place: DomainPlace | LinkPlace, envelope: Envelope | None = None) -> str:
        """Say that too much is kept for the replica that forwards, if so and this message, or one of ours, would be kept, too."""
        takeover = self._attachment.takeover
        if takeover is None:
            return ""
        kept, size, most = takeover.kept_for(place.name), takeover.kept_bytes_for(place.name), hard_bytes(self._options)
        if kept < MAX_KEPT and size < most:
            return ""
        if isinstance(place, DomainPlace):  # What another replica has forwarded, and what waits here as a copy, does not count.
            pending = place.ordering.pending
            if envelope and isinstance(pending.gate, OriginalFirst) and pending.awaits(*pending.gate.awaited(envelope)):
                return ""
            copies = [weight_of(one) for one in pending.messages() if takeover.keeps(place.name, one)]
            if kept - len(copies) < MAX_KEPT and size - sum(copies) < most:
                return ""
        limit = f"MAX_KEPT is {MAX_KEPT}, MAX_QUEUED_BYTES_HARD {most}"
        return f"{place.name!r}: {kept} of {size} bytes are kept for the replica that forwards; {limit}"

    def _full_place(self, place: DomainPlace | LinkPlace, peers: Collection[str]) -> FullQueue | None:
        """Return which queue of a domain or link has no room for what we send on for others, if one has none."""
        frames = Limit("MAX_QUEUED_HARD", MAX_QUEUED_HARD, "frames")
        limits = QueueLimits(frames, Limit("MAX_QUEUED_BYTES_HARD", hard_bytes(self._options), "bytes"))
        return first_full(limits, [place.transport], [(place.transport, peer) for peer in peers], unacked=True)

    def _full_around(self, place: DomainPlace | LinkPlace, peers: Collection[str]) -> FullQueue | None:
        """Return which queue has no room for what is handed on around a ring, if one has none."""
        options, frames = self._options, MAX_QUEUED_HARD + 1
        size = hard_bytes(self._options) + (len(place.peers) + 2) * MAX_BODY_BYTES
        held = waiting_bytes = 0
        for other in self._attachment.places.values():
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

    def _full_of_returned(self, place: DomainPlace | LinkPlace, peer: str, fellows: Collection[str]) -> FullQueue | None:
        """Return the queue to whom a frame comes from, or to a fellow, without room even for what comes back to them, if any."""
        if isinstance(place, LinkPlace) or not place.ordering.paths.hands_back_to(peer):
            return None
        # What others sent, what waited here for its turn, what comes back; and of each kind one message beyond its limit.
        max_held = self._options.max_held
        most = MAX_QUEUED_HARD + max_held + MAX_ECHOES + 3
        most_bytes = hard_bytes(self._options) + held_bytes(max_held) + MAX_ECHO_BYTES + 3 * MAX_BODY_BYTES
        for name in [name for name in fellows if name in place.peers]:
            count, weight = place.transport.unacked.size(name)
            if count >= most or weight >= most_bytes:
                return FullQueue(place.name, name, f"{count} frames of {weight} bytes are not acknowledged, most of them its own")
        return None

    def _full_of_unstable(self, origin: str, beyond: int = 0) -> FullQueue | None:
        """Return where as much is kept of the messages of a process until all have them as may be, and so much ``beyond``."""
        here = self._attachment
        most = unstable_bytes(len(here.topology.homes)) + beyond
        for place in here.places.values():
            if (kept := place.stable) is not None and (size := kept.bytes_of.get(origin, 0)) >= most:
                why = f"{size} bytes of {origin!r} are kept until all have them; the limit is {most}"
                return FullQueue(place.name, place.transport.queues.slowest(place.transport.peers[0]), why)
        return None

    # Echoes.

    def has_room_for_echo(self, place: DomainPlace) -> bool:
        """Return whether one more message that we put into a domain may come back to us."""
        takeover = self._attachment.takeover
        if takeover is not None and place.name == takeover.local:
            return True  # There it comes back at once, and is delivered then.
        room = len(place.echoes) < MAX_ECHOES and place.echo_bytes < MAX_ECHO_BYTES
        return room or place.name in self._attachment.whole


def _full_border(here: Attachment, place: DomainPlace | LinkPlace, incoming: Incoming) -> str:
    """Say that too much waits for a change, if a frame would wait, too."""
    full, envelope = here.border.full, incoming.frame.envelope
    if not full or envelope is None or not here.knows(envelope) or str(envelope.id) in place.echoes:
        return ""
    plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
    return full if here.border.stops(place.name, plan) else ""


def _carries_to(place: DomainPlace, to: Collection[str] | None) -> list[str]:
    """Return in whose queues a message needs room within a domain."""
    peers = place.ordering.paths.carries_to(to)
    if not peers and place.transport.queues.shared:
        return list(place.transport.peers[:1])  # Also for what is a marker to all of them.
    return peers
