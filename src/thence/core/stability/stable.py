"""Acks of stable frames: a sender keeps a message until everybody beyond its receivers has it.

Source: daisy §3.1.2. Design note: docs/concepts/stability.md. Used in fabrics with ``stability = true``. A frame is *stable* when
it, and whatever followed from it, is on the disks of all who need it. ``core.stability.accounts`` finds out which frames are.

Rules:

* The ack is the number up to which all frames are stable, and the stable ones beyond it. A message that takes long must not hold
  up others: where members forward in circles they would wait for each other for ever.
* What was sent counts as queued until it is stable, so all limits hold for it. A reconfiguration waits only until everything is
  acknowledged, since then all have everything.
* *How much of others' messages is kept* is bounded where they come from, since a relay may not refuse a frame for want of others'
  acks: those may wait for just that frame. A process has no more than ``unstable_bytes`` of its own messages that are not stable,
  and then sends nothing. Acks come from far to near, so a relay keeps of a process only what that process keeps, too. A relay
  refuses frames beyond that and ``UNSTABLE_SLACK_BYTES``: only a process that does not keep to the limit can have so many.
* A frame to a replica is not waited for when another one stands in (``core.stability.stand_ins``), and kept all the same.
* Nothing follows from a marker: it is stable as soon as it is acknowledged, whether or not a report says so. So markers are kept
  within the limits on what is not acknowledged, also for a peer that never reports.
* Acks leave only in packets that are collected after the frame was taken, so after its record is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from thence.core.stability.policy import AckPeer, AckPolicy, Groups
from thence.core.stability.stand_ins import StandIns
from thence.core.transport.acks import Attempt
from thence.core.transport.base import Frames, Queues, Transport
from thence.core.transport.direct import Direct
from thence.core.wire.messages import MAX_BODY_BYTES, Envelope, Packet, StableAck, weight_of
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, MalformedFrame

STABLE_WITHIN_NS = 5_000_000
"""How long these acks wait for a packet."""

MAX_BEYOND = 256
"""How many numbers beyond a hole one packet holds. The rest goes with the next."""

MAX_UNSTABLE_BYTES = 256 * 1024 * 1024
"""How many bytes of messages of all processes together may be kept in one domain or link until all have them. Each process of the
fabric has the same part of it, whatever memory it has, so that all others know how much that is."""

MIN_UNSTABLE_BYTES = 16 * 1024 * 1024
"""The least that the part of a process is."""

UNSTABLE_SLACK_BYTES = 3 * MAX_BODY_BYTES
"""How far beyond its part one that keeps to it can be: by a message as large as can be, or what goes together; and by as much
again, and one more, that waited for a change of the fabric."""


def unstable_bytes(processes: int) -> int:
    """Return how many bytes of messages of one of so many processes may be kept until all have them."""
    return max(MIN_UNSTABLE_BYTES, MAX_UNSTABLE_BYTES // processes)


class Unstable(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame that was sent and is not stable: its message (None: a marker), and the place by which that came here."""

    envelope: Envelope | None
    came_by: str


class SavedStablePeer(msgspec.Struct, array_like=True):
    """What a restart needs of one peer."""

    sent: int
    unstable: list[tuple[int, int]]
    """Numbers of frames, each with the index of its message among the saved ones; -1: a marker."""
    stable: NumberSet
    excused: list[int] = []
    """Those that nobody waits for, since another replica stands in."""


class SavedStable(msgspec.Struct, array_like=True):
    """What a restart needs. A message that went to many is saved once."""

    messages: list[tuple[Envelope, str]]
    peers: dict[str, SavedStablePeer]


