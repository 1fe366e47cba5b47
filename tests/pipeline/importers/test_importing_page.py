"""docs/how-to/importing.md is run: its commands, its example, and its table of keys against the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.test_docs import ROOT, assert_commands_do_what_they_say, blocks, read, rows
from thence.pipeline.importers.mapped.mapping import ColumnRule, Doubt, EventRule, Mapping
from thence.pipeline.importers.mapped.presets import preset_names
from thence.pipeline.importers.sources import FORMATS, MAX_FILE_BYTES
from thence.pipeline.importers.staged import BAD_COLUMNS, MAX_RAW_CHARACTERS

PAGE = read("docs/how-to/importing.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in ("tests", "examples"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    monkeypatch.chdir(tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "folder")
def test_commands_and_examples_do_what_the_page_says() -> None:
    assert_commands_do_what_they_say(PAGE, 10)
    (example,) = blocks(PAGE, "python")
    exec(compile(example, "docs/how-to/importing.md", "exec"), {})


def test_the_tables_say_what_the_code_knows() -> None:
    told = " ".join(first for first, *_ in rows(PAGE, "| key | what it says |"))
    keys = {key.rpartition(".")[2] for key in re.findall(r"`([\w.]+)`", told)}
    kinds = (ColumnRule, EventRule, Doubt, Mapping)
    assert keys == {field.encode_name for kind in kinds for field in msgspec.structs.fields(kind)} - {"doubts"}
    assert sorted(first.strip("`") for first, *_ in rows(PAGE, "| `--preset` | what it reads")) == preset_names()
    assert tuple(first.strip("`") for first, *_ in rows(PAGE, "| format | what it is |")) == FORMATS


def test_the_limits_are_those_of_the_code() -> None:
    assert f"at most {MAX_FILE_BYTES // 2**20} MiB" in PAGE
    assert f"first {MAX_RAW_CHARACTERS:,} characters" in PAGE
    assert all(f"`{column}`" in PAGE for column in BAD_COLUMNS)
