"""Where the steps of an audit leave things for each other: a folder that the driver and all workers can reach.

On one machine that is a temporary folder. On a cluster it must be shared: a network folder or an object store, named by
``--work``.

Rules:

* A thing is written whole under a temporary name and renamed, so that a task that is tried again does no harm.
* What is in here was put here by the same audit, so it is read without suspicion. It is removed when the audit is over.
"""

from __future__ import annotations

import pickle
import uuid
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs


class Work:
    """Things by name. Can be sent to workers."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def put(self, name: str, thing: Any) -> None:
        """Leave a thing."""
        files, root = filesystem(self.uri)
        partial = f"{root}/.{name}.{uuid.uuid4().hex}"
        with files.open_output_stream(partial) as stream:
            stream.write(pickle.dumps(thing, protocol=5))
        files.move(partial, f"{root}/{name}")

    def get(self, name: str) -> Any:
        """Take a look at a thing."""
        files, root = filesystem(self.uri)
        with files.open_input_stream(f"{root}/{name}") as stream:
            return pickle.loads(stream.read())  # noqa: S301 - our own

    def make(self) -> None:
        """Make the folder."""
        files, root = filesystem(self.uri)
        files.create_dir(root, recursive=True)

    def remove(self) -> None:
        """Remove the folder and all in it."""
        files, root = filesystem(self.uri)
        files.delete_dir(root)


def absolute(place: str) -> str:
    """A path as this process sees it; Java and the workers may be at home in other folders. A URL stays as it is."""
    return place if "://" in place else str(Path(place).absolute())


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URL, and the path in it."""
    if "://" in uri:
        files, path = pafs.FileSystem.from_uri(uri)
    else:
        files, path = pafs.LocalFileSystem(), uri
    return files, path.rstrip("/")
