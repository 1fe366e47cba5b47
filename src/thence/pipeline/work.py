"""Where the steps of an audit leave things for each other: a folder that the driver and all workers can reach.

On one machine that is a temporary folder. On a cluster it must be shared: a network folder or an object store, named by
``--work``.

Rules:

* A thing is written whole under a temporary name and renamed, so that a task that is tried again does no harm.
* Arrays are left as they are, one after the other behind a pickled head, so that who reads a thing maps it into memory.
* What is in here was put here by the same audit, so it is read without suspicion. It is removed when the audit is over.
"""

from __future__ import annotations

import mmap
import pickle
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from thence.pipeline.files import filesystem

ALIGNMENT_BYTES: Final = 64
"""Arrays begin at multiples of this, as loops that take many numbers at a time like it."""


class WorkFolder:
    """Things by name. Can be sent to workers."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def put(self, name: str, thing: Any) -> None:
        """Leave a thing."""
        arrays: list[pickle.PickleBuffer] = []
        head = pickle.dumps(thing, protocol=5, buffer_callback=arrays.append)
        contents = [memoryview(head), *(array.raw() for array in arrays)]
        sizes = np.array([len(contents), *map(len, contents)], np.int64)
        with self._writing(name) as stream:
            for content in (sizes.data.cast("B"), *contents):
                stream.write(content)
                stream.write(bytes(-len(content) % ALIGNMENT_BYTES))

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

    def get(self, name: str) -> Any:
        """Take a look at a thing. Of a local file only those arrays are read that are looked at; what is changed stays here."""
        files, root = filesystem(self.uri)
        path = f"{root}/{name}"
        content: memoryview
        if isinstance(files, pafs.LocalFileSystem):
            with Path(path).open("rb") as opened:
                content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))
        else:
            with files.open_input_stream(path) as stream:
                content = memoryview(bytearray(stream.read()))
        count = int.from_bytes(content[:8], sys.byteorder)
        parts, at = [], _aligned(8 + 8 * count)
        for size in np.frombuffer(content, np.int64, count, 8).tolist():
            parts.append(content[at : at + size])
            at += _aligned(size)
        return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - our own

    def make(self) -> None:
        """Make the folder."""
        files, root = filesystem(self.uri)
        files.create_dir(root, recursive=True)

    def remove(self) -> None:
        """Remove the folder and all in it."""
        files, root = filesystem(self.uri)
        files.delete_dir(root)


def _aligned(size: int) -> int:
    return size + -size % ALIGNMENT_BYTES
