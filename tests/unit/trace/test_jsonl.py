"""JSON lines: what is written, and what is said about what cannot be read."""

from pathlib import Path

import pytest

from thence.errors import TraceError
from thence.trace.complaints import EXPECTED, MAX_SHOWN
from thence.trace.events import COLUMNS, Event
from thence.trace.files import read_trace
from thence.trace.jsonl import decode_line, encode_line

GOOD = '{"process":"A","index":0,"kind":"note"}'

FULL = Event(
    run="r",
    process="A",
    index=3,
    kind="send",
    message="m",
    to=("B", "C"),
    time=-5,
    domain="d",
    bytes=7,
    overhead=8,
    clock={"B": 2, "A": 1},
)


def complaint(tmp_path: Path, *lines: str | bytes) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    with pytest.raises(TraceError) as raised:
        read_trace(path)
    return str(raised.value).replace(f"{tmp_path}/", "")


def test_a_full_line_has_the_columns_in_order_and_sorted_clocks() -> None:
    assert encode_line(FULL) == (
        b'{"run":"r","process":"A","index":3,"kind":"send","message":"m","to":["B","C"],"time":-5,"domain":"d",'
        b'"bytes":7,"overhead":8,"clock":{"A":1,"B":2}}\n'
    )
    assert decode_line(encode_line(FULL)) == FULL


def test_what_is_null_is_not_written() -> None:
    assert encode_line(Event(process="A", index=0, kind="note")) == GOOD.encode() + b"\n"


def test_a_send_to_nobody_is_not_a_send_without_destinations() -> None:
    event = Event(process="A", index=0, kind="send", message="m", to=())
    assert decode_line(encode_line(event)).to == ()


def test_unknown_columns_blank_lines_and_nulls_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('\n{"process":"A","index":0,"kind":"note","colour":{"red":[1]},"message":null}\n  \r\n', encoding="utf-8")
    assert read_trace(path) == [Event(process="A", index=0, kind="note")]


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(GOOD, encoding="utf-8-sig")
    assert read_trace(path) == [Event(process="A", index=0, kind="note")]


def test_missing_message_and_destinations_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"process":"A","index":0,"kind":"send"}', encoding="utf-8")
    assert read_trace(path) == [Event(process="A", index=0, kind="send")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"process":"A","index":"x","kind":"k"}', "column 'index': expected an integer, found \"x\""),
        ('{"process":"A","index":1.5,"kind":"k"}', "column 'index': expected an integer, found 1.5"),
        ('{"process":"A","index":true,"kind":"k"}', "column 'index': expected an integer, found true"),
        ('{"process":"A","index":null,"kind":"k"}', "column 'index': expected an integer, found null"),
        ('{"process":"A","kind":"k"}', "column 'index': expected an integer, found no such column"),
        ('{"process":7,"index":0,"kind":"k"}', "column 'process': expected a string, found 7"),
        ('{"process":"A","index":0,"kind":[]}', "column 'kind': expected a string, found []"),
        ('{"process":"A","index":0,"kind":"k","run":1}', "column 'run': expected a string, found 1"),
        ('{"process":"A","index":0,"kind":"k","to":"B"}', "column 'to': expected a list of strings, found \"B\""),
        ('{"process":"A","index":0,"kind":"k","to":[1]}', "column 'to': expected a list of strings, found [1]"),
        (
            '{"process":"A","index":0,"kind":"k","bytes":3000000000}',
            "column 'bytes': expected an integer of 32 bits, found 3000000000",
        ),
        (
            '{"process":"A","index":9223372036854775808,"kind":"k"}',
            "column 'index': expected an integer, found 9223372036854775808",
        ),
        (
            '{"process":"A","index":0,"kind":"k","clock":{"A":"x"}}',
            'column \'clock\': expected a map from strings to integers, found {"A":"x"}',
        ),
        ('{"index":"x","kind":7}', "column 'process': expected a string, found no such column; column 'index': "),
        ("[1, 2]", "expected a JSON object, found [1,2]"),
        ("7", "expected a JSON object, found 7"),
        ('{"process":', "expected a JSON object: Input data was truncated"),
        (b"\xff\xfe", "expected a JSON object: JSON is malformed"),
        (b'{"process":"\xff","index":0,"kind":"k"}', "expected UTF-8, found other bytes"),
        (b'{"x":' * 100_000, "expected a JSON object, found one nested too deeply"),
    ],
)
def test_a_bad_line_is_named_with_its_column(tmp_path: Path, line: str | bytes, said: str) -> None:
    assert complaint(tmp_path, GOOD, "", line, GOOD).startswith(f"trace.jsonl:3: {said}")


def test_a_long_value_is_cut(tmp_path: Path) -> None:
    said = complaint(tmp_path, '{"process":"A","index":"' + "x" * 1000 + '","kind":"k"}')
    assert said.endswith("xxx…")
    assert len(said) < 150


def test_several_bad_lines_are_all_named_and_counted(tmp_path: Path) -> None:
    said = complaint(tmp_path, "7", GOOD, "8").splitlines()
    assert said == [
        "trace.jsonl:1: expected a JSON object, found 7",
        "trace.jsonl:3: expected a JSON object, found 8",
        "2 bad rows in all",
    ]


def test_many_bad_lines_are_cut_and_counted(tmp_path: Path) -> None:
    said = complaint(tmp_path, *["7"] * 1000).splitlines()
    assert len(said) == MAX_SHOWN + 2
    assert said[-2:] == ["… and 980 more", "1000 bad rows in all"]


def test_there_are_words_for_every_column() -> None:
    assert tuple(EXPECTED) == COLUMNS
