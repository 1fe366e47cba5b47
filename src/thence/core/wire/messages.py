"""What travels: an envelope end to end, a stamp per domain, frames and packets between two members.

Rules:

* An envelope is made once, by its origin, and only its vector changes on its way. ``(origin, number)`` names it for ever.
* A frame is one hop inside one domain: the stamp is all the control information that the domain's ordering adds.
* A frame without an envelope is a *marker*: a message that is not for its receiver, but that others depend on.
  A hole in the numbering would block the receiver; a marker does not.
* Members are named in envelopes and numbered in stamps: a stamp is paid for on every hop, so it holds small integers.
* All of these are immutable: the simulator hands the same object to several members.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import msgspec

StampT = TypeVar("StampT")

MAX_BODY_BYTES = 16 * 1024 * 1024
"""The largest body that one message may carry."""

MAX_NAME_CHARACTERS = 200
"""The longest name of a process or a domain."""

MAX_DESTINATIONS = 65_536
"""The most destinations that one message may list. More than that is a broadcast (``to=None``)."""


VIEW_BITS = 20

MAX_VERSION = (1 << VIEW_BITS) - 1
"""The highest version of a topology: it travels with what is sent to everyone."""

FRAME_WEIGHT = 64
"""What a frame counts for in limits by bytes, beside its body."""


class MessageId(NamedTuple):
    """The name of a message: its origin, and its number among the messages of that origin, from 1."""

    origin: str
    number: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the origin of a message had seen before it, where relays order by that (``core.ordering.relayed``)."""

    depth: int
    """As ``Envelope.seen`` says it where there is no vector."""
    vector: tuple[int, ...]
    """(stream, number, …): of which relay's stream, up to which number."""


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message as the application sees it."""

    origin: str
    number: int
    to: tuple[str, ...] | None
    """The destinations, end to end; None means everyone."""
    body: bytes
    seen: int | Seen = 0
    """Its depth, and a vector where relays order by that: they add the place that it has in their stream.

    Below 0: depth and version of what is for everyone of a version after the first one.
    """

    @property
    def _packed(self) -> int:
        return self.seen if isinstance(self.seen, int) else self.seen.depth

    @property
    def depth(self) -> int:
        """Deeper than all that its origin had sent or delivered before, where copies are kept (``core.reconfig.retention``);
        otherwise 0."""
        packed = self._packed
        return packed if packed >= 0 else -packed >> VIEW_BITS

    @property
    def version(self) -> int:
        """Of which version of the topology everyone is meant, if it is for everyone; 0: of the first one, or of any."""
        return max(0, -self._packed) & MAX_VERSION

    def is_for(self, name: str, since: int) -> bool:
        """Return whether it is for a process that came in with a version: others send to everyone before they know of it."""
        return self.version >= since if self.to is None else name in self.to

    def for_everyone_of(self, version: int) -> Envelope:
        """Return the same message, for everyone of a version; nothing need be said of the first one."""
        if version < 2:
            return self
        seen = -(self.depth << VIEW_BITS | version)
        vector = self.vector
        return Envelope(self.origin, self.number, None, self.body, seen if vector is None else Seen(seen, vector))

    @property
    def vector(self) -> tuple[int, ...] | None:
        """(stream, number, …) that its origin had seen; None: nobody wrote it down."""
        return self.seen.vector if isinstance(self.seen, Seen) else None

    def with_vector(self, vector: tuple[int, ...] | None) -> Envelope:
        """Return the same message with this vector."""
        seen = self._packed if vector is None else Seen(self._packed, vector)
        return Envelope(self.origin, self.number, self.to, self.body, seen)

    @property
    def id(self) -> MessageId:
        """The name of this message."""
        return MessageId(self.origin, self.number)


class Frame(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """One message, or one marker, on its way from a member of a domain to another."""

    stamp: StampT
    envelope: Envelope | None
    bodiless: bool = False
    """Whether the body of the message went ahead (``core.failover.early_payloads``). Only on the wire: nobody gets to see it
    so."""

    @property
    def weight(self) -> int:
        """About how many bytes it takes, for limits: as ``weight_of``, said again since this is asked for with every frame."""
        envelope = self.envelope
        return FRAME_WEIGHT if envelope is None else FRAME_WEIGHT + len(envelope.body)


class GroupAcks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a packet says beside its frames where each acks to everybody (``core.transport.ack_all``). Members are
    numbered."""

    claims: tuple[tuple[int, ...], ...] = ()
    """What the sender of the packet has of each stream (``core.transport.ack_all.claims``)."""
    wanted: bool = False
    """Whether it asks for the same in return."""
    requests: tuple[tuple[int, ...], ...] = ()
    """What it lacks: a stream and numbers in it, for each stream."""
    streams: tuple[int, ...] = ()
    """By whom each frame was first sent; empty: all by the sender of the packet."""
    recipients: tuple[tuple[int, ...] | None, ...] = ()
    """For which members the message of each frame is, all others having its marker (None: for all); empty: all for all."""


