"""Files that are read again when they change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from thence.errors import ConfigError
from thence.runtime.files import Reloading


class Reader:
    """Reads two files that must say the same."""

    def __init__(self, *files: Path) -> None:
        self.files = files
        self.value = ""
        self.reads = 0
        self.read()

    def read(self) -> None:
        self.reads += 1
        texts = {file.read_text() if file.exists() else "" for file in self.files}
        if len(texts) > 1:
            raise ConfigError("they do not fit")
        self.value = texts.pop()


def test_files_that_fit_together_are_read_when_both_have_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for file in (one, two):
        file.write_text("old")
    reader = Reader(one, two)
    reloading = Reloading("the files", (one, two), reader.read)
    assert not reloading.look()
    one.write_text("newer")
    assert not reloading.look()
    assert not reloading.look()
    assert reader.value == "old"
    assert "the files: what was read before stays in force: they do not fit" in caplog.text
    reads = reader.reads
    assert not reloading.look()
    assert reader.reads == reads, "what cannot be read is not read again and again"
    two.write_text("newer")
    assert not reloading.look()
    assert reloading.look()
    assert reader.value == "newer"


def test_a_file_that_was_put_in_the_place_of_another_is_seen(tmp_path: Path) -> None:
    file, other = tmp_path / "one", tmp_path / "other"
    file.write_text("old")
    reader = Reader(file)
    reloading = Reloading("the file", (file,), reader.read)
    other.write_text("new")
    seen = file.stat()
    os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    other.replace(file)
    assert not reloading.look()
    assert reloading.look()
    assert reader.value == "new"


def test_it_is_read_when_told_to_though_nothing_changed(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_text("same")
    reader = Reader(file)
    reloading = Reloading("the file", (file,), reader.read)
    assert reloading.again()
    assert reader.reads == 2


def test_a_file_that_is_being_written_is_read_when_it_stands_still(tmp_path: Path) -> None:
    file = tmp_path / "one"
    file.write_text("old")
    reader = Reader(file)
    reloading = Reloading("the file", (file,), reader.read)
    for half in ("", "n", "ne"):
        file.write_text(half)
        assert not reloading.look()
    file.write_text("new")
    assert not reloading.look()
    assert reader.value == "old"
    assert reloading.look()
    assert reader.value == "new"
    assert not reloading.look()
