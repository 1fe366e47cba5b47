"""Every run of two servers that meet, send, crash and go back to a copy: is a number used twice, or somebody refused wrongly?

The explorer (``sim.explorer``) tries every arrival order of frames between members that do not forget. Here it is the other way
round: what is sent is trivial, and everything that meetings depend on may happen at every moment. A side is its disk and what it
keeps in memory; the handshake is the real one (``core.epochs.handshake``).

It goes from the states of n actions to those of n + 1 and keeps one run to each state, so the first violation found is a
shortest one. Rules of the model:

* A message is durable as soon as it is sent or taken, and with it what was stored before. Otherwise a claim is durable when the
  disk has synced, which is an action of its own.
* On a link everything arrives in order. Whoever ends a link hears nothing more of it; what was on the way to the other side still
  arrives, and then that it has ended. So a call may arrive after a later one of the same caller.
* Nothing but epochs can show anything: what was acknowledged is not remembered.
* ``copy`` keeps the disk of the first side; ``rollback`` lets it start from that; ``clone`` lets another side of the same name
  start from it, which calls the second side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from thence.core.epochs.epoch import NEVER_MET, Claim, Epoch, Held, Side, compare
from thence.core.epochs.handshake import Handshake, Own, Shown, Stage
from thence.core.epochs.progress import Progress
from thence.errors import UsageError

MAX_STATES = 3_000_000
"""How many states one search may look at before it gives up, loudly."""

Verb = Literal["send", "call", "deliver", "sync", "crash", "copy", "rollback", "clone"]


class Action(NamedTuple):
    """One action of a side; with ``deliver`` the link on which something reaches it."""

    verb: Verb
    side: int
    link: int = 0


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
    """What is told before it is stored: ``offering``, ``agreeing``."""
    reaches_anew: bool = False
    """Whether each start since a meeting counts, not only the first."""
    keeps_older: bool = False
    """Whether an older connection goes on while another is being made."""


class Found(NamedTuple):
    """How many states were looked at, and the shortest violating run, if there is one."""

    states: int
    problem: str = ""
    actions: tuple[Action, ...] = ()


class _Disk(NamedTuple):
    claim: Claim = NEVER_MET
    sent: tuple[int, ...] = ()
    """What was sent under each number: a mark that is used once."""
    taken: tuple[int, ...] = ()


class _Side(NamedTuple):
    name: str
    disk: _Disk = _Disk()
    claim: Claim = NEVER_MET
    stage: Stage = "idle"
    link: int = 0
    fresh: Epoch = Epoch()
    unsynced: bool = False
    joined: int = 0
    """The link over which it sends and takes; 0: none."""
    ended: bool = False
    """Whether it was fenced."""


class _Said(NamedTuple):
    kind: Literal["hello", "welcome", "refused", "agreed", "packet", "reset"]
    claim: Claim = NEVER_MET
    sent: int = 0
    taken: int = 0
    epoch: Epoch = Epoch()
    marks: tuple[int, ...] = ()


class _Link(NamedTuple):
    number: int
    ends: tuple[int, int]
    """Who called whom."""
    lines: tuple[tuple[_Said, ...], tuple[_Said, ...]] = ((), ())
    """What is on its way to the caller, and to the called side."""
    closed: tuple[bool, bool] = (False, False)
    """Whether the caller has ended it, and the called side."""


class _State(NamedTuple):
    sides: tuple[_Side, ...]
    links: tuple[_Link, ...] = ()
    used: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Sends, calls, crashes, copies used so far."""
    marks: int = 0
    copy: _Disk | None = None
    old: bool = False
    """Whether somebody runs on a copy."""


class _Broken(Exception):
    """A violation."""


