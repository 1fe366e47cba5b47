"""Small fabrics in which each process crashes before and after each thing that it does, and mistakes that must be found so.

``tests.support.crashes.crashes`` says what such a thing is: to make durable, to send, to acknowledge, to tell what was
accepted, to deliver, to write a snapshot. In one domain ``tests/unit/core/member/test_member.py`` tries every point for every
ordering. Here are relays, which must forward what they have acknowledged, once and in order, and links, whose relays must
remember each other's numbers; replicas of relays and of sequencers; members who ack to everybody, who keep a message until all
have it, who hand up nothing before all have it, and who tell when all do.

A mistake is a fleet that does things in another order at relays, a member, or a place of one, that forgets something when it
comes back. Without a crash none of them does harm.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec

from tests.support.crashes.crashes import Fleet
from tests.support.planted import planted_stability, planted_takeover
from tests.support.runs import EXACTLY_ONCE
from thence.core.member.contract import Ready
from thence.core.member.forward import Cascade, Forwarder
from thence.core.member.recover import Recovery
from thence.core.places.link_end import LinkState
from thence.core.places.place import LinkPlace, SavedPlace
from thence.core.topology.ack_options import AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import RoutePlan
from thence.core.topology.toml import parse
from thence.core.wire.messages import Envelope
from thence.core.wire.records import Record
from thence.errors import ThenceError
from thence.studies.parts.linked_systems import two
from thence.trace.judge import judge

# --- where, and what happens there -------------------------------------------------------------------------------------


def relay(ordering: str = "matrix", other: str = "") -> Topology:
    """Return two domains that share r."""
    return Topology("relay", [Domain("A", ("a1", "a2", "r"), ordering), Domain("B", ("r", "b1", "b2"), other or ordering)])


def replicas() -> Topology:
    """Return two domains, between which two processes stand for one relay."""
    domains = [Domain("A", ("a1", "a2", "r1", "r2"), "vector"), Domain("B", ("r1", "r2", "b1", "b2"), "vector")]
    return Topology("replicas", domains, replicas=[("r1", "r2")])


def vectors(*, stability: bool = False, **options: Any) -> Topology:
    """Return two domains that share r, both with these options."""
    domains = [Domain("A", ("a1", "a2", "r"), "vector"), Domain("B", ("r", "b1", "b2"), "vector")]
    return Topology("vectors", [domain._replace(**options) for domain in domains], stability=stability)


LINK_WITH_TAKEOVER: Final = """
name = "link"
domains.A = { members = ["a1", "a2", "a3", "a4"], ordering = "vector" }
domains.B = { members = ["b1", "b2", "b3", "b4"], ordering = "vector" }
[[links]]
between = ["A", "B"]
relays = [["a1", "b1"], ["a2", "b2"]]
takeover = true
"""

SEED: Final = 2
TO_EVERYBODY: Final = AckOptions(scheme="distributed", retransmission="nearest", whole=True)
FABRICS: Final = {
    "relay": relay(),
    "sequenced-relay": relay("sequenced", "vector"),
    "link": two((3, 3), 2),
    "replicas": replicas(),
    "link-with-takeover": parse(LINK_WITH_TAKEOVER),
    "to-everybody": vectors(acks=TO_EVERYBODY),
    "stability": vectors(stability=True),
    "safe": vectors(delivery="safe"),
    "notify": vectors(delivery="notify"),
}


def in_between(topology: Topology) -> set[str]:
    """Return who takes messages from one domain to another."""
    return {*topology.relays, *(relay for link in topology.links.values() for relay in link.members)}


def messages(topology: Topology) -> list[tuple[str, tuple[str, ...] | None]]:
    """Return who sends to whom: there and back, past each other, and to everyone."""
    first, second, third, *_, last = topology.senders
    return [(first, (last,)), (first, None), (last, (second,)), (second, (first, last)), (third, (second, last)), (last, None)]


def small_run(fleet: Fleet, seed: int) -> None:
    """Submit a few messages, some before and some after others have arrived, and let all come to rest."""
    chance = random.Random(seed)
    for sender, to in messages(fleet.topology):
        fleet.submit(sender, to)
        for _ in range(chance.randint(0, 6)):
            if fleet.network:
                fleet.arrive(chance.randrange(len(fleet.network)))
    fleet.settle(chance.randrange)


def complaint(fleet: Fleet, seed: int = SEED) -> str:
    """Let it run; return what is wrong with it, or nothing."""
    try:
        small_run(fleet, seed)
    except (AssertionError, ThenceError) as error:
        return f"{type(error).__name__}: {error}"
    broken = judge(fleet.events, {*EXACTLY_ONCE, *fleet.topology.guarantees}).violations
    if broken:
        return f"{broken[0].property}: {broken[0].detail}"
    sent = {str(event.message) for event in fleet.events if event.kind == "send"}
    if len(sent) != len(messages(fleet.topology)) or not sent >= set(fleet.accepted):
        return f"accepted {sorted(fleet.accepted)}, sent {sorted(sent)}"
    return f"refused: {fleet.refused[0]}" if fleet.refused else ""


def crash_everywhere(
    topology: Topology, fleet_type: type[Fleet] = Fleet, seed: int = SEED, **options: Any
) -> Iterator[tuple[Fleet, str]]:
    """Crash at each point of a run, in a run of its own; yield what came of it and what is wrong with that."""
    calm = fleet_type(topology, **options)
    assert complaint(calm, seed) == "", "without a crash"
    for point in range(1, calm.operations + 1):
        fleet = fleet_type(topology, crash_at=[point], **options)
        yield fleet, complaint(fleet, seed)


# --- mistakes ----------------------------------------------------------------------------------------------------------


class AtRelays(Fleet, ABC):
    """The base of those that do things in another order, where a message goes from one domain to another."""

    checked = False

    def _carry_out(self, name: str, ready: Ready) -> None:
        for part in self._parts(ready) if name in in_between(self.topology) else [ready]:
            super()._carry_out(name, part)

    @abstractmethod
    def _parts(self, ready: Ready) -> list[Ready]:
        """Return the same in parts, in the order in which they are done."""


class SendsFirst(AtRelays):
    """Frames and acknowledgements go out before what they say is on disk."""

    def _parts(self, ready: Ready) -> list[Ready]:
        return [Ready(send=ready.send, wake=ready.wake), msgspec.structs.replace(ready, send=())]


class ForwardsFirst(AtRelays):
    """Frames go out before what they follow from is on disk; what came in is acknowledged afterwards, as it should be."""

    def _parts(self, ready: Ready) -> list[Ready]:
        sent = [(peer, msgspec.structs.replace(packet, acked=0, acked_beyond=())) for peer, packet in ready.send if packet.frames]
        return [Ready(send=tuple(sent), wake=ready.wake), ready]


class AcknowledgesFirst(AtRelays):
    """What came in is acknowledged before it is on disk; frames go out afterwards, as they should."""

    def _parts(self, ready: Ready) -> list[Ready]:
        said = [(peer, msgspec.structs.replace(packet, frames=(), numbers=())) for peer, packet in ready.send]
        return [Ready(send=tuple(said), wake=ready.wake), ready]


class DeliversFirst(AtRelays):
    """What came in is handed to the application before it is on disk."""

    def _parts(self, ready: Ready) -> list[Ready]:
        if ready.accepted:
            return [ready]
        return [Ready(deliver=ready.deliver, wake=ready.wake), msgspec.structs.replace(ready, deliver=())]


_step_through = Recovery.step_through
_carry_out = Forwarder.carry_out


def _forgets_what_it_forwarded(self: Recovery, record: Record) -> Any:
    """A relay that comes back takes what is on its disk as done: it was acknowledged, and not all of it may have gone out."""

    def only_own(forwarder: Forwarder, plan: RoutePlan, envelope: Envelope, cascade: Cascade) -> None:
        if envelope.origin == self._attachment.name:
            _carry_out(forwarder, plan, envelope, cascade)

    with mock.patch.object(Forwarder, "carry_out", only_own):
        return _step_through(self, record)


class Planted(NamedTuple):
    """A mistake, in which fabrics it is made, and what it breaks there when somebody crashes at the right moment."""

    name: str
    where: tuple[str, ...]
    breaks: str
    """A property of the judge, or "AssertionError" where a rule of the fleet is."""
    snapshots: bool = False
    """Whether members come back from snapshots, or from records."""
    fleet: type[Fleet] = Fleet
    put: Callable[[], AbstractContextManager[Any]] = nullcontext
    seed: int = SEED
    """In which order packets have to arrive for it."""


def _forgets() -> AbstractContextManager[Any]:
    return mock.patch.object(Recovery, "step_through", _forgets_what_it_forwarded)


_load = LinkPlace.load


def _link(forget: Callable[[LinkState], None]) -> Callable[[], AbstractContextManager[Any]]:
    """Let a relay of a link forget something when it comes back from its snapshot."""

    def load(self: LinkPlace, saved: SavedPlace[Any]) -> None:
        _load(self, saved)
        forget(self.end.state)

    return lambda: mock.patch.object(LinkPlace, "load", load)


def _takeover(name: str) -> Callable[[], AbstractContextManager[Any]]:
    (planted,) = [planted for planted in planted_takeover.PLANTED if planted.name == name]
    return lambda: planted_takeover.in_place(planted)


def _stability(name: str) -> Callable[[], AbstractContextManager[Any]]:
    mistakes = (*planted_stability.UNSAFE, *planted_stability.UNNOTICED)
    planted = next(planted for planted in mistakes if planted.name.startswith(name))
    return lambda: planted_stability.in_place(planted)


ALL: Final = tuple(FABRICS)
WITHOUT_REPLICAS: Final = tuple(name for name, topology in FABRICS.items() if not topology.replicas)
"""A replica does the work of another that makes some mistakes."""
UNSETTLED: Final = tuple(name for name in ALL if name not in ("link-with-takeover", "stability", "safe", "notify"))
"""Where nobody goes on for ever about a message that is lost."""
HANDED_UP_AT_ONCE: Final = tuple(name for name in WITHOUT_REPLICAS if name != "safe")

PLANTED: Final = (
    Planted("sends first", UNSETTLED, "completeness", fleet=SendsFirst),
    Planted("forwards first", WITHOUT_REPLICAS, "duplication", fleet=ForwardsFirst),
    Planted("acknowledges first", UNSETTLED, "completeness", fleet=AcknowledgesFirst),
    # With safe delivery a message is on disk long before it is delivered.
    Planted("delivers first", tuple(name for name in ALL if name != "safe"), "AssertionError", fleet=DeliversFirst),
    Planted("forgets what it forwarded", HANDED_UP_AT_ONCE, "causal", put=_forgets),
    Planted("says once what is safe", ("safe",), "completeness", put=_stability("says once what is safe")),
    Planted("forgets what waited", ("safe",), "completeness", put=_stability("hands up what waited to nobody")),
    Planted(
        "forgets what is not safe", ("notify",), "AssertionError", True, put=_stability("forgets when it restarts what is not")
    ),
    Planted("numbers anew", ("link",), "causal", True, put=_link(lambda state: setattr(state, "numbered", 0))),
    Planted("passes on anew", ("link",), "completeness", True, put=_link(lambda state: setattr(state, "passed", 0))),
    Planted("forgets who waits", ("link",), "completeness", True, put=_link(lambda state: state.arrived.clear())),
    Planted("no gate before copies", ("replicas",), "causal", put=_takeover("no gate before copies")),
    Planted("nothing is kept", ("replicas",), "fifo", put=_takeover("nothing is kept"), seed=1),
    Planted("forwards back", ("replicas",), "refused", put=_takeover("a copy of another replica is forwarded back")),
)
