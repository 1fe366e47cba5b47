"""An audit without Spark, for tests: the same kernels on the same files, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from thence.pipeline.audit.local import read_small, total_rows, with_chains
from thence.pipeline.scan.here import audit_table
from thence.trace.events import Event
from thence.trace.parquet import ParquetSink
from thence.trace.verdict import PROPERTIES


def write(folder: Path, events: Sequence[Event], rows_per_group: int = 7) -> Path:
    """Write a trace with small row groups, in several files."""
    folder.mkdir(parents=True)
    sink = ParquetSink(folder, rows_per_group, 3 * rows_per_group)
    for event in events:
        sink.write(event)
    sink.close()
    return folder


class Audited:
    """All rows of an audit, chains included, and how it went."""

    def __init__(self, source: Path, slice_events: int, require: Sequence[str] = PROPERTIES) -> None:
        table = read_small(str(source))
        assert table is not None
        self.found = audit_table(table, [name for name in require if name != "total"], slice_events)
        found = self.found.rows
        if "total" in require:
            found = pa.concat_tables([found, total_rows(table, self.found)])
        self.rows, _ = with_chains(self.found, found, 10**6)

    @property
    def slices(self) -> int:
        """Into how many slices the trace was cut."""
        return self.found.plan.slices