class StablePeer(AckPeer):
    """One other member: what we sent it, and what it sent us."""

    def __init__(self) -> None:
        super().__init__()
        self.unstable: dict[int, Unstable] = {}
        self.markers: deque[int] = deque()
        """The numbers of the markers among them, the oldest first. A report may have ended some of these already."""
        self.excused: dict[int, None] = {}
        """Those that nobody waits for, since another replica stands in."""
        self.queued_bytes = 0
        self.gone_upto = 0
        """All our frames up to this number are stable."""
        self.stable = NumberSet()
        """Which of its frames are stable."""
        self.unsaid: dict[int, None] = {}
        """The stable ones beyond the first hole that we have not told it."""

    @property
    def upto(self) -> int:
        return self.stable.upto

    @property
    def awaits(self) -> bool:
        return bool(self.unstable)

    @property
    def has_news(self) -> bool:
        return bool(self.unsaid) or self.stable.upto > self.said

    def tell_again(self) -> None:
        self.unsaid = dict(self.stable.beyond)
        if self.unsaid or self.upto:
            self.timer.hurry()

    @property
    def here(self) -> int:
        """How many frames are not stable."""
        return len(self.unstable)

    queued = here

    def fork(self) -> StablePeer:
        twin = super().fork()
        twin.unstable, twin.unsaid, twin.markers = dict(self.unstable), dict(self.unsaid), deque(self.markers)
        twin.excused = dict(self.excused)
        twin.stable = self.stable.copy()
        return twin


