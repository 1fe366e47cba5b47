"""Why a row cannot be read, in words that name the column, what was expected and what was found.

The readers decode fast and without explanations; only a row that failed comes here. A reader collects complaints
instead of stopping at the first, since whoever repairs a file wants to see what is wrong with it, not one line of it.

Rules:

* At most ``MAX_SHOWN`` places are spelled out; the rest are counted.
* A value found is shown as JSON, cut at ``MAX_FOUND`` characters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from thence.errors import TraceError
from thence.trace.events import COLUMNS, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, REQUIRED

MAX_SHOWN: Final = 20
MAX_FOUND: Final = 60


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _is_int(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


_is_int32 = _is_int(INT32_MIN, INT32_MAX)
_is_int64 = _is_int(INT64_MIN, INT64_MAX)


def _is_strings(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


def _is_clock(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) and _is_int64(n) for key, n in value.items())


_STRING: Final = ("a string", _is_string)
_INT32: Final = ("an integer of 32 bits", _is_int32)
_INT64: Final = ("an integer", _is_int64)

EXPECTED: Final[dict[str, tuple[str, Callable[[object], bool]]]] = {
    "run": _STRING,
    "process": _STRING,
    "index": _INT64,
    "kind": _STRING,
    "message": _STRING,
    "to": ("a list of strings", _is_strings),
    "time": _INT64,
    "domain": _STRING,
    "bytes": _INT32,
    "overhead": _INT32,
    "clock": ("a map from strings to integers", _is_clock),
    "client": _STRING,
    "topic": _STRING,
}


def show(value: object) -> str:
    """Return the value as JSON, cut when long."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        text = repr(value)
    return text if len(text) <= MAX_FOUND else text[:MAX_FOUND] + "…"


def explain(row: Mapping[str, object]) -> list[str]:
    """Return what is wrong with each column of a row; empty when the row can be read."""
    wrong = []
    for column in COLUMNS:
        words, fits = EXPECTED[column]
        if column not in row:
            if column in REQUIRED:
                wrong.append(f"column '{column}': expected {words}, found no such column")
        elif row[column] is None:
            if column in REQUIRED:
                wrong.append(f"column '{column}': expected {words}, found null")
        elif not fits(row[column]):
            wrong.append(f"column '{column}': expected {words}, found {show(row[column])}")
    return wrong


class Complaints:
    """What is wrong so far in the trace being read."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[str] = []

    def add(self, place: str, problem: str) -> None:
        """Note a bad line or row. ``place`` is the file and the line."""
        self.count += 1
        if len(self._shown) < MAX_SHOWN:
            self._shown.append(f"{place}: {problem}")

    def raise_if_any(self) -> None:
        """End the reading if any row was bad."""
        if not self.count:
            return
        lines = list(self._shown)
        if self.count > len(lines):
            lines.append(f"… and {self.count - len(lines)} more")
        if self.count > 1:
            lines.append(f"{self.count} bad rows in all")
        raise TraceError("\n".join(lines))