class _Step:
    """One action on one state; ``state`` is what comes of it."""

    def __init__(self, state: _State, mistakes: Mistakes) -> None:
        self.sides = list(state.sides)
        self.links = {link.number: link for link in state.links}
        self.used = list(state.used)
        self.marks = state.marks
        self.copy = state.copy
        self.old = state.old
        self._mistakes = mistakes

    @property
    def state(self) -> _State:
        """The state after it; links that nobody hears of any more are forgotten."""
        links = tuple(link for link in self.links.values() if any(link.lines) or not all(link.closed))
        used = (self.used[0], self.used[1], self.used[2], self.used[3])
        return _State(tuple(self.sides), links, used, self.marks, self.copy, self.old)

    def do(self, action: Action) -> None:
        """Make it happen."""
        if action.verb == "send":
            self._send(action.side)
        elif action.verb == "call":
            self._call(action.side)
        elif action.verb == "deliver":
            self._deliver(action.side, action.link)
        elif action.verb == "sync":
            self._synced(action.side)
        elif action.verb == "crash":
            self.used[2] += 1
            self._start(action.side, self.sides[action.side].disk)
        elif action.verb == "copy":
            self.used[3] += 1
            self.copy = self.sides[action.side].disk
        else:
            self._return(action)

    def _return(self, action: Action) -> None:
        copy, self.copy, self.old = self.copy or _Disk(), None, True
        if action.verb == "clone":
            self.sides.append(_Side(self.sides[0].name))
            self._start(len(self.sides) - 1, copy)
        else:
            self._start(0, copy)

    def _start(self, at: int, disk: _Disk) -> None:
        for number, link in list(self.links.items()):
            if at in link.ends:
                self._end(number, at)
        claim = disk.claim
        if claim != NEVER_MET:
            if self._mistakes.reaches_anew:
                agreed, *offers = (Held(held.epoch) for held in claim.held)
                claim = Claim(agreed, offers[-1] if offers else None, tuple(offers[:-1]))
            claim = claim.started({"d": len(disk.sent)})
        self.sides[at] = _Side(self.sides[at].name, disk._replace(claim=claim), claim)

    # Links.

    def _say(self, number: int, sender: int, said: _Said) -> None:
        link = self.links[number]
        to = 1 if link.ends[0] == sender else 0
        if not link.closed[to]:
            lines = list(link.lines)
            lines[to] = (*lines[to], said)
            self.links[number] = link._replace(lines=(lines[0], lines[1]))

    def _end(self, number: int, side: int) -> None:
        """A side ends a link."""
        link = self.links[number]
        at = link.ends.index(side)
        if link.closed[at]:
            return
        self._say(number, side, _Said("reset"))
        link = self.links[number]
        lines, closed = list(link.lines), list(link.closed)
        lines[at], closed[at] = (), True
        self.links[number] = link._replace(lines=(lines[0], lines[1]), closed=(closed[0], closed[1]))
        one = self.sides[side]
        handshake = self._handshake(side)
        handshake.lost(number)
        self._keep(side, handshake)
        if one.joined == number:
            self.sides[side] = self.sides[side]._replace(joined=0)

    def _handshake(self, at: int) -> Handshake:
        one = self.sides[at]
        made = self._mistakes.handshake(one.name, "b" if one.name == "a" else "a", one.claim)
        made.stage, made.link, made.fresh = one.stage, one.link or None, one.fresh
        return made

    def _keep(self, at: int, made: Handshake) -> None:
        link = made.link if isinstance(made.link, int) else 0
        self.sides[at] = self.sides[at]._replace(claim=made.claim, stage=made.stage, link=link, fresh=made.fresh)

    # Actions.

    def _send(self, at: int) -> None:
        self.used[0] += 1
        self.marks += 1
        self._flush(at)
        one = self.sides[at]
        self.sides[at] = one._replace(disk=one.disk._replace(sent=(*one.disk.sent, self.marks)))
        self._transmit(at)

    def _transmit(self, at: int) -> None:
        one = self.sides[at]
        if one.joined and one.disk.sent:
            self._say(one.joined, at, _Said("packet", marks=one.disk.sent))

    def _own(self, at: int) -> Own:
        disk = self.sides[at].disk
        return Own({"d": Progress(len(disk.sent), 0, len(disk.taken), len(disk.taken))})

    def _shown(self, at: int, kind: Literal["hello", "welcome", "refused"]) -> _Said:
        disk = self.sides[at].disk
        return _Said(kind, self._handshake(at).shows(self._own(at)), len(disk.sent), len(disk.taken))

    def _call(self, at: int) -> None:
        self.used[1] += 1
        number = self.used[1]
        self.links[number] = _Link(number, (at, 0 if at == 1 else 1))
        handshake = self._handshake(at)
        handshake.call(number)
        self._keep(at, handshake)
        self._say(number, at, self._shown(at, "hello"))

    def _deliver(self, at: int, number: int) -> None:
        link = self.links[number]
        to = link.ends.index(at)
        said, lines = link.lines[to][0], list(link.lines)
        lines[to] = lines[to][1:]
        self.links[number] = link._replace(lines=(lines[0], lines[1]))
        shown = Shown(said.claim, {"d": Progress(said.sent, 0, said.taken, said.taken)})
        if said.kind == "reset":
            self._end(number, at)
        elif said.kind == "packet":
            self._packet(at, number, said.marks)
        elif said.kind == "hello":
            self._hello(at, number, shown)
        elif said.kind == "welcome":
            self._welcome(at, number, shown)
        elif said.kind == "agreed":
            self._agreed(at, number, said.epoch)
        else:
            handshake = self._handshake(at)
            current, found = handshake.is_current(number), handshake.compare(self._own(at), shown)
            self._end(number, at)
            if current:
                self._refuse(at, found.behind)

    def _packet(self, at: int, number: int, marks: tuple[int, ...]) -> None:
        one = self.sides[at]
        if one.joined != number:
            self._end(number, at)
            return
        taken = one.disk.taken
        for mark, other in zip(taken, marks, strict=False):
            if mark != other:
                raise _Broken("a number was used twice: what was sent is dropped as a repetition")
        if len(marks) > len(taken):
            self._flush(at)
            one = self.sides[at]
            self.sides[at] = one._replace(disk=one.disk._replace(taken=marks))

    def _hello(self, at: int, number: int, shown: Shown) -> None:
        handshake = self._handshake(at)
        found = handshake.hello(number, self._own(at), shown, f"e{number}")
        self._keep(at, handshake)
        if found.reason:
            self._say(number, at, self._shown(at, "refused"))
            self._end(number, at)
            # It may be the call of one that has died since, so this alone is no alarm.
            if found.behind == "me" and not self.sides[at].joined:
                self._refuse(at, found.behind)
            return
        if not self._mistakes.keeps_older:
            for other in [other for other, link in self.links.items() if at in link.ends and other != number]:
                if not self._unheard(other, at):
                    self._end(other, at)
        self._store(at)

    def _unheard(self, number: int, at: int) -> bool:
        """Return whether a call is still on its way to a side, which cannot know whose it is."""
        ends, lines = self.links[number].ends, self.links[number].lines
        return ends[1] == at and bool(lines[1]) and lines[1][0].kind == "hello"

    def _welcome(self, at: int, number: int, shown: Shown) -> None:
        handshake = self._handshake(at)
        found = handshake.welcome(number, self._own(at), shown)
        self._keep(at, handshake)
        if found is None:
            self._end(number, at)
        elif found.reason:
            self._end(number, at)
            self._refuse(at, found.behind)
        else:
            self._store(at)

    def _agreed(self, at: int, number: int, epoch: Epoch) -> None:
        handshake = self._handshake(at)
        joined = handshake.agreed(number, epoch)
        self._keep(at, handshake)
        if joined:
            self.sides[at] = self.sides[at]._replace(unsynced=True)
            self._join(at, number)
        else:
            self._end(number, at)

    def _store(self, at: int) -> None:
        self.sides[at] = self.sides[at]._replace(unsynced=True)
        if self.sides[at].stage in self._mistakes.eager:
            self._go_on(at)

    def _flush(self, at: int) -> None:
        """What is stored now is stored behind the claim."""
        if self.sides[at].unsynced:
            self._synced(at)

    def _synced(self, at: int) -> None:
        one = self.sides[at]
        self.sides[at] = one._replace(unsynced=False, disk=one.disk._replace(claim=one.claim))
        self._go_on(at)

    def _go_on(self, at: int) -> None:
        """Do what had to wait for the disk."""
        handshake, number = self._handshake(at), self.sides[at].link
        if handshake.stage == "offering" and handshake.offering(number):
            self._keep(at, handshake)
            self._say(number, at, self._shown(at, "welcome"))
        elif handshake.stage == "agreeing":
            epoch = handshake.agreeing(number)
            self._keep(at, handshake)
            if epoch is not None:
                self._say(number, at, _Said("agreed", epoch=epoch))
                self._join(at, number)

    def _join(self, at: int, number: int) -> None:
        self.sides[at] = self.sides[at]._replace(joined=number)
        # What a side takes is stored behind its claim.
        self._transmit(at)

    def check(self) -> None:
        """Whoever crashes now, the two go on when they meet again, if nobody runs on a copy."""
        one, two = self.sides[:2]
        for mine in () if self.old else (one.disk.claim, one.claim):
            for theirs in (two.disk.claim, two.claim):
                found = compare(Side("a", mine, self._own(0).progress), Side("b", theirs, self._own(1).progress))
                if found.reason:
                    raise _Broken("nobody runs on a copy, and the two do not go on when they meet again")

    def _refuse(self, at: int, behind: str) -> None:
        if not self.old:
            raise _Broken("somebody is refused where nobody runs on a copy")
        if behind == "me":
            if self.sides[at].name == "b":
                raise _Broken("the side that never went back is fenced")
            self.sides[at] = self.sides[at]._replace(ended=True)


