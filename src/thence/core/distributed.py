"""Each member confirms to everybody: so whoever has missed a message learns of it from others, and asks for it.

Source: gateways §2.3, Fig. 3 and 4. Design note: docs/confirmation.md. A transport (``core.transport``) for orderings that give
all other members one stamp: a message has one number in its sender's stream for all, and whoever has it can repeat it.

Rules:

* What is missing is asked for after a while, since it may only be late: from its sender, or with ``nearest`` from the nearest who
  has said that it has it, then from the next.
* A sender keeps a message until all have confirmed it, and repeats it where that takes too long: what everybody lost, nobody can
  miss. Waits double, for ever.
* With ``nearest`` all keep what they got until they know that all have it; who does not hear of the last confirmations asks for
  them (``wanted``). Of each stream so much is kept in any case as may be on its way (``core.copies``): if its sender dies,
  whoever was not behind (see below) lacks only some of that. Who was may have to wait until the sender is back.
* At most ``WINDOW`` messages of a stream are on their way, and one or at most ``WINDOW_BYTES``; what lies behind waits in the
  queue, which the member bounds.
* A member that is held for dead does not hold up the others. From then on it is *behind*, and has a window of its own, which
  moves with what it confirms, until it has been sent all that the others have and is held for dead no longer. So it gets
  everything whether that was right or wrong; and what it cannot be sent yet is not looked at time and again.
* Where the domain spans two sites, ``core.lanes`` says which way a message first goes, and how long it may be on its way.
* What others have is not recorded on disk: after a crash a member is told again, or asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from thence.core.channel import RESEND_BURST, WINDOW
from thence.core.claims import MAX_REQUESTED, Claim, carried, check_packet, claim_of, claimed_beyond, note
from thence.core.confirmation import ConfirmationOptions
from thence.core.copies import Copies
from thence.core.lanes import Lanes
from thence.core.messages import Envelope, Packet, Receipts
from thence.core.numbers import NumberSet
from thence.core.progress import Progress
from thence.core.streams import Attempt, DistributedState, Letter, Message, Unconfirmed, parts
from thence.core.transport import Frames, Incoming, Packets, Transport
from thence.core.window import WINDOW_BYTES
from thence.errors import ImpossibleFrame, StrangerFrame

ASKS_PER_RESEND = 40
"""Who misses a message asks so many times sooner for it than a sender repeats it: it may only be late."""

ASKS_AGAIN_PER_RESEND = 2
"""The same for the time until somebody else is asked."""


class Distributed(Transport):
    """See the module's text."""

    def __init__(
        self,
        name: str,
        me: str,
        members: Sequence[str],
        resend_after_ns: int,
        confirmation: ConfirmationOptions,
        pairs: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Take part as ``me`` in the domain ``name``, whose members must all be given the same list and options."""
        super().__init__(name, me, [member for member in members if member != me])
        self.members = tuple(members)
        self._index = {member: number for number, member in enumerate(self.members)}
        self._mine = self._index[me]
        self._others = [self._index[member] for member in self.peers]
        self._near = [self._index[member] for member in confirmation.nearest(me, members)]
        self._copying = self.repeated_by_others = confirmation.retransmission == "nearest"
        self._lanes = Lanes(self._mine, [(self._index[one], self._index[other]) for one, other in pairs]) if pairs else None
        self._came_by: dict[tuple[int, int], int] = {}
        """With lanes: from whom what has come within this step came."""
        self._onward: dict[tuple[int, int], list[int]] = {}
        """What we took within this step, and who gets it from us."""
        self._confirmation = confirmation
        self._resend_after_ns = resend_after_ns
        self.state: DistributedState[Any] = DistributedState(
            0, {}, [NumberSet() for _ in members], [{} for _ in members], [{} for _ in members]
        )
        self.repeated = 0
        self._begins: dict[int, int] = {}
        """Of each message in the queue, how many bytes were pushed before it since we started,"""
        self._pushed = 0
        """and before the next one."""
        self._gone_upto = 0
        """Nothing up to this number is in the queue any more (see ``Channel``)."""
        self._suspected: dict[int, None] = {}
        self._behind: dict[int, int] = {}
        """Who was held for dead and has not caught up, and up to which number it was sent our messages."""
        self._settled_upto = 0
        """All up to this number lack nobody but those who are behind."""
        self._sent_upto = 0
        """Up to which number we have sent since we started; what lies behind is due at once."""
        self._attempts: dict[int, Attempt] = {}
        self._exists = [0] * len(members)
        """Up to which number of each stream we know that there is a message."""
        self._heard_of: dict[tuple[int, int], None] = {}
        """Messages that must be somewhere; what of them is not taken by the end of the step is missing."""
        self._missing: dict[tuple[int, int], Attempt] = {}
        self._copies = Copies(self.state.copies, [0] * len(members))
        self._unstable: dict[int, None] = {}
        """Streams of which copies may be dropped by now."""
        self._unconfirmed = 0
        self._confirm_at: int | None = None
        self._to_answer: dict[int, list[tuple[int, ...]]] = {}
        """Whom to tell what we have, and what they ask for."""
        self._probe: Attempt | None = None
        self._touched = False
        self._all = False

    # What comes in.

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        self.check(peer, packet)
        source = self._index[peer]
        receipts = packet.receipts or Receipts()
        self._touched = True
        if self._lanes is not None:
            self._lanes.now = now
        fresh: dict[tuple[int, int], Incoming] = {}
        for stream, number, frame, to in carried(packet, source):
            if stream != source:
                self._known(source, stream).add(number)
            if number in self.state.taken[stream] or (stream, number) in fresh:
                self.repeated += 1
                if stream == source:
                    self._to_answer.setdefault(source, [])  # It has not heard that we have it.
            elif number <= self.state.taken[stream].upto + WINDOW:
                # Nobody who keeps to the window sends what lies beyond; it would make us remember holes without bound.
                fresh[stream, number] = Incoming(self.members[stream], number, frame, to)
                if self._lanes is not None:
                    self._came_by[stream, number] = source
                self._hear_of(stream, number)  # If it is not taken now, it is missing.
        for claim in receipts.claims:
            self._learn(source, claim)
        if receipts.wanted or receipts.requests:
            self._to_answer.setdefault(source, []).extend(receipts.requests)
        return list(fresh.values())

    def had(self, peer: str, packet: Packet[Any]) -> list[bool]:
        found = carried(packet, self._index[peer])
        return [number in self.state.taken[stream] for stream, number, _, _ in found]

    def check(self, peer: str, packet: Packet[Any]) -> None:
        source = self._index[peer]
        described = f"a packet from {peer!r} for {self.name!r} at {self.me!r}"
        check_packet(packet, described, len(self.members), self._mine)
        receipts = packet.receipts or Receipts()
        for claim in receipts.claims:
            if claim[0] == self._mine and claim[-1] > self.state.last_number:
                raise ImpossibleFrame(f"{described}: it claims {claim[-1]} of my messages, of {self.state.last_number}")
        for stream in receipts.streams:
            if stream == self._mine or (stream != source and not self._copying):
                raise StrangerFrame(f"{described}: it is not the one to send messages of {self.members[stream]!r}")

    def take(self, incoming: Incoming) -> None:
        stream = self._index[incoming.peer]
        self._took(stream, incoming.number)
        if self._copying:
            message = Message(incoming.frame.stamp, incoming.frame.envelope, incoming.to)
            self._copies.add(stream, incoming.number, message, self.state.taken[stream].upto)
            came_by = self._came_by.get((stream, incoming.number))
            if self._lanes is not None and came_by is not None:
                self._lanes.came_out(stream, incoming.number)
                self._onward[stream, incoming.number] = self._lanes.onward(stream, incoming.number, came_by, self._suspected)

    def skip(self, peer: str, number: int) -> None:
        self._took(self._index[peer], number)

    def _took(self, stream: int, number: int) -> None:
        self.state.taken[stream].add(number)
        self._hear_of(stream, number)
        self._missing.pop((stream, number), None)
        self._unconfirmed += 1
        if self._copying:
            self._unstable[stream] = None
        self._touched = True

    # What we know of others.

    def _known(self, member: int, stream: int) -> NumberSet:
        return self.state.known[member].setdefault(stream, NumberSet())

    def _learn(self, source: int, claim: Claim) -> None:
        stream = claim[0]
        if stream == self._mine:
            known = self._known(source, stream)
            oldest = max(known.upto + 1, self._oldest())
            note(known, claim)
            self._confirmed(source, (*range(oldest, known.upto + 1), *claimed_beyond(claim)))
            return
        if self._copying and source != stream:
            note(self._known(source, stream), claim)
            self._unstable[stream] = None
        self._hear_of(stream, claim[-1])

    def _confirmed(self, source: int, numbers: Sequence[int]) -> None:
        """Somebody has these messages of ours."""
        queue = self.state.queue
        for number in numbers:
            unconfirmed = queue.get(number)
            if unconfirmed is not None and source in unconfirmed.lacking:
                del unconfirmed.lacking[source]
                self.queued -= 1
                if self._lanes is not None and self._lanes.is_far(source):
                    self._lanes.came_out(self._mine, number)
                if not unconfirmed.lacking:
                    self.queued_bytes -= unconfirmed.message.weight
                    del queue[number], self._begins[number]
                    self._attempts.pop(number, None)

    def _hear_of(self, stream: int, number: int) -> None:
        """There is a message with this number: whatever up to it is not here is missing, unless it comes within this step."""
        if number <= self._exists[stream]:
            return
        taken = self.state.taken[stream]
        last = min(number, taken.upto + WINDOW)
        for lacking in range(max(self._exists[stream], taken.upto) + 1, last + 1):
            self._heard_of[stream, lacking] = None
        self._exists[stream] = max(self._exists[stream], last)

    def _forget_stable(self, now: int) -> None:
        """Drop the copies of what we know everybody to have."""
        dropped = 0
        for stream in self._unstable:
            taken_upto = self.state.taken[stream].upto
            known = [self._known(other, stream).upto for other in self._others if other != stream]
            dropped += self._copies.forget(stream, min([taken_upto, *known]), taken_upto)
        self._unstable = {}
        count = self._copies.count
        if dropped or (count and self._probe is None):
            self._probe = self._patient(now) if count else None

    # What goes out.

    def push(self, frames: Frames) -> None:
        if not frames:
            return
        state = self.state
        message = next((frame for _, frame in frames if frame.envelope is not None), frames[0][1])
        to = tuple(self._index[peer] for peer, frame in frames if frame.envelope is not None)
        state.last_number += 1
        kept = Message(message.stamp, message.envelope, None if len(to) == len(frames) else to)
        state.queue[state.last_number] = Unconfirmed(kept, dict.fromkeys(self._others))
        self.queued += len(self._others)
        self.queued_bytes += kept.weight
        self._note_begin(state.last_number, kept.weight)
        self._touched = True

    def _note_begin(self, number: int, weight: int) -> None:
        self._begins[number] = self._pushed
        self._pushed += weight

    def visit_all(self) -> None:
        self._touched = self._all = True

    def connected(self, peer: str) -> None:
        for attempts in (self._attempts, self._missing):
            for attempt in attempts.values():
                attempt.due = 0
        self.visit_all()

    def suspect(self, peer: str, suspected: bool) -> None:
        member = self._index[peer]
        if suspected:
            self._suspected[member] = None
            self._behind.setdefault(member, self._sent_upto)
        else:
            self._suspected.pop(member, None)
        self.visit_all()

    def collect(self, now: int) -> Packets:
        if not self._touched:
            return []
        letters: dict[int, Letter] = {}
        self._send_new(now, letters)
        self._catch_up(now, letters)
        self._hand_on(letters)
        self._note_missing(now)
        self._forget_stable(now)
        if self._all:
            self._resend(now, letters)
            self._ask(now, letters)
            self._ask_for_claims(now, letters)
        self._answer(now, letters)
        self._confirm(now, letters)
        if self._all:
            self.wake_at = self._find_wake()
        self._touched = self._all = False
        claims = self._claims() if letters else ()
        return [(self.members[target], packet) for target, letter in letters.items() for packet in self._packets(letter, claims)]

    def _send_new(self, now: int, letters: dict[int, Letter]) -> None:
        state = self.state
        if not state.queue:
            return
        last = self._window_end(self._oldest_awaited(), self._sent_upto, state.last_number)
        for number in range(max(self._sent_upto + 1, self._oldest()), last + 1):
            if number not in state.queue:
                continue
            first = None if self._lanes is None else self._lanes.first(number, self._suspected)
            self._write(number, letters, first)
            if self._has_takers(number):
                self._attempts[number] = self._patient(now)
        self._sent_upto = max(self._sent_upto, last)

    def _window_end(self, oldest: int, sent: int, last: int) -> int:
        """Return up to which number, of ``last``, we may have sent if ``oldest`` is lacking and all up to ``sent`` has gone."""
        last = min(last, oldest + WINDOW - 1)
        begin = self._begins.get(oldest, self._pushed)
        if self._pushed - begin <= WINDOW_BYTES:
            return last
        for number in range(max(sent, oldest) + 1, last + 1):
            message = self.state.queue.get(number)
            if message is not None and self._begins[number] + message.message.weight - begin > WINDOW_BYTES:
                return number - 1
        return last

    def _catch_up(self, now: int, letters: dict[int, Letter]) -> None:
        """Send those who are behind what they can take by now."""
        for member, sent in list(self._behind.items()):
            confirmed = self._known(member, self._mine).upto
            last = self._behind[member] = max(sent, self._window_end(confirmed + 1, sent, self._sent_upto))
            for number in range(max(sent, confirmed) + 1, last + 1):
                if number in self.state.queue:
                    # Across to another site it goes when it is repeated, or asked for: there, others may have it.
                    if self._lanes is None or not self._lanes.is_far(member):
                        self._write(number, letters, (member,))
                    self._attempts.setdefault(number, self._patient(now))
            if last == self._sent_upto and member not in self._suspected:
                del self._behind[member]
                self._settled_upto = min(self._settled_upto, confirmed)

    def _oldest_awaited(self) -> int:
        """Return the number of the oldest message that somebody lacks who is not behind, or the next number."""
        if not self._behind:
            return self._oldest()
        queue, last = self.state.queue, self.state.last_number
        self._settled_upto = max(self._settled_upto, self._oldest() - 1)
        while self._settled_upto < last:
            unconfirmed = queue.get(self._settled_upto + 1)
            if unconfirmed is not None and any(member not in self._behind for member in unconfirmed.lacking):
                break
            self._settled_upto += 1
        return self._settled_upto + 1

    def _oldest(self) -> int:
        """Return the number of the oldest message that is not confirmed by all, or the next number if there is none."""
        queue, last = self.state.queue, self.state.last_number
        while self._gone_upto < last and self._gone_upto + 1 not in queue:
            self._gone_upto += 1
        return self._gone_upto + 1

    def _hand_on(self, letters: dict[int, Letter]) -> None:
        """Send on what came on its way to others."""
        for (stream, number), targets in self._onward.items():
            message = self.state.copies[stream].get(number)
            for target in [one for one in targets if number not in self._known(one, stream)]:
                frame = None if message is None else message.frame_for(target)
                if message is not None and frame is not None:
                    letters.setdefault(target, Letter()).carried.append((stream, number, frame, message.to))
        self._onward, self._came_by = {}, {}

    def _write(self, number: int, letters: dict[int, Letter], only: Collection[int] | None = None) -> None:
        """Send a message of ours to all, or ``only`` these, who lack it and can take it."""
        unconfirmed = self.state.queue[number]
        message = unconfirmed.message
        for target in unconfirmed.lacking:
            if number > self._behind.get(target, number) or (only is not None and target not in only):
                continue
            frame = message.frame_for(target)
            if frame is not None:
                letters.setdefault(target, Letter()).carried.append((self._mine, number, frame, message.to))

    def _has_takers(self, number: int) -> bool:
        """Return whether anybody who lacks a message of ours can take it by now."""
        behind = self._behind
        return not behind or any(number <= behind.get(target, number) for target in self.state.queue[number].lacking)

    def _resend(self, now: int, letters: dict[int, Letter]) -> None:
        repeated = 0
        only: Collection[int] | None = None
        without_takers = []
        for number, attempt in self._attempts.items():
            if now < attempt.due:
                continue
            if not self._has_takers(number):
                without_takers.append(number)
                continue
            if repeated == RESEND_BURST:
                attempt.due = now + self._resend_after_ns
                continue
            if self._lanes is not None:
                patient_until = self._lanes.patient_until(self._mine, number, self._resend_after_ns)
                if now < patient_until:
                    attempt.due = patient_until
                    continue
                only = self._lanes.again(self.state.queue[number].lacking, attempt.count)
            repeated += 1
            attempt.again(now)
            self._write(number, letters, only)
        for number in without_takers:
            del self._attempts[number]  # Until whoever lacks it has caught up so far.

    def _note_missing(self, now: int) -> None:
        again = self._resend_after_ns // ASKS_AGAIN_PER_RESEND
        for stream, number in self._heard_of:
            if number not in self.state.taken[stream]:
                ask_at = now + (again if self._is_on_its_way(stream, number) else self._resend_after_ns // ASKS_PER_RESEND)
                self._missing[stream, number] = Attempt(ask_at, again)
                self._wake_by(ask_at)
        self._heard_of = {}

    def _is_on_its_way(self, stream: int, number: int) -> bool:
        """Return whether a message that we have heard of is still to cross to us: nobody at our site has it."""
        if self._lanes is None:
            return False
        return not any(other == stream or number in self._known(other, stream) for other in self._lanes.fellows)

    def _ask(self, now: int, letters: dict[int, Letter]) -> None:
        asked: dict[tuple[int, int], list[int]] = {}
        for (stream, number), attempt in self._missing.items():
            if now < attempt.due:
                continue
            if self._lanes is not None and self._is_on_its_way(stream, number):
                patient_until = self._lanes.patient_until(stream, number, self._resend_after_ns // ASKS_AGAIN_PER_RESEND)
                if now < patient_until:
                    attempt.due = patient_until
                    continue
            numbers = asked.setdefault((self._whom_to_ask(stream, number, attempt.count), stream), [])
            if len(numbers) == MAX_REQUESTED:
                attempt.due = now + self._resend_after_ns // ASKS_PER_RESEND
                continue
            numbers.append(number)
            attempt.again(now)
        for (target, stream), numbers in asked.items():
            letters.setdefault(target, Letter()).requests.append((stream, *numbers))

    def _whom_to_ask(self, stream: int, number: int, attempts: int) -> int:
        if not self._copying:
            return stream
        holders = [other for other in self._near if other == stream or number in self._known(other, stream)]
        return holders[attempts % len(holders)]

    def _ask_for_claims(self, now: int, letters: dict[int, Letter]) -> None:
        """We keep copies and do not hear that everybody has them: ask those of whom we do not know it."""
        if self._probe is None or now < self._probe.due:
            return
        self._probe.again(now)
        for stream, copies in enumerate(self.state.copies):
            if copies:
                newest = max(copies)
                for other in self._others:
                    if other != stream and self._known(other, stream).upto < newest:
                        letters.setdefault(other, Letter()).wanted = True

    def _answer(self, now: int, letters: dict[int, Letter]) -> None:
        for target, requests in self._to_answer.items():
            letter = letters.setdefault(target, Letter())
            for stream, *numbers in requests:
                for number in numbers:
                    message = self.state.copies[stream].get(number)
                    if stream == self._mine and number in self.state.queue and number <= self._sent_upto:
                        message = self.state.queue[number].message
                        attempt = self._attempts.setdefault(number, self._patient(now))
                        attempt.due = max(attempt.due, now + self._resend_after_ns)
                    frame = None if message is None else message.frame_for(target)
                    if message is not None and frame is not None:
                        letter.carried.append((stream, number, frame, message.to))
        self._to_answer = {}

    def _confirm(self, now: int, letters: dict[int, Letter]) -> None:
        """Every packet says what we have. Once all get one, there is nothing to confirm any more."""
        if self._unconfirmed and self._confirm_at is None:
            self._confirm_at = now + self._confirmation.after_ns
            self._wake_by(self._confirm_at)
        if self._confirm_at is None:
            return
        if now >= self._confirm_at or self._unconfirmed >= self._confirmation.after_messages:
            for target in self._others:
                letters.setdefault(target, Letter())
        if len(letters) == len(self._others):
            self._unconfirmed = 0
            self._confirm_at = None

    def _claims(self) -> tuple[Claim, ...]:
        sent = max(self._sent_upto, self._oldest() - 1)
        claims = [
            (stream, sent) if stream == self._mine else claim_of(stream, has) for stream, has in enumerate(self.state.taken)
        ]
        return tuple(claim for claim in claims if len(claim) > 2 or claim[1])

    def _packets(self, letter: Letter, claims: tuple[Claim, ...]) -> Iterator[Packet[Any]]:
        """Give what a letter says in packets that whoever carries them can hold."""
        wanted, requests = letter.wanted, tuple(letter.requests)
        for part in parts(letter.carried):
            streams = tuple(stream for stream, _, _, _ in part)
            recipients = tuple(to for _, _, _, to in part)
            receipts = Receipts(
                claims,
                wanted,
                requests,
                () if all(stream == self._mine for stream in streams) else streams,
                () if all(to is None for to in recipients) else recipients,
            )
            frames = tuple(frame for _, _, frame, _ in part)
            yield Packet(self.name, frames, tuple(number for _, number, _, _ in part), 0, (), receipts)
            wanted, requests = False, ()

    def _patient(self, now: int) -> Attempt:
        """Wait as long as a sender waits for confirmation."""
        self._wake_by(now + self._resend_after_ns)
        return Attempt(now + self._resend_after_ns, 2 * self._resend_after_ns)

    def _wake_by(self, time: int) -> None:
        if self.wake_at is None or time < self.wake_at:
            self.wake_at = time

    def _find_wake(self) -> int | None:
        times = [attempt.due for attempts in (self._attempts, self._missing) for attempt in attempts.values()]
        times += [self._probe.due] if self._probe is not None else []
        times += [self._confirm_at] if self._confirm_at is not None else []
        return min(times, default=None)

    # Outside.

    def queued_by_peer(self) -> dict[str, int]:
        queued = dict.fromkeys(self.peers, 0)
        for unconfirmed in self.state.queue.values():
            for member in unconfirmed.lacking:
                queued[self.members[member]] += 1
        return queued

    def confirmed(self, peer: str, number: int) -> bool:
        unconfirmed = self.state.queue.get(number)
        return unconfirmed is None or self._index[peer] not in unconfirmed.lacking

    def queued_bytes_by_peer(self) -> dict[str, int]:
        queued = dict.fromkeys(self.peers, 0)
        for unconfirmed in self.state.queue.values():
            for member in unconfirmed.lacking:
                queued[self.members[member]] += unconfirmed.message.weight
        return queued

    one_queue = True
    queues = 1

    def queue_of(self, peer: str) -> tuple[int, int]:
        return self.queued, self.queued_bytes

    def queue_sizes(self, *, on_the_way: bool = False) -> Iterator[tuple[int, int]]:
        return iter([(self.queued, self.queued_bytes)])

    def slowest(self, peer: str) -> str:
        queued = self.queued_by_peer()
        return max(queued, key=queued.__getitem__)

    def moved(self, without: Collection[str] = ()) -> tuple[int, int]:
        others = [peer for peer in self.peers if peer not in without]
        return self.state.last_number * len(others), sum(self.state.taken[self._index[peer]].count for peer in others)

    def unconfirmed(self) -> Iterator[Envelope]:
        for waiting in self.state.queue.values():
            if waiting.message.envelope is not None:
                yield waiting.message.envelope

    def progress(self, peer: str) -> Progress | None:
        other = self._index[peer]
        taken = self.state.taken[other]
        known = self._known(other, self._mine)
        highest = max(known.beyond, default=known.upto)
        return Progress(self.state.last_number, known.upto, taken.upto, max(taken.beyond, default=taken.upto), highest)

    def save(self) -> DistributedState[Any]:
        return self.state

    def load(self, saved: Any) -> None:
        if not isinstance(saved, DistributedState) or not self._fits(saved):
            raise self._refuse_snapshot(saved)
        self.state = saved
        self._gone_upto = next(iter(saved.queue), saved.last_number + 1) - 1
        self.queued = sum(len(unconfirmed.lacking) for unconfirmed in saved.queue.values())
        self.queued_bytes = sum(unconfirmed.message.weight for unconfirmed in saved.queue.values())
        self._begins, self._pushed = {}, 0
        for number, unconfirmed in saved.queue.items():
            self._note_begin(number, unconfirmed.message.weight)
        self._copies = Copies(saved.copies, [taken.upto for taken in saved.taken])
        for stream, taken in enumerate(saved.taken):
            if self._copying:
                self._unstable[stream] = None
            self._hear_of(stream, max(taken.beyond, default=0))

    def _fits(self, saved: DistributedState[Any]) -> bool:
        count = len(self.members)
        named = {member for unconfirmed in saved.queue.values() for member in unconfirmed.lacking}
        named.update(stream for known in saved.known for stream in known)
        return {len(saved.taken), len(saved.known), len(saved.copies)} == {count} and named <= set(range(count))
