"""Changes of the topology, as one process takes part in them: it holds, switches, and attaches anew.

``core.reconfig.protocol`` says why and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import msgspec

from thence.core.member.attachment import Attachment
from thence.core.member.contract import Ready
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder, bring_kept_to_border, is_cut_off
from thence.core.reconfig.flush import Inventory, copy_of
from thence.core.reconfig.protocol import (
    FABRIC,
    BarLost,
    Expel,
    Flush,
    Follow,
    Hold,
    NewView,
    Prepare,
    Standing,
    Switch,
    View,
    ViewInput,
    ViewState,
)
from thence.core.reconfig.retention import Retention
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.routing import Routes
from thence.core.topology.toml import parse
from thence.core.wire.messages import Envelope, Frame, MessageId
from thence.core.wire.records import Changed, Owed
from thence.errors import UsageError
from thence.words import counted


class Survivor:
    """Says which copies a process has for others when members are lost, and gives them (``core.reconfig.flush``).

    It does so only while nothing is taken, so that nothing changes.
    """

    def __init__(self, attachment: Attachment, view: View, retained: Retention | None) -> None:
        """Give what is in the places of ``attachment`` and in ``retained``."""
        self._attachment = attachment
        self._view = view
        self._retained = retained
        self._givable: dict[MessageId, Envelope] | None = None
        """Copies that others may ask for, collected once for all parts."""

    def changed(self) -> None:
        """Collect copies anew: another phase of a change has begun."""
        self._givable = None

    def report(self, elsewhere: Iterable[Envelope] = ()) -> Inventory:
        """Say what we have delivered, and what we can give to others; only when nothing is taken any more does it stay so.

        ``elsewhere`` is what waits for peers and is not in memory (``core.transport.spill_queue``).
        """
        retained = self._still()
        # What was for the lost alone is given to nobody; there may be very much of it, if they were away for long.
        lost, owed = self._view.state.lost, chain(self._mine(), elsewhere)
        mine = (one for one in owed if one.to is None or one.origin in lost or any(name not in lost for name in one.to))
        copies = {envelope.id: copy_of(envelope) for envelope in mine}
        for envelope in self._held():
            copies.setdefault(envelope.id, copy_of(envelope, held=True))
        queued = self._attachment.unacked()
        return Inventory(
            dict(retained.latest),
            list(copies.values()),
            {origin: dict(dropped) for origin, dropped in retained.dropped.items()},
            {name: queued[name] for name in lost if queued.get(name)},
            dict(retained.before),
            self._view.state.since,
        )

    def give(self, names: tuple[MessageId, ...], elsewhere: Iterable[Envelope] = ()) -> tuple[Envelope, ...]:
        """Return copies of messages that we said we have."""
        self._still()
        if self._givable is None:
            self._givable = {envelope.id: envelope for envelope in (*self._held(), *self._mine())}
        missing = {name for name in names if name not in self._givable}
        found = {envelope.id: envelope for envelope in elsewhere if envelope.id in missing} if missing else {}
        for name in names:
            if name in missing and name not in found:
                raise UsageError(f"{self._attachment.name!r} has no copy of message {name}")
        return tuple(self._givable.get(name) or found[name] for name in names)

    def _still(self) -> Retention:
        """Return what we keep, if nothing is taken any more."""
        state, retained = self._view.state, self._retained
        if retained is None or not state.lost or state.phase not in ("prepared", "flushed"):
            raise UsageError(f"{self._attachment.name!r} is {state.phase}: what it has may change")
        return retained

    def _mine(self) -> Iterator[Envelope]:
        """Give what we sent, delivered or forwarded, as far as we have it."""
        if self._retained is not None:
            yield from self._retained.copies()
        for place in self._attachment.places.values():
            yield from place.transport.unacked_messages()

    def _held(self) -> Iterator[Envelope]:
        """Give what waits here for something that comes first."""
        for place in self._attachment.domains.values():
            yield from place.ordering.pending.messages()
        for link_place in self._attachment.links.values():
            yield from link_place.end.state.arrived.values()


@dataclass(eq=False)
class Reconfigurer:
    """Takes part in changes: attaches anew as the view says, and sends by the forwarder what waited for that."""

    _attachment: Attachment
    _log: DeliveryLog
    _forwarder: Forwarder
    _survivor: Survivor
    _view: View
    _retained: Retention | None

    def standing(self) -> Standing:
        """Say where this process stands, for whoever leads a change."""
        topology, state, following = self._attachment.topology, self._view.state, self._view.next
        within = self._replaced
        places = [place for name, place in self._attachment.places.items() if within is None or name in within]
        moved = [place.transport.moved(state.lost) for place in places]
        trouble = self._on_the_way()
        return Standing(
            topology.version,
            topology.fingerprint,
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
            limited=state.kept is not None,
            absent=state.absent,
            disowned=state.disowned,
        )

    @property
    def _replaced(self) -> frozenset[str] | None:
        """Which of our places are to be replaced; None: all."""
        return None if self._view.state.kept is None else self._attachment.border.closed

    def _on_the_way(self) -> str:
        """Say what is not acknowledged, or waits here for what comes first."""
        here, lost, within = self._attachment, self._view.state.lost, self._replaced
        queued = {peer: count for peer, count in here.unacked(within).items() if count and peer not in lost}
        if queued:
            peer = max(queued, key=lambda name: queued[name])
            return f"{counted(sum(queued.values()), 'frame', 'are')} not acknowledged, {queued[peer]} of them by {peer!r}"
        if lost:
            return ""  # Whatever waits here may wait for one of them.
        waits = here.waiting(within)
        if waits:
            missing = waits[0].missing
            return f"{counted(len(waits), 'message', 'wait')}, the first of them for number {missing.number} of {missing.sender}"
        going = [name for name in here.domains if (within is None or name in within) and not is_cut_off(here, name)]
        kept = 0 if here.takeover is None else sum([here.takeover.kept_for(name) for name in going])
        return f"{counted(kept, 'message', 'are')} kept for the replica that forwards" if kept else ""

    def change(self, change: ViewInput, now: int) -> Ready:
        """Take part in a change, as far as that may be now; ``UsageError`` says why not."""
        here = self._attachment
        record = self._recorded(change)
        if record is None:
            return Ready(wake=here.wake())
        if isinstance(record, Changed):
            record = msgspec.structs.replace(record, at=now)
        sent, deliver = self.follow(record)
        return self._log.ready(deliver, now, (record,) if here.options.durable else (), sent=sent)

    def _recorded(self, change: ViewInput) -> Changed | Owed | None:
        """Return the record of a change, if it changes anything."""
        view, name, topology = self._view, self._attachment.name, self._attachment.topology
        if isinstance(change, Hold):
            if change.lost and self._retained is None:
                raise UsageError(f"{name!r} keeps no copies of messages, so nobody can be lost: the fabric must start anew")
            return view.hold(change, topology, name)
        if isinstance(change, Switch):
            return view.switch(change, self._greetings(change.greetings))
        if isinstance(change, Flush):
            return view.flush(change)
        if isinstance(change, Expel):
            return view.expel(change, topology)
        if isinstance(change, Follow):
            return view.follow(change, topology, name, self._greetings(change.greetings))
        if isinstance(change, BarLost):
            return view.bar(change, name)
        return view.prepare(change) if isinstance(change, Prepare) else view.resume(change)

    def _greetings(self, bodies: tuple[bytes, ...]) -> tuple[Envelope, ...]:
        """Return the messages that go out before all that waited: deeper than what we will have got by then."""
        view, depth = self._view, 0
        if self._retained is not None:
            depth = 1 + max([self._retained.depth, *(envelope.depth for envelope in view.state.owed)])
        first = self._forwarder.number - len(view.state.waiting) + 1
        deeper = 0 if self._retained is None else 1
        return tuple(
            Envelope(self._attachment.name, first + at, None, body, depth + at * deeper) for at, body in enumerate(bodies)
        )

    def follow(self, record: Changed | Owed) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Do what a change asks for; return what goes out only now, and what of it is for us."""
        here, view, retained, following = self._attachment, self._view, self._retained, self._view.next
        self._survivor.changed()
        if isinstance(record, Owed):
            view.note_owed(record)
            return (), []
        if record.phase == "expelled":
            return self._leave(record, [])
        deliver: Deliverable = []
        closed, moved_on = set(here.border.closed), record.phase in ("switched", "followed")
        if record.phase == "followed":  # If we held for something else, that is over.
            view.note(record)
            following = parse(record.text, "the topology of others", force=True)
        if moved_on and following is not None:
            home = here.topology.homes[here.name][0]
            news = NewView.between(here.topology, following, view.state.lost)
            deliver = [(home, Frame(None, envelope)) for envelope in (*view.state.owed, _written(news))]
            if here.name not in following.homes:
                return self._leave(record, deliver)
            if retained is not None:
                retained.depth = max([retained.depth, *(envelope.depth for envelope in view.state.owed)])
            if retained is not None and view.state.kept is None and record.phase == "switched":
                retained.begin_anew(following.homes)  # Else others may still lack what we keep.
            view.entered(here.topology, following, record.text or view.state.next_text)
        kept = record.kept if record.phase == "followed" else view.state.kept
        view.note(record)
        if view.holding:
            self._close_border()
            return (), []
        bring_kept_to_border(here)
        number = self._forwarder.number
        if moved_on and following is not None:
            self._log.drop_stamps()
            here.enter(Routes(following), self._log.position, kept)
            if here.accounts is not None:  # Nothing was on its way, so all that went out before is where it has to be.
                here.accounts.stable.upto = number - len(view.state.waiting)
            closed |= here.places.keys() - here.kept
        deliver += self._forwarder.open_border(closed)
        depth = None
        if retained is not None:
            depth = max([retained.depth, *(envelope.depth for envelope in record.greetings)])
        going = (*record.greetings, *view.release(len(record.greetings), depth))
        deliver += [delivery for envelope in going for delivery in self._forwarder.send(envelope)]
        self._forwarder.number = number + len(record.greetings)
        return going, deliver

    def _close_border(self) -> None:
        kept = self._view.state.kept
        self._attachment.border.close(() if kept is None else self._attachment.places.keys() - set(kept))

    def _leave(self, record: Changed, deliver: Deliverable) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Take part in nothing any more."""
        self._view.state.phase, self._view.state.attempt = "left", record.attempt  # Remembered, for those who ask.
        self._attachment.leave(self._log.position if record.phase == "switched" else None)
        return (), deliver

    def load(self, state: ViewState | None) -> None:
        """Go on from the view of a snapshot."""
        self._view.load(state)
        self._forwarder.since = self._view.state.since
        if state is not None and state.text:
            self._attachment.enter(Routes(parse(state.text, "the stored topology", force=True)), self._log.position)
        if state is not None and state.phase == "left":
            self._attachment.leave(None)
        if self._view.holding:
            self._close_border()


def _written(news: NewView) -> Envelope:
    """Return the news of a view as something that can be delivered."""
    return Envelope(FABRIC, news.version, None, msgspec.msgpack.encode(news))
