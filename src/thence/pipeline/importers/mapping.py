"""A mapping: how the rows of any NDJSON log become events, declared in a TOML file.

This file reads and checks such a file; :mod:`~thence.pipeline.importers.fields` applies it. The keys, by example:

    order = "clock"                         # by what a process's rows are ordered: "line" (as they stand, the default), "time",
                                            # "clock" (the process's own entry), or the path of an integer
    ignore = [                              # rows that are no events
      { has = "N" },                          # the field is there
      { lacks = "event" },                    # the field is not there, or null
      { field = "level", is = ["debug"] },    # the field has one of these values
    ]

    [columns]
    process = "node"                        # a path: names with dots between them, or a JSON pointer: "/node"
    kind    = { from = "event", values = { ">" = "send", "<" = "deliver" }, otherwise = "other" }
    message = { template = "{pkt.snd}>{pkt.rcv}", match = "clock" }
    to      = "pkt.rcv"                     # or { found = "deliveries" } or { found = "processes" }
    time    = { from = "ts", unit = "ms" }  # s, ms, us, ns (the default) or iso
    domain  = { constant = "A" }

Rules:

* ``process`` and ``kind`` must be declared; every other column may be. ``index`` is made from ``order`` when it is not
  declared.
* A column comes ``from`` one field, or is a ``constant``, or is text made by a ``template``. ``values`` translates what was
  found; a value that is not in there is a bad row, unless ``otherwise`` says what it becomes.
* ``match`` is for logs in which messages have no ids of their own: what the column gives is then the name of a channel, and
  ``order`` says that the n-th delivery on it is of the n-th send, ``clock`` that the logged clocks tell which.
* A key that is not known is refused: a misspelt option must not be silently without effect.
"""

from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from thence.errors import ConfigError
from thence.trace.events import COLUMNS

LINE: Final = "line"
TIME: Final = "time"
CLOCK: Final = "clock"

FieldPath = tuple[str, ...]


class Column(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"from_": "from"}):
    """Where the values of a column come from."""

    from_: str | None = None
    constant: str | int | list[str] | None = None
    template: str | None = None
    values: dict[str, str] | None = None
    otherwise: str | None = None
    unit: Literal["s", "ms", "us", "ns", "iso"] | None = None
    match: Literal["order", "clock"] | None = None
    found: Literal["deliveries", "processes"] | None = None


class Ignore(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"is_": "is"}):
    """Which rows are no events: exactly one of ``has``, ``lacks`` and ``field`` is given, and ``is`` with the last."""

    has: str | None = None
    lacks: str | None = None
    field: str | None = None
    is_: list[str | int | float | bool] = []


class Mapping(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole mapping file."""

    columns: Annotated[dict[str, str | Column], msgspec.Meta(min_length=1)]
    order: str = LINE
    ignore: list[Ignore] = []

    def column(self, name: str) -> Column:
        """Return where a column comes from; an empty one if nothing is declared."""
        declared = self.columns.get(name, Column())
        return Column(from_=declared) if isinstance(declared, str) else declared


def read_mapping(path: str | Path) -> Mapping:
    """Read a mapping file, or say what is wrong in it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return parse_mapping(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_mapping(text: str) -> Mapping:
    """Return the mapping that a TOML text declares."""
    try:
        mapping = msgspec.convert(tomllib.loads(text), Mapping)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise ConfigError(str(error)) from None
    _check(mapping)
    return mapping


def _check(mapping: Mapping) -> None:
    for name in ("process", "kind"):
        if name not in mapping.columns:
            raise ConfigError(f"columns.{name}: must be declared")
    for name in mapping.columns:
        if name not in COLUMNS:
            raise ConfigError(f"columns.{name}: no column of a trace; they are {', '.join(COLUMNS)}")
        _check_column(name, mapping.column(name))
    for rule in mapping.ignore:
        if sum(given is not None for given in (rule.has, rule.lacks, rule.field)) != 1 or bool(rule.field) != bool(rule.is_):
            raise ConfigError("ignore: each rule has one of 'has', 'lacks' and 'field', and 'is' only with 'field'")
    needs_clock = mapping.order == CLOCK or mapping.column("message").match == CLOCK
    if needs_clock and "clock" not in mapping.columns:
        raise ConfigError("columns.clock: must be declared where 'order' or 'match' is \"clock\"")
    if mapping.order == TIME and "time" not in mapping.columns:
        raise ConfigError("columns.time: must be declared where 'order' is \"time\"")


def _check_column(name: str, column: Column) -> None:
    sources = (column.from_, column.constant, column.template, column.found)
    if sum(given is not None for given in sources) != 1:
        raise ConfigError(
            f"columns.{name}: needs one of 'from', 'constant', 'template'" + (" and 'found'" if name == "to" else "")
        )
    for option, where in (("unit", "time"), ("match", "message"), ("found", "to")):
        if getattr(column, option) is not None and name != where:
            raise ConfigError(f"columns.{name}.{option}: only the column '{where}' has it")
    if column.otherwise is not None and column.values is None:
        raise ConfigError(f"columns.{name}.otherwise: needs 'values'")
    if column.template is not None:
        template_parts(column.template)


def field_path(text: str) -> FieldPath:
    """Return a path as names: ``a.b``, or the JSON pointer ``/a/b``.

    >>> field_path("pkt.vc"), field_path("/a~1b/0")
    (('pkt', 'vc'), ('a/b', '0'))
    """
    if text.startswith("/"):
        return tuple(name.replace("~1", "/").replace("~0", "~") for name in text[1:].split("/"))
    return tuple(text.split("."))


def template_parts(template: str) -> list[tuple[str, FieldPath | None]]:
    """Return the pieces of a template: text, and the path of what follows it. ``{{`` and ``}}`` are braces."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"template {template!r}: {error}") from None
    if any(spec or conversion or field == "" for _, field, spec, conversion in parts):
        raise ConfigError(f"template {template!r}: between braces stands the path of a field, and nothing else")
    return [(text, None if field is None else field_path(field)) for text, field, _, _ in parts]
