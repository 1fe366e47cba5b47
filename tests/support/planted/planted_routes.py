"""Mistakes planted in routes, relays, stamps and restarts, for random fabrics and the judge to find.

Each is the real code with one rule broken, as small a change as can be, put in place of one method. ``PLANTED`` says within how
many random fabrics (``tests/support/fabrics.py``) it has to be noticed. Mistakes in links are in
``tests/support/planted/planted_fabric.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.support.fabrics import run_one
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Ready, Submit
from thence.core.member.forward import Cascade, Forwarder
from thence.core.member.member import Member
from thence.core.member.receive import Receiver
from thence.core.member.recover import Recovery
from thence.core.member.submit import Submitter
from thence.core.places.place import DomainPlace, LinkPlace, Place, SavedPlace
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan, Routes
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.records import Received, Record
from thence.errors import InternalError, ThenceError
from thence.sim.node import SimulatedNode

_routes, _plan, _everyone = Routes.__init__, Routes.plan, Routes._plan_for_everyone
_submit, _take, _drain = Submitter.submit, Receiver.take, Forwarder.drain
_member: Callable[..., None] = Member.__init__
_follow, _carry_out = Forwarder.follow, Forwarder.carry_out
_repeat: Callable[..., Any] = Recovery.step_through
_load: Callable[[Place, SavedPlace[Any]], None] = Place.load
_load_link: Callable[[LinkPlace, SavedPlace[Any]], None] = LinkPlace.load

MAX_EVENTS: Final = 10_000
"""A mistake may make messages go round for ever, and more of them all the time: it is stopped sooner than another run."""

COMPACT_EVERY: Final = 3
"""Snapshots are made after so many records, so that short runs have restarts from them."""


def _is_relay(here: Attachment) -> bool:
    return len(here.topology.homes[here.name]) > 1


# --- routes ------------------------------------------------------------------------------------------------------------


def forgets_the_last(self: Routes, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
    """A relay forgets the last of several recipients."""
    if came_from is not None and to is not None and len(to) > 1:
        to = tuple(to)[:-1]
    return _plan(self, at, origin, to, came_from)


def goes_back(self: Routes, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
    """A relay does not mind where a message came from, so that it visits that domain once more."""
    forgets = to is not None and came_from in self.topology.homes[at]
    return _plan(self, at, origin, to, None if forgets else came_from)


def only_recipients(self: Routes, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
    """Relays write to those of a domain who are recipients themselves, not to those who lead further."""
    plan = _plan(self, at, origin, to, came_from)
    if to is None or came_from is None:
        return plan
    kept = {name: tuple(member for member in members or () if member in to) for name, members in plan.into.items()}
    return plan._replace(into={name: members for name, members in kept.items() if members})


def skips_a_link(self: Routes, at: str, origin: str, came_from: str | None) -> RoutePlan:
    """A broadcast leaves out the last of a relay's links."""
    plan = _everyone(self, at, origin, came_from)
    return plan._replace(across=plan.across[:-1])


def skips_a_domain(self: Routes, at: str, origin: str, came_from: str | None) -> RoutePlan:
    """A broadcast goes on into one of a relay's domains only."""
    plan = _everyone(self, at, origin, came_from)
    return plan._replace(into=dict(list(plan.into.items())[:1]))


def inner_carries(self: Routes, topology: Topology) -> None:
    """A domain inside another one carries traffic too, which makes a cycle of what was none."""
    homes = {process: list(names) for process, names in topology.homes.items()}
    for name in topology.inner:
        for member in topology.domains[name].members:
            homes[member].insert(0, name)
    topology.homes = {process: tuple(names) for process, names in homes.items()}
    topology.__dict__.pop("relays", None)
    _routes(self, topology)


# --- relays ------------------------------------------------------------------------------------------------------------


