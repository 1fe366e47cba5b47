"""What goes into ``member.step`` and what comes out of it: the one contract of the house, as values.

``core.member.member`` says in which order a caller does what a ``Ready`` asks for. What is made for every message is a
struct, since making one calls no Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from thence.core.reconfig.protocol import FABRIC, NewView, ViewInput
from thence.core.wire.messages import Envelope, Frame, Packet
from thence.core.wire.records import Record
from thence.errors import FrameRefused, UsageError


class Submit(msgspec.Struct, frozen=True, gc=False):
    """The application sends ``body`` to ``to`` (None: everyone, itself included)."""

    to: tuple[str, ...] | None
    body: bytes = b""
    notice: bool = False
    """Whether it is small and somebody waits for it: then it is refused as late as what is forwarded (``core.member.limits``)."""


class SubmitAll(msgspec.Struct, frozen=True, gc=False):
    """The application sends several messages, in this order, in one step: all of them, or none.

    It is for what follows from something that was delivered. Were it refused as early as ``Submit`` is, applications that have to
    send before they can take more could wait for each other for ever. So it is refused as late as what is forwarded.
    """

    submits: tuple[Submit, ...]


class Arrived(msgspec.Struct, frozen=True, gc=False):
    """A packet came in from ``peer``."""

    peer: str
    packet: Packet[Any]


class Timer(NamedTuple):
    """The time that ``Ready.wake`` asked for has come."""


class Connected(NamedTuple):
    """There is a new way to ``peer``: what was on the old one, if there was any, is lost."""

    peer: str


class Consumed(NamedTuple):
    """The application has durably done with all deliveries up to this position."""

    position: int


class Restored(NamedTuple):
    """What was found on disk; only as the very first input."""

    snapshot: bytes | None
    records: Sequence[Record]
    consumed: int
    """The position up to which the application had consumed."""


class Repeated(NamedTuple):
    """A record that was found on disk, for whoever must know what followed from each of them; only behind ``Restored``.

    ``Consumed`` may come between them.
    """

    record: Record


class Spilled(NamedTuple):
    """The frames for ``peer`` that were to go elsewhere, up to this number, are there (``core.transport.spill_queue``)."""

    place: str
    peer: str
    upto: int


class Fetched(NamedTuple):
    """The next of them are here again."""

    place: str
    peer: str
    frames: Sequence[tuple[int, Frame[Any]]]


class Suspicion(NamedTuple):
    """``peer`` is suspected, or no longer. That may be wrong: nothing is lost or doubled by it."""

    peer: str
    suspected: bool


Input = (
    Submit | SubmitAll | Arrived | Timer | Connected | Consumed | Spilled | Fetched | Suspicion | Restored | Repeated | ViewInput
)


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """A message for the application, or the news of a view; ``position`` counts this member's deliveries from 1."""

    position: int
    domain: str
    frame: Frame[Any]

    @property
    def envelope(self) -> Envelope:
        """The message itself."""
        if self.frame.envelope is None:
            raise UsageError("a marker is never delivered")
        return self.frame.envelope

    @property
    def news(self) -> NewView | None:
        """What is told of a new view, if this is that and no message: what was delivered before is of the old one."""
        if self.envelope.origin != FABRIC:
            return None
        return msgspec.msgpack.decode(self.envelope.body, type=NewView)


def as_values(refusals: Iterable[FrameRefused]) -> tuple[FrameRefused, ...]:
    """Return refusals without the place where they were raised.

    The frames there lead to the caller, who holds the ``Ready`` with the refusals: a circle, and nobody looks for circles through
    a ``Ready`` (``gc=False``). Each refused frame would be kept for ever.
    """
    found = tuple(refusals)
    for refusal in found:
        refusal.__traceback__ = refusal.__context__ = refusal.__cause__ = None
    return found


class Ready(msgspec.Struct, frozen=True, gc=False):
    """What to do now: first persist, then send and acknowledge, then deliver."""

    persist: tuple[Record, ...] = ()
    """First: make these durable."""
    send: tuple[tuple[str, Packet[Any]], ...] = ()
    """Second: send these packets."""
    accepted: tuple[Envelope, ...] = ()
    """Second: the application may be told that these were accepted; where domains keep copies (``core.failover.secured``), as
    far as they are ``secured``."""
    deliver: tuple[Delivery, ...] = ()
    """Third: hand these to the application, in this order."""
    refused: tuple[FrameRefused, ...] = ()
    """Frames that were not taken, and why. For the log; nothing needs to be done."""
    wake: int | None = None
    """Call again with ``Timer`` at this time, or earlier if something else happens."""
    sent: tuple[Envelope, ...] = ()
    """Second: these are on their way from here on, for the trace. What is accepted is, unless a change of the fabric lets it
    wait (``core.reconfig.protocol``)."""
    stable: int = 0
    """Second: all messages of our own up to this number are on the disks of all their recipients; 0: no news, or the fabric does
    not find it out (``core.stability.accounts``)."""
    safe: int = 0
    """Third, behind ``deliver``: all deliveries up to this position are safe; 0: no news, or no domain tells it
    (``core.stability.safe_notification``)."""
    secured: int = 0
    """Second: all messages of our own up to this number outlive us; 0: no news, or no domain sees to that."""
