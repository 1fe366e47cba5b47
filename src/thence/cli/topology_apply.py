"""``thence topology apply``: change a running fabric from its topology to the next one, while traffic flows."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import Annotated, Any

import typer

from thence.cli import console
from thence.cli.options import Token
from thence.cli.serve import tls_files
from thence.core.differences import Difference, differences
from thence.core.topology import Topology
from thence.core.views import check_successor
from thence.runtime import loops
from thence.runtime.applying import Access, Applied, Applying, find_old, pauses
from thence.runtime.topology_file import read_topology

TIMEOUT_S = 60.0


def command(
    file: Annotated[Path, typer.Argument(metavar="NEW", help="The TOML file of the next version, with addresses.")],
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would change.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Go back, if nobody has switched yet.")] = False,
    old: Annotated[
        Path | None,
        typer.Option("--from", metavar="OLD", help="The file of the version before; otherwise the servers are asked."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to try before all go back.")
    ] = TIMEOUT_S,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    tls_certificate: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Our certificate.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of the certificate.")] = None,
    tls_authority: Annotated[
        Path | None, typer.Option("--tls-ca", metavar="FILE", help="Who signs the certificates of all servers.")
    ] = None,
    token: Token = None,
) -> None:
    """Change a running fabric to the next version of its topology.

    NEW has the version that follows the one in force. Domains may split and
    merge, members move, servers come and go, links change: whatever turns
    one topology into another. Servers that come in are started before, with
    NEW; servers that leave are stopped afterwards.

    What clients send meanwhile is accepted and waits, until all that is on
    its way has been delivered. Nothing is lost, doubled or out of order.

    It may be killed and started again at any moment. If it is not, servers
    that only hold go back to normal by themselves after a while.

    Example: thence topology apply city-2.toml --plan
    """
    new = read_topology(file)
    shown = tls_files(tls_certificate, tls_key, tls_authority) if tls_certificate or tls_key else None
    access = Access(shown, tls_authority, token)
    before = read_topology(old) if old is not None else loops.run(find_old(new, access))
    check_successor(before, new)
    found = differences(before, new)
    if plan:
        _show_plan(before, new, found, json=json)
        return

    def told(what: str) -> None:
        console.err.print(what)

    if abort:
        loops.run(_abort(before, new, access, timeout_s, told))
        if json:
            typer.echo(json_.dumps({"aborted": True, "version": before.version}))
        else:
            console.say(f"{before.name} stays at version {before.version}")
        return
    applied = loops.run(_apply(before, new, access, timeout_s, told))
    _show_applied(applied, found, json=json)


async def _apply(old: Topology, new: Topology, access: Access, timeout_s: float, told: Any) -> Applied:
    return await Applying(old, new, access, told).apply(timeout_s)


async def _abort(old: Topology, new: Topology, access: Access, timeout_s: float, told: Any) -> None:
    await Applying(old, new, access, told).abort(timeout_s)


def _described(old: Topology, new: Topology, found: list[Difference]) -> dict[str, Any]:
    return {
        "fabric": new.name,
        "from_version": old.version,
        "to_version": new.version,
        "from_fingerprint": old.fingerprint,
        "to_fingerprint": new.fingerprint,
        "changes": [difference._asdict() for difference in found],
        "holds": list(old.processes),
    }


def _show_plan(old: Topology, new: Topology, found: list[Difference], *, json: bool) -> None:
    if json:
        typer.echo(json_.dumps(_described(old, new, found)))
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
        f"then: all {console.count(len(old.processes), 'server')} hold: what clients send is accepted and waits until all that "
        "is on its way is delivered; then all switch, and what waited goes out"
    )
    leaving = [name for name in old.processes if name not in new.homes]
    if leaving:
        console.say_plainly(f"afterwards: stop {', '.join(leaving)}, when their clients have read what waits for them")


def _show_applied(applied: Applied, found: list[Difference], *, json: bool) -> None:
    shortest, longest = pauses(applied)
    if json:
        described = _described(applied.old, applied.new, found)
        described |= {"seconds": round(applied.seconds, 3), "rounds": applied.rounds, "paused_ms": dict(applied.paused_ms)}
        typer.echo(json_.dumps(described))
        return
    console.say_plainly(
        f"{applied.new.name} is at version {applied.new.version} ({applied.new.fingerprint}), after {applied.seconds:.2f} s and "
        f"{console.count(applied.rounds, 'round')}"
    )
    console.say_plainly(f"submissions waited for {shortest:.0f} to {longest:.0f} ms, by server")
