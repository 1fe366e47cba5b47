"""The claims of a study and their verdicts: holds, does not hold, or not decided, with the numbers.

Rules:

* By the 95 % intervals alone: a comparison holds if every value in the intervals agrees with it, it does not hold if none
  does, and is not decided otherwise. So more repetitions may decide, and nothing else can.
* A claim holds if all its comparisons hold; it does not hold if one of them does not; else it is not decided.
* A claim without any comparison, because its measure makes no sense there or nothing was measured, is not decided.
* Claims are findings: that one does not hold is no error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from thence.pipeline.report.text import number
from thence.studies.results import Means
from thence.studies.statistics import Fit, Summary, fit_affine, fit_log, fit_power
from thence.studies.study import Claim, Equal, Growth, Order, Point, Study, Trend, Value, canonical, matches, shown

Verdict = Literal["holds", "does not hold", "not decided"]

HOLDS: Final = "holds"
FAILS: Final = "does not hold"
OPEN: Final = "not decided"

FEWEST_FOR_CURVE: Final = 3
"""Two points are on every curve."""


class ClaimComparison(NamedTuple):
    """One place where a claim was looked at: the paper's side, ours, and how they compare."""

    where: str
    measured: str
    beside: str
    difference: str
    verdict: Verdict
    margin: float
    """How clearly, as a share: the smallest one is the closest call."""


class Judged(NamedTuple):
    """A claim and its verdict."""

    claim: Claim
    verdict: Verdict
    comparisons: tuple[ClaimComparison, ...]

    @property
    def agreeing(self) -> list[ClaimComparison]:
        """The places that have the verdict of the whole."""
        return [one for one in self.comparisons if one.verdict == self.verdict]

    @property
    def telling(self) -> ClaimComparison | None:
        """The place that tells most: the closest call, or of a claim that does not hold the clearest."""
        return (max if self.verdict == FAILS else min)(self.agreeing, key=lambda one: one.margin, default=None)

    @property
    def places(self) -> str:
        """At how many places it is so."""
        return f"{len(self.agreeing)} of {len(self.comparisons)}"

    @property
    def numbers(self) -> str:
        """The verdict in one line of numbers."""
        telling = self.telling
        if telling is None:
            return "nothing to compare"
        word = {HOLDS: "closest", FAILS: "clearest", OPEN: "such as"}[self.verdict]
        before = f"{self.places} places; {word}: " if len(self.comparisons) > 1 else ""
        place = f" at {telling.where}" if telling.where else ""
        return f"{before}{telling.measured} against {telling.beside} ({telling.difference}){place}"


def judge(study: Study, means: Means) -> list[Judged]:
    """Return the verdict of every claim."""
    points = [(point, means.get(canonical(point), {})) for point in study.points()]
    judged = []
    for claim in study.claims:
        there = [(point, of) for point, of in points if matches(point, claim.where)]
        comparisons = tuple(_comparisons(study, claim, there))
        judged.append(Judged(claim, _together(one.verdict for one in comparisons), comparisons))
    return judged


