"""``thence topology apply``: change a running fabric from its topology to the next one, while traffic flows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thence.cli import console
from thence.cli.options import Authority, Token
from thence.cli.servers.serve import tls_files
from thence.core.reconfig.concern import concerned_by, why_everybody
from thence.core.reconfig.diff import DiffLine, differences
from thence.core.reconfig.flush import Settlement
from thence.core.reconfig.protocol import check_lost, check_successor
from thence.core.topology.model import Topology
from thence.runtime import event_loop
from thence.runtime.files import read_topology
from thence.server.apply import Access, Applied, Reporter, TopologyChange, find_old, pauses

TIMEOUT_S = 60.0
MAX_SHOWN = 20
"""How many messages that were given up, or servers that hold, are listed; all are with ``--json``."""


def command(
    file: Annotated[Path, typer.Argument(metavar="NEW", help="The TOML file of the next version, with addresses.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would change.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Go back, if nobody has switched yet.")] = False,
    old: Annotated[
        Path | None,
        typer.Option("--from", metavar="OLD", help="The file of the version before; otherwise the servers are asked."),
    ] = None,
    lost: Annotated[
        list[str] | None,
        typer.Option("--lost", metavar="SERVERS", help="Servers that are gone for good, with their disks: NAME[,NAME]…"),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to try before all go back.")
    ] = TIMEOUT_S,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    tls_certificate: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Our certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")] = None,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Change a running fabric to the next version of its topology.

    NEW has the version that follows the one in force. Domains may split and
    merge, members move, servers come and go, links change: whatever turns
    one topology into another. Servers that come in are started before, with
    NEW; servers that leave are stopped afterwards.

    Only servers of domains and links that change hold: what their clients
    send is accepted and waits, until all that is on its way there has been
    delivered. The others go on. What concerns the whole fabric, as that
    servers leave, lets all hold; --plan says who does, and why.
    Nothing is lost, doubled or out of order.

    It may be killed and started again at any moment. If it is not, servers
    that only hold go back to normal by themselves after a while.

    A server that will never come back blocks every change, since all must
    answer. Declare it with --lost, and leave it out of NEW. The others then
    give each other what they have of its messages; what it alone had is
    lost. If it does come back, it is refused. A change in which it took
    part is left, or finished if somebody has switched; so is it with
    --abort, which takes the file with the server in it, too.

    Exits with 0 when the new version is in force everywhere, or the plan is
    shown; with 2 if that cannot be.

    Example: thence topology apply city-2.toml --plan
    """
    new = read_topology(file)
    shown = tls_files(tls_certificate, tls_key, authority) if tls_certificate or tls_key else None
    access = Access(shown, authority, token)
    before = read_topology(old) if old is not None else event_loop.run(find_old(new, access))
    check_successor(before, new)
    gone = tuple(sorted({name.strip() for names in lost or () for name in names.split(",") if name.strip()}))
    if not abort:
        check_lost(before, new, gone)
    found = differences(before, new)
    if plan:
        _show_plan(before, new, found, gone, json=json)
        return

    def told(what: str) -> None:
        console.err.print(console.plain(what))

    if abort:
        event_loop.run(_abort(before, new, access, told, gone, timeout_s))
        if json:
            console.say_object({"aborted": True, "version": before.version})
        else:
            console.say(f"{before.name} stays at version {before.version}")
        return
    applied = event_loop.run(_apply(before, new, access, told, gone, timeout_s))
    _show_applied(applied, found, json=json)


async def _apply(
    old: Topology, new: Topology, access: Access, told: Reporter, gone: tuple[str, ...], timeout_s: float
) -> Applied:
    change = TopologyChange(old, new, access, told, gone)
    told(_holding(old, new, gone))
    return await change.apply(timeout_s)


async def _abort(old: Topology, new: Topology, access: Access, told: Reporter, gone: tuple[str, ...], timeout_s: float) -> None:
    await TopologyChange(old, new, access, told, gone, back=True).abort(timeout_s)


def _described(old: Topology, new: Topology, found: list[DiffLine], gone: tuple[str, ...]) -> dict[str, Any]:
    return {
        "fabric": new.name,
        "from_version": old.version,
        "to_version": new.version,
        "from_fingerprint": old.fingerprint,
        "to_fingerprint": new.fingerprint,
        "changes": [difference._asdict() for difference in found],
        "holds": list(concerned_by(old, new, gone)),
        "all_hold_because": why_everybody(old, new, gone),
        "lost": list(gone),
    }


