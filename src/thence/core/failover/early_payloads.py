"""Bodies that travel ahead of their messages: what waits at a relay need not wait for its turn on a slow line as well.

Source: daisy §3.4 (i), in a form that is sound (docs/research/errata.md, "Forwarding early"). Design note:
docs/research/configurations.md.

When a relay holds a message that it will have to forward, it sends the body ahead to those who will get the message from it.
When the message's turn has come, it goes out as always, numbered, ordered, acknowledged and repeated, but for its body; the
receiver puts that back before anybody looks at the frame.

Rules:

* Nothing depends on a body that went ahead. It is neither acknowledged nor written to disk. A frame whose body is not here is
  kept
  aside, as if it were still on its way, not taken and not acknowledged, until the body comes or the frame comes again, whole.
* Only the first copy of a frame goes without its body, and only to whom the body went since we started.
* A sender has at most ``MAX_AHEAD`` bodies ahead at each peer, and at most ``MAX_AHEAD_BYTES``: beyond that a body waits with its
  message. A receiver drops the oldest beyond ``MAX_AHEAD_KEPT`` or ``MAX_AHEAD_KEPT_BYTES``, among them what came twice or after
  its message. Over a network that is trusted to be exact nothing comes again, so nothing is dropped there.
* Whatever is refused has changed nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.wire.messages import Envelope, Frame, GroupAcks, MessageId, Packet
from thence.errors import MalformedFrame

StampT = TypeVar("StampT")

MAX_AHEAD = 2
"""How many bodies may be ahead of their messages, from one member to another in one domain or link. What comes first in the
order waits on the line behind the bodies of what comes later: more of them cost more than they gain
(docs/research/configurations.md)."""

MAX_AHEAD_BYTES = 4 * 1024 * 1024
"""How many bytes these may have together."""

MAX_AHEAD_KEPT = 16
"""How many bodies of one peer a receiver keeps, and how many messages of it that lack theirs."""


MAX_AHEAD_KEPT_BYTES = 2 * MAX_AHEAD_BYTES
"""How many bytes these bodies may have."""


class BodyAhead(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=30):
    """Instead of a stamp: this is a message that will come in its turn, without its body."""


AHEAD = BodyAhead()


class SavedBodies(msgspec.Struct, Generic[StampT], array_like=True):
    """What a snapshot keeps of them, over a network that is trusted to be exact: by whom they were sent, and what."""

    bodies: list[tuple[str, Envelope]] = []
    held: list[tuple[str, Packet[StampT]]] = []


class _Store:
    """What one peer has sent: bodies without their messages, and messages without their bodies."""

    def __init__(self, limited: bool) -> None:
        self.bodies: dict[MessageId, Envelope] = {}
        self.held: dict[tuple[MessageId, int], Packet[Any]] = {}
        """By message and number: packets of one frame each, which ack nothing."""
        self._limited = limited

    def put(self, envelope: Envelope) -> None:
        self.drop(envelope.id)
        self.bodies[envelope.id] = envelope
        while self._limited and (len(self.bodies) > MAX_AHEAD_KEPT or self._kept_bytes > MAX_AHEAD_KEPT_BYTES):
            self.drop(next(iter(self.bodies)))

    @property
    def _kept_bytes(self) -> int:
        return sum([len(envelope.body) for envelope in self.bodies.values()])

    def drop(self, message: MessageId) -> None:
        self.bodies.pop(message, None)

    def hold(self, message: MessageId, packet: Packet[Any]) -> None:
        self.held[message, packet.numbers[0] if packet.numbers else 0] = packet
        if self._limited and len(self.held) > MAX_AHEAD_KEPT:
            del self.held[next(iter(self.held))]


class Bodies:
    """The bodies that are ahead of their messages in one domain or link, as one member sees it."""

    def __init__(self, exact: bool) -> None:
        """``exact`` says that the network is trusted to be so."""
        self._exact = exact
        self.stores: dict[str, _Store] = {}
        """What each peer has sent, if it has sent anything of the kind."""
        self._outgoing: dict[str, list[Envelope]] = {}
        self.sent: dict[str, dict[MessageId, int]] = {}
        """What is ahead of its message at each peer, and how long it is."""

    # What goes out.

    def send(self, peers: Iterable[str], envelope: Envelope) -> None:
        """Send a body ahead to ``peers``, where there is room."""
        size = len(envelope.body)
        for peer in peers:
            sent = self.sent.setdefault(peer, {})
            if envelope.id not in sent and len(sent) < MAX_AHEAD and sum(sent.values()) + size <= MAX_AHEAD_BYTES:
                sent[envelope.id] = size
                self._outgoing.setdefault(peer, []).append(envelope)

    def collect(self, place: str, packets: list[tuple[str, Packet[Any]]]) -> list[tuple[str, Packet[Any]]]:
        """Leave out of ``packets`` the bodies that went ahead, and add packets with those that go ahead now."""
        if not self.sent:
            return packets
        leaving = [(peer, self._without_bodies(peer, packet)) for peer, packet in packets]
        for peer, envelopes in self._outgoing.items():
            # A message whose turn has come before its body was on its way needs none.
            ahead = [envelope for envelope in envelopes if envelope.id in self.sent[peer]]
            numbers = () if self._exact else (0,) * len(ahead)
            if ahead:
                leaving.append((peer, Packet(place, tuple(Frame(AHEAD, envelope) for envelope in ahead), numbers)))
        self._outgoing = {}
        self.sent = {peer: sent for peer, sent in self.sent.items() if sent}
        return leaving

    def _without_bodies(self, peer: str, packet: Packet[Any]) -> Packet[Any]:
        sent = self.sent.get(peer)
        if not sent:
            return packet
        unsent = [envelope.id for envelope in self._outgoing.get(peer, ())]
        frames = []
        for frame in packet.frames:
            envelope = frame.envelope
            ahead = envelope is not None and sent.pop(envelope.id, None) is not None and envelope.id not in unsent
            frames.append(_bodiless(frame) if ahead else frame)
        return msgspec.structs.replace(packet, frames=tuple(frames))

    # What comes in.

    @staticmethod
    def concern(packet: Packet[Any]) -> bool:
        """Return whether a packet holds a body without its message, or a message without its body."""
        for frame in packet.frames:  # noqa: SIM110  This is asked of every packet, and ``any`` would take longer.
            if frame.bodiless or type(frame.stamp) is BodyAhead:
                return True
        return False

    @staticmethod
    def check(peer: str, packet: Packet[Any]) -> bool:
        """Refuse what cannot be; return whether this packet holds bodies only."""
        ahead = [type(frame.stamp) is BodyAhead for frame in packet.frames]
        if any(frame.bodiless and (frame.envelope is None or frame.envelope.body) for frame in packet.frames):
            raise MalformedFrame(
                f"a packet from {peer!r} with a frame whose body is said to be ahead, and that has one or needs none"
            )
        if not any(ahead):
            return False
        frames = packet.frames
        if not all(ahead) or any(packet.numbers) or packet.group_acks or packet.acked or packet.acked_beyond:
            raise MalformedFrame(f"a packet from {peer!r} with bodies that went ahead, and something else")
        sizes = [len(frame.envelope.body) for frame in frames if frame.envelope is not None and not frame.bodiless]
        if not len(sizes) == len(frames) <= MAX_AHEAD or sum(sizes) > MAX_AHEAD_BYTES:
            raise MalformedFrame(
                f"a packet from {peer!r} with {len(frames)} bodies that went ahead: too many, too long, or none at all"
            )
        return True

    def came(self, peer: str, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        """Keep the bodies of a packet; give the packets that waited for one of them."""
        store = self._store(peer)
        for frame in packet.frames:
            envelope = frame.envelope
            if envelope is None:
                continue
            waiting = [key for key in store.held if key[0] == envelope.id]
            if not waiting:
                store.put(envelope)
            for key in waiting:
                part = store.held.pop(key)
                yield msgspec.structs.replace(part, frames=(_with_body(part.frames[0], envelope),))

    def complete(self, peer: str, packet: Packet[Any], had: Iterable[bool]) -> Packet[Any]:
        """Put bodies back into a packet, and keep aside the frames whose body is not here, unless we ``had`` them before."""
        store = self._store(peer)
        there: list[int] = []
        frames: list[Frame[Any]] = []
        for at, (frame, known) in enumerate(zip(packet.frames, had, strict=True)):
            envelope = frame.envelope
            message = envelope.id if envelope is not None else None
            body = store.bodies.get(message) if message is not None else None
            if message is not None and frame.bodiless and body is None and not known:
                store.hold(message, _alone(packet, at))
                continue
            if message is not None:
                store.drop(message)
                for key in [key for key in store.held if key[0] == message and not frame.bodiless]:
                    del store.held[key]
            there.append(at)
            frames.append(_with_body(frame, body) if frame.bodiless and body is not None else frame)
        return _part(packet, there, frames)

    def _store(self, peer: str) -> _Store:
        return self.stores.setdefault(peer, _Store(not self._exact))

    def keeps_from(self, peer: str) -> bool:
        """Return whether something of this peer's waits here for its message or its body."""
        store = self.stores.get(peer)
        return store is not None and bool(store.bodies or store.held)

    def forget_sent(self) -> None:
        """Send everything whole: whoever starts again does not rely on what went ahead before."""
        self.sent, self._outgoing = {}, {}

    def kept(self) -> int:
        """Return how many bodies and messages wait here for each other."""
        return sum(len(store.bodies) + len(store.held) for store in self.stores.values())

    # Copies of it, in memory and on disk.

    def fork(self) -> Bodies:
        """Return bodies that go on from here on their own."""
        return copy.deepcopy(self) if self.stores or self.sent else type(self)(self._exact)

    def save(self) -> SavedBodies[Any] | None:
        """Return what a restart must find again: nothing, where it comes again anyway."""
        if not self._exact or not self.kept():
            return None
        stores = self.stores.items()
        return SavedBodies(
            [(peer, envelope) for peer, store in stores for envelope in store.bodies.values()],
            [(peer, packet) for peer, store in stores for packet in store.held.values()],
        )

    def load(self, saved: SavedBodies[Any] | None) -> None:
        """Become what ``save`` returned."""
        for peer, envelope in saved.bodies if saved else ():
            self._store(peer).put(envelope)
        for peer, packet in saved.held if saved else ():
            for frame in packet.frames:
                if frame.envelope is not None:
                    self._store(peer).hold(frame.envelope.id, packet)


