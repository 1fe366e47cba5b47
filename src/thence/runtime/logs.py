"""Log lines for people, or one JSON object a line for machines.

A JSON line always has ``time``, ``level``, ``server``, ``part``, ``event`` and ``message``, and beside them the parts of its
event by name (``runtime.log_events``). What is logged by others than the runtime has the event ``other``.

What a line says may come from outside, so control characters in it are escaped (``runtime.printable``), and so is what would end
the line. A traceback has lines of its own.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Final, Literal

from thence.runtime.log_events import EVENTS, LogEvent
from thence.runtime.printable import LINES, printable, printable_json

LogFormat = Literal["text", "json"]

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
        message += "\n" + formatter.formatException(record.exc_info)
    return message


def _escaped_message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    first = printable(record.getMessage())
    if not record.exc_info:
        return first
    return first + "\n" + printable(formatter.formatException(record.exc_info), keep=LINES)


def set_up_last_resort() -> None:
    """Escape what goes to standard error where no log was set up, as in commands that are no servers."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Other())


def set_up(server: str, form: LogFormat = "text", level: str = "info") -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(server) if form == "json" else _Text())
    root = logging.getLogger("thence")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
