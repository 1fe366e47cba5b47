"""Where a source is, which files it has, and what is in them: everything that is asked before reading.

Rules:

* A source is what Spark reads: a file, a folder with all that is below it, a glob, or the URL of an object store.
* Names that begin with ``.`` or ``_`` are skipped, as in any trace. Of several files those are read that end as files of that
  format do; if none does, all of them.
* A folder's name such as ``run=7`` gives that column to rows that have none, wherever it stands in the path.
* What Spark has to say about a file that it cannot read is one line of a :class:`~thence.errors.TraceError`. What goes wrong
  in our own code in one of its workers is our mistake.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from thence.errors import ConfigError, InternalError, TraceError
from thence.trace.files import JSONL_ENDINGS, NULL_PARTITION, PARQUET_ENDING, PARTITION_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrameReader, SparkSession

PARQUET: Final = "parquet"
JSONL: Final = "jsonl"
SHIVIZ: Final = "shiviz"
NDJSON: Final = "ndjson"
FORMATS: Final = (PARQUET, JSONL, SHIVIZ, NDJSON)

ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    PARQUET: (PARQUET_ENDING,),
    JSONL: (*JSONL_ENDINGS, ".jsonl.gz", ".ndjson.gz"),
    NDJSON: (*JSONL_ENDINGS, ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz"),
    SHIVIZ: (".log", ".txt"),
}
BYTES_PER_TASK: Final = 16 * 2**20
"""How much of a source one task gets after a shuffle. Spark would make 200 tasks of anything."""

MAX_FILE_BYTES: Final = 256 * 2**20
"""How large a file may be that a task reads whole, since its events are no lines."""

HEAD_LINES: Final = 400
HEAD_BYTES: Final = 2**20
HEAD_FILES: Final = 4

_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_HADOOP_GLOB: Final = re.compile(r"[{}\[\]*?]")
_IN_PYTHON: Final = re.compile(r"^Traceback \(most recent call last\):\n(?:[ ].*\n)+(\S.*)$", re.MULTILINE)
_FOLDER: Final = re.compile(r"([^/=]+)=([^/]*)/")


class SourceFile(NamedTuple):
    """A file of a source."""

    path: str
    size_bytes: int


def of_format(files: Sequence[SourceFile], name: str) -> tuple[Sequence[SourceFile], bool]:
    """Return those of several files that end as this format's do, if any does, and whether they were chosen so."""
    chosen = [file for file in files if file.path.endswith(ENDINGS[name])]
    return (chosen, True) if chosen and len(files) > 1 else (files, False)


class Source(NamedTuple):
    """A source as it will be read: where, which files, and by which endings they are chosen."""

    place: str
    files: tuple[SourceFile, ...]
    endings: tuple[str, ...] = ()

    def of_format(self, name: str) -> Source:
        """Return the source with only those files that end as this format's do, if any does."""
        files, chosen = of_format(self.files, name)
        return self._replace(files=tuple(files), endings=ENDINGS[name]) if chosen else self

    @property
    def tasks(self) -> int:
        """Return into how many tasks the rows of this source are best split."""
        return 1 + sum(file.size_bytes for file in self.files) // BYTES_PER_TASK

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Return a reader of these files: call one of its methods with ``place``."""
        reader = spark.read.option("recursiveFileLookup", "true")
        if self.endings:
            reader = reader.option("pathGlobFilter", "*{" + ",".join(self.endings) + "}")
        return reader


def find(spark: SparkSession, source: str) -> Source:
    """Return the files of a source."""
    place = source
    if "://" not in source:
        path = Path(source).absolute()
        place = _GLOB.sub(r"\\\1", str(path)) if path.exists() else str(path)
        if not path.exists() and not _HADOOP_GLOB.search(source):
            raise TraceError(f"{source}: no such file or folder")
    with reading(source):
        listed = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(place).select("path", "length")
        files = tuple(sorted(SourceFile(row["path"], row["length"]) for row in listed.collect()))
    if not files:
        raise TraceError(f"{source}: no files in there, or only empty ones")
    return Source(place, files)


def head(spark: SparkSession, files: Iterable[SourceFile]) -> str:
    """Return the first lines of the first files that hold anything."""
    lines: list[str] = []
    for file in [file for file in files if file.size_bytes][:HEAD_FILES]:
        with reading(file.path):
            rows = spark.read.text(_GLOB.sub(r"\\\1", file.path)).limit(HEAD_LINES).collect()
        lines.extend(str(row["value"]) for row in rows)
    return "\n".join(lines) + "\n"


def local_files(source: str) -> list[SourceFile]:
    """Return the files of a source on this machine, without Spark; none where only Spark can tell."""
    path = Path(source).absolute()
    if "://" in source or not path.exists():
        return []
    found = [path] if path.is_file() else [one for one in sorted(path.rglob("*")) if one.is_file()]
    shown = [one for one in found if not any(part[0] in "._" for part in one.relative_to(path).parts)]
    return [SourceFile(str(one), one.stat().st_size) for one in shown]


def local_head(files: Iterable[SourceFile]) -> str:
    """Return the first lines of the first files that hold anything, as :func:`head` does."""
    lines: list[str] = []
    for file in [file for file in files if file.size_bytes][:HEAD_FILES]:
        try:
            with Path(file.path).open("rb") as opened:
                begin = (gzip.GzipFile(fileobj=opened) if file.path.endswith(".gz") else opened).read(HEAD_BYTES)
        except (OSError, EOFError) as error:
            raise TraceError(
                f"{file.path}: {error.strerror if isinstance(error, OSError) and error.strerror else error}"
            ) from None
        lines.extend(begin.decode(errors="backslashreplace").splitlines()[:HEAD_LINES])
    return "\n".join(lines) + "\n"


def refuse_large_files(source: Source) -> None:
    """Refuse files that are too large to be read whole."""
    for file in source.files:
        if file.size_bytes > MAX_FILE_BYTES:
            raise ConfigError(
                f"{file.path}: {file.size_bytes} bytes; split a file of more than {MAX_FILE_BYTES} between two events"
            )


def file_path() -> Column:
    """Return the path of the file that a row comes from, which Spark gives as a URL."""
    from pyspark.sql import functions as f

    return decoded(f.col("_metadata.file_path"))


def decoded(text: Column) -> Column:
    """Return a text without its ``%20``; one that has wrong ones stays as it is."""
    from pyspark.sql import functions as f

    return f.coalesce(f.try_url_decode(f.replace(text, f.lit("+"), f.lit("%2B"))), text)


def partition_of(path: str) -> dict[str, str | None]:
    """Return the columns that folders' names in a path give."""
    return {
        column: None if value == NULL_PARTITION else unquote(value)
        for column, value in _FOLDER.findall(path)
        if column in PARTITION_COLUMNS
    }


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Say in one line what Spark could not read."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        in_python = _IN_PYTHON.findall(str(error))
        if in_python:
            raise InternalError(f"{what}: {in_python[-1]}") from error
        raise TraceError(f"{what}: {_cause(str(error))}") from None


def _cause(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    cause = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (cause or lines or ["Spark gives no reason"])[-1 if cause else 0]
