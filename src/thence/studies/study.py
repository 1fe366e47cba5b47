"""A study as a value: what one declarative TOML file says, its points and the seeds of its runs.

Rules:

* Nothing is guessed: an unknown key, a measure or parameter that does not exist, is an error that names the file and the key.
* A point is the parameters of the study with one combination of its grid. Its canonical JSON is its name everywhere.
* The seed of a run comes from the study's name, the point and the repetition, and from nothing else: so a run is the same
  on any machine, in any order, today and after a crash. Parameters in ``same_chance`` are left out of it.
* ``small`` is the same study, cut to what continuous integration has time for.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Final, Literal

import msgspec

from thence.errors import ConfigError
from thence.studies.models import Measures, Point, Value

__all__ = ["Claim", "Equal", "Growth", "Measures", "Order", "Plot", "Point", "Ranking", "Study", "Trend", "Value", "Where"]

Where = dict[str, Value | list[Value]]
"""Values of grid parameters; a list stands for any of its values."""

CATALOGUE: Final = Path(__file__).with_name("catalogue")

IN_ORDER: Final = (
    "daisy-load",
    "daisy-options",
    "interconnect-links",
    "clusters-cost",
    "clusters-layers",
    "gateways-concurrency",
    "domains-growth",
    "all-together",
    "internet-scale",
)
"""The order in which the studies are listed and run; others come after them, by name."""

MAX_POINTS: Final = 10_000
MAX_REPETITIONS: Final = 10_000
SEED_BITS: Final = 63

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of the file."""


class Repetitions(_Table, frozen=True, kw_only=True):
    """How often each point is run: at least, at most, and until the interval is under a share of the mean, of these measures."""

    least: int
    most: int
    share: float = 0.04
    of: tuple[str, ...] = ()


class Small(_Table, frozen=True, kw_only=True):
    """What replaces the above in the small version."""

    least: int | None = None
    most: int | None = None
    share: float | None = None
    parameters: dict[str, Value] = {}
    grid: dict[str, list[Value]] = {}


class Measure(_Table, frozen=True, kw_only=True):
    """What a number means."""

    text: str = ""
    unit: str = ""


class Plot(_Table, frozen=True, kw_only=True):
    """Measures against a grid parameter, a line for each combination of ``by``."""

    title: str
    x: str
    y: tuple[str, ...]
    by: tuple[str, ...] = ()
    where: Where = {}
    log: Literal["", "x", "y", "xy"] = ""


class Ranking(_Table, frozen=True, kw_only=True):
    """A table of where each value of a grid parameter is best, which is lowest, by these measures."""

    title: str
    of: str
    measures: tuple[str, ...]
    where: Where = {}


class _Claim(_Table, tag_field="kind", frozen=True, kw_only=True):
    """What every claim has: its row in the list of claims, its words, what it is about."""

    measure: str
    id: str = ""
    text: str = ""
    where: Where = {}
    note: str = ""


class Order(_Claim, tag="order", frozen=True, kw_only=True):
    """The measure at ``this`` is above or below that at ``that``, at every combination of the others."""

    this: Where
    that: Where
    relation: Literal["above", "below"]


class Equal(_Claim, tag="equal", frozen=True, kw_only=True):
    """The measure equals another one, a formula, within a share of it."""

    formula: str
    within: float


class Growth(_Claim, tag="growth", frozen=True, kw_only=True):
    """The measure grows as a power whose exponent lies within bounds, or as a line or a logarithm that explains ``fit``.

    A line is a x + b with a above 0: a constant part, which every message has, does not make growth any less linear. Every point
    must lie within a share ``within`` of it: R² alone is decided by the largest ones.
    """

    against: str
    low: float | None = None
    high: float | None = None
    law: Literal["power", "line", "log"] = "power"
    fit: float = 0.98
    within: float = 0.15


class Trend(_Claim, tag="trend", frozen=True, kw_only=True):
    """From the smallest to the largest value of ``against`` the measure rises, falls, or stays within a share."""

    against: str
    relation: Literal["rises", "falls", "constant"]
    within: float = 0.05


Claim = Order | Equal | Growth | Trend


