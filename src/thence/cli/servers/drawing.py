"""A fabric as lines of text, for the terminal; and as a tree, which the picture in ``picture.py`` is drawn from as well.

Where there is no cycle a fabric is a tree: a domain, below it the relays and links that lead on, below them the next
domains. The domain from which the others are nearest is the root.

Rules:

* A relay stands once, between the domains that share it; replicas of one stand there together.
* What closes a cycle (in a forced fabric, or where senders have ways of their own) is named at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from thence.core.ordering import ordering_named
from thence.core.topology.model import Link, Topology

MAX_NAMED_MEMBERS = 12
"""How many members of a domain the text names."""
MAX_CENTRED_DOMAINS = 1_000
"""Up to how many domains the middle one is looked for; beyond it the one with most joints is taken."""


@dataclass
class Joint:
    """What leads from a domain to others: a relay, or a link."""

    name: str
    link: Link | None
    below: list[Branch] = field(default_factory=list)


@dataclass
class Branch:
    """A domain and what hangs below it."""

    domain: str
    joints: list[Joint] = field(default_factory=list)


def branches(topology: Topology) -> tuple[Branch, list[tuple[str, str]]]:
    """Return the fabric as a tree, and the (relay or link, domain) that close a cycle."""
    joints = _joints(topology)
    root = Branch(_middle(topology, joints))
    seen, extra, queue = {root.domain}, [], [(root, "")]
    placed: set[str] = set()
    for branch, came_by in queue:
        for name in joints[branch.domain]:
            if name == came_by:
                continue
            if name in placed:
                extra.append((_called(topology, name), branch.domain))
                continue
            placed.add(name)
            called = _called(topology, name).removeprefix("link ")
            joint = Joint(called, topology.links.get(name.removeprefix("link ")) if " " in name else None)
            for domain in _domains_at(topology, name):
                if domain == branch.domain:
                    continue
                if domain in seen:
                    extra.append((_called(topology, name), domain))
                    continue
                seen.add(domain)
                below = Branch(domain)
                joint.below.append(below)
                queue.append((below, name))
            if joint.below or joint.link is None:
                branch.joints.append(joint)
    return root, sorted(set(extra))


def _joints(topology: Topology) -> dict[str, list[str]]:
    """Per domain: the relays in it, and the links at it as ``link NAME``."""
    joints: dict[str, list[str]] = {name: [] for name in topology.domains}
    for relay, homes in topology.joints.items():
        for home in homes:
            joints[home].append(relay)
    for link in topology.links.values():
        for name in link.between:
            joints[name].append(f"link {link.name}")
    return joints


def _domains_at(topology: Topology, joint: str) -> tuple[str, ...]:
    name = joint.removeprefix("link ")
    return topology.links[name].between if " " in joint else topology.homes[name]


def _called(topology: Topology, joint: str) -> str:
    """Return what stands for a joint in a drawing."""
    return joint if " " in joint else "+".join(topology.fellows.get(joint, (joint,)))


def _middle(topology: Topology, joints: dict[str, list[str]]) -> str:
    """Return the domain whose farthest other domain is nearest; of several, the one with most joints."""
    carrying: list[str] = [name for name in topology.domains if name not in topology.inner]
    if len(carrying) > MAX_CENTRED_DOMAINS:
        return max(carrying, key=lambda name: len(joints[name]))

    def farthest(start: str) -> int:
        distance = {start: 0}
        queue = [start]
        for name in queue:
            for joint in joints[name]:
                for other in _domains_at(topology, joint):
                    if other not in distance:
                        distance[other] = distance[name] + 1
                        queue.append(other)
        return max(distance.values())

    return min(carrying, key=lambda name: (farthest(name), -len(joints[name])))


def as_text(topology: Topology) -> Iterator[str]:
    """Give the lines of a drawing for the terminal."""
    root, extra = branches(topology)
    yield _titled(topology, root.domain)
    yield from _below(topology, root, "")
    for domain, outer in topology.inner.items():
        yield f"{_titled(topology, domain)}   (inside {outer}: carries no traffic)"
    for joint, domain in extra:
        yield f"and {joint} leads to {domain} as well: a second way"


def _below(topology: Topology, branch: Branch, indent: str) -> Iterator[str]:
    ways = [(joint, below) for joint in branch.joints for below in joint.below]
    for at, (joint, below) in enumerate(ways):
        last = at == len(ways) - 1
        label = f"─ {joint.name} ─ " if joint.link is None else f"═ {_described(joint.link, branch.domain)} ═ "
        yield f"{indent}{'└' if last else '├'}{label}{_titled(topology, below.domain)}"
        yield from _below(topology, below, f"{indent}{' ' if last else '│'}{' ' * len(label)}")


def _described(link: Link, near: str) -> str:
    pairs = [pair if link.between[0] == near else pair[::-1] for pair in link.relays]
    shown = ", ".join(f"{one}={other}" for one, other in pairs[:MAX_NAMED_MEMBERS])
    return f"{link.mode}: {shown}{', …' if len(pairs) > MAX_NAMED_MEMBERS else ''}"


def _titled(topology: Topology, name: str) -> str:
    domain = topology.domains[name]
    shown = " ".join(domain.members[:MAX_NAMED_MEMBERS])
    more = len(domain.members) - MAX_NAMED_MEMBERS
    return f"{name} ({ordering_named(domain.ordering).traits.name}): {shown}{f' … and {more} more' if more > 0 else ''}"
