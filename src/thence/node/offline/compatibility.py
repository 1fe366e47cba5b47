"""Whether a topology fits the stores that are there: found out without opening them, before anything is written over.

Each server decides that for itself when it starts (``node.reconfiguration``). Whoever starts many wants to know it first.

Rules:

* Nothing is changed, and servers may run meanwhile.
* What a store does not tell is no reason to refuse: its server will say what is wrong with it.
"""

from __future__ import annotations

from pathlib import Path

from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.core.wire.records import Changed
from thence.errors import StorageError
from thence.node.offline.inspection import read_entries
from thence.node.reconfiguration import check_version
from thence.storage import journal
from thence.storage.recovery import check_identity, list_folder, read_segment, read_snapshot


def check_stores(topology: Topology, data: Path) -> None:
    """Refuse a topology with which a server could not go on from its store, in the folder of its name in ``data``."""
    for name in topology.processes:
        if (data / name).is_dir():
            _check_store(topology, name, data / name)


def _check_store(topology: Topology, name: str, folder: Path) -> None:
    try:
        stored = _stored(folder, f"{topology.name}/{name}")
    except (OSError, StorageError):
        return
    if stored is not None:
        check_version(topology, stored, name)


def _stored(folder: Path, identity: str) -> Topology | None:
    """Return the topology that is in force in a store; None: it does not tell."""
    listing = list_folder(folder)
    text, upto, following = "", 0, ""
    for number, path in list(listing.snapshots.items())[-1:]:
        header, written = read_snapshot(path, number)
        check_identity(header, identity, path)
        text, upto = journal.decode_snapshot(written).topology, number
    for first, path in list(listing.segments.items())[:1]:
        check_identity(read_segment(path, first).header, identity, path)
    for number, entry in read_entries(folder, []):
        for record in journal.decode_entry(entry) if number > upto else ():
            if isinstance(record, journal.Opened):
                text = record.topology
            elif isinstance(record, Changed) and record.phase == "holding":
                following = record.text
            elif isinstance(record, Changed) and record.phase == "switched":
                text = following  # Nothing, if the snapshot was made while it held.
    return parse(text, f"the topology stored in {folder}", force=True) if text else None
