"""A mapping: how the rows of any NDJSON log become events, declared in a TOML file. Pure but for reading that file.

The keys, by example:

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
* What a field holds is converted where the meaning is plain: numbers and booleans to text, digits to numbers, one destination
  to a list, a list of counts to a clock of the processes 0, 1, 2, …. Everything else is left as it is and refused by the
  trace's own rules, in the words of its readers.
* ``to`` is filled in for sends only: what a delivery says about destinations is no news. A message's id is needed where
  something is sent or delivered; elsewhere it may be absent.
"""

from __future__ import annotations

import json
import string
import tomllib
from collections.abc import Mapping as AbstractMapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from thence.errors import ConfigError, TraceError
from thence.pipeline.importers.staged import ORDER, Partition
from thence.pipeline.importers.times import nanoseconds
from thence.trace.complaints import explain, show
from thence.trace.events import COLUMNS, DELIVER, SEND
from thence.trace.files import PARTITION_COLUMNS

LINE: Final = "line"
TIME: Final = "time"
CLOCK: Final = "clock"

FieldPath = tuple[str, ...]

_TEXT_COLUMNS: Final = ("run", "process", "kind", "message", "domain")
_COUNT_COLUMNS: Final = ("index", "bytes", "overhead")
_MAX_DIGITS: Final = 20
_WHOLE_FLOATS: Final = 2**53

_decode = msgspec.json.Decoder().decode


class ColumnRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"from_": "from"}):
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

    columns: Annotated[dict[str, str | ColumnRule], msgspec.Meta(min_length=1)]
    order: str = LINE
    ignore: list[Ignore] = []

    def column(self, name: str) -> ColumnRule:
        """Return where a column comes from; an empty one if nothing is declared."""
        declared = self.columns.get(name, ColumnRule())
        return ColumnRule(from_=declared) if isinstance(declared, str) else declared


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


def _check_column(name: str, column: ColumnRule) -> None:
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


class Fields:
    """A mapping, ready to be applied."""

    def __init__(self, mapping: Mapping) -> None:
        self._columns = {name: mapping.column(name) for name in COLUMNS if name in mapping.columns}
        self._ignore = mapping.ignore
        self._order = mapping.order

    def decode(self, line: bytes, partition: Partition) -> dict[str, Any] | None:
        """Return the row that a line stands for; None if it is to be ignored."""
        try:
            source = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"expected a JSON object: {error}") from None
        if not isinstance(source, dict):
            raise TraceError(f"expected a JSON object, found {show(source)}")
        if any(_is_ignored(source, rule) for rule in self._ignore):
            return None
        row: dict[str, Any] = {name: partition.get(name) for name in PARTITION_COLUMNS}
        for name, column in self._columns.items():
            value = _value(source, name, column, row)
            row[name] = row.get(name) if value is None else value
        return self._checked(source, row)

    def _checked(self, source: AbstractMapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        made = {} if "index" in self._columns else {"index": 0}
        problems = explain({**row, **made})
        if problems:
            raise TraceError("; ".join(problems))
        if row["kind"] in {SEND, DELIVER} and "message" in self._columns and row["message"] is None:
            raise TraceError(f"column 'message': the row is a {row['kind']}, but has no message")
        return {**row, ORDER: None if "index" in self._columns else self._place(source, row)}

    def _place(self, source: AbstractMapping[str, Any], row: dict[str, Any]) -> int | None:
        if self._order == LINE:
            return None
        if self._order == CLOCK:
            place = (row["clock"] or {}).get(row["process"])
        elif self._order == TIME:
            place = row["time"]
        else:
            place = _count(_get(source, field_path(self._order)))
        if isinstance(place, bool) or not isinstance(place, int):
            raise TraceError(f"order '{self._order}': expected an integer, found {show(place)}")
        return place


def _is_ignored(source: AbstractMapping[str, Any], rule: Ignore) -> bool:
    if rule.has is not None:
        return _get(source, field_path(rule.has)) is not None
    if rule.lacks is not None:
        return _get(source, field_path(rule.lacks)) is None
    value = _get(source, field_path(rule.field or ""))
    return any(type(value) is type(wanted) and value == wanted for wanted in rule.is_)


def _get(source: Any, path: FieldPath) -> Any:
    for name in path:
        if isinstance(source, dict):
            source = source.get(name)
        elif isinstance(source, list) and name.isdecimal() and len(name) < _MAX_DIGITS and int(name) < len(source):
            source = source[int(name)]
        else:
            return None
    return source


def _value(source: AbstractMapping[str, Any], name: str, column: ColumnRule, row: AbstractMapping[str, Any]) -> Any:
    """Return what a column holds in this row. ``kind`` is decided before ``to``, as the order of the columns says."""
    if name == "to" and row["kind"] != SEND:
        return None
    found: Any
    if column.template is not None:
        found = _filled(source, column.template)
    elif column.constant is not None:
        found = column.constant
    else:
        found = _get(source, field_path(column.from_ or "")) if column.found is None else None
    if found is not None and column.values is not None:
        found = _translated(name, _text(found), column)
    return None if found is None else _converted(name, found, column)


def _filled(source: AbstractMapping[str, Any], template: str) -> str | None:
    text = ""
    for literal, path in template_parts(template):
        text += literal
        if path is not None:
            found = _get(source, path)
            if found is None:
                return None
            text += _text(found)
    return text


def _translated(name: str, found: str, column: ColumnRule) -> str:
    known = column.values or {}
    translated = known.get(found, column.otherwise)
    if translated is None:
        raise TraceError(f"column '{name}': the mapping's values do not have {show(found)}")
    return translated


def _converted(name: str, value: Any, column: ColumnRule) -> Any:
    if name in _TEXT_COLUMNS:
        return _text(value)
    if name in _COUNT_COLUMNS:
        return _count(value)
    if name == "time":
        time = nanoseconds(value, column.unit or "ns")
        return value if time is None else time
    if name == "to":
        return tuple(_text(item) for item in (value if isinstance(value, list) else [value]))
    return _clock(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except RecursionError:
        raise TraceError("expected text, found JSON nested too deeply") from None


def _count(value: Any) -> Any:
    if isinstance(value, str) and len(value) < _MAX_DIGITS and value.removeprefix("-").isdecimal():
        return int(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_FLOATS:
        return int(value)
    return value


def _clock(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = _decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    if isinstance(value, list):
        value = {str(place): count for place, count in enumerate(value)}
    return {name: _count(count) for name, count in value.items()} if isinstance(value, dict) else value