class StableAcks(AckPolicy[StablePeer]):
    """Tells the sender of a frame that it is stable, and keeps what we sent until we are told so."""

    part = "stable_ack"

    def __init__(self, inner: Transport, resend_after_ns: int | None, groups: Groups | None = None) -> None:
        """``resend_after_ns`` is None where the network is exact; ``groups`` are the replicas that stand in for each other."""
        super().__init__(inner, {peer: StablePeer() for peer in inner.peers}, resend_after_ns, STABLE_WITHIN_NS)
        self.stand_ins = StandIns(inner.me, groups or {})
        self.queues = Queues(self.peers)
        self.queued = self.queued_bytes = 0
        self.bytes_of: dict[str, int] = {}
        """How many bytes of messages of each process are kept; a message that goes to many counts once."""
        self._frames_of: dict[tuple[str, int], int] = {}
        """How many frames of each message are not stable."""
        self._news: list[tuple[Envelope, str]] = []

    def check(self, peer: str, packet: Packet[Any]) -> None:
        report, sent = packet.stable_ack, self.peers[peer].sent
        if report is None:
            return
        if len(report.beyond) > MAX_BEYOND or min(report.upto, *report.beyond, 0) < 0:
            raise MalformedFrame(f"{self._described(peer)}: a report that makes no sense")
        highest = max(report.upto, *report.beyond, 0)
        if highest > sent:
            raise ImpossibleFrame(f"{self._described(peer)}: it reports frame {highest} of {sent}")

    def came(self, peer: str, packet: Packet[Any], now: int) -> None:
        report, state = packet.stable_ack, self.peers[peer]
        if state.markers:
            self._drop_markers(peer, state)
        self.stand_ins.heard(peer, self.inner.acked)
        if report is None:
            return
        unstable, before = state.unstable, len(state.unstable)
        if report.wanted:
            state.tell_again()
            self.to_visit[peer] = None
        for number in (*range(state.gone_upto + 1, report.upto + 1), *report.beyond):
            one = unstable.pop(number, None)
            if one is not None:
                self._drop(state, one.envelope)
                if one.envelope is not None:
                    self.stand_ins.reported(peer, number, one.envelope, one.came_by)
                    if number in state.excused:
                        del state.excused[number]
                    else:
                        self._news.append((one.envelope, one.came_by))
        state.gone_upto = max(state.gone_upto, report.upto)
        if len(unstable) < before:
            state.ask = Attempt.after(now, self._wait_ns) if unstable else None

    def _drop_markers(self, peer: str, state: StablePeer) -> None:
        """Forget the markers that a peer has acknowledged."""
        markers, acked = state.markers, self.inner.acked
        while markers and acked(peer, markers[0]):
            if state.unstable.pop(markers.popleft(), None) is not None:
                self._drop(state, None)

    def take_news(self) -> list[tuple[Envelope, str]]:
        """Return the messages of frames that nobody waits for since the last call, and the places by which they came."""
        for peer, number, envelope, came_by in self.stand_ins.excused():
            self.peers[peer].excused[number] = None
            self._news.append((envelope, came_by))
        news, self._news = self._news, []
        return news

    def add(self, peer: str, number: int) -> None:
        """Note that a frame of a peer is stable."""
        state = self.peers[peer]
        if state.stable.add(number):
            if number > state.stable.upto:
                state.unsaid[number] = None
            self.to_visit[peer] = None

    skipped = add
    """Nothing will ever follow from it."""

    def pushed(self, frames: Frames, came_by: str) -> None:
        for peer, frame in frames:
            state = self.peers[peer]
            state.sent += 1
            self._keep(state, state.sent, Unstable(frame.envelope, came_by))
            if frame.envelope is not None:
                self.stand_ins.sent(peer, state.sent, frame.envelope, came_by)
            self.to_visit[peer] = None

    def suspect(self, peer: str, suspected: bool) -> None:
        self.stand_ins.suspect(peer, suspected)

    def _keep(self, state: StablePeer, number: int, one: Unstable) -> None:
        state.unstable[number] = one
        envelope = one.envelope
        weight = weight_of(envelope)
        self.queued += 1
        self.queued_bytes += weight
        state.queued_bytes += weight
        if envelope is None:
            state.markers.append(number)
            return
        key = (envelope.origin, envelope.number)
        frames = self._frames_of[key] = self._frames_of.get(key, 0) + 1
        if frames == 1:
            self.bytes_of[envelope.origin] = self.bytes_of.get(envelope.origin, 0) + weight

    def _drop(self, state: StablePeer, envelope: Envelope | None) -> None:
        weight = weight_of(envelope)
        self.queued -= 1
        self.queued_bytes -= weight
        state.queued_bytes -= weight
        if envelope is None:
            return
        key = (envelope.origin, envelope.number)
        frames = self._frames_of[key] = self._frames_of[key] - 1
        if not frames:
            del self._frames_of[key]
            self.bytes_of[envelope.origin] -= weight

    def _ack(self, peer: StablePeer, now: int, *, wanted: bool) -> StableAck:
        beyond = [number for number in peer.unsaid if number > peer.upto]
        peer.unsaid = dict.fromkeys(beyond[MAX_BEYOND:])
        peer.timer.at = now if peer.unsaid else None
        return StableAck(peer.upto, wanted, tuple(beyond[:MAX_BEYOND]))

    def messages(self) -> Iterator[Envelope]:
        """Yield the messages that are not stable: somebody beyond the receiver may lack them."""
        for state in self.peers.values():
            yield from [one.envelope for one in state.unstable.values() if one.envelope is not None]

    def fork(self, inner: Transport) -> StableAcks:
        twin = super().fork(inner)
        twin.stand_ins = self.stand_ins.fork()
        twin.queues = Queues(twin.peers)
        twin.bytes_of, twin._frames_of = dict(self.bytes_of), dict(self._frames_of)
        twin._news = list(self._news)
        return twin

    def save(self) -> SavedStable:
        """Return what a restart needs beside the state of the inner transport."""
        places: dict[tuple[str, int, str], int] = {}
        messages: list[tuple[Envelope, str]] = []
        peers: dict[str, SavedStablePeer] = {}
        for peer, state in self.peers.items():
            unstable: list[tuple[int, int]] = []
            for number, one in state.unstable.items():
                if one.envelope is None:
                    unstable.append((number, -1))
                    continue
                at = places.setdefault((*one.envelope.id, one.came_by), len(messages))
                if at == len(messages):
                    messages.append((one.envelope, one.came_by))
                unstable.append((number, at))
            peers[peer] = SavedStablePeer(state.sent, unstable, state.stable, list(state.excused))
        return SavedStable(messages, peers)

    def load(self, saved: SavedStable | None) -> None:
        """Restore what ``save`` returned."""
        if saved is None or set(saved.peers) != set(self.peers):
            raise self.refuse_snapshot("stability")
        self.queued = self.queued_bytes = 0
        self.bytes_of, self._frames_of = {}, {}
        for peer, kept in saved.peers.items():
            state = self.peers[peer]
            state.sent, state.stable, state.queued_bytes, state.markers = kept.sent, kept.stable, 0, deque()
            state.gone_upto = min((number for number, _ in kept.unstable), default=kept.sent + 1) - 1
            for number, at in kept.unstable:
                self._keep(state, number, Unstable(*(saved.messages[at] if at >= 0 else (None, ""))))
            state.excused = dict.fromkeys(kept.excused)
            if isinstance(self.inner, Direct):
                self.inner.ends[peer].numbered = kept.sent
        unstable = [(peer, number, one) for peer, state in self.peers.items() for number, one in state.unstable.items()]
        frames = [(peer, number, one.envelope, one.came_by) for peer, number, one in unstable if one.envelope is not None]
        self.stand_ins.load(frames, [frame for frame in frames if frame[1] in self.peers[frame[0]].excused])
