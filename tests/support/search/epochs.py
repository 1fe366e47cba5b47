"""Every run of two servers that connect, send, crash and go back to a copy: is a number used twice, or somebody refused wrongly?

The explorer (``explorer``) tries every arrival order of frames between members that do not forget. Here it is the other way
round: what is sent is trivial, and everything that a handshake depends on may happen at every moment. A side is its disk and
what it keeps in memory; the handshake is the real one (``core.epochs.handshake``).

Rules of the model:

* A message is durable as soon as it is sent or taken, and with it what was stored before. Otherwise a claim is durable when the
  disk has synced, which is an action of its own.
* On a link everything arrives in order. Whoever ends a link hears nothing more of it; what was on the way to the other side still
  arrives, and then that it has ended. So a call may arrive after a later one of the same caller.
* Nothing but epochs can show anything: what was acknowledged is not remembered.
* ``copy`` keeps the disk of the first side; ``rollback`` lets it start from that; ``clone`` lets another side of the same name
  start from it, which calls the second side.
* A state is the encoded form of a ``_Pair``. An action decodes it, changes it, and encodes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

import msgspec

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, Held, Side, compare
from thence.core.epochs.handshake import Handshake, Own, Shown, Stage
from thence.core.epochs.progress import Progress
from thence.sim.search.search import MAX_STEPS, Broken, Explored, Model, Search

Verb = Literal["send", "call", "deliver", "sync", "crash", "copy", "rollback", "clone"]


class Move(NamedTuple):
    """One action of a side; with ``deliver`` the link on which something reaches it."""

    verb: Verb
    side: int
    link: int = 0

    def __str__(self) -> str:
        """Return the action for people."""
        return f"side {self.side}: {self.verb}" + (f" on link {self.link}" if self.link else "")


class Bounds(NamedTuple):
    """How often each may happen in one run."""

    sends: int = 3
    calls: int = 2
    crashes: int = 1
    copies: int = 1
    """How many times the first side is copied, and then goes back or is cloned."""
    clone: bool = False
    """Whether a copy runs beside the first side, and does not replace it."""
    one_way: bool = False
    """Whether the second side neither sends nor calls nor crashes: fewer runs, for longer ones."""


class Mistakes(NamedTuple):
    """What may be planted."""

    handshake: type[Handshake] = Handshake
    eager: frozenset[Stage] = frozenset()
    """What is said before it is stored: ``offering``, ``agreeing``."""
    reaches_anew: bool = False
    """Whether each start since a handshake counts, not only the first."""
    keeps_older: bool = False
    """Whether an older connection goes on while another is being made."""


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """What a side has on disk."""

    claim: Claim = NEVER_MET
    sent: tuple[int, ...] = ()
    """What was sent under each number: a mark that is used once."""
    got: tuple[int, ...] = ()

    @property
    def progress(self) -> dict[str, Progress]:
        """What the numbers say, in the one stream that there is."""
        return {"d": Progress(len(self.sent), 0, len(self.got), len(self.got))}


class _End(msgspec.Struct, array_like=True):
    """One side: its disk and its memory."""

    name: str
    disk: _Stored = _Stored()
    claim: Claim = NEVER_MET
    stage: Stage = "idle"
    link: int = 0
    fresh: Epoch = Epoch()
    unsynced: bool = False
    joined: int = 0
    """The link over which it sends and takes; 0: none."""
    fenced: bool = False

    def store(self) -> bool:
        """Make durable what it claims; return whether it was not."""
        if not self.unsynced:
            return False
        self.unsynced, self.disk = False, msgspec.structs.replace(self.disk, claim=self.claim)
        return True


class _Word(msgspec.Struct, frozen=True, array_like=True):
    """What is said on a link."""

    kind: Literal["hello", "welcome", "refused", "agreed", "packet", "reset"]
    claim: Claim = NEVER_MET
    progress: dict[str, Progress] = {}
    epoch: Epoch = Epoch()
    marks: tuple[int, ...] = ()


class _Line(msgspec.Struct, array_like=True):
    """One connection."""

    ends: tuple[int, int]
    """Who called whom."""
    words: tuple[list[_Word], list[_Word]]
    """What is on its way to the caller, and to the called side."""
    closed: list[bool]
    """Whether the caller has ended it, and the called side."""


class _Pair(msgspec.Struct, array_like=True):
    """All there is. Links that nobody hears of any more are forgotten."""

    sides: list[_End]
    links: dict[int, _Line] = {}
    sends: int = 0
    calls: int = 0
    crashes: int = 0
    copies: int = 0
    copy: _Stored | None = None
    old: bool = False
    """Whether somebody runs on a copy."""

    def say(self, number: int, sender: int, word: _Word) -> None:
        """Put something on a link, unless the other side has ended it."""
        link = self.links[number]
        to = 1 - link.ends.index(sender)
        if not link.closed[to]:
            link.words[to].append(word)

    def transmit(self, at: int) -> None:
        """A side sends all that it has, if it is joined."""
        one = self.sides[at]
        if one.joined and one.disk.sent:
            self.say(one.joined, at, _Word("packet", marks=one.disk.sent))

    def join(self, at: int, number: int) -> None:
        """A side is joined over a link from now on."""
        self.sides[at].joined = number
        self.transmit(at)

    def hang_up(self, number: int, at: int) -> bool:
        """A side ends a link; return whether it had not before."""
        link = self.links[number]
        me = link.ends.index(at)
        if link.closed[me]:
            return False
        self.say(number, at, _Word("reset"))
        link.words[me].clear()
        link.closed[me] = True
        return True


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Pair)


class Epochs(Model[bytes, Move]):
    """Everything that may happen to two sides within bounds."""

    def __init__(self, bounds: Bounds, mistakes: Mistakes) -> None:
        """Begin with two sides that have never met."""
        self._bounds = bounds
        self._mistakes = mistakes

    def start(self) -> bytes:
        """Return the state in which nothing has happened yet."""
        return _ENCODER.encode(_Pair([_End("a"), _End("b")]))

    def following(self, state: bytes) -> Iterator[tuple[Move, bytes]]:
        """Give what can happen next; what a move breaks is raised with it."""
        for move in self._possible(_DECODER.decode(state)):
            pair = _DECODER.decode(state)
            try:
                self._do(pair, move)
                self._check(pair)
            except Broken as broken:
                broken.action = move
                raise
            pair.links = {number: link for number, link in pair.links.items() if any(link.words) or not all(link.closed)}
            yield move, _ENCODER.encode(pair)

    def _possible(self, pair: _Pair) -> Iterator[Move]:
        bounds = self._bounds
        for at, one in enumerate(pair.sides):
            if one.fenced:
                continue
            acts = at != 1 or not bounds.one_way
            if acts and pair.sends < bounds.sends:
                yield Move("send", at)
            if acts and pair.calls < bounds.calls and one.stage == "idle" and not one.unsynced:
                yield Move("call", at)
            if one.unsynced:
                yield Move("sync", at)
            if acts and pair.crashes < bounds.crashes:
                yield Move("crash", at)
        for number, link in pair.links.items():
            for to, at in enumerate(link.ends):
                if link.words[to] and not pair.sides[at].fenced:
                    yield Move("deliver", at, number)
        if pair.copies < bounds.copies and not pair.sides[0].fenced:
            yield Move("copy", 0)
        if pair.copy is not None and not pair.sides[0].fenced:
            yield Move("clone" if bounds.clone else "rollback", 0)

    def _do(self, pair: _Pair, move: Move) -> None:
        at = move.side
        if move.verb == "send":
            self._send(pair, at)
        elif move.verb == "call":
            self._call(pair, at)
        elif move.verb == "deliver":
            self._deliver(pair, at, move.link)
        elif move.verb == "sync":
            self._sync(pair, at)
        elif move.verb == "crash":
            pair.crashes += 1
            self._restart(pair, at, pair.sides[at].disk)
        elif move.verb == "copy":
            pair.copies += 1
            pair.copy = pair.sides[at].disk
        else:
            copy, pair.copy, pair.old = pair.copy or _Stored(), None, True
            if move.verb == "clone":
                pair.sides.append(_End(pair.sides[0].name))
                at = len(pair.sides) - 1
            self._restart(pair, at, copy)

    def _restart(self, pair: _Pair, at: int, disk: _Stored) -> None:
        for number in [number for number, link in pair.links.items() if at in link.ends]:
            self._end(pair, number, at)
        claim = disk.claim
        if claim != NEVER_MET:
            if self._mistakes.reaches_anew:
                agreed, *offers = (Held(held.epoch) for held in claim.held)
                claim = Claim(agreed, offers[-1] if offers else None, tuple(offers[:-1]))
            claim = claim.started({"d": len(disk.sent)})
        pair.sides[at] = _End(pair.sides[at].name, msgspec.structs.replace(disk, claim=claim), claim)

    @contextmanager
    def _handshake(self, one: _End) -> Iterator[Handshake]:
        """Give the handshake of a side, and keep what becomes of it."""
        made = self._mistakes.handshake(one.name, "b" if one.name == "a" else "a", one.claim)
        made.stage, made.link, made.fresh = one.stage, one.link or None, one.fresh
        yield made
        one.claim, one.stage, one.fresh = made.claim, made.stage, made.fresh
        one.link = made.link if isinstance(made.link, int) else 0

    def _end(self, pair: _Pair, number: int, at: int) -> None:
        one = pair.sides[at]
        if pair.hang_up(number, at):
            with self._handshake(one) as handshake:
                handshake.lost(number)
            one.joined = 0 if one.joined == number else one.joined

    def _show(self, pair: _Pair, at: int, number: int, kind: Literal["hello", "welcome", "refused"]) -> None:
        progress = pair.sides[at].disk.progress
        with self._handshake(pair.sides[at]) as handshake:
            pair.say(number, at, _Word(kind, handshake.shows(Own(progress)), progress))

    # What a side does.

    def _send(self, pair: _Pair, at: int) -> None:
        pair.sends += 1
        self._sync(pair, at)
        one = pair.sides[at]
        one.disk = msgspec.structs.replace(one.disk, sent=(*one.disk.sent, pair.sends))
        pair.transmit(at)

    def _call(self, pair: _Pair, at: int) -> None:
        pair.calls += 1
        pair.links[pair.calls] = _Line((at, 0 if at == 1 else 1), ([], []), [False, False])
        with self._handshake(pair.sides[at]) as handshake:
            handshake.call(pair.calls)
        self._show(pair, at, pair.calls, "hello")

    def _sync(self, pair: _Pair, at: int) -> None:
        """Make durable what a side claims; whatever it stores from now on is behind that."""
        if pair.sides[at].store():
            self._go_on(pair, at)

    def _go_on(self, pair: _Pair, at: int) -> None:
        """Do what had to wait for the disk."""
        number, epoch = pair.sides[at].link, None
        with self._handshake(pair.sides[at]) as handshake:
            offers = handshake.offering(number)
            if not offers:
                epoch = handshake.agreeing(number)
        if offers:
            self._show(pair, at, number, "welcome")
        elif epoch is not None:
            pair.say(number, at, _Word("agreed", epoch=epoch))
            pair.join(at, number)

    # What reaches it.

    def _deliver(self, pair: _Pair, at: int, number: int) -> None:
        one, link = pair.sides[at], pair.links[number]
        word = link.words[link.ends.index(at)].pop(0)
        own, shown = Own(one.disk.progress), Shown(word.claim, word.progress)
        if word.kind == "reset":
            self._end(pair, number, at)
        elif word.kind == "packet":
            self._packet(pair, at, number, word.marks)
        elif word.kind == "hello":
            self._hello(pair, at, number, own, shown)
        elif word.kind == "welcome":
            self._welcome(pair, at, number, own, shown)
        elif word.kind == "agreed":
            self._agreed(pair, at, number, word.epoch)
        else:
            with self._handshake(one) as handshake:
                current, found = handshake.is_current(number), handshake.compare(own, shown)
            self._end(pair, number, at)
            if current:
                self._refuse(pair, at, found.behind)

    def _packet(self, pair: _Pair, at: int, number: int, marks: tuple[int, ...]) -> None:
        one = pair.sides[at]
        if one.joined != number:
            self._end(pair, number, at)
            return
        if any(mark != other for mark, other in zip(one.disk.got, marks, strict=False)):
            raise Broken("a number was used twice: what was sent is dropped as a repetition")
        if len(marks) > len(one.disk.got):
            self._sync(pair, at)
            one.disk = msgspec.structs.replace(one.disk, got=marks)

    def _hello(self, pair: _Pair, at: int, number: int, own: Own, shown: Shown) -> None:
        with self._handshake(pair.sides[at]) as handshake:
            found = handshake.hello(number, own, shown, f"e{number}")
        if found.reason:
            self._show(pair, at, number, "refused")
            self._end(pair, number, at)
            # It may be the call of one that has died since, so this alone is no alarm.
            if found.behind == "me" and not pair.sides[at].joined:
                self._refuse(pair, at, found.behind)
            return
        others = [other for other, link in pair.links.items() if at in link.ends and other != number]
        for other in () if self._mistakes.keeps_older else others:
            ends, words = pair.links[other].ends, pair.links[other].words
            unheard = ends[1] == at and words[1] and words[1][0].kind == "hello"
            if not unheard:  # Of a call that is still on its way a side cannot know whose it is.
                self._end(pair, other, at)
        self._store(pair, at)

    def _welcome(self, pair: _Pair, at: int, number: int, own: Own, shown: Shown) -> None:
        with self._handshake(pair.sides[at]) as handshake:
            found = handshake.welcome(number, own, shown)
        if found is None or found.reason:
            self._end(pair, number, at)
            if found is not None:
                self._refuse(pair, at, found.behind)
        else:
            self._store(pair, at)

    def _agreed(self, pair: _Pair, at: int, number: int, epoch: Epoch) -> None:
        with self._handshake(pair.sides[at]) as handshake:
            joined = handshake.agreed(number, epoch)
        if joined:
            pair.sides[at].unsynced = True
            pair.join(at, number)
        else:
            self._end(pair, number, at)

    def _store(self, pair: _Pair, at: int) -> None:
        pair.sides[at].unsynced = True
        if pair.sides[at].stage in self._mistakes.eager:
            self._go_on(pair, at)

    # What must never be.

    def _check(self, pair: _Pair) -> None:
        """Whoever crashes now, the two go on when they connect again, if nobody runs on a copy."""
        one, two = pair.sides[:2]
        for mine in () if pair.old else (one.disk.claim, one.claim):
            for theirs in (two.disk.claim, two.claim):
                if compare(Side("a", mine, one.disk.progress), Side("b", theirs, two.disk.progress)).reason:
                    raise Broken("nobody runs on a copy, and the two do not go on when they meet again")

    def _refuse(self, pair: _Pair, at: int, behind: str) -> None:
        if not pair.old:
            raise Broken("somebody is refused where nobody runs on a copy")
        if behind == "me":
            if pair.sides[at].name == "b":
                raise Broken("the side that never went back is fenced")
            pair.sides[at].fenced = True


def explore_epochs(bounds: Bounds, mistakes: Mistakes | None = None, limit: int = MAX_STEPS) -> Explored[Move]:
    """Look at every run within these bounds; return the shortest one that breaks something, if any does."""
    return Search(Epochs(bounds, mistakes or Mistakes()), limit).run()
