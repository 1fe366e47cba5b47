"""The trace: what happened, as rows that every part of thence writes or reads, and the judge of it.

The judge is in :mod:`thence.trace.judge`. It shares no code with what it judges: nothing here imports
``thence.core``.
"""

from thence.trace.events import COLUMNS, REQUIRED, Event
from thence.trace.files import TraceWriter, read_trace, scan_trace, write_trace

__all__ = ["COLUMNS", "REQUIRED", "Event", "TraceWriter", "read_trace", "scan_trace", "write_trace"]
