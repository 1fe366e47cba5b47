"""Every run of a small case, each once: does the ordering keep what it promises, whatever arrives when?

The explorer itself decides who sends what to whom and which frame arrives next, in every possible way, up to a
number of messages.

Why it is exhaustive and still quick: two actions of different processes that do not touch the same frame commute,
so runs that differ only in such an order are the same run. Of each class of equal runs exactly one is tried, the
one in lexicographic normal form: an action is skipped if it could have been moved in front of an earlier action of
a process with a higher number [Anisimov, Knuth 1979]. So no table of visited states is needed, memory stays flat,
and each run is looked at once. And once the last message is sent, what arrives where no longer matters elsewhere
(if the ordering is ``direct``), so the rest of the run is tried for each process by itself: a sum instead of a
product. Where members are interchangeable, one naming of them stands for all.

The check is made here from bit masks of causal pasts, independent of every stamp; a violation that is found is
replayed as a scenario and judged again by the judge, so the two must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

from thence.core.domain import Domain
from thence.core.member import Member
from thence.core.ordering import ordering_named
from thence.core.topology import Topology
from thence.errors import ConfigError, UsageError
from thence.sim.world import Happened, World

MAX_STEPS = 50_000_000
"""How many steps one search may take before it gives up, loudly."""


PROGRESS_EVERY = 1_000
"""After how many steps progress is told of them."""

CHECKED = ("fifo", "causal", "total")
"""The properties that can be asked for. That nothing is created, doubled or lost is always checked."""

MAX_DEPTH = 300
"""How many actions a run may have: a protocol that goes on sending for ever is stopped here, loudly. Each takes a call."""


BODY = b"body"
"""What every message says: one that arrives without it is none that was sent."""


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

    @property
    def topology(self) -> Topology:
        """The fabric to explore."""
        return self.where if isinstance(self.where, Topology) else Topology.flat(self.where)


class Action(NamedTuple):
    """One action: a member sends (``target`` is empty), or the frame at ``place`` from ``source`` to ``target`` arrives."""

    source: str
    target: str = ""
    place: int = 0
    to: tuple[str, ...] | None = None

    @property
    def actor(self) -> str:
        """The process at which it happens."""
        return self.target or self.source


class Found(NamedTuple):
    """The result: how many steps were tried, and the shortest violating run, if there is one."""

    steps: int
    property: str | None = None
    actions: tuple[Action, ...] = ()


class Exhausted(UsageError):
    """The search was larger than its limit: nothing is proven."""


class _Past(NamedTuple):
    """What the checks need to know of a run, in bit masks over its messages."""

    ids: dict[str, int]
    addressed: tuple[int, ...]
    """Per process: the messages for it."""
    delivered: tuple[int, ...]
    known: tuple[int, ...]
    """Per process: the messages whose sending lies in its causal past."""
    causes: tuple[int, ...]
    """Per message: the messages whose sending lies in the past of its own."""
    same_sender: tuple[int, ...]
    sender: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    """Per process: the messages as delivered."""


class _Search:
    """One walk through all runs of a case, to a given depth."""

    def __init__(self, case: Case, limit: int, progress: Callable[[int], None] | None) -> None:
        self.case = case
        self.topology = case.topology
        self.names = self.topology.processes
        self.number = {name: at for at, name in enumerate(self.names)}
        (domain, *more) = self.topology.domains.values()
        ordering = ordering_named(domain.ordering)
        self.require = self.topology.guarantees if case.require is None else case.require
        # Total order is about what two processes do, so there the rest of a run cannot be tried for each by itself.
        self.direct = ordering.direct and "total" not in self.require and not more
        self.symmetric = ordering.interchangeable and not domain.options and not more
        self.choices = {name: list(_destinations(case, name)) for name in self.names}
        self.limit = limit
        self.progress = progress
        self.steps = 0
        self.cut_short = False

    def run(self, depth: int) -> Found | None:
        """Walk all runs of at most ``depth`` actions."""
        empty = (0,) * len(self.names)
        past = _Past({}, empty, empty, empty, (), (), (), ((),) * len(self.names))
        world = World.of(self.topology, self.case.member_type)
        return self._walk(world, past, (), (), depth)

    def _walk(self, world: World, past: _Past, actions: tuple[Action, ...], actors: tuple[int, ...], depth: int) -> Found | None:
        for action in self._possible(world, past, actors, actions):
            if not depth:
                self.cut_short = True
                return None
            self.steps += 1
            if self.steps > self.limit:
                raise Exhausted(f"more than {self.limit} steps; explore fewer messages or processes")
            if self.progress and not self.steps % PROGRESS_EVERY:
                self.progress(PROGRESS_EVERY)
            if action.target:
                after, happened = world.arrive(action.source, action.target, action.place)
            else:
                after, happened = world.send(action.source, action.to, BODY)
            taken = (*actions, action)
            broken, then = self._judge(past, happened)
            if broken is None and self._starves(after, then):
                broken = "completeness"
            if broken:
                return Found(self.steps, broken, taken)
            found = self._walk(after, then, taken, (*actors, self.number[action.actor]), depth - 1)
            if found:
                return found
        return None

    def _starves(self, world: World, past: _Past) -> bool:
        """Return whether a process can get nothing more and still lacks a message."""
        if not self.direct:
            return world.quiet and past.addressed != past.delivered
        return any(
            past.addressed[at] & ~past.delivered[at] and not any(world.flights.get((source, name)) for source in self.names)
            for at, name in enumerate(self.names)
        )

    def _possible(self, world: World, past: _Past, actors: tuple[int, ...], actions: tuple[Action, ...]) -> Iterator[Action]:
        """Give the actions that keep the run in normal form."""
        all_sent = len(past.sender) == self.case.messages
        only = actions[-1].target if self.direct and all_sent and actions else ""
        for number, name in enumerate(self.names):
            if only and name != only and self._last_sent_before(actions):
                continue
            newest = _last(actors, number)
            if not all_sent and _normal(actors, number, newest):
                for to in self.choices[name]:
                    if actions or not self.symmetric or self._stands_for_its_kind(number, to):
                        yield Action(name, to=to)
            for source in self.names:
                for place, flight in world.may_arrive(source, name):
                    if _normal(actors, number, max(newest, flight.sent_at)):
                        yield Action(source, name, place)

    def _stands_for_its_kind(self, number: int, to: tuple[str, ...] | None) -> bool:
        """Return whether this first message is the one to try of those that differ only in who is called what.

        Some process sends before it has received anything: call it the first one, and its recipients the next ones.
        """
        return number == 0 and (to is None or to == self.names[1 : 1 + len(to)])

    def _last_sent_before(self, actions: tuple[Action, ...]) -> bool:
        """Return whether the last message was sent before the last action, so that the process of that one goes on alone."""
        return sum(not action.target for action in actions[:-1]) == self.case.messages

    def _judge(self, past: _Past, happened: Happened) -> tuple[str | None, _Past]:
        """Return the property that this action breaks, if any, and the past with it."""
        at = self.number[happened.member]
        if happened.refused:
            return f"refused: {happened.refused[0]}", past
        if happened.submitted:
            past = self._sent(past, at, happened.submitted.to, str(happened.submitted.id))
        for delivery in happened.delivered:
            if delivery.envelope.body != BODY:
                return "creation", past
            broken, past = self._delivered(past, at, str(delivery.envelope.id))
            if broken:
                return broken, past
        return None, past

    def _sent(self, past: _Past, at: int, to: tuple[str, ...] | None, name: str) -> _Past:
        number = len(past.sender)
        bit = 1 << number
        recipients = self.names if to is None else to
        same = sum(1 << other for other, sender in enumerate(past.sender) if sender == at)
        return past._replace(
            ids={**past.ids, name: number},
            addressed=tuple(
                mask | bit if who in recipients else mask for who, mask in zip(self.names, past.addressed, strict=True)
            ),
            known=_put(past.known, at, past.known[at] | bit),
            causes=(*past.causes, past.known[at]),
            same_sender=(*past.same_sender, same),
            sender=(*past.sender, at),
        )

    def _delivered(self, past: _Past, at: int, name: str) -> tuple[str | None, _Past]:
        number = past.ids.get(name)
        if number is None or not past.addressed[at] >> number & 1:
            return "creation", past
        if past.delivered[at] >> number & 1:
            return "duplication", past
        awaited = past.addressed[at] & ~past.delivered[at]
        if "fifo" in self.require and past.same_sender[number] & awaited:
            return "fifo", past
        if "causal" in self.require and past.causes[number] & awaited:
            return "causal", past
        if "total" in self.require and self._contradicts(past, at, number):
            return "total", past
        return None, past._replace(
            delivered=_put(past.delivered, at, past.delivered[at] | 1 << number),
            known=_put(past.known, at, past.known[at] | past.causes[number] | 1 << number),
            orders=(*past.orders[:at], (*past.orders[at], number), *past.orders[at + 1 :]),
        )

    @staticmethod
    def _contradicts(past: _Past, at: int, number: int) -> bool:
        """Return whether somebody delivered ``number`` before a message that ``at`` has delivered already."""
        for order in past.orders:
            if number in order and any(past.delivered[at] >> later & 1 for later in order[order.index(number) + 1 :]):
                return True
        return False


def _destinations(case: Case, sender: str) -> Iterator[tuple[str, ...] | None]:
    others = [name for name in case.topology.processes if name != sender]
    if case.pattern == "broadcast":
        yield None
    elif case.pattern == "unicast":
        yield from ((name,) for name in others)
    elif case.pattern == "multicast":
        for size in range(1, len(others) + 1):
            yield from combinations(others, size)
    else:
        raise ConfigError(f"there is no pattern {case.pattern!r} (there are: unicast, multicast, broadcast)")


def _put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _last(actors: tuple[int, ...], number: int) -> int:
    """Return when this process acted last, or -1."""
    for at in range(len(actors) - 1, -1, -1):
        if actors[at] == number:
            return at
    return -1


def _normal(actors: tuple[int, ...], number: int, depends_on: int) -> bool:
    """Return whether an action of this process may stand here in lexicographic normal form."""
    return all(actor <= number for actor in actors[depends_on + 1 :])


def explore(
    case: Case,
    *,
    limit: int = MAX_STEPS,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Try every run of ``case``; return the shortest that breaks a property, or that there is none."""
    search = _Search(case, limit, progress)
    found = search.run(MAX_DEPTH)
    if found is None and search.cut_short:
        raise Exhausted(f"a run has more than {MAX_DEPTH} actions; does the ordering go on sending for ever?")
    if found is None:
        return Found(search.steps)
    # There is a violation. Now deeper step by step, so that the first one found is a shortest one.
    for depth in range(1, len(found.actions)):
        shorter = search.run(depth)
        if shorter:
            return shorter
    return found._replace(steps=search.steps)