def _together(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    if FAILS in found:
        return "does not hold"
    return "holds" if found == {HOLDS} else "not decided"


Measured = list[tuple[Point, Mapping[str, Summary]]]


def _comparisons(study: Study, claim: Claim, points: Measured) -> Iterator[ClaimComparison]:
    if isinstance(claim, Order):
        return _orders(study, claim, points)
    if isinstance(claim, Equal):
        return _equals(study, claim, points)
    if isinstance(claim, Growth):
        return _growths(study, claim, points)
    return _trends(study, claim, points)


def words(summary: Summary) -> str:
    """Return a mean and its interval.

    >>> words(Summary(5, 12.3, 1.0, 0.25)), words(Summary(2, 3.0, 0.0, 0.0))
    ('12.3 ± 0.25', '3')
    """
    if not math.isfinite(summary.mean):
        return "-" if math.isnan(summary.mean) else str(summary.mean)
    if not math.isfinite(summary.half_width):
        return f"{number(summary.mean)} ± ?"
    return f"{number(summary.mean)} ± {number(summary.half_width)}" if summary.half_width else number(summary.mean)


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %") if math.isfinite(share) else "-"


def _verdict(surely: bool, surely_not: bool) -> Verdict:
    if surely_not:
        return "does not hold"
    return "holds" if surely else "not decided"


def _order(upper: Summary, lower: Summary) -> Verdict:
    """Return whether one lies above the other. Equal without any doubt is not above."""
    return _verdict(upper.low > lower.high, upper.high <= lower.low)


def _near(one: Summary, other: Summary, within: float) -> Verdict:
    """Return whether one is the other within a share of it."""
    apart, doubt, allowed = abs(one.mean - other.mean), one.half_width + other.half_width, within * abs(other.mean)
    return _verdict(apart + doubt <= allowed, apart - doubt > allowed)


def _compared(where: str, one: Summary, other: Summary, verdict: Verdict) -> ClaimComparison:
    share = (one.mean - other.mean) / abs(other.mean) if other.mean else math.copysign(math.inf, one.mean) if one.mean else 0.0
    return ClaimComparison(where, words(one), words(other), _percent(share), verdict, abs(share))


def _orders(study: Study, claim: Order, points: Measured) -> Iterator[ClaimComparison]:
    sides: dict[str, dict[bool, list[Summary]]] = {}
    for point, measured in points:
        for is_this, chosen in ((True, claim.this), (False, claim.that)):
            if matches(point, chosen) and claim.measure in measured:
                found = sides.setdefault(_others(study, point, claim.this), {True: [], False: []})
                found[is_this].append(measured[claim.measure])
    for where, found in sides.items():
        for one in found[True]:
            for other in found[False]:
                if one.is_known and other.is_known:
                    verdict = _order(one, other) if claim.relation == "above" else _order(other, one)
                    yield _compared(where, one, other, verdict)


def _equals(study: Study, claim: Equal, points: Measured) -> Iterator[ClaimComparison]:
    for point, measured in points:
        one, other = measured.get(claim.measure), measured.get(claim.formula)
        if one and other and one.is_known and other.is_known:
            compared = _compared(_others(study, point, {}), one, other, _near(one, other, claim.within))
            # The closest call is the one farthest from the formula.
            yield compared if compared.verdict == FAILS else compared._replace(margin=-compared.margin)


def _trends(study: Study, claim: Trend, points: Measured) -> Iterator[ClaimComparison]:
    for where, line in _lines(study, claim.measure, claim.against, points).items():
        if len(line) < 2:
            continue
        (first_x, first), *rest = line
        name = f"{where}, {claim.against}" if where else claim.against
        for x, value in rest if claim.relation == "constant" else rest[-1:]:
            place = f"{name} {shown(x)} against {shown(first_x)}"
            if claim.relation == "constant":
                compared = _compared(place, value, first, _near(value, first, claim.within))
                yield compared if compared.verdict == FAILS else compared._replace(margin=-compared.margin)
            else:
                rises = claim.relation == "rises"
                yield _compared(place, value, first, _order(value, first) if rises else _order(first, value))


def _growths(study: Study, claim: Growth, points: Measured) -> Iterator[ClaimComparison]:
    for where, line in _lines(study, claim.measure, claim.against, points).items():
        good = [(float(x), y) for x, y in line if float(x) > 0 and (claim.law != "power" or y.mean > 0)]
        xs, ys = [x for x, _ in good], [y for _, y in good]
        fit = {"power": fit_power, "line": fit_affine, "log": fit_log}[claim.law](xs, ys)
        if fit is not None:
            yield _power(claim, where, fit, len(xs)) if claim.law == "power" else _curve(claim, where, fit, xs, ys)


def _bounds(claim: Growth) -> tuple[float, float]:
    return (-math.inf if claim.low is None else claim.low), (math.inf if claim.high is None else claim.high)


def _power(claim: Growth, where: str, fit: Fit, points: int) -> ClaimComparison:
    low, high = _bounds(claim)
    one, other = fit.slope - fit.half_width, fit.slope + fit.half_width
    verdict = _verdict(low <= one and other <= high, other < low or one > high)
    outside = max(low - fit.slope, fit.slope - high)
    return ClaimComparison(
        where,
        f"exponent {fit.slope:.3f} ± {fit.half_width:.3f}",
        f"{number(low)} to {number(high)}",
        f"R² {fit.explains:.4f}, {points} points",
        verdict,
        outside if verdict == FAILS else -outside,
    )


def _curve(claim: Growth, where: str, fit: Fit, xs: list[float], ys: list[Summary]) -> ClaimComparison:
    """Return whether a line or a logarithm describes the points. One that does not rise describes no growth."""
    low, high = _bounds(claim)
    is_line = claim.law == "line"
    curve = [fit.intercept + fit.slope * (x if is_line else math.log(x)) for x in xs]
    apart = [(abs(drawn - y.mean), y) for drawn, y in zip(curve, ys, strict=True)]
    fits = fit.explains >= claim.fit and low <= fit.slope + fit.half_width and fit.slope - fit.half_width <= high
    if is_line:
        fits = fits and fit.slope > 0 and all(distance <= claim.within * abs(y.mean) for distance, y in apart)
    within = all(distance <= y.half_width for distance, y in apart) and not (is_line and fit.slope + fit.half_width <= 0)
    enough = len(xs) >= FEWEST_FOR_CURVE
    term = claim.against if is_line else f"ln({claim.against})"
    return ClaimComparison(
        where,
        f"R² {fit.explains:.4f}, {len(xs)} points",
        f"R² of at least {claim.fit}{f', within {claim.within:.0%}'.replace('%', ' %') if is_line else ''}",
        f"{fit.intercept:.4g} + {fit.slope:.4g} {term}",
        _verdict(enough and fits, enough and not fits and not within),
        abs(fit.explains - claim.fit),
    )


def _lines(study: Study, measure: str, against: str, points: Measured) -> dict[str, list[tuple[Value, Summary]]]:
    """Return the known values of a measure, by all but one parameter, sorted by that one."""
    lines: dict[str, list[tuple[Value, Summary]]] = {}
    for point, measured in points:
        if measure in measured and measured[measure].is_known:
            lines.setdefault(_others(study, point, {against: 0}), []).append((point[against], measured[measure]))
    by_value: Callable[[tuple[Value, Summary]], float] = lambda found: float(found[0])  # noqa: E731 - typed in one line
    return {where: sorted(line, key=by_value) for where, line in lines.items()}


def _others(study: Study, point: Point, without: Mapping[str, object]) -> str:
    """Return a point by those grid parameters that vary and are not named."""
    varying = [name for name, values in study.grid.items() if len(values) > 1 and name not in without]
    return ", ".join(f"{name} {shown(point[name])}" for name in varying)
