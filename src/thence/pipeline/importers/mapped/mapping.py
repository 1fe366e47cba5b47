"""A mapping: how JSON of any shape becomes events, declared in a TOML file. Pure but for reading that file.

The keys, by example:

    about = "what it reads"
    records = "batches.*.spans.*"           # a line holds many records; ``documents = true``: a file is one JSON document
    order = "clock"                         # by what a process's rows are ordered: "line" (as they stand, the default), "time",
                                            # "clock" (the process's own entry), or the path of an integer
    once = "{trace}:{id}"                   # a record with the same text as one before, at the same process, is ignored
    ignore = [                              # records that are no events
      { has = "N" },                          # the field is there
      { lacks = "event" },                    # the field is not there, or null
      { field = "level", is = ["debug"] },    # the field has one of these values; ``is_not``: none of them
    ]

    [columns]
    process = ["node", "^.host.name"]       # a path: names with dots between them, or a JSON pointer: "/node". Of several paths,
                                            # the first one that leads to something. ``^`` is the object around the record
    kind    = { from = "event", values = { ">" = "send", "<" = "deliver" }, otherwise = "other" }
    message = { template = "{pkt.snd}>{pkt.rcv}", match = "clock" }
    to      = "pkt.rcv"                     # or { found = "deliveries" } or { found = "processes" }
    time    = { from = "ts", plus = "took", unit = "ms" }  # s, ms, us or ns (the default); a date is read as one
    domain  = { constant = "A" }

    [[events]]                              # a record becomes several events: each has columns of its own beside those above
    when = [{ has = "causes" }]             # if all of this is so
    each = "causes.*"                       # one for each of these; paths begin there, and ``^`` is the record
    maybe = true                            # only if another process has the other end of the message
    columns = { kind = { constant = "deliver" }, message = "id" }

    [[doubts]]                              # what such a trace cannot show
    of = ["completeness"]
    because = "lost messages are not logged"

Rules:

* ``process`` and ``kind`` must be declared; every other column may be. ``index`` is made from ``order`` when it is not declared.
* A column comes ``from`` a field, or is a ``constant``, or is text made by a ``template``. ``values`` translates what was found;
  a value that is not in there is a bad row, unless ``otherwise`` says what it becomes.
* ``match`` is for logs in which messages have no ids of their own: what the column gives is then the name of a channel, and
  ``order`` says that the n-th delivery on it is of the n-th send, ``clock`` that the logged clocks tell which.
* A key that is not known is refused: a misspelt option must not be silently without effect.
* What a mapping cannot show it says itself: ``doubts``, and what follows from ``order``, ``match`` and ``found``.
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import msgspec

from thence.errors import ConfigError
from thence.trace.events import COLUMNS
from thence.trace.verdict import PROPERTIES

LINE: Final = "line"
TIME: Final = "time"
CLOCK: Final = "clock"

AROUND: Final = "^"
EVERY: Final = "*"

FieldPath = tuple[str, ...]
Texts = str | list[str]

_FOLLOWS: Final = {
    (
        "order",
        TIME,
    ): "fifo, causal, total in doubt: the events of a process are ordered by their times alone, so what it did side by side "
    "counts as done one after the other",
    (
        "match",
        "order",
    ): "duplication, fifo, causal in doubt: messages have no ids, and equal ones are told apart by counting them: after one "
    "that was lost or repeated, the next ones are taken for each other",
    (
        "match",
        CLOCK,
    ): "creation, duplication in doubt: messages have no ids, and the logged clocks are believed about which is which",
    ("found", "deliveries"): "completeness in doubt: sends do not say where they go, so a message that was lost cannot show",
    ("found", "processes"): "completeness in doubt: sends do not say where they go, and every process counts as a destination",
}
"""What cannot be judged where the mapping has this option."""


class ColumnRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"from_": "from"}):
    """Where the values of a column come from."""

    from_: Texts | None = None
    constant: str | int | list[str] | None = None
    template: Texts | None = None
    values: dict[str, str] | None = None
    otherwise: str | None = None
    unit: Literal["s", "ms", "us", "ns", "iso"] | None = None
    plus: str | None = None
    match: Literal["order", "clock"] | None = None
    found: Literal["deliveries", "processes"] | None = None


Columns = dict[str, Texts | ColumnRule]


class Condition(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"is_": "is"}):
    """What is asked of a record: one of ``has``, ``lacks`` and ``field``, and ``is`` or ``is_not`` with the last."""

    has: str | None = None
    lacks: str | None = None
    field: str | None = None
    is_: list[str | int | float | bool] = []
    is_not: list[str | int | float | bool] = []


class EventRule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One of the events that a record becomes, or one for each part of it."""

    columns: Columns = {}
    when: list[Condition] = []
    each: str | None = None
    order: str | None = None
    maybe: bool = False


