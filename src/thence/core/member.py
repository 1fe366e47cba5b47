"""One process of a domain: ``step(input, now) -> Ready``.

This is the one contract of the house. The simulator and the server's driver are its only two callers, and both do
the same with what it returns, in this order:

1. make ``persist`` durable; 2. then ``send`` the packets, and tell the application that what it submitted is
``accepted``; 3. then ``deliver``, in order.

Rules:

* Same inputs, same outputs. Nothing in here looks at a clock or draws a number.
* Nothing is acknowledged, to a peer or to the application, before it is on disk: acknowledgements are in ``send``
  and ``accepted``, and these come after ``persist``.
* ``step`` either does all that an input asks for or raises and has changed nothing. A packet holds several frames;
  those that are refused are listed in ``refused``, each by name, and the others are taken.
* After a crash, a new member gets ``Restored`` as its first input, steps through the records again and goes on.
  What the application had not consumed is delivered again; what it had is not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from thence.core.channel import RESEND_AFTER_NS, Channel, ChannelState
from thence.core.messages import MAX_BODY_BYTES, MAX_DESTINATIONS, UNREADABLE, Envelope, Frame, Packet
from thence.core.ordering import MAX_HELD, Ordering, Output, Wait, make_ordering
from thence.core.ordering.base import stamp_union
from thence.core.records import Record, Skipped, Submitted, Taken
from thence.errors import Busy, ConfigError, FrameRefused, OverflowingFrame, StorageError, StrangerFrame, UsageError

StampT = TypeVar("StampT")

MAX_QUEUED = 100_000
"""How many frames may wait for acknowledgement, on all channels together, before the application's sends are refused as busy."""

MAX_QUEUED_HARD = 16 * MAX_QUEUED
"""The same for frames that we send on for others. Beyond it their frames are not taken, so that they push back in turn."""


class Domain(NamedTuple):
    """A domain as each of its members is told of it."""

    name: str
    members: tuple[str, ...]
    ordering: str | type[Ordering]
    """A name from the registry, or a class, for whoever tries out one of their own."""
    options: Mapping[str, Any] = {}


class MemberOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a member works. The defaults are for a real network and a real disk."""

    reliable: bool = True
    """Number, acknowledge and repeat frames. Without it the network is trusted to be exact, as in the explorer."""
    durable: bool = True
    """Ask for records to be made durable, and keep deliveries until they are consumed."""
    max_held: int = MAX_HELD
    max_queued: int = MAX_QUEUED
    resend_after_ns: int = RESEND_AFTER_NS


class Submit(NamedTuple):
    """The application sends ``body`` to ``to`` (None: everyone, itself included)."""

    to: tuple[str, ...] | None
    body: bytes = b""


class Arrived(NamedTuple):
    """A packet came in from ``peer``."""

    peer: str
    packet: Packet[Any]


class Timer(NamedTuple):
    """The time that ``Ready.wake`` asked for has come."""


class Consumed(NamedTuple):
    """The application has durably done with all deliveries up to this position."""

    position: int


class Restored(NamedTuple):
    """What was found on disk; only as the very first input."""

    snapshot: bytes | None
    records: Sequence[Record]
    consumed: int
    """The position up to which the application had consumed."""


Input = Submit | Arrived | Timer | Consumed | Restored


class Delivery(NamedTuple):
    """A message for the application; ``position`` counts this member's deliveries from 1."""

    position: int
    domain: str
    frame: Frame[Any]

    @property
    def envelope(self) -> Envelope:
        """The message itself."""
        if self.frame.envelope is None:
            raise UsageError("a marker is never delivered")
        return self.frame.envelope


class Ready(NamedTuple):
    """What to do now, and in which order. See the module's text."""

    persist: tuple[Record, ...] = ()
    """First: make these durable."""
    send: tuple[tuple[str, Packet[Any]], ...] = ()
    """Second: send these packets."""
    accepted: tuple[Envelope, ...] = ()
    """Second: the application may be told that these were accepted."""
    deliver: tuple[Delivery, ...] = ()
    """Third: hand these to the application, in this order."""
    refused: tuple[FrameRefused, ...] = ()
    """Frames that were not taken, and why. For the log; nothing needs to be done."""
    wake: int | None = None
    """Call again with ``Timer`` at this time, or earlier if something else happens."""


