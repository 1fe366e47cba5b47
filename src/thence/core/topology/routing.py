"""Where a message goes next: from any process, into which domains and over which links.

Sources: domains §5 (a static table by shortest path), clusters Fig. 3 (the unique path), daisy §3.1 (groups without
recipients are not visited), interconnect §4 (a path goes through one relay per system).

Rules:

* The way leads from domain to domain, by the fewest of them. Where the fabric has no cycle there is only one.
* A hop is decided by where the message is going and where it is, never by where it has been: whoever holds it
  forwards exactly what lies beyond itself, away from where it came. So each process needs no more than its own view
  of the one topology.
* What goes over a link is handed, inside the domain, to the link's *handlers*: the sequencer and, where relays are
  shared out by sender, the relay of the message's origin.
* Where replicas stand for a relay, what goes through it is handed to all of them. What is for one that is an ordinary member of
  a domain goes into that domain, as for any other member.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from thence.core.topology.model import Link, Topology
from thence.errors import UsageError


class RoutePlan(NamedTuple):
    """What one process does with one message: send it in these domains, to these members, and hand it to these links."""

    into: dict[str, tuple[str, ...] | None]
    """Domain, to the members to address there; None: all."""
    across: tuple[str, ...]


class _Step(NamedTuple):
    """How to get from a domain to the next one: through a process that is in both, or over a link."""

    domain: str
    relay: str | None
    link: str | None


class Routes:
    """The routing tables of a fabric, shared by all who simulate it and made by each who runs a part of it."""

    def __init__(self, topology: Topology) -> None:
        """Prepare; the tables are filled in as they are asked for."""
        self.topology = topology
        self.tables: dict[tuple[frozenset[str], str], dict[str, tuple[int, _Step | None]]] = {}
        self._usable: dict[str, frozenset[str]] = {}
        self._limited = {name for name, domain in topology.domains.items() if domain.only_from is not None}
        self._restricted = bool(self._limited) or any(link.only_from is not None for link in topology.links.values())
        self._every_link = frozenset(topology.links)
        self._ends: dict[tuple[frozenset[str], tuple[str, ...], tuple[str, ...]], tuple[str, _Step | None]] = {}
        """By where the two processes are: there are far fewer such places than pairs of processes."""
        self._beyond: dict[tuple[str, str, str], bool] = {}
        self._entries: dict[tuple[str, str], tuple[str, ...]] = {}
        self._numbers = {process: number for number, process in enumerate(topology.processes)}
        self._joints = self._find_joints()
        self._links_at = self._find_links_at()

    def path(self, origin: str, target: str) -> list[str]:
        """Return the way of a message: process, domain or link, process, …, process."""
        way = [origin]
        at = origin
        local, first = self.topology.local.get(origin), self.topology.fellows.get(origin, (origin,))[0]
        if local is not None and target not in (*self.topology.domains[local].members, first):
            way += () if origin == first else (local, first)  # It leaves by the replica that forwards.
            at = first
        while at != target:
            domain, step = self._towards(self._links_for(origin), at, target)
            if step is None:
                way += (domain, target)
                return way
            if step.relay is not None:
                way += (domain, step.relay)
                at = step.relay
                continue
            link = self.topology.links[step.link or ""]
            near, far = self._pair(link, domain, origin)
            if at != near:
                way += (domain, near)
            way += (link.name, far)
            at = far
        return way

    def plan(self, at: str, origin: str, to: Collection[str] | None, came_from: str | None) -> RoutePlan:
        """Return what ``at`` does with a message of ``origin`` that came by a domain or link (None: it is the origin itself)."""
        if to is None:
            return self._plan_for_everyone(at, origin, came_from)
        links = self._links_for(origin)
        into: dict[str, dict[str, None]] = {}
        across: dict[str, None] = {}
        fellows = self.topology.fellows.get(at, ())
        for target in to:
            if target == at or target in fellows:
                self._add_local(at, target, came_from, into)
                continue
            domain, step = self._towards(links, at, target)
            if domain == came_from and (step is None or step.link is None):
                continue
            if step is None or step.relay is not None:
                relay = "" if step is None else step.relay or ""
                for member in (target,) if step is None else self.topology.fellows.get(relay, (relay,)):
                    into.setdefault(domain, {})[member] = None
                continue
            link = self.topology.links[step.link or ""]
            # Whatever lies towards the origin got it before it came here.
            if link.name == came_from or self.beyond(link, domain, origin):
                continue
            handlers = self.handlers(link, domain, origin)
            if at in handlers:
                across[link.name] = None
            if domain != came_from:
                for handler in handlers:
                    if handler != at:
                        into.setdefault(domain, {})[handler] = None
        self._add_fellows(at, came_from, into)
        return RoutePlan({domain: tuple(members) for domain, members in into.items()}, tuple(across))

    def _plan_for_everyone(self, at: str, origin: str, came_from: str | None) -> RoutePlan:
        # Without cycles, all domains but the one that it came by lie away from the origin.
        links = self._links_for(origin)
        homes = self.topology.homes[at]
        into: dict[str, tuple[str, ...] | None] = {
            home: None for home in homes if home != came_from and self._is_open(home, links)
        }
        across = []
        for link, domain in self._links_at.get(at, ()):
            if link.name == came_from or link.name not in links:
                continue
            if not self.beyond(link, domain, origin) and at in self.handlers(link, domain, origin):
                across.append(link.name)
        return RoutePlan(into, tuple(across))

    def _add_local(self, at: str, target: str, came_from: str | None, into: dict[str, dict[str, None]]) -> None:
        """Let what is for us or another replica go into the domain of which we are members; else it came to both the same way."""
        local = self.topology.local.get(target)
        if local is not None and local != came_from and (target != at or came_from is not None):
            into.setdefault(local, {})[target] = None

    def _add_fellows(self, at: str, came_from: str | None, into: dict[str, dict[str, None]]) -> None:
        """Add the relays of a side to whom it is for that came over a link whose ends are tried out."""
        link = self.topology.links.get(came_from or "")
        if link is not None and not isinstance(link.mode, str):
            domain = next(end for end in link.between if at in link.side(end))
            into.setdefault(domain, {}).update(dict.fromkeys(link.side(domain)))

    def handlers(self, link: Link, domain: str, origin: str) -> tuple[str, ...]:
        """Return the relays in ``domain`` that must see a message for it to cross: the sequencer, the sender's relay, or both."""
        side = link.side(domain)
        if link.mode == "causal":
            return side[:1]
        own = self.relay_of(link, domain, origin)
        return (own,) if link.mode == "fifo" or own == side[0] else (side[0], own)

    def relay_of(self, link: Link, domain: str, origin: str) -> str:
        """Return the relay in ``domain`` that carries the messages of ``origin``, where they are shared out by sender."""
        side = link.side(domain)
        if origin in side:
            return origin
        return link.relays[self._numbers[origin] % len(link.relays)][link.between.index(domain)]

    def upstream(self, at: str, origin: str) -> str:
        """Return the domain by which messages of ``origin`` come to a relay ``at``."""
        return self._towards(self._links_for(origin), at, origin)[0]

    def beyond(self, link: Link, domain: str, process: str) -> bool:
        """Return whether ``process`` lies on the other side of ``link``, seen from ``domain``."""
        key = (link.name, domain, process)
        known = self._beyond.get(key)
        if known is None:
            _, step = self._from_domain(self._links_for(process), domain, process)
            known = self._beyond[key] = step is not None and step.link == link.name
        return known

    def carriers(self, relay: str, origin: str, into: str) -> tuple[str, ...]:
        """Return who stands for a relay, in the order in which they forward messages of ``origin`` into a domain.

        Where senders are shared out, those of a sender's pair are first, on the side that it leaves and where it comes out.
        """
        group = self.topology.fellows[relay]
        for domain in (self.topology.domains[into], self.topology.domains[self.upstream(relay, origin)]):
            if domain.by_sender:
                first = 0 if domain.only_from is not None else self._numbers[origin] % len(domain.pairs)
                turned = domain.pairs[first:] + domain.pairs[:first]
                return tuple(dict.fromkeys(name for pair in turned for name in pair if name in group))
        return group

    def entries(self, domain: str, origin: str) -> tuple[str, ...]:
        """Return the members of a domain who send messages of ``origin`` there: itself, or the relays on the way from it."""
        found = self._entries.get((domain, origin))
        if found is None:
            try:
                _, step = self._from_domain(self._links_for(origin), domain, origin)
            except UsageError:
                found = ()
            else:
                relay = origin if step is None else step.relay
                link = None if step is None or step.link is None else self.topology.links[step.link]
                fellows = (origin,) if step is None else self.topology.fellows.get(relay or "", (relay or "",))
                found = link.side(domain) if link is not None else fellows
            self._entries[domain, origin] = found
        return found

    def entry(self, domain: str, origin: str) -> tuple[str, ...]:
        """Return by whom messages of ``origin`` come into a domain: a relay, or a link with its handlers; empty: it is there."""
        _, step = self._from_domain(self._links_for(origin), domain, origin)
        if step is None:
            return ()
        if step.relay is not None:
            return self.topology.fellows.get(step.relay, (step.relay,))
        link = self.topology.links[step.link or ""]
        relays = () if link.mode == "causal" else link.members
        return link.name, *self.handlers(link, domain, origin), *relays

    # Tables.

    def _links_for(self, origin: str) -> frozenset[str]:
        """Return the links that messages of ``origin`` may use, and the domains of relays that only some may."""
        if not self._restricted:
            return self._every_link
        if origin not in self._usable:
            links = [link.name for link in self.topology.links.values() if link.only_from is None or origin in link.only_from]
            limited = [name for name in self._limited if self.topology.domains[name].is_open_to(origin)]
            self._usable[origin] = frozenset((*links, *limited))
        return self._usable[origin]

    def _is_open(self, domain: str, links: frozenset[str]) -> bool:
        return domain not in self._limited or domain in links

    def _towards(self, links: frozenset[str], at: str, target: str) -> tuple[str, _Step | None]:
        """Return the domain in which ``at`` moves the message on, and the step out of it; no step: the target is in there."""
        homes = self.topology.homes
        if target not in homes:
            raise UsageError(f"there is no process {target!r} in fabric {self.topology.name!r}")
        key = (links, homes[at], self.topology.located(target))
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = self._nearest(links, at, target)
        return found

    def _nearest(self, links: frozenset[str], at: str, target: str) -> tuple[str, _Step | None]:
        best: tuple[int, str, _Step | None] | None = None
        for home in self.topology.homes[at]:
            for goal in [goal for goal in self.topology.located(target) if self._is_open(goal, links)]:
                distance, step = self._table(links, goal).get(home, (None, None))
                if distance is not None and (best is None or distance < best[0]):
                    best = (distance, home, step)
        if best is None:
            raise UsageError(f"there is no way from {at!r} to {target!r} in fabric {self.topology.name!r}")
        return best[1], best[2]

    def _from_domain(self, links: frozenset[str], domain: str, target: str) -> tuple[int, _Step | None]:
        goals = [goal for goal in self.topology.located(target) if self._is_open(goal, links)]
        steps = [self._table(links, goal)[domain] for goal in goals if domain in self._table(links, goal)]
        if not steps:
            raise UsageError(f"there is no way from domain {domain!r} to {target!r} in fabric {self.topology.name!r}")
        return min(steps, key=lambda step: step[0])

    def _table(self, links: frozenset[str], goal: str) -> dict[str, tuple[int, _Step | None]]:
        """Return, for every domain, how far ``goal`` is and the first step there."""
        table = self.tables.get((links, goal))
        if table is None:
            table = {goal: (0, None)}
            queue = [goal]
            for domain in queue:
                distance = table[domain][0] + 1
                for other, relay, link in self._joints[domain]:
                    if other not in table and (link is None or link in links) and self._is_open(other, links):
                        table[other] = (distance, _Step(domain, relay, link))
                        queue.append(other)
            self.tables[links, goal] = table
        return table

    def _find_joints(self) -> dict[str, list[tuple[str, str | None, str | None]]]:
        """Return, for every domain, its peers, and the shared process or the link between."""
        joints: dict[str, list[tuple[str, str | None, str | None]]] = {name: [] for name in self.topology.domains}
        for relay, homes in self.topology.joints.items():
            for one in homes:
                joints[one] += [(other, relay, None) for other in homes if other != one]
        for link in self.topology.links.values():
            one, other = link.between
            joints[one].append((other, None, link.name))
            joints[other].append((one, None, link.name))
        return joints

    def _find_links_at(self) -> dict[str, list[tuple[Link, str]]]:
        """Return, for every process that is a relay of links, these and the domain in which it is that."""
        found: dict[str, list[tuple[Link, str]]] = {}
        for link in self.topology.links.values():
            for domain in link.between:
                for relay in link.side(domain):
                    found.setdefault(relay, []).append((link, domain))
        return found

    def _pair(self, link: Link, domain: str, origin: str) -> tuple[str, str]:
        """Return the relays by which a message of ``origin`` crosses; where they take turns, the first pair stands for all."""
        side = link.between.index(domain)
        near = link.relays[0][side] if link.mode == "causal" else self.relay_of(link, domain, origin)
        return near, next(pair[1 - side] for pair in link.relays if pair[side] == near)
