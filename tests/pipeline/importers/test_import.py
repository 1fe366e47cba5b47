"""Whole imports with a real Spark session: every format, folders, globs, what is set aside, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.pipeline.replay import replay
from thence.errors import ConfigError, InternalError, TraceError
from thence.pipeline.importers import Imported, import_trace
from thence.pipeline.importers.lines import read_lines
from thence.pipeline.importers.sources import find, reading
from thence.pipeline.importers.staged import Row
from thence.trace.events import Event
from thence.trace.files import read_trace, write_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DATA = Path(__file__).parents[1] / "data"
EWD998 = Path(__file__).resolve().parents[3] / "examples" / "mappings" / "ewd998.toml"

SEND = Event(run="r", process="a", index=0, kind="send", message="m", to=("b",), time=5, clock={"a": 1})
DELIVER = Event(run="r", process="b", index=0, kind="deliver", message="m", domain="D", bytes=3, overhead=4)


def bad_rows(imported: Imported) -> list[tuple[str, int | None, str]]:
    assert imported.bad_rows is not None
    rows = pq.read_table(imported.bad_rows).to_pylist()
    assert len(rows) == imported.bad
    return [(Path(row["source"] or "").name, row["line"], row["reason"]) for row in rows]


def write_lines(path: Path, *rows: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace"])
def test_our_own_formats_come_out_as_they_went_in(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / name, [DELIVER, SEND])
    imported = import_trace(spark, str(tmp_path / name), str(tmp_path / "out"))
    assert read_trace(tmp_path / "out") == [SEND, DELIVER]
    assert imported == Imported(
        trace=str(tmp_path / "out"),
        bad_rows=None,
        format="jsonl" if name.endswith("jsonl") else "parquet",
        guessed="lines are events of a trace" if name.endswith("jsonl") else "names end in .parquet",
        files=1,
        unit="line" if name.endswith("jsonl") else "row",
        lines=2,
        ignored=0,
        events=2,
        runs=1,
        processes=2,
        messages=1,
        bad=0,
        first_bad=(),
        caveats=(),
    )


def test_a_folder_a_glob_and_folder_names(spark: SparkSession, tmp_path: Path) -> None:
    row = {"process": "a", "index": 0, "kind": "x"}
    write_lines(tmp_path / "in" / "run=1 2" / "a.jsonl", row)
    write_lines(tmp_path / "in" / "run=3" / "b.ndjson", "", {**row, "run": "own"}, {**row, "index": "0"})
    write_lines(tmp_path / "in" / "notes.txt", "not a trace")
    write_lines(tmp_path / "in" / "_hidden" / "c.jsonl", "not read")
    imported = import_trace(spark, str(tmp_path / "in"), str(tmp_path / "out"))
    assert {event.run for event in read_trace(tmp_path / "out")} == {"1 2", "own"}
    assert (imported.files, imported.lines, imported.events, imported.runs) == (2, 3, 2, 2)
    assert bad_rows(imported) == [("b.ndjson", 3, "column 'index': expected an integer, found \"0\"")]
    assert imported.first_bad == (f"{tmp_path}/in/run=3/b.ndjson:3: column 'index': expected an integer, found \"0\"",)
    globbed = import_trace(spark, f"{tmp_path}/in/run=[13]*/*.jsonl", str(tmp_path / "out"))
    assert (globbed.events, globbed.bad_rows) == (1, None)
    assert not (tmp_path / "out-bad").exists()


@pytest.mark.parametrize("kind", ["trace.jsonl", "trace"])
def test_names_of_files_and_folders_may_be_any(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    names = {"run=50%25 x": "50% x", "run=a+b": "a+b", "run=ü[1]{2}": "ü[1]{2}", "run=5%": "5%"}
    for name in names:
        write_trace(tmp_path / "in" / name / f"my {kind}", [Event(process="a", index=0, kind="x")])
    import_trace(spark, str(tmp_path / "in"), str(tmp_path / "out"))
    assert {event.run for event in read_trace(tmp_path / "out")} == set(names.values())
    assert {event.run for event in read_trace(tmp_path / "in")} == set(names.values())
    one = next((tmp_path / "in" / "run=ü[1]{2}").iterdir())
    assert import_trace(spark, str(one), str(tmp_path / "out")).events == 1


def test_lines_are_numbered_through_the_blocks_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Small blocks, so that one file is read by several tasks."""
    source = write_lines(
        tmp_path / "x.jsonl", *({"process": "a", "index": n if n % 50 else None, "kind": "x"} for n in range(200))
    )
    setting = "spark.sql.files.maxPartitionBytes"
    before = spark.conf.get(setting)
    spark.conf.set(setting, "1000")
    try:
        imported = import_trace(spark, str(source), str(tmp_path / "out"))
    finally:
        spark.conf.set(setting, str(before))
    assert sorted(line or 0 for _, line, _ in bad_rows(imported)) == [1, 51, 101, 151]
    assert imported.lines == 200