def forwards_on_arrival(
    self: Receiver, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, *, stored: bool = False
) -> Deliverable:
    """A relay forwards what arrives, before its turn has come."""
    forwarded: set[str] = self._forwarder.__dict__.setdefault("planted", set())
    here, envelope = self._attachment, incoming.frame.envelope
    if isinstance(place, DomainPlace) and envelope and str(envelope.id) not in forwarded and not here.flat:
        forwarded.add(str(envelope.id))
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, place.name)
        _carry_out(self._forwarder, plan, envelope, Cascade())
    return _take(self, place, incoming, now, stored=stored)


def not_again(self: Forwarder, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
    """What was forwarded on arrival is not forwarded when its turn has come."""
    if str(envelope.id) not in self.__dict__.get("planted", ()):
        _carry_out(self, plan, envelope, cascade)


def forwards_backwards(self: Forwarder, cascade: Cascade) -> Deliverable:
    """Of several messages that a relay releases at once, the last is the first to be forwarded."""
    if _is_relay(self._attachment):
        cascade.released.reverse()
    return _drain(self, cascade)


def keeps_for_later(self: Forwarder, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
    """A relay delivers first and forwards later, when its own application may have answered already."""
    if envelope.origin == self._attachment.name:
        _carry_out(self, plan, envelope, cascade)
    else:
        self.__dict__.setdefault("planted", []).append((plan, envelope))


class ForwardsLater(SimulatedNode):
    """Forwards what its member kept for later."""

    def receive(self, source: str, packet: Packet[object]) -> None:
        super().receive(source, packet)
        kept = self.member.forwarder.__dict__
        if "planted" in kept:
            self._kernel.schedule(5_000_000, self._forward, kept.pop("planted"))

    def _forward(self, kept: list[tuple[RoutePlan, Envelope]]) -> None:
        cascade, forwarder = Cascade(), self.member.forwarder
        for plan, envelope in kept:
            _carry_out(forwarder, plan, envelope, cascade)
        self._handle(self.member.log.ready(forwarder.drain(cascade), self._kernel.now))


def takes_echoes(self: Forwarder, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
    """A relay takes what comes back from a domain into which it put it for a new message."""
    taken: set[str] = self.__dict__.setdefault("planted", set())
    if frame.envelope is not None and str(frame.envelope.id) not in taken:
        taken.add(str(frame.envelope.id))
        place.echoes.pop(str(frame.envelope.id), None)
    _follow(self, place, frame, cascade)


# --- stamps ------------------------------------------------------------------------------------------------------------


def one_by_one(self: Forwarder, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
    """A message for several members of a domain is stamped once for each, so that none knows of the others."""
    into = [(name, members) for name, members in plan.into.items()]
    _carry_out(self, plan._replace(into={name: members for name, members in into if not members}), envelope, cascade)
    for name, members in into:
        for member in members or ():
            _carry_out(self, RoutePlan({name: (member,)}, ()), envelope, cascade)


def numbers_of_another(self: Member, name: str, *rest: Any) -> None:
    """A relay is known in all its domains by its number in the first."""
    _member(self, name, *rest)
    first, *others = self.attachment.domains.values()
    for place in others:
        if first.ordering.my_index < len(place.ordering.members):
            place.ordering.my_index = first.ordering.my_index


def one_clock(self: Member, name: str, *rest: Any) -> None:
    """Two domains of a relay that run the same ordering share its clock."""
    _member(self, name, *rest)
    states: dict[tuple[str, int], Any] = {}
    for place in self.attachment.domains.values():
        ordering = place.ordering
        if ordering.traits.name in ("vector", "sequenced", "grouped", "flood"):
            ordering.state = states.setdefault((ordering.traits.name, len(ordering.members)), ordering.state)


def numbers_by_kind(self: Submitter, submit: Submit, now: int) -> Ready:
    """A member numbers its broadcasts and its other messages separately."""
    counts: dict[bool, int] = self.__dict__.setdefault("planted", {})
    self._forwarder.number = counts.get(submit.to is None, 0)
    ready = _submit(self, submit, now)
    counts[submit.to is None] = self._forwarder.number
    return ready


# --- restarts ----------------------------------------------------------------------------------------------------------


def loses_echoes(self: Place, saved: SavedPlace[Any]) -> None:
    """A snapshot is read without the messages that will come back."""
    _load(self, saved)
    self.echoes = {}


def loses_the_link(self: LinkPlace, saved: SavedPlace[Any]) -> None:
    """A snapshot is read without the state of the link."""
    state = self.end.state
    _load_link(self, saved)
    self.end.state = state


def forwards_again(self: Recovery, record: Record) -> Any:
    """After a restart, what was forwarded already is forwarded again, as something new."""
    followed, here = _repeat(self, record), self._attachment
    envelope = record.frame.envelope if isinstance(record, Received) else None
    if isinstance(record, Received) and envelope and record.domain in here.domains and not here.flat:
        plan = here.routes.plan(here.name, envelope.origin, envelope.to, record.domain)
        _carry_out(self._forwarder, plan, envelope, Cascade())
    return followed


class Planted(NamedTuple):
    """A mistake: which methods it replaces, the options under which it shows, and within how many fabrics it must be noticed."""

    name: str
    patches: tuple[tuple[type, str, Callable[..., Any]], ...]
    seeds: int
    changes: Mapping[str, Any] = {}
    node_type: type[SimulatedNode] = SimulatedNode


EXACT: Final = {"loss": 0.0, "duplication": 0.0, "reordering": 0.0, "partitions": 0, "crashes": 0}
CRASHING: Final = {"crashes": 12, "messages": 60, "gap": "exponential:10ms", "sync": "exponential:5ms"}

PLANTED: Final = (
    Planted("forgets_the_last", ((Routes, "plan", forgets_the_last),), 20),
    Planted("goes_back", ((Routes, "plan", goes_back),), 20, EXACT),
    Planted("only_recipients", ((Routes, "plan", only_recipients),), 20),
    Planted("skips_a_link", ((Routes, "_plan_for_everyone", skips_a_link),), 20),
    Planted("skips_a_domain", ((Routes, "_plan_for_everyone", skips_a_domain),), 20),
    Planted("inner_carries", ((Routes, "__init__", inner_carries),), 150, {**EXACT, "pattern": "multicast"}),
    Planted("forwards_on_arrival", ((Receiver, "take", forwards_on_arrival), (Forwarder, "carry_out", not_again)), 100, EXACT),
    Planted("forwards_backwards", ((Forwarder, "drain", forwards_backwards),), 100),
    Planted("forwards_later", ((Forwarder, "carry_out", keeps_for_later),), 100, EXACT, ForwardsLater),
    Planted("takes_echoes", ((Forwarder, "follow", takes_echoes),), 20, EXACT),
    Planted("one_by_one", ((Forwarder, "carry_out", one_by_one),), 200, EXACT),
    Planted("numbers_of_another", ((Member, "__init__", numbers_of_another),), 20),
    Planted("one_clock", ((Member, "__init__", one_clock),), 200),
    Planted("numbers_by_kind", ((Submitter, "submit", numbers_by_kind),), 20, EXACT),
    Planted("loses_echoes", ((Place, "load", loses_echoes),), 100, CRASHING),
    Planted("loses_the_link", ((LinkPlace, "load", loses_the_link),), 100, CRASHING),
    Planted("forwards_again", ((Recovery, "step_through", forwards_again),), 100, CRASHING),
)


@contextmanager
def _in_place(patches: tuple[tuple[type, str, Callable[..., Any]], ...]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(mock.patch("thence.sim.parts.sync_queue.COMPACT_EVERY", COMPACT_EVERY))
        if patches:
            stack.enter_context(mock.patch("tests.support.fabrics.MAX_EVENTS", MAX_EVENTS))
        yield


def broken_by(planted: Planted, seed: int, *, really: bool = True) -> dict[str, int]:
    """Return what the run of this number breaks with the mistake in place; ``really=False``: without it, else the same."""
    with _in_place(planted.patches if really else ()):
        try:
            return run_one(seed, planted.node_type if really else SimulatedNode, **planted.changes).broken
        except InternalError:
            return {"does not come to rest": 1}
        except (ThenceError, LookupError, ValueError) as error:
            return {type(error).__name__: 1}