class _Saved(msgspec.Struct, Generic[StampT], array_like=True):
    """A member's snapshot."""

    name: str
    domain: str
    number: int
    position: int
    ordering: bytes
    channels: dict[str, ChannelState[StampT]]
    unconsumed: list[tuple[int, Frame[StampT]]]


class Member:
    """One process of one domain. See the module's text for the rules."""

    def __init__(self, name: str, domain: Domain, options: MemberOptions | None = None) -> None:
        """Make the member called ``name``; nothing has happened yet."""
        self.name = name
        self.domain = domain
        self.options = options or MemberOptions()
        self._ordering = make_ordering(domain.ordering, name, domain.members, domain.options, max_held=self.options.max_held)
        self._channels = {
            peer: Channel(self._ordering.arrival, self.options.resend_after_ns)
            for peer in domain.members
            if peer != name and self.options.reliable
        }
        self._number = 0
        self._position = 0
        self._unconsumed: dict[int, Frame[Any]] = {}
        self._queued = 0
        self._to_visit: dict[str, None] = {}
        """Peers to whom there may be something to say; a step must not cost more because others are silent."""
        self._wake_at: int | None = None
        """No channel wants to be woken earlier. It may be too early by now, which a timer then finds out."""
        self._started = False

    def step(self, step_input: Input, now: int) -> Ready:
        """Do what the input asks for; return what must be done outside."""
        if isinstance(step_input, Restored):
            return self._restored(step_input, now)
        self._started = True
        if isinstance(step_input, Arrived):
            return self._arrived(step_input, now)
        if isinstance(step_input, Submit):
            return self._submit(step_input, now)
        if isinstance(step_input, Consumed):
            self._consumed(step_input.position)
            return Ready(wake=self._wake_at)
        self._to_visit = dict.fromkeys(self._channels)
        self._wake_at = None
        return Ready(send=self._collect([], now), wake=self._wake_at)

    def waiting(self) -> list[Wait]:
        """List every message that waits here: which, from whom, for which one, since when."""
        return self._ordering.waiting()

    def queued(self) -> dict[str, int]:
        """Return how many frames each peer has not acknowledged yet."""
        return {peer: len(channel.state.queue) for peer, channel in self._channels.items()}

    def _submit(self, submit: Submit, now: int) -> Ready:
        if len(submit.body) > MAX_BODY_BYTES:
            raise UsageError(f"a body of {len(submit.body)} bytes; MAX_BODY_BYTES is {MAX_BODY_BYTES}")
        if submit.to is not None and not 0 < len(submit.to) <= MAX_DESTINATIONS:
            raise UsageError(f"{len(submit.to)} destinations; there must be 1 to {MAX_DESTINATIONS} (MAX_DESTINATIONS)")
        if self._queued >= self.options.max_queued:
            slowest = max(self._channels, key=lambda peer: len(self._channels[peer].state.queue))
            raise Busy(
                f"{self._queued} frames are not acknowledged, most of them by {slowest!r}; "
                f"max_queued is {self.options.max_queued}"
            )
        envelope = Envelope(self.name, self._number + 1, submit.to, submit.body)
        output = self._send(envelope)
        return Ready(
            persist=(Submitted(envelope),) if self.options.durable else (),
            send=self._collect(output.send, now),
            accepted=(envelope,),
            deliver=self._deliver(output.deliver),
            wake=self._wake_at,
        )

    def _send(self, envelope: Envelope) -> Output:
        output = self._ordering.send(envelope, envelope.to)
        self._number = envelope.number
        self._push(output)
        return output

    def _arrived(self, arrived: Arrived, now: int) -> Ready:
        peer, packet = arrived
        try:
            frames = self._frames_in(peer, packet, now)
        except FrameRefused as refusal:
            return Ready(refused=(refusal,), wake=self._wake_at)
        records: list[Record] = []
        refused: list[FrameRefused] = []
        deliver: list[Frame[Any]] = []
        direct: list[tuple[str, Frame[Any]]] = []
        for number, frame in frames:
            if self._queued >= MAX_QUEUED_HARD:
                refused.append(OverflowingFrame(f"frames from {peer!r} at {self.name!r}: {self._queued} are not acknowledged"))
                break
            try:
                output = self._take(peer, number, frame, now)
            except OverflowingFrame as refusal:
                # It will come again; what follows it must not overtake it.
                refused.append(refusal)
                break
            except FrameRefused as refusal:
                refused.append(refusal)
                if self.options.durable and self.options.reliable:
                    records.append(Skipped(packet.domain, peer, number))
                continue
            if self.options.durable:
                records.append(Taken(packet.domain, peer, number, frame))
            deliver += output.deliver
            direct += output.send
        return Ready(
            persist=tuple(records),
            send=self._collect(direct, now),
            deliver=self._deliver(deliver),
            refused=tuple(refused),
            wake=self._wake_at,
        )

    def _frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[tuple[int, Frame[Any]]]:
        if packet.domain != self.domain.name or peer not in self.domain.members or peer == self.name:
            raise StrangerFrame(
                f"a packet for domain {packet.domain!r} from {peer!r} at {self.name!r}, which is in {self.domain.name!r} "
                f"with {', '.join(self.domain.members)}"
            )
        if not self.options.reliable:
            return [(0, frame) for frame in packet.frames]
        channel = self._channels[peer]
        channel.check(peer, packet)
        before = len(channel.state.queue)
        frames = channel.arrived(packet, now)
        self._queued += len(channel.state.queue) - before
        self._to_visit[peer] = None
        return frames

    def _take(self, peer: str, number: int, frame: Frame[Any], now: int) -> Output:
        """Accept one frame: the ordering first, since it may refuse; then the channel, which then acknowledges it."""
        channel = self._channels.get(peer)
        try:
            output = self._ordering.accept(peer, frame, now)
        except OverflowingFrame:
            raise  # Not acknowledged: the peer will send it again.
        except FrameRefused:
            if channel:
                channel.take(number)  # It will never become acceptable: do not ask for it again.
            raise
        if channel:
            channel.take(number)
        self._push(output)
        return output

    def _push(self, output: Output) -> None:
        if self.options.reliable:
            for peer, frame in output.send:
                self._channels[peer].push(frame)
                self._to_visit[peer] = None
            self._queued += len(output.send)

    def _collect(self, direct: list[tuple[str, Frame[Any]]], now: int) -> tuple[tuple[str, Packet[Any]], ...]:
        """Return the packets to send: one for each peer to whom there is anything to say."""
        if not self.options.reliable:
            by_peer: dict[str, list[Frame[Any]]] = {}
            for peer, frame in direct:
                by_peer.setdefault(peer, []).append(frame)
            return tuple((peer, Packet(self.domain.name, tuple(frames))) for peer, frames in by_peer.items())
        packets = []
        for peer in self._to_visit:
            channel = self._channels[peer]
            packet = channel.collect(self.domain.name, now)
            if packet is not None:
                packets.append((peer, packet))
            if channel.resend_at is not None and (self._wake_at is None or channel.resend_at < self._wake_at):
                self._wake_at = channel.resend_at
        self._to_visit = {}
        return tuple(packets)

    def _deliver(self, frames: list[Frame[Any]]) -> tuple[Delivery, ...]:
        deliveries = []
        for frame in frames:
            self._position += 1
            if self.options.durable:
                self._unconsumed[self._position] = frame
            deliveries.append(Delivery(self._position, self.domain.name, frame))
        return tuple(deliveries)

    def _consumed(self, position: int) -> None:
        unconsumed = self._unconsumed
        while unconsumed and (oldest := next(iter(unconsumed))) <= position:
            del unconsumed[oldest]

    def fork(self) -> Member:
        """Return a member that goes on from here on its own, for a search that tries several futures."""
        twin = copy.copy(self)
        twin._ordering = self._ordering.fork()
        twin._channels = {peer: copy.deepcopy(channel) for peer, channel in self._channels.items()}
        twin._unconsumed = dict(self._unconsumed)
        twin._to_visit = dict(self._to_visit)
        return twin

    def snapshot(self) -> bytes:
        """Return the whole state. Records from before it are not needed any more."""
        return _ENCODER.encode(
            _Saved(
                self.name,
                self.domain.name,
                self._number,
                self._position,
                self._ordering.snapshot(),
                {peer: channel.state for peer, channel in self._channels.items()},
                list(self._unconsumed.items()),
            )
        )

    def _restored(self, restored: Restored, now: int) -> Ready:
        if self._started:
            raise UsageError(f"{self.name!r} has started already; Restored must be its first input")
        self._started = True
        if restored.snapshot is not None:
            self._load(restored.snapshot)
        for record in restored.records:
            self._repeat(record, now)
        self._consumed(restored.consumed)
        deliver = tuple(Delivery(position, self.domain.name, frame) for position, frame in self._unconsumed.items())
        self._to_visit = dict.fromkeys(self._channels)
        return Ready(send=self._collect([], now), deliver=deliver, wake=self._wake_at)

    def _repeat(self, record: Record, now: int) -> None:
        """Step through a record again. What follows from it is queued or delivered as it was the first time."""
        if isinstance(record, Skipped):
            if record.peer not in self._channels:
                raise StorageError(f"{self.name!r}: a stored record names {record.peer!r}, to whom there is no channel")
            self._channels[record.peer].take(record.number)
            return
        try:
            if isinstance(record, Submitted):
                self._check_next(record.envelope)
                output = self._send(record.envelope)
            else:
                output = self._take(record.peer, record.number, record.frame, now)
        except (FrameRefused, ConfigError) as error:
            raise StorageError(f"{self.name!r}: a stored record does not follow from those before it: {error}") from error
        self._deliver(output.deliver)

    def _check_next(self, envelope: Envelope) -> None:
        if (envelope.origin, envelope.number) != (self.name, self._number + 1):
            raise StorageError(f"{self.name!r}: a stored record of message {envelope.id} after {self.name}:{self._number}")

    def _load(self, snapshot: bytes) -> None:
        saved_type: Any = _Saved
        try:
            saved = msgspec.msgpack.decode(snapshot, type=saved_type[stamp_union(self._ordering.stamps)])
        except UNREADABLE as error:
            raise StorageError(f"{self.name!r}: a snapshot that cannot be read: {error}") from None
        if (saved.name, saved.domain, set(saved.channels)) != (self.name, self.domain.name, set(self._channels)):
            raise StorageError(
                f"{self.name!r} in {self.domain.name!r}: this is the snapshot of {saved.name!r} in {saved.domain!r}"
            )
        self._number, self._position = saved.number, saved.position
        self._ordering.restore(saved.ordering)
        for peer, state in saved.channels.items():
            self._channels[peer].state = state
        self._queued = sum(len(state.queue) for state in saved.channels.values())
        self._unconsumed = dict(saved.unconsumed)


_ENCODER = msgspec.msgpack.Encoder()


def describe_wait(wait: Wait, now: int) -> str:
    """Say in words which message waits, for which one, from whom, and for how long."""
    what = str(wait.message) if wait.message else "a marker"
    seconds = (now - wait.since) / 1e9
    return f"{what} from {wait.peer} waits for number {wait.missing.number} of {wait.missing.sender}, since {seconds:.3f} s"


__all__ = [
    "MAX_QUEUED",
    "MAX_QUEUED_HARD",
    "Arrived",
    "Consumed",
    "Delivery",
    "Domain",
    "Input",
    "Member",
    "MemberOptions",
    "Ready",
    "Restored",
    "Submit",
    "Timer",
    "describe_wait",
]
