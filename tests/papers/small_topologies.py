"""Every fabric of up to four servers in up to three domains, for claim M2 (domains, Thm 1).

A fabric is a choice of one to three nonempty sets of servers, equal ones allowed, that hang together. Two choices that differ
only in the names of the servers and the order of the domains are one *class*: ``classes`` gives one choice of each. That one
stands for all, since nothing in a search depends on what a server is called; ``test_domains.py`` checks that the refusal
does not depend on it either, for every choice.

``make campaign`` is to search deeper and without that argument:

    python -m tests.papers.small_topologies
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, permutations, product

from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import TopologyError
from thence.sim.search.explorer import Action, Case, explore
from thence.sim.search.search import Explored

SERVERS = "abcd"
MAX_DOMAINS = 3
CAUSAL = frozenset({"causal"})

Choice = tuple[tuple[int, ...], ...]

SETS: tuple[tuple[int, ...], ...] = tuple(
    chosen for size in range(1, len(SERVERS) + 1) for chosen in combinations(range(len(SERVERS)), size)
)


def hangs_together(choice: Choice) -> bool:
    """Return whether every domain can be reached from the first one."""
    reached = set(choice[0])
    left = list(choice[1:])
    while near := [members for members in left if reached.intersection(members)]:
        for members in near:
            reached.update(members)
            left.remove(members)
    return not left


def choices() -> Iterator[Choice]:
    """Give every choice, domains in every order."""
    for count in range(1, MAX_DOMAINS + 1):
        yield from filter(hangs_together, product(SETS, repeat=count))


def class_of(choice: Choice) -> Choice:
    """Return the one that stands for all that are called otherwise."""
    return min(
        tuple(sorted(tuple(sorted(names[server] for server in members)) for members in choice))
        for names in permutations(range(len(SERVERS)))
    )


def classes() -> list[Choice]:
    """Return one choice of each class."""
    unordered = (filter(hangs_together, combinations_with_replacement(SETS, count)) for count in range(1, MAX_DOMAINS + 1))
    return sorted({class_of(choice) for some in unordered for choice in some}, key=lambda choice: (len(choice), choice))


def fabric(choice: Choice, *, force: bool = False) -> Topology:
    """Return the fabric of a choice, with a matrix in every domain; a cycle is refused unless forced."""
    domains = [Domain("ABC"[at], tuple(SERVERS[server] for server in members), "matrix") for at, members in enumerate(choice)]
    return Topology("small", domains, promise="causal", force=force)


def refused(choice: Choice) -> bool:
    """Return whether the fabric is refused for a cycle."""
    try:
        fabric(choice)
    except TopologyError as error:
        if not str(error).startswith("a cycle: "):
            raise
        return True
    return False


def case_of(choice: Choice, messages: int) -> Case:
    """Return the case to search: every run of up to so many messages from any server to any other."""
    return Case(fabric(choice, force=True), messages, "unicast", CAUSAL)


def search(choice: Choice, messages: int) -> Explored[Action]:
    """Search every run; with few messages first, since a short run is found sooner there."""
    found: Explored[Action] = Explored(0, 0)
    for count in range(min(3, messages), messages + 1):
        found = explore(case_of(choice, count))
        if found.broken:
            break
    return found


def label(choice: Choice) -> str:
    """Name a choice, such as ``ab-bc``."""
    return "-".join("".join(SERVERS[server] for server in members) for members in choice)


CAMPAIGN: list[tuple[Choice, int]] = [
    *((choice, 4) for choice in classes()),
    *((choice, 3) for choice in choices() if tuple(sorted(choice)) == choice),
]
"""What a campaign searches: each class with four messages, and every choice, whatever its servers are called, with three."""


def main() -> int:
    """Search all of the campaign; complain where the refusal and the search disagree."""
    wrong = 0
    for number, (choice, messages) in enumerate(CAMPAIGN, start=1):
        found = search(choice, messages)
        agree = (found.broken == "causal") if refused(choice) else found.broken is None
        wrong += not agree
        verdict = "agree" if agree else "DISAGREE"
        sys.stdout.write(f"{number}/{len(CAMPAIGN)} {label(choice)} {messages} messages: {found.broken} {verdict}\n")
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
