"""The text of a ShiViz log, event by event, by regular expressions. Pure: text in, rows out.

ShiViz finds events by a regular expression with named groups, over the whole text and with ``^`` and ``$`` at every line:
``host``, ``clock`` (JSON) and ``event`` are needed there, any others may be there. We read the same expressions.

Rules:

* ``(?<name>…)``, as JavaScript and ShiViz write it, and ``(?P<name>…)`` are both accepted. ``host`` and ``clock`` must be
  there; ``event`` may be left out; ``date`` (also called ``timestamp``) gives the time where it can be read.
* A file that begins like one made for ShiViz's upload (first line the expression, second line the delimiter or nothing)
  brings its own. With no expression given, the one in ``KNOWN`` is taken that finds most events at the beginning of the log;
  equal ones are told apart by how many events have their text, how many lines are left over, and which begins first.
* A delimiter separates executions; its group ``trace`` names the run.
* Every line that is not blank is accounted for once: in an event, as a bad row, or as ignored. A line that no event takes is
  bad if it holds something like a clock, since it was meant to be an event; otherwise it is ignored: logs are full of other
  lines. What is ignored is counted, one row for each run in a file.
* Line numbers are those of the file and begin at 1. ``\\r\\n`` and ``\\r`` end lines too. Bytes that are no UTF-8 are kept as
  escapes: only names matter, and those stay distinct.
* A clock is a JSON object of counts, also with its quotes escaped, as TLC prints it, with a positive entry for its own host.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from thence.errors import ConfigError
from thence.pipeline.importers.staged import BAD, EVENT, IGNORED, cut
from thence.pipeline.importers.times import nanoseconds_of_date
from thence.trace.complaints import show
from thence.trace.events import INT64_MAX

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


# --- events ------------------------------------------------------------------------------------------------------------

# A brace, a name, and a number for it, or the line breaks off before that.
_LIKE_A_CLOCK: Final = re.compile(r'\{\s*\\?"[^"]*(?:$|"\s*(?:$|:\s*(?:$|-?\d)))')
_BYTE_ORDER_MARK: Final = "\ufeff"


class LogEntry(NamedTuple):
    """Something found in a log: an event, a bad row, or how many lines were ignored."""

    what: str
    run: str | None
    line: int
    lines: int
    raw: str | None = None
    reason: str | None = None
    host: str | None = None
    clock: dict[str, int] | None = None
    time: int | None = None


def text_of(content: bytes) -> str:
    """Return the text of a file, with lines that end in ``\\n``."""
    text = content.decode("utf-8", errors="backslashreplace").removeprefix(_BYTE_ORDER_MARK)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_log(text: str, grammar: Grammar | None) -> Iterator[LogEntry]:
    """Yield what is in a log. Without a grammar the log must bring its own."""
    lines = _Lines(text)
    brought = header(text)
    begin = 0
    if brought is not None:
        grammar, begin = brought
        yield LogEntry(IGNORED, None, 1, lines.claim(0, begin))
    if grammar is None:
        yield from _unread(lines, "no regular expression is known for this log")
        return
    try:
        events, delimiter = event_pattern(grammar.pattern), compiled(grammar.delimiter)
    except ConfigError as error:
        yield from _unread(lines, str(error))
        return
    for run, start, after, end in _executions(text, begin, delimiter):
        ignored = lines.claim(start, after)
        for match in events.finditer(text, after, end):
            if match.end() > match.start():
                yield _event(match, run, lines)
        for number in lines.free(after, end):
            ignored += lines.claim_line(number)
            if _LIKE_A_CLOCK.search(lines.line(number)):
                ignored -= 1
                reason = "looks like an event, but the regular expression does not match it"
                yield LogEntry(BAD, run, number, 1, cut(lines.line(number)), reason)
        if ignored:
            yield LogEntry(IGNORED, run, lines.number(start), ignored)


def _unread(lines: _Lines, reason: str) -> Iterator[LogEntry]:
    for number in lines.free(0, len(lines.text)):
        yield LogEntry(BAD, None, number, 1, cut(lines.line(number)), reason)


def _executions(text: str, begin: int, delimiter: re.Pattern[str]) -> Iterator[tuple[str | None, int, int, int]]:
    """Yield each run of a log: its name, where its delimiter begins and ends, and where the run ends."""
    cuts: list[tuple[str | None, int, int]] = [(None, begin, begin)]
    for number, match in enumerate(delimiter.finditer(text, begin), 1):
        name = match["trace"] if "trace" in delimiter.groupindex else str(number)
        cuts.append((name, match.start(), match.end()))
    cuts.append((None, len(text), len(text)))
    for (run, start, after), (_, end, _) in pairwise(cuts):
        yield run, start, after, end


def _event(match: re.Match[str], run: str | None, lines: _Lines) -> LogEntry:
    line = lines.number(match.start())
    count = lines.claim(match.start(), match.end())
    host = match["host"]
    raw = cut(match[0])
    clock = _clock(match["clock"] or "")
    if not host:
        return LogEntry(BAD, run, line, count, raw, "the host has no name")
    if isinstance(clock, str):
        return LogEntry(BAD, run, line, count, raw, clock)
    if clock.get(host, 0) < 1:
        return LogEntry(BAD, run, line, count, raw, f"the clock has no positive entry for its own host '{host}'")
    return LogEntry(EVENT, run, line, count, raw, None, host, clock, _time(match))


def _clock(text: str) -> dict[str, int] | str:
    """Return the clock, or why it is none."""
    for plain in (text, text.replace('\\"', '"')):
        try:
            clock = msgspec.json.decode(plain, type=dict[str, object])
            break
        except (msgspec.MsgspecError, RecursionError):
            continue
    else:
        return f"the clock is no JSON object: {show(text)}"
    counts: dict[str, int] = {}
    for name, count in clock.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= INT64_MAX:
            return f"the clock's entry for '{name}' is no count: {show(count)}"
        counts[name] = count
    return counts


def _time(match: re.Match[str]) -> int | None:
    known = match.groupdict()
    date = known.get("date") or known.get("timestamp")
    return nanoseconds_of_date(date) if date else None


class _Lines:
    """Which lines of a text are accounted for."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._free = [True] * len(self.starts)

    def number(self, position: int) -> int:
        """Return the number of the line at a position."""
        return bisect_right(self.starts, position)

    def line(self, number: int) -> str:
        """Return a line's text."""
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[self.starts[number - 1] : end].strip()

    def free(self, start: int, end: int) -> list[int]:
        """Return the lines of a span that are not blank, and that nothing took so far."""
        last = self.number(end - 1) if end > start else 0
        return [line for line in range(self.number(start), last + 1) if self._free[line - 1] and self.line(line)]

    def claim(self, start: int, end: int) -> int:
        """Account for the lines of a span; return how many of them had not been."""
        return sum(self.claim_line(number) for number in self.free(start, end))

    def claim_line(self, number: int) -> int:
        """Account for one line."""
        self._free[number - 1] = False
        return 1
