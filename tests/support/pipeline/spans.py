"""Spans of a few services, made and written by the OpenTelemetry SDK, with planted violations; the same as Jaeger has them.

A message is a producer's span that a consumer's span names as parent or link; a call is a client's span that a server's names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, cast

from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.exporter.zipkin.json.v2 import JsonV2Encoder
from opentelemetry.exporter.zipkin.node_endpoint import NodeEndpoint
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode, set_span_in_context

START_NS = 1_700_000_000_000_000_000
TICK_NS = 1_000_000


class Services:
    """Services, each with an exporter. Each call takes a tick of one clock, so that the order of spans is known."""

    def __init__(self, exporter: Callable[[], SpanExporter], *, batched: bool = False) -> None:
        self._exporter = exporter
        self._batched = batched
        self._ticks = (START_NS + tick * TICK_NS for tick in count())
        self._providers: dict[str, TracerProvider] = {}

    def begin(
        self, service: str, kind: SpanKind, parent: Span | None = None, links: Sequence[Span] = (), **attributes: str
    ) -> Span:
        """Begin a span."""
        span = (
            self._provider(service)
            .get_tracer("shop")
            .start_span(
                kind.name.lower(),
                None if parent is None else set_span_in_context(parent),
                kind,
                {name.replace("_", "."): value for name, value in attributes.items()},
                [Link(link.get_span_context()) for link in links],
                next(self._ticks),
            )
        )
        assert isinstance(span, Span)
        return span

    def end(self, span: Span) -> None:
        """End a span."""
        span.end(next(self._ticks))

    def whole(
        self, service: str, kind: SpanKind, parent: Span | None = None, links: Sequence[Span] = (), **attributes: str
    ) -> Span:
        """Return a span that began and ended."""
        span = self.begin(service, kind, parent, links, **attributes)
        self.end(span)
        return span

    def close(self) -> None:
        """Write all that is left."""
        for provider in self._providers.values():
            provider.shutdown()

    def _provider(self, service: str) -> TracerProvider:
        if service not in self._providers:
            provider = TracerProvider(
                resource=Resource({"service.name": service, "service.instance.id": "1"}), shutdown_on_exit=False
            )
            make = BatchSpanProcessor if self._batched else SimpleSpanProcessor
            if service != UNSEEN:
                provider.add_span_processor(make(self._exporter()))
            self._providers[service] = provider
        return self._providers[service]


UNSEEN = "unseen"
"""A service whose spans nobody exports."""


def shop(services: Services) -> dict[str, Span]:
    """Let a few services trade. Return the spans that sent: by their names below, the violations are known."""
    produce, consume = SpanKind.PRODUCER, SpanKind.CONSUMER
    sent = {"placed": services.whole("shop", produce, messaging_destination_name="orders")}
    with_stock = services.begin("stock", consume, sent["placed"])
    local = services.begin("stock", SpanKind.INTERNAL, with_stock)
    sent["reserved"] = services.whole("stock", produce, local)
    services.end(local)
    services.end(with_stock)
    services.whole("mail", consume, sent["reserved"])  # causal: what it is about comes later
    services.whole("mail", consume, sent["placed"])
    sent["first"] = services.whole("shop", produce)
    sent["second"] = services.whole("shop", produce)
    services.whole("stock", consume, sent["second"])  # fifo, and so causal
    services.whole("stock", consume, sent["first"])
    services.whole("stock", consume, links=[sent["first"]])  # duplication; by a link, which Zipkin does not have
    services.whole("mail", consume, services.whole(UNSEEN, produce))  # creation
    sent["call"] = services.begin("shop", SpanKind.CLIENT)
    served = services.begin("pay", SpanKind.SERVER, sent["call"])
    services.whole("pay", SpanKind.INTERNAL, served)
    services.end(served)
    services.end(sent["call"])
    failed = services.begin("shop", SpanKind.CLIENT)
    services.whole("pay", SpanKind.SERVER, failed)
    failed.set_status(StatusCode.ERROR)
    services.end(failed)
    return sent


def message_of(span: Span) -> str:
    """Return what the message is called that a span sent."""
    context = span.get_span_context()
    return f"{context.trace_id:032x}:{context.span_id:016x}"


def otlp_file(path: Path, *, batched: bool = False) -> dict[str, Span]:
    """Write the shop's spans as OTLP JSON: each by itself, or many in a request."""
    services = Services(lambda: FileSpanExporter(path), batched=batched)
    sent = shop(services)
    services.close()
    return sent


def spans_in_memory() -> tuple[list[ReadableSpan], dict[str, Span]]:
    """Return the shop's spans."""
    exporter = InMemorySpanExporter()
    services = Services(lambda: exporter)
    sent = shop(services)
    services.close()
    return list(exporter.get_finished_spans()), sent


def _by_service(spans: Sequence[ReadableSpan]) -> Iterator[tuple[str, list[ReadableSpan]]]:
    for name in sorted({str(span.resource.attributes["service.name"]) for span in spans}):
        yield name, [span for span in spans if span.resource.attributes["service.name"] == name]


def zipkin_json(spans: Sequence[ReadableSpan]) -> list[Any]:
    """Return spans as the SDK's encoder for Zipkin writes them."""
    found: list[Any] = []
    for name, own in _by_service(spans):
        endpoint = NodeEndpoint()
        endpoint.service_name = name
        found += json.loads(JsonV2Encoder().serialize(cast(Any, own), endpoint))
    return found


def jaeger_json(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """Return spans as Jaeger's page downloads them."""
    services = [name for name, _ in _by_service(spans)]
    traces: dict[str, Any] = {}
    for span in spans:
        context = span.get_span_context()
        assert context is not None
        assert span.start_time is not None
        assert span.end_time is not None
        trace = traces.setdefault(f"{context.trace_id:032x}", {"traceID": f"{context.trace_id:032x}", "spans": []})
        causes = [link.context for link in span.links] + ([span.parent] if span.parent else [])
        tags: list[dict[str, Any]] = [{"key": "span.kind", "type": "string", "value": span.kind.name.lower()}]
        tags += [{"key": key, "type": "string", "value": value} for key, value in (span.attributes or {}).items()]
        failed = span.status.status_code is StatusCode.ERROR
        trace["spans"].append(
            {
                "traceID": trace["traceID"],
                "spanID": f"{context.span_id:016x}",
                "operationName": span.name,
                "references": [
                    {"refType": "CHILD_OF", "traceID": f"{cause.trace_id:032x}", "spanID": f"{cause.span_id:016x}"}
                    for cause in causes
                ],
                "startTime": span.start_time // 1000,
                "duration": (span.end_time - span.start_time) // 1000,
                "tags": [*tags, *([{"key": "error", "type": "bool", "value": True}] if failed else [])],
                "logs": [],
                "processID": f"p{services.index(str(span.resource.attributes['service.name']))}",
            }
        )
        trace["processes"] = {
            f"p{place}": {"serviceName": name, "tags": [{"key": "service.instance.id", "type": "string", "value": "1"}]}
            for place, name in enumerate(services)
        }
    return {"data": list(traces.values()), "total": 0, "limit": 0, "offset": 0, "errors": None}
