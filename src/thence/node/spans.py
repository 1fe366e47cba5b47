"""Spans of OpenTelemetry that follow a message over its hops: sent, accepted, forwarded, delivered, received.

Off unless asked for. A program calls ``follow_messages()`` before it connects; a server is started with ``--spans``. Where the
spans go is said to OpenTelemetry, as for any program (docs/how-to/operations.md).

Rules:

* The context of a message travels in its headers (``traceparent``), which nobody on the way changes. So order, numbers and bytes
  of the protocol are the same, and all spans of a message are children of the one that sent it.
* Servers look into messages only when they were asked to follow them; without that it costs a comparison with None a message.
* A span that was begun is ended when the message is accepted; at most ``MAX_OPEN`` of a client are open at a time, and then the
  oldest is ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from thence.core.wire.messages import Packet
from thence.errors import ConfigError, MalformedFrame
from thence.net.protocol import read_messages
from thence.storage.bodies import read_body
from thence.storage.mailbox import Batch

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer

HEADER: Final = "traceparent"
MAX_OPEN: Final = 65_536
"""How many spans of one client may wait for their messages to be accepted."""

_HEADER_BYTES: Final = HEADER.encode()


class Spans:
    """What programs and servers have in common."""

    def __init__(self, where: str, attribute: str) -> None:
        """``where`` is the name of the program or server, ``attribute`` what its spans call it."""
        try:
            from opentelemetry import trace
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise ConfigError("spans need OpenTelemetry: install thence[otel]") from None
        self._tracer: Tracer = trace.get_tracer("thence")
        self._context_of = trace.set_span_in_context
        self._propagator = TraceContextTextMapPropagator()
        self._kinds = trace.SpanKind
        self._about = {"messaging.system": "thence", attribute: where}
        self._open: dict[str, deque[tuple[int, Span]]] = {}
        """Of each client: spans that wait for its messages to be accepted, with their numbers."""

    def _wait(self, client: str, number: int, span: Span) -> None:
        waiting = self._open.setdefault(client, deque())
        if len(waiting) >= MAX_OPEN:
            waiting.popleft()[1].end()
        waiting.append((number, span))

    def accepted(self, client: str, upto: int) -> None:
        """Messages of a client are accepted up to this number."""
        waiting = self._open.get(client)
        if waiting is not None:
            while waiting and waiting[0][0] <= upto:
                waiting.popleft()[1].end()
            if not waiting:
                del self._open[client]

    def _note(self, name: str, kind: Any, context: Context, **about: str | int) -> None:
        """Something has happened to a message, at this moment."""
        self._tracer.start_span(f"thence {name}", context, kind, {**self._about, **about}).end()


class ProgramSpans(Spans):
    """Of a program that sends and gets messages."""

    def __init__(self, name: str) -> None:
        """Follow the messages of the client ``name``."""
        super().__init__(name, "thence.client")
        self._name = name

    def sending(self, number: int, headers: Mapping[str, str] | None, to: str) -> dict[str, str]:
        """A message is sent; return its headers, with the context in them."""
        about = {**self._about, "messaging.destination.name": to}
        span = self._tracer.start_span("thence send", kind=self._kinds.PRODUCER, attributes=about)
        carrier = dict(headers or {})
        self._propagator.inject(carrier, self._context_of(span))
        self._wait(self._name, number, span)
        return carrier

    def received(self, headers: Mapping[str, str], sender: str) -> None:
        """A message has come."""
        if HEADER in headers:
            self._note("receive", self._kinds.CONSUMER, self._propagator.extract(headers), **{"thence.sender": sender})


class ServerSpans(Spans):
    """Of a server through which messages go."""

    def __init__(self, name: str) -> None:
        """Follow the messages that go through the server ``name``."""
        super().__init__(name, "thence.server")
        self._name = name

    def accepting(self, batch: Batch) -> None:
        """Messages of a client are about to be made durable."""
        for number, context in self._contexts(batch):
            about = {**self._about, "thence.sender": batch.sender}
            self._wait(batch.sender, number, self._tracer.start_span("thence accept", context, self._kinds.SERVER, about))

    def transmitting(self, peer: str, packet: Packet[Any]) -> None:
        """A packet goes to a peer: what of it is not ours is forwarded."""
        for frame in packet.frames:
            envelope = frame.envelope
            if envelope is None or envelope.origin == self._name or _HEADER_BYTES not in envelope.body:
                continue
            try:
                body = read_body(envelope.body, envelope.origin)
            except MalformedFrame:
                continue
            if isinstance(body, Batch):
                for _, context in self._contexts(body):
                    about = {"thence.neighbour": peer, "thence.domain": packet.domain, "thence.origin": envelope.origin}
                    self._note("forward", self._kinds.INTERNAL, context, **about)

    def delivering(self, batch: Batch, clients: Collection[str]) -> None:
        """Messages are in the mailboxes of these clients."""
        for _, context in self._contexts(batch):
            self._note("deliver", self._kinds.INTERNAL, context, **{"thence.clients": len(clients)})

    def _contexts(self, batch: Batch) -> Iterator[tuple[int, Context]]:
        """Give the number and the context of each message that has one."""
        written = bytes(batch.messages)
        if _HEADER_BYTES not in written:
            return
        try:
            messages = read_messages(written, batch.sender)
        except MalformedFrame:
            return
        for number, item in enumerate(messages, start=batch.first):
            if item.headers is not None and HEADER in item.headers:
                yield number, self._propagator.extract(item.headers)


_following = False


def follow_messages(follow: bool = True) -> None:
    """Let all endpoints that are made from now on follow their messages, or no longer."""
    global _following  # noqa: PLW0603  One for the program, as OpenTelemetry's own providers are.
    _following = follow


def spans_of_program(name: str) -> ProgramSpans | None:
    """Return what follows the messages of an endpoint, if that was asked for."""
    return ProgramSpans(name) if _following else None
