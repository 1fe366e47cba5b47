"""A transport in which each member acks to everybody, so that whoever missed a message learns of it from others.

Source: gateways §2.3, Fig. 3 and 4. Design note: docs/concepts/acks.md. It serves orderings that give all other members
one stamp: a message has one number in its sender's stream for all, and whoever has it can repeat it.

Rules:

* ``core.transport.ack_all.own_stream`` sends and repeats our own messages, ``core.transport.ack_all.missing`` asks for those of
  others, and ``core.transport.ack_all.copies`` keeps messages of others to repeat them.
* With ``nearest`` all keep what they got until they know that all have it, and ask for acks that they do not hear of. Of each
  stream so much is kept in any case as may be in flight: if its sender dies, a member that was not behind lacks only some of
  that. A member that was behind may have to wait until the sender is back.
* Where the domain spans two sites, ``core.transport.ack_all.lanes`` says which way a message goes first, and how long that may
  take.
* What others have is not recorded: after a crash a member is told again, or asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from thence.core.epochs.progress import Progress
from thence.core.topology.ack_options import AckOptions
from thence.core.transport.ack_all.claims import Claim, carried, check_packet, claim_of, claimed_beyond, note
from thence.core.transport.ack_all.copies import MAX_COPIES_BYTES, KeptCopies, Onward
from thence.core.transport.ack_all.lanes import Lanes
from thence.core.transport.ack_all.missing import Missing
from thence.core.transport.ack_all.own_stream import OwnStream
from thence.core.transport.ack_all.state import AckAllState, AckGroup, Drafts, StreamMessage
from thence.core.transport.acks import ReceivedAcks
from thence.core.transport.base import Frames, Incoming, Packets, Queues, Transport, refuse_snapshot
from thence.core.wire.messages import Envelope, GroupAcks, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import ImpossibleFrame, StrangerFrame


class SharedQueue(Queues):
    """One queue for all members: a message waits once, for all who lack it."""

    shared = True
    count = 1

    def __init__(self, transport: AckAll) -> None:
        """Count what waits in a transport."""
        super().__init__({})
        self._transport = transport

    def size(self, peer: str) -> tuple[int, int]:
        return self._transport.queued, self._transport.queued_bytes

    def sizes(self) -> Iterator[tuple[int, int]]:
        return iter([self.size("")])

    def slowest(self, peer: str) -> str:
        queued = self.by_peer()
        return max(queued, key=queued.__getitem__)

    def by_peer(self) -> dict[str, int]:
        return {peer: len(weights) for peer, weights in self._weights().items()}

    def bytes_by_peer(self) -> dict[str, int]:
        return {peer: sum(weights) for peer, weights in self._weights().items()}

    def _weights(self) -> dict[str, list[int]]:
        """Return how many bytes each message takes that a peer lacks."""
        weights: dict[str, list[int]] = {peer: [] for peer in self._transport.peers}
        for unacked in self._transport.state.queue.values():
            for member in unacked.lacking:
                weights[self._transport.group.members[member]].append(unacked.message.weight)
        return weights


class AckAll(Transport):
    """One member of a domain in which each acks to everybody."""

    def __init__(
        self,
        name: str,
        me: str,
        members: Sequence[str],
        resend_after_ns: int,
        acks: AckOptions,
        pairs: Sequence[tuple[str, str]] = (),
        by_sender: bool = False,
        max_copies_bytes: int = MAX_COPIES_BYTES,
    ) -> None:
        """Take part as ``me`` in the domain ``name``, whose members must all be given the same list and options."""
        super().__init__(name, me, [member for member in members if member != me], SharedQueue(self))
        numbers = {member: number for number, member in enumerate(members)}
        mine = numbers[me]
        numbered = [(numbers[one], numbers[other]) for one, other in pairs]
        lanes = Lanes(mine, numbered, by_sender=by_sender) if pairs else None
        others = tuple(number for number in range(len(members)) if number != mine)
        near = tuple(numbers[member] for member in acks.nearest(me, members))
        copying = self.repeated_by_others = acks.retransmission == "nearest"
        self.group = AckGroup(
            name, tuple(members), mine, numbers, others, near, copying, resend_after_ns, lanes, max_copies_bytes
        )
        self._acks = ReceivedAcks(acks.after_ns, acks.after_messages)
        self._to_answer: dict[int, list[tuple[int, ...]]] = {}
        """Whom to tell what we have, and what they ask for."""
        self._visit = _NOTHING
        self._begin(AckAllState(0, {}, [NumberSet() for _ in members], [{} for _ in members], [{} for _ in members]))

    def _begin(self, state: AckAllState[Any]) -> None:
        self.state = state
        self.own = OwnStream(self.group, state)
        self.missing = Missing(self.group, state)
        self.copies = KeptCopies(self.group, state)
        self.onward = Onward(self.group, state)
        self.queued, self.queued_bytes = self.own.queued, self.own.queued_bytes

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        self.check(peer, packet)
        source, state = self.group.numbers[peer], self.state
        group_acks = packet.group_acks or GroupAcks()
        self._visit = max(self._visit, _TOUCHED)
        if self.group.lanes is not None:
            self.group.lanes.now = now
        fresh: dict[tuple[int, int], Incoming] = {}
        for stream, number, frame, to in carried(packet, source):
            if stream != source:
                state.known_of(source, stream).add(number)
            if number in state.received[stream] or (stream, number) in fresh:
                self.missing.repeated += 1
                if stream == source:
                    self._to_answer.setdefault(source, [])  # It has not heard that we have it.
            elif self.missing.fits(stream, number):
                fresh[stream, number] = Incoming(self.group.members[stream], number, frame, to)
                self.onward.came(stream, number, source)
                self.missing.hear_of(stream, number)  # If it is not taken now, it is missing.
        for claim in group_acks.claims:
            self._learn(source, claim)
        if group_acks.wanted or group_acks.requests:
            self._to_answer.setdefault(source, []).extend(group_acks.requests)
        self.queued, self.queued_bytes = self.own.queued, self.own.queued_bytes
        return list(fresh.values())

    def _learn(self, source: int, claim: Claim) -> None:
        stream = claim[0]
        if stream == self.group.mine:
            known = self.state.known_of(source, stream)
            oldest = max(known.upto + 1, self.own.oldest())
            note(known, claim)
            self.own.acked(source, (*range(oldest, known.upto + 1), *claimed_beyond(claim)))
            return
        if self.group.copying and source != stream:
            note(self.state.known_of(source, stream), claim)
            self.copies.changed(stream)
        self.missing.hear_of(stream, claim[-1])

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        found = carried(packet, self.group.numbers[peer])
        return [number in self.state.received[stream] for stream, number, _, _ in found]

    def check(self, peer: str, packet: Packet[Any]) -> None:
        group, source, last = self.group, self.group.numbers[peer], self.state.last_number
        described = f"a packet from {peer!r} for {self.name!r} at {self.me!r}"
        check_packet(packet, described, len(group.members), group.mine)
        group_acks = packet.group_acks or GroupAcks()
        for claim in group_acks.claims:
            if claim[0] == group.mine and claim[-1] > last:
                raise ImpossibleFrame(f"{described}: it claims {claim[-1]} of my messages, of {last}")
        for stream in group_acks.streams:
            if stream == group.mine or (stream != source and not group.copying):
                raise StrangerFrame(f"{described}: it is not the one to send messages of {group.members[stream]!r}")

    def take(self, incoming: Incoming) -> None:
        stream, number = self.group.numbers[incoming.peer], incoming.number
        self.skip(incoming.peer, number)
        if self.group.copying:
            self.copies.add(stream, number, StreamMessage(incoming.frame.stamp, incoming.frame.envelope, incoming.to))
            self.onward.took(stream, number, self.own.suspected)

    def skip(self, peer: str, number: int) -> None:
        stream = self.group.numbers[peer]
        self.state.received[stream].add(number)
        self.missing.came(stream, number)
        self._acks.frames += 1
        if self.group.copying:
            self.copies.changed(stream)
        self._visit = max(self._visit, _TOUCHED)

    def push(self, frames: Frames) -> None:
        if not frames:
            return
        message = next((frame for _, frame in frames if frame.envelope is not None), frames[0][1])
        to = tuple(self.group.numbers[peer] for peer, frame in frames if frame.envelope is not None)
        self.own.push(StreamMessage(message.stamp, message.envelope, None if len(to) == len(frames) else to))
        self.queued, self.queued_bytes = self.own.queued, self.own.queued_bytes
        self._visit = max(self._visit, _TOUCHED)

    def visit_all(self) -> None:
        self._visit = _ALL

    def connected(self, peer: str) -> None:
        self.own.attempts.hurry()
        self.missing.attempts.hurry()
        self.visit_all()

    def suspect(self, peer: str, suspected: bool) -> None:
        self.own.suspect(self.group.numbers[peer], suspected)
        self.visit_all()

    def collect(self, now: int) -> Packets:
        if self._visit == _NOTHING:
            return []
        drafts = Drafts(self.group)
        self.own.send_new(now, drafts)
        self.own.catch_up(now, drafts)
        self.onward.hand_on(drafts)
        self.missing.note(now)
        self.copies.forget(now)
        if self._visit == _ALL:
            self.own.resend(now, drafts)
            self.missing.ask(now, drafts)
            self.copies.ask(now, drafts)
        self._answer(now, drafts)
        self._ack(now, drafts)
        if self._visit == _ALL:
            self.own.attempts.find_wake()
            self.missing.attempts.find_wake()
        self._visit = _NOTHING
        probe_at = None if self.copies.probe is None else self.copies.probe.due
        times = [self.own.attempts.wake_at, self.missing.attempts.wake_at, probe_at, self._acks.at]
        self.wake_at = min([time for time in times if time is not None], default=None)
        return list(drafts.packets(self._claims())) if drafts.table else []

    def _answer(self, now: int, drafts: Drafts) -> None:
        for target, requests in self._to_answer.items():
            drafts.to(target)
            for stream, *numbers in requests:
                for number in numbers:
                    message = self.state.copies[stream].get(number)
                    if stream == self.group.mine:
                        message = self.own.again(number, now) or message
                    drafts.carry(target, stream, number, message)
        self._to_answer = {}

    def _ack(self, now: int, drafts: Drafts) -> None:
        """Let acks go to all if it is time. Every packet carries them, so nothing is left to acknowledge once all get one."""
        if self._acks.frames:
            self._acks.start(now)
        if self._acks.at is None:
            return
        if self._acks.is_due(now):
            for target in self.group.others:
                drafts.to(target)
        if len(drafts.table) == len(self.peers):
            self._acks.sent()

    def _claims(self) -> tuple[Claim, ...]:
        sent = max(self.own.sent_upto, self.own.oldest() - 1)
        claims = [
            (stream, sent) if stream == self.group.mine else claim_of(stream, has)
            for stream, has in enumerate(self.state.received)
        ]
        return tuple([claim for claim in claims if len(claim) > 2 or claim[1]])

    def acked(self, peer: str, number: int) -> bool:
        unacked = self.state.queue.get(number)
        return unacked is None or self.group.numbers[peer] not in unacked.lacking

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        others = [number for number in self.group.others if self.group.members[number] not in without]
        return self.state.last_number * len(others), sum(self.state.received[number].count for number in others)

    def unacked_messages(self) -> Iterator[Envelope]:
        for unacked in self.state.queue.values():
            if unacked.message.envelope is not None:
                yield unacked.message.envelope

    def progress(self, peer: str) -> Progress | None:
        other = self.group.numbers[peer]
        received, known = self.state.received[other], self.state.known_of(other, self.group.mine)
        return Progress(self.state.last_number, known.upto, received.upto, received.highest, known.highest)

    def save(self) -> AckAllState[Any]:
        return self.state

    def load(self, saved: Any) -> None:
        if not isinstance(saved, AckAllState) or not saved.fits(len(self.group.members)):
            raise refuse_snapshot(self, saved)
        self._begin(saved)


_NOTHING, _TOUCHED, _ALL = 0, 1, 2
"""What the next ``collect`` looks at."""
