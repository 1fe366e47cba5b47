"""Those of one place have their turns one after the other, and others at once: by a clock that the test sets."""

from __future__ import annotations

import pytest

from thence.runtime import pace
from thence.runtime.pace import ArrivalPace


def test_so_many_come_at_once_and_then_one_every_so_often() -> None:
    now = 100.0
    made = ArrivalPace(10, 3, 0.25, lambda: now)
    assert [made.delay("here") for _ in range(6)] == [0.0, 0.0, 0.0, pytest.approx(0.1), pytest.approx(0.2), None]
    assert made.delay("there") == 0.0
    now += 0.1
    assert made.delay("here") == pytest.approx(0.2), "who was turned away has taken no turn"
    now += 10
    assert [made.delay("here") for _ in range(3)] == [0.0, 0.0, 0.0], "no more are saved up"
    assert made.delay("here") == pytest.approx(0.1)


def test_so_many_places_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "MAX_PLACES", 2)
    made = ArrivalPace(1, 1, 10, lambda: 100.0)
    for place in "aba":
        made.delay(place)
    assert made.delay("c") == 0.0
    assert made.delay("a") == 2.0
    assert made.delay("b") == 0.0, "it was quiet for longest"
