"""Regular expressions for ShiViz logs: how they are written, which ones are tried when none is given.

ShiViz finds events by a regular expression with named groups, over the whole text and with ``^`` and ``$`` at every line:
``host``, ``clock`` (JSON) and ``event`` are needed there, any others may be there. We read the same expressions.

Rules:

* ``(?<name>…)``, as JavaScript and ShiViz write it, and ``(?P<name>…)`` are both accepted. ``host`` and ``clock`` must be
  there; ``event`` may be left out, as a trace does not hold it; ``date`` (also called ``timestamp``) gives the time where it
  can be read.
* A file that begins like one made for ShiViz's upload (first line the expression, second line the delimiter or nothing)
  brings its own.
* A delimiter separates executions; its group ``trace`` names the run. The usual ``=== NAME ===`` is taken unless another is
  given.
* With no expression given, the one in ``KNOWN`` is taken that finds most events at the beginning of the log; equal ones are
  told apart by how many events have their text, how many lines are left over, and which begins first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from thence.errors import ConfigError

DEFAULT_DELIMITER: Final = r"^=== (?<trace>.*) ===$"

_NO_CLOCK_LINE: Final = r'(?!\S+ \{")'
_CLOCK: Final = r"(?<clock>\{[^{}]*\})"

KNOWN: Final[Mapping[str, str]] = {
    "a line 'HOST {clock}', then the event": rf"^(?<host>\S+) {_CLOCK}[ \t]*(?:\n{_NO_CLOCK_LINE}(?<event>.*))?$",
    "the event, then a line 'HOST {clock}'": rf"^(?:{_NO_CLOCK_LINE}(?<event>.*)\n)?(?<host>\S+) {_CLOCK}[ \t]*$",
    "an Akka log": rf"^\[\w+\] \[(?<date>[^\]]+)\] \[[^\]]*\] \[akka://[^\]\s]*/(?<host>[^\]/\s]+)\] {_CLOCK} (?<event>.*)$",
    "one line 'HOST {clock} event'": rf"^(?<host>\S+) {_CLOCK} (?<event>\S.*)$",
    "one line 'HOST \"event\" {clock}'": rf'^(?<host>\S+) "(?<event>.*)" {_CLOCK}[ \t]*$',
    "states of TLC with Host and Clock": (
        r'^State \d+: <(?<event>\w*)[^\n]*>\n/\\ Host = (?<host>\S+)\n/\\ Clock = "(?<clock>[^\n]*)"$'
    ),
}
"""What is tried when no expression is given: what it looks like, and the expression."""

_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z_])")
_NAMED_REFERENCE: Final = re.compile(r"\\k<(\w+)>")
_NEEDED: Final = ("host", "clock")


class Grammar(NamedTuple):
    """How a log is read: where its events and its executions are."""

    pattern: str
    delimiter: str = DEFAULT_DELIMITER


def compiled(expression: str, *needed: str) -> re.Pattern[str]:
    """Return the expression ready for use, or refuse it and say why."""
    python = _NAMED_REFERENCE.sub(r"(?P=\1)", _NAMED_GROUP.sub("(?P<", expression))
    try:
        pattern = re.compile(python, re.MULTILINE)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"{expression!r}: no regular expression: {error}") from None
    absent = [name for name in needed if name not in pattern.groupindex]
    if absent:
        raise ConfigError(f"{expression!r}: has no named group {' and no '.join(f'(?<{name}>…)' for name in absent)}")
    return pattern


def event_pattern(expression: str) -> re.Pattern[str]:
    """Return the expression for events, ready for use."""
    return compiled(expression, *_NEEDED)


def header(text: str) -> tuple[Grammar, int] | None:
    """Return what the first two lines of a file for ShiViz's upload say, and how many characters they take."""
    first, _, rest = text.partition("\n")
    if "(?<host>" not in first or "(?<clock>" not in first:
        return None
    second, _, _ = rest.partition("\n")
    delimiter = f"^{second.strip()}$" if second.strip() else DEFAULT_DELIMITER
    return Grammar(first.strip(), delimiter), min(len(text), len(first) + len(second) + 2)


def guess(head: str, delimiter: str = DEFAULT_DELIMITER) -> tuple[str, str] | None:
    """Return what the beginning of a log looks like, and the expression for it; None when nothing fits."""
    separates = compiled(delimiter)
    head = "".join(line + "\n" for line in head.splitlines() if not separates.search(line))
    scores = {words: _score(compiled(pattern), head) for words, pattern in KNOWN.items()}
    best = max(scores, key=lambda words: scores[words])
    return (best, KNOWN[best]) if scores[best][0] else None


def _score(pattern: re.Pattern[str], head: str) -> tuple[int, int, int, int]:
    found = with_text = covered = 0
    first = len(head)
    for match in pattern.finditer(head):
        found += 1
        covered += sum(1 for line in match[0].splitlines() if line.strip())
        if match["event"] is not None:
            with_text += 1
            first = min(first, match.start())
    lines = sum(1 for line in head.splitlines() if line.strip())
    return found, with_text, covered - lines, -first
