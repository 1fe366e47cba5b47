"""Violations planted in generated traces: all found, none invented, each with the right chain; by the judge and by the audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.generated import Shape, generate
from tests.support.pipeline.audited import Audited
from thence.trace.files import read_trace
from thence.trace.judge import judge


@pytest.mark.parametrize("copies", [None, 3])
@pytest.mark.parametrize("skew_ns", [0, 200_000_000])
def test_what_was_planted_is_found_and_nothing_else(copies: int | None, skew_ns: int, tmp_path: Path) -> None:
    shape = Shape(events=60_000, processes=12, copies=copies, planted=30, seed=7, skew_ns=skew_ns)
    planted = generate(shape, tmp_path / "trace")
    audited = Audited(tmp_path / "trace", 8_000, ["causal"])
    assert len(planted) == 30
    assert sorted((row.process, row.later, row.earlier) for row in audited.rows) == sorted(planted)
    assert audited.rows == judge(read_trace(tmp_path / "trace"), ["causal"]).violations
    assert audited.slices >= 5
    assert (audited.found.backward > 100) is bool(skew_ns)
