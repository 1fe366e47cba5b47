"""Every run of a small case: does the ordering keep what it promises, whatever arrives when?

The explorer itself decides who sends what to whom and which frame arrives next, in every possible way, up to a
number of messages. Faults that a case names (a member suspects another, a member dies) happen at every possible moment too.

A state is what all members are in, what is on its way between them, and what the checks know of the run so far. Each step of a
member is made once and remembered (``member_steps``). Where members are interchangeable, one naming of them stands for all.

Where the fabric keeps messages until all have them (docs/concepts/stability.md), it is also checked that nobody says so too
early, and that in the end everybody does. So it is where receivers are told that a message is safe, also where replicas die.

The checks know causal pasts and no stamps (``pasts``). A violation that is found is replayed as a scenario and judged again by
the judge, so the two must agree.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterator
from itertools import combinations
from typing import NamedTuple

from thence.core.member.member import Member
from thence.core.ordering import ordering_named
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import ConfigError
from thence.sim.search.member_steps import MemberStep, MemberSteps
from thence.sim.search.pasts import Pasts
from thence.sim.search.search import MAX_STEPS, Broken, Explored, Model, Progress, Search
from thence.sim.world import World

CHECKED = ("fifo", "causal", "total")
"""The properties that can be asked for. That nothing is created, doubled or lost, and stability, is always checked."""


class Fault(enum.Enum):
    """What may go wrong with a member, beside late frames."""

    SUSPECT = "suspect"
    """It suspects another one, rightly or not."""
    TRUST = "trust"
    """It suspects it no longer."""
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

    def __str__(self) -> str:
        """Return the action as a command of a scenario."""
        if self.fault is not None:
            return " ".join(word for word in (self.fault.value, self.source, self.target) if word)
        if self.target:
            return f"arrive {self.source} {self.target}" + (f" {self.place + 1}" if self.place else "")
        return f"send {self.source} to {'everyone' if self.to is None else ' '.join(self.to)}"


class Case(NamedTuple):
    """What to explore: a domain or a fabric, how many messages, and who may be written to."""

    where: Domain | Topology
    messages: int
    pattern: str = "multicast"
    """``unicast``: any one other member; ``multicast``: any set of others; ``broadcast``: everyone, the sender included."""
    require: frozenset[str] | None = None
    """The properties to check; None: what the ordering guarantees. Exactly-once and completeness are always checked."""
    faults: tuple[Action, ...] = ()
    """What else may happen, each once, at any time or never."""
    among: tuple[str, ...] | None = None
    """Who may be written to; None: everybody."""

    @property
    def topology(self) -> Topology:
        """The fabric to explore."""
        return self.where if isinstance(self.where, Topology) else Topology.flat(self.where)


State = tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...], int]
"""The number of the past, the states of the members, for each channel the frames on their way, oldest first, and the faults that
have happened, as a bit mask."""


class Explorer(Model[State, Action]):
    """Everything that may happen in a case: members send, frames arrive, faults happen."""

    acyclic = True

    def __init__(self, case: Case) -> None:
        """Begin with the members of the case as they are at first."""
        self.case = case
        world = World.of(case.topology)
        self.names = tuple(world.members)
        self.fifo = world.fifo
        self.require = case.topology.guarantees if case.require is None else case.require
        (domain, *more) = case.topology.domains.values()
        ordering = ordering_named(domain.ordering)
        self.direct = ordering.traits.direct and not more
        self.stability = case.topology.stability and not case.faults
        self.symmetric = ordering.traits.interchangeable and not domain.options and not more
        self.notices = bool(case.topology.notifying) and (not case.faults or bool(case.topology.replicas))
        also = _suspicions if self.notices else _nothing
        self.steps = MemberSteps(list(world.members.values()), case.messages, also)
        self.pasts = Pasts(len(self.names), case.messages, self.require, ordered=self.notices)
        self.choices = [list(self._choices(name)) if name in case.topology.senders else [] for name in self.names]

    def _choices(self, name: str) -> Iterator[tuple[Action, int]]:
        """Give what a process may send, each with the processes that it goes to, as a bit mask."""
        for to in _destinations(self.case, name):
            yield Action(name, to=to), sum(1 << at for at, other in enumerate(self.names) if to is None or other in to)

    def start(self) -> State:
        """Return the state in which nothing has happened yet."""
        count = len(self.names)
        return 0, tuple(range(count)), ((),) * (count * count), 0

    def following(self, state: State) -> Iterator[tuple[Action, State]]:
        """Give what can happen next; what an action breaks is raised with it."""
        for action, recipients, channel, step in self._possible(state):
            try:
                yield action, self._after(state, action, recipients, channel, step)
            except Broken as broken:
                broken.action = action
                raise

    def _possible(self, state: State) -> Iterator[tuple[Action, int, int, MemberStep]]:
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
                        yield action, recipients, -1, self.steps.send(members[at], action.to)
            for source in range(count):
                channel = source * count + at
                if channels[channel]:
                    for place, frame in self._may_arrive(channels[channel]):
                        yield Action(self.names[source], name, place), 0, channel, self.steps.arrive(members[at], source, frame)

    def _dead(self, happened: int) -> list[str]:
        """Return who has died."""
        faults = enumerate(self.case.faults) if happened else ()
        return [fault.source for number, fault in faults if happened >> number & 1 and fault.fault is Fault.CRASH]

    def _fault(self, members: tuple[int, ...], fault: Action) -> MemberStep:
        state = members[self.steps.number[fault.source]]
        if fault.fault is Fault.CRASH:
            return MemberStep(state)
        return self.steps.suspect(state, fault.target, fault.fault is Fault.SUSPECT)

    def _may_arrive(self, channel: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return the frames of a channel that may arrive next, each with its place in the line; of equal ones the first."""
        if not self.fifo:
            return [(place, frame) for place, frame in enumerate(channel) if channel.index(frame) == place]
        allowed = []
        blocked: set[str] = set()
        for place, frame in enumerate(channel):
            where, _ = self.steps.frames[frame]
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

    def _after(self, state: State, action: Action, recipients: int, channel: int, step: MemberStep) -> State:
        past, members, channels, happened = state
        at = self.steps.number[action.actor]
        if step.refused:
            raise Broken(f"refused: {step.refused}")
        then = self.pasts.after(past, at, recipients, step.sent, step.delivered)
        if channel >= 0 or step.frames:
            lines = list(channels)
            if channel >= 0:
                lines[channel] = lines[channel][: action.place] + lines[channel][action.place + 1 :]
            for onto, frame in step.frames:
                lines[onto] = (*lines[onto], frame)
            channels = tuple(lines)
        if action.fault is not None:
            happened |= 1 << self.case.faults.index(action)
        if happened:
            channels = self._without_dead(channels, happened)
        if self._starves(then, channels, happened):
            raise Broken("completeness")
        members = (*members[:at], step.after, *members[at + 1 :])
        if self.stability and self._breaks_stability(then, at, step, members, channels):
            raise Broken("stability")
        if self.notices and self._breaks_notices(then, at, step, (members, channels, happened)):
            raise Broken("notices")
        return then, members, channels, happened

    def _breaks_notices(
        self, past: int, at: int, step: MemberStep, then: tuple[tuple[int, ...], tuple[tuple[int, ...], ...], int]
    ) -> bool:
        """Return whether a process is told that a message is safe that somebody lacks, or nothing will ever make it so.

        What led to it must be safe before it. A replica that is suspected may lack it.
        """
        members, channels, happened = then
        known = self.pasts.known[past]
        suspected = {fault.target for number, fault in enumerate(self.case.faults) if happened >> number & 1}
        excused = (suspected | set(self._dead(happened))) & self.case.topology.fellows.keys()
        asked = [other for other, name in enumerate(self.names) if name not in excused]
        for message in known.orders[at][: step.safe]:
            for bit in [message, *(bit for bit in range(len(known.causes)) if known.causes[message] >> bit & 1)]:
                if any(self._lacks(past, other, bit, members) for other in asked):
                    return True
        dead = self._dead(happened)
        if any(channels) or (dead and any(not happened >> number & 1 for number in range(len(self.case.faults)))):
            return False  # Whoever suspects it may do so late, but not never.
        living = [state for name, state in zip(self.names, members, strict=True) if name not in dead]
        return any(self.steps.members[state].log.unsafe for state in living)

    def _lacks(self, past: int, other: int, bit: int, members: tuple[int, ...]) -> bool:
        """Return whether a process has not got a message that is for it."""
        _, addressed, delivered, *_ = self.pasts.known[past]
        lacks = addressed[other] >> bit & 1 and not delivered[other] >> bit & 1
        waits = self.steps.members[members[other]].attachment.waiting() if lacks else ()
        return bool(lacks) and all(str(wait.message) != self.steps.name_of(bit) for wait in waits)

    def _breaks_stability(
        self, past: int, at: int, step: MemberStep, members: tuple[int, ...], channels: tuple[tuple[int, ...], ...]
    ) -> bool:
        """Return whether a process says that all have a message that somebody lacks, or nothing will ever make it say so."""
        for number in range(step.stable):
            bit = at * self.case.messages + number
            if any(self._lacks(past, other, bit, members) for other in range(len(members))):
                return True
        return not any(channels) and any(self.steps.members[state].forwarder.unstable() for state in members)

    def _without_dead(self, channels: tuple[tuple[int, ...], ...], happened: int) -> tuple[tuple[int, ...], ...]:
        """Return what is on its way to the living."""
        dead = {self.steps.number[name] for name in self._dead(happened)}
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


def _nothing(_: Member) -> Hashable:
    """Return what counts of a member beside its snapshot."""
    return None


def _suspicions(member: Member) -> Hashable:
    """Return whom a member suspects, and what follows from it: that is not in its snapshot."""
    stable = [place.stable for place in member.attachment.places.values()]
    return tuple(member.attachment.suspected), tuple(one.stand_ins.waited_for() for one in stable if one is not None)


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


def explore(case: Case, *, limit: int = MAX_STEPS, progress: Progress | None = None) -> Explored[Action]:
    """Try every run of ``case``; return the shortest that breaks a property, or that there is none."""
    return Search(Explorer(case), limit, progress).run()
