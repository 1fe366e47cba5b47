"""The explorer finds what is there to find, nothing else, and leaves no run out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from typing import Any

import pytest

from tests.explorer_cases import CASES, case, label
from tests.planted_orderings import HARMLESS, PLANTED, Planted
from thence.core.member import Domain
from thence.core.messages import Frame
from thence.core.ordering import Output
from thence.core.ordering.fifo import Fifo, FifoStamp
from thence.errors import ConfigError
from thence.sim.explorer import BODY, PROGRESS_EVERY, Action, Case, Exhausted, Found, _Past, _Search, explore
from thence.sim.scenario import Stage, from_actions, parse, run_text
from thence.sim.world import Happened, World
from thence.trace.judge import judge

NAMES = ("A", "B", "C")


def case_of(planted: Planted) -> Case:
    return Case(Domain("d", NAMES, planted.ordering, planted.options), planted.messages, planted.pattern)


def replayed(given: Case, found: Found) -> Stage:
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
    assert (found.property, len(found.actions)) == (planted.property, planted.actions)
    stage = replayed(given, found)
    assert judge(stage.events, [planted.property]).properties[planted.property] >= 1


@pytest.mark.parametrize("planted", HARMLESS, ids=[planted.ordering.__name__ for planted in HARMLESS])
def test_what_only_costs_concurrency_is_no_bug(planted: Planted) -> None:
    assert explore(case_of(planted)).property is None


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.ordering.__name__ for planted in PLANTED])
def test_the_real_ordering_has_no_such_bug(planted: Planted) -> None:
    given = Case(Domain("d", NAMES, planted.ordering.name, planted.options), planted.messages, planted.pattern)
    assert explore(given).property is None


def test_fifo_is_not_causal() -> None:
    """The triangle, up to the names: one sends to two others, and the second answer overtakes the first message."""
    given = Case(Domain("d", NAMES, "fifo"), 3, "unicast", frozenset({"causal"}))
    found = explore(given)
    assert found.property == "causal"
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
    assert (found.property, len(found.actions)) == ("total", 4)
    assert judge(replayed(given, found).events, ["total"]).properties["total"] == 1


def test_unordered_is_not_fifo() -> None:
    found = explore(Case(Domain("d", ("A", "B"), "unordered"), 2, "unicast", frozenset({"fifo"})))
    assert found.actions == (Action("A", to=("B",)), Action("A", to=("B",)), Action("A", "B", 1))


# --- it finds nothing where there is nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("given", CASES, ids=label)
def test_the_real_orderings_keep_what_they_promise(given: Case) -> None:
    found = explore(given)
    assert found.property is None, from_actions(given, found.actions, f"breaks {found.property}")
    assert found.steps > 10


# --- it says when it cannot --------------------------------------------------------------------------------------------


class Echo(Fifo):
    """Sends every frame back, for ever."""

    direct = False

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        return Output([(peer, Frame(FifoStamp(1), frame.envelope))], [])


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

History = tuple[tuple[Any, ...], ...]
View = tuple[Any, ...]


class Seen:
    """Collects what each process has lived through, at every point of every run of a walk."""

    def __init__(self, search: _Search) -> None:
        self.search = search
        self.together: set[View] = set()
        """All processes at once."""
        self.alone: set[View] = set()
        """Each process by itself, with the messages that there are and what caused each of them."""

    def walk(self, naive: bool) -> None:
        empty = (0,) * len(self.search.names)
        past = _Past({}, empty, empty, empty, (), (), (), ((),) * len(self.search.names))
        start: dict[str, History] = dict.fromkeys(self.search.names, ())
        self._walk(World.of(self.search.case.where), past, (), start, naive)

    def _walk(
        self, world: World, past: _Past, actions: tuple[Action, ...], histories: Mapping[str, History], naive: bool
    ) -> None:
        messages = self._messages(past)
        self.together.add((tuple(sorted(histories.items())), messages))
        self.alone |= {(name, history, messages) for name, history in histories.items()}
        actors = tuple(self.search.number[action.actor] for action in actions)
        possible = every_action(self.search, world, past) if naive else self.search._possible(world, past, actors, actions)
        for action in possible:
            after, happened = act(world, action)
            broken, then = self.search._judge(past, happened)
            assert broken is None
            told = {**histories, action.actor: (*histories[action.actor], lived(action, happened))}
            self._walk(after, then, (*actions, action), told, naive)

    def _messages(self, past: _Past) -> frozenset[Any]:
        names = {number: name for name, number in past.ids.items()}
        causes = [frozenset(names[at] for at in names if mask >> at & 1) for mask in past.causes]
        return frozenset((names[number], caused_by) for number, caused_by in enumerate(causes))


def lived(action: Action, happened: Happened) -> tuple[Any, ...]:
    delivered = tuple(str(delivery.envelope.id) for delivery in happened.delivered)
    return (action.source, action.target, action.place, action.to, delivered)


def act(world: World, action: Action) -> tuple[World, Happened]:
    if action.target:
        return world.arrive(action.source, action.target, action.place)
    return world.send(action.source, action.to, BODY)


def every_action(search: _Search, world: World, past: _Past) -> Iterator[Action]:
    """Give all that can happen next, in no normal form."""
    if len(past.sender) < search.case.messages:
        for name in search.names:
            yield from (Action(name, to=to) for to in search.choices[name])
    for (source, target), flights in world.flights.items():
        yield from (Action(source, target, place) for place in range(min(len(flights), 1 if world.fifo else len(flights))))


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


def sorted_view(view: View) -> View:
    """Put what renaming may have put out of order back into order: the processes of a view, and the recipients of a send."""
    return tuple(sort_recipients(part) for part in view)


def sort_recipients(value: Any) -> Any:
    if isinstance(value, tuple) and len(value) == 5 and value[1] == "" and isinstance(value[3], tuple):
        return (*value[:3], tuple(sorted(value[3])), value[4])
    return tuple(sort_recipients(item) for item in value) if isinstance(value, tuple) else value


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
@pytest.mark.parametrize("alone", [False, True])
def test_the_walk_visits_what_a_naive_walk_visits(
    name: str, pattern: str, messages: int, members: tuple[str, ...], symmetry: bool, alone: bool
) -> None:
    """With and without each of the two shortcuts: one naming for all, and each process by itself after the last send."""
    search = _Search(Case(Domain("d", members, name), messages, pattern), 10**6, None)
    search.symmetric = search.symmetric and symmetry
    search.direct = search.direct and alone
    quick, naive = Seen(search), Seen(search)
    quick.walk(naive=False)
    naive.walk(naive=True)
    found, expected = (quick.alone, naive.alone) if search.direct else (quick.together, naive.together)
    if search.symmetric:
        namings = [dict(zip(members, order, strict=True)) for order in permutations(members)]
        found = {sorted_view(renamed(view, names)) for view in found for names in namings}
        if not search.direct:
            found = {(tuple(sorted(histories)), messages_) for histories, messages_ in found}
    assert found == expected
    assert len(expected) > messages
