"""``thence topology``: check, draw and make fabrics, and say which way a message takes in one."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from thence.cli import console
from thence.cli.manual import Subcommands
from thence.cli.servers import drawing, picture, topology_apply
from thence.core.ordering import ordering_named
from thence.core.topology.ack_options import AT_ONCE, AckOptions
from thence.core.topology.durations import format_duration
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.topology.toml import write
from thence.errors import ConfigError, UsageError
from thence.runtime.files import read_topology
from thence.studies.parts.figures import SHAPES

command = Subcommands(
    "Check, draw, make and change fabrics: domains, the relays that are in several of them, and links between domains that "
    "share nobody. A fabric is a TOML file; up and serve run it, simulate and explore take it with --topology."
)

command.add("apply")(topology_apply.command)

File = Annotated[Path, typer.Argument(help="The TOML file of a fabric.")]
Force = Annotated[bool, typer.Option("--force", help="Take also a fabric that would be refused for a cycle.")]
ORDER = ("fifo", "causal", "total")


@command.add("check")
def check(file: File) -> None:
    """Say what a fabric is made of and what it can promise, or what is wrong with it and where.

    Exits with 2, and one line that names file, line and the way out, if it
    is no fabric: a name that is not there, a member that cannot be reached,
    a relay that is none, a cycle, or a promise that cannot be kept.

    Example: thence topology check city.toml
    """
    topology = read_topology(file)
    kept = ", ".join(word for word in ORDER if word in topology.guarantees) or "nothing but exactly once"
    parts = [
        console.count(len(topology.processes), "process"),
        console.count(len(topology.domains), "domain"),
        console.count(len(topology.relays), "relay"),
        console.count(len(topology.links), "link"),
    ]
    console.say(f"{topology.name}: {', '.join(parts)}")
    console.say(f"promises {topology.promise}; keeps {kept}")
    if topology.stability:
        console.say("a message is kept by its origin until every recipient has it")
    console.out.print(console.table(("domain", "ordering", "members", "relays", "note"), _domain_rows(topology)))
    if topology.links:
        rows = [
            (
                link.name,
                " and ".join(link.between),
                link.mode,
                len(link.relays),
                "-" if link.only_from is None else len(link.only_from),
            )
            for link in topology.links.values()
        ]
        console.out.print(console.table(("link", "between", "mode", "pairs", "only from"), rows))
    if topology.replicas:
        replicas = [
            (" ".join(group), " and ".join(topology.homes[group[0]]), _takeover(topology, group)) for group in topology.replicas
        ]
        console.out.print(console.table(("replicas", "between", "when one dies"), replicas))


def _takeover(topology: Topology, group: tuple[str, ...]) -> str:
    """Return what happens when one of these replicas dies."""
    if topology.takes_over_at_once(group):
        return "the next takes over at once"
    return "the next takes over; what hangs on its last messages may wait for it (see docs/concepts/takeover.md)"


def _domain_rows(topology: Topology) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for domain in topology.domains.values():
        ordering = ordering_named(domain.ordering).traits.name
        options = ", ".join(f"{key}={value}" for key, value in domain.options.items())
        relays = [name for name in domain.members if name in topology.relays]
        inside = topology.inner.get(domain.name)
        notes = [f"inside {inside}: carries no traffic"] if inside else []
        if domain.acks != AT_ONCE:
            notes.append(f"acks: {_told(domain.acks)}")
        if domain.delivery == "safe":
            notes.append("delivers what all have")
        if domain.delivery == "notify":
            notes.append("delivers at once, tells when all have it")
        if domain.forward_early is not None:
            notes.append(f"bodies from {domain.forward_early} bytes on go ahead")
        if domain.pairs:
            turns = "by sender" if domain.by_sender else "in turn"
            notes.append(f"crosses by {console.count(len(domain.pairs), 'pair')} {turns}")
        if domain.only_from is not None:
            notes.append(f"only from {' '.join(domain.only_from)}")
        note = "; ".join(notes) or "-"
        shown = " ".join(relays[: drawing.MAX_NAMED_MEMBERS]) + (" …" if len(relays) > drawing.MAX_NAMED_MEMBERS else "")
        rows.append((domain.name, f"{ordering} {options}".strip(), len(domain.members), shown or "-", note))
    return rows


def _told(acks: AckOptions) -> str:
    """Return how a domain acks, in a few words."""
    nearest = ", nearest" if acks.retransmission == "nearest" else ""
    after = f", after {acks.after_messages} or {format_duration(acks.after_ns)}" if acks.after_ns else ""
    return f"{acks.scheme}{nearest}{after}"


@command.add("show")
def show(
    file: File,
    out: Annotated[
        str | None, typer.Option(help="Write a picture to this file, which ends in .svg; - is standard output.")
    ] = None,
    force: Force = False,
) -> None:
    """Draw a fabric: as text, or as an SVG picture with --out.

    In the text, a relay stands between the two domains that share it, and a
    link is a double line with the pairs of relays at its ends.

    Exits with 0, or with 2 if the file holds no fabric.

    Example: thence topology show city.toml --out city.svg
    """
    if out is not None and out != "-" and not out.endswith(".svg"):
        raise ConfigError(f"--out {out}: must end in .svg, or be - for standard output")
    topology = read_topology(file, force=force)
    if out is None:
        for line in drawing.as_text(topology):
            console.say(line)
    else:
        _put(picture.as_svg(topology), None if out == "-" else Path(out))


@command.add("route")
def route(
    file: File,
    origin: Annotated[str, typer.Argument(metavar="FROM", help="The process that sends.")],
    targets: Annotated[list[str], typer.Argument(metavar="TO", help="One process or several that the message is for.")],
    force: Force = False,
) -> None:
    """Say which way a message takes: process, domain, process, and so on.

    For several recipients the ways come first, then what each process does
    with the one message: in which domain it sends it on, and to whom.

    Exits with 0, or with 2 if there is no such process or fabric.

    Example: thence topology route city.toml S1 S8
    """
    topology = read_topology(file, force=force)
    for name in (origin, *targets):
        if name not in topology.homes:
            near = get_close_matches(name, topology.processes, n=1)
            raise UsageError(f"{file}: there is no process {name!r}{f'; did you mean {near[0]!r}?' if near else ''}")
    routes = Routes(topology)
    for target in targets:
        way = routes.path(origin, target)
        console.say(f"{' - '.join(way)}   ({console.count(len(way) // 2, 'hop')})")
    if len(targets) > 1:
        rows = _steps(routes, origin, tuple(dict.fromkeys(targets)))
        visited = {place for _, place, _ in rows if place in topology.domains}
        console.out.print(console.table(("process", "sends in", "to"), rows))
        console.say(f"visits {len(visited)} of {console.count(len(topology.domains) - len(topology.inner), 'domain')}")


def _steps(routes: Routes, origin: str, to: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Follow one message: who puts it into which domain or link, and for whom there."""
    links = routes.topology.links
    rows: list[tuple[str, str, str]] = []
    todo: list[tuple[str, str | None]] = [(origin, None)]
    for at, by in todo:
        plan = routes.plan(at, origin, to, by)
        for domain, members in plan.into.items():
            rows.append((at, domain, " ".join(members or ())))
            todo += [(member, domain) for member in members or ()]
        for name in plan.across:
            link = links[name]
            here = link.between[0] if at in link.side(link.between[0]) else link.between[1]
            side = link.between.index(here)
            far = next(pair[1 - side] for pair in link.relays if pair[side] == at)
            end = link.side(link.far(here))[0] if link.mode == "causal" else far
            rows.append((at, name, end))
            todo.append((end, name))
    return rows


