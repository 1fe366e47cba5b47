"""Studies made for tests, from one text with changes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from thence.studies.results import Folder
from thence.studies.study import Study, parse

TEXT = """
name = "queue"
title = "How long one waits"
paper = "none"
model = "tests.studies.queue"
about = "A queue with `one` server."

[parameters]
customers = 400

[grid]
service = ["random", "fixed"]
load = [0.2, 0.4, 0.6]

[[without]]
service = "fixed"
load = 0.6

[repetitions]
least = 4
most = 20
share = 0.1
of = ["wait"]

[small]
least = 2
most = 2
parameters = { customers = 50 }
grid = { load = [0.2, 0.6] }

[measures.wait]
text = "mean wait"
unit = "s"
[measures.formula]
text = "what the formula says"
unit = "s"
[measures.nothing]
text = "makes no sense"

[[plots]]
title = "Waits against load"
x = "load"
y = ["wait", "formula"]
by = ["service"]
log = "y"

[[claims]]
id = "Q1"
text = "random service makes longer waits"
kind = "order"
measure = "wait"
this = { service = "random" }
that = { service = "fixed" }
relation = "above"

[[claims]]
id = "Q2"
text = "the formula gives the wait"
kind = "equal"
measure = "wait"
formula = "formula"
within = 0.3

[[claims]]
id = "Q3"
text = "waits fall with load"
kind = "trend"
measure = "wait"
against = "load"
relation = "falls"
note = "They do not: the claim is turned around on purpose."

[[claims]]
id = "Q4"
text = "the formula grows faster than load"
kind = "growth"
measure = "formula"
against = "load"
low = 1.1
high = 2.5
where = { service = "random" }
"""


def study(*changes: tuple[str, str], small: bool = False, source: str = "queue.toml") -> Study:
    """The study above, with some text replaced."""
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return parse(text, "queue.toml", source=source, small=small)


def tables(folder: Folder) -> tuple[pa.Table, pa.Table]:
    """The two tables that must not depend on who ran the study, or how often it was killed."""
    return pq.read_table(folder.path / "runs.parquet"), pq.read_table(folder.path / "means.parquet")


def same_tables(one: Folder, other: Folder) -> bool:
    """Whether two folders hold the same results, to the last bit; nothing equals nothing."""
    return all(
        mine.schema == theirs.schema and repr(mine.to_pydict()) == repr(theirs.to_pydict())
        for mine, theirs in zip(tables(one), tables(other), strict=True)
    )
