"""The page on the store is run: first its example, which makes a store, then the commands that look into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_docs import assert_commands_do_what_they_say, blocks, read

PAGE = "docs/reference/store.md"
COMMANDS = 7


def test_the_page_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks(read(PAGE), "python")
    exec(compile(example, PAGE, "exec"), {})
    assert_commands_do_what_they_say(read(PAGE), COMMANDS)