def test_parquet_of_other_writers_with_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in" / "process=p").mkdir(parents=True)
    table = pa.table(
        {
            "index": pa.array([0, 1, None, 3, 4], pa.int32()),
            "kind": pa.array(["send", "x", "x", "x", None], pa.large_string()),
            "to": pa.array([["b"], None, None, ["b", None], []], pa.list_(pa.string())),
            "bytes": pa.array([1, 2**31, 1, 1, 1], pa.int64()),
            "clock": pa.array([[("a", 1)], None, [], None, [("a", None)]], pa.map_(pa.string(), pa.int32())),
            "other": pa.array([1, 2, 3, 4, 5]),
        }
    )
    pq.write_table(table, tmp_path / "in" / "process=p" / "x.parquet")
    imported = import_trace(spark, str(tmp_path / "in"), str(tmp_path / "out"))
    assert read_trace(tmp_path / "out") == [Event(process="p", index=0, kind="send", to=("b",), bytes=1, clock={"a": 1})]
    assert [(line, reason.replace('{"a":null}', "…")) for _, line, reason in sorted(bad_rows(imported))] == [
        (2, "column 'bytes': expected an integer of 32 bits, found 2147483648"),
        (3, "column 'index': expected an integer, found null"),
        (4, "column 'to': expected a list of strings, found [\"b\",null]"),
        (
            5,
            "column 'kind': expected a string, found null; column 'clock': expected a map from strings to integers, found …",
        ),
    ]


def test_a_column_of_another_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"process": ["a"], "index": ["x"], "clock": [1]}), tmp_path / "x.parquet")
    with pytest.raises(TraceError) as refused:
        import_trace(spark, str(tmp_path / "x.parquet"), str(tmp_path / "out"))
    assert [line.partition("x.parquet: ")[2] for line in str(refused.value).splitlines()] == [
        "column 'index': expected an integer, found the type string",
        "column 'kind': expected a string, found no such column",
        "column 'clock': expected a map from strings to integers, found the type bigint",
    ]
    assert not (tmp_path / "out").exists()


def test_a_shiviz_log_with_two_runs_and_broken_events(spark: SparkSession, tmp_path: Path) -> None:
    runs = '=== one ===\na {"a":1}\nx\nb {"a":1, "b":1}\nx\nb {"b":2}\nx\n=== two ===\nb {"a":4, "b":1}\nx\nb {"b":'
    (tmp_path / "x.log").write_text(runs, encoding="utf-8")
    imported = import_trace(spark, str(tmp_path / "x.log"), str(tmp_path / "out"))
    assert imported.guessed == "looks like a line 'HOST {clock}', then the event"
    assert [
        (event.run, event.process, event.index, event.kind, event.message, event.to) for event in read_trace(tmp_path / "out")
    ] == [
        ("one", "a", 0, "event", None, None),
        ("one", "a", 1, "send", "a:1", ("b",)),
        ("one", "b", 0, "deliver", "a:1", None),
        ("one", "b", 1, "event", None, None),
        ("two", "b", 0, "event", None, None),
    ]
    assert sorted(bad_rows(imported), key=str) == [
        ("", None, "clocks count 4 events of 'a', of which 4 are missing: first 1"),
        ("x.log", 11, "looks like an event, but the regular expression does not match it"),
        ("x.log", 6, "the clock goes back: 'a' was 1 and is 0"),
    ]
    assert (imported.lines, imported.ignored, imported.runs) == (11, 2, 2)


