"""The event: one row of a trace, the same in memory, in JSON lines and in Parquet.

This file exists so that the columns are written down once. Everything else that knows them (the Parquet schema,
the words used in complaints about bad rows) is checked against it in the tests.

Rules:

* ``process``, ``index`` and ``kind`` are required. All other columns may be absent or null.
* A send or a delivery without ``message``, or a send without ``to``, can be read: that is a violation for the judge
  to report, not a row that cannot be understood.
* ``time`` and ``clock`` are what the process claimed. Nothing decides an order by them.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

Int32 = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]

SEND: Final = "send"
DELIVER: Final = "deliver"
CRASH: Final = "crash"
RECOVER: Final = "recover"
JOIN: Final = "join"
LEAVE: Final = "leave"
VIEW: Final = "view"
"""The fabric has changed: what this process delivered before is of the old view. ``to`` names those who were lost with it."""
ARRIVE: Final = "arrive"
"""A message for this process came in and may have to wait. Only measured, never checked."""


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """Something that happened at one process.

    >>> Event(process="A", index=0, kind="send", message="A:1", to=("B", "C")).kind
    'send'
    """

    run: str | None = None
    process: str
    index: Int64
    kind: str
    message: str | None = None
    to: tuple[str, ...] | None = None
    time: Int64 | None = None
    domain: str | None = None
    bytes: Int32 | None = None
    overhead: Int32 | None = None
    clock: dict[str, Int64] | None = None
    client: str | None = None
    topic: str | None = None


COLUMNS: Final[tuple[str, ...]] = Event.__struct_fields__
REQUIRED: Final[tuple[str, ...]] = ("process", "index", "kind")
