"""Links and relays with a mistake in each, for checking that the explorer and random runs with the judge see it.

A mistake is a subclass of ``LinkEnd``, ``Forwarder``, ``Receiver`` or ``Routes``; ``in_place`` puts it where the real one is
used. Each stands in the smallest fabric in which it can be seen. Both ways of looking must find it: every run of a few messages
(the explorer), and random runs of many (the simulator and the judge). ``tests/properties/fabrics/test_planted_fabric.py`` asks
for both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal, NamedTuple
from unittest import mock

from thence.core.member.forward import Cascade, Forwarder
from thence.core.member.receive import Receiver
from thence.core.places.link_end import Came, LinkCarry, LinkEnd, LinkOutput, LinkTransfer
from thence.core.places.place import DomainPlace, LinkPlace
from thence.core.stability.safe_turn import Deliverable
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.core.topology.routing import RoutePlan, Routes
from thence.core.transport.base import Incoming
from thence.core.wire.messages import Envelope, Frame
from thence.studies.parts.linked_systems import two

# --- links -------------------------------------------------------------------------------------------------------------


class PassesOnAsItComes(LinkEnd):
    """The receiving sequencer does not put the messages back in order."""

    def _came_in(self, described: str, number: int, envelope: Envelope, came: Came) -> LinkOutput:
        return LinkOutput([], [envelope])


class EveryRelayPassesOn(LinkEnd):
    """A receiving relay passes messages on by itself, instead of handing them over to its sequencer."""

    def accept(self, peer: str, frame: Frame[Any], now: int) -> LinkOutput:
        if isinstance(frame.stamp, LinkTransfer) and frame.envelope is not None:
            return LinkOutput([], [frame.envelope])
        return super().accept(peer, frame, now)


class NumbersPerPair(LinkEnd):
    """The sequencer gives each pair numbers of its own, so that several messages have the same one."""

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        ((peer, frame),) = super().cross(envelope, relay).send
        number = (self.state.numbered - 1) // len(self._pairs) + 1
        return LinkOutput([(peer, Frame(type(frame.stamp)(number), envelope))], [])


class NumbersWhatComesIn(LinkEnd):
    """The sequencer numbers everything that it sees, also what comes from the far side (interconnect Fig. 5 as printed)."""

    def _pass_on(self) -> list[Envelope]:
        ready = super()._pass_on()
        self.state.numbered += len(ready)
        return ready


class HandsToTheNextRelay(LinkEnd):
    """The sequencer hands each message to the relay after the one whose turn it is."""

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        self.state.numbered += 1
        near, _ = self._pair(self.state.numbered + 1)
        return LinkOutput([(near, Frame(LinkCarry(self.state.numbered), envelope))] if near != self.me else [], [])


class CarriesWithoutNumber(LinkEnd):
    """A relay that carries for its sequencer counts by itself what number a message has."""

    def accept(self, peer: str, frame: Frame[Any], now: int) -> LinkOutput:
        output = super().accept(peer, frame, now)
        if not isinstance(frame.stamp, LinkCarry):
            return output
        self.state.numbered += 1
        return LinkOutput([(far, Frame(LinkTransfer(self.state.numbered), frame.envelope)) for far, _ in output.send], [])


class FifoByMessage(LinkEnd):
    """In FIFO mode a relay sends its messages to the far relays in turn, instead of always to the same one."""

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        self.state.numbered += 1
        far = self._far[self.state.numbered % len(self._far)]
        return LinkOutput([(far, Frame(LinkTransfer(0), envelope))], [])


# --- relays ------------------------------------------------------------------------------------------------------------


class ForwardsInReverse(Forwarder):
    """What is released at once is forwarded last first."""

    def drain(self, cascade: Cascade) -> Deliverable:
        cascade.released.reverse()
        return super().drain(cascade)


class ForwardsOnArrival(Receiver):
    """A relay forwards what has arrived, instead of what it has delivered."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._forwarder.follow = self._follow  # type: ignore[method-assign]

    def take(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int, *, stored: bool = False) -> Deliverable:
        frame, here = incoming.frame, self._attachment
        if isinstance(place, DomainPlace) and frame.envelope is not None:
            cascade = Cascade()
            plan = here.routes.plan(here.name, frame.envelope.origin, frame.envelope.to, place.name)
            self._forwarder.carry_out(plan, frame.envelope, cascade)
            self._forwarder.drain(cascade)
        return super().take(place, incoming, now, stored=stored)

    def _follow(self, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
        if isinstance(place, LinkPlace):
            Forwarder.follow(self._forwarder, place, frame, cascade)
        elif frame.envelope is not None and place.echoes.pop(str(frame.envelope.id), 1) is not None:
            cascade.deliver.append((place.name, frame))


class DeliversEchoes(Forwarder):
    """A relay delivers what it put into a domain itself once more, when the domain releases it."""

    def follow(self, place: DomainPlace | LinkPlace, frame: Frame[Any], cascade: Cascade) -> None:
        if isinstance(place, DomainPlace) and frame.envelope is not None and str(frame.envelope.id) in place.echoes:
            cascade.deliver.append((place.name, frame))
        super().follow(place, frame, cascade)


class ForwardsToTheFirst(Routes):
    """A relay forwards into the first domain beyond it and leaves out the others."""

    def plan(self, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
        plan = super().plan(at, origin, to, came_from)
        return plan if came_from is None else RoutePlan(dict(list(plan.into.items())[:1]), plan.across)


class CrossesOneLink(Routes):
    """A process that is a relay of several links uses only one of them."""

    def plan(self, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
        plan = super().plan(at, origin, to, came_from)
        return RoutePlan(plan.into, plan.across[:1])


class CrossesBack(Routes):
    """A link does not look on which side of it the origin is, so that messages cross back."""

    def beyond(self, link: Link, domain: str, process: str) -> bool:
        return False


class KeepsTheSequencerOut(Routes):
    """A message to some only is handed to the second relay of a link, who knows no numbers."""

    def handlers(self, link: Link, domain: str, origin: str) -> tuple[str, ...]:
        return link.side(domain)[-1:]


# --- where -------------------------------------------------------------------------------------------------------------


def shared_relay() -> Topology:
    """Return two domains that share r."""
    return Topology("relay", [Domain("A", ("a", "r"), "vector"), Domain("B", ("r", "b"), "vector")])


def hub() -> Topology:
    """Return three domains that share r."""
    return Topology("hub", [Domain(name, (name.lower(), "r"), "vector") for name in "ABC"])


def chain() -> Topology:
    """Return three domains in a row; b is a relay of both links."""
    domains = [Domain(name, (name.lower(),), "vector") for name in "ABC"]
    return Topology("chain", domains, [Link("AB", ("A", "B"), (("a", "b"),)), Link("CB", ("C", "B"), (("c", "b"),))])


def crosswise() -> Topology:
    """Return two domains in FIFO mode, in which a sender's relay here is not the partner of its relay there."""
    domains = [Domain("A", ("a", "r1", "r2"), "fifo"), Domain("B", ("s1", "s2"), "fifo")]
    return Topology("crosswise", domains, [Link("L", ("A", "B"), (("r1", "s1"), ("r2", "s2")), "fifo")], promise="fifo")


class Planted(NamedTuple):
    """A mistake, where to look for it, how many messages are enough, and what it breaks there."""

    mistake: type[LinkEnd | Forwarder | Receiver | Routes]
    where: Topology
    pattern: Literal["broadcast", "unicast", "multicast"]
    messages: int
    property: str
    """What the shortest run of the explorer breaks; "refused" is a frame that the real code refuses."""
    ends: bool = True
    """Whether a run with it ends. Otherwise only the explorer is asked, which stops at the first thing broken."""


PLANTED: Final = (
    Planted(PassesOnAsItComes, two((2, 2), 2), "broadcast", 2, "fifo"),
    Planted(EveryRelayPassesOn, two((2, 2), 2), "broadcast", 2, "fifo"),
    Planted(NumbersPerPair, two((2, 2), 2), "broadcast", 2, "refused"),
    Planted(NumbersWhatComesIn, two((2, 2), 2), "broadcast", 2, "completeness"),
    Planted(HandsToTheNextRelay, two((2, 2), 2), "broadcast", 1, "refused"),
    Planted(CarriesWithoutNumber, two((2, 2), 2), "broadcast", 2, "fifo"),
    Planted(FifoByMessage, two((2, 2), 2, "fifo", ordering="fifo"), "broadcast", 2, "fifo"),
    Planted(ForwardsInReverse, shared_relay(), "broadcast", 2, "fifo"),
    Planted(ForwardsOnArrival, shared_relay(), "broadcast", 2, "fifo"),
    Planted(DeliversEchoes, shared_relay(), "broadcast", 1, "duplication"),
    Planted(ForwardsToTheFirst, hub(), "broadcast", 1, "completeness"),
    Planted(CrossesOneLink, chain(), "broadcast", 1, "completeness"),
    Planted(CrossesBack, crosswise(), "broadcast", 1, "duplication", ends=False),
    Planted(KeepsTheSequencerOut, two((2, 2), 2), "unicast", 1, "refused"),
)

USED: Final = {
    LinkEnd: ("thence.core.places.place.LinkEnd",),
    Forwarder: ("thence.core.member.member.Forwarder",),
    Receiver: ("thence.core.member.member.Receiver",),
    Routes: ("thence.sim.world.Routes", "thence.sim.simulation.Routes"),
}
"""Where the real ones are used by the explorer and the simulator."""


@contextmanager
def in_place(mistake: type[LinkEnd | Forwarder | Receiver | Routes]) -> Iterator[None]:
    """Use the mistake in place of what it was derived from."""
    with ExitStack() as stack:
        for name in next(names for base, names in USED.items() if issubclass(mistake, base)):
            stack.enter_context(mock.patch(name, mistake))
        yield
