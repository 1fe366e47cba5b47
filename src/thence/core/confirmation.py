"""Reliable multicast in a group over a network that loses, repeats and reorders: who confirms to whom, and who repeats.

It exists to compare the ways of gateways §2.3; fabrics run over ``core.channel``, which confirms between two members.
Design note: docs/confirmation.md.

* ``centralised``: a message goes to the controller, which passes it on to everybody, numbered. Each confirms to whom it got
  the message from, and that one repeats it. All deliver in the controller's order.
* ``decentralised``: a message goes to everybody, each destination confirms to its sender, and the sender repeats it.
* ``distributed``: each destination confirms to everybody. So a destination learns from the others that it has missed
  something, and asks for it: the sender, or with ``retransmission = "nearest"`` the nearest one who has it.

Rules:

* Pure: time is an argument; ``send``, ``arrived`` and ``timer`` return what to send, what to hand over, and when to wake up.
* Each message is handed over exactly once at every member, its sender included; in the controller's order where there is one,
  otherwise as soon as it is there. Putting it in order is an ordering's business.
* A message is kept by its sender until every destination is known to have it, and then dropped: it is *stable*. Under
  ``nearest`` all keep it until they know so; who does not hear of the last confirmations asks for them (``wanted``).
* A sender repeats what is not confirmed in any scheme: what everybody lost, nobody can miss. Waits double, for ever.
* Everything is bounded by the constants of ``confirmation_frames``. A sender whose stream is full is told ``Busy``; a frame
  beyond the window is refused and comes again.
* A refused frame changes nothing.

The paper waits "after most recently receiving a message" before a delayed confirmation; here from the first unconfirmed
one, so that no confirmation is later than ``confirm_after_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from thence.core.confirmation_frames import (
    MAX_COPIES,
    MAX_REQUESTED,
    PATIENCE_AT_MOST_NS,
    RESEND_BURST,
    Claim,
    Confirmation,
    ConfirmationOptions,
    Counts,
    Data,
    Frame,
    Kept,
    Missing,
    Outcome,
    Owed,
    Released,
    Request,
    check_numbers,
    claim_of,
    claimed_beyond,
)
from thence.core.numbers import NumberSet
from thence.errors import Busy, ConfigError, ImpossibleFrame, OverflowingFrame, StrangerFrame

EVERYBODY = -1
"""To whom a confirmation is owed, where it goes to all."""


class Confirming:
    """One member of a group. See the module's text for the rules."""

    def __init__(
        self,
        me: str,
        members: Sequence[str],
        options: ConfirmationOptions | None = None,
        distances: Mapping[str, int] | None = None,
    ) -> None:
        """``distances`` says how far the others are, for ``nearest``; without it the order of ``members`` decides."""
        self.options = options or ConfirmationOptions()
        self.options.check()
        if me not in members or len(set(members)) != len(members):
            raise ConfigError(f"{me!r} must be one of the members, each listed once: {', '.join(members)}")
        self.members = tuple(members)
        self.me = self.members.index(me)
        self._index = {name: number for number, name in enumerate(self.members)}
        self._others = [number for number in range(len(members)) if number != self.me]
        controller = self.members[0] if self.options.controller is None else self.options.controller
        if controller not in self._index:
            raise ConfigError(f"the controller {controller!r} is not among the members {', '.join(members)}")
        self._controller = self._index[controller] if self.options.scheme == "centralised" else None
        self._distributed = self.options.scheme == "distributed"
        self._copying = self.options.retransmission == "nearest"
        far = distances or {}
        self._near = sorted(self._others, key=lambda number: (far.get(self.members[number], 0), number))
        count = len(members)
        self.counts = Counts()
        self._made = 0
        self._last = 0
        self._kept: dict[int, Kept] = {}
        self._taken = [NumberSet() for _ in members]
        self._has = [[NumberSet() for _ in members] for _ in members]
        """What each member, as far as we know, has of each stream."""
        self._exists = [0] * count
        self._missing: dict[tuple[int, int], Missing] = {}
        self._owed: dict[int, Owed] = {}
        self._early: list[dict[int, Data]] = [{} for _ in members]
        self._copies: list[dict[int, Data]] = [{} for _ in members]
        self._handed_over = [0] * count
        self._stable = [0] * count
        self._probe_at: int | None = None
        self._probe_patience_ns = self.options.resend_after_ns

    # What the outside may ask.

    @property
    def kept(self) -> int:
        """How many messages are kept: our own unconfirmed ones, copies of others', and those whose turn has not come."""
        return len(self._kept) + sum(map(len, self._copies)) + sum(map(len, self._early))

    def stable(self, stream: str) -> int:
        """Return up to which message of ``stream`` we know that every destination has it, so that it may be dropped."""
        number = self._index[stream]
        if number == self.me:
            return min(self._kept) - 1 if self._kept else self._last
        return self._stable[number]

    # Inputs.

    def send(self, body: bytes, now: int) -> Outcome:
        """Send ``body`` to the group."""
        if self._full:
            raise Busy(
                f"message {next(iter(self._kept))} of {self.members[self.me]!r} is not confirmed, and {self._last} are sent; "
                f"max_kept is {self.options.max_kept}"
            )
        self._made += 1
        send: list[tuple[int, Frame]] = []
        deliver: list[Released] = []
        self._begin(self.me, self._made, body, now, send)
        if self._controller in (None, self.me):
            deliver.append(Released(self.members[self.me], self._made, body))
        return self._outcome(send, deliver, now)

    def arrived(self, peer: str, frame: Frame, now: int) -> Outcome:
        """Take a frame that ``peer`` sent."""
        source = self._index.get(peer, self.me)
        if source == self.me:
            raise StrangerFrame(f"a frame from {peer!r} at {self.members[self.me]!r}: not another member here")
        self._check(source, frame)
        send: list[tuple[int, Frame]] = []
        deliver: list[Released] = []
        if isinstance(frame, Request):
            self._answer(source, frame, now, send)
            return self._outcome(send, deliver, now)
        if isinstance(frame, Data):
            self._take(source, frame, now, send)
        elif frame.wanted:
            self._confirm(source, send)
        for claim in frame.claims:
            self._learn(source, claim, now)
        self._hand_over(now, send, deliver)
        return self._outcome(send, deliver, now)

    def timer(self, now: int) -> Outcome:
        """Do what is due."""
        send: list[tuple[int, Frame]] = []
        self._resend(now, send)
        self._ask(now, send)
        if self._probe_at is not None and now >= self._probe_at:
            self._probe(now, send)
        return self._outcome(send, [], now)

    # Refusals.

    def _check(self, source: int, frame: Frame) -> None:
        described = f"a {type(frame).__name__} from {self.members[source]!r} at {self.members[self.me]!r}"
        check_numbers(frame, described, len(self.members), self.options.max_kept)
        for claim in () if isinstance(frame, Request) else frame.claims:
            if claim[0] == self.me and max(claim[1:]) > self._last:
                raise ImpossibleFrame(f"{described}: it claims {max(claim[1:])} of my messages, but I have sent {self._last}")
        if isinstance(frame, Data):
            self._check_data(source, frame, described)

    def _check_data(self, source: int, data: Data, described: str) -> None:
        if data.stream == self.me or (data.stream != source and not self._copying):
            raise StrangerFrame(f"{described}: it is not the one to send messages of stream {data.stream}")
        if self._controller not in (None, self.me, data.stream):
            raise StrangerFrame(f"{described}: only the controller passes on")
        if data.number > self._taken[data.stream].upto + self.options.max_kept:
            raise OverflowingFrame(f"{described}: number {data.number} is more than max_kept ahead; it may come again")

    # Our own stream.

    @property
    def _full(self) -> bool:
        return bool(self._kept) and self._last - next(iter(self._kept)) + 1 >= self.options.max_kept

    def _begin(self, origin: int, origin_number: int, body: bytes, now: int, send: list[tuple[int, Frame]]) -> None:
        """Give a message the next number of our stream and send it to all whom the stream is for, with what we owe them."""
        self._last += 1
        data = Data(self.me, self._last, origin, origin_number, body)
        targets = self._others if self._controller is None or self._controller == self.me else [self._controller]
        if not targets:
            return
        patience = self.options.resend_after_ns
        self._kept[self._last] = Kept(data, dict.fromkeys(targets), now + patience, patience)
        if self._distributed:
            frame = msgspec.structs.replace(data, claims=self._claims_for(EVERYBODY))
            send += [(target, frame) for target in targets]
        else:
            send += [(target, msgspec.structs.replace(data, claims=self._claims_for(target))) for target in targets]
        self.counts.data += len(targets)
        self._owed.clear()

    def _resend(self, now: int, send: list[tuple[int, Frame]]) -> None:
        repeated = 0
        for kept in self._kept.values():
            if now < kept.due:
                continue
            if repeated == RESEND_BURST:
                kept.due = now + self.options.resend_after_ns
                continue
            repeated += 1
            kept.patience_ns = min(2 * kept.patience_ns, PATIENCE_AT_MOST_NS)
            kept.due = now + kept.patience_ns
            send += [(target, kept.data) for target in kept.lacking]
            self.counts.resent += len(kept.lacking)

    def _confirmed(self, source: int, numbers: Sequence[int]) -> None:
        """Somebody has these messages of ours."""
        for number in numbers:
            kept = self._kept.get(number)
            if kept is not None and source in kept.lacking:
                del kept.lacking[source]
                if not kept.lacking:
                    del self._kept[number]

    # What comes in.

    def _take(self, source: int, data: Data, now: int, send: list[tuple[int, Frame]]) -> None:
        stream = data.stream
        if source != stream:
            self._has[source][stream].add(data.number)
        if not self._taken[stream].add(data.number):
            self.counts.repeated += 1
            if source == stream:
                self._confirm(source, send)  # It has not heard that we have it.
            return
        self._missing.pop((stream, data.number), None)
        self._early[stream][data.number] = data
        if self._copying:
            self._keep_copy(data, now)
        key = EVERYBODY if self._distributed else stream
        owed = self._owed.get(key)
        if owed is None:
            owed = self._owed[key] = Owed(0, now + self.options.confirm_after_ns)
        owed.messages += 1
        if owed.messages >= self.options.confirm_after_messages:
            owed.due = now
        self._learn_of(stream, data.number, now)
        if self._distributed:
            self._forget_stable(stream, now)

    def _hand_over(self, now: int, send: list[tuple[int, Frame]], deliver: list[Released]) -> None:
        """Hand over what may go: with a controller in the order of its numbers, otherwise all."""
        self.counts.peak = max(self.counts.peak, self.kept)
        for stream, early in enumerate(self._early):
            while early:
                number = self._handed_over[stream] + 1 if self._controller is not None else next(iter(early))
                relays = self._controller == self.me
                if number not in early or (relays and self._full):
                    break
                data = early.pop(number)
                self._handed_over[stream] += 1
                deliver.append(Released(self.members[data.origin], data.origin_number, data.body))
                if relays:
                    self._begin(data.origin, data.origin_number, data.body, now, send)

    def _keep_copy(self, data: Data, now: int) -> None:
        copies = self._copies[data.stream]
        copies[data.number] = msgspec.structs.replace(data, claims=())
        if sum(map(len, self._copies)) > MAX_COPIES:
            del copies[next(iter(copies))]
        if self._probe_at is None:
            self._probe_at = now + self._probe_patience_ns

    # What we know of others.

    def _learn(self, source: int, claim: Claim, now: int) -> None:
        stream = claim[0]
        known = self._has[source][stream]
        before = known.upto
        if claim[1] <= before and len(claim) == 2:
            return
        self._note_has(source, claim)
        if stream == self.me:
            self._confirmed(source, (*range(before + 1, known.upto + 1), *claimed_beyond(claim)))
        elif self._distributed:
            self._learn_of(stream, max(claim[1:]), now)
            self._forget_stable(stream, now)

    def _note_has(self, source: int, claim: Claim) -> None:
        known = self._has[source][claim[0]]
        if claim[1] > known.upto:
            known.upto = claim[1]
            known.beyond = {number: None for number in known.beyond if number > known.upto}
        for number in claimed_beyond(claim):
            known.add(number)
        if known.upto + 1 in known.beyond:
            del known.beyond[known.upto + 1]
            known.add(known.upto + 1)

    def _learn_of(self, stream: int, number: int, now: int) -> None:
        """There is a message with this number: whatever up to it is not here is missing."""
        if not self._distributed or number <= self._exists[stream]:
            return
        taken = self._taken[stream]
        limit = min(number, taken.upto + self.options.max_kept)
        for lacking in range(max(self._exists[stream], taken.upto) + 1, limit + 1):
            if lacking not in taken:
                self._missing[stream, lacking] = Missing(now + self.options.ask_after_ns, self.options.ask_again_ns)
        self._exists[stream] = max(self._exists[stream], limit)

    def _forget_stable(self, stream: int, now: int) -> None:
        """Drop the copies of what we know everybody to have."""
        others = [self._has[other][stream].upto for other in self._others if other != stream]
        stable = min([self._taken[stream].upto, *others])
        copies = self._copies[stream]
        for number in range(self._stable[stream] + 1, stable + 1):
            copies.pop(number, None)
        if stable > self._stable[stream]:
            self._stable[stream] = stable
            self._probe_patience_ns = self.options.resend_after_ns
            self._probe_at = now + self._probe_patience_ns if any(self._copies) else None

    # Confirmations, requests and their answers.

    def _claims_for(self, target: int) -> tuple[Claim, ...]:
        streams = range(len(self.members)) if self._distributed else (target,)
        return tuple(claim for stream in streams if len(claim := self._claim(stream)) > 2 or claim[1])

    def _claim(self, stream: int) -> Claim:
        if stream == self.me:
            return (stream, self._last)
        return claim_of(stream, self._taken[stream])

    def _confirm(self, target: int, send: list[tuple[int, Frame]]) -> None:
        send.append((target, Confirmation(self._claims_for(target))))
        self.counts.confirmations += 1

    def _ask(self, now: int, send: list[tuple[int, Frame]]) -> None:
        asked: dict[tuple[int, int], list[int]] = {}
        for (stream, number), missing in self._missing.items():
            if now < missing.ask_at:
                continue
            target = self._whom_to_ask(stream, number, missing.attempts)
            missing.attempts += 1
            missing.ask_at = now + missing.patience_ns
            missing.patience_ns = min(2 * missing.patience_ns, PATIENCE_AT_MOST_NS)
            asked.setdefault((target, stream), []).append(number)
        for (target, stream), numbers in asked.items():
            for at in range(0, len(numbers), MAX_REQUESTED):
                send.append((target, Request(stream, tuple(numbers[at : at + MAX_REQUESTED]))))
                self.counts.requests += 1

    def _whom_to_ask(self, stream: int, number: int, attempts: int) -> int:
        if not self._copying:
            return stream
        holders = [other for other in self._near if other == stream or number in self._has[other][stream]]
        return holders[attempts % len(holders)]

    def _answer(self, source: int, request: Request, now: int, send: list[tuple[int, Frame]]) -> None:
        for number in request.numbers:
            data = self._copies[request.stream].get(number)
            if request.stream == self.me and number in self._kept:
                kept = self._kept[number]
                data = kept.data
                kept.due = max(kept.due, now + self.options.resend_after_ns)
            if data is not None:
                send.append((source, data))
                self.counts.resent += 1

    def _probe(self, now: int, send: list[tuple[int, Frame]]) -> None:
        """We keep copies and do not hear that everybody has them: ask those of whom we do not know it."""
        silent: dict[int, None] = {}
        for stream, copies in enumerate(self._copies):
            first = min(copies, default=0)
            silent.update({other: None for other in self._others if other != stream and self._has[other][stream].upto < first})
        for target in silent:
            send.append((target, Confirmation(self._claims_for(target), wanted=True)))
            self.counts.confirmations += 1
        self._probe_patience_ns = min(2 * self._probe_patience_ns, PATIENCE_AT_MOST_NS)
        self._probe_at = now + self._probe_patience_ns if any(self._copies) else None

    def _outcome(self, send: list[tuple[int, Frame]], deliver: list[Released], now: int) -> Outcome:
        for key in [key for key, owed in self._owed.items() if owed.due <= now]:
            del self._owed[key]
            targets = self._others if key == EVERYBODY else [key]
            confirmation = Confirmation(self._claims_for(key))
            send += [(target, confirmation) for target in targets]
            self.counts.confirmations += len(targets)
        times = [kept.due for kept in self._kept.values()]
        times += [missing.ask_at for missing in self._missing.values()]
        times += [owed.due for owed in self._owed.values()]
        if self._probe_at is not None:
            times.append(self._probe_at)
        self.counts.peak = max(self.counts.peak, self.kept)
        return Outcome([(self.members[target], frame) for target, frame in send], deliver, min(times, default=None))
