"""``thence store``: look into the store of a server, check it, print what is in it, copy it, and make a store of a copy.

Rules: a store that is there is not changed, and a server may run meanwhile. Entries and identities come from elsewhere: what
cannot be printed is shown escaped.
"""

from __future__ import annotations

import base64
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from thence.cli import console
from thence.cli.manual import Subcommands
from thence.node.offline import backup as copies
from thence.node.offline.inspection import InspectionReport, examine, read_entries, read_spilled
from thence.storage.spill import NOUNS, WaitingFrame

command = Subcommands(
    "Look into the store of a server: what it holds, whether it is whole, and its entries; copy it, and make a store of a "
    "copy. A store that is there is never changed, and the server may run meanwhile."
)

EXIT_DAMAGED: Final = 1

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a store.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@command.add("inspect")
def inspect(folder: Folder, json: Json = False) -> None:
    """Say whose store it is, who uses it, and which segments, snapshot and messages it holds.

    Exits with 2 if the folder holds no store.

    Example: thence store inspect data/s1
    """
    report = examine(folder)
    if json:
        _print_json(report)
        return
    used = f"in use by process {report.in_use_by}" if report.in_use_by else "not in use"
    console.say_plainly(f"{_whose(report)}: format {report.format}, {used}")
    if report.snapshot:
        size = console.count(report.snapshot.bytes, "byte")
        console.say_plainly(f"snapshot of entries up to {report.snapshot.upto:,}: {size}, {report.snapshot.file}")
    else:
        console.say("no snapshot")
    rows = [(row.file, row.first, row.last, row.bytes) for row in report.segments]
    console.out.print(console.table(("segment", "first", "last", "bytes"), rows))
    if report.spilled:
        spilled = [(row.file, f"{row.kind}s", row.owner, row.first, row.last, row.bytes) for row in report.spilled]
        console.out.print(console.table(("in files", "what", "for", "first", "last", "bytes"), spilled))
    if report.damage:
        console.say(f"{console.count(len(report.damage), 'place')} damaged: thence store verify names them")


@command.add("verify")
def verify(folder: Folder, json: Json = False) -> None:
    """Read everything, and name each place that is damaged.

    A commit that was never complete is no damage: nobody was told that it
    happened, and the next start cuts it off.

    Exits with 0 if the store is whole, 1 if something that was acknowledged
    is damaged or missing, 2 if the folder holds no store.

    Example: thence store verify data/s1
    """
    report = examine(folder)
    if json:
        _print_json(report)
    else:
        verdict = "damaged" if report.damage else "whole"
        entries = report.last - (report.snapshot.upto if report.snapshot else 0)
        numbers = {kind: sum(row.last - row.first + 1 for row in report.spilled if row.kind == kind) for kind in NOUNS.values()}
        more = "".join(f", {console.count(count, kind)} in files" for kind, count in numbers.items() if count)
        console.say_plainly(f"{verdict}: {_whose(report)}, {entries:,} {'entry' if entries == 1 else 'entries'}{more}")
        for line in report.damage:
            console.say_plainly(f"damage: {line}")
        for line in report.notes:
            console.say_plainly(f"note: {line}")
    if report.damage:
        raise typer.Exit(EXIT_DAMAGED)


@command.add("export")
def export(folder: Folder) -> None:
    """Print every entry as a line of JSON: its number, and what it says.

    Behind them come the messages that are kept in files, in the order in
    which each client will get them, and the frames for each peer, as
    far as the last snapshot has them.

    An entry that is msgpack is shown decoded. Bytes are shown as text where
    they are UTF-8, and as {"base64": "…"} where they are not.

    Exits with 1 if something could not be read; that is named on standard
    error, and everything else is printed.

    Example: thence store export data/s1 | head
    """
    trouble: list[str] = []
    for sequence, entry in read_entries(folder, trouble):
        console.say_object({"sequence": sequence, "entry": _shown_entry(entry)})
    for owner, number, spilled in read_spilled(folder, trouble):
        whose, what = ("neighbour", "frame") if isinstance(spilled, WaitingFrame) else ("client", "bundle")
        console.say_object({whose: owner, "position": number, what: _shown_entry(msgspec.msgpack.encode(spilled))})
    for line in trouble:
        console.err.print(console.plain(f"damage: {line}"), soft_wrap=True)
    if trouble:
        raise typer.Exit(EXIT_DAMAGED)


@command.add("backup")
def backup(
    folder: Folder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Where the copy goes; must not be there yet.")],
) -> None:
    """Copy a store, also while a server uses it.

    The copy holds at least all that was durable when copying began. It gets
    its name when it is whole and checked. What an old copy is worth, and
    what not, is said in docs/how-to/operations.md: read it before you need it.

    Exits with 0 when the copy is made, with 2 if it cannot be: the store is
    damaged, TARGET is there, or there is no room.

    Example: thence store backup data/s1 /backup/s1-monday
    """
    _say_copied(copies.backup(folder, target), target)


@command.add("restore")
def restore(
    source: Annotated[Path, typer.Argument(metavar="COPY", help="What thence store backup made.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the store is to be; must be empty, or not there.")],
) -> None:
    """Make a store of a copy.

    A server on it has forgotten whatever happened after the copy was made.
    Peers with which it exchanged anything since then refuse it, and
    say so; programs that were connected to it have to be started again.

    Exits with 0 when the store is there, with 2 if it cannot be: the copy is
    damaged, DIR is not empty, or there is no room.

    Example: thence store restore /backup/s1-monday data/s1
    """
    _say_copied(copies.restore(source, folder), folder)


def _say_copied(copied: copies.Copied, where: Path) -> None:
    size = console.count(copied.bytes, "byte")
    console.say_plainly(f"{copied.identity}: everything up to entry {copied.last:,}, {size}, is in {where}")


def _whose(report: InspectionReport) -> str:
    return "(not known whose)" if report.identity is None else report.identity


def _print_json(report: InspectionReport) -> None:
    console.say_object({"verdict": "damaged" if report.damage else "whole", **asdict(report)})


def _shown_entry(entry: bytes) -> Any:
    try:
        return _shown(msgspec.msgpack.decode(entry))
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return _shown(entry)  # no msgpack, or such as JSON has no like of


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_shown(key)): _shown(item) for key, item in value.items()}
    if isinstance(value, float) and not isfinite(value):
        return repr(value)
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
