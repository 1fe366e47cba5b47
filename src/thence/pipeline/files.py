"""Files of a trace wherever they are: the file system of a path or URL, and the files that a path, glob or URL names.

Rules:

* A folder is read with all that is below it; names that begin with ``.`` or ``_`` are skipped. A name may be a glob or a URL.
* A star stops at the next slash, as Spark takes it. A glob names files, or folders that hold them.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from thence.errors import TraceError

ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}
"""What Spark calls object stores, and Arrow calls otherwise."""

GLOB: Final = re.compile(r"[*?\[]")


URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""How a URL begins: Spark also knows some with one slash."""


def is_url(place: str) -> bool:
    """Return whether a place is a URL."""
    return URL.match(place) is not None


def absolute(place: str) -> str:
    """Return a path as this process sees it: Java and the workers may be at home in other folders. A URL stays as it is."""
    return place if is_url(place) else str(Path(place).absolute())


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a path or URL, and the path in it."""
    if is_url(uri):
        scheme, _, rest = uri.partition("://")
        files, path = pafs.FileSystem.from_uri(f"{ARROW_SCHEMES.get(scheme, scheme)}://{rest}")
    else:
        files, path = pafs.LocalFileSystem(), uri
    return files, path.rstrip("/")


def reachable(uri: str) -> bool:
    """Return whether Arrow knows how to read there. If not, Spark may."""
    try:
        filesystem(uri)
    except (pa.ArrowException, OSError):
        return False
    return True


class FileListing(NamedTuple):
    """The files that a source names, as paths of one file system."""

    files: pafs.FileSystem
    prefix: str
    """What makes URLs of the paths."""
    root: str
    """The folder that the source names, or below which all lies that its glob names."""
    paths: list[str]


def listing(source: str, ending: str) -> FileListing:
    """Return the file at a source, or the files below it that have an ending, sorted."""
    source = absolute(source)
    files, path = filesystem(source)
    glob = GLOB.search(path)
    root = path[: glob.start()].rpartition("/")[0] if glob else path
    kind = None if glob else files.get_file_info(path).type
    if kind == pafs.FileType.NotFound:
        raise TraceError(f"{path}: no such file or folder")
    found = [path] if kind == pafs.FileType.File else _below(files, root, ending, path if glob else "")
    prefix = ""
    if "://" in source:
        prefix = source[: source.index(path)] if path and path in source else source.partition("://")[0] + "://"
    return FileListing(files, prefix, root, found)


def is_folder_of_columns(place: str) -> bool:
    """Return whether names of folders below a place, or in it, give columns."""
    there = listing(place, "")
    return any("=" in path.removeprefix(there.root) for path in there.paths)


def replace_files(folder: str, contents: Mapping[str, bytes]) -> list[str]:
    """Write files into a folder of ours, in place of all that are there; return where they are."""
    files, root = filesystem(folder)
    if files.get_file_info(root).type != pafs.FileType.NotFound:
        files.delete_dir(root)
    for name, content in contents.items():
        files.create_dir(root, recursive=True)
        with files.open_output_stream(f"{root}/{name}") as stream:
            stream.write(content)
    return [f"{root}/{name}" for name in contents]


def _below(files: pafs.FileSystem, root: str, ending: str, glob: str) -> list[str]:
    listed = files.get_file_info(pafs.FileSelector(root, recursive=True))
    wanted = [info.path for info in listed if info.type == pafs.FileType.File and info.path.endswith(ending)]
    visible = [name for name in wanted if not any(part[0] in "._" for part in PurePosixPath(name).relative_to(root).parts)]
    return sorted(name for name in visible if not glob or _matches(name, glob))


def _matches(name: str, glob: str) -> bool:
    parts, wanted = name.split("/"), glob.rstrip("/").split("/")
    return len(parts) >= len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))