@command.add("make")
def make(
    shape: Annotated[str | None, typer.Argument(help="The name of a shape; without one, all are listed.")] = None,
    processes: Annotated[int | None, typer.Option(help="How many processes.")] = None,
    domains: Annotated[int | None, typer.Option(help="How many domains.")] = None,
    size: Annotated[int | None, typer.Option(help="How many processes to a domain.")] = None,
    levels: Annotated[int | None, typer.Option(help="How many levels.")] = None,
    branching: Annotated[
        list[int] | None, typer.Option(help="How many below each; once, or for each level from the top.")
    ] = None,
    pairs: Annotated[int | None, typer.Option(help="How many pairs of relays to a link.")] = None,
    joined: Annotated[str | None, typer.Option(help="How links join domains: star, chain or tree.")] = None,
    mode: Annotated[str | None, typer.Option(help="What links keep: causal or fifo.")] = None,
    case: Annotated[str | None, typer.Option(help="Which part of a figure: a, b, …")] = None,
    ordering: Annotated[
        list[str] | None, typer.Option(help="The ordering; several: for each level from the leaves up, or for domains in turn.")
    ] = None,
    standbys: Annotated[int | None, typer.Option(help="How many succeed each causal server.")] = None,
    name: Annotated[str | None, typer.Option(help="What the fabric is called.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file, not to standard output.")] = None,
) -> None:
    """Make the file of a fabric that has one of the usual shapes, or is a figure of one of the papers.

    Without a shape, lists them all with the options that each takes.

    Exits with 0, or with 2 if there is no such fabric.

    Example: thence topology make bus --domains 10 --size 10 --out bus.toml
    """
    if shape is None:
        rows = [(key, " ".join(f"--{word}" for word in _parameters(key)), known.about) for key, known in SHAPES.items()]
        console.out.print(console.table(("shape", "options", "what it is"), rows))
        return
    if shape not in SHAPES:
        near = get_close_matches(shape, SHAPES, n=1)
        raise ConfigError(
            f"there is no shape {shape!r}; {f'did you mean {near[0]!r}?' if near else 'thence topology make lists them'}"
        )
    given = {key: value for key, value in locals().items() if key in _options() and value is not None}
    for key in given:
        if key not in _parameters(shape):
            takes = ", ".join(f"--{word}" for word in _parameters(shape))
            raise ConfigError(f"--{key}: {shape} takes {takes}")
    for key in ("branching", "ordering"):
        if len(given.get(key, ())) == 1:
            given[key] = given[key][0]
    topology = SHAPES[shape].make(**given)
    topology.name = topology.name if name is None else name
    _put(write(topology), out)


def _parameters(shape: str) -> list[str]:
    return list(inspect.signature(SHAPES[shape].make).parameters)


def _options() -> set[str]:
    return {word for shape in SHAPES for word in _parameters(shape)}


def _put(text: str, out: Path | None) -> None:
    if out is None:
        console.say(text, end="")
        return
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no such folder")
    out.write_text(text, encoding="utf-8")
    console.err.print(f"Written: {out}")
