"""Who sends a message keeps it until everybody beyond its receivers has it: reports of that, beside confirmations.

Source: daisy §3.1.2. Design note: docs/stability.md. A transport around another one (``core.transport``), used in fabrics with
``stability = true``. What the inner one does stays as it is: a frame is confirmed when its receiver has it on disk. Beside that
each receiver reports to whom a frame is from up to which number all its frames are *settled*: they, and whatever followed from
them, are on the disks of all who need them. ``core.stability`` finds out which are.

Rules:

* A report is one number for each direction of each pair of members, and what is settled beyond it: a message that takes long
  must not hold up the others, since where members pass messages on in circles they would wait for each other for ever. It goes
  along with every packet, and by itself after ``REPORT_WITHIN_NS`` where nothing else goes.
* What was sent counts as queued until it is settled, so all limits hold for it. Whether it is on its way is another matter: a
  fabric may change when everything is confirmed, since then all have everything.
* Nothing is settled but in packets that are collected after the frame was taken, so after its record is on disk.
* Reports are not recorded. Who has not heard of what it sent asks again, less and less often, for ever.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from thence.core.around import Around, Heard
from thence.core.messages import Envelope, Packet, Report, weight_of
from thence.core.numbers import NumberSet
from thence.core.transport import Frames, Incoming, Packets, Transport
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError

REPORT_WITHIN_NS = 5_000_000
"""How long a report waits for a packet that goes the same way."""


MAX_REPORTED = 256
"""How many numbers behind a hole one packet reports; what is left goes with the next."""


class Unsettled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A frame that was sent and is not settled: its message (None: a marker), and by which place that came here."""

    envelope: Envelope | None
    came_by: str


class SavedPeer(msgspec.Struct, array_like=True):
    """What a restart must find again of one peer."""

    sent: int
    unsettled: list[tuple[int, int]]
    """Numbers of frames, each with the place of its message among those that are saved; -1: a marker."""
    settled: NumberSet


class SavedSettling(msgspec.Struct, array_like=True):
    """What a restart must find again. A message that went to many is saved once."""

    messages: list[tuple[Envelope, str]]
    peers: dict[str, SavedPeer]


