"""Any number of servers divided into domains: what ``studies.parts.shapes`` makes for some numbers only.

A study compares shapes at the same numbers of servers, and these are seldom squares, cubes and full trees at once. So here
the servers are dealt out as evenly as possible, and a tree is filled level by level.

Rules:

* A server is called s0, s1, …; every shape of n servers has exactly n of them.
* Where a domain has a relay upwards, it is its first server, as in ``studies.parts.shapes``.
* Domains keep order by one ordering with the same options.

Sources: domains §6.2 and Fig. 10 (bus, tree), daisy §3.2 (levels), clusters §III-B.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import ConfigError


def names_of(servers: int) -> list[str]:
    """Return the names of so many servers."""
    return [f"s{number}" for number in range(servers)]


def shares(names: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Deal out names to ``count`` groups of peers; sizes differ by one at most, the larger ones first."""
    size, more = divmod(len(names), count)
    ends = [number * size + min(number, more) for number in range(count + 1)]
    return [tuple(names[first:end]) for first, end in pairwise(ends)]


def levels(
    name: str, groups: Sequence[Sequence[str]], widths: Sequence[int], ordering: str = "matrix", **options: Any
) -> Topology:
    """Return groups, and above them groups of their first servers: as many on a level as ``widths`` say, from below; one on top.

    Without widths the first servers of all groups are one domain, as on a bus; a single group stays alone.
    """
    domains = [Domain(f"g{number}", tuple(group), ordering, options) for number, group in enumerate(groups)]
    heads = [group[0] for group in groups]
    for level, width in enumerate(widths, start=1):
        above = shares(heads, width)
        domains += [
            Domain(f"l{level}-{number}", group, ordering, options) for number, group in enumerate(above) if len(group) > 1
        ]
        heads = [group[0] for group in above]
    if len(heads) > 1:
        domains.append(Domain("top", tuple(heads), ordering, options))
    return Topology(name, domains)


def even(levels_wanted: int, servers: int, ordering: str = "matrix", **options: Any) -> Topology:
    """Return a hierarchy in which all domains have about the same size: the root of as high a degree as there are levels."""
    if levels_wanted < 1 or servers < 2**levels_wanted:
        raise ConfigError(f"{servers} servers make no {levels_wanted} levels of domains of two at least")
    counts = even_counts(levels_wanted, servers)
    groups = shares(names_of(servers), counts[0])
    return levels(f"{levels_wanted} levels", groups, counts[1:], ordering, **options)


def even_counts(levels_wanted: int, servers: int) -> list[int]:
    """Return how many domains there are on each level but the top, from below; for one level just the one."""
    counts = [round(servers ** (level / levels_wanted)) for level in range(levels_wanted - 1, 0, -1)]
    return counts or [1]


def tree(servers: int, size: int, branching: int, ordering: str = "matrix", **options: Any) -> Topology:
    """Return domains of ``size``, each with up to ``branching`` below it that share one server with it, filled level by level.

    As domains §6.2, where size is s and branching k; the last domain may be smaller.
    """
    if size < 2 or not 1 <= branching <= size - 1:
        raise ConfigError(f"domains of {size} with {branching} below each: there must be 1 to size - 1 of them")
    names = names_of(servers)
    domains = [tuple(names[:size])]
    open_at = list(domains[0][1 : branching + 1])
    used = len(domains[0])
    while used < servers:
        members = (open_at.pop(0), *names[used : used + size - 1])
        used += len(members) - 1
        domains.append(members)
        open_at += members[1 : branching + 1]
    return Topology("tree", [Domain(f"d{number}", members, ordering, options) for number, members in enumerate(domains)])
