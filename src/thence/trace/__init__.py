"""The trace: what happened, as rows that every part of thence writes or reads, and the judge of it.

The judge is in :mod:`thence.trace.judge`. It shares no code with what it judges.

May import ``core.wire``. Exports the names below, ``complaints``, ``events``, ``files``, ``jsonl``, ``judge``, ``live``,
``parquet``, ``recorder``, ``verdict`` and ``words``.
"""

from thence.trace.events import COLUMNS, REQUIRED, Event
from thence.trace.files import TraceWriter, read_trace, scan_trace, write_trace
from thence.trace.live import LiveTraceWriter

__all__ = ["COLUMNS", "REQUIRED", "Event", "LiveTraceWriter", "TraceWriter", "read_trace", "scan_trace", "write_trace"]
