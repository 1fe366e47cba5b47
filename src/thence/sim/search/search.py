"""The one exhaustive search: every run of a small model, and the shortest one that breaks something.

A ``Model`` says what may happen in each of its states and what must never happen. The search goes from the states of n actions to
those of n + 1, so the first violation that it finds is a shortest one.

Rules:

* Runs that lead to the same state go on in the same ways, so of each state only the first run that reached it goes on.
* A model in which no run comes back to a state is *acyclic*. Then only two layers of states are kept, and a run of more than
  ``MAX_DEPTH`` actions is an error: it goes on for ever.
* A search that exceeds its limit raises ``Exhausted``. It proves nothing.
* The actions of a finding are values. ``str`` of one is a line that a person can read, ``replay`` does them again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from thence.errors import UsageError

MAX_STEPS: Final = 50_000_000
"""How many steps one search may take before it gives up, loudly."""

MAX_DEPTH: Final = 300
"""How many actions a run of an acyclic model may have."""

PROGRESS_EVERY: Final = 1_000
"""After how many steps ``progress`` is called."""

StateT = TypeVar("StateT")
ActionT = TypeVar("ActionT")

Progress = Callable[[int], None]

Run = tuple[Any, Any] | None
"""How a state was reached: the run before, and the last action."""


class Exhausted(UsageError):
    """The search was larger than its limit: nothing is proven."""


class Broken(Exception):
    """A run breaks something; ``action`` is the one that does, None if the state that it has reached is wrong by itself."""

    def __init__(self, what: str, action: Any = None) -> None:
        """Say what is broken. The search adds the run."""
        super().__init__(what)
        self.action = action
        self.run: Run = None


class Explored(NamedTuple, Generic[ActionT]):
    """How many steps were tried, how many states there are, and what the shortest violating run breaks, if there is one."""

    steps: int
    states: int
    broken: str | None = None
    actions: tuple[ActionT, ...] = ()

    @property
    def text(self) -> str:
        """The run for people, an action per line, and what it breaks."""
        return "\n".join([*map(str, self.actions), f"breaks: {self.broken}" if self.broken else "nothing is broken"])


class Model(ABC, Generic[StateT, ActionT]):
    """What can be searched. Its states are values."""

    acyclic = False
    """Whether no run comes back to a state."""
    must_end = False
    """Whether it is a violation if some state leads to no end."""

    @abstractmethod
    def start(self) -> StateT:
        """Return the state in which nothing has happened yet."""

    @abstractmethod
    def following(self, state: StateT) -> Iterator[tuple[ActionT, StateT]]:
        """Give all that may happen next, each with the state then. Raise ``Broken`` where something is wrong."""

    def check_end(self, state: StateT) -> None:
        """Raise ``Broken`` if nothing can happen any more and it should."""

    def key(self, state: StateT) -> Hashable:
        """Return what tells a state from others."""
        return state


class Search(Generic[StateT, ActionT]):
    """One walk through all states of a model, layer by layer."""

    def __init__(
        self, model: Model[StateT, ActionT], limit: int = MAX_STEPS, progress: Callable[[int], None] | None = None
    ) -> None:
        """Look at ``model`` in at most ``limit`` steps."""
        self.steps = 0
        self.states = 1
        self._model = model
        self._limit = limit
        self._progress = progress
        self._runs: dict[Hashable, Run] = {}
        """Every state and how it was reached. This and the next two are kept where each state must lead to an end."""
        self._before: dict[Hashable, list[Hashable]] = {}
        self._ends: list[Hashable] = []

    def run(self) -> Explored[ActionT]:
        """Try every run; return the shortest that breaks something, or that there is none."""
        try:
            for _ in self.layers():
                pass
            self._check_ends()
        except Broken as broken:
            return Explored(self.steps, self.states, str(broken), _actions(broken.run))
        return Explored(self.steps, self.states)

    def layers(self) -> Iterator[list[tuple[StateT, Run]]]:
        """Give the states after 0, 1, 2 ... actions, each with how it was reached, until none is left."""
        model, start = self._model, self._model.start()
        layer: list[tuple[StateT, Run]] = [(start, None)]
        seen = {model.key(start)}
        depth = 0
        while layer:
            yield layer
            depth += 1
            if model.acyclic:
                seen.clear()
                if depth > MAX_DEPTH:
                    raise Exhausted(f"a run has more than {MAX_DEPTH} actions; does it go on for ever?")
            following: list[tuple[StateT, Run]] = []
            for state, run in layer:
                self._look_at(state, run, seen, following)
            layer = following

    def _look_at(self, state: StateT, run: Run, seen: set[Hashable], following: list[tuple[StateT, Run]]) -> None:
        """Add to ``following`` the states that come behind one and were not seen."""
        model, ended = self._model, True
        try:
            for action, after in model.following(state):
                self._count()
                if not model.acyclic and after == state:
                    continue
                ended = False
                key = model.key(after)
                if key not in seen:
                    seen.add(key)
                    self.states += 1
                    following.append((after, (run, action)))
                if model.must_end:
                    self._before.setdefault(key, []).append(model.key(state))
            if ended:
                model.check_end(state)
        except Broken as broken:
            self.steps += broken.action is not None
            broken.run = run if broken.action is None else (run, broken.action)
            raise
        if model.must_end:
            self._runs[model.key(state)] = run
            self._ends += [model.key(state)] if ended else []

    def _count(self) -> None:
        self.steps += 1
        if self.steps > self._limit:
            raise Exhausted(f"more than {self._limit} steps; search a smaller case")
        if self._progress and not self.steps % PROGRESS_EVERY:
            self._progress(PROGRESS_EVERY)

    def _check_ends(self) -> None:
        """Find the first state from which no run comes to an end: there it goes on for ever."""
        reaching, todo = set(self._ends), list(self._ends)
        while todo:
            for before in self._before.get(todo.pop(), ()):
                if before not in reaching:
                    reaching.add(before)
                    todo.append(before)
        for state, run in self._runs.items():
            if state not in reaching:
                broken = Broken("no way out")
                broken.run = run
                raise broken


def replay(model: Model[StateT, ActionT], actions: Iterable[ActionT]) -> str | None:
    """Do these actions again and return what they break; None: nothing. Where one can mean several things, do each of them."""
    states = [model.start()]
    try:
        for wanted in actions:
            states = [after for state in states for action, after in model.following(state) if action == wanted]
            if not states:
                raise UsageError(f"this cannot happen here: {wanted}")
        for state in states:
            if all(after == state for _, after in model.following(state)):
                model.check_end(state)
    except Broken as broken:
        return str(broken)
    return None


def _actions(run: Run) -> tuple[Any, ...]:
    actions = []
    while run is not None:
        run, action = run
        actions.append(action)
    return tuple(reversed(actions))
