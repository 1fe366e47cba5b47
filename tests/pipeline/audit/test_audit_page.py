"""docs/how-to/audit.md is run: its commands and its example; and the limits that it names are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import assert_commands_do_what_they_say, blocks, read
from thence.pipeline.audit.auditor import MAX_PROCESSES
from thence.pipeline.audit.job import EXPLAINED
from thence.pipeline.kernels.plan import CLOCK_BYTES
from thence.pipeline.scan.run import MAX_HELD

PAGE = read("docs/how-to/audit.md")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_commands_and_examples_do_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert_commands_do_what_they_say(PAGE, 2)
    (example,) = blocks(PAGE, "python")
    exec(compile(example, "docs/how-to/audit.md", "exec"), {})


def test_limits_are_those_of_the_code() -> None:
    assert f"`MAX_HELD` ({MAX_HELD // 10**6} million)" in PAGE
    assert f"`MAX_PROCESSES` ({MAX_PROCESSES:,})" in PAGE
    assert f"({EXPLAINED:,} unless told otherwise)" in PAGE
    assert f"`CLOCK_BYTES` ({CLOCK_BYTES // 2**20} MiB)" in PAGE