class Doubt(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Properties that cannot be judged, or not wholly, and why."""

    of: list[str]
    because: str


class Mapping(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A whole mapping file. One with ``format`` "shiviz" has nothing about JSON in it."""

    columns: Columns = {}
    order: str = LINE
    ignore: list[Condition] = []
    records: Texts | None = None
    documents: bool = False
    once: Texts | None = None
    events: list[EventRule] = []
    doubts: list[Doubt] = []
    about: str = ""
    format: Literal["ndjson", "shiviz"] = "ndjson"

    @property
    def rules(self) -> list[EventRule]:
        """Return what a record becomes: a single event where nothing is declared."""
        return self.events or [EventRule()]

    def columns_of(self, event: EventRule) -> dict[str, tuple[ColumnRule, bool]]:
        """Return the columns of an event, in the order of the trace, and of each whether it is the event's own."""
        return {
            name: (rule_of((event.columns if name in event.columns else self.columns)[name]), name in event.columns)
            for name in COLUMNS
            if name in event.columns or name in self.columns
        }

    def column(self, name: str) -> ColumnRule:
        """Return where a column comes from that all events have; an empty rule if nothing is declared."""
        return rule_of(self.columns[name]) if name in self.columns else ColumnRule()

    def in_doubt(self) -> list[str]:
        """Say what cannot be judged in a trace that was made by this mapping, and why."""
        orders = {event.order or self.order for event in self.rules} if "index" not in self.columns else set()
        options = [
            *(("order", order) for order in orders),
            ("match", self.column("message").match),
            ("found", self.column("to").found),
        ]
        follows = [_FOLLOWS[name, option] for name, option in options if option and (name, option) in _FOLLOWS]
        return [*follows, *(f"{', '.join(doubt.of)} in doubt: {doubt.because}" for doubt in self.doubts)]


def rule_of(declared: Texts | ColumnRule) -> ColumnRule:
    """Return a column as it was declared, in full."""
    return declared if isinstance(declared, ColumnRule) else ColumnRule(from_=declared)


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
    for problem in _problems(mapping):
        raise ConfigError(problem)
    return mapping


def _problems(mapping: Mapping) -> Iterator[str]:
    for doubt in mapping.doubts:
        if not doubt.of or not set(doubt.of) <= set(PROPERTIES):
            yield f"doubts.of: one or more of {', '.join(PROPERTIES)}"
    if mapping.format != "ndjson":
        if mapping.columns or mapping.events:
            yield "columns: only where the format is ndjson"
        return
    for condition in chain(mapping.ignore, *(event.when for event in mapping.events)):
        values = bool(condition.is_) + bool(condition.is_not)
        given = [name is not None for name in (condition.has, condition.lacks, condition.field)]
        if sum(given) != 1 or values != given[-1]:
            yield "ignore and when: each has one of 'has', 'lacks' and 'field', and 'is' or 'is_not' with 'field' only"
    if mapping.column("message").match == CLOCK and any(event.maybe for event in mapping.events):
        yield "events.maybe: not where messages are matched by clock"
    for template in texts(mapping.once):
        template_parts(template)
    for event in mapping.rules:
        yield from _problems_of_event(mapping, event)


def _problems_of_event(mapping: Mapping, event: EventRule) -> Iterator[str]:
    for name, declared in chain(mapping.columns.items(), event.columns.items()):
        if name not in COLUMNS:
            yield f"columns.{name}: no column of a trace; they are {', '.join(COLUMNS)}"
        yield from _problems_of_column(name, rule_of(declared), own=name in event.columns)
    columns = mapping.columns_of(event)
    for name in ("process", "kind"):
        if name not in columns:
            yield f"columns.{name}: must be declared"
    order = event.order or mapping.order
    if (order == CLOCK or mapping.column("message").match == CLOCK) and "clock" not in columns:
        yield "columns.clock: must be declared where 'order' or 'match' is \"clock\""
    if order == TIME and "time" not in columns:
        yield "columns.time: must be declared where 'order' is \"time\""


def _problems_of_column(name: str, column: ColumnRule, *, own: bool) -> Iterator[str]:
    sources = (column.from_, column.constant, column.template, column.found)
    if sum(given is not None for given in sources) != 1:
        yield f"columns.{name}: needs one of 'from', 'constant', 'template'" + (" and 'found'" if name == "to" else "")
    for option, where in (("unit", "time"), ("plus", "time"), ("match", "message"), ("found", "to")):
        if getattr(column, option) is not None and name != where:
            yield f"columns.{name}.{option}: only the column '{where}' has it"
    if own and (column.match or column.found):
        yield f"columns.{name}: 'match' and 'found' are for all events, so not in one of them"
    if column.otherwise is not None and column.values is None:
        yield f"columns.{name}.otherwise: needs 'values'"
    for template in texts(column.template):
        template_parts(template)


def texts(given: Texts | None) -> list[str]:
    """Return what was given as one text or several as a list."""
    return [] if given is None else [given] if isinstance(given, str) else given


@cache
def field_path(text: str) -> FieldPath:
    """Return a path as names: ``a.b``, or the JSON pointer ``/a/b``.

    >>> field_path("pkt.vc"), field_path("/a~1b/0")
    (('pkt', 'vc'), ('a/b', '0'))
    """
    if text.startswith("/"):
        return tuple(name.replace("~1", "/").replace("~0", "~") for name in text[1:].split("/"))
    return tuple(text.split("."))


@cache
def template_parts(template: str) -> tuple[tuple[str, FieldPath | None], ...]:
    """Return the pieces of a template: text, and the path of what follows it. ``{{`` and ``}}`` are braces."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ConfigError(f"template {template!r}: {error}") from None
    if any(spec or conversion or field == "" for _, field, spec, conversion in parts):
        raise ConfigError(f"template {template!r}: between braces stands the path of a field, and nothing else")
    return tuple((text, None if field is None else field_path(field)) for text, field, _, _ in parts)
