"""``thence explore``: every run of a small case."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from thence.cli import console
from thence.cli.options import OrderingOptions, check_ordering_options, ordering_options
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import ConfigError
from thence.runtime.files import read_topology
from thence.sim.options import Pattern
from thence.sim.scenario import from_actions
from thence.sim.search.explorer import CHECKED, Case, explore
from thence.sim.search.search import MAX_STEPS, Exhausted

MAX_PROCESSES = 6


def command(
    ordering: Annotated[str, typer.Option(help="Which ordering; see: thence orderings.")] = "fifo",
    topology: Annotated[Path | None, typer.Option(help="Explore the fabric of this TOML file instead of one domain.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Explore a fabric that would be refused, to see what breaks.")] = False,
    processes: Annotated[int, typer.Option(min=2, max=MAX_PROCESSES, help="How many processes: A, B, C, …")] = 3,
    messages: Annotated[int, typer.Option(min=1, help="How many messages at most.")] = 3,
    pattern: Annotated[str, typer.Option(help="Who may be written to: unicast, multicast or broadcast.")] = "multicast",
    require: Annotated[
        str | None, typer.Option(help=f"What to check ({', '.join(CHECKED)}); default: what the ordering promises.")
    ] = None,
    option: OrderingOptions = None,
    limit: Annotated[int, typer.Option(min=1, help="Give up after this many steps.")] = MAX_STEPS,
    out: Annotated[Path | None, typer.Option(help="Write the violating run to this scenario file.")] = None,
) -> None:
    """Try every interleaving of a small case and print the shortest bad one.

    The explorer decides itself who sends what to whom and what arrives when,
    in every way that makes a difference. That nothing is created, doubled or
    lost is always checked.

    Exits with 0 if no run breaks anything, 1 if one does, 2 if the search was
    given up, which proves nothing.

    Example: thence explore --ordering fifo --require causal
    """
    required = None if require is None else frozenset(word.strip() for word in require.split(",") if word.strip())
    if required is not None and not required <= set(CHECKED):
        raise ConfigError(f"--require {require}: the explorer checks {', '.join(CHECKED)}")
    if pattern not in get_args(Pattern):
        raise ConfigError(f"--pattern {pattern}: must be one of {', '.join(get_args(Pattern))}")
    if out and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no such folder")
    case = Case(_where(topology, force, ordering, processes, ordering_options(option)), messages, pattern, required)
    with console.progress("exploring (steps)", None) as advance:
        try:
            found = explore(case, limit=limit, progress=advance)
        except Exhausted as error:
            raise Exhausted(f"nothing is proven, --limit {limit} was too small: {error}") from None
    checked = ", ".join(sorted(case.topology.guarantees if required is None else required)) or "exactly once"
    what = str(topology or ordering)
    size = f"{console.count(len(case.topology.processes), 'process')}, up to {console.count(messages, 'message')}, {pattern}"
    if found.broken is None:
        console.say(f"{what} keeps {checked} in every run of {size}: {console.count(found.steps, 'step')} tried, no violation.")
        return
    text = from_actions(
        case, found.actions, f"{what} breaks {found.broken}: the shortest run, of {console.count(len(found.actions), 'action')}"
    )
    if out:
        out.write_text(text, encoding="utf-8")
        console.say(f"{what} breaks {found.broken} ({size}). The shortest run is in {out}.")
    else:
        console.say(text, end="")
    raise typer.Exit(1)


def _where(topology: Path | None, force: bool, ordering: str, processes: int, options: dict[str, Any]) -> Domain | Topology:
    """Return what is to be explored: a fabric from its file, or one domain."""
    if topology is not None:
        return read_topology(topology, force=force)
    check_ordering_options(ordering, options)
    return Domain("d", tuple("ABCDEF"[:processes]), ordering, options)
