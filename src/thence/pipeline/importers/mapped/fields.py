"""A mapping applied: rows of the trace from JSON values. Pure: a line or a document in, rows out.

Rules:

* A list of objects with ``key`` and ``value``, as attributes and tags are written, is read like an object, and so is a flat list
  of names and values. A value that only says its type (``{"stringValue": "a"}``) is what it holds.
* ``@name`` in a path is what the record has in that field: ``^.processes.@processID`` is the process with the record's id.
* What a field holds is converted where the meaning is plain: numbers and booleans to text, digits to numbers, one destination
  to a list, a list of counts to a clock of the processes 0, 1, 2, …. Everything else is left as it is and refused by the
  trace's own rules, in the words of its readers.
* ``to`` is filled in for sends only: what a delivery says about destinations is no news. A message's id is needed where
  something is sent or delivered; elsewhere it may be absent.
* The same send or delivery twice in one record is one: a cause may be named as parent and as link.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from thence.errors import TraceError
from thence.pipeline.importers.mapped.mapping import (
    AROUND,
    CLOCK,
    EVERY,
    LINE,
    TIME,
    ColumnRule,
    Condition,
    EventRule,
    FieldPath,
    Mapping,
    Texts,
    field_path,
    template_parts,
    texts,
)
from thence.pipeline.importers.staged import BAD, MAYBE, ONCE, ORDER, Partition, Row, cut
from thence.pipeline.importers.times import nanoseconds
from thence.trace.complaints import explain, show
from thence.trace.events import DELIVER, SEND
from thence.trace.files import PARTITION_COLUMNS

_TEXT_COLUMNS: Final = ("run", "process", "kind", "message", "domain", "client", "topic")
_COUNT_COLUMNS: Final = ("index", "bytes", "overhead")
_MAX_DIGITS: Final = 20
_WHOLE_FLOATS: Final = 2**53
_TYPED_VALUES: Final = {"stringValue", "intValue", "boolValue", "doubleValue"}

decode_json = msgspec.json.Decoder().decode


class Scope(NamedTuple):
    """A JSON value, and the object around it."""

    value: Any
    around: Scope | None = None


def look_up(scope: Scope, path: FieldPath) -> Any:
    """Return what a path leads to; None if to nothing."""
    here: Scope | None = scope
    climbed = 0
    while here is not None and path[climbed : climbed + 1] == (AROUND,):
        here, climbed = here.around, climbed + 1
    value = None if here is None else here.value
    for name in path[climbed:]:
        value = _member(value, _text(_member(scope.value, name[1:])) if name.startswith("@") else name)
    return value


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name)
    if not isinstance(value, list):
        return None
    if name.isdecimal() and len(name) < _MAX_DIGITS:
        return value[int(name)] if int(name) < len(value) else None
    for place, item in enumerate(value):
        if isinstance(item, dict) and item.get("key") == name:
            held = item.get("value")
            if isinstance(held, dict) and len(held) == 1 and held.keys() <= _TYPED_VALUES:
                return next(iter(held.values()))
            return held
        if item == name and place % 2 == 0 and place + 1 < len(value):
            return value[place + 1]
    return None


def spread(scope: Scope, path: FieldPath) -> Iterator[Scope]:
    """Yield what a path with stars leads to: each item of a list, also of lists in it; what is no list is one item."""
    if EVERY not in path:
        yield Scope(look_up(scope, path), scope)
        return
    first = path.index(EVERY)
    for item in _items(look_up(scope, path[:first])):
        below = Scope(item, scope)
        yield from spread(below, path[first + 1 :]) if path[first + 1 :] else [below]


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _items(item)
    elif value is not None:
        yield value


def holds(scope: Scope, condition: Condition) -> bool:
    """Return whether what is asked of a record is so."""
    if condition.has is not None:
        return look_up(scope, field_path(condition.has)) is not None
    if condition.lacks is not None:
        return look_up(scope, field_path(condition.lacks)) is None
    value = look_up(scope, field_path(condition.field or ""))
    among = any(type(value) is type(one) and value == one for one in condition.is_ or condition.is_not)
    return among if condition.is_ else not among


class Fields:
    """A mapping, ready to be applied."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._rules = [(event, mapping.columns_of(event)) for event in mapping.rules]
        self._records = [field_path(path) for path in texts(mapping.records)]

    def decode(self, line: bytes, partition: Partition) -> list[Row]:
        """Return the rows that a line stands for; none if it is to be ignored."""
        try:
            value = decode_json(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise TraceError(f"expected a JSON object: {error}") from None
        return [row for rows in self.records(value, partition) for row in rows]

    def records(self, value: Any, partition: Partition) -> Iterator[list[Row]]:
        """Yield the rows of each record in a JSON value. A record that is no good is one bad row."""
        if not self._records:
            yield self._rows(Scope(value), partition)
            return
        for path in self._records:
            found = list(spread(Scope(value), path))
            for number, scope in enumerate(found, 1):
                try:
                    yield self._rows(scope, partition)
                except TraceError as error:
                    yield [{"what": BAD, "raw": cut(_text(scope.value)), "reason": f"record {number}: {error}"}]
            if found:
                return

    def _rows(self, record: Scope, partition: Partition) -> list[Row]:
        if not isinstance(record.value, dict):
            raise TraceError(f"expected a JSON object, found {show(record.value)}")
        if any(holds(record, condition) for condition in self._mapping.ignore):
            return []
        rows: list[Row] = []
        shared: dict[str, Any] = {}
        seen: set[tuple[str, str]] = set()
        partition_columns = {name: partition.get(name) for name in PARTITION_COLUMNS}
        once = _first_filled(record, self._mapping.once)
        for event, columns in self._rules:
            if all(holds(record, condition) for condition in event.when):
                for part in [record] if event.each is None else spread(record, field_path(event.each)):
                    row = self._row(record, part, event, columns, {**partition_columns}, shared)
                    end = row["kind"], row.get("message") or ""
                    if end[0] not in {SEND, DELIVER} or end not in seen:
                        seen.add(end)
                        rows.append({**row, ONCE: None if once is None else f"{once}#{len(rows)}"})
        return rows

    def _row(
        self, record: Scope, part: Scope, event: EventRule, columns: dict[str, tuple[ColumnRule, bool]], row: Row, shared: Row
    ) -> Row:
        """Fill in a row; ``shared`` holds what all events of the record have, once it was looked up."""
        for name, (column, own) in columns.items():
            value = None
            if name == "to" and row["kind"] != SEND:
                pass
            elif own:
                value = _value(part, name, column)
            else:
                if name not in shared:
                    shared[name] = _value(record, name, column)
                value = shared[name]
            row[name] = row.get(name) if value is None else value
        made = {} if "index" in columns else {"index": 0}
        problems = explain({**row, **made})
        if problems:
            raise TraceError("; ".join(problems))
        if row["kind"] in {SEND, DELIVER} and "message" in columns and row["message"] is None:
            raise TraceError(f"column 'message': the row is a {row['kind']}, but has no message")
        place = None if "index" in columns else _place(event.order or self._mapping.order, record, row)
        return {**row, ORDER: place, MAYBE: event.maybe}


def _place(order: str, record: Scope, row: Row) -> int | None:
    if order == LINE:
        return None
    if order == CLOCK:
        place = (row["clock"] or {}).get(row["process"])
    elif order == TIME:
        place = row["time"]
    else:
        place = _count(look_up(record, field_path(order)))
    if isinstance(place, bool) or not isinstance(place, int):
        raise TraceError(f"order '{order}': expected an integer, found {show(place)}")
    return place


def _value(scope: Scope, name: str, column: ColumnRule) -> Any:
    """Return what a column holds."""
    found: Any = column.constant
    if column.template is not None:
        found = _first_filled(scope, column.template)
    elif column.from_ is not None:
        found = _first(scope, column.from_)
    if found is not None and column.values is not None:
        found = _translated(name, _text(found), column)
    if found is None:
        return None
    value = _converted(name, found, column)
    if column.plus is not None and isinstance(value, int):
        value += nanoseconds(look_up(scope, field_path(column.plus)), column.unit or "ns") or 0
    return value


def _first(scope: Scope, paths: Texts) -> Any:
    return next((found for path in texts(paths) if (found := look_up(scope, field_path(path))) is not None), None)


def _first_filled(scope: Scope, templates: Texts | None) -> str | None:
    return next((text for template in texts(templates) if (text := _filled(scope, template)) is not None), None)


def _filled(scope: Scope, template: str) -> str | None:
    text = ""
    for literal, path in template_parts(template):
        text += literal
        if path is not None:
            found = look_up(scope, path)
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
            value = decode_json(value)
        except (msgspec.MsgspecError, RecursionError):
            return value
    if isinstance(value, list):
        value = {str(place): count for place, count in enumerate(value)}
    return {name: _count(count) for name, count in value.items()} if isinstance(value, dict) else value