def _show_plan(old: Topology, new: Topology, found: list[DiffLine], gone: tuple[str, ...], *, json: bool) -> None:
    if json:
        console.say_object(_described(old, new, found, gone))
        return
    console.say_plainly(f"{new.name}: version {old.version} ({old.fingerprint}) to version {new.version} ({new.fingerprint})")
    for difference in found:
        console.say_plainly(f"  {difference.said}")
    if not found:
        console.say("  nothing changes but the version")
    joining = [name for name in new.processes if name not in old.homes]
    if joining:
        console.say_plainly(f"before: start {', '.join(joining)} with the new file")
    console.say_plainly(
        f"then: {_holding(old, new, gone)}: what clients send is accepted and waits until all that "
        "is on its way is delivered; then all switch, and what waited goes out"
    )
    if why := why_everybody(old, new, gone):
        console.say_plainly(f"all hold, since {why}")
    if gone:
        console.say_plainly(
            f"{_lost(gone)}: before the switch the others give each other what they have of "
            f"{'its' if len(gone) == 1 else 'their'} messages"
        )
    leaving = [name for name in old.processes if name not in new.homes and name not in gone]
    if leaving:
        console.say_plainly(f"afterwards: stop {', '.join(leaving)}, when their clients have read what waits for them")


def _holding(old: Topology, new: Topology, gone: tuple[str, ...]) -> str:
    """Say who holds."""
    names = concerned_by(old, new, gone)
    others = len(old.processes) - len(gone) - len(names)
    if not others:
        return f"all {console.count(len(names), 'server')} hold"
    named = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
    hold = "holds" if len(names) == 1 else "hold"
    who = f"{console.count(len(names), 'server')} {hold}, {named}" if names else "no server holds"
    return f"{who}, and {console.count(others, 'other')} {'goes' if others == 1 else 'go'} on"


def _show_applied(applied: Applied, found: list[DiffLine], *, json: bool) -> None:
    shortest, longest = pauses(applied)
    if json:
        described = _described(applied.old, applied.new, found, applied.lost)
        described |= {"seconds": round(applied.seconds, 3), "rounds": applied.rounds, "paused_ms": dict(applied.paused_ms)}
        if applied.settlement is not None:
            described["flush"] = _flushed(applied.settlement)
        console.say_object(described)
        return
    console.say_plainly(
        f"{applied.new.name} is at version {applied.new.version} ({applied.new.fingerprint}), after {applied.seconds:.2f} s and "
        f"{console.count(applied.rounds, 'round')}"
    )
    console.say_plainly(f"submissions waited for {shortest:.0f} to {longest:.0f} ms, by server")
    if applied.lost:
        _show_lost(applied)


def _lost(gone: tuple[str, ...]) -> str:
    return f"{', '.join(gone)} {'is' if len(gone) == 1 else 'are'} lost"


def _flushed(found: Settlement) -> dict[str, Any]:
    return {
        "handed_over": {name: len(owed) for name, owed in found.owed.items() if owed},
        "given_up": [str(name) for name in found.given_up],
        "last_known": dict(found.last_known),
        "dropped_frames": found.undeliverable,
        "short": [short._asdict() for short in found.short],
    }


def _show_lost(applied: Applied) -> None:
    found = applied.settlement
    if found is None:
        console.say_plainly(f"{_lost(applied.lost)}; what was handed over is in the logs of the servers")
        return
    given = sum(map(len, found.owed.values()))
    console.say_plainly(
        f"{_lost(applied.lost)}: {console.count(given, 'message')} handed over to servers that lacked them, "
        f"{console.count(found.undeliverable, 'frame')} dropped that had nowhere to go"
    )
    for name in applied.lost:
        console.say_plainly(f"  {name}: the last of its messages that anybody has is number {found.last_known.get(name, 0)}")
    for message in found.given_up[:MAX_SHOWN]:
        console.say_plainly(f"  given up: {message}, which waited for a message that nobody has")
    if len(found.given_up) > MAX_SHOWN:
        console.say_plainly(f"  and {len(found.given_up) - MAX_SHOWN} more")
    for short in found.short:
        console.say_plainly(
            f"  {short.member} lacks messages of {short.origin} up to number {short.number} of which nobody has a copy any more"
        )
