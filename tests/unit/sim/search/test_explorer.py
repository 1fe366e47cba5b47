"""The explorer finds what is there to find, nothing else, and leaves no run out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, permutations
from typing import Any

import pytest

from tests.support.explorer_cases import CASES, case, label
from tests.support.planted.planted_orderings import HARMLESS, PLANTED, Planted
from thence.core.ordering import Output
from thence.core.ordering.fifo import Fifo, FifoStamp
from thence.core.topology.domain import Domain
from thence.core.wire.messages import Frame
from thence.errors import ConfigError
from thence.sim.scenario import Stage, from_actions, parse, run_text
from thence.sim.search.explorer import Action, Case, Explorer, State, explore
from thence.sim.search.search import PROGRESS_EVERY, Exhausted, Explored, Search, replay
from thence.sim.world import World
from thence.trace.judge import judge

NAMES = ("A", "B", "C")


def case_of(planted: Planted) -> Case:
    return Case(Domain("d", NAMES, planted.ordering, planted.options), planted.messages, planted.pattern)


def replayed(given: Case, found: Explored[Action]) -> Stage:
    """Return the stage after the run that was found has been played again from its text, exactly as written."""
    stage = Stage(given.topology)
    for block in parse(from_actions(given, found.actions, "found by the explorer")):
        assert stage.do(block.command) == block.expected
    return stage


# --- it finds bugs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.ordering.__name__ for planted in PLANTED])
def test_a_planted_bug_is_found_and_the_judge_agrees(planted: Planted) -> None:
    given = case_of(planted)
    found = explore(given)
    assert (found.broken, len(found.actions)) == (planted.property, planted.actions)
    assert replay(Explorer(given), found.actions) == planted.property
    stage = replayed(given, found)
    assert judge(stage.events, [planted.property]).properties[planted.property] >= 1


@pytest.mark.parametrize("planted", HARMLESS, ids=[planted.ordering.__name__ for planted in HARMLESS])
def test_what_only_costs_concurrency_is_no_bug(planted: Planted) -> None:
    assert explore(case_of(planted)).broken is None


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.ordering.__name__ for planted in PLANTED])
def test_the_real_ordering_has_no_such_bug(planted: Planted) -> None:
    given = Case(Domain("d", NAMES, planted.ordering.traits.name, planted.options), planted.messages, planted.pattern)
    assert explore(given).broken is None


def test_fifo_is_not_causal() -> None:
    """The triangle, up to the names: one sends to two others, and the second answer overtakes the first message."""
    given = Case(Domain("d", NAMES, "fifo"), 3, "unicast", frozenset({"causal"}))
    found = explore(given)
    assert found.broken == "causal"
    assert found.actions == (
        Action("A", to=("B",)),
        Action("A", to=("C",)),
        Action("A", "C"),
        Action("C", to=("B",)),
        Action("C", "B"),
    )
    differences, _ = run_text(from_actions(given, found.actions, "fifo is not causal"))
    assert differences == []
    assert judge(replayed(given, found).events, ["causal"]).violations[0].chain == ("A:1", "A:2", "C:1")


@pytest.mark.parametrize("messages", [2, 3])
@pytest.mark.parametrize("name", ["unordered", "fifo", "vector", "matrix"])
def test_who_numbers_by_itself_is_not_total(name: str, messages: int) -> None:
    given = Case(Domain("d", NAMES, name), messages, "broadcast", frozenset({"total"}))
    found = explore(given)
    assert (found.broken, len(found.actions)) == ("total", 4)
    assert judge(replayed(given, found).events, ["total"]).properties["total"] == 1


def test_unordered_is_not_fifo() -> None:
    found = explore(Case(Domain("d", ("A", "B"), "unordered"), 2, "unicast", frozenset({"fifo"})))
    assert found.actions == (Action("A", to=("B",)), Action("A", to=("B",)), Action("A", "B", 1))


# --- it finds nothing where there is nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", CASES, ids=label)
def test_the_real_orderings_keep_what_they_promise(given: Case) -> None:
    found = explore(given)
    assert found.broken is None, from_actions(given, found.actions, f"breaks {found.broken}")
    assert found.steps > 10


# --- it says when it cannot --------------------------------------------------------------------------------------------


class Echo(Fifo):
    """Answers every frame by one without a message, for ever."""

    traits = Fifo.traits._replace(direct=False)

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        return Output([(peer, Frame(FifoStamp(1), None))], [])


def test_an_endless_run_is_cut_short_loudly() -> None:
    with pytest.raises(Exhausted, match="for ever"):
        explore(Case(Domain("d", ("A", "B"), Echo), 1, "unicast"))


def test_a_search_beyond_its_limit_proves_nothing() -> None:
    with pytest.raises(Exhausted, match="100 steps"):
        explore(case("fifo", "multicast", 3), limit=100)


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(ConfigError, match="'sideways'"):
        explore(case("fifo", "sideways", 1))


def test_progress_is_told() -> None:
    heard: list[int] = []
    steps = explore(case("matrix", "multicast", 3), progress=heard.append).steps
    assert heard == [PROGRESS_EVERY] * (steps // PROGRESS_EVERY)
    assert len(heard) > 1


# --- it leaves no run out ----------------------------------------------------------------------------------------------

View = tuple[Any, ...]
"""A state in words: what each process has delivered and knows of, the messages with their causes, how many frames are where."""


def views_of_the_search(model: Explorer) -> set[View]:
    return {view_of_state(model, state) for layer in Search(model).layers() for state, _ in layer}


def view_of_state(model: Explorer, state: State) -> View:
    number, _, channels, _ = state
    past = model.pasts.known[number]
    count = len(model.names)
    names = {1 << bit: model.steps.name_of(bit) for bit in range(len(past.causes))}

    def named(mask: int) -> frozenset[str]:
        return frozenset(name for bit, name in names.items() if mask & bit)

    processes = {(name, named(past.delivered[at]), named(past.known[at])) for at, name in enumerate(model.names)}
    causes = zip(names.items(), past.causes, strict=True)
    messages = {(name, named(mask)) for (bit, name), mask in causes if any(addressed & bit for addressed in past.addressed)}
    flights = {
        (model.names[channel // count], model.names[channel % count], len(line)) for channel, line in enumerate(channels) if line
    }
    return frozenset(processes), frozenset(messages), frozenset(flights)


class Naive:
    """Every run, action by action, in a world of real members: no state is met twice on purpose, and nothing is remembered."""

    def __init__(self, given: Case) -> None:
        self.given = given
        self.views: set[View] = set()
        nothing: dict[str, frozenset[str]] = dict.fromkeys(given.topology.processes, frozenset())
        self._walk(World.of(given.where), {}, nothing, nothing)

    def _walk(
        self,
        world: World,
        causes: Mapping[str, frozenset[str]],
        delivered: Mapping[str, frozenset[str]],
        known: Mapping[str, frozenset[str]],
    ) -> None:
        self.views.add(
            (
                frozenset((name, delivered[name], known[name]) for name in world.members),
                frozenset(causes.items()),
                frozenset((*ends, len(flights)) for ends, flights in world.flights.items() if flights),
            )
        )
        for action in self._every_action(world, len(causes)):
            if action.target:
                after, happened = world.arrive(action.source, action.target, action.place)
            else:
                after, happened = world.send(action.source, action.to)
            who, caused, got, knows = action.actor, dict(causes), delivered[action.actor], known[action.actor]
            if happened.submitted:
                caused[str(happened.submitted.id)] = knows
                knows |= {str(happened.submitted.id)}
            for delivery in happened.delivered:
                message = str(delivery.envelope.id)
                got |= {message}
                knows |= caused[message] | {message}
            self._walk(after, caused, {**delivered, who: got}, {**known, who: knows})

    def _every_action(self, world: World, sent: int) -> Iterator[Action]:
        names = self.given.topology.processes
        for name in names if sent < self.given.messages else ():
            others = [other for other in names if other != name]
            if self.given.pattern == "broadcast":
                yield Action(name)
            else:
                most = 1 if self.given.pattern == "unicast" else len(others)
                yield from (Action(name, to=to) for size in range(1, most + 1) for to in combinations(others, size))
        for source, target in world.flights:
            yield from (Action(source, target, place) for place, _ in world.may_arrive(source, target))


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return the same with other names of members, also inside the names of messages."""
    if isinstance(value, str):
        head, colon, rest = value.partition(":")
        return names.get(head, head) + colon + rest
    if isinstance(value, tuple):
        return tuple(renamed(item, names) for item in value)
    if isinstance(value, frozenset):
        return frozenset(renamed(item, names) for item in value)
    return value