def _possible(state: _State, bounds: Bounds) -> Iterator[Action]:
    crashes, copies = state.used[2:]
    for at, one in enumerate(state.sides):
        if not one.ended:
            acts = at != 1 or not bounds.one_way
            yield from _of_side(state, bounds, at, one, acts=acts)
            if acts and crashes < bounds.crashes:
                yield Action("crash", at)
    for link in state.links:
        for to, at in enumerate(link.ends):
            if link.lines[to] and not state.sides[at].ended:
                yield Action("deliver", at, link.number)
    if copies < bounds.copies and not state.sides[0].ended:
        yield Action("copy", 0)
    if state.copy is not None and not state.sides[0].ended:
        yield Action("clone" if bounds.clone else "rollback", 0)


def _of_side(state: _State, bounds: Bounds, at: int, one: _Side, *, acts: bool) -> Iterator[Action]:
    if acts and state.used[0] < bounds.sends:
        yield Action("send", at)
    if acts and state.used[1] < bounds.calls and one.stage == "idle" and not one.unsynced:
        yield Action("call", at)
    if one.unsynced:
        yield Action("sync", at)


def search(bounds: Bounds, mistakes: Mistakes | None = None, limit: int = MAX_STATES) -> Found:
    """Look at every run within these bounds; return the shortest one that breaks something, if any does."""
    first = _State((_Side("a"), _Side("b")))
    seen = {_ENCODER.encode(first)}
    layer: list[tuple[_State, _Run]] = [(first, None)]
    while layer:
        following: list[tuple[_State, _Run]] = []
        for state, run in layer:
            for action in _possible(state, bounds):
                step = _Step(state, mistakes or Mistakes())
                try:
                    step.do(action)
                    step.check()
                except _Broken as broken:
                    return Found(len(seen), str(broken), _actions((run, action)))
                after = step.state
                key = _ENCODER.encode(after)
                if key not in seen:
                    seen.add(key)
                    following.append((after, (run, action)))
        if len(seen) > limit:
            raise UsageError(f"more than {limit} states; search less")
        layer = following
    return Found(len(seen))


def _actions(run: _Run) -> tuple[Action, ...]:
    actions = []
    while run is not None:
        run, action = run
        actions.append(action)
    return tuple(reversed(actions))


_Run = tuple[Any, Action] | None
"""How a state was reached: the run before, and the last action."""

_ENCODER = msgspec.msgpack.Encoder()
