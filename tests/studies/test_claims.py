"""Verdicts on made-up means, where the answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from thence.studies.claims import judge
from thence.studies.results import Means
from thence.studies.statistics import Summary
from thence.studies.study import Point, Study, canonical, parse

HEAD = """
name = "made"
title = "made up"
model = "none"
[grid]
side = ["a", "b"]
size = [1, 10, 100, 1000]
[repetitions]
least = 2
most = 2
[measures.y]
[measures.f]
[[claims]]
measure = "y"
"""

Made = Callable[[Point], tuple[float, float]]


def study(claim: str) -> Study:
    return parse(HEAD + claim)


def means(made: Study, y: Made, f: Made = lambda _: (math.nan, math.nan)) -> Means:
    """Means and half widths as functions of the point."""
    found = {}
    for point in made.points():
        of = {}
        for name, value in (("y", y(point)), ("f", f(point))):
            of[name] = Summary(0 if math.isnan(value[0]) else 5, value[0], 1.0, value[1])
        found[canonical(point)] = of
    return found


def verdict(claim: str, y: Made, f: Made = lambda _: (math.nan, math.nan)) -> str:
    made = study(claim)
    return judge(made, means(made, y, f))[0].verdict


ORDER = 'kind = "order"\nthis = { side = "a" }\nthat = { side = "b" }\nrelation = "above"\n'


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((2.0, 0.4), (1.0, 0.4), "holds"),
        ((2.0, 0.6), (1.0, 0.6), "not decided"),
        ((1.0, 0.4), (2.0, 0.4), "does not hold"),
        ((1.0, 0.0), (1.0, 0.0), "does not hold"),
        ((math.nan, math.nan), (1.0, 0.0), "not decided"),
        ((1.0, math.nan), (0.0, 0.0), "not decided"),
    ],
)
def test_order(a: tuple[float, float], b: tuple[float, float], expected: str) -> None:
    assert verdict(ORDER, lambda point: a if point["side"] == "a" else b) == expected
    below = ORDER.replace('"above"', '"below"')
    assert verdict(below, lambda point: b if point["side"] == "a" else a) == expected


def test_one_place_that_contradicts_is_enough_and_is_the_one_told() -> None:
    made = study(ORDER)

    def y(point: Point) -> tuple[float, float]:
        if point["side"] == "b":
            return 1.0, 0.1
        return (0.5, 0.1) if point["size"] == 100 else (2.0, 0.1)

    judged = judge(made, means(made, y))[0]
    assert (judged.verdict, judged.places) == ("does not hold", "1 of 4")
    assert judged.telling is not None
    assert judged.telling.where == "size 100"
    assert "0.5 ± 0.1 against 1 ± 0.1 (-50.0 %) at size 100" in judged.numbers


def test_one_place_in_doubt_leaves_the_whole_in_doubt() -> None:
    def y(point: Point) -> tuple[float, float]:
        if point["side"] == "b":
            return 1.0, 0.1
        return (1.1, 0.1) if point["size"] == 100 else (2.0, 0.1)

    assert verdict(ORDER, y) == "not decided"
    assert verdict(ORDER + "where = { size = [1, 10] }\n", y) == "holds"
    assert verdict(ORDER + "where = { size = 100 }\n", y) == "not decided"


EQUAL = 'kind = "equal"\nformula = "f"\nwithin = 0.05\n'


@pytest.mark.parametrize(
    ("y", "expected"),
    [((103.0, 1.0), "holds"), ((103.0, 3.0), "not decided"), ((108.0, 2.0), "does not hold"), ((92.0, 2.9), "does not hold")],
)
def test_equal(y: tuple[float, float], expected: str) -> None:
    assert verdict(EQUAL, lambda _: y, lambda _: (100.0, 0.0)) == expected


def test_a_formula_that_makes_no_sense_somewhere_is_not_asked_there() -> None:
    made = study(EQUAL)
    found = means(made, lambda _: (100.0, 0.0), lambda point: (100.0, 0.0) if point["size"] == 1 else (math.nan, math.nan))
    judged = judge(made, found)[0]
    assert (judged.verdict, len(judged.comparisons)) == ("holds", 2)
    assert judge(made, {})[0].numbers == "nothing to compare"


GROWTH = 'kind = "growth"\nagainst = "size"\nlow = 1.8\nhigh = 2.2\n'


@pytest.mark.parametrize(
    ("exponent", "error", "expected"),
    [(2.0, 0.01, "holds"), (1.0, 0.01, "does not hold"), (1.81, 0.5, "not decided"), (1.79, 0.5, "not decided")],
)
def test_growth_as_a_power(exponent: float, error: float, expected: str) -> None:
    assert (
        verdict(GROWTH, lambda point: (3 * float(point["size"]) ** exponent, error * float(point["size"]) ** exponent))
        == expected
    )


@pytest.mark.parametrize(
    ("law", "expected"),
    [(lambda x: 5 + 2 * math.log(x), "holds"), (lambda x: x**1.0, "does not hold")],
)
def test_growth_as_a_logarithm(law: Callable[[float], float], expected: str) -> None:
    assert (
        verdict('kind = "growth"\nlaw = "log"\nagainst = "size"\n', lambda point: (law(float(point["size"])), 0.01)) == expected
    )


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda x: 517 + 24.1 * x, "holds"),
        (lambda x: 24.1 * x**1.5, "does not hold"),
        (lambda x: 517 + 24.1 * math.log(x), "does not hold"),
        (lambda x: 30_000 - 24.1 * x, "does not hold"),
    ],
)
def test_growth_as_a_line_with_a_constant_part(law: Callable[[float], float], expected: str) -> None:
    """A power fitted to the first of these has an exponent far below 1, though it is exactly linear."""
    line = 'kind = "growth"\nlaw = "line"\nagainst = "size"\nfit = 0.995\n'
    assert verdict(line, lambda point: (law(float(point["size"])), 0.01)) == expected


def test_a_logarithm_lost_in_noise_is_not_decided() -> None:
    wobble = {1: 1.0, 10: 3.0, 100: 1.0, 1000: 3.0}
    assert (
        verdict('kind = "growth"\nlaw = "log"\nagainst = "size"\n', lambda point: (wobble[int(point["size"])], 9.0))
        == "not decided"
    )


TREND = 'kind = "trend"\nagainst = "size"\nrelation = "RELATION"\nwithin = 0.1\n'


@pytest.mark.parametrize(
    ("relation", "last", "expected"),
    [
        ("rises", (2.0, 0.1), "holds"),
        ("rises", (0.5, 0.1), "does not hold"),
        ("rises", (1.1, 0.2), "not decided"),
        ("rises", (1.0, 0.0), "not decided"),
        ("falls", (0.5, 0.1), "holds"),
        ("falls", (2.0, 0.1), "does not hold"),
        ("constant", (1.01, 0.01), "holds"),
        ("constant", (1.5, 0.1), "does not hold"),
        ("constant", (1.05, 0.2), "not decided"),
    ],
)
def test_trend(relation: str, last: tuple[float, float], expected: str) -> None:
    claim = TREND.replace("RELATION", relation)
    assert verdict(claim, lambda point: last if point["size"] == 1000 else (1.0, 0.02)) == expected


def test_constant_means_everywhere() -> None:
    claim = TREND.replace("RELATION", "constant")
    assert verdict(claim, lambda point: (2.0, 0.01) if point["size"] == 10 else (1.0, 0.01)) == "does not hold"