def _bodiless(frame: Frame[Any]) -> Frame[Any]:
    envelope = frame.envelope
    if envelope is None:
        return frame
    return Frame(frame.stamp, msgspec.structs.replace(envelope, body=b""), True)


def _with_body(frame: Frame[Any], body: Envelope) -> Frame[Any]:
    envelope = frame.envelope or body
    return Frame(frame.stamp, msgspec.structs.replace(envelope, body=body.body))


def _part(packet: Packet[Any], at: list[int], frames: list[Frame[Any]]) -> Packet[Any]:
    """Return the packet with only the frames at these places, as they are given."""
    if len(frames) == len(packet.frames):
        return msgspec.structs.replace(packet, frames=tuple(frames))
    numbers = tuple(packet.numbers[place] for place in at) if packet.numbers else ()
    group_acks = packet.group_acks
    if group_acks is not None:
        streams = tuple(group_acks.streams[place] for place in at) if group_acks.streams else ()
        recipients = tuple(group_acks.recipients[place] for place in at) if group_acks.recipients else ()
        group_acks = msgspec.structs.replace(group_acks, streams=streams, recipients=recipients)
    return msgspec.structs.replace(packet, frames=tuple(frames), numbers=numbers, group_acks=group_acks)


def _alone(packet: Packet[Any], at: int) -> Packet[Any]:
    """Return one frame of a packet, without what that acks and asks for."""
    part = _part(packet, [at], [packet.frames[at]])
    group_acks = part.group_acks
    if group_acks is not None:
        group_acks = GroupAcks((), False, (), group_acks.streams, group_acks.recipients)
    return msgspec.structs.replace(part, acked=0, acked_beyond=(), group_acks=group_acks, stable_ack=None, safe_ack=None)