def test_an_expression_of_ones_own(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text('1|a|{"a":1}\n2|b|{"a":1,"b":1}\n--\n3|a|{"a":1}\n', encoding="utf-8")
    imported = import_trace(
        spark,
        str(tmp_path / "x.log"),
        str(tmp_path / "out"),
        pattern=r"^(?<date>\d)\|(?<host>\w)\|(?<clock>.*)$",
        delimiter="^--$",
    )
    assert [(event.run, event.process, event.time) for event in read_trace(tmp_path / "out") if event.kind == "event"] == [
        (None, "a", 1),
        (None, "b", 2),
        ("1", "a", 3),
    ]
    assert (imported.guessed, imported.format, imported.ignored) == (None, "shiviz", 1)


def test_the_termination_detector_by_its_mapping(spark: SparkSession, tmp_path: Path) -> None:
    imported = import_trace(spark, str(DATA / "ewd998-chan.ndjson"), str(tmp_path / "out"), mapping=str(EWD998))
    rows: list[dict[str, Any]] = [
        {"process": event.process, "index": event.index, "kind": event.kind, "message": event.message, "clock": event.clock}
        for event in read_trace(tmp_path / "out")
    ]
    clocks = replay(rows, {"send", "deliver", "deactivate"})
    assert all(clocks[row["process"], row["index"]] == row["clock"] for row in rows)
    assert (imported.lines, imported.ignored, imported.events, imported.bad) == (655, 1, 654, 0)


def test_messages_without_ids_by_order_and_destinations_from_deliveries(spark: SparkSession, tmp_path: Path) -> None:
    mapping = write_lines(
        tmp_path / "m.toml",
        "[columns]",
        'process = "p"',
        'kind = "k"',
        "message = { template = '{f}>{t}', match = 'order' }",
        "to = { found = 'deliveries' }",
    )
    sends = [{"p": "a", "k": "send", "f": "a", "t": "*"}] * 3
    deliveries = [{"p": process, "k": "deliver", "f": "a", "t": "*"} for process in ("c", "b", "b")]
    source = write_lines(tmp_path / "x.ndjson", *sends, *deliveries, {"p": "b", "k": "local"}, {"p": "b"})
    imported = import_trace(spark, str(source), str(tmp_path / "out"), mapping=str(mapping))
    assert [(event.process, event.index, event.kind, event.message, event.to) for event in read_trace(tmp_path / "out")] == [
        ("a", 0, "send", "a>*#1", ("b", "c")),
        ("a", 1, "send", "a>*#2", ("b",)),
        ("a", 2, "send", "a>*#3", ()),
        ("b", 0, "deliver", "a>*#1", None),
        ("b", 1, "deliver", "a>*#2", None),
        ("b", 2, "local", None, None),
        ("c", 0, "deliver", "a>*#1", None),
    ]
    assert bad_rows(imported) == [("x.ndjson", 8, "column 'kind': expected a string, found null")]


def test_destinations_may_be_every_process_of_the_run(spark: SparkSession, tmp_path: Path) -> None:
    columns = "[columns]\nrun = 'r'\nprocess = 'p'\nkind = 'k'\nmessage = 'm'\nto = { found = 'processes' }\n"
    mapping = write_lines(tmp_path / "m.toml", columns)
    rows = [
        {"r": run, "p": process, "k": kind, "m": "m"}
        for run, process, kind in [(1, "a", "send"), (1, "b", "x"), (None, "c", "send")]
    ]
    import_trace(spark, str(write_lines(tmp_path / "x.json", *rows)), str(tmp_path / "out"), mapping=str(mapping))
    assert {(event.run, event.process, event.to) for event in read_trace(tmp_path / "out")} == {
        ("1", "a", ("a", "b")),
        ("1", "b", None),
        (None, "c", ("c",)),
    }


@pytest.mark.parametrize(
    ("name", "content", "options", "why"),
    [
        ("no.jsonl", None, {}, "no such file or folder"),
        ("x.log", b"", {}, "only empty ones"),
        ("x.log", b"\n \n", {}, "nothing in there"),
        ("x.log", b"hello\n", {}, "no events found; give the regular expression"),
        ("x.json", b'{"a":1}\n', {}, "needs a mapping"),
        ("x.json", b'{"a":1}\n', {"mapping": "no.toml"}, "no.toml: No such file"),
        ("x.log", b"hello\n", {"format": "csv"}, "format csv: not known"),
        ("x.log", b"hello\n", {"format": "jsonl", "pattern": "x"}, "takes no regular expression"),
        ("x.log", b"hello\n", {"format": "shiviz", "mapping": "otlp"}, "takes no mapping"),
        ("x.log", b"hello\n", {"pattern": "(?<host>"}, "no regular expression"),
        ("x.log", b"hello\n", {"delimiter": "("}, "no regular expression"),
        ("x.log", b"(?<host>(?<clock>\n", {}, "no regular expression"),
        ("x.parquet", b"PAR1 and then nothing", {}, "x.parquet"),
        ("x", b"PAR1 and then nothing", {}, "x: "),
    ],
)
def test_what_cannot_be_imported_is_said_in_our_own_errors(
    spark: SparkSession, tmp_path: Path, name: str, content: bytes | None, options: dict[str, str], why: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises((ConfigError, TraceError)) as refused:
        import_trace(spark, str(tmp_path / name), str(tmp_path / "out"), **options)  # type: ignore[arg-type]
    assert why in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_mistake_of_ours_in_a_worker_is_no_mistake_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    def decode(line: bytes, _partition: object) -> list[Row]:
        return [{"index": 1 // (len(line) - len(line))}]

    source = find(spark, str(write_lines(tmp_path / "x.jsonl", "{}")))
    with pytest.raises(InternalError, match="x: ZeroDivisionError"), reading("x"):
        read_lines(spark, source, decode).collect()


def test_all_lines_may_be_bad(spark: SparkSession, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "x.jsonl", "hello", "{", "[]")
    imported = import_trace(spark, str(source), str(tmp_path / "out"), format="jsonl")
    assert (imported.events, imported.bad, imported.lines) == (0, 3, 3)
    assert read_trace(tmp_path / "out") == []


def test_only_traces_are_replaced_and_never_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_trace(source, [SEND])
    shutil.copytree(source, tmp_path / "out")
    write_trace(source, [SEND, DELIVER])
    import_trace(spark, str(source), str(tmp_path / "out"))
    assert len(read_trace(tmp_path / "out")) == 2
    with pytest.raises(ConfigError, match="is being read"):
        import_trace(spark, str(source), str(source))
    write_lines(tmp_path / "out" / "precious.txt", "x")
    with pytest.raises(ConfigError, match="in the way"):
        import_trace(spark, str(source), str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="in the way"):
        import_trace(spark, str(source), str(tmp_path / "out" / "precious.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
