"""The part of a member that changes with its fabric: it holds, switches, and makes new places (``core.views`` says why and when).

This is the upper half of ``core.member``, in a file of its own so that each can be read in one go.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from thence.core.contract import Delivery, Ready, Submit
from thence.core.messages import Envelope, Frame, Packet
from thence.core.places import DomainPlace, LinkPlace
from thence.core.records import Changed
from thence.core.routing import Routes
from thence.core.topology import Topology
from thence.core.topology_text import parse
from thence.core.views import Hold, Prepare, Resume, Standing, View, ViewInput, ViewState
from thence.errors import Busy, UsageError

if TYPE_CHECKING:
    from thence.core.member import MemberOptions
    from thence.core.ordering import Wait
    from thence.core.stability import Ledger
    from thence.core.takeover import Takeover

Deliverable = list[tuple[str, Frame[Any]]]
"""Frames for the application, each with the place by which it came."""


class Changing(ABC):
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
    _ledger: Ledger | None

    @abstractmethod
    def unconfirmed(self) -> dict[str, int]:
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
    def _wake(self) -> int | None:
        """Return when to call again."""

    def standing(self) -> Standing:
        """Say where this member stands, for whoever leads a change."""
        state, following = self.view.state, self.view.next
        moved = [place.transport.moved() for place in self._places.values()]
        trouble = self._on_the_way()
        return Standing(
            self.topology.version,
            self.topology.fingerprint,
            state.phase,
            state.attempt,
            following.version if following else 0,
            following.fingerprint if following else "",
            not trouble,
            (sum(sent for sent, _ in moved), sum(taken for _, taken in moved)),
            len(state.waiting),
            trouble,
        )

    def _on_the_way(self) -> str:
        """Say what is not confirmed, or waits here for what comes first."""
        queued = {peer: count for peer, count in self.unconfirmed().items() if count}
        if queued:
            peer = max(queued, key=lambda name: queued[name])
            return f"{sum(queued.values())} frames are not confirmed, {queued[peer]} of them by {peer!r}"
        waits = self.waiting()
        if waits:
            missing = waits[0].missing
            return f"{len(waits)} messages wait, the first of them for number {missing.number} of {missing.sender}"
        kept = self._takeover.kept if self._takeover is not None else 0
        if kept:
            return f"{kept} messages are kept for the replica that forwards"
        unnumbered = sum(len(place.end.state.unnumbered) + len(place.end.state.unclaimed) for place in self._links.values())
        return f"{unnumbered} messages wait for their number" if unnumbered else ""

    def _change(self, change: ViewInput, now: int) -> Ready:
        """Take part in a change, as far as that may be now; ``UsageError`` says why not."""
        if isinstance(change, Hold):
            record = self.view.hold(change, self.topology)
        elif isinstance(change, Prepare):
            record = self.view.prepare(change)
        elif isinstance(change, Resume):
            record = self.view.resume(change)
        else:
            first = self._number - len(self.view.state.waiting) + 1
            numbers = range(first, first + len(change.greetings))
            pairs = zip(numbers, change.greetings, strict=True)
            record = self.view.switch(change, tuple(Envelope(self.name, number, None, body) for number, body in pairs))
        if record is None:
            return Ready(wake=self._wake())
        sent, deliver = self._follow(record)
        return Ready(
            persist=(record,) if self.options.durable else (),
            send=self._collect(now),
            sent=sent,
            deliver=self._deliver(deliver),
            wake=self._wake(),
            stable=self._ledger.news() if self._ledger is not None else 0,
        )

    def _follow(self, record: Changed) -> tuple[tuple[Envelope, ...], Deliverable]:
        """Do what a change asks for; return what goes out only now, and what of it is for us."""
        view, following = self.view, self.view.next
        if record.phase == "switched" and following is not None and self.name not in following.homes:
            view.leave(record)
            self._domains, self._links, self._places, self._flat, self._queued = {}, {}, {}, False, 0
            return (), []
        old, text = self.topology, view.state.next_text
        view.note(record)
        if view.holding:
            return (), []
        if record.phase == "switched" and following is not None:
            view.entered(old, text)
            # What the application has not consumed came with stamps of orderings that are gone.
            self._unconsumed = {at: (place, Frame(None, frame.envelope)) for at, (place, frame) in self._unconsumed.items()}
            self._enter(Routes(following))
            if self._ledger is not None:  # Nothing was on its way, so all that went out before is where it has to be.
                self._ledger.stable.upto = self._number - len(view.state.waiting)
        number = self._number + len(record.greetings)
        going = (*record.greetings, *view.release(len(record.greetings)))
        deliver = [delivery for envelope in going for delivery in self._send(envelope)]
        self._number = number
        return going, deliver

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
        if len(view.state.waiting) >= self.options.max_queued or view.waiting_bytes >= self.options.max_queued_bytes:
            raise Busy(
                f"{len(view.state.waiting)} messages wait for the fabric to change; max_queued or max_queued_bytes is reached"
            )

    def _load_view(self, state: ViewState | None) -> None:
        self.view.load(state)
        if state is not None and state.text:
            self._enter(Routes(parse(state.text, "the stored topology", force=True)))
        if state is not None and state.phase == "left":
            self._domains, self._links, self._places, self._flat = {}, {}, {}, False
