"""The text of ShiViz logs: expressions as ShiViz writes them, guesses, and every line accounted for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pipeline.executions import GOVECTOR
from thence.errors import ConfigError
from thence.pipeline.importers.logtext import (
    DEFAULT_DELIMITER,
    KNOWN,
    Grammar,
    LogEntry,
    compiled,
    event_pattern,
    guess,
    header,
    parse_log,
    text_of,
)
from thence.pipeline.importers.staged import BAD, EVENT, IGNORED, MAX_RAW_CHARACTERS

SHIVIZ_DEFAULT = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"


def found(text: str, grammar: Grammar | None = GOVECTOR) -> list[LogEntry]:
    return list(parse_log(text, grammar))


def lines_of(text: str) -> int:
    return sum(1 for line in text.split("\n") if line.strip())


# --- expressions -------------------------------------------------------------------------------------------------------


def test_groups_are_named_as_in_javascript_or_python() -> None:
    for expression in (r"(?<host>\w+) (?<clock>{.*})", r"(?P<host>\w+) (?P<clock>{.*})"):
        match = event_pattern(expression).search('x\nab {"ab":1}')
        assert match is not None
        assert match["host"] == "ab"


def test_looking_behind_is_no_group() -> None:
    match = event_pattern(r"(?<=> )(?<host>\w+) (?<!x)(?<clock>\{.*\}) \k<host>").search('> a {"a":1} a')
    assert match is not None
    assert match["clock"] == '{"a":1}'


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("(?<host>", "no regular expression"),
        (r"(?<host>\w+)", r"has no named group (?<clock>…)"),
        ("x", "has no named group (?<host>…) and no (?<clock>…)"),
        (r"(?<host>a)(?<host>b)(?<clock>c)", "no regular expression"),
    ],
)
def test_an_expression_that_cannot_be_is_refused(expression: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        event_pattern(expression)
    assert why in str(refused.value)


def test_a_file_for_shiviz_brings_its_expression() -> None:
    text = f'{SHIVIZ_DEFAULT}\n--- (?<trace>\\w+) ---\n--- one ---\nhello\na {{"a":1}}\n--- two ---\nhello\na {{"a":1}}\n'
    rows = found(text, None)
    assert [(row.what, row.run, row.line, row.lines) for row in rows] == [
        (IGNORED, None, 1, 2),
        (EVENT, "one", 4, 2),
        (IGNORED, "one", 3, 1),
        (EVENT, "two", 7, 2),
        (IGNORED, "two", 6, 1),
    ]


def test_a_header_may_leave_the_delimiter_empty() -> None:
    brought = header(f"{SHIVIZ_DEFAULT}\n\nhello\n")
    assert brought == (Grammar(SHIVIZ_DEFAULT, DEFAULT_DELIMITER), len(SHIVIZ_DEFAULT) + 2)
    assert header("a (?<host>x) without a clock\n") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(?<host>(?<clock>\n\na\n", "no regular expression"),
        ("(?<host>a)(?<clock>b)\n(\na\n", "no regular expression"),
        ("a\n", "no regular expression is known for this log"),
    ],
)
def test_a_log_that_brings_no_expression_of_use_is_bad_from_end_to_end(text: str, reason: str) -> None:
    rows = found(text, None)
    assert sum(row.lines for row in rows) == lines_of(text)
    bad = [row for row in rows if row.what == BAD]
    assert [row.line for row in bad] == [text.count("\n")]
    assert reason in (bad[0].reason or "")


ONE_OF_EACH = {
    "a line 'HOST {clock}', then the event": 'a {"a":1}\nhello\na {"a":2}\nbye\n',
    "the event, then a line 'HOST {clock}'": 'hello\na {"a":1} \nbye\na {"a":2}\n',
    "an Akka log": '[INFO] [10/13/2014 04:23:20.113] [x-4] [akka://B/user/a] {"a" : 1} hello\n',
    "one line 'HOST {clock} event'": 'a {"a":1} hello\na {"a":2} bye\n',
    "one line 'HOST \"event\" {clock}'": 'a "hello" {"a":1}\na "bye" {"a":2}\n',
    "states of TLC with Host and Clock": 'State 2: <Send 1>\n/\\ Host = a\n/\\ Clock = "{\\"a\\":1,\\"b\\":0}"\n/\\ x = 1\n\n',
}


@pytest.mark.parametrize("words", KNOWN)
def test_known_logs_are_guessed_and_read(words: str) -> None:
    text = ONE_OF_EACH[words]
    guessed = guess(text)
    assert guessed == (words, KNOWN[words])
    events = [row for row in found(text, Grammar(KNOWN[words])) if row.what == EVENT]
    assert [event.clock and event.clock["a"] for event in events] == list(range(1, len(events) + 1))
    assert events[0].host == "a"
    assert all(match["event"] for match in compiled(KNOWN[words]).finditer(text))


def test_what_separates_runs_is_taken_for_no_event() -> None:
    text = '=== one ===\na {"a":1}\nhello\n'
    assert guess(text) == guess('a {"a":1}\nhello\n')
    assert guess(text, "^---$") != guess(text)


def test_what_is_no_log_is_not_guessed() -> None:
    assert guess("hello\nworld\n") is None


# --- lines -------------------------------------------------------------------------------------------------------------


def test_other_lines_are_ignored_and_counted_but_broken_events_are_bad() -> None:
    text = 'started\n\na {"a":1}\nhello\na {"a":2, \nlost\na {"a":3}\n'
    rows = found(text)
    assert [(row.what, row.line, row.lines) for row in rows] == [(EVENT, 3, 2), (EVENT, 7, 1), (BAD, 5, 1), (IGNORED, 1, 2)]
    assert rows[2].raw == 'a {"a":2,'


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('a {"a', BAD),
        ('a {"a"', BAD),
        ('a {"a":', BAD),
        ('a {"a": 1', BAD),
        ('x {\\"a\\": 1', BAD),
        ('{"level": "info"}', IGNORED),
        ("struct {", IGNORED),
    ],
)
def test_what_breaks_off_was_meant_to_be_an_event(line: str, what: str) -> None:
    assert [row.what for row in found(line + "\n")] == [what]


def test_an_event_without_its_text_does_not_swallow_the_next() -> None:
    rows = found('a {"a":1}\na {"a":2}\nhello\n')
    assert [(row.what, row.line, row.lines) for row in rows] == [(EVENT, 1, 1), (EVENT, 2, 2)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('a {"b":1}', "the clock has no positive entry for its own host 'a'"),
        ('a {"a":0}', "the clock has no positive entry for its own host 'a'"),
        ('a {"a":-1}', "the clock's entry for 'a' is no count: -1"),
        ('a {"a":true}', "the clock's entry for 'a' is no count: true"),
        ('a {"a":1.5}', "the clock's entry for 'a' is no count: 1.5"),
        ('a {"a":"1"}', "the clock's entry for 'a' is no count: \"1\""),
        ('a {"a":1, "b":99999999999999999999}', "the clock's entry for 'b' is no count: "),
        ("a {a:1}", 'the clock is no JSON object: "{a:1}"'),
        ('a {"\\ud800":1, "a":1}', "the clock is no JSON object: "),
    ],
)
def test_a_clock_that_is_none_makes_a_bad_row(line: str, reason: str) -> None:
    (row,) = found(line + "\nhello\n")
    assert (row.what, row.line, row.lines) == (BAD, 1, 2)
    assert (row.reason or "").startswith(reason)


def test_raw_text_is_cut() -> None:
    (row,) = found("a {" + "x" * 2 * MAX_RAW_CHARACTERS + "}\n")
    assert row.raw is not None
    assert len(row.raw) == MAX_RAW_CHARACTERS + 1


def test_lines_end_as_on_any_machine_and_bytes_stay_distinct() -> None:
    assert text_of(b'\xef\xbb\xbfa {"a":1}\r\nx\ry\n') == 'a {"a":1}\nx\ny\n'
    assert text_of(b"\xff") != text_of(b"\xfe")


def test_a_delimiter_without_a_name_counts_the_runs() -> None:
    rows = found('a {"a":1}\n----\na {"a":1}\n----\na {"a":1}\n', GOVECTOR._replace(delimiter="^-+$"))
    assert [row.run for row in rows if row.what == EVENT] == [None, "1", "2"]


def test_a_date_becomes_a_time_where_it_can_be_read() -> None:
    grammar = Grammar(r"^(?<date>[^|]*)\|(?<host>\w+) (?<clock>.*)$")
    times = [row.time for row in found('1970-01-01T00:00:01|a {"a":1}\nyesterday|a {"a":2}\n', grammar)]
    assert times == [10**9, None]


PIECES = st.sampled_from(
    [
        'a {"a":1}',
        'b {"a":1,"b":2}',
        "{",
        '"',
        "}",
        "\n",
        "\n\n",
        " ",
        "hello",
        "=== x ===",
        "a",
        "\r",
        "\u2028",
        "\x0b",
        "5",
        "(?<host>(?<clock>",
        "(?<host>a)(?<clock>{.*?})",
    ]
)


@given(
    st.lists(PIECES, max_size=30).map("".join),
    st.sampled_from([*KNOWN.values(), r"(?<host>)(?<clock>)", r"(?<host>.)(?<clock>(.|\n)*?)"]),
)
def test_every_line_is_accounted_for(text: str, pattern: str) -> None:
    plain = text_of(text.encode())
    rows = found(plain, Grammar(pattern))
    assert sum(row.lines for row in rows) == lines_of(plain)
    assert all((row.reason is not None) == (row.what == BAD) for row in rows)
    assert {row.what for row in rows} <= {EVENT, BAD, IGNORED}
