"""One relay's end of a link between two domains: several pairs of relays that act as one.

Source: interconnect §3 (FIFO mode) and §5. Design note: docs/concepts/links.md.

*FIFO mode*: each sender has its relay, each relay its partner; what a relay delivers it transfers, in that order.
Nothing is coordinated, and nothing but FIFO is kept.

*Causal mode*: the first relay of each side is its sequencer. It numbers what crosses, in the order in which it
delivers it, which is an order in which causes come first, and hands the messages to the pairs of relays in turn.
They cross in parallel. Each receiving relay hands what arrives to the sequencer of its own side, which passes the
messages on into its domain in the order of their numbers. So the two sequencers are one relay with a wide pipe in
the middle, and whatever holds for a single relay holds here.

A link may say what makes its ends instead of a mode, for whoever tries out some of their own. Fig. 5 as printed, which is not
causal, is tried out so (``studies.parts.printed_links``). Messages that cross go to the sequencer and to their sender's relay,
messages that came over to all relays of the side, and ``delivered`` says what follows there. No file can say so, so no server
runs such ends.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import msgspec

from thence.core.ordering import Predecessor, Wait
from thence.core.topology.link import Link
from thence.core.wire.messages import Envelope, Frame, weight_of
from thence.errors import MalformedFrame, OverflowingFrame, ReplayedFrame, StrangerFrame

MAX_EARLY = 1 << 16
"""How many messages may wait at one relay of a link for their number or for the numbers before theirs."""

MAX_EARLY_BYTES = 256 * 1024 * 1024
"""About how many bytes they may have."""


class LinkTransfer(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=20):
    """Relay to relay, across: the ``number``-th message that crosses this way (0 in FIFO mode, which does not number)."""

    number: int


class LinkCarry(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=21):
    """Sequencer to a relay of its side: carry this across."""

    number: int


class LinkCarried(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=22):
    """Relay to the sequencer of its side: this came across."""

    number: int


# Tag 23 is taken: servers of version 0.1 had the numbers of Fig. 5 as printed, which studies still send.
LINK_STAMPS = (LinkTransfer, LinkCarry, LinkCarried)


class LinkOutput(NamedTuple):
    """Frames for other relays of the link, and messages to pass on into the domain, in order."""

    send: list[tuple[str, Frame[Any]]]
    pass_on: list[Envelope]


class Came(NamedTuple):
    """From whom a message that waits came, and when."""

    peer: str
    at: int


class LinkState(msgspec.Struct):
    """Everything that a restart must find again."""

    numbered: int = 0
    """As sequencer: the last number given."""
    passed: int = 0
    """Up to which number all messages from the far side are passed on, as seen from here."""
    arrived: dict[int, Envelope] = msgspec.field(default_factory=dict)
    """Messages that came over the link and wait for those before them."""


class LinkEnd:
    """One relay's end of a link: what it numbers, forwards and holds until its turn."""

    def __init__(self, link: Link, me: str, max_early_bytes: int = MAX_EARLY_BYTES) -> None:
        """Be the end of ``link`` at ``me``; so many bytes may wait, if that is less than ``MAX_EARLY_BYTES``."""
        self.link = link
        self.me = me
        self.domain = link.between[0] if me in link.side(link.between[0]) else link.between[1]
        self._at = link.between.index(self.domain)
        self._near = link.side(self.domain)
        self._far = link.side(link.far(self.domain))
        self._pairs = tuple((pair[self._at], pair[1 - self._at]) for pair in link.relays)
        self._max_early_bytes = max_early_bytes
        self.state = LinkState()
        self._early_bytes = 0
        """How many bytes have arrived and wait."""
        self.came: dict[int, Came] = {}
        """Of what has arrived and waits, by number. For people only, so no part of the state: a restart may forget it."""

    @property
    def sequencer(self) -> str:
        """The relay on this side that numbers what crosses."""
        return self._near[0]

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        """A message for the far side has been delivered, or sent, here. ``relay`` is its sender's, where senders are divided."""
        if self.link.mode == "fifo":
            return LinkOutput([(self._partner(self.me), Frame(LinkTransfer(0), envelope))], [])
        self.state.numbered += 1
        number = self.state.numbered
        near, far = self._pair(number)
        if near == self.me:
            return LinkOutput([(far, Frame(LinkTransfer(number), envelope))], [])
        return LinkOutput([(near, Frame(LinkCarry(number), envelope))], [])

    def first_hop(self) -> list[str]:
        """Return the relay to whom a message that crosses goes from here, where that does not depend on its number."""
        if self.link.mode == "fifo":
            return [self._partner(self.me)]
        return [self._pairs[0][1]] if self.link.mode == "causal" and len(self._pairs) == 1 else []

    def carries_to(self) -> list[str]:
        """Return the relays in whose queues there must be room for a message that crosses."""
        return self.first_hop() or [member for member in self.link.members if member != self.me]

    def hands_on_to(self, peer: str) -> tuple[str, ...]:
        """Return the relays to whom a message that comes from ``peer`` is handed on."""
        if self.link.mode != "causal" or self.me == self.sequencer:
            return ()
        return tuple(far for near, far in self._pairs if near == self.me) if peer in self._near else (self.sequencer,)

    def accept(self, peer: str, frame: Frame[Any], now: int) -> LinkOutput:
        """Take a frame from another relay of the link. ``now`` is when it came: it is told, and decides nothing."""
        stamp, envelope = frame.stamp, frame.envelope
        described = f"link {self.link.name!r}: a frame from {peer!r} at {self.me!r}"
        if not isinstance(stamp, LINK_STAMPS) or stamp.number < (self.link.mode != "fifo"):
            raise MalformedFrame(f"{described}: {type(stamp).__name__} makes no sense here")
        if envelope is None:
            raise MalformedFrame(f"{described}: it holds no message")
        if isinstance(stamp, LinkCarry):
            near, far = self._pair(stamp.number)
            if peer != self.sequencer or near != self.me or self.link.mode != "causal":
                raise StrangerFrame(f"{described}: number {stamp.number} is not for us to carry")
            return LinkOutput([(far, Frame(LinkTransfer(stamp.number), envelope))], [])
        if isinstance(stamp, LinkCarried):
            if peer not in self._near or self.me != self.sequencer or self.link.mode != "causal":
                raise StrangerFrame(f"{described}: only relays of one side hand over, and only to their sequencer")
            return self._came_in(described, stamp.number, envelope, Came(peer, now))
        if peer not in self._far:
            raise StrangerFrame(f"{described}: only relays of the far side transfer")
        if self.link.mode == "fifo":
            return LinkOutput([], [envelope])
        if self.link.mode == "causal" and self.me != self.sequencer:
            return LinkOutput([(self.sequencer, Frame(LinkCarried(stamp.number), envelope))], [])
        return self._came_in(described, stamp.number, envelope, Came(peer, now))

    def _came_in(self, described: str, number: int, envelope: Envelope, came: Came) -> LinkOutput:
        state = self.state
        if number <= state.passed or number in state.arrived:
            raise ReplayedFrame(f"{described}: number {number} came before")
        if number != state.passed + 1:
            if len(state.arrived) >= MAX_EARLY:
                raise OverflowingFrame(f"{described}: MAX_EARLY messages wait for those before them")
            if self._early_bytes >= (most := min(MAX_EARLY_BYTES, self._max_early_bytes)):
                raise OverflowingFrame(f"{described}: messages wait for those before them; MAX_EARLY_BYTES is {most}")
        state.arrived[number] = envelope
        self._early_bytes += weight_of(envelope)
        passed_on = self._pass_on()
        if number in state.arrived:
            self.came[number] = came
        return LinkOutput([], passed_on)

    def _pass_on(self) -> list[Envelope]:
        """Return the messages whose turn it is."""
        state = self.state
        ready = []
        while (number := state.passed + 1) in state.arrived:
            envelope = state.arrived.pop(number)
            ready.append(envelope)
            self._early_bytes -= weight_of(envelope)
            self.came.pop(number, None)
            state.passed = number
        return ready

    def delivered(self, echo: bool) -> LinkOutput:
        """Return what follows when a message of the far side is delivered here; ``echo``: it was this relay that passed it on.

        Only ends of a study's own are asked: in the modes of servers nothing follows.
        """
        return LinkOutput([], [])

    @property
    def early(self) -> tuple[int, int]:
        """How many messages have arrived before their turn, and their bytes."""
        return len(self.state.arrived), self._early_bytes

    def waiting(self) -> list[Wait]:
        """List the messages that wait here, in the order of their numbers; all wait for the same one."""
        missing = Predecessor(f"link {self.link.name}", self.state.passed + 1)
        arrived = sorted(self.state.arrived.items())
        return [Wait(envelope.id, self.came[number].peer, missing, self.came[number].at) for number, envelope in arrived]

    def fork(self) -> LinkEnd:
        """Return an end that goes on from here on its own."""
        twin = copy.copy(self)
        twin.state = copy.deepcopy(self.state)
        twin.came = dict(self.came)
        return twin

    def load(self, saved: LinkState) -> None:
        """Go on from a saved state."""
        self.state = saved
        self._early_bytes = sum(map(weight_of, saved.arrived.values()))

    def restored(self, now: int) -> None:
        """The state is a saved one, which does not say when what waits came: hold it for having come now.

        So a wait is told too short, and not left out where the oldest one is looked for.
        """
        self.came = {number: Came(self._comes_from(number), now) for number in self.state.arrived}

    def _comes_from(self, number: int) -> str:
        """Return who hands us a number."""
        near, far = self._pair(number)
        return far if near == self.me else near

    def _pair(self, number: int) -> tuple[str, str]:
        """Return the pair of relays that carries a number: each in turn."""
        return self._pairs[(number - 1) % len(self._pairs)]

    def _partner(self, relay: str) -> str:
        return next(far for near, far in self._pairs if near == relay)