class StableAck(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ack of stable frames (``core.stability.stable``)."""

    upto: int = 0
    """Every frame of its receiver up to this one is where it has to be, with all that followed from it."""
    wanted: bool = False
    """Whether the same is asked for in return."""
    beyond: tuple[int, ...] = ()
    """Frames behind the first number that are stable too, unless an earlier ack named them."""


class SafeAck(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The ack of safe frames (``core.stability.safe``)."""

    upto: int = 0
    """Every frame of its sender to its receiver up to this one has come to all to whom its message went."""
    wanted: bool = False
    """Whether the same is asked for in return."""
    fellows: tuple[int, ...] = ()
    """Where one that stands for the same relay is suspected, or the same was asked for: the same of what each of them sent, in
    their order."""


class Packet(msgspec.Struct, Generic[StampT], frozen=True, array_like=True, gc=False):
    """What one member hands to the network for another: frames of one domain, and what it has taken from there.

    ``numbers`` are the channel's own numbers of the frames, one each; empty where the transport is trusted to be exact.
    """

    domain: str
    frames: tuple[Frame[StampT], ...]
    numbers: tuple[int, ...] = ()
    acked: int = 0
    """Every frame numbered up to this one has been taken."""
    acked_beyond: tuple[int, ...] = ()
    """Frames beyond that which have been taken too."""
    group_acks: GroupAcks | None = None
    """Instead of the two before, where each acks to everybody."""
    stable_ack: StableAck | None = None
    """What of its receiver's frames is stable, in fabrics with ``stability = true``."""
    safe_ack: SafeAck | None = None
    """What of its sender's frames is safe, in domains with safe delivery or notification."""


def says_all_of(later: Packet[StampT], earlier: Packet[StampT]) -> bool:
    """Return whether a packet says all that an earlier one without frames, for the same domain, has said.

    Numbers only grow. But a stable or safe ack alone does not acknowledge frames, a question is asked once, and numbers behind a
    hole are named once.
    """
    if later.acked < earlier.acked or (earlier.acked_beyond and not (later.acked or later.acked_beyond)):
        return False
    stable, safe = earlier.stable_ack, earlier.safe_ack
    if stable is not None and (stable.wanted or stable.beyond or later.stable_ack is None):
        return False
    return safe is None or not (safe.wanted or later.safe_ack is None)


def weight_of(envelope: Envelope | None) -> int:
    """Return what a message counts for in limits by bytes, wherever it is queued. Small stamps are not told apart."""
    return FRAME_WEIGHT if envelope is None else FRAME_WEIGHT + len(envelope.body)


def control_bytes(stamp: object, envelope: Envelope | None = None) -> int:
    """Return how many bytes of control information a stamp puts on the wire, and a vector in the envelope; what came over no wire
    has none."""
    if stamp is None:
        return 0
    vector = envelope is not None and isinstance(envelope.seen, Seen)
    return len(_ENCODER.encode(stamp)) + (len(_ENCODER.encode(envelope.seen)) - 1 if envelope is not None and vector else 0)


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""By what a decoder says that bytes cannot be read: text that is none and lists too deep have errors of their own."""

_ENCODER = msgspec.msgpack.Encoder()
