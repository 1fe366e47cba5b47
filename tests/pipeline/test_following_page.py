"""docs/how-to/following.md is run, and its tables are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import assert_commands_do_what_they_say, read, rows
from thence.pipeline.following import limits
from thence.pipeline.following.store import LAG, MAX_LAG_ROWS
from thence.pipeline.following.stream import PARTS_PER_BATCH, PATIENCE_S

PAGE = read("docs/how-to/following.md")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_commands_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_commands_do_what_they_say(PAGE, 2)


def test_the_tables_say_what_the_code_does() -> None:
    assert [first.strip("`") for first, *_ in rows(PAGE, "| column | meaning |")] == LAG.names
    told = [int(last.replace(",", "")) for _, last in rows(PAGE, "| what | limit |")]
    assert told == [
        limits.MAX_RUNS,
        limits.MAX_PROCESSES,
        limits.MAX_HELD,
        limits.MAX_FLIGHTS,
        limits.MAX_FINISHED,
        PARTS_PER_BATCH,
    ]
    assert f"last {MAX_LAG_ROWS:,} steps" in PAGE
    assert f"({PATIENCE_S:.0f} unless told otherwise" in PAGE