class Study(_Table, frozen=True, kw_only=True):
    """One study, whole or small: what its file says, and how it was read."""

    name: str
    title: str
    model: str
    paper: str = ""
    about: str = ""
    parameters: dict[str, Value] = {}
    grid: dict[str, list[Value]] = {}
    without: tuple[Where, ...] = ()
    same_chance: tuple[str, ...] = ()
    """Parameters of the grid that do not enter the seed: what differs only in these meets the same traffic, say."""
    repetitions: Repetitions
    small: Small = Small()
    measures: dict[str, Measure]
    plots: tuple[Plot, ...] = ()
    rankings: tuple[Ranking, ...] = ()
    claims: tuple[Claim, ...] = ()
    is_small: bool = False
    text: str = ""
    """The file as it was read."""
    source: str = ""
    """What the user called it."""

    def points(self) -> Iterator[Point]:
        """Give every combination of the grid that is not left out, in the order of the file."""
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            if not any(matches(chosen, left_out) for left_out in self.without):
                yield {**self.parameters, **chosen}

    def seed(self, point: Point, repetition: int) -> int:
        """Return the seed of one run."""
        return seed_of(self.name, {name: value for name, value in point.items() if name not in self.same_chance}, repetition)

    def label(self, point: Point) -> str:
        """Return a point by its grid parameters, as ``replay`` takes it."""
        return ",".join(f"{name}={shown(point[name])}" for name in self.grid)

    def point_labelled(self, text: str) -> Point:
        """Return the point that such a label names."""
        # A value may hold commas; a comma before a key of the grid ends it.
        before, *words = re.split(rf"(?:^|,)({'|'.join(map(re.escape, self.grid))})=", text) if self.grid else [text]
        if before:
            raise ConfigError(f"--point {before}: expected KEY=VALUE with a key of the grid ({', '.join(self.grid)})")
        given = dict(zip(words[::2], words[1::2], strict=True))
        for name, values in self.grid.items():
            known = [shown(value) for value in values]
            if len(values) == 1:
                given.setdefault(name, known[0])
            if name not in given:
                raise ConfigError(f"--point {text}: {name} is missing, one of {', '.join(known)}")
            if given[name] not in known:
                raise ConfigError(f"--point {name}={given[name]}: must be one of {', '.join(known)}")
        for point in self.points():
            if all(shown(point[name]) == value for name, value in given.items()):
                return point
        raise ConfigError(f"--point {text}: the study leaves this combination out")


_TABLES: Final = (Study, Repetitions, Small, Measure, Plot, Ranking, Order, Equal, Growth, Trend)
_NOT_IN_FILES: Final = frozenset({"is_small", "text", "source"})
"""Fields of a study that say how it was read."""


def shown(value: Value) -> str:
    """Return a value of a parameter as text."""
    return value if isinstance(value, str) else json.dumps(value)


