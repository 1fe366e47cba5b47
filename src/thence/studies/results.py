"""The folder of a study that runs or has run: what is in it, and reading and writing that.

    study.toml        the study, as it was when it began
    run.json          whether it is the small version, which traces are kept, what it is called
    results/          a small Parquet file for each task, written by whoever ran it
    traces/           traces, if they were asked for
    runs.parquet      every run that counts, sorted: the same whatever ran it
    means.parquet     means and intervals of every measure at every point, sorted: the same too
    cost.json         what it took, and which runs failed

Rules: the last three are there when the study is done, and not before.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thence.errors import ConfigError
from thence.studies.runs import RESULTS, TRACES, RunRow, Traces
from thence.studies.statistics import Summary, summary_of
from thence.studies.study import Study, parse

MEANS_SCHEMA: Final = pa.schema(
    [
        ("point", pa.string()),
        ("measure", pa.string()),
        ("count", pa.int32()),
        ("mean", pa.float64()),
        ("deviation", pa.float64()),
        ("half_width", pa.float64()),
    ]
)

Means = Mapping[str, Mapping[str, Summary]]
"""By the canonical point, then by the measure."""


class Settings(msgspec.Struct, frozen=True):
    """How a study was begun."""

    source: str
    small: bool
    traces: Traces


class Failure(msgspec.Struct, frozen=True):
    """A run that gave nothing."""

    point: str
    repetition: int
    error: str


class StudyCost(msgspec.Struct, frozen=True):
    """What a study took."""

    runs: int
    seconds: float
    events: int
    failures: tuple[Failure, ...]


class Folder:
    """The folder of a study that runs or has run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        self._shown = str(path)

    def check_free(self, *, fresh: bool = False) -> None:
        """Refuse a folder that holds something; with ``fresh``, something other than a study."""
        if (self.path / "study.toml").exists():
            if not fresh:
                raise ConfigError(
                    f"{self._shown}: holds a study already; thence study resume {self._shown} goes on, --fresh begins anew"
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise ConfigError(f"{self._shown}: is not empty, and holds no study; name another folder by --out")

    def begin(self, study: Study, traces: Traces, *, fresh: bool = False) -> None:
        """Put a study into a folder that has none; ``fresh`` removes the one that is there."""
        self.check_free(fresh=fresh)
        self.clear()
        self.path.mkdir(parents=True, exist_ok=True)
        settings = Settings(study.source, study.is_small, traces)
        (self.path / "run.json").write_bytes(msgspec.json.encode(settings) + b"\n")
        (self.path / "study.toml").write_text(study.text, encoding="utf-8")

    def clear(self) -> None:
        """Remove what an earlier study left, and nothing else."""
        for name in (RESULTS, TRACES, ".work"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in ("study.toml", "run.json", "runs.parquet", "means.parquet", "cost.json"):
            (self.path / name).unlink(missing_ok=True)

    def study(self) -> tuple[Study, Settings]:
        """Return the study in the folder, and how it was begun."""
        try:
            settings = msgspec.json.decode((self.path / "run.json").read_bytes(), type=Settings)
            text = (self.path / "study.toml").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ConfigError(f"{self._shown}: holds no study; thence study run NAME --out {self._shown} begins one") from None
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self._shown}/run.json: {error}") from None
        return parse(text, f"{self._shown}/study.toml", source=settings.source, small=settings.small), settings

    def rows(self) -> dict[tuple[str, int], RunRow]:
        """Return what was run so far, each run once; one that succeeded when tried again counts as such."""
        rows: dict[tuple[str, int], RunRow] = {}
        for path in sorted((self.path / RESULTS).glob("*.parquet")):
            for values in pq.read_table(path).to_pylist():
                row = RunRow(**{**values, "measures": dict(values["measures"])})
                if row.key not in rows or rows[row.key].error is not None:
                    rows[row.key] = row
        return rows

    def finish(self, study: Study, rows: Iterable[RunRow], means: Means, failures: Iterable[Failure]) -> None:
        """Write the tables of a study that is done."""
        done = sorted(rows, key=lambda row: row.key)
        columns = {name: [getattr(row, name) for row in done] for name in ("study", "point", "repetition", "seed", "events")}
        types = {"repetition": pa.int32(), "seed": pa.int64(), "events": pa.int64()}
        table = {name: pa.array(values, types.get(name, pa.string())) for name, values in columns.items()}
        for measure in sorted(study.measures):
            table[f"measure_{measure}"] = pa.array([row.measures[measure] for row in done], pa.float64())
        self._write("runs.parquet", pa.table(table))
        summed = [(point, measure, *means[point][measure]) for point in sorted(means) for measure in sorted(means[point])]
        rows_of_means = [dict(zip(MEANS_SCHEMA.names, row, strict=True)) for row in summed]
        self._write("means.parquet", pa.Table.from_pylist(rows_of_means, MEANS_SCHEMA))
        cost = StudyCost(
            runs=len(done),
            seconds=math.fsum(row.seconds for row in done),
            events=sum(row.events or 0 for row in done),
            failures=tuple(sorted(failures, key=lambda failure: (failure.point, failure.repetition))),
        )
        (self.path / "cost.json").write_bytes(msgspec.json.encode(cost) + b"\n")

    def _write(self, name: str, table: pa.Table) -> None:
        partial = self.path / f".{name}"
        pq.write_table(table, partial)
        partial.replace(self.path / name)

    def means(self) -> Means:
        """Return the table of means of a study that is done."""
        return by_point(self._finished("means.parquet").to_pylist())

    def cost(self) -> StudyCost:
        """Return what the study took."""
        self._finished("means.parquet")
        return msgspec.json.decode((self.path / "cost.json").read_bytes(), type=StudyCost)

    def _finished(self, name: str) -> pa.Table:
        if not (self.path / name).exists():
            self.study()
            raise ConfigError(f"{self._shown}: the study is not done yet; thence study resume {self._shown}")
        return pq.read_table(self.path / name)


def by_point(rows: Iterable[Mapping[str, Any]]) -> Means:
    """Return rows of the table of means, by point and measure."""
    means: dict[str, dict[str, Summary]] = {}
    for row in rows:
        summary = Summary(row["count"], row["mean"], row["deviation"], row["half_width"])
        means.setdefault(row["point"], {})[row["measure"]] = summary
    return means


def means_of(rows: Sequence[RunRow]) -> Means:
    """Return the statistics of each measure at each point."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for measure, value in row.measures.items():
            values.setdefault(row.point, {}).setdefault(measure, []).append(value)
    return {point: {measure: summary_of(found) for measure, found in sorted(of.items())} for point, of in sorted(values.items())}
