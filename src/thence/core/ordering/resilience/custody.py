"""Who holds which message, and who sees to it that enough do and that all its recipients get it.

Everybody who gets a message keeps it, whether it is for him or not, and answers whoever gave it to him. One *custodian* sees to
the rest: its first sender, and if that one is suspected whoever had it from him, each by himself. A custodian gives the message
to all recipients who are not known to hold it, and to further members as copies until enough are expected to hold it. When
enough have answered he says so, and when all recipients have, copies may go.

Rules:

* *Enough* are k + 1 members who are not suspected, custodian and first sender included, or all where fewer are left.
* Nothing that is said here ever becomes untrue: that somebody holds a message, that enough did, that all its recipients do. So it
  makes no difference who says it, how often, or in which order, and a wrong suspicion costs frames and nothing else.
* Whoever is custodian remains it, whomever he suspects later. Of two custodians neither waits for the other.
* The first sender says which of his messages enough hold only as far as that is true of all before. So what a dead one sent is
  delivered as far as his survivors hold all of it; what lies behind a hole was neither accepted nor delivered by anybody, and
  nobody depends on it.
* Whoever comes to suspect somebody tells all what he knows of the streams of all whom he suspects. So survivors come to know
  the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from thence.core.ordering.resilience.stamps import MAX_NAMED, ResilientEnough, ResilientHeld, ResilientMessage, ranges_of
from thence.core.wire.messages import Envelope, Frame
from thence.core.wire.number_set import NumberSet

Said = ResilientMessage | ResilientHeld | ResilientEnough
Out = list[tuple[int, Frame[Said]]]
"""Frames, each with the number of the member that it is for."""
Key = tuple[int, int]
"""A stream, and the number of a message there."""


class HeldMessage(msgspec.Struct, array_like=True):
    """A message that we hold, until all its recipients do."""

    stamp: ResilientMessage
    envelope: Envelope
    givers: list[int]
    """From whom we have it; nobody if it is ours."""
    holders: list[int]
    """Who is known to hold it, beside its first sender and us."""
    given: list[int]
    """To whom we gave it."""
    custodian: bool


class CustodyState(msgspec.Struct):
    """What a restart must find again."""

    sent: int
    """How many messages of our own there are."""
    enough: list[NumberSet]
    """Of each stream, which messages enough hold."""
    held: list[HeldMessage]
    suspected: list[int]
    known_upto: list[int]
    """Up to which number each member knows that enough hold our messages."""
    done: list[list[int]]
    """Messages of our own that each member holds and may forget, and was not told."""
    numbers: list[int]
    """The number of our last frame to each member."""


def fresh_state(members: int) -> CustodyState:
    """Return the state of somebody to whom nothing has happened."""
    zeros = [0] * members
    return CustodyState(0, [NumberSet() for _ in zeros], [], [], list(zeros), [[] for _ in zeros], list(zeros))


class Custody:
    """The messages that one member holds. Members are numbered."""

    def __init__(self, me: int, members: int, copies: int) -> None:
        """Hold nothing yet; ``copies`` is k."""
        self._me = me
        self._members = members
        self._copies = copies
        self.load(fresh_state(members))

    def load(self, state: CustodyState) -> None:
        """Go on from a saved state."""
        self.sent = state.sent
        self.enough = state.enough
        self.held = {(kept.stamp.stream, kept.stamp.sequence): kept for kept in state.held}
        self.suspected = dict.fromkeys(state.suspected)
        self._known_upto = state.known_upto
        self._done = state.done
        self._numbers = state.numbers
        self.secured: list[Envelope] = []
        """Messages of our own that enough hold by now, and so all before them."""
        self.advanced: dict[int, None] = {}
        """Streams of which more is known to be held by enough."""

    def save(self) -> CustodyState:
        """Return everything, for a snapshot."""
        held, suspected = list(self.held.values()), list(self.suspected)
        return CustodyState(self.sent, self.enough, held, suspected, self._known_upto, self._done, self._numbers)

    def send(self, envelope: Envelope, to: tuple[int, ...] | None, updates: tuple[int, ...], out: Out) -> None:
        """Give a message of our own to its recipients, and to so many others that enough hold it."""
        self.sent += 1
        stamp = ResilientMessage(0, self._me, self.sent, self.enough[self._me].upto, to, updates, ())
        self.held[self._me, self.sent] = HeldMessage(stamp, envelope, [], [], [], custodian=True)
        self._attend((self._me, self.sent), out)

    def take(self, giver: int, stamp: ResilientMessage, envelope: Envelope, out: Out, *, had: bool) -> None:
        """Hold a message that somebody gave us, unless we ``had`` it and forgot it since all have it."""
        key = (stamp.stream, stamp.sequence)
        kept = self.held.get(key)
        if kept is None and not had:
            stamp = msgspec.structs.replace(stamp, number=0, done=())
            kept = self.held[key] = HeldMessage(stamp, envelope, [], [], [], custodian=False)
        self._say(giver, ResilientHeld(self._next(giver), *key), out)
        if kept is None:
            return
        if not kept.custodian and giver not in kept.givers:
            kept.givers.append(giver)
        if giver not in kept.holders and giver != stamp.stream:
            kept.holders.append(giver)
        self._attend(key, out)

    def answered(self, holder: int, key: Key, out: Out) -> None:
        """Note that somebody holds a message that we gave to him."""
        kept = self.held.get(key)
        if kept is None:
            self._release(key, [holder], out)  # All recipients hold it, so it was forgotten here.
        elif holder not in kept.holders:
            kept.holders.append(holder)
            self._attend(key, out)

    def learn(self, source: int, stream: int, upto: int, ranges: Collection[int], out: Out) -> None:
        """Note that somebody says which messages of a stream enough hold."""
        known, bounds = self.enough[stream], list(ranges)
        before, count = known.upto, known.count
        known.add_upto(upto)
        for first, last in zip(bounds[::2], bounds[1::2], strict=True):
            for number in range(first, last + 1):
                known.add(number)
        if known.count != count:
            self._advance(stream, before, out)
            if source in self.suspected:  # He may not live to tell the others.
                self._tell_all(stream, upto, tuple(ranges), out)

    def forget(self, source: int, stream: int, numbers: Collection[int], out: Out) -> None:
        """Forget messages of which the one who gave them to us says that all their recipients hold them."""
        for number in numbers:
            kept = self.held.get((stream, number))
            if kept is not None and source in kept.givers:
                self._note_enough((stream, number), out)
                del self.held[stream, number]
                self._release((stream, number), [one for one in kept.given if one in kept.holders], out)

    def suspect(self, member: int, suspected: bool, out: Out) -> None:
        """Suspect somebody, or no longer."""
        if suspected == (member in self.suspected):
            return
        if suspected:
            self.suspected[member] = None
            for stream in self.suspected:
                for ranges in ranges_of(self.enough[stream]) if self.enough[stream].count else ():
                    self._tell_all(stream, self.enough[stream].upto, ranges, out)
        else:
            del self.suspected[member]
            for stream, known in enumerate(self.enough):
                if stream not in {member, self._me} and known.count:
                    for ranges in ranges_of(known):
                        self._say(member, ResilientEnough(self._next(member), stream, known.upto, ranges, ()), out)
        for key in list(self.held):
            self._attend(key, out)

    def unsecured(self) -> Iterator[tuple[HeldMessage, int | None]]:
        """Yield our own messages that are not accepted, each with one who should hold it and has not said so."""
        for number in range(self.enough[self._me].upto + 1, self.sent + 1):
            kept = self.held[self._me, number]
            lacking = [] if number in self.enough[self._me] else [one for one in kept.given if one not in kept.holders]
            yield kept, next(iter(lacking), None)

    def _attend(self, key: Key, out: Out) -> None:
        """Do for a message that we hold what there is to be done now."""
        kept = self.held.get(key)
        if kept is None:
            return
        stream, number = key
        kept.custodian = kept.custodian or all(giver in self.suspected for giver in kept.givers)
        holders = dict.fromkeys(one for one in (self._me, stream, *kept.holders) if one not in self.suspected)
        enough = min(self._copies + 1, self._members - len(self.suspected))
        if kept.custodian:
            self._give(kept, [one for one in self._recipients(kept) if one not in kept.holders], out)
            expected = {**holders, **dict.fromkeys(one for one in kept.given if one not in self.suspected)}
            ring = ((self._me + step) % self._members for step in range(1, self._members))
            free = [one for one in ring if one not in expected and one not in self.suspected]
            self._give(kept, free[: max(0, enough - len(expected))], out)
        if len(holders) >= enough and number not in self.enough[stream]:
            self._note_enough(key, out)
            if kept.custodian and stream != self._me:
                self._tell_all(stream, *self._only(key), out)
        if key in self.held:  # Unless that was all that it waited for.
            self._let_go(key, kept, out)

    def _recipients(self, kept: HeldMessage) -> list[int]:
        to = range(self._members) if kept.stamp.to is None else kept.stamp.to
        return [member for member in to if member not in {self._me, kept.stamp.stream}]

    def _give(self, kept: HeldMessage, members: Collection[int], out: Out) -> None:
        stamp = kept.stamp
        for member in members:
            if member in kept.given:
                continue
            kept.given.append(member)
            done: tuple[int, ...] = ()
            if stamp.stream == self._me:
                done = self._take_done(member)
                # With k = 1 whoever gets it knows by that alone that enough hold it.
                knows = stamp.sequence if self._copies == 1 and stamp.safe == stamp.sequence - 1 else stamp.safe
                self._known_upto[member] = max(self._known_upto[member], knows)
            said = msgspec.structs.replace(stamp, number=self._next(member), done=done)
            out.append((member, Frame(said, kept.envelope)))

    def _note_enough(self, key: Key, out: Out) -> None:
        stream, number = key
        before = self.enough[stream].upto
        if self.enough[stream].add(number):
            self._advance(stream, before, out)

    def _advance(self, stream: int, before: int, out: Out) -> None:
        """Do what follows when more of a stream is held by enough than all up to a number."""
        upto = self.enough[stream].upto
        if upto == before:
            return
        self.advanced[stream] = None
        if stream != self._me:
            return
        lacking: dict[int, None] = {}
        for number in range(before + 1, upto + 1):
            kept = self.held[stream, number]
            self.secured.append(kept.envelope)
            lacking.update(dict.fromkeys(member for member in kept.given if self._known_upto[member] < number))
            self._let_go((stream, number), kept, out)
        for member in lacking:
            self._known_upto[member] = upto
            self._say(member, ResilientEnough(self._next(member), stream, upto, (), self._take_done(member)), out)

    def _let_go(self, key: Key, kept: HeldMessage, out: Out) -> None:
        """Forget a message that enough hold, and all its recipients; the copies of those who have it from us may go, too."""
        stream, number = key
        is_enough = number <= self.enough[stream].upto if stream == self._me else number in self.enough[stream]
        if kept.custodian and is_enough and all(one in kept.holders for one in self._recipients(kept)):
            del self.held[key]
            self._release(key, [one for one in kept.given if one in kept.holders], out)

    def _release(self, key: Key, members: Collection[int], out: Out) -> None:
        """Let members know that they may forget a message: of our own, by the next frame that they get anyway."""
        stream, number = key
        for member in members:
            if stream == self._me:
                self._done[member].append(number)
            else:
                self._say(member, ResilientEnough(self._next(member), stream, *self._only(key), (number,)), out)

    def _only(self, key: Key) -> tuple[int, tuple[int, ...]]:
        """Return what is to be said of a stream when one more is held by enough."""
        stream, number = key
        upto = self.enough[stream].upto
        return upto, () if number <= upto else (number, number)

    def _tell_all(self, stream: int, upto: int, ranges: tuple[int, ...], out: Out) -> None:
        for member in range(self._members):
            if member not in {self._me, stream} and member not in self.suspected:
                self._say(member, ResilientEnough(self._next(member), stream, upto, ranges, ()), out)

    def _take_done(self, member: int) -> tuple[int, ...]:
        done, self._done[member] = self._done[member][:MAX_NAMED], self._done[member][MAX_NAMED:]
        return tuple(done)

    def _next(self, member: int) -> int:
        self._numbers[member] += 1
        return self._numbers[member]

    def _say(self, member: int, said: ResilientHeld | ResilientEnough, out: Out) -> None:
        out.append((member, Frame(said, None)))
