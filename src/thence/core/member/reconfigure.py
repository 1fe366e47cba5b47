"""The part of a member that changes with its fabric: it holds, switches, and makes new places (``core.reconfig.protocol`` says
why and when).

This is the upper half of ``core.member.member``, in a file of its own so that each can be read in one go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from thence.core.member.contract import Delivery, Ready, Submit
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.reconfig.flush import Inventory, copy_of
from thence.core.reconfig.protocol import (
    FABRIC,
    BarLost,
    Expel,
    Flush,
    Hold,
    NewView,
    Prepare,
    Resume,
    Standing,
    View,
    ViewInput,
    ViewState,
)
from thence.core.reconfig.retention import Retention
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope, Frame, MessageId, Packet
from thence.core.wire.records import Changed, Owed
from thence.errors import Busy, UsageError
from thence.words import counted

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable, Iterator

    from thence.core.failover.replicas import Takeover
    from thence.core.member.member import MemberOptions
    from thence.core.ordering import Wait
    from thence.core.stability.accounts import Accounts
    from thence.core.stability.safe_notification import Notices, SafeNotification

Deliverable = list[tuple[str, Frame[Any]]]
"""Frames for the application, each with the place by which it came."""


class Reconfiguring(ABC):
    """See the module's text. What is declared here is the member's."""

    name: str
    options: MemberOptions
    routes: Routes
    topology: Topology
    view: View
    _domains: dict[str, DomainPlace]
    _links: dict[str, LinkPlace]
    _places: dict[str, DomainPlace | LinkPlace]
    _flat: bool
    _queued: int
    _number: int
    _unconsumed: dict[int, tuple[str, Frame[Any]]]
    _takeover: Takeover | None
    _ledger: Accounts | None
    _notices: Notices | None
    _late: deque[tuple[str, Frame[Any], list[tuple[str, int]]]] | None
    _late_bytes: int
    _retained: Retention | None
    _givable: dict[MessageId, Envelope] | None
    """Copies that others may ask for, while nothing is taken."""

    @abstractmethod
    def unacked_by_peer(self) -> dict[str, int]:
        """Return how many frames each peer has not acknowledged yet."""

    @abstractmethod
    def waiting(self) -> list[Wait]:
        """List every message that waits here."""

    @abstractmethod
    def _enter(self, routes: Routes) -> None:
        """Take part in a fabric, as one to whom nothing has happened there yet."""

    @abstractmethod
    def _send(self, envelope: Envelope) -> Deliverable:
        """Send a message of our own."""

    @abstractmethod
    def _collect(self, now: int) -> tuple[tuple[str, Packet[Any]], ...]:
        """Return the packets to send."""

    @abstractmethod
    def _deliver(self, deliverable: Deliverable) -> tuple[Delivery, ...]:
        """Give deliveries their positions."""

    @abstractmethod
    def _begin_notices(self, places: dict[str, SafeNotification]) -> None:
        """Begin in a fabric in which these places tell what is safe. All that was delivered before is."""

    @abstractmethod
    def _safe_news(self) -> int:
        """Return up to which position all deliveries are safe, if that is news."""

    @abstractmethod
    def _wake(self) -> int | None:
        """Return when to call again."""

    def standing(self) -> Standing:
        """Say where this member stands, for whoever leads a change."""
        state, following = self.view.state, self.view.next
        moved = [place.transport.moved(state.lost) for place in self._places.values()]
        trouble = self._on_the_way()
        return Standing(
            self.topology.version,
            self.topology.fingerprint,
            state.phase,
            state.attempt,
            following.version if following else 0,
            following.fingerprint if following else "",
            not trouble,
            (sum(sent for sent, _ in moved), sum(received for _, received in moved)),
            len(state.waiting),
            trouble,
            state.lost,
            state.barred,
        )

    def _on_the_way(self) -> str:
        """Say what is not acknowledged, or waits here for what comes first."""
        lost = self.view.state.lost
        queued = {peer: count for peer, count in self.unacked_by_peer().items() if count and peer not in lost}
        if queued:
            peer = max(queued, key=lambda name: queued[name])
            return f"{counted(sum(queued.values()), 'frame', 'are')} not acknowledged, {queued[peer]} of them by {peer!r}"
        if lost:
            return ""  # Whatever waits here may wait for one of them.
        waits = self.waiting()
        if waits:
            missing = waits[0].missing
            return f"{counted(len(waits), 'message', 'wait')}, the first of them for number {missing.number} of {missing.sender}"
        kept = self._takeover.kept if self._takeover is not None else 0
        if kept:
            return f"{counted(kept, 'message', 'are')} kept for the replica that forwards"
        unnumbered = sum(len(place.end.state.unnumbered) + len(place.end.state.unclaimed) for place in self._links.values())
        return f"{counted(unnumbered, 'message', 'wait')} for a number" if unnumbered else ""

    def _change(self, change: ViewInput, now: int) -> Ready:
        """Take part in a change, as far as that may be now; ``UsageError`` says why not."""
        record: Changed | Owed | None
        if isinstance(change, Hold):
            if change.lost and self._retained is None:
                raise UsageError(f"{self.name!r} keeps no copies of messages, so nobody can be lost: the fabric must start anew")
            record = self.view.hold(change, self.topology)
        elif isinstance(change, Flush):
            record = self.view.flush(change)
        elif isinstance(change, Expel):
            record = self.view.expel(change, self.topology)
        elif isinstance(change, BarLost):
            record = self.view.bar(change, self.name)
        elif isinstance(change, Prepare):
            record = self.view.prepare(change)
        elif isinstance(change, Resume):
            record = self.view.resume(change)
        else:
            first = self._number - len(self.view.state.waiting) + 1
            numbers = range(first, first + len(change.greetings))
            depths = self._depths(len(change.greetings))
            parts = zip(numbers, change.greetings, depths, strict=True)
            greetings = tuple(Envelope(self.name, number, None, body, depth) for number, body, depth in parts)
            record = self.view.switch(change, greetings)
        if record is None:
            return Ready(wake=self._wake())
        if isinstance(record, Changed):
            record = msgspec.structs.replace(record, at=now)
        sent, deliver = self._follow(record)
        deliveries = self._deliver(deliver)
        safe = self._safe_news()
        return Ready(
            persist=(record,) if self.options.durable else (),
            send=self._collect(now),
            sent=sent,
            deliver=deliveries,
            wake=self._wake(),
            stable=self._ledger.news() if self._ledger is not None else 0,
            safe=safe,
        )

    def _depths(self, count: int) -> list[int]:
        """Return how deep as many messages are that go out before all that waited: deeper than what we will have got by then."""
        if self._retained is None:
            return [0] * count
        deepest = max([self._retained.depth, *(envelope.depth for envelope in self.view.state.owed)])
        return [deepest + at for at in range(1, count + 1)]

    def _follow(self, record: Changed | Owed) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Do what a change asks for; return what goes out only now, and what of it is for us."""
        view, following = self.view, self.view.next
        self._givable = None
        if isinstance(record, Owed):
            view.note_owed(record)
            return (), []
        if record.phase == "expelled":
            return self._leave(record, [])
        deliver: Deliverable = []
        if record.phase == "switched" and following is not None:
            home = self.topology.homes[self.name][0]
            news = NewView.between(self.topology, following, view.state.lost)
            deliver = [(home, Frame(None, envelope)) for envelope in (*view.state.owed, _written(news))]
            if self.name not in following.homes:
                return self._leave(record, deliver)
            if self._retained is not None:
                self._retained.depth = max([self._retained.depth, *(envelope.depth for envelope in view.state.owed)])
                self._retained.begin_anew(following.homes)
            view.entered(self.topology, following, view.state.next_text)
        view.note(record)
        if view.holding:
            return (), []
        if record.phase == "switched" and following is not None:
            # What the application has not consumed came with stamps of orderings that are gone.
            self._unconsumed = {at: (place, Frame(None, frame.envelope)) for at, (place, frame) in self._unconsumed.items()}
            self._enter(Routes(following))
            if self._ledger is not None:  # Nothing was on its way, so all that went out before is where it has to be.
                self._ledger.stable.upto = self._number - len(view.state.waiting)
        number = self._number + len(record.greetings)
        depth = None
        if self._retained is not None:
            depth = max([self._retained.depth, *(envelope.depth for envelope in record.greetings)])
        going = (*record.greetings, *view.release(len(record.greetings), depth))
        deliver += [delivery for envelope in going for delivery in self._send(envelope)]
        self._number = number
        return going, deliver

    def _leave(self, record: Changed, deliver: Deliverable) -> tuple[tuple[Envelope, ...], Deliverable]:
        """There is no place for us any more."""
        self.view.leave(record)
        self._late, self._late_bytes = None, 0
        if record.phase == "switched":
            self._begin_notices({})
        self._domains, self._links, self._places, self._flat, self._queued = {}, {}, {}, False, 0
        return (), deliver

    # Where members are lost (``core.reconfig.flush``).

    def report(self, elsewhere: Iterable[Envelope] = ()) -> Inventory:
        """Say what we have delivered, and what we can give to others; only when nothing is taken any more does it stay so.

        ``elsewhere`` is what waits for peers and is not in memory (``core.transport.spill_queue``).
        """
        view, retained = self.view, self._still()
        # What was for the lost alone is given to nobody; there may be very much of it, if they were away for long.
        lost, owed = view.state.lost, chain(self._mine(), elsewhere)
        mine = (one for one in owed if one.to is None or one.origin in lost or any(name not in lost for name in one.to))
        copies = {envelope.id: copy_of(envelope) for envelope in mine}
        for envelope in self._held():
            copies.setdefault(envelope.id, copy_of(envelope, held=True))
        queued = self.unacked_by_peer()
        return Inventory(
            dict(retained.latest),
            list(copies.values()),
            {origin: dict(dropped) for origin, dropped in retained.dropped.items()},
            {name: queued[name] for name in lost if queued.get(name)},
            dict(retained.before),
        )

    def give(self, names: tuple[MessageId, ...], elsewhere: Iterable[Envelope] = ()) -> tuple[Envelope, ...]:
        """Return copies of messages that we said we have."""
        self._still()
        if self._givable is None:
            # Once for all parts: nothing is taken meanwhile.
            self._givable = {envelope.id: envelope for envelope in (*self._held(), *self._mine())}
        missing = {name for name in names if name not in self._givable}
        found = {envelope.id: envelope for envelope in elsewhere if envelope.id in missing} if missing else {}
        for name in names:
            if name in missing and name not in found:
                raise UsageError(f"{self.name!r} has no copy of message {name}")
        return tuple(self._givable.get(name) or found[name] for name in names)

    def _still(self) -> Retention:
        """Return what we keep, if nothing is taken any more."""
        state, retained = self.view.state, self._retained
        if retained is None or not state.lost or state.phase not in ("prepared", "flushed"):
            raise UsageError(f"{self.name!r} is {state.phase}: what it has may change")
        return retained

    def _mine(self) -> Iterator[Envelope]:
        """Give what we sent, delivered or forwarded, as far as we have it; and what is kept aside until all have it.

        That may have been delivered by one who is lost, if all have it.
        """
        if self._retained is not None:
            yield from self._retained.copies()
        for place in self._places.values():
            yield from place.transport.unacked_messages()
            if place.guard is not None:
                yield from [aside.frame.envelope for _, _, aside in place.guard.waiting() if aside.frame.envelope is not None]

    def _held(self) -> Iterator[Envelope]:
        """Give what waits here for something that comes first."""
        for place in self._domains.values():
            yield from place.ordering.pending.messages()
        for link_place in self._links.values():
            yield from link_place.end.state.arrived.values()
            yield from link_place.end.state.unnumbered.values()

    # Submissions.

    def _send_or_wait(self, envelope: Envelope) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Send a message of our own, or let it wait for the change that is going on."""
        if not self.view.holding:
            return (envelope,), self._send(envelope)
        self._number = envelope.number
        self.view.wait(envelope)
        return (), []

    def _check_held(self, submit: Submit) -> None:
        """Refuse a submission that could not be sent later, or for which there is no room."""
        view = self.view
        if view.state.phase == "left":
            raise UsageError(f"{self.name!r} has left the fabric {self.topology.name!r}")
        if submit.to is not None:
            self.routes.plan(self.name, self.name, submit.to, None)
        view.check_submission(self.name, submit.to)
        most_bytes = self.options.max_queued_bytes if self._ledger is None else MAX_BODY_BYTES  # See UNSTABLE_SLACK_BYTES.
        if len(view.state.waiting) >= self.options.max_queued or view.waiting_bytes >= most_bytes:
            raise Busy(
                f"{len(view.state.waiting)} messages wait for the fabric to change; max_queued or max_queued_bytes is reached"
            )

    def _load_view(self, state: ViewState | None) -> None:
        self.view.load(state)
        if state is not None and state.text:
            self._enter(Routes(parse(state.text, "the stored topology", force=True)))
        if state is not None and state.phase == "left":
            self._domains, self._links, self._places, self._flat = {}, {}, {}, False


def _written(news: NewView) -> Envelope:
    """Return the news of a view as something that can be delivered."""
    return Envelope(FABRIC, news.version, None, msgspec.msgpack.encode(news))
