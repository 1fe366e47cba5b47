"""The pages that need Spark: their examples run, and their tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_docs import NEED_SPARK, ROOT, blocks, read, rows
from thence.pipeline.report.figures import MAX_BARS, MAX_MATRIX
from thence.pipeline.report.sections import MAX_VIOLATIONS
from thence.pipeline.report.text import MAX_NAME_CHARACTERS
from thence.pipeline.source.pieces import TARGET_BYTES
from thence.pipeline.source.reader import MAX_BYTES_PER_TRIGGER, MAX_PARTS_PER_TRIGGER
from thence.pipeline.tables import ACCURACY, EXACT_UP_TO, MAX_BUCKETS, TABLES


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("page", sorted(NEED_SPARK))
def test_examples_run(page: str, tmp_path: Path) -> None:
    """The folder ``data`` of a page becomes a real one: Java does not notice when Python changes its folder."""
    known: dict[str, object] = {}
    code = blocks(read(page), "python")
    assert code
    for block in code:
        exec(compile(block.replace('"data/', f'"{tmp_path}/'), str(ROOT / page), "exec"), known)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_the_tables_of_metrics_are_those_of_the_code(table: str) -> None:
    text = read("docs/reference/metrics.md")
    told = rows(text[text.index(f"### {table}\n") :], "| column | type | meaning |")
    assert told == [[f"`{column.name}`", column.kind, column.meaning] for column in TABLES[table]]


def test_the_options_of_the_data_source_are_those_of_the_code() -> None:
    told = {
        name.strip("`"): value for name, value, _ in rows(read("docs/reference/data-source.md"), "| option | value | meaning |")
    }
    assert told == {
        "path": "",
        "targetBytes": str(TARGET_BYTES),
        "maxPartsPerTrigger": str(MAX_PARTS_PER_TRIGGER),
        "maxBytesPerTrigger": str(MAX_BYTES_PER_TRIGGER),
    }


def test_every_table_and_limit_is_told() -> None:
    text = read("docs/reference/metrics.md")
    assert re.findall(r"^### (\w+)$", text, re.MULTILINE) == list(TABLES)
    for limit in (f"{EXACT_UP_TO:,} deliveries", f"one {ACCURACY:,}th", f"at most {MAX_BUCKETS} stretches"):
        assert limit in text
    for words in (
        f"after {MAX_NAME_CHARACTERS} characters",
        f"{MAX_MATRIX} processes",
        f"first {MAX_BARS},",
        f"{MAX_VIOLATIONS} violations",
    ):
        assert words in " ".join(text.split())
