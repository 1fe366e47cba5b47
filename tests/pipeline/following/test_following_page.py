"""docs/how-to/following.md is run, and its tables are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import assert_commands_do_what_they_say, read, rows
from thence.pipeline.streaming import run as limits
from thence.pipeline.streaming.query import HOLD_S
from thence.pipeline.streaming.sink import MAX_LAG_ROWS, MAX_RUNS
from thence.pipeline.streaming.state import MAX_STATE_BYTES
from thence.pipeline.streaming.stream import BYTES_PER_BATCH, PARTS_PER_BATCH
from thence.pipeline.tables import LAG

PAGE = read("docs/how-to/following.md")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_commands_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_commands_do_what_they_say(PAGE, 2)


def test_the_tables_say_what_the_code_does() -> None:
    assert rows(PAGE, "| column | meaning |") == [[f"`{column.name}`", column.meaning] for column in LAG]
    told = [int(last.replace(",", "")) for _, last in rows(PAGE, "| what | limit |")]
    assert told == [
        MAX_RUNS,
        limits.MAX_PROCESSES,
        limits.MAX_HELD,
        limits.MAX_FLIGHTS,
        limits.MAX_FINISHED,
        limits.MAX_HISTORY,
        limits.MAX_CHAINS,
        MAX_STATE_BYTES >> 20,
        PARTS_PER_BATCH,
        BYTES_PER_BATCH >> 20,
    ]
    assert f"last {MAX_LAG_ROWS:,} steps" in PAGE
    assert f"({HOLD_S:.0f} unless told otherwise" in PAGE