class _Peer(Heard):
    """One other member: what we sent it, and what it sent us."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.unsettled: dict[int, Unsettled] = {}
        self.unsettled_bytes = 0
        self.gone_upto = 0
        """Nothing up to this number is among them."""
        self.settled = NumberSet()
        """Which of its frames are settled."""
        self.told = 0
        """Up to which number we have told it so,"""
        self.untold: dict[int, None] = {}
        """and what beyond it we have not told."""
        self.asked = False
        """Whether it wants to be told again."""
        self.report_at: int | None = None
        self.on_the_wire = 0
        """Where the network is trusted to be exact: up to which number frames went out."""

    def ask(self) -> None:
        """It wants to be told everything again."""
        self.asked = bool(self.settled.upto or self.settled.beyond)
        self.untold = dict(self.settled.beyond)

    def fork(self) -> _Peer:
        twin = copy.copy(self)
        twin.unsettled, twin.untold = dict(self.unsettled), dict(self.untold)
        twin.settled = NumberSet(self.settled.upto, dict(self.settled.beyond))
        return twin


class Settling(Around[_Peer]):
    """See the module's text."""

    def __init__(self, inner: Transport, resend_after_ns: int | None) -> None:
        """Report beside what ``inner`` does; ``resend_after_ns`` is None where the network is trusted to be exact."""
        super().__init__(inner, resend_after_ns, REPORT_WITHIN_NS)
        self.one_queue = False
        self._news: list[tuple[Envelope, str]] = []

    def _new_peer(self) -> _Peer:
        return _Peer()

    def _waits(self, state: _Peer) -> bool:
        return bool(state.unsettled)

    # What comes in.

    def check(self, peer: str, packet: Packet[Any]) -> None:
        self._check_report(peer, packet)
        if not _only_reports(packet):
            self.inner.check(peer, packet)

    def _check_report(self, peer: str, packet: Packet[Any]) -> None:
        report, sent = packet.report, self._peers[peer].sent
        if report is None:
            return
        described = f"a packet from {peer!r} for {self.name!r} at {self.me!r}"
        if len(report.beyond) > MAX_REPORTED or min(report.settled, *report.beyond, 0) < 0:
            raise MalformedFrame(f"{described}: a report that makes no sense")
        highest = max(report.settled, *report.beyond, 0)
        if highest > sent:
            raise ImpossibleFrame(f"{described}: it reports frame {highest} of {sent}")

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        self._check_report(peer, packet)
        incoming = [] if _only_reports(packet) else self.inner.frames_in(peer, packet, now)
        if self.exact and packet.numbers:
            pairs = zip(packet.numbers, incoming, strict=True)
            incoming = [Incoming(peer, number, one.frame, one.to) for number, one in pairs]
        report = packet.report
        if report is not None:
            self._reported(peer, report, now)
        self._follow_inner()
        return incoming

    def _reported(self, peer: str, report: Report, now: int) -> None:
        state = self._peers[peer]
        unsettled, before = state.unsettled, len(state.unsettled)
        if report.wanted:
            state.ask()
            self._to_visit[peer] = None
        for number in (*range(state.gone_upto + 1, report.settled + 1), *report.beyond):
            one = unsettled.pop(number, None)
            if one is not None:
                self.queued -= 1
                weight = weight_of(one.envelope)
                self.queued_bytes -= weight
                state.unsettled_bytes -= weight
                if one.envelope is not None:
                    self._news.append((one.envelope, one.came_by))
        state.gone_upto = max(state.gone_upto, report.settled)
        if len(unsettled) < before:
            state.patience_ns = self._patience_ns
            state.ask_at = now + state.patience_ns if unsettled else None

    def take_news(self) -> list[tuple[Envelope, str]]:
        """Return the messages that were reported settled since this was last asked, once for each who did; by where they came."""
        news, self._news = self._news, []
        return news

    def take(self, incoming: Incoming) -> None:
        self.inner.take(incoming)

    def skip(self, peer: str, number: int) -> None:
        self.inner.skip(peer, number)
        self.settle(peer, number)  # Nothing will ever follow from it.

    def settle(self, peer: str, number: int) -> None:
        """A frame of a peer and all that followed from it is where it has to be."""
        state = self._peers[peer]
        if state.settled.add(number):
            if number > state.settled.upto:
                state.untold[number] = None
            self._to_visit[peer] = None

    # What goes out.

    def push(self, frames: Frames) -> None:
        self.push_from(frames, "")

    def push_from(self, frames: Frames, came_by: str) -> None:
        """Send frames with messages that came here by a place."""
        self.inner.push(frames)
        for peer, frame in frames:
            state = self._peers[peer]
            state.sent += 1
            state.unsettled[state.sent] = Unsettled(frame.envelope, came_by)
            weight = weight_of(frame.envelope)
            self.queued_bytes += weight
            state.unsettled_bytes += weight
            self._to_visit[peer] = None
        self.queued += len(frames)

    def connected(self, peer: str) -> None:
        self.inner.connected(peer)
        state = self._peers[peer]
        state.ask()
        state.ask_at = 0 if state.unsettled else None
        self._to_visit[peer] = None
        self._follow_inner()

    def collect(self, now: int) -> Packets:
        packets: Packets = []
        for peer, packet in self.inner.collect(now):
            report = self._due(peer, now, going=True)
            numbers = self._numbered(peer, packet) if self.exact else packet.numbers
            packets.append((peer, msgspec.structs.replace(packet, numbers=numbers, report=report)))
            self._to_visit.pop(peer, None)
        for peer in self._to_visit:
            report = self._due(peer, now, going=False)
            if report is not None:
                packets.append((peer, Packet(self.name, (), report=report)))
        self._to_visit = {}
        self._follow_inner()
        return packets

    def _numbered(self, peer: str, packet: Packet[Any]) -> tuple[int, ...]:
        state = self._peers[peer]
        first = state.on_the_wire + 1
        state.on_the_wire += len(packet.frames)
        return tuple(range(first, state.on_the_wire + 1))

    def _due(self, peer: str, now: int, *, going: bool) -> Report | None:
        """Return what to tell a peer now: whatever there is if a packet is ``going`` there, or what cannot wait any longer."""
        state = self._peers[peer]
        wanted = self._asks(state, now)
        if state.report_at is None and (state.asked or state.untold or state.settled.upto > state.told):
            state.report_at = now + (0 if state.asked else self._within_ns)
        due = state.asked or (state.report_at is not None and now >= state.report_at)
        if not (due or wanted or (going and state.settled.upto)):
            self._wake_by(state.report_at)
            return None
        upto = state.told = state.settled.upto
        beyond = [number for number in state.untold if number > upto]
        state.untold = dict.fromkeys(beyond[MAX_REPORTED:])
        state.asked, state.report_at = False, now if state.untold else None
        self._wake_by(state.report_at)
        return Report(upto, wanted, tuple(beyond[:MAX_REPORTED]))

    # Outside.

    def queued_by_peer(self) -> dict[str, int]:
        return {peer: len(state.unsettled) for peer, state in self._peers.items()}

    def queued_bytes_by_peer(self) -> dict[str, int]:
        return {peer: state.unsettled_bytes for peer, state in self._peers.items()}

    @property
    def queues(self) -> int:
        return len(self.peers)

    def queue_of(self, peer: str) -> tuple[int, int]:
        state = self._peers[peer]
        return len(state.unsettled), state.unsettled_bytes

    def queue_sizes(self, *, on_the_way: bool = False) -> Iterator[tuple[int, int]]:
        return self.inner.queue_sizes(on_the_way=True) if on_the_way else map(self.queue_of, self.peers)

    def on_the_way_to(self, peer: str) -> tuple[int, int]:
        return self.inner.on_the_way_to(peer)

    def slowest(self, peer: str) -> str:
        return peer

    def unconfirmed_by_peer(self) -> dict[str, int]:
        return self.inner.queued_by_peer()

    def unconfirmed(self) -> Iterator[Envelope]:
        """Give also what is confirmed and not settled: somebody beyond may lack it."""
        for state in self._peers.values():
            yield from [one.envelope for one in state.unsettled.values() if one.envelope is not None]

    def fork(self) -> Settling:
        twin = copy.copy(self)
        twin.inner = self.inner.fork()
        twin._peers = {peer: state.fork() for peer, state in self._peers.items()}
        twin._to_visit = dict(self._to_visit)
        twin._news = list(self._news)
        return twin

    def save_settling(self) -> SavedSettling:
        """Return what a restart must find again beside what the inner transport keeps."""
        places: dict[tuple[str, int, str], int] = {}
        messages: list[tuple[Envelope, str]] = []
        peers: dict[str, SavedPeer] = {}
        for peer, state in self._peers.items():
            unsettled: list[tuple[int, int]] = []
            for number, one in state.unsettled.items():
                if one.envelope is None:
                    unsettled.append((number, -1))
                    continue
                at = places.setdefault((*one.envelope.id, one.came_by), len(messages))
                if at == len(messages):
                    messages.append((one.envelope, one.came_by))
                unsettled.append((number, at))
            peers[peer] = SavedPeer(state.sent, unsettled, state.settled)
        return SavedSettling(messages, peers)

    def load_settling(self, saved: SavedSettling | None) -> None:
        """Become what ``save_settling`` returned."""
        if saved is None or set(saved.peers) != set(self._peers):
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a fabric without stability, or of other members")
        self.queued = self.queued_bytes = 0
        for peer, kept in saved.peers.items():
            state = self._peers[peer]
            state.sent, state.settled = kept.sent, kept.settled
            state.on_the_wire = kept.sent
            state.unsettled_bytes = 0
            state.gone_upto = min((number for number, _ in kept.unsettled), default=kept.sent + 1) - 1
            for number, at in kept.unsettled:
                envelope, came_by = saved.messages[at] if at >= 0 else (None, "")
                state.unsettled[number] = Unsettled(envelope, came_by)
                state.unsettled_bytes += weight_of(envelope)
            self.queued_bytes += state.unsettled_bytes
            self.queued += len(kept.unsettled)


def _only_reports(packet: Packet[Any]) -> bool:
    """Return whether a packet says nothing that is for the inner transport."""
    said = packet.frames or packet.numbers or packet.taken or packet.taken_beyond or packet.receipts or packet.safety
    return packet.report is not None and not said
