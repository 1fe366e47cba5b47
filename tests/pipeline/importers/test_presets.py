"""Presets on traces that real programs wrote, with planted violations: imported, judged, and what they cannot show said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.pipeline.raft_traces import ccf_lines, etcd_lines
from tests.support.pipeline.spans import jaeger_json, message_of, otlp_file, spans_in_memory, zipkin_json
from thence.errors import TraceError
from thence.pipeline.importers import Imported, caveats, caveats_of, import_trace
from thence.trace.events import Event
from thence.trace.files import read_trace
from thence.trace.judge import judge
from thence.trace.verdict import DEFAULT_REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ndjson(path: Path, rows: Iterable[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def imported(spark: SparkSession, source: Path, preset: str) -> tuple[Imported, list[Event]]:
    out = source.parent / "out"
    done = import_trace(spark, str(source), str(out), mapping=preset)
    return done, read_trace(out)


def found(events: list[Event]) -> dict[str, list[tuple[str, str | None, str | None]]]:
    rows: dict[str, list[tuple[str, str | None, str | None]]] = {}
    for row in judge(events, DEFAULT_REQUIRED).violations:
        rows.setdefault(row.property, []).append((row.process, row.later, row.earlier))
    return rows


def ends(events: list[Event]) -> Counter[tuple[str, str]]:
    return Counter((event.process, event.kind) for event in events if event.kind != "span")


SHOP = {("shop/1", "send"): 5, ("stock/1", "send"): 1, ("stock/1", "deliver"): 4, ("mail/1", "deliver"): 3}
CALLS = {("pay/1", "deliver"): 2, ("pay/1", "send"): 1, ("shop/1", "deliver"): 1}


@pytest.mark.parametrize("batched", [False, True])
def test_spans_of_the_opentelemetry_sdk(spark: SparkSession, tmp_path: Path, batched: bool) -> None:
    source = tmp_path / "spans.jsonl"
    sent = {name: message_of(span) for name, span in otlp_file(source, batched=batched).items()}
    lines = source.read_text(encoding="utf-8").splitlines()
    # An exporter that had no answer sends again; a collector's file has other signals beside.
    source.write_text("\n".join([*lines, lines[0], '{"resourceMetrics":[]}']) + "\n", encoding="utf-8")
    done, events = imported(spark, source, "otlp")
    assert (done.bad, done.lines, done.ignored) == (0, len(lines) + 2, 2)
    assert sum(event.kind == "span" for event in events) == 17
    assert ends(events) == Counter(SHOP) + Counter(CALLS)
    assert {event.message for event in events if event.process == "shop/1" and event.kind == "deliver"} == {
        f"{sent['call']} answer"
    }
    assert {event.topic for event in events if event.message == sent["placed"] and event.kind != "deliver"} == {"orders"}
    rows = found(events)
    assert rows.pop("causal") == [
        ("mail/1", sent["reserved"], sent["placed"]),
        ("stock/1", sent["second"], sent["first"]),
    ]
    assert rows.pop("fifo") == [("stock/1", sent["second"], sent["first"])]
    assert rows.pop("duplication") == [("stock/1", sent["first"], None)]
    assert [process for process, *_ in rows.pop("creation")] == ["mail/1"]
    assert rows == {}


@pytest.mark.parametrize("form", ["document", "lines", "document that is indented"])
def test_spans_as_zipkin_has_them(spark: SparkSession, tmp_path: Path, form: str) -> None:
    spans, sent = spans_in_memory()
    rows = zipkin_json(spans)
    source = tmp_path / "spans.json"
    if form == "lines":
        ndjson(source, [rows[:3], *rows[3:]])
    else:
        source.write_text(json.dumps(rows, indent=2 if "indented" in form else None), encoding="utf-8")
    done, events = imported(spark, source, "zipkin")
    assert (done.lines, done.unit, done.bad, done.ignored) == (17, "record", 0, 0)
    assert ends(events) == Counter({**SHOP, ("stock/1", "deliver"): 3}) + Counter(CALLS)
    counts = {name: len(violations) for name, violations in found(events).items()}
    assert counts == {"causal": 2, "fifo": 1, "creation": 1}, "the link that would show the duplicate is not in there"
    assert found(events)["fifo"] == [("stock/1", message_of(sent["second"]), message_of(sent["first"]))]


def test_a_server_that_shares_its_span_with_the_client(spark: SparkSession, tmp_path: Path) -> None:
    def span(service: str, start: int, duration: int, **more: Any) -> dict[str, Any]:
        return {"traceId": "t", "timestamp": start, "duration": duration, "localEndpoint": {"serviceName": service}, **more}

    rows = [
        span("a", 1, 9, id="1", kind="CLIENT"),
        span("b", 3, 4, id="1", kind="SERVER", shared=True),
        span("b", 4, 1, id="2", parentId="1", kind="CLIENT"),
        span("c", 5, 1, id="2", parentId="1", kind="SERVER", shared=True),
        span("c", 20, 3, id="7"),
        span("c", 21, 1, id="8", parentId="7", kind="CONSUMER"),  # what it consumes was taken by a span of its own service
    ]
    source = tmp_path / "spans.json"
    source.write_text(json.dumps([rows]), encoding="utf-8")
    _, events = imported(spark, source, "zipkin")
    assert [(event.process, event.kind, event.message) for event in events if event.kind != "span"] == [
        ("a", "send", "t:1"),
        ("a", "deliver", "t:1 answer"),
        ("b", "deliver", "t:1"),
        ("b", "send", "t:2"),
        ("b", "deliver", "t:2 answer"),
        ("b", "send", "t:1 answer"),
        ("c", "deliver", "t:2"),
        ("c", "send", "t:2 answer"),
    ]


@pytest.mark.parametrize("form", ["page", "storage"])
def test_traces_as_jaeger_has_them(spark: SparkSession, tmp_path: Path, form: str) -> None:
    spans, sent = spans_in_memory()
    document = jaeger_json(spans)
    source = tmp_path / "traces.json"
    if form == "page":
        source.write_text(json.dumps(document, indent=1), encoding="utf-8")
    else:
        ndjson(
            source,
            [{**span, "process": trace["processes"][span["processID"]]} for trace in document["data"] for span in trace["spans"]],
        )
    done, events = imported(spark, source, "jaeger")
    assert (done.lines, done.bad, done.ignored) == (17, 0, 0)
    assert ends(events) == Counter(SHOP) + Counter(CALLS)
    rows = found(events)
    assert {name: len(violations) for name, violations in rows.items()} == {
        "causal": 2,
        "fifo": 1,
        "creation": 1,
        "duplication": 1,
    }
    assert rows["duplication"] == [("stock/1", message_of(sent["first"]), None)]


@pytest.mark.parametrize(("preset", "lines"), [("etcd-raft", etcd_lines()), ("ccf-raft", ccf_lines())])
def test_traces_of_raft_for_validation_in_tla(spark: SparkSession, tmp_path: Path, preset: str, lines: list[Any]) -> None:
    done, events = imported(spark, ndjson(tmp_path / "trace.ndjson", lines), preset)
    first = int(preset == "etcd-raft")
    nodes = [str(first + node) for node in range(3)]
    assert (done.bad, done.messages, done.processes) == (0, 7, 3)
    assert done.ignored == (1 if first else 2), "the other logger's line; the driver's command, and the vote that nobody sent"
    assert all(event.time is not None for event in events)
    rows = found(events)
    assert {name: Counter(process for process, *_ in violations) for name, violations in rows.items()} == {
        "creation": {nodes[2]: 1},
        "fifo": {nodes[1]: 1},
        "causal": {nodes[1]: 1},
        "completeness": {nodes[1]: 1},
    }
    ((_, later, earlier),) = rows["fifo"]
    assert later is not None
    assert earlier is not None
    assert (later.endswith("#1"), earlier.endswith("#1"), later != earlier) == (True, True, True)


def record(offset: int, ts: int, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": offset, "tstype": "create", "ts": ts, "broker": 1, "payload": "x", **more}


def test_dumps_of_topics_and_what_consumers_read(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        record(0, 10, producer="p"),
        record(2, 11, headers=["producer", "p"]),  # sent before the next one, and stored after it, as a retry is
        record(1, 12, headers=[{"key": "producer", "value": "p"}]),
        *({**record(offset, 20 + offset), "partition": 1} for offset in range(3)),
        *(record(offset, 30 + offset, consumer="c") for offset in range(3)),
        record(1, 40, consumer="c"),
        record(9, 41, consumer="d"),
        *({**record(offset, 50 + place), "partition": 1, "consumer": "d"} for place, offset in enumerate((0, 2, 1))),
    ]
    done, events = imported(spark, ndjson(tmp_path / "t.jsonl", rows), "kafka")
    assert (done.bad, done.processes, done.messages) == (0, 4, 6)
    assert {event.topic for event in events} == {"t"}
    assert [(event.process, event.message) for event in events if event.kind == "send"][:3] == [
        ("p", "t/0@0"),
        ("p", "t/0@2"),
        ("p", "t/0@1"),
    ]
    assert found(events) == {
        "creation": [("d", "t/0@9", None)],
        "duplication": [("c", "t/0@1", None)],
        "fifo": [("c", "t/0@1", "t/0@2"), ("d", "t/1@2", "t/1@1")],
        "causal": [("c", "t/0@1", "t/0@2"), ("d", "t/1@2", "t/1@1")],
    }


def test_executions_of_a_shiviz_log_are_runs(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "two.log"
    source.write_text(
        '=== one ===\na {"a":1}\nx\nb {"a":1,"b":1}\ny\n=== two ===\nb {"b":1}\nx\na {"a":1,"b":1}\ny\n', encoding="utf-8"
    )
    done, events = imported(spark, source, "shiviz")
    assert (done.runs, done.messages, done.guessed) == (2, 2, "looks like a line 'HOST {clock}', then the event")
    assert {(event.run, event.process, event.message) for event in events if event.kind == "deliver"} == {
        ("one", "b", "a:1"),
        ("two", "a", "b:1"),
    }
    assert [caveat.partition(" in doubt: ")[0] for caveat in done.caveats] == [
        "fifo, causal, creation, duplication, completeness"
    ]


def test_what_cannot_be_judged_stays_with_the_trace(spark: SparkSession, tmp_path: Path) -> None:
    source = ndjson(tmp_path / "t.jsonl", [record(offset, offset) for offset in range(3)])
    done, _ = imported(spark, source, "kafka")
    trace = str(tmp_path / "out")
    assert any(caveat.startswith("completeness in doubt: sends do not say where they go") for caveat in done.caveats)
    assert caveats(trace) == list(done.caveats)
    assert caveats_of(spark.read.parquet(trace)) == list(done.caveats)
    spark.read.parquet(trace).where("index > 0").write.parquet(str(tmp_path / "some" / "run=1"))
    assert caveats(str(tmp_path / "some")) == list(done.caveats)
    again = import_trace(spark, trace, str(tmp_path / "again"))
    assert (again.caveats, caveats(str(tmp_path / "again"))) == (done.caveats, list(done.caveats))
    assert caveats(str(source)) == caveats(str(tmp_path / "nothing")) == []


@pytest.mark.parametrize(
    ("preset", "content", "bad"),
    [
        (
            "otlp",
            '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"t","spanId":"s"}]}]}]}',
            "record 1: column 'process': expected a",
        ),
        ("zipkin", '[\n{"id": 1},\n{"id": 2,}\n]', ":3: expected JSON: JSON is malformed"),
        (
            "zipkin",
            '[{"traceId":"t","id":"1","localEndpoint":{"serviceName":"a"}}]',
            "record 1: order 'time': expected an integer",
        ),
        ("jaeger", "[]\nhello\n", ":2: expected JSON: "),
        ("kafka", '{"topic":"t","partition":0,"offset":"x","ts":1}', ":1: order 'offset': expected an integer, found \"x\""),
        (
            "etcd-raft",
            '{"tag":"trace","ts":1,"event":{"nid":"1","name":"SendSnapshot"}}',
            ":1: column 'message': the row is a send",
        ),
    ],
)
def test_errors_name_the_file_the_line_and_what_is_expected(
    spark: SparkSession, tmp_path: Path, preset: str, content: str, bad: str
) -> None:
    source = tmp_path / "x.json"
    source.write_text(content, encoding="utf-8")
    done, events = imported(spark, source, preset)
    assert events == []
    assert done.first_bad[0].startswith(f"{source}:")
    assert bad in done.first_bad[0]


def test_a_source_without_any_event_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = ndjson(tmp_path / "x.jsonl", [{"resourceMetrics": []}])
    with pytest.raises(TraceError, match="nothing in there is an event; expected OpenTelemetry spans as OTLP JSON"):
        imported(spark, source, "otlp")
    assert not (tmp_path / "out").exists()
