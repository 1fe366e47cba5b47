"""An audit in this process: the kernels one after the other, without Spark. For traces that fit into memory, and for tests.

What Spark does between the kernels is done here by Arrow: survey, cut, bring the marks of a message together, scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thence.pipeline.kernels.encoder import encode
from thence.pipeline.kernels.marks import AGAIN, BACKWARD, facts_of, marks_of, note_facts, sends_of
from thence.pipeline.kernels.plan import SURVEY_SCHEMA, Plan, RunPlan, plan_of, slices_of
from thence.pipeline.kernels.slices import Slice, slice_of
from thence.pipeline.scan.rows import FOUND_SCHEMA, Resent
from thence.pipeline.scan.run import RunScan
from thence.trace.events import SEND, VIEW


@dataclass(slots=True)
class LocalAudit:
    """What was found in a trace, and how it was cut."""

    plan: Plan
    rows: pa.Table
    slices: dict[int, list[Slice]] = field(default_factory=dict)
    """Of each run, with what was told of them."""
    resent: dict[int, Resent] = field(default_factory=dict)
    most_held: int = 0
    backward: int = 0
    """Messages that are delivered in earlier slices than sent."""


def audit_table(table: pa.Table, require: Sequence[str], slice_events: int, shift: int = 0) -> LocalAudit:
    """Audit a trace, given as a table with its columns and without rows that lack a process, an index or a kind."""
    plan = plan_of(survey_of(table, shift), shift, slice_events)
    result = LocalAudit(plan, FOUND_SCHEMA.empty_table())
    batches: list[pa.RecordBatch] = []
    for number, run in enumerate(plan.runs):
        mine = table["run"].is_null() if run.name is None else pc.equal(table["run"], run.name).fill_null(False)
        slices = result.slices[number] = encoded_slices(table.filter(mine), run)
        facts = facts_of(pa.Table.from_batches([marks_of(one, number, at) for at, one in enumerate(slices)]))
        result.backward += sum(int(row["local"]) for row in facts.to_pylist() if row["what"] == BACKWARD)
        result.resent[number] = resent_in(facts, slices, run.processes)
        scan = RunScan(run.name, run.processes, run.totals, require, dict(result.resent[number]))
        batches += scanned(scan, slices, facts)
        result.most_held = max(result.most_held, scan.most_held)
    result.rows = pa.Table.from_batches(batches, FOUND_SCHEMA)
    return result


def survey_of(table: pa.Table, shift: int) -> pa.Table:
    """Return the survey of a trace."""
    kinds = table["kind"].cast(pa.string())
    looked = pa.table(
        {
            "run": table["run"].cast(pa.string()),
            "process": table["process"].cast(pa.string()),
            "stretch": pc.shift_right(table["index"], shift),
            "index": table["index"],
            "time": table["time"],
            "sends": pc.equal(kinds, SEND).cast(pa.int64()),
            "viewed": pc.equal(kinds, VIEW).cast(pa.int64()),
        }
    )
    asked = [("index", "count"), ("sends", "sum"), ("index", "min"), ("index", "max"), ("time", "min"), ("time", "max")]
    grouped = looked.group_by(["run", "process", "stretch"]).aggregate([*asked, ("time", "count"), ("viewed", "sum")])
    names = ("index_count", "sends_sum", "index_min", "index_max", "time_min", "time_max", "time_count", "viewed_sum")
    values = [grouped[name].cast(pa.int64()) for name in ("stretch", *names)]
    clocked = pa.repeat(pa.scalar(0, pa.int64()), len(grouped))
    return pa.table([grouped["run"], grouped["process"], *values, clocked], schema=SURVEY_SCHEMA)


def encoded_slices(table: pa.Table, run: RunPlan) -> list[Slice]:
    """Return the slices of a run."""
    process = pc.index_in(table["process"].cast(pa.string()), pa.array(run.processes)).to_numpy()
    number = slices_of(run, process, table["index"].to_numpy())
    return [encoded(table.filter(pa.array(number == at)), run.processes) for at in range(run.slices)]


def encoded(table: pa.Table, processes: list[str]) -> Slice:
    """Return the slice that some rows of a run are."""
    return slice_of(*encode(table, processes))


def scanned(scan: RunScan, slices: Sequence[Slice], facts: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Judge the slices of a run, knowing what each must know of the others."""
    place, what, local, last = (facts[name].to_numpy() for name in ("slice", "what", "local", "last"))
    for at, one in enumerate(slices):
        mine = (place == at) & (what != BACKWARD)
        note_facts(one, what[mine], local[mine], last[mine])
        yield from scan.take(one, at)
    yield from scan.finish(len(slices))


def resent_in(facts: pa.RecordBatch, slices: Sequence[Slice], processes: Sequence[str]) -> Resent:
    """Return the sends that are not the first of their message: who sent it in which event."""
    places: dict[str, list[tuple[int, int]]] = {}
    for row in facts.to_pylist():
        if row["what"] == AGAIN:
            for process, index, name in sends_of(slices[row["slice"]], row["local"]):
                places.setdefault(name, []).append((process, index))
    return outdone(places, processes)


def outdone(places: dict[str, list[tuple[int, int]]], processes: Sequence[str]) -> Resent:
    """Return of each message that is sent more than once all sends but the first."""
    found: dict[tuple[int, int, str], tuple[str | None, int]] = {}
    for name, sends in places.items():
        first, *others = sorted(sends)
        for place in set(others) - {first}:
            found[*place, name] = (processes[first[0]], first[1])
    return found
