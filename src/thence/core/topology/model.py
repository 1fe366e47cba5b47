"""What a fabric is made of: domains, the relays and links that join them, and what it can promise.

Sources: domains §4.1 and §4.2, interconnect §3 to §6, clusters §III, daisy §3, gateways §3: all of these are values
of the one type here.

Rules:

* A *relay* is a process that is a member of several domains. A *link* joins two domains that share no member, by
  one or several pairs of relays, one on each side; all pairs of a link together act as one relay that is in both
  domains.
* A *cycle* is meant exactly as in domains §4.2: a path of different processes, each sharing a domain with the next,
  whose ends share a domain while no domain holds them all. Equivalently, and this is what is computed: leave out
  every domain that lies inside another one; then draw an edge between each domain and each process in it; there is
  a cycle if and only if that drawing has one. (Two domains that share two processes, neither inside the other, are
  a cycle. A domain inside another is none.)
* What lies inside another domain is ordered by that one: the inner domain carries no traffic.
* *Replicas* are processes that stand for one relay (``core.failover.replicas``): they are in the same domains, and count as one
  process where cycles are looked for. They carry what others send. Those with a ``local`` domain are ordinary members of it
  beside that: they send and deliver there. The others send nothing themselves.
* A link with ``takeover`` is turned into the domain that it is (``core.topology.link``) as soon as it has been checked.
* The fabric promises what all its domains and links keep together. ``promise`` says what is asked for; what cannot
  be kept is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import msgspec

from thence.core.ordering import ordering_named
from thence.core.ordering.relayed import Relayed
from thence.core.topology import checks
from thence.core.topology.domain import Domain
from thence.core.topology.link import Link as Link  # noqa: PLC0414  A name of this module, too.
from thence.core.wire.messages import MAX_VERSION
from thence.errors import ConfigError, TopologyError

Promise = Literal["causal", "fifo", "total", "nothing"]


class Topology:
    """A fabric that has been checked."""

    def __init__(
        self,
        name: str,
        domains: Iterable[Domain],
        links: Iterable[Link] = (),
        *,
        replicas: Iterable[tuple[str, ...]] = (),
        local: Mapping[str, str] | None = None,
        promise: Promise = "causal",
        force: bool = False,
        addresses: Mapping[str, str | None] | None = None,
        version: int = 1,
        stability: bool = False,
    ) -> None:
        """Check everything. ``force`` lets a cycle or an unsound mix through, to see what then breaks."""
        self.name = name
        self.domains = {domain.name: domain for domain in _distinct("domain", domains)}
        self.links = {link.name: link for link in _distinct("link", links)}
        self.replicas = tuple(tuple(group) for group in replicas)
        self.local = dict(local or {})
        """Of each replica that sends and delivers as an ordinary member of a domain, that domain."""
        self.promise: Promise = promise
        self.version = version
        """Counts the changes of a fabric, from 1 (docs/how-to/reconfiguration.md)."""
        self.stability = stability
        """Whether a message is kept by its origin until every recipient has it (docs/concepts/stability.md)."""
        checks.check_name(name, "name", spaces=True)
        if not 1 <= version <= MAX_VERSION:
            raise TopologyError(f"version {version}: versions count from 1 to {MAX_VERSION} (MAX_VERSION)", "version")
        self.addresses = {name: address for name, address in (addresses or {}).items() if address is not None}
        checks.check_domains(self)
        checks.check_links(self)
        checks.check_replicas(self, self._turn_links_into_domains())
        checks.check_stability(self)
        for server in addresses or ():
            checks.check_known("servers", server, self.homes, "process")
        checks.check_joined(self)
        if not force:
            checks.check_addresses(self)
            checks.check_promise(self)
            checks.refuse_cycles(self)

    @classmethod
    def flat(cls, domain: Domain) -> Topology:
        """Return the fabric of one domain, which promises what its ordering keeps."""
        keeps = ordering_named(domain.ordering).traits.guarantees
        promise: Promise = (
            "total" if "total" in keeps else "causal" if "causal" in keeps else "fifo" if "fifo" in keeps else "nothing"
        )
        return cls(domain.name, [domain], promise=promise)

    def at(self, addresses: Mapping[str, str | None]) -> Topology:
        """Return the same fabric with its servers at these addresses."""
        return Topology(
            self.name,
            self.domains.values(),
            self.links.values(),
            replicas=self.replicas,
            local=self.local,
            promise=self.promise,
            addresses=addresses,
            version=self.version,
            stability=self.stability,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Return a short text that is the same for two topologies only if they are the same, wherever their servers run."""
        domains = [
            (domain.name, domain.members, domain.ordering, dict(domain.options), domain.acks, domain.forward_early)
            for domain in self.domains.values()
        ]
        safe = [domain.name for domain in self.domains.values() if domain.delivery == "safe"]
        # Whether they take over need not be said: those that do are domains by now.
        # Links of version 0.1 also said when a message counts as passed on; its stores and servers compare that.
        links = [
            (link.name, link.between, link.relays, link.mode_name, "delivered", link.only_from) for link in self.links.values()
        ]
        parts: tuple[Any, ...] = (self.name, self.version, self.promise, domains, links, self.replicas)
        if self.stability:
            parts = (*parts, "stability")
        if safe:
            parts = (*parts, "safe", safe)
        if self.notifying:
            parts = (*parts, "notify", self.notifying)
        paired = [(domain.name, domain.pairs) for domain in self.domains.values() if domain.pairs]
        if paired:
            parts = (*parts, "pairs", paired)
        shared_out = [(domain.name, domain.only_from) for domain in self.domains.values() if domain.by_sender]
        if shared_out:
            parts = (*parts, "by_sender", shared_out)
        if self.local:
            parts = (*parts, "local", sorted(self.local.items()))
        described = msgspec.json.encode(parts, order="deterministic")
        return sha256(described).hexdigest()[:16]

    @cached_property
    def notifying(self) -> tuple[str, ...]:
        """The domains that deliver at once and tell later that all have a message."""
        return tuple(domain.name for domain in self.domains.values() if domain.delivery == "notify")

    @cached_property
    def uniform(self) -> bool:
        """Whether it is found out, in the whole fabric, when all have a message: some domain tells it, or delivers only then."""
        return any(domain.delivery != "at once" for domain in self.domains.values())

    @property
    def keeps_accounts(self) -> bool:
        """Whether it is found out who has a message to the end of its way, not only at the next step: to keep it, or to tell."""
        direct = all(ordering_named(domain.ordering).traits.direct for domain in self.domains.values())
        return self.stability or (self.uniform and not (direct and len(self.domains) - len(self.inner) == 1))

    @cached_property
    def homes(self) -> dict[str, tuple[str, ...]]:
        """Every process, and the domains that carry its traffic."""
        homes: dict[str, list[str]] = {}
        for domain in self.domains.values():
            for member in domain.members:
                homes.setdefault(member, [])
                if domain.name not in self.inner:
                    homes[member].append(domain.name)
        return {process: tuple(names) for process, names in homes.items()}

    @property
    def processes(self) -> tuple[str, ...]:
        """Every process, in the order in which the domains name them."""
        return tuple(self.homes)

    @cached_property
    def fellows(self) -> dict[str, tuple[str, ...]]:
        """Every replica, and all that stand for the same relay, itself included, in their order."""
        return {replica: group for group in self.replicas for replica in group}

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """The processes that send messages of their own: all but those that only carry."""
        return tuple(process for process in self.processes if not self.only_carries(process))

    def only_carries(self, process: str) -> bool:
        """Return whether a process carries what others send and sends nothing itself: a replica without a ``local`` domain."""
        return process in self.fellows and process not in self.local

    def located(self, process: str) -> tuple[str, ...]:
        """Return the domains in which a process is written to: all of its own, or the one of which it is an ordinary member."""
        return (self.local[process],) if process in self.local else self.homes[process]

    @cached_property
    def streams(self) -> dict[str, int]:
        """The domains in which relays order by the vectors of messages, and with which entry of these theirs begin."""
        found: dict[str, int] = {}
        for domain in self.domains.values() if len(self.domains) - len(self.inner) > 1 else ():
            if domain.name not in self.inner and issubclass(ordering_named(domain.ordering), Relayed):
                found[domain.name] = self.entries(found)
        return found

    def entries(self, streams: Mapping[str, int] | None = None) -> int:
        """Return how many entries the vectors of messages have."""
        return sum(len(self.domains[name].members) for name in (self.streams if streams is None else streams))

    @cached_property
    def fellow_relays(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Of each member of such a domain, who in it carries for the same side: replicas, and relays of one link."""
        return {name: self._sides(name) for name in self.streams}

    def _sides(self, name: str) -> dict[str, tuple[str, ...]]:
        side = {process: process for process in self.homes}

        def root(process: str) -> str:
            while side[process] != process:
                side[process] = process = side[side[process]]
            return process

        elsewhere = [domain.members for domain in self.domains.values() if domain.name != name and domain.name not in self.inner]
        for joined in (*elsewhere, *(link.members for link in self.links.values())):
            for process in joined:
                side[root(process)] = root(joined[0])
        members = self.domains[name].members
        return {one: tuple(other for other in members if other != one and root(other) == root(one)) for one in members}

    def takes_over_at_once(self, group: tuple[str, ...]) -> bool:
        """Return whether what a dead replica sent last is got from others in all its domains, so that nothing waits for it."""
        return all(self.domains[home].hands_on for home in self.homes[group[0]])

    @cached_property
    def suspicious(self) -> frozenset[str]:
        """The processes to whom it makes a difference whom they suspect, so that they have to be told.

        Where relays have replicas it is all, and else those in domains that ack to everybody (``core.transport.ack_all``) or
        whose members hand on what others sent (``core.ordering.resilient``).
        """
        if self.replicas:
            return frozenset(self.processes)
        distributed = {name for name, domain in self.domains.items() if domain.acks.scheme == "distributed" or domain.hands_on}
        return frozenset(process for process, homes in self.homes.items() if not distributed.isdisjoint(homes))

    @cached_property
    def inner(self) -> dict[str, str]:
        """Domains that lie inside another one, and in which."""
        found: dict[str, str] = {}
        attached = {name for link in self.links.values() for name in link.between}
        by_member: dict[str, list[str]] = {}
        for domain in self.domains.values():
            for member in domain.members:
                by_member.setdefault(member, []).append(domain.name)
        for at, domain in enumerate(self.domains.values()):
            if domain.only_from is not None:  # Others may not take its messages over.
                continue
            members = set(domain.members)
            for other_name in by_member[domain.members[0]] if domain.members and domain.name not in attached else ():
                other = self.domains[other_name]
                equal_but_earlier = len(other.members) == len(members) and list(self.domains).index(other_name) < at
                larger = len(other.members) > len(members)
                for_all = other.only_from is None
                if other_name != domain.name and for_all and (larger or equal_but_earlier) and members <= set(other.members):
                    found[domain.name] = other_name
                    break
        return found

    @cached_property
    def relays(self) -> tuple[str, ...]:
        """The processes that are in several domains; of replicas all."""
        return tuple(process for process, homes in self.homes.items() if len(homes) > 1)

    @cached_property
    def joints(self) -> dict[str, tuple[str, ...]]:
        """What joins domains, and which: processes, the first of replicas standing for all."""
        fellows = self.fellows
        return {relay: self.homes[relay] for relay in self.relays if fellows.get(relay, (relay,))[0] == relay}

    @cached_property
    def guarantees(self) -> frozenset[str]:
        """What all domains and links keep together, end to end."""
        kept = {"fifo", "causal", "total"}
        for domain in self.domains.values():
            kept &= ordering_named(domain.ordering).traits.guarantees
        if len(self.domains) - len(self.inner) > 1:
            kept.discard("total")
        uncoordinated = any(link.mode != "causal" for link in self.links.values()) or any(
            domain.by_sender for domain in self.domains.values()
        )
        if uncoordinated or self.find_cycle() is not None:
            kept.discard("causal")
        return frozenset(kept)

    def find_cycle(self, origin: str | None = None) -> list[str] | None:
        """Return a cycle as domain, process, domain, process, …, ending with its first domain; a link stands for a process.

        With ``origin`` only what this process's messages may use counts.
        """
        closed = {name for name, domain in self.domains.items() if origin is not None and not domain.is_open_to(origin)}
        at_process = {process: [home for home in homes if home not in closed] for process, homes in self.joints.items()}
        for link in self.links.values():
            if origin is None or link.only_from is None or origin in link.only_from:
                at_process[f"link {link.name}"] = list(link.between)
        at_domain: dict[str, list[str]] = {name: [] for name in self.domains}
        for process, names in at_process.items():
            for name in names:
                at_domain[name].append(process)
        return _find_cycle(at_domain, at_process)

    def _turn_links_into_domains(self) -> dict[tuple[str, ...], str]:
        """Put domains in the place of links whose relays take over; return by which link replicas are such."""
        linked_by: dict[tuple[str, ...], str] = {}
        for link in [link for link in self.links.values() if link.takeover]:
            try:
                link.check_takeover({name: self.domains[name].members for name in link.between})
            except ConfigError as error:
                raise TopologyError(f"link {link.name!r}: {error}", "links", link.name, "takeover") from None
            del self.links[link.name]
            self.domains[link.name] = link.as_domain()
            checks.check_domain(self.domains[link.name])
            linked_by.update(dict.fromkeys(link.sequencers, link.name))
        # Relays of several such links, at one site, stand for one relay in all of them.
        known = {frozenset(group) for group in self.replicas}
        for group in linked_by:
            if frozenset(group) not in known:
                known.add(frozenset(group))
                self.replicas += (group,)
        return linked_by


def _distinct(what: str, parts: Iterable[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for part in parts:
        if part.name in found:
            raise TopologyError(f"two {what}s are called {part.name!r}", f"{what}s", part.name)
        found[part.name] = part
    return list(found.values())


def _find_cycle(at_domain: dict[str, list[str]], at_process: dict[str, list[str]]) -> list[str] | None:
    """Walk the drawing of domains and processes; return the first cycle met."""
    seen: dict[str, tuple[str, str] | None] = {}
    """Domain, to (process, domain) through which it was first reached."""
    for root in at_domain:
        if root in seen:
            continue
        seen[root] = None
        queue = [root]
        for domain in queue:
            came_by = seen[domain][0] if seen[domain] else None  # type: ignore[index]
            for process in at_domain[domain]:
                if process == came_by:
                    continue
                for other in at_process[process]:
                    if other == domain:
                        continue
                    if other in seen:
                        return _joined(seen, domain, process, other)
                    seen[other] = (process, domain)
                    queue.append(other)
    return None


def _joined(seen: Mapping[str, tuple[str, str] | None], domain: str, process: str, other: str) -> list[str]:
    """Return the cycle that closes when ``process`` joins two domains that both were reached already."""

    def back(start: str) -> list[str]:
        way = [start]
        while (step := seen[way[-1]]) is not None:
            way += step
        return way

    left, right = back(domain), back(other)
    meet = next(name for name in right[::2] if name in left[::2])
    del left[2 * left[::2].index(meet) + 1 :]
    del right[2 * right[::2].index(meet) + 1 :]
    return [*reversed(left), process, *right]