def canonical(point: Point) -> str:
    """Return the name of a point: its JSON, with sorted keys and without spaces.

    >>> canonical({"b": 1, "a": "x"})
    '{"a":"x","b":1}'
    """
    return json.dumps(dict(point), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seed_of(study: str, point: Point, repetition: int) -> int:
    """Return the seed that follows from a study's name, what of the point counts, and the repetition."""
    digest = hashlib.sha256(f"{study}\n{canonical(point)}\n{repetition}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)


def matches(point: Point, where: Mapping[str, Value | list[Value]]) -> bool:
    """Return whether a point has the values that ``where`` names."""
    return all(point[name] in wanted if isinstance(wanted, list) else point[name] == wanted for name, wanted in where.items())


def study_names() -> list[str]:
    """Return the studies of the catalogue."""
    names = sorted(path.stem for path in CATALOGUE.glob("*.toml"))
    return [name for name in IN_ORDER if name in names] + [name for name in names if name not in IN_ORDER]


def study_named(name: str, *, small: bool = False) -> Study:
    """Return a study of the catalogue, or one from a file of one's own."""
    path = Path(name) if name.endswith(".toml") else CATALOGUE / f"{name}.toml"
    if not path.is_file():
        if path.parent != CATALOGUE:
            raise ConfigError(f"{name}: no such file")
        near = get_close_matches(name, study_names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(study_names()) or 'none'}; or name a .toml file"
        raise ConfigError(f"no study {name!r}; {hint}")
    study = parse(path.read_text(encoding="utf-8"), path.name if path.parent == CATALOGUE else name, source=name, small=small)
    if path.parent == CATALOGUE and study.name != path.stem:
        raise ConfigError(f"{path.name}: name: must be that of the file, {path.stem!r}, and is {study.name!r}")
    return study


def parse(text: str, file: str = "study", *, source: str = "", small: bool = False) -> Study:
    """Return the study that ``text`` describes; ``file`` is named in errors."""
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}") from None
    for name in sorted(_NOT_IN_FILES & tables.keys()):
        raise ConfigError(f"{file}: {name}: no such key")
    try:
        study = msgspec.convert(tables, Study)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: {_misfit(str(error))}") from None
    for where, what in _mistakes(study):
        raise ConfigError(f"{file}: {where}: {what}")
    if small:
        cut = study.small
        chosen = {"least": cut.least, "most": cut.most, "share": cut.share}
        fewer = {key: value for key, value in chosen.items() if value is not None}
        study = msgspec.structs.replace(
            study,
            parameters={**study.parameters, **cut.parameters},
            grid={**study.grid, **cut.grid},
            repetitions=msgspec.structs.replace(study.repetitions, **fewer),
        )
    study = msgspec.structs.replace(study, is_small=small, text=text, source=source or file)
    for where, what in _mistakes_of_sizes(study):
        raise ConfigError(f"{file}: {where}: {what}")
    return study


def _misfit(message: str) -> str:
    """Return what a file has that it must not have, by the key and with a suggestion."""
    what, _, path = message.partition(" - at ")
    place = path.strip("`").removeprefix("$").removeprefix(".")
    unknown = re.search(r"unknown field `(.+)`", what)
    if unknown:
        known = {field for table in _TABLES for field in table.__struct_fields__} - {"is_small", "source"}
        near = get_close_matches(unknown[1], sorted(known), 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{f'{place}.' if place else ''}{unknown[1]}: no such key{hint}"
    return f"{place}: {what}" if place else what


Mistakes = Iterator[tuple[str, str]]
"""Keys of the file, and what is wrong there."""


def _mistakes(study: Study) -> Mistakes:
    """Give what the types alone do not say."""
    if not _NAME.fullmatch(study.name):
        yield "name", f"must be of a to z, digits and hyphens, and is {study.name!r}"
    if not study.measures:
        yield "measures", "there is none"
    yield from _not_in_grid(study, "small.grid", study.small.grid)
    yield from _no_measures(study, "repetitions.of", study.repetitions.of)
    for name in sorted(study.grid.keys() & {*study.parameters, *study.small.parameters}):
        yield f"parameters.{name}", "is in the grid as well"
    for name, values in [*study.grid.items(), *study.small.grid.items()]:
        if not values:
            yield f"grid.{name}", "has no value"
        yield from (
            (f"grid.{name}", f"{value!r}: a value that is text must be one line, and not empty")
            for value in values
            if isinstance(value, str) and not (value and value.isprintable())
        )
    yield from _not_in_grid(study, "same_chance", study.same_chance)
    for number, left_out in enumerate(study.without):
        yield from _not_in_grid(study, f"without[{number}]", left_out)
    for number, plot in enumerate(study.plots):
        yield from _no_measures(study, f"plots[{number}].y", plot.y)
        for key, names in (("x", [plot.x]), ("by", plot.by), ("where", plot.where)):
            yield from _not_in_grid(study, f"plots[{number}].{key}", names)
    for number, ranking in enumerate(study.rankings):
        yield from _not_in_grid(study, f"rankings[{number}].of", [ranking.of])
        yield from _no_measures(study, f"rankings[{number}].measures", ranking.measures)
        yield from _not_in_grid(study, f"rankings[{number}].where", ranking.where)
    for number, claim in enumerate(study.claims):
        yield from _mistakes_of_claim(study, f"claims[{number}]", claim)


def _mistakes_of_claim(study: Study, place: str, claim: Claim) -> Mistakes:
    yield from _no_measures(study, f"{place}.measure", [claim.measure])
    yield from _not_in_grid(study, f"{place}.where", claim.where)
    if isinstance(claim, Order):
        yield from _not_in_grid(study, f"{place}.this", claim.this)
        yield from _not_in_grid(study, f"{place}.that", claim.that)
        if set(claim.this) != set(claim.that) or not claim.this:
            yield f"{place}.that", "must name the same parameters as this"
    if isinstance(claim, Equal):
        yield from _no_measures(study, f"{place}.formula", [claim.formula])
    if isinstance(claim, Growth | Trend):
        yield from _not_in_grid(study, f"{place}.against", [claim.against])
        if any(isinstance(value, str | bool) for value in study.grid.get(claim.against, ())):
            yield f"{place}.against", f"{claim.against} is not a number"
    if isinstance(claim, Growth) and claim.law == "power" and (claim.low is None or claim.high is None):
        yield f"{place}.low", "a power needs low and high"


def _mistakes_of_sizes(study: Study) -> Mistakes:
    repetitions = study.repetitions
    table = "small" if study.is_small else "repetitions"
    if not 1 <= repetitions.least <= repetitions.most <= MAX_REPETITIONS:
        yield f"{table}.most", f"1 <= least <= most <= {MAX_REPETITIONS} must hold"
    if not 0 < repetitions.share < 1:
        yield f"{table}.share", "must be between 0 and 1"
    count = sum(1 for _ in study.points())
    if not 1 <= count <= MAX_POINTS:
        yield "grid", f"has {count} points; there must be from 1 to {MAX_POINTS}"


def _not_in_grid(study: Study, place: str, names: Iterable[str]) -> Mistakes:
    return _unknown(place, names, set(study.grid), "a parameter of the grid")


def _no_measures(study: Study, place: str, names: Iterable[str]) -> Mistakes:
    return _unknown(place, names, set(study.measures), "a measure")


def _unknown(place: str, names: Iterable[str], known: set[str], what: str) -> Mistakes:
    for name in names:
        if name not in known:
            near = get_close_matches(name, sorted(known), 1)
            yield place, f"{name!r} is not {what}; " + (f"did you mean {near[0]!r}?" if near else f"there are: {sorted(known)}")
