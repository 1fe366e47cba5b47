"""daisy §5.2, Fig. 6 to 9: delay, buffers and storage of a daisy against one flat group, as the load grows. Row D8.

Short runs of the study ``daisy-load``, which has the whole curves (docs/research/studies/daisy-load.md): here the lowest and the
highest load, and what the figures say of them. How narrow the intervals of the published curves are is read from their data.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from thence.studies.models.daisy_load import run
from thence.studies.study import study_named
from thence.trace.recorder import nowhere

DATA = Path(__file__).resolve().parents[3] / "docs" / "research" / "studies" / "data" / "daisy-load-points.csv"
STUDY = study_named("daisy-load", small=True)
FLAT = ("flat", "flat, shared copies")
LOW, HIGH = 5, 40


@cache
def mean(architecture: str, rate_per_s: int) -> Mapping[str, float]:
    """Return the means over two short runs."""
    point = {**STUDY.parameters, "architecture": architecture, "rate_per_s": rate_per_s}
    rows = [run(point, seed, nowhere) for seed in (1, 2)]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


@pytest.mark.parametrize(("flat", "rate"), [("flat", LOW), ("flat", HIGH), ("flat, shared copies", HIGH)])
def test_d8_a_daisy_delivers_later(flat: str, rate: int) -> None:
    """D8, Fig. 6: the delay above that of the flat group, with a copy for each destination and with shared ones.

    With shared copies and little load they are too close to each other for two short runs; the study has that point.
    """
    assert mean("daisy", rate)["delay_ms"] > mean(flat, rate)["delay_ms"]


@pytest.mark.parametrize("flat", FLAT)
@pytest.mark.parametrize("rate", [LOW, HIGH])
def test_d8_a_daisy_keeps_less(flat: str, rate: int) -> None:
    """D8, Fig. 7 and 9: the resequencing buffer and the storage for unstable messages below those of the flat group."""
    daisy, other = mean("daisy", rate), mean(flat, rate)
    assert daisy["buffer_bytes"] < 0.5 * other["buffer_bytes"]
    assert daisy["storage_bytes"] < 0.5 * other["storage_bytes"]


def test_d8_the_stability_delay_of_a_flat_group_is_constant() -> None:
    """D8, Fig. 8: the same in the flat group, whatever the load."""
    assert mean("flat", HIGH)["stability_ms"] == pytest.approx(mean("flat", LOW)["stability_ms"], rel=0.05)


def test_d8_the_stability_delay_of_a_daisy_rises() -> None:
    """D8, Fig. 8: a server acknowledges a message when it is stable in the groups behind, so load makes that later."""
    assert mean("daisy", HIGH)["stability_ms"] > 1.2 * mean("daisy", LOW)["stability_ms"]


def test_d8_the_published_intervals_are_narrow() -> None:
    """D8, §5: Student-t intervals of 95 % within 4 % of the mean, at every point, for the four figures."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 10
    for row in rows:
        for measure in study_named("daisy-load").repetitions.of:
            shown, _, within = next(cell for name, cell in row.items() if name.startswith(f"{measure} (")).partition(" ± ")
            assert float(within.replace(",", "")) <= 0.04 * float(shown.replace(",", "")), (row["replay"], measure)
