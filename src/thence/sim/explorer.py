"""Every run of a small case: does the ordering keep what it promises, whatever arrives when?

The explorer itself decides who sends what to whom and which frame arrives next, in every possible way, up to a
number of messages. Faults that a case names (a member suspects another, a member dies) happen at every possible moment too.

Why it is exhaustive and still quick: runs that lead to the same state go on in the same ways, so of each state only the
first run that reached it goes on. A state is what all members are in, what is on its way between them, and what the
checks know of the run so far. It goes from the states of n actions to those of n + 1, so the first violation found
is a shortest one, and only two such layers are kept. Each step of a member is made once and remembered (``states``). Where
members are interchangeable, one naming of them stands for all.

Where the fabric keeps messages until all have them (docs/concepts/stability.md), it is also checked that nobody says so too
early, and that in the end everybody does.

The check is made from bit masks of causal pasts, independent of every stamp; a violation that is found is
replayed as a scenario and judged again by the judge, so the two must agree.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from thence.core.member.member import Member
from thence.core.ordering import ordering_named
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import ConfigError, UsageError
from thence.sim.states import Pasts, Step, Steps
from thence.sim.world import World

MAX_STEPS = 50_000_000
"""How many steps one search may take before it gives up, loudly."""

PROGRESS_EVERY = 1_000
"""After how many steps progress is told of them."""

CHECKED = ("fifo", "causal", "total")
"""The properties that can be asked for. That nothing is created, doubled or lost, and stability, is always checked."""

MAX_DEPTH = 300
"""How many actions a run may have: a protocol that goes on sending for ever is stopped here, loudly."""


class Fault(enum.Enum):
    """What may go wrong with a member, beside late frames."""

    SUSPECT = "suspect"
    """It holds another one for dead, rightly or not."""
    TRUST = "trust"
    """It holds it for dead no longer."""
    CRASH = "crash"
    """It dies. What it sent before still arrives."""


class Action(NamedTuple):
    """One action: a member sends (``target`` is empty), or the frame at ``place`` from ``source`` to ``target`` arrives.

    Or ``fault`` happens to ``source``, with regard to ``target``.
    """

    source: str
    target: str = ""
    place: int = 0
    to: tuple[str, ...] | None = None
    fault: Fault | None = None

    @property
    def actor(self) -> str:
        """The process at which it happens."""
        return self.source if self.fault else self.target or self.source


class Case(NamedTuple):
    """What to explore: a domain or a fabric, how many messages, and who may be written to."""

    where: Domain | Topology
    messages: int
    pattern: str = "multicast"
    """``unicast``: any one other member; ``multicast``: any set of others; ``broadcast``: everyone, the sender included."""
    require: frozenset[str] | None = None
    """The properties to check; None: what the ordering guarantees. Exactly-once and completeness are always checked."""
    member_type: type[Member] = Member
    """For planted mistakes."""
    faults: tuple[Action, ...] = ()
    """What else may happen, each once, at any time or never."""
    among: tuple[str, ...] | None = None
    """Who may be written to; None: everybody."""

    @property
    def topology(self) -> Topology:
        """The fabric to explore."""
        return self.where if isinstance(self.where, Topology) else Topology.flat(self.where)


class Found(NamedTuple):
    """The result: how many steps were tried, and the shortest violating run, if there is one."""

    steps: int
    property: str | None = None
    actions: tuple[Action, ...] = ()


class Exhausted(UsageError):
    """The search was larger than its limit: nothing is proven."""


State = tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...], int]
"""The number of the past, the states of the members, for each channel the frames on their way, oldest first, and the faults that
have happened, as a bit mask."""

Run = tuple[Any, Action] | None
"""How a state was reached: the run before, and the last action."""


class _Search:
    """One walk through all states of a case, layer by layer."""

    def __init__(self, case: Case, limit: int, progress: Callable[[int], None] | None) -> None:
        self.case = case
        world = World.of(case.topology, case.member_type)
        self.names = tuple(world.members)
        self.fifo = world.fifo
        self.require = case.topology.guarantees if case.require is None else case.require
        (domain, *more) = case.topology.domains.values()
        ordering = ordering_named(domain.ordering)
        self.direct = ordering.traits.direct and not more
        self.stability = case.topology.stability and not case.faults
        self.symmetric = ordering.traits.interchangeable and not domain.options and not more
        self.steps_of = Steps(list(world.members.values()), case.messages)
        self.notices = bool(case.topology.notifying) and not case.faults
        self.pasts = Pasts(len(self.names), case.messages, self.require, ordered=self.notices)
        self.choices = [list(self._choices(name)) if name in case.topology.senders else [] for name in self.names]
        self.limit = limit
        self.progress = progress
        self.steps = 0

    def _choices(self, name: str) -> Iterator[tuple[Action, int]]:
        """Give what a process may send, each with the processes that it goes to, as a bit mask."""
        for to in _destinations(self.case, name):
            yield Action(name, to=to), sum(1 << at for at, other in enumerate(self.names) if to is None or other in to)

    def layers(self) -> Iterator[dict[State, Run]]:
        """Give the states after 0, 1, 2 ... actions, until none is left; what breaks a property is raised as ``_Broken``."""
        count = len(self.names)
        layer: dict[State, Run] = {(0, tuple(range(count)), ((),) * (count * count), 0): None}
        for _ in range(MAX_DEPTH):
            yield layer
            following: dict[State, Run] = {}
            for state, run in layer.items():
                for action, recipients, channel, step in self._possible(state):
                    self._count()
                    after = self._after(state, action, recipients, channel, step, run)
                    if after not in following:
                        following[after] = (run, action)
            if not following:
                return
            layer = following
        raise Exhausted(f"a run has more than {MAX_DEPTH} actions; does the ordering go on sending for ever?")

    def _count(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise Exhausted(f"more than {self.limit} steps; explore fewer messages or processes")
        if self.progress and not self.steps % PROGRESS_EVERY:
            self.progress(PROGRESS_EVERY)

    def _possible(self, state: State) -> Iterator[tuple[Action, int, int, Step]]:
        """Give what can happen next: the action, whom it is for, the channel it empties (or -1), and what the member does."""
        past, members, channels, happened = state
        sent = self.pasts.known[past].sent
        count = len(self.names)
        dead = self._dead(happened)
        for number, fault in enumerate(self.case.faults):
            if not happened >> number & 1 and fault.source not in dead:
                yield fault, 0, -1, self._fault(members, fault)
        for at, name in enumerate(self.names):
            if name in dead:
                continue
            if sent < self.case.messages:
                for action, recipients in self.choices[at]:
                    if sent or not self.symmetric or self._stands_for_its_kind(action):
                        yield action, recipients, -1, self.steps_of.send(at, members[at], action.to)
            for source in range(count):
                channel = source * count + at
                if channels[channel]:
                    for place, frame in self._may_arrive(channels[channel]):
                        step = self.steps_of.arrive(at, members[at], source, frame)
                        yield Action(self.names[source], name, place), 0, channel, step

    def _dead(self, happened: int) -> list[str]:
        """Return who has died."""
        faults = enumerate(self.case.faults) if happened else ()
        return [fault.source for number, fault in faults if happened >> number & 1 and fault.fault is Fault.CRASH]

    def _fault(self, members: tuple[int, ...], fault: Action) -> Step:
        at = self.steps_of.number[fault.source]
        if fault.fault is Fault.CRASH:
            return Step(members[at], (), None, (), None)
        return self.steps_of.suspect(at, members[at], fault.target, fault.fault is Fault.SUSPECT)

    def _may_arrive(self, channel: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the frames of a channel that may arrive next, each with its place in the line; of equal ones the first."""
        if not self.fifo:
            return [(place, frame) for place, frame in enumerate(channel) if channel.index(frame) == place]
        allowed = []
        blocked: set[str] = set()
        for place, frame in enumerate(channel):
            where, _ = self.steps_of.frames[frame]
            if where not in blocked and channel.index(frame) == place:
                allowed.append((place, frame))
            if where in self.fifo:
                blocked.add(where)
        return allowed

    def _stands_for_its_kind(self, action: Action) -> bool:
        """Return whether this first message is the one to try of those that differ only in who is called what.

        Some process sends before it has received anything: call it the first one, and its recipients the next ones.
        """
        return action.source == self.names[0] and (action.to is None or action.to == self.names[1 : 1 + len(action.to)])

    def _after(self, state: State, action: Action, recipients: int, channel: int, step: Step, run: Run) -> State:
        past, members, channels, happened = state
        at = self.steps_of.number[action.actor]
        if step.refused:
            raise _Broken(f"refused: {step.refused}", (run, action))
        then = self.pasts.after(past, at, recipients, step)
        if isinstance(then, str):
            raise _Broken(then, (run, action))
        if channel >= 0 or step.sent:
            lines = list(channels)
            if channel >= 0:
                lines[channel] = lines[channel][: action.place] + lines[channel][action.place + 1 :]
            for onto, frame in step.sent:
                lines[onto] = (*lines[onto], frame)
            channels = tuple(lines)
        if action.fault is not None:
            happened |= 1 << self.case.faults.index(action)
        if happened:
            channels = self._without_dead(channels, happened)
        if self._starves(then, channels, happened):
            raise _Broken("completeness", (run, action))
        members = (*members[:at], step.after, *members[at + 1 :])
        if self.stability and self._breaks_stability(then, at, step, members, channels):
            raise _Broken("stability", (run, action))
        if self.notices and self._breaks_notices(then, at, step, members, channels):
            raise _Broken("notices", (run, action))
        return then, members, channels, happened

    def _breaks_notices(
        self, past: int, at: int, step: Step, members: tuple[int, ...], channels: tuple[tuple[int, ...], ...]
    ) -> bool:
        """Return whether a process is told that a message is safe that its domain lacks, or nothing will ever make it so.

        What led to it must be safe before it.
        """
        known = self.pasts.known[past]
        for message in known.orders[at][: step.safe]:
            for bit in [message, *(bit for bit in range(len(known.causes)) if known.causes[message] >> bit & 1)]:
                if any(self._lacks(past, other, bit, members) for other in self._together(at, message)):
                    return True
        return not any(channels) and any(self.steps_of.unsafe(state) for state in members)

    def _together(self, at: int, message: int) -> list[int]:
        """Return the members of the domain in which a process gets a message; of its own, of all that it is in."""
        topology, origin = self.case.topology, self.names[message // self.case.messages]
        homes = topology.homes[self.names[at]]
        nearest = [home for home in homes if origin in topology.domains[home].members] or homes
        domains = nearest if len(nearest) == 1 or origin == self.names[at] else ()
        together = {member for home in domains if home in topology.notifying for member in topology.domains[home].members}
        return [other for other, name in enumerate(self.names) if name in together]

    def _lacks(self, past: int, other: int, bit: int, members: tuple[int, ...]) -> bool:
        """Return whether a process has not got a message that is for it."""
        _, addressed, delivered, *_ = self.pasts.known[past]
        lacks = addressed[other] >> bit & 1 and not delivered[other] >> bit & 1
        return bool(lacks) and not self.steps_of.has(members[other], self.steps_of.name_of(bit))

    def _breaks_stability(
        self, past: int, at: int, step: Step, members: tuple[int, ...], channels: tuple[tuple[int, ...], ...]
    ) -> bool:
        """Return whether a process says that all have a message that somebody lacks, or nothing will ever make it say so."""
        for number in range(step.stable):
            bit = at * self.case.messages + number
            if any(self._lacks(past, other, bit, members) for other in range(len(members))):
                return True
        return not any(channels) and any(self.steps_of.unstable(state) for state in members)

    def _without_dead(self, channels: tuple[tuple[int, ...], ...], happened: int) -> tuple[tuple[int, ...], ...]:
        """Return what is on its way to the living."""
        dead = {self.steps_of.number[name] for name in self._dead(happened)}
        count = len(self.names)
        return tuple(() if at % count in dead else line for at, line in enumerate(channels)) if dead else channels

    def _starves(self, past: int, channels: tuple[tuple[int, ...], ...], happened: int) -> bool:
        """Return whether a process can get nothing more and still lacks a message."""
        _, addressed, delivered, *_ = self.pasts.known[past]
        if addressed == delivered:
            return False
        dead = self._dead(happened)
        if dead:
            lacking = [name for name, due, got in zip(self.names, addressed, delivered, strict=True) if due != got]
            unused = [fault for number, fault in enumerate(self.case.faults) if not happened >> number & 1]
            # Who is dead may lack what it likes, and whoever suspects it may do so late, but not never.
            if set(lacking) <= set(dead) or any(fault.source not in dead for fault in unused):
                return False
        if not self.direct:
            return not any(channels)
        count = len(self.names)
        return any(addressed[at] != delivered[at] and not any(channels[at::count]) for at in range(count))


class _Broken(Exception):
    """Ends a search: this run breaks this property."""

    def __init__(self, name: str, run: Run) -> None:
        self.property = name
        self.run = run


def _destinations(case: Case, sender: str) -> Iterator[tuple[str, ...] | None]:
    others = [name for name in case.among or case.topology.processes if name != sender]
    if case.pattern == "broadcast":
        yield None
    elif case.pattern == "unicast":
        yield from ((name,) for name in others)
    elif case.pattern == "multicast":
        for size in range(1, len(others) + 1):
            yield from combinations(others, size)
    else:
        raise ConfigError(f"there is no pattern {case.pattern!r} (there are: unicast, multicast, broadcast)")


def _actions(run: Run) -> tuple[Action, ...]:
    actions = []
    while run is not None:
        run, action = run
        actions.append(action)
    return tuple(reversed(actions))


def explore(
    case: Case,
    *,
    limit: int = MAX_STEPS,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Try every run of ``case``; return the shortest that breaks a property, or that there is none."""
    search = _Search(case, limit, progress)
    try:
        for _ in search.layers():
            pass
    except _Broken as broken:
        return Found(search.steps, broken.property, _actions(broken.run))
    return Found(search.steps)
