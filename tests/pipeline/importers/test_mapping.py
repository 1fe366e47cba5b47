"""Mappings: what a TOML file may say, and how a row of NDJSON becomes an event by it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.errors import ConfigError, TraceError
from thence.pipeline.importers.mapped.fields import Fields
from thence.pipeline.importers.mapped.mapping import parse_mapping, read_mapping
from thence.trace.complaints import explain
from thence.trace.events import COLUMNS

PLAIN = '[columns]\nprocess = "p"\nkind = "k"\n'


def decoded(toml: str, row: object, partition: dict[str, str | None] | None = None) -> dict[str, Any] | None:
    line = row if isinstance(row, bytes) else json.dumps(row).encode()
    found = Fields(parse_mapping(toml)).decode(line, partition or {})
    return {name: value for name, value in found[0].items() if value is not None and name != "maybe"} if found else None


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("x", "after a key"),
        ("", "columns.process: must be declared"),
        ('[columns]\nprocess = "p"\n', "columns.kind: must be declared"),
        (PLAIN + 'colour = "c"\n', "columns.colour: no column of a trace"),
        ('orde = "time"\n' + PLAIN, "unknown field `orde`"),
        (PLAIN + "domain = { form = 'x' }\n", "unknown field `form`"),
        (PLAIN + "domain = { from = 'x', constant = 'y' }\n", "columns.domain: needs one of"),
        (PLAIN + "domain = {}\n", "columns.domain: needs one of"),
        (PLAIN + "domain = { from = 'x', unit = 's' }\n", "columns.domain.unit: only the column 'time' has it"),
        (PLAIN + "domain = { from = 'x', match = 'order' }\n", "columns.domain.match: only the column 'message' has it"),
        (PLAIN + "domain = { found = 'deliveries' }\n", "columns.domain.found: only the column 'to' has it"),
        (PLAIN + "domain = { from = 'x', otherwise = 's' }\n", "columns.domain.otherwise: needs 'values'"),
        (PLAIN + "time = { from = 'x', unit = 'days' }\n", "$.columns[...]"),
        (PLAIN + "message = { template = '{a' }\n", "template '{a'"),
        (PLAIN + "message = { template = '{a:>3}' }\n", "nothing else"),
        (PLAIN + "message = { template = '{}' }\n", "nothing else"),
        (PLAIN + "message = { template = '{a}', match = 'clock' }\n", "columns.clock: must be declared"),
        ('order = "time"\n' + PLAIN, "columns.time: must be declared"),
        ("ignore = [{}]\n" + PLAIN, "ignore and when: each has one of"),
        ("ignore = [{ field = 'x' }]\n" + PLAIN, "ignore and when: each has one of"),
        ("ignore = [{ has = 'x', is = [1] }]\n" + PLAIN, "ignore and when: each has one of"),
        ("ignore = [{ field = 'x', is = [1], is_not = [2] }]\n" + PLAIN, "ignore and when: each has one of"),
        (PLAIN + "[[events]]\nwhen = [{}]\n", "ignore and when: each has one of"),
        (PLAIN + "[[events]]\ncolumns = { colour = 'c' }\n", "columns.colour: no column of a trace"),
        (
            PLAIN + "[[events]]\ncolumns = { to = { found = 'deliveries' } }\n",
            "columns.to: 'match' and 'found' are for all events",
        ),
        (PLAIN + "[[events]]\norder = 'time'\n", "columns.time: must be declared"),
        ("[columns]\nkind = 'k'\n[[events]]\ncolumns = { process = 'p' }\n[[events]]\n", "columns.process: must be declared"),
        (PLAIN + "clock = 'c'\nmessage = { from = 'm', match = 'clock' }\n[[events]]\nmaybe = true\n", "events.maybe: not where"),
        ("once = '{a'\n" + PLAIN, "template '{a'"),
        (PLAIN + "domain = { from = 'x', plus = 'y' }\n", "columns.domain.plus: only the column 'time' has it"),
        (PLAIN + "[[doubts]]\nof = ['speed']\nbecause = 'x'\n", "doubts.of: one or more of well-formed"),
        (PLAIN + "[[doubts]]\nof = []\nbecause = 'x'\n", "doubts.of: one or more of well-formed"),
        ("format = 'shiviz'\n" + PLAIN, "columns: only where the format is ndjson"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(toml: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_mapping(toml)
    assert why in str(refused.value)


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text("x", encoding="utf-8")
    for name in ("m.toml", "no.toml", "."):
        with pytest.raises(ConfigError, match=str(tmp_path / name)):
            read_mapping(tmp_path / name)


def test_columns_come_from_fields_constants_and_templates() -> None:
    toml = """
        [columns]
        run = { constant = "r" }
        process = "/at/0/na~1me"
        kind = { from = "what", values = { "true" = "send", "2" = "deliver" }, otherwise = "other" }
        message = { template = "{{{id}}} {at.1.x}" }
        to = "dest"
        time = { from = "ts", unit = "ms" }
        bytes = "size"
        clock = "vc"
        """
    row = {
        "at": [{"na/me": 7}, {"x": {"b": 1, "a": None}}],
        "what": True,
        "id": 3,
        "dest": "q",
        "ts": "1.5",
        "size": "12",
        "vc": [1, 2],
    }
    assert decoded(toml, row) == {
        "run": "r",
        "process": "7",
        "kind": "send",
        "message": '{3} {"a":null,"b":1}',
        "to": ("q",),
        "time": 1_500_000,
        "bytes": 12,
        "clock": {"0": 1, "1": 2},
    }
    deliver = decoded(toml, {**row, "what": 2, "vc": '{"7": 4}', "dest": ["q", 8]})
    assert deliver is not None
    assert deliver["kind"] == "deliver"
    assert deliver["clock"] == {"7": 4}
    assert "to" not in deliver
    assert decoded(toml, {"at": [{"na/me": "x"}], "what": "?"}) == {"run": "r", "process": "x", "kind": "other"}


@pytest.mark.parametrize(
    ("toml", "row", "reason"),
    [
        (PLAIN, {"k": "x"}, "column 'process': expected a string, found null"),
        (PLAIN, {"p": "x"}, "column 'kind': expected a string, found null"),
        (PLAIN, [1], "expected a JSON object, found [1]"),
        (PLAIN, b"{", "expected a JSON object: "),
        (PLAIN, b"\xff", "expected a JSON object: "),
        (PLAIN, b'{"p": "\\ud800", "k": "x"}', "expected a JSON object: "),
        (PLAIN, b"[" * 100_000, "expected a JSON object: "),
        (PLAIN + 'bytes = "b"\n', {"p": "x", "k": "x", "b": 2**31}, "column 'bytes': expected an integer of 32 bits"),
        (PLAIN + 'index = "i"\n', {"p": "x", "k": "x", "i": "one"}, "column 'index': expected an integer, found \"one\""),
        (PLAIN + 'clock = "c"\n', {"p": "x", "k": "x", "c": {"a": 0.5}}, "column 'clock': expected a map"),
        (PLAIN + 'time = "t"\n', {"p": "x", "k": "x", "t": "noon"}, "column 'time': expected an integer, found \"noon\""),
        (PLAIN + 'message = "m"\n', {"p": "x", "k": "send"}, "column 'message': the row is a send, but has no message"),
        (PLAIN + "domain = { from = 'd', values = { a = 'b' } }\n", {"p": "x", "k": "x", "d": "c"}, 'do not have "c"'),
        ('order = "seq"\n' + PLAIN, {"p": "x", "k": "x", "seq": None}, "order 'seq': expected an integer, found null"),
        (
            'order = "clock"\n' + PLAIN + 'clock = "c"\n',
            {"p": "x", "k": "x", "c": {"y": 1}},
            "order 'clock': expected an integer",
        ),
        ('order = "time"\n' + PLAIN + 'time = "t"\n', {"p": "x", "k": "x"}, "order 'time': expected an integer"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(toml: str, row: object, reason: str) -> None:
    with pytest.raises(TraceError) as refused:
        decoded(toml, row)
    assert reason in str(refused.value)


def test_numbers_of_any_size_are_text() -> None:
    assert decoded(PLAIN, {"p": 10**30, "k": [10**30, 0.5]}) == {"process": "1" + "0" * 30, "kind": f"[{10**30},0.5]"}


def test_rows_that_are_no_events_are_ignored() -> None:
    toml = "ignore = [{ has = 'N' }, { lacks = 'p' }, { field = 'k', is = ['debug', 1] }]\n" + PLAIN
    ignored = [{"N": 5, "p": "x", "k": "x"}, {"k": "x"}, {"p": "x", "k": "debug"}, {"p": "x", "k": 1}]
    assert [decoded(toml, row) for row in ignored] == [None] * 4
    assert decoded(toml, {"p": "x", "k": True}) == {"process": "x", "kind": "true"}


@pytest.mark.parametrize(("order", "place"), [("line", None), ("time", 5), ("clock", 3), ("n.0", 9), ("/time", 7)])
def test_the_order_is_what_was_declared(order: str, place: int | None) -> None:
    toml = f"order = '{order}'\n" + PLAIN + "time = 't'\nclock = 'c'\n"
    (row,) = Fields(parse_mapping(toml)).decode(b'{"p":"x","k":"x","t":5,"c":{"x":3},"n":["9"],"time":7}', {})
    assert row["order"] == place


def events(toml: str, row: object) -> list[tuple[str, ...]]:
    return [
        tuple(str(found[name]) for name in ("process", "kind", "message", "time", "reason") if found.get(name) is not None)
        for found in Fields(parse_mapping(toml)).decode(json.dumps(row).encode(), {})
    ]


BATCH = """
    records = ["batches.*.rows.*", "rows.*"]
    once = "{id}"
    [columns]
    process = { template = ["{^.host}/{/^/tags/zone}", "{^.host}", "{/^/names/@of/long}"] }
    message = ["label", "id"]
    time = { from = "at", plus = "took", unit = "ms" }
    [[events]]
    each = "causes.*"
    columns = { kind = { constant = "deliver" }, message = { template = "{id} of {^.id}" } }
    [[events]]
    when = [{ field = "what", is_not = ["quiet"] }]
    columns = { kind = { constant = "send" } }
    """


def test_a_line_may_hold_many_records_and_a_record_many_events() -> None:
    typed = {"key": "zone", "value": {"stringValue": "z"}}
    row = {
        "batches": [
            {
                "host": "a",
                "tags": [typed],
                "rows": [{"id": 1, "at": 2, "took": 3, "causes": [{"id": 8}, [{"id": 9}, {"id": 8}]]}],
            },
            {"host": "b", "tags": ["zone", 5], "rows": [{"id": 2, "label": "x", "what": "loud"}, {"id": 3, "what": "quiet"}]},
            {"host": "c", "tags": [{"key": "zone"}], "rows": [{"id": 4}, "no row"]},
            {"names": {"q": {"long": "queue"}}, "rows": [{"id": 5, "of": "q"}]},
        ]
    }
    assert events(BATCH, row) == [
        ("a/z", "deliver", "8 of 1", "5000000"),
        ("a/z", "deliver", "9 of 1", "5000000"),
        ("a/z", "send", "1", "5000000"),
        ("b/5", "send", "x"),
        ("c", "send", "4"),
        ('record 5: expected a JSON object, found "no row"',),
        ("queue", "send", "5"),
    ]
    assert events(BATCH, {"rows": [{"id": 6}], "host": "d"}) == [("d", "send", "6")]
    assert events(BATCH, {"something": "else"}) == []
    found = Fields(parse_mapping(BATCH)).decode(json.dumps(row).encode(), {})
    assert [one["once"] for one in found[:4]] == ["1#0", "1#1", "1#2", "2#0"]


def test_a_mapping_says_what_it_cannot_show() -> None:
    assert parse_mapping(PLAIN).in_doubt() == []
    toml = (
        'order = "time"\n' + PLAIN + "time = 't'\nmessage = { from = 'm', match = 'order' }\nto = { found = 'processes' }\n"
        "[[doubts]]\nof = ['creation', 'fifo']\nbecause = 'of that'\n"
    )
    about = [text.partition(" in doubt: ")[0] for text in parse_mapping(toml).in_doubt()]
    assert about == ["fifo, causal, total", "duplication, fifo, causal", "completeness", "creation, fifo"]
    assert parse_mapping(toml).in_doubt()[-1] == "creation, fifo in doubt: of that"
    assert parse_mapping(toml.replace("'t'\n", "'t'\nindex = 'i'\n")).in_doubt()[0].startswith("duplication")


def test_a_folder_gives_what_the_row_does_not() -> None:
    toml = PLAIN + "run = 'r'\n"
    partition: dict[str, str | None] = {"run": "7", "process": None}
    assert decoded(toml, {"p": "x", "k": "x"}, partition) == {"run": "7", "process": "x", "kind": "x"}
    assert decoded(toml, {"p": "x", "k": "x", "r": 8}, partition) == {"run": "8", "process": "x", "kind": "x"}


ALL = PLAIN + "".join(f"{name} = '{name}'\n" for name in COLUMNS if name not in {"process", "kind"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["p", "k", "run", "index", "message", "to", "time", "bytes", "clock"]), JSON))
def test_any_row_becomes_a_good_one_or_a_reason(row: dict[str, object]) -> None:
    line = json.dumps({"k": "send", **row}).encode()
    with contextlib.suppress(TraceError):
        (found,) = Fields(parse_mapping(ALL)).decode(line, {})
        assert explain(found) == []
