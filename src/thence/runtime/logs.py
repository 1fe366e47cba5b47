"""Log lines for people, or one JSON object a line for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Literal

LogFormat = Literal["text", "json"]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return f"{stamp}.{int(record.msecs):03d} {level}{_message(self, record)}"


class _Json(logging.Formatter):
    def __init__(self, server: str) -> None:
        super().__init__()
        self._server = server

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            "server": self._server,
            "part": record.name.removeprefix("thence."),
            "message": _message(self, record),
        }
        return json.dumps(line, ensure_ascii=False)


def _message(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    message = record.getMessage()
    if record.exc_info:
        message += "\n" + formatter.formatException(record.exc_info)
    return message


def set_up(server: str, form: LogFormat = "text", level: str = "info") -> None:
    """Send the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(server) if form == "json" else _Text())
    root = logging.getLogger("thence")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False
