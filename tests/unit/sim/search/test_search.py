"""The search finds the shortest violation, a state without a way out and a run without an end, and replays what it finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from thence.errors import UsageError
from thence.sim.search.search import MAX_DEPTH, Broken, Exhausted, Explored, Model, Search, replay


class Counter(Model[int, str]):
    """A number that grows by one or doubles up to a limit; some numbers are wrong, some may not be last."""

    def __init__(self, most: int, *, wrong: int = -1, last: int | None = None) -> None:
        self.most = most
        self.wrong = wrong
        self.last = last

    def start(self) -> int:
        return 1

    def following(self, state: int) -> Iterator[tuple[str, int]]:
        for action, after in (("one more", state + 1), ("twice", state * 2)):
            if after == self.wrong:
                raise Broken("wrong", action)
            if after <= self.most:
                yield action, after

    def check_end(self, state: int) -> None:
        if self.last is not None and state != self.last:
            raise Broken(f"ends with {state}")


class Lobby(Model[str, str]):
    """Rooms that lead to each other. Some runs go on for ever, though they need not, or they must."""

    must_end = True

    def __init__(self, **ways: str) -> None:
        self.ways = ways

    def start(self) -> str:
        return "a"

    def following(self, state: str) -> Iterator[tuple[str, str]]:
        yield from ((f"to {room}", room) for room in self.ways.get(state, ""))


def test_the_shortest_run_is_found_and_replayed() -> None:
    model = Counter(20, wrong=10)
    found = Search(model).run()
    assert (found.broken, found.actions) == ("wrong", ("one more", "twice", "one more", "twice"))
    assert found.text.splitlines() == ["one more", "twice", "one more", "twice", "breaks: wrong"]
    assert replay(model, found.actions) == "wrong"


def test_where_nothing_is_wrong_every_state_is_seen_once() -> None:
    found = Search(Counter(20)).run()
    assert (found.states, found.steps, found.broken) == (20, 19 + 10, None)
    assert found.text == "nothing is broken"


def test_an_end_that_may_not_be_one_is_found() -> None:
    model = Counter(4, last=3)
    found = Search(model).run()
    assert (found.broken, found.actions) == ("ends with 4", ("one more", "twice"))
    assert replay(model, found.actions) == "ends with 4"


def test_a_state_without_a_way_out_is_found() -> None:
    assert Search(Lobby(a="bc", b="a", c="d")).run().broken is None
    found = Search(Lobby(a="bc", c="d", d="c")).run()
    assert (found.broken, found.actions) == ("no way out", ("to c",))


def test_a_run_without_an_end_is_cut_short_where_states_are_forgotten() -> None:
    model = Lobby(a="b", b="a")
    model.acyclic = True
    with pytest.raises(Exhausted, match=f"more than {MAX_DEPTH} actions"):
        Search(model).run()


def test_a_limit_proves_nothing() -> None:
    with pytest.raises(Exhausted, match="more than 10 steps"):
        Search(Counter(1_000), 10).run()


def test_what_cannot_happen_is_not_replayed() -> None:
    with pytest.raises(UsageError, match="cannot happen here: sideways"):
        replay(Counter(20), ["sideways"])
    assert replay(Counter(20), ["twice"]) is None


def test_progress_is_reported() -> None:
    heard: list[int] = []
    found: Explored[str] = Search(Counter(3_000), progress=heard.append).run()
    assert sum(heard) == found.steps // 1_000 * 1_000
