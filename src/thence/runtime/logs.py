"""Log lines for people, or one JSON object a line for machines.

A JSON line always has ``time``, ``level``, ``server``, ``part``, ``event`` and ``message``, and beside them the parts of its
event by name. What is logged by others than the runtime has the event ``other``.

Whoever writes a line says it for people, as with any logger: a text with places for its parts. ``EVENTS`` gives each of these
texts a name that stays when the words change, and names to its parts. Rules:

* Every text that the runtime logs is in the table, and nothing else: a test reads the code and compares.
* Names of events and of parts, once released, stay. New parts come at the end.

What a line says may come from outside, so control characters in it are escaped (``runtime.printable``), and so is what would end
the line. A traceback has lines of its own, which are indented: what an error says may look like a line of ours.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from textwrap import indent
from typing import Final, Literal, NamedTuple

from thence.runtime.printable import LINES, printable, printable_json

LogFormat = Literal["text", "json"]

MAX_TRACEBACK_CHARACTERS: Final = 16_384
"""How much of a traceback is written: what an error says may be megabytes."""


class LogEvent(NamedTuple):
    """A kind of line: its name, and the names of its parts in the order of their places in the text."""

    name: str
    parts: tuple[str, ...] = ()


EVENTS: Final[dict[str, LogEvent]] = {
    # The server.
    "%s of %s listens on %s": LogEvent("started", ("name", "fabric", "address")),
    "metrics of %s are at http://%s/metrics": LogEvent("metrics-started", ("name", "address")),
    "%d frames are not acknowledged; they are in the store and go out at the next start": LogEvent(
        "stopped-unconfirmed", ("frames",)
    ),
    # Peers.
    "connected with %s at %s": LogEvent("neighbour-connected", ("peer", "address")),
    "%s: %s": LogEvent("neighbour-trouble", ("peer", "reason")),
    "%s runs on a store that was restored from a copy; it has forgotten nothing that %s knows of": LogEvent(
        "neighbour-restored", ("peer", "name")
    ),
    "%s takes nothing more, sends nothing and delivers nothing. %s": LogEvent("fenced", ("name", "reason")),
    "%s stays as it was left: %s": LogEvent("still-fenced", ("name", "reason")),
    "suspecting %s": LogEvent("neighbour-suspected", ("peer",)),
    "no longer suspecting %s": LogEvent("neighbour-trusted", ("peer",)),
    "%s: %s (%d so far): %s": LogEvent("frame-refused", ("peer", "kind", "count", "reason")),
    "a delivery that cannot be read is left out (%d so far): %s": LogEvent("delivery-unreadable", ("count", "reason")),
    "%d messages of %s are left out: they are for %s, a server in which no program runs (%d times so far)": LogEvent(
        "letters-for-nobody", ("letters", "sender", "receiver", "times")
    ),
    "names of clients of %s are left out (%d so far): MAX_NAMES_BYTES is %d; give this server more --memory": LogEvent(
        "names-left-out", ("peer", "count", "limit")
    ),
    "client %s has lost its name to one of %s; messages that go back: %d": LogEvent("name-lost", ("client", "home", "messages")),
    "messages for %s cannot go back now: %s": LogEvent("return-trouble", ("client", "reason")),
    "messages of agent %s to %s came back, since that name was lost: %d": LogEvent("agent-returned", ("agent", "to", "messages")),
    "%s": LogEvent("queue-stalled", ("reason",)),
    "messages for %s are taken again, after %g s": LogEvent("queue-goes-on", ("peer", "seconds")),
    "%s: %s. Start the program of that client, or make room with thence client purge or remove": LogEvent(
        "mailbox-full", ("reason", "effect")
    ),
    "all mailboxes are open again, after %g s": LogEvent("mailbox-goes-on", ("seconds",)),
    # At the listener.
    "%s: %s%s": LogEvent("complaint", ("address", "reason", "left_out")),
    "may lead changes (topology = true) with a token that does not sign: %s. "
    "A captured server could log in so elsewhere. Use thence token new NAME --signed": LogEvent(
        "unsigned-operators", ("entries",)
    ),
    "%s: read again": LogEvent("reloaded", ("what",)),
    "%s: what was read before stays in force: %s": LogEvent("reload-failed", ("what", "reason")),
    "client %s was %s by %s; messages dropped: %d (%d bytes)": LogEvent(
        "client-dropped", ("client", "what", "by", "messages", "bytes")
    ),
    "client %s: subscriptions ended by the access file: %d; %s": LogEvent("subscriptions-ended", ("client", "topics", "reason")),
    "subscriptions of %d more clients were ended by the access file": LogEvent("subscriptions-ended-more", ("clients",)),
    # Store and trace.
    "the store has failed: %s": LogEvent("store-failed", ("reason",)),
    "the log is not made short: %s": LogEvent("compaction-postponed", ("reason",)),
    "messages for %s stay in memory: %s": LogEvent("spill-stopped", ("client", "reason")),
    "frames for %s are not in files as they should be: %s": LogEvent("frame-spill-trouble", ("peer", "reason")),
    "the trace is not written for now: %s": LogEvent("trace-stopped", ("reason",)),
    # Agents.
    "agent %s: attempt %d of %d to react to message %d, from %s, failed: %s: %s": LogEvent(
        "reaction-failed", ("agent", "attempt", "attempts", "letter", "sender", "kind", "reason")
    ),
    "agent %s: %s": LogEvent("letter-unreadable", ("agent", "reason")),
    "agent %s rests: %s": LogEvent("agent-rests", ("agent", "reason")),
    "agent %s is stopped: %s": LogEvent("agent-stopped", ("agent", "reason")),
    "agent %s goes on: the access file allows it again": LogEvent("agent-goes-on", ("agent",)),
    # Changes of the fabric.
    "refused to %s: %s": LogEvent("change-refused", ("action", "reason")),
    "%s has switched to version %d, so we do too": LogEvent("change-followed", ("peer", "version")),
    "not going on with %s to its version: %s": LogEvent("change-not-followed", ("peer", "reason")),
    "nobody has led the change for %g s: going back to normal": LogEvent("change-abandoned", ("seconds",)),
    "%s has left %s, which had version %d": LogEvent("left", ("name", "fabric", "version")),
    "%s says that %s was declared lost: %s has gone on without it since version %d. "
    "It takes nothing more; what it has that others lack is lost. Start it as a new server, under a new name, with an empty "
    "store": LogEvent("expelled", ("peer", "name", "fabric", "version")),
    "without %s: %d messages that %s lacked were handed over": LogEvent("flushed", ("lost", "messages", "name")),
    "%s switched to version %d, %s": LogEvent("switched", ("name", "version", "fingerprint")),
    "the limits of %s follow version %d of its topology: thence status shows them": LogEvent(
        "limits-changed", ("name", "version")
    ),
    "the file has version %d; the store is at version %d, which counts": LogEvent("topology-older", ("version", "stored")),
}

OTHER: Final = LogEvent("other")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"{stamp}.{int(record.msecs):03d} {level}{_escaped_message(self, record)}"


class _Other(logging.Formatter):
    """Lines of programs that have set up no log."""

    def format(self, record: logging.LogRecord) -> str:
        return _escaped_message(self, record)


class _Json(logging.Formatter):
    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        event = EVENTS.get(record.msg, OTHER)
        line = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "server": self._server,
            "part": record.name.removeprefix("thence."),
            "event": event.name,
            "message": _message(self, record),
        }
        if event.parts and isinstance(record.args, tuple):
            line |= zip(event.parts, map(_plain, record.args), strict=True)
        return printable_json(json.dumps(line, ensure_ascii=False))


def _plain(part: object) -> str | int | float:
    return part if isinstance(part, str | int | float) else str(part)


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + _trace(formatter, record)
    return message


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    trace = formatter.formatException(record.exc_info) if record.exc_info else ""
    if len(trace) <= MAX_TRACEBACK_CHARACTERS:
        return trace
    return f"{trace[:MAX_TRACEBACK_CHARACTERS]} … (cut from {len(trace)} characters)"


def _escaped_message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    first = printable(record.getMessage())
    if not record.exc_info:
        return first
    return first + "\n" + indent(printable(_trace(formatter, record), keep=LINES), "  ", lambda _: True)


def set_up_last_resort() -> None:
    """Escape what goes to standard error where no log was set up, as in commands that are no servers."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Other())


def set_up(server: str, form: LogFormat = "text") -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(server) if form == "json" else _Text())
    root = logging.getLogger("thence")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
