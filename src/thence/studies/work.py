"""Where the driver of a study and its workers leave things for each other: a folder that all of them can reach.

On a cluster it must be shared: a network folder or an object store.

Rules:

* A thing is written whole under a temporary name and renamed, so that a task that is tried again does no harm.
* What is in here was put here by the same study, so it is read without suspicion.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thence.pipeline.files import filesystem


class WorkFolder:
    """Things by name. Can be sent to workers."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def put_each(self, name: str, things: Iterable[Any]) -> list[tuple[int, int]]:
        """Leave many small things in one file; return the place of each."""
        places, at = [], 0
        with self._writing(name) as stream:
            for thing in things:
                content = pickle.dumps(thing, protocol=5)
                stream.write(content)
                places.append((at, len(content)))
                at += len(content)
        return places

    def get_one(self, name: str, place: tuple[int, int]) -> Any:
        """Take one of many."""
        files, root = filesystem(self.uri)
        with files.open_input_file(f"{root}/{name}") as opened:
            opened.seek(place[0])
            return pickle.loads(opened.read(place[1]))  # noqa: S301 - our own

    def put_rows(self, table: str, name: str, batches: Iterable[pa.RecordBatch]) -> None:
        """Leave rows of a table, as Parquet, which Spark reads; a part by the same name is replaced."""
        with ExitStack() as stack:
            writer: pq.ParquetWriter | None = None
            for batch in batches:
                if writer is None and batch.num_rows:
                    stream = stack.enter_context(self._writing(f"{table}/{name}.parquet"))
                    writer = stack.enter_context(pq.ParquetWriter(stream, batch.schema))
                if writer is not None:
                    writer.write_batch(batch)

    @contextmanager
    def _writing(self, name: str) -> Iterator[Any]:
        """A file that is there under its name when it is whole."""
        files, root = filesystem(self.uri)
        folder, _, last = f"{root}/{name}".rpartition("/")
        if folder != root:
            files.create_dir(folder, recursive=True)
        partial = f"{folder}/.{last}.{uuid.uuid4().hex}"
        with files.open_output_stream(partial) as stream:
            yield stream
        files.move(partial, f"{folder}/{last}")
