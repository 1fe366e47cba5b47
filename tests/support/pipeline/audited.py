"""An audit without Spark, for tests: the same steps on the same files, one after the other in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from thence.pipeline.audit import plan, survey, tasks, total
from thence.pipeline.audit.auditor import Auditor
from thence.pipeline.engine import Here
from thence.pipeline.kernels.rows import lost_rows
from thence.pipeline.work import WorkFolder
from thence.trace.events import Event
from thence.trace.parquet import ParquetSink
from thence.trace.verdict import PROPERTIES, Violation, sort_key


def write(folder: Path, events: Sequence[Event], rows_per_group: int = 7) -> Path:
    """Write a trace with small row groups, so that it has many fragments."""
    folder.mkdir(parents=True)
    sink = ParquetSink(folder, rows_per_group, 3 * rows_per_group)
    for event in events:
        sink.write(event)
    sink.close()
    return folder


class Audited:
    """All rows of an audit, chains included, and how it went."""

    def __init__(self, source: Path, work: Path, slice_events: int, require: Sequence[str] = PROPERTIES) -> None:
        folder = WorkFolder(str(work))
        folder.make()
        self.auditor = Auditor(Here(), str(source), folder, require, slice_events)
        self.auditor.prepare()
        self.rows: list[Violation] = []
        for where in self.auditor.slices:
            encoded, messages, _ = folder.get(where.key("encoded"))
            start = folder.get(where.key("start"))
            for row in tasks.violations_in(where, encoded, messages, start, self.auditor.require):
                self.rows.append(self._with_chain(row.violation, row.earlier, row.later, where.run_number))
        for run in self.auditor.runs:
            if run.ledger:
                lost = lost_rows(run.run.name, run.run.processes, run.ledger.lost, run.ledger.gone, require)
                self.rows += [row.violation for row in lost]
        if "total" in require:
            for run in self.auditor.runs:
                for blocks in total.blocks_of(run.slices, len(run.run.processes), run.run.events):
                    self.rows += [row.violation for row in total._rows(blocks)]
        self.rows.sort(key=sort_key)

    def _with_chain(
        self, violation: Violation, earlier: tuple[int, int] | None, later: tuple[int, int] | None, run: int
    ) -> Violation:
        if earlier is None or later is None:
            return violation
        slices = self.auditor.runs[run].slices[earlier[0] : later[0] + 1]
        ends = tasks.Ends(0, earlier, later, violation.process, violation.index or 0, cone=False)
        (told,) = tasks.tell_chains((slices, [ends]))
        return msgspec.structs.replace(violation, chain=told.chain)

    @property
    def slices(self) -> int:
        return len(self.auditor.slices)


@pytest.fixture
def exact_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample every event, so that small traces can be cut anywhere."""
    monkeypatch.setattr(survey, "SAMPLE_EVERY", 1)
    monkeypatch.setattr(plan, "FEWEST_EVENTS", 1)
