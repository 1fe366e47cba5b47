"""Fabrics by their shape: so many domains of such a size, joined in the usual ways.

Tests, studies and ``thence topology make`` need the same few arrangements at many sizes. The drawings of the papers are
in ``figures``.

Rules:

* A process is called after its domain: ``p2-3`` is the third of the second domain, ``p2-1-3`` one level further down.
  Where a domain has one relay upwards, it is its first process.
* ``ordering`` is one name for all domains, or several: for a shape with levels from the leaves up, the last one for all
  levels above; for the others, for its domains in turn.
* A shape promises the most that its orderings and links keep together.
* Sizes that make no fabric are refused by the name of the parameter.

Sources: domains §6.2 and Fig. 10 (bus, daisy and tree), clusters §III-B (hierarchy), daisy §3.1 and §3.2,
interconnect §4 and §6 (linked).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from thence.core.ordering import ordering_named
from thence.core.topology.ack_options import MAX_DISTRIBUTED, AckOptions
from thence.core.topology.checks import MAX_DOMAINS, MAX_PROCESSES
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Promise, Topology
from thence.errors import ConfigError
from thence.words import counted

Orderings = str | Sequence[str]
Joined = Literal["star", "chain", "tree"]
Mode = Literal["causal", "fifo"]


def fabric(name: str, domains: Iterable[Domain], links: Iterable[Link] = ()) -> Topology:
    """Return a fabric that promises the most that its domains and links keep together."""
    domains, links = list(domains), list(links)
    kept = frozenset({"causal", "fifo"}).intersection(*(ordering_named(domain.ordering).traits.guarantees for domain in domains))
    if any(link.mode != "causal" for link in links):
        kept -= {"causal"}
    promise: Promise = "causal" if "causal" in kept else "fifo" if "fifo" in kept else "nothing"
    return Topology(name, domains, links, promise=promise)


def flat(processes: int = 8, ordering: Orderings = "matrix") -> Topology:
    """Return one domain with everybody in it."""
    _at_least("processes", processes, 1)
    _at_most(processes, 1)
    members = tuple(f"p{number}" for number in range(1, processes + 1))
    return Topology.flat(Domain("all", members, in_turn(ordering, 0)))


def bus(domains: int = 4, size: int = 4, ordering: Orderings = "matrix") -> Topology:
    """Domains of SIZE, the first process of each also in a domain of relays: the bus."""
    return _named("bus", hierarchy(2, domains, size, ordering), "bus")


def daisy(domains: int = 4, size: int = 4, ordering: Orderings = "vector", standbys: int = 1) -> Topology:
    """Local groups of SIZE, the first process of each also in the group of servers; STANDBYS more succeed it at once."""
    plain = _named("daisy", hierarchy(2, domains, size, ordering), "servers")
    _at_least("standbys", standbys, 0)
    if not standbys:
        return plain
    if standbys > size - 2:
        raise ConfigError(
            f"standbys {standbys}: of a group of {size} its server and somebody else are none; with --standbys 0 there are none"
        )
    *groups, servers = sorted(plain.domains.values(), key=lambda domain: domain.name == "servers")
    replicas = [group.members[: 1 + standbys] for group in groups]
    servers = servers._replace(members=tuple(name for these in replicas for name in these))
    passing = [
        domain._replace(acks=AckOptions.passing_on())
        if domain.ordering == "vector" and len(domain.members) <= MAX_DISTRIBUTED
        else domain
        for domain in (*groups, servers)
    ]
    local = {name: group.name for group, these in zip(groups, replicas, strict=True) for name in these}
    return Topology("daisy", passing, replicas=replicas, local=local, promise=plain.promise)


def hierarchy(levels: int = 3, branching: int | Sequence[int] = 2, size: int = 3, ordering: Orderings = "matrix") -> Topology:
    """Groups of SIZE at the bottom; above them, groups of BRANCHING of which each was the first in its group below.

    So a process may be in a group of every level, as R is in Fig. 2 of clusters. ``branching`` may also be given for each level,
    the top one first.
    """
    _at_least("levels", levels, 1)
    _at_least("size", size, 1)
    widths = [branching] * (levels - 1) if isinstance(branching, int) else list(branching)
    if len(widths) != levels - 1:
        raise ConfigError(
            f"branching: {counted(len(widths), 'number')} for {levels} levels; there must be one for each level but the lowest"
        )
    for width in widths:
        _at_least("branching", width, 2)
    count = size
    for width in widths:
        count *= width
        _at_most(count, count // size)
    groups: list[Domain] = []
    _grow(groups, "", widths, size, ordering)
    return fabric("hierarchy", groups)


def _grow(groups: list[Domain], path: str, widths: Sequence[int], size: int, ordering: Orderings) -> str:
    """Add the group at ``path`` and all below it; return its first process, which speaks for it above."""
    at = len(groups)
    name = f"g{path}" if path else "top"
    if widths:
        groups.append(Domain(name, (), ""))
        below = [_grow(groups, _below(path, number), widths[1:], size, ordering) for number in range(1, widths[0] + 1)]
    else:
        groups.append(Domain(name, (), ""))
        below = [f"p{_below(path, number)}" for number in range(1, size + 1)]
    groups[at] = Domain(name, tuple(below), _by_level(ordering, len(widths)))
    return below[0]


def tree(levels: int = 3, branching: int = 2, size: int = 4, ordering: Orderings = "matrix") -> Topology:
    """Domains of SIZE at every level, each with BRANCHING more below it that share one process with it.

    As in domains §6.2, where ``levels`` is d + 1, ``branching`` k and ``size`` s.
    """
    _at_least("levels", levels, 1)
    _at_least("branching", branching, 1)
    _at_least("size", size, 2)
    if levels > 1 and branching > size - 1:
        raise ConfigError(f"branching {branching}: at most {size - 1} domains can hang below one of {size}, one at each process")
    domains: list[Domain] = []
    layer: list[tuple[str, str]] = [("", "p1")]
    for level in range(levels):
        _at_most(len(layer) * (size - 1), len(domains) + len(layer))
        deeper: list[tuple[str, str]] = []
        for path, first in layer:
            members = (first, *(f"p{_below(path, number)}" for number in range(2, size + 1)))
            domains.append(Domain(f"d{path}" if path else "root", members, _by_level(ordering, levels - 1 - level)))
            deeper += (
                [(_below(path, number), members[number]) for number in range(1, branching + 1)] if level + 1 < levels else []
            )
        layer = deeper
    return fabric("tree", domains)


def chain(domains: int = 4, size: int = 3, ordering: Orderings = "matrix") -> Topology:
    """Domains of SIZE in a row; the last process of each is the first of the next."""
    _at_least("domains", domains, 1)
    _at_least("size", size, 2)
    _at_most(domains * size, domains)
    made = []
    first = "p1-1"
    for number in range(1, domains + 1):
        members = (first, *(f"p{number}-{place}" for place in range(2, size + 1)))
        made.append(Domain(f"d{number}", members, in_turn(ordering, number - 1)))
        first = members[-1]
    return fabric("chain", made)


def star(domains: int = 4, size: int = 4, ordering: Orderings = "matrix") -> Topology:
    """Domains of SIZE that all share one process: the hub."""
    _at_least("domains", domains, 1)
    _at_least("size", size, 2)
    _at_most(domains * size, domains)
    return fabric(
        "star",
        [
            Domain(f"d{at + 1}", ("hub", *(f"p{at + 1}-{place}" for place in range(2, size + 1))), in_turn(ordering, at))
            for at in range(domains)
        ],
    )


def linked(
    domains: int = 4,
    size: int = 4,
    pairs: int = 2,
    joined: Joined = "star",
    mode: Mode = "causal",
    ordering: Orderings = "vector",
) -> Topology:
    """Domains of SIZE that share nobody, joined by links of PAIRS of relays each: as a star, a chain or a tree."""
    _at_least("domains", domains, 1)
    _at_least("size", size, 1)
    _at_least("pairs", pairs, 1)
    _at_most(domains * size, domains)
    if pairs > size:
        raise ConfigError(f"pairs {pairs}: a domain of {size} has no more than {size} relays")
    for what, value, known in (("joined", joined, get_args(Joined)), ("mode", mode, get_args(Mode))):
        if value not in known:
            raise ConfigError(f"{what} {value}: must be one of {', '.join(known)}")
    above = [1 if joined == "star" else number - 1 if joined == "chain" else number // 2 for number in range(domains + 1)]
    names = [tuple(f"p{number}-{place}" for place in range(1, size + 1)) for number in range(1, domains + 1)]
    made = [Domain(f"d{at + 1}", members, in_turn(ordering, at)) for at, members in enumerate(names)]
    links = [
        Link(
            f"d{up}-d{number}", (f"d{up}", f"d{number}"), tuple(zip(names[up - 1], names[number - 1], strict=True))[:pairs], mode
        )
        for number in range(2, domains + 1)
        for up in [above[number]]
    ]
    return fabric("linked", made, links)


# Small helpers.


def _below(path: str, number: int) -> str:
    return f"{path}-{number}" if path else str(number)


def _by_level(ordering: Orderings, level: int) -> str:
    """Return the ordering of a level, counted from the leaves."""
    if isinstance(ordering, str):
        return ordering
    return ordering[min(level, len(ordering) - 1)]


def in_turn(ordering: Orderings, at: int) -> str:
    """Return the ordering of the domain at this place, counted from 0."""
    return ordering if isinstance(ordering, str) else ordering[at % len(ordering)]


def _named(name: str, topology: Topology, top: str) -> Topology:
    """Return the same fabric under another name, and another name for its top."""
    domains = [domain._replace(name=top) if domain.name == "top" else domain for domain in topology.domains.values()]
    return Topology(name, domains, promise=topology.promise)


def _at_least(what: str, number: int, least: int) -> None:
    if number < least:
        raise ConfigError(f"{what} {number}: must be at least {least}")


def _at_most(processes: int, domains: int) -> None:
    if processes > MAX_PROCESSES or domains > MAX_DOMAINS:
        raise ConfigError(
            f"{processes:,} processes in {domains:,} domains; MAX_PROCESSES is {MAX_PROCESSES:,}, MAX_DOMAINS {MAX_DOMAINS:,}"
        )
