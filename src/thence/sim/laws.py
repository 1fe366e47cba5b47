"""Delay laws: how long a thing takes, as a value that can be written in an option and printed back.

They exist so that a link, a disk or a timer can be slow in a way that is chosen, named and repeated.

Rules:

* A law is a frozen value. Chance comes in as an argument, so the same ``Random`` gives the same delays.
* Delays are integer nanoseconds between ``minimum_ns`` and ``MAX_DELAY_NS``. The minimum is a floor: what is drawn
  below it becomes it. The ceiling is there because a heavy tail has no end, and a simulation has one.
* ``parse_law(str(law)) == law``, for every law.

====================  ===============  ============================================================
written               law              meaning of what is written
====================  ===============  ============================================================
constant:2ms          ``Constant``     always this
uniform:1ms..5ms      ``Uniform``      anything between the two, both included
exponential:10ms      ``Exponential``  the average
pareto:5ms,1.5        ``Pareto``       heavy tail: the smallest, and the shape (smaller is heavier)
lognormal:5ms,0.8     ``LogNormal``    heavy tail: the median, and sigma (larger is heavier)
====================  ===============  ============================================================

Any of them may end in ``,min=1ms``. Units are ns, us, ms and s.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from random import Random
from typing import Any, ClassVar

from thence.core.topology.durations import MAX_DELAY_NS, format_duration, parse_duration_ns
from thence.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Law(ABC):
    """A way to draw delays. Fields of a law are durations if their name ends in ``_ns``, and numbers above 0 if not."""

    name: ClassVar[str]
    form: ClassVar[str]  # an example, for messages
    between: ClassVar[str] = ","  # what stands between its values when written

    minimum_ns: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith("_ns"):
                _check_ns(f"{self.name} delay law's {each.name}", value)
            elif not (math.isfinite(value) and value > 0):
                raise ConfigError(f"the {self.name} delay law's {each.name} must be a number above 0, not {value!r}")

    def draw_ns(self, rng: Random) -> int:
        """One delay."""
        drawn = self._draw(rng)
        # Said in full rather than by min and max: this is asked for with every frame.
        if drawn < self.minimum_ns:
            return self.minimum_ns
        return int(drawn) if drawn < MAX_DELAY_NS else MAX_DELAY_NS

    def mean_ns(self) -> int:
        """About how long delays are: the mean without floor and ceiling, kept between the two."""
        return int(min(max(self._mean(), self.minimum_ns), MAX_DELAY_NS))

    def __str__(self) -> str:
        values = self.between.join(
            format_duration(getattr(self, name)) if name.endswith("_ns") else repr(getattr(self, name))
            for name in _written(type(self))
        )
        return f"{self.name}:{values}" + (f",min={format_duration(self.minimum_ns)}" if self.minimum_ns else "")

    @abstractmethod
    def _draw(self, rng: Random) -> float:
        """One delay before floor and ceiling."""

    @abstractmethod
    def _mean(self) -> float:
        """The mean before floor and ceiling."""


@dataclass(frozen=True, slots=True)
class Constant(Law):
    """Always the same."""

    name = "constant"
    form = "constant:2ms"

    delay_ns: int

    def _draw(self, rng: Random) -> float:
        return self.delay_ns

    def _mean(self) -> float:
        return self.delay_ns


@dataclass(frozen=True, slots=True)
class Uniform(Law):
    """Anything between two bounds, both included, with the same chance."""

    name = "uniform"
    form = "uniform:1ms..5ms"
    between = ".."

    low_ns: int
    high_ns: int

    def __post_init__(self) -> None:
        Law.__post_init__(self)
        if self.low_ns > self.high_ns:
            low, high = format_duration(self.low_ns), format_duration(self.high_ns)
            raise ConfigError(f"uniform:{low}..{high} ends before it starts: did you mean uniform:{high}..{low}?")

    def _draw(self, rng: Random) -> float:
        return self.low_ns + int((self.high_ns - self.low_ns + 1) * rng.random())

    def _mean(self) -> float:
        return (self.low_ns + self.high_ns) / 2


@dataclass(frozen=True, slots=True)
class Exponential(Law):
    """Mostly short, at times a few times the average."""

    name = "exponential"
    form = "exponential:10ms"

    average_ns: int

    def _draw(self, rng: Random) -> float:
        return -math.log(1.0 - rng.random()) * self.average_ns

    def _mean(self) -> float:
        return self.average_ns


@dataclass(frozen=True, slots=True)
class Pareto(Law):
    """Heavy tail: never below the scale, and now and then far beyond it. Up to shape 1 the mean is infinite."""

    name = "pareto"
    form = "pareto:5ms,1.5"

    scale_ns: int
    shape: float

    def _draw(self, rng: Random) -> float:
        return self.scale_ns * _exp(-math.log(1.0 - rng.random()) / self.shape)

    def _mean(self) -> float:
        return self.scale_ns * self.shape / (self.shape - 1) if self.shape > 1 else MAX_DELAY_NS


@dataclass(frozen=True, slots=True)
class LogNormal(Law):
    """Heavy tail: half of the delays are below the median, and the logarithm of a delay is normal with this sigma."""

    name = "lognormal"
    form = "lognormal:5ms,0.8"

    median_ns: int
    sigma: float

    def _draw(self, rng: Random) -> float:
        return self.median_ns * _exp(rng.normalvariate(0.0, self.sigma))

    def _mean(self) -> float:
        return self.median_ns * _exp(self.sigma * self.sigma / 2)


LAWS: dict[str, type[Law]] = {law.name: law for law in (Constant, Uniform, Exponential, Pareto, LogNormal)}


def parse_law(text: str) -> Law:
    """The law that a text such as ``uniform:1ms..5ms`` or ``exponential:10ms,min=1ms`` stands for."""
    name, _, rest = text.strip().partition(":")
    if name not in LAWS:
        close = get_close_matches(name.lower(), LAWS, n=1)
        hint = f"did you mean {LAWS[close[0]].form}?" if close else f"use one of {', '.join(LAWS)}, as in constant:2ms"
        raise ConfigError(f"{text!r} names no delay law: {hint}")
    law = LAWS[name]
    written, floored, minimum = rest.partition(",min=")
    try:
        return law(**_values(law, written), minimum_ns=parse_duration_ns(minimum) if floored else 0)
    except ConfigError as error:
        raise ConfigError(f"delay law {text!r}: {error} (an example: {law.form})") from None


def _written(law: type[Law]) -> list[str]:
    """The fields that stand behind the colon."""
    return [each.name for each in fields(law) if not each.kw_only]


def _values(law: type[Law], written: str) -> dict[str, Any]:
    names, texts = _written(law), written.split(law.between)
    if len(texts) != len(names):
        raise ConfigError(f"it takes {law.between.join(names)}, and {len(texts)} of these {len(names)} are given")
    return {name: _value(name, text) for name, text in zip(names, texts, strict=True)}


def _value(name: str, text: str) -> Any:
    if name.endswith("_ns"):
        return parse_duration_ns(text)
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"the {name} {text!r} is not a number") from None


def _check_ns(what: str, ns: int) -> None:
    if not 0 <= ns <= MAX_DELAY_NS:
        raise ConfigError(f"the {what} must be between 0ns and {format_duration(MAX_DELAY_NS)}, not {ns} ns")


def _exp(power: float) -> float:
    """Return e to this power, or to one that is far beyond the ceiling: a heavy tail must not overflow."""
    return math.exp(min(power, 60.0))
