"""Means, intervals and fits, compared with scipy and with what is known."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from scipy import stats

from thence.studies.statistics import Summary, fit_line, fit_log, fit_power, repetitions_needed, summary_of, t_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 12, 29, 100, 1_000, 20_000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_quantiles_are_those_of_scipy(freedom: int, confidence: float) -> None:
    assert t_quantile(freedom, confidence) == pytest.approx(stats.t.ppf((1 + confidence) / 2, freedom), rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 10, 57])
def test_an_interval_is_that_of_scipy(count: int) -> None:
    values = [Random(f"{count}/{place}").gauss(7, 3) for place in range(count)]
    low, high = stats.t.interval(0.95, count - 1, loc=np.mean(values), scale=stats.sem(values))
    found = summary_of(values)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert found.deviation == pytest.approx(np.std(values, ddof=1), rel=1e-12)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = Random(1)
    summaries = [summary_of([chance.gauss(3, 1) for _ in range(5)]) for _ in range(4_000)]
    hits = sum(one.low <= 3 <= one.high for one in summaries)
    assert 0.94 < hits / len(summaries) < 0.96


def test_the_order_of_values_changes_no_bit() -> None:
    chance = Random(2)
    values = [chance.lognormvariate(0, 8) for _ in range(200)]
    expected = summary_of(values)
    for _ in range(20):
        chance.shuffle(values)
        assert summary_of(values) == expected


def test_values_without_sense() -> None:
    assert summary_of([math.nan, 1.0, 3.0, math.nan])[:2] == (2, 2.0)
    assert summary_of([]).runs == summary_of([math.nan]).runs == 0
    assert not summary_of([1.0]).is_known
    assert not summary_of([math.inf, 1.0]).is_known
    assert summary_of([0.1] * 7) == Summary(7, 0.1, 0.0, 0.0)


def test_as_many_repetitions_as_are_needed_and_not_one_more() -> None:
    found = summary_of([9.0, 10.0, 11.0, 12.0])
    needed = repetitions_needed(found, 0.04)
    half = [stats.t.ppf(0.975, count - 1) * found.deviation / math.sqrt(count) for count in (needed - 1, needed)]
    assert half[1] <= 0.04 * found.mean < half[0]


@pytest.mark.parametrize(("values", "needed"), [([5.0, 5.0], 2), ([math.nan, math.nan], 0), ([5.0], 2), ([10.0, 10.01, 9.99], 3)])
def test_what_needs_no_more(values: list[float], needed: int) -> None:
    assert repetitions_needed(summary_of(values), 0.04) == needed


def test_a_line_is_that_of_scipy() -> None:
    chance = Random(3)
    xs = [float(place) for place in range(9)]
    ys = [2 + 0.7 * x + chance.gauss(0, 0.2) for x in xs]
    theirs = stats.linregress(xs, ys)
    ours = fit_line(xs, ys, [0.0] * 9)
    assert ours is not None
    assert (ours.slope, ours.intercept) == pytest.approx((theirs.slope, theirs.intercept))
    assert ours.explains == pytest.approx(theirs.rvalue**2)
    assert ours.half_width == pytest.approx(theirs.stderr * stats.t.ppf(0.975, 7))


def test_a_fit_is_no_more_certain_than_its_points() -> None:
    exact = fit_line([0.0, 1.0], [0.0, 1.0], [0.0, 0.0])
    doubtful = fit_line([0.0, 1.0], [0.0, 1.0], [0.3, 0.4])
    assert exact is not None
    assert doubtful is not None
    assert exact.half_width == 0
    assert doubtful.half_width == pytest.approx(0.5)


def test_laws_are_found_again() -> None:
    sizes = [10.0, 20.0, 50.0, 100.0, 400.0]
    power = fit_power(sizes, [Summary(3, 4 * size**1.7, 0.0, 0.0) for size in sizes])
    log = fit_log(sizes, [Summary(3, 4 + 3 * math.log(size), 0.0, 0.0) for size in sizes])
    assert power is not None
    assert log is not None
    assert (power.slope, power.explains) == pytest.approx((1.7, 1.0))
    assert (log.slope, log.intercept, log.explains) == pytest.approx((3, 4, 1.0))
    assert fit_power(sizes[:1], [Summary(3, 1.0, 0.0, 0.0)]) is None
    assert fit_line([1.0, 1.0], [1.0, 2.0], [0.0, 0.0]) is None
