"""One row of an NDJSON log as a row of the trace, by a mapping. Pure: a line in, a row out.

Rules:

* What a field holds is converted where the meaning is plain: numbers and booleans to text, digits to numbers, one destination
  to a list, a list of counts to a clock of the processes 0, 1, 2, …. Everything else is left as it is and refused by the
  trace's own rules, in the words of its readers.
* ``to`` is filled in for sends only: what a delivery says about destinations is no news.
* A message's id is needed where something is sent or delivered; elsewhere it may be absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping as AbstractMapping
from typing import Any, Final

import msgspec

from thence.errors import TraceError
from thence.pipeline.importers.lines import ORDER, Partition
from thence.pipeline.importers.mapping import CLOCK, LINE, TIME, Column, FieldPath, Ignore, Mapping, field_path, template_parts
from thence.pipeline.importers.times import nanoseconds
from thence.trace.complaints import explain, show
from thence.trace.events import COLUMNS, DELIVER, SEND
from thence.trace.files import PARTITION_COLUMNS

_TEXT_COLUMNS: Final = ("run", "process", "kind", "message", "domain")
_COUNT_COLUMNS: Final = ("index", "bytes", "overhead")
_MAX_DIGITS: Final = 20
_WHOLE_FLOATS: Final = 2**53

_decode = msgspec.json.Decoder().decode


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


def _value(source: AbstractMapping[str, Any], name: str, column: Column, row: AbstractMapping[str, Any]) -> Any:
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


def _translated(name: str, found: str, column: Column) -> str:
    known = column.values or {}
    translated = known.get(found, column.otherwise)
    if translated is None:
        raise TraceError(f"column '{name}': the mapping's values do not have {show(found)}")
    return translated


def _converted(name: str, value: Any, column: Column) -> Any:
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
