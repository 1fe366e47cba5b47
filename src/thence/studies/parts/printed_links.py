"""Fig. 5 of interconnect as printed, so that it can be run beside ours. It is not causal, and no server runs it.

Rules:

* The first relay of a side numbers what crosses, with numbers per peer so that it does not block at once, and tells the sender's
  relay the number. That relay has the message itself, and sends it across.
* The receiving relays pass messages on themselves. Each waits until it has delivered all before (``printed_delivered``), or all
  before that it did not pass on itself (``printed_sent``). Either costs about one delivery within the far domain per message,
  since consecutive messages mostly come in by different relays.
* A message can cross and cause an answer, which comes back by another relay. That one has not delivered the first message yet,
  and passes the answer on without it. Thm 3 looks at one direction only.
* It runs in simulations without crashes, stability and tight limits on memory: nobody comes back from a snapshot, and what waits
  for a number is neither bounded nor accounted for.

Source: interconnect §5 and Fig. 5; docs/research/errata.md.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from thence.core.places.link_end import MAX_EARLY, Came, LinkEnd, LinkOutput, LinkState, LinkTransfer
from thence.core.topology.link import Link, MakeLinkEnd
from thence.core.wire.messages import Envelope, Frame, weight_of
from thence.errors import MalformedFrame, OverflowingFrame, ReplayedFrame, StorageError, StrangerFrame


class LinkNumber(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=23):
    """Sequencer to a relay that has the message itself: it is the ``number``-th to cross."""

    number: int
    origin: str
    origin_number: int


class PrintedState(LinkState):
    """What an end as printed keeps beside what every end does."""

    own: dict[int, None] = msgspec.field(default_factory=dict)
    """Numbers that this relay passed on itself and that are not counted yet."""
    unnumbered: dict[str, Envelope] = msgspec.field(default_factory=dict)
    """Messages that wait for their number, by name."""
    unclaimed: dict[str, int] = msgspec.field(default_factory=dict)
    """Numbers whose message has not been delivered here yet, by the message's name."""


class PrintedEnd(LinkEnd):
    """One relay's end of a link as printed."""

    state: PrintedState

    def __init__(self, link: Link, me: str, max_early_bytes: int, *, waits_for_own: bool = True) -> None:
        """``waits_for_own``: what this relay passed on itself counts when it is delivered here, and else at once."""
        super().__init__(link, me, max_early_bytes)
        self.state = PrintedState()
        self._waits_for_own = waits_for_own

    def cross(self, envelope: Envelope, relay: str) -> LinkOutput:
        state, name = self.state, str(envelope.id)
        if self.me == self.sequencer:
            state.numbered += 1
            if relay == self.me:
                return self._transfer(state.numbered, envelope)
            return LinkOutput([(relay, Frame(LinkNumber(state.numbered, envelope.origin, envelope.number), None))], [])
        if name in state.unclaimed:
            return self._transfer(state.unclaimed.pop(name), envelope)
        state.unnumbered[name] = envelope
        return LinkOutput([], [])

    def accept(self, peer: str, frame: Frame[Any], now: int) -> LinkOutput:
        stamp, envelope = frame.stamp, frame.envelope
        described = f"link {self.link.name!r}: a frame from {peer!r} at {self.me!r}"
        if not isinstance(stamp, LinkTransfer | LinkNumber) or stamp.number < 1:
            raise MalformedFrame(f"{described}: {type(stamp).__name__} makes no sense here")
        if isinstance(stamp, LinkNumber):
            return self._numbered(described, peer, stamp)
        if envelope is None:
            raise MalformedFrame(f"{described}: it holds no message")
        if peer not in self._far:
            raise StrangerFrame(f"{described}: only relays of the far side transfer")
        if stamp.number in self.state.own:
            raise ReplayedFrame(f"{described}: number {stamp.number} came before")
        return self._came_in(described, stamp.number, envelope, Came(peer, now))

    def _numbered(self, described: str, peer: str, stamp: LinkNumber) -> LinkOutput:
        if peer != self.sequencer:
            raise StrangerFrame(f"{described}: only the sequencer {self.sequencer!r} gives numbers")
        name = f"{stamp.origin}:{stamp.origin_number}"
        envelope = self.state.unnumbered.pop(name, None)
        if envelope is not None:
            return self._transfer(stamp.number, envelope)
        if name in self.state.unclaimed:
            raise ReplayedFrame(f"{described}: {name} has its number already")
        if len(self.state.unclaimed) >= MAX_EARLY:
            raise OverflowingFrame(f"{described}: MAX_EARLY numbers wait for their message")
        self.state.unclaimed[name] = stamp.number
        return LinkOutput([], [])

    def _transfer(self, number: int, envelope: Envelope) -> LinkOutput:
        return LinkOutput([(self._partner(self.me), Frame(LinkTransfer(number), envelope))], [])

    def delivered(self, echo: bool) -> LinkOutput:
        if echo and not self._waits_for_own:
            return LinkOutput([], [])
        self.state.passed += 1
        self.state.own.pop(self.state.passed, None)
        return LinkOutput([], self._pass_on())

    def load(self, saved: LinkState) -> None:
        raise StorageError(f"link {self.link.name!r} at {self.me!r}: Fig. 5 as printed does not come back from a snapshot")

    def _pass_on(self) -> list[Envelope]:
        state = self.state
        if not self._waits_for_own:
            return super()._pass_on()
        number = state.passed + 1
        if number not in state.arrived:
            return []
        envelope = state.arrived.pop(number)
        state.own[number] = None
        self._early_bytes -= weight_of(envelope)
        self.came.pop(number, None)
        return [envelope]


def printed_delivered(link: Link, me: str, max_early_bytes: int) -> PrintedEnd:
    """Return an end for which a message counts as passed on when it has been delivered here."""
    return PrintedEnd(link, me, max_early_bytes)


def printed_sent(link: Link, me: str, max_early_bytes: int) -> PrintedEnd:
    """Return an end for which a message counts as passed on as soon as this relay has sent it."""
    return PrintedEnd(link, me, max_early_bytes, waits_for_own=False)


PRINTED: Final[tuple[MakeLinkEnd, ...]] = (printed_delivered, printed_sent)
"""Both readings."""
