"""Reading the file of a fabric, for every command that takes one."""

from __future__ import annotations

from pathlib import Path

from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import ConfigError


def read_topology(path: Path, *, force: bool = False) -> Topology:
    """Return the fabric that a TOML file describes; what is wrong is named with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    return parse(text, str(path), force=force)
