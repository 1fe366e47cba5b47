"""Names and numbers as people read them.

Names come from files, and a file may hold anything: a name is shown without what could steer a terminal or turn the
direction of a line, and is cut when it is long. Whoever makes HTML escapes it besides (:func:`escaped`).
"""

from __future__ import annotations

import html
import math
import unicodedata
from importlib.util import find_spec
from typing import Final

from thence.errors import ConfigError

MAX_NAME_CHARACTERS: Final = 40

_UNSEEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})
_DURATIONS: Final = ((60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_SIZES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "B"))
_MINUTES_FROM_NS: Final = 600_000_000_000
"""Up to here seconds read better."""


def shown(name: str | None, absent: str = "(none)", most: int = MAX_NAME_CHARACTERS) -> str:
    """A name without control characters, cut in the middle when long.

    >>> shown("a\\x1b[31mb"), shown(None), shown(""), shown("x" * 50, most=9)
    ('a�[31mb', '(none)', '(empty)', 'xxxx…xxxx')
    """
    if name is None:
        return absent
    if not name:
        return "(empty)"
    clean = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(item) in _UNSEEN else item for item in name)
    if len(clean) <= most:
        return clean
    head = (most - 1) // 2
    return f"{clean[: most - 1 - head]}…{clean[len(clean) - head :]}"


def escaped(text: str) -> str:
    """Text for HTML and SVG, within elements and attributes alike."""
    return html.escape(text, quote=True)


def number(value: float | None) -> str:
    """A number with at most three digits that matter behind the point.

    >>> number(1234567), number(0.1234), number(12.34), number(None)
    ('1,234,567', '0.123', '12.3', '-')
    """
    if value is None:
        return "-"
    if value == int(value):
        return f"{int(value):,}"
    digits = min(6, max(0, 2 - math.floor(math.log10(abs(value)))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(ns: float | None) -> str:
    """Nanoseconds in the unit that suits them.

    >>> duration(12_345_678), duration(-1_500), duration(0), duration(90e9), duration(None)
    ('12.3 ms', '-1.5 µs', '0 ns', '90 s', '-')
    """
    if ns is None:
        return "-"
    units = _DURATIONS if abs(ns) >= _MINUTES_FROM_NS else _DURATIONS[1:]
    return _scaled(ns, units)


def size(count: float | None) -> str:
    """Bytes in the unit that suits them.

    >>> size(999), size(12_345), size(None)
    ('999 B', '12.3 kB', '-')
    """
    return "-" if count is None else _scaled(count, _SIZES)


def _scaled(value: float, units: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in units:
        if abs(value) >= factor:
            return f"{number(value / factor)} {unit}"
    return f"{number(value)} {units[-1][1]}"


def share(value: float | None) -> str:
    """A share as per cent.

    >>> share(0.1234), share(1), share(None)
    ('12.3 %', '100 %', '-')
    """
    return "-" if value is None else f"{number(round(value * 100, 1))} %"


def needed(package: str) -> None:
    """Raise an error that says what to install if a package that only reports and studies need is missing."""
    if find_spec(package) is None:
        raise ConfigError(f"reports and studies need {package}: pip install 'thence[report]'")
