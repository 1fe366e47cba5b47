"""Spans follow a message over servers; without being asked for, nothing is different."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import thence
from tests.support.servers.running import addressed, flat, servers, until, url
from thence.errors import ConfigError
from thence.node import spans
from thence.node.spans import ProgramSpans, ServerSpans, follow_messages

TWO_DOMAINS = """
name = "two"
[domains.A]
members = ["s1", "s2"]
ordering = "matrix"
[domains.B]
members = ["s2", "s3"]
ordering = "vector"
"""


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Give where all spans go while a test runs."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    follow_messages(False)


def named(finished: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in finished if span.name == f"thence {name}"]


async def test_a_letter_is_followed_over_a_relay(told: InMemorySpanExporter) -> None:
    follow_messages()
    topology = addressed(TWO_DOMAINS)
    async with servers(topology) as running:
        for name, server in running.items():
            server.node.hooks.spans = ServerSpans(name)
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s3"), "cleo") as cleo:
            await ann.known("cleo")
            await ann.send("cleo", b"followed", headers={"a": "b"})
            message = await cleo.receive()
            assert (message.body, message.headers["a"]) == (b"followed", "b")
            assert message.headers["traceparent"].startswith("00-")
            await until(lambda: named(told.get_finished_spans(), "receive"))
    finished = told.get_finished_spans()
    (sent,) = named(finished, "send")
    assert sent.context is not None
    assert (sent.kind, sent.parent) == (SpanKind.PRODUCER, None)
    assert sent.attributes is not None
    assert sent.attributes["messaging.destination.name"] == "cleo"
    where = {}
    for name in ("accept", "forward", "deliver", "receive"):
        (span,) = named(finished, name)
        assert span.parent is not None
        assert span.context is not None
        assert (span.parent.span_id, span.context.trace_id) == (sent.context.span_id, sent.context.trace_id)
        assert span.attributes is not None
        where[name] = span.attributes.get("thence.server") or span.attributes["thence.client"]
    assert where == {"accept": "s1", "forward": "s2", "deliver": "s3", "receive": "cleo"}
    assert sent.end_time is not None
    (accept,) = named(finished, "accept")
    assert accept.end_time is not None
    assert accept.end_time <= sent.end_time, "a message counts as sent when it is accepted"


async def test_a_span_of_the_program_is_the_parent(told: InMemorySpanExporter) -> None:
    follow_messages()
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        with trace.get_tracer("a program").start_as_current_span("an order"):
            for number in range(3):
                ann.post("ann", b"%d" % number)
        await ann.flush()
        assert [(await ann.receive()).body for _ in range(3)] == [b"0", b"1", b"2"]
    finished = told.get_finished_spans()
    (order,) = [span for span in finished if span.name == "an order"]
    assert order.context is not None
    assert [span.parent.span_id for span in named(finished, "send") if span.parent] == 3 * [order.context.span_id]
    assert len(named(finished, "receive")) == 3


async def test_a_letter_without_a_context_leaves_no_span(told: InMemorySpanExporter) -> None:
    topology = flat("s1")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        running["s1"].node.hooks.spans = ServerSpans("s1")
        await ann.send("ann", b"plain", headers={"a": "b"})
        await ann.send("ann", b"a body that says traceparent")
        message = await ann.receive()
        assert message.headers == {"a": "b"}
    assert told.get_finished_spans() == ()


def test_spans_that_wait_are_bounded(told: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_OPEN", 2)
    program = ProgramSpans("ann")
    for number in range(1, 5):
        program.sending(number, None, "bob")
    assert len(named(told.get_finished_spans(), "send")) == 2
    program.accepted("ann", 3)
    assert len(named(told.get_finished_spans(), "send")) == 3
    program.accepted("ann", 9)
    assert len(named(told.get_finished_spans(), "send")) == 4


def test_without_open_telemetry_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"install thence\[otel\]"):
        ServerSpans("s1")


def test_it_is_not_even_imported_unless_asked_for() -> None:
    code = "import sys, thence.cli.servers.serve, thence.client.client; print('opentelemetry' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout == "False\n"
    assert asyncio.run(_spans_of_a_new_client()) is None


async def _spans_of_a_new_client() -> ProgramSpans | None:
    return thence.connect("thence://127.0.0.1:1", "ann")._parts.deliveries.spans