def without_causes(view: View) -> View:
    """What is left of a view where nobody asks for causal order."""
    processes, messages, flights = view
    return (
        frozenset((name, delivered, frozenset()) for name, delivered, _ in processes),
        frozenset((name, frozenset()) for name, _ in messages),
        flights,
    )


TINY = [
    ("fifo", "multicast", 2, NAMES),
    ("vector", "unicast", 2, NAMES),
    ("matrix", "broadcast", 2, NAMES),
    ("fifo", "unicast", 3, ("A", "B")),
    ("sequenced", "unicast", 2, NAMES),
    ("sequenced", "broadcast", 2, ("A", "B")),
    ("grouped", "unicast", 2, NAMES),
    ("flood", "broadcast", 2, ("A", "B")),
    ("flood", "unicast", 1, NAMES),
]


@pytest.mark.parametrize(("name", "pattern", "messages", "members"), TINY)
@pytest.mark.parametrize("symmetry", [False, True])
def test_the_search_visits_what_a_naive_walk_visits(
    name: str, pattern: str, messages: int, members: tuple[str, ...], symmetry: bool
) -> None:
    """With and without the shortcut of one naming for all."""
    require = frozenset({"causal"} if name != "fifo" else ())
    given = Case(Domain("d", members, name), messages, pattern, require)
    search = Explorer(given)
    search.symmetric = search.symmetric and symmetry
    found, expected = views_of_the_search(search), Naive(given).views
    if "causal" not in require:
        expected = {without_causes(view) for view in expected}
    if search.symmetric:
        namings = [dict(zip(members, order, strict=True)) for order in permutations(members)]
        found = {renamed(view, names) for view in found for names in namings}
    assert found == expected
    assert len(expected) > 3 * messages
