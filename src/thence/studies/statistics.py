"""The arithmetic of repeated runs: means with Student-t intervals, how many runs are needed, and fitted growth.

Rules:

* Quantiles are those of scipy. Sums are our own and exact (``math.fsum``), so that the order of the values, and with it the
  number of machines, changes no bit.
* A value that is ``nan`` makes no sense at its point and is left out. Of one value there is no interval: ``nan``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from thence.pipeline.report.text import needed

CONFIDENCE: Final = 0.95
MOST_NEEDED: Final = 100_000
"""More repetitions than this are never asked for."""

FEWEST_FOR_RESIDUALS: Final = 4
"""From so many points on, what the line leaves over says something about the slope; two degrees of freedom at least."""


class Summary(NamedTuple):
    """What repeated runs gave: the mean, the standard deviation, and half of the interval around the mean."""

    runs: int
    mean: float
    deviation: float
    half_width: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """The upper end of the interval."""
        return self.mean + self.half_width

    @property
    def is_known(self) -> bool:
        """Whether there is a mean with an interval."""
        return math.isfinite(self.mean) and math.isfinite(self.half_width)


def summary_of(values: Sequence[float]) -> Summary:
    """Sum up the values of one measure at one point.

    >>> summary_of([1.0, 2.0, 3.0]).mean
    2.0
    """
    known = [value for value in values if not math.isnan(value)]
    count = len(known)
    if not count:
        return Summary(0, math.nan, math.nan, math.nan)
    if not all(map(math.isfinite, known)):
        mean = known[0] if min(known) == max(known) else math.nan
        return Summary(count, mean, math.nan, math.nan)
    if count == 1:
        return Summary(1, known[0], math.nan, math.nan)
    if min(known) == max(known):
        return Summary(count, known[0], 0.0, 0.0)
    mean = math.fsum(known) / count
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (count - 1))
    return Summary(count, mean, deviation, t_quantile(count - 1) * deviation / math.sqrt(count))


def repetitions_needed(summary: Summary, share: float) -> int:
    """Return how many repetitions would bring the half width under a share of the mean, if the deviation stays as it is."""
    if summary.runs == 1 and math.isfinite(summary.mean):
        return 2
    if not summary.is_known or summary.half_width <= share * abs(summary.mean):
        return summary.runs
    aim = share * abs(summary.mean)
    low, high = summary.runs + 1, MOST_NEEDED
    while low < high:
        middle = (low + high) // 2
        if t_quantile(middle - 1) * summary.deviation / math.sqrt(middle) <= aim:
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache(maxsize=4096)
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors to each side hold ``confidence`` of Student's distribution of this freedom."""
    needed("scipy")
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


class Fit(NamedTuple):
    """A line through points: its slope with an interval, where it starts, and how much of the variation it explains."""

    slope: float
    half_width: float
    intercept: float
    explains: float


def fit_line(xs: Sequence[float], ys: Sequence[float], errors: Sequence[float]) -> Fit | None:
    """Least squares through at least two points; ``errors`` are the half widths of the intervals of ``ys``.

    The interval of the slope is what the errors alone would give or, of four points and more, what the distances of the
    points from the line give, whichever is wider: a fit is no more certain than its points, nor than its law.
    """
    count = len(xs)
    if count < 2:
        return None
    middle_x, middle_y = math.fsum(xs) / count, math.fsum(ys) / count
    spread = math.fsum((x - middle_x) ** 2 for x in xs)
    if not spread > 0:
        return None
    weights = [(x - middle_x) / spread for x in xs]
    slope = math.fsum(weight * (y - middle_y) for weight, y in zip(weights, ys, strict=True))
    intercept = middle_y - slope * middle_x
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    total = math.fsum((y - middle_y) ** 2 for y in ys)
    half_width = math.sqrt(math.fsum((weight * error) ** 2 for weight, error in zip(weights, errors, strict=True)))
    if count >= FEWEST_FOR_RESIDUALS:
        half_width = max(half_width, t_quantile(count - 2) * math.sqrt(left / (count - 2) / spread))
    return Fit(slope, half_width, intercept, 1 - left / total if total > 0 else 1.0)


def fit_power(xs: Sequence[float], ys: Sequence[Summary]) -> Fit | None:
    """Fit ``y = a * x ** slope`` through means that are above zero."""
    return fit_line(
        [math.log(x) for x in xs],
        [math.log(y.mean) for y in ys],
        [y.half_width / y.mean for y in ys],
    )


def fit_log(xs: Sequence[float], ys: Sequence[Summary]) -> Fit | None:
    """Fit ``y = intercept + slope * ln(x)``."""
    return fit_line([math.log(x) for x in xs], [y.mean for y in ys], [y.half_width for y in ys])


def fit_affine(xs: Sequence[float], ys: Sequence[Summary]) -> Fit | None:
    """Fit ``y = intercept + slope * x``."""
    return fit_line(xs, [y.mean for y in ys], [y.half_width for y in ys])
