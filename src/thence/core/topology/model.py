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
  process where cycles are looked for. They carry what others send and send nothing themselves.
* A link with ``takeover`` is turned into the domain that it is (``core.topology.link``) as soon as it has been checked.
* The fabric promises what all its domains and links keep together. ``promise`` says what is asked for; what cannot
  be kept is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal

import msgspec

from thence.core.ordering import ORDERINGS, make_ordering, ordering_named
from thence.core.topology.ack_options import RESEND_AFTER_NS
from thence.core.topology.addresses import parse_address
from thence.core.topology.domain import Domain
from thence.core.topology.link import Link as Link  # noqa: PLC0414  A name of this module, too.
from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import ConfigError, TopologyError

Promise = Literal["causal", "fifo", "total", "nothing"]

MAX_NAME_BYTES = 240
"""How long a name may be as UTF-8: file systems have room for 255, and something is put behind it."""

MAX_PROCESSES = 1_000_000
MAX_DOMAINS = 100_000


class Topology:
    """A fabric that has been checked."""

    def __init__(
        self,
        name: str,
        domains: Iterable[Domain],
        links: Iterable[Link] = (),
        *,
        replicas: Iterable[tuple[str, ...]] = (),
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
        self.promise: Promise = promise
        self.version = version
        """Counts the changes of a fabric, from 1 (docs/how-to/reconfiguration.md)."""
        self.stability = stability
        """Whether a message is kept by its origin until every recipient has it (docs/concepts/stability.md)."""
        _check_name(name, "name", spaces=True)
        if version < 1:
            raise TopologyError(f"version {version}: versions count from 1", "version")
        self.addresses = {name: address for name, address in (addresses or {}).items() if address is not None}
        self._check_domains()
        self._check_links()
        self._linked_by = self._turn_links_into_domains()
        self._check_replicas()
        self._check_stability()
        for server in addresses or ():
            self._known("servers", server, self.homes, "process")
        self.check_joined()
        if not force:
            self._check_addresses()
            self._check_promise()
            self._refuse_cycles()

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
            promise=self.promise,
            addresses=addresses,
            version=self.version,
            stability=self.stability,
        )

    @cached_property
    def fingerprint(self) -> str:
        """Return a short text that is the same for two topologies only if they are the same, wherever their servers run."""
        domains = [
            (domain.name, domain.members, domain.ordering, dict(domain.options), domain.confirmation, domain.forward_early)
            for domain in self.domains.values()
        ]
        guarded = [domain.name for domain in self.domains.values() if domain.delivery == "safe"]
        # Whether they take over need not be said: those that do are domains by now.
        links = [tuple(link)[: link._fields.index("takeover")] for link in self.links.values()]
        parts: tuple[Any, ...] = (self.name, self.version, self.promise, domains, links, self.replicas)
        if self.stability:
            parts = (*parts, "stability")
        if guarded:
            parts = (*parts, "safe", guarded)
        if self.notifying:
            parts = (*parts, "notify", self.notifying)
        paired = [(domain.name, domain.pairs) for domain in self.domains.values() if domain.pairs]
        if paired:
            parts = (*parts, "pairs", paired)
        described = msgspec.json.encode(parts, order="deterministic")
        return sha256(described).hexdigest()[:16]

    @cached_property
    def notifying(self) -> tuple[str, ...]:
        """The domains that deliver at once and tell later that all have a message."""
        return tuple(domain.name for domain in self.domains.values() if domain.delivery == "notify")

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
        """The processes that send messages of their own: all but replicas."""
        return tuple(process for process in self.processes if process not in self.fellows)

    def takes_over_at_once(self, group: tuple[str, ...]) -> bool:
        """Return whether what a dead replica sent last is got from others in all its domains, so that nothing waits for it."""
        return all(self.domains[home].confirmation.whole for home in self.homes[group[0]])

    @cached_property
    def suspicious(self) -> frozenset[str]:
        """The processes to whom it makes a difference whom they suspect, so that they have to be told.

        Where relays have replicas it is all, and else those in domains that ack to everybody (``core.transport.ack_all``).
        """
        if self.replicas:
            return frozenset(self.processes)
        distributed = {name for name, domain in self.domains.items() if domain.confirmation.scheme == "distributed"}
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
            members = set(domain.members)
            for other_name in by_member[domain.members[0]] if domain.members and domain.name not in attached else ():
                other = self.domains[other_name]
                equal_but_earlier = len(other.members) == len(members) and list(self.domains).index(other_name) < at
                larger = len(other.members) > len(members)
                if other_name != domain.name and (larger or equal_but_earlier) and members <= set(other.members):
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
        if any(link.mode != "causal" for link in self.links.values()) or self.find_cycle() is not None:
            kept.discard("causal")
        return frozenset(kept)

    def find_cycle(self, origin: str | None = None) -> list[str] | None:
        """Return a cycle as domain, process, domain, process, …, ending with its first domain; a link stands for a process.

        With ``origin`` only the links that this process's messages may use count.
        """
        at_process: dict[str, list[str]] = {process: list(homes) for process, homes in self.joints.items()}
        for link in self.links.values():
            if origin is None or link.only_from is None or origin in link.only_from:
                at_process[f"link {link.name}"] = list(link.between)
        at_domain: dict[str, list[str]] = {name: [] for name in self.domains}
        for process, names in at_process.items():
            for name in names:
                at_domain[name].append(process)
        return _find_cycle(at_domain, at_process)

    # Checks.

    def _check_domains(self) -> None:
        if not self.domains:
            raise TopologyError("a fabric needs at least one domain", "domains")
        processes = {member for domain in self.domains.values() for member in domain.members}
        for number, what, limit in ((len(processes), "processes", MAX_PROCESSES), (len(self.domains), "domains", MAX_DOMAINS)):
            if number > limit:
                raise TopologyError(f"{number} {what}; MAX_{what.upper()} is {limit}", "domains")
        for domain in self.domains.values():
            self._check_domain(domain)

    def _check_domain(self, domain: Domain) -> None:
        _check_name(domain.name, "domains", domain.name)
        if len(domain.members) < 1:
            raise TopologyError(f"domain {domain.name!r} has no members", "domains", domain.name)
        for member in domain.members:
            _check_name(member, "domains", domain.name, "members", member)
        try:
            make_ordering(domain.ordering, domain.members[0], domain.members, domain.options)
        except ConfigError as error:
            raise TopologyError(f"domain {domain.name!r}: {error}", "domains", domain.name) from None
        if domain.forward_early is not None and domain.forward_early < 0:
            about = ("domains", domain.name, "forward_early")
            raise TopologyError(f"domain {domain.name!r}: forward_early is a number of bytes, 0 or more", *about)
        try:
            domain.confirmation.check(ordering_named(domain.ordering), domain.members)
            domain.confirmation.check_wait(RESEND_AFTER_NS)
        except ConfigError as error:
            about = ("domains", domain.name, "confirmation")
            raise TopologyError(f"domain {domain.name!r}: confirmation: {error}", *about) from None
        try:
            domain.check_pairs()
        except ConfigError as error:
            raise TopologyError(f"domain {domain.name!r}: pairs: {error}", "domains", domain.name, "pairs") from None

    def _check_links(self) -> None:
        for link in self.links.values():
            about = ("links", link.name)
            _check_name(link.name, *about)
            if link.name in self.domains:
                raise TopologyError(f"{link.name!r} is the name of a domain and of a link", *about)
            if link.between[0] == link.between[1]:
                raise TopologyError(f"link {link.name!r} joins domain {link.between[0]!r} with itself", *about)
            for name in link.between:
                self._known("links", name, self.domains, "domain", link.name)
            if not link.relays:
                raise TopologyError(f"link {link.name!r} needs at least one pair of relays", *about)
            self._check_relays(link)
            processes = {member: None for domain in self.domains.values() for member in domain.members}
            for origin in link.only_from or ():
                self._known("links", origin, processes, "process", link.name)
            shared = set(self.domains[link.between[0]].members) & set(self.domains[link.between[1]].members)
            if shared:
                raise TopologyError(
                    f"link {link.name!r} joins {link.between[0]!r} and {link.between[1]!r}, which share {min(shared)!r}: "
                    "that process is a relay already, and a second way round would be a cycle; leave the link out",
                    *about,
                )

    def _check_relays(self, link: Link) -> None:
        for pair in link.relays:
            for domain, relay in zip(link.between, pair, strict=True):
                members = self.domains[domain].members
                if relay not in members:
                    raise TopologyError(
                        f"link {link.name!r}: {relay!r} is no member of domain {domain!r}, so it can be no relay there"
                        f"{_hint(relay, members)}",
                        "links",
                        link.name,
                        relay,
                    )
        if len(set(link.relays)) < len(link.relays):
            raise TopologyError(f"link {link.name!r}: a pair of relays is listed twice", "links", link.name)

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
            self._check_domain(self.domains[link.name])
            linked_by.update(dict.fromkeys(link.sequencers, link.name))
        # Relays of several such links, at one site, stand for one relay in all of them.
        self.replicas += tuple(group for group in linked_by if group not in self.replicas)
        return linked_by

    def _check_stability(self) -> None:
        for domain in self.domains.values():
            about = ("domains", domain.name, "delivery")
            if domain.delivery != "at once" and not ordering_named(domain.ordering).traits.direct:
                direct = ", ".join(name for name, ordering in ORDERINGS.items() if ordering.traits.direct)
                raise TopologyError(
                    f"domain {domain.name!r}: delivery = {domain.delivery!r} needs an ordering in which a message goes straight "
                    f"from its sender to all who need it: {direct}",
                    *about,
                )
            if domain.delivery != "at once" and any(member in self.fellows for member in domain.members):
                raise TopologyError(
                    f"domain {domain.name!r}: delivery = {domain.delivery!r} waits for all members, so for a replica that is "
                    "dead too: leave one of the two out",
                    *about,
                )
        for link in self.links.values():
            if self.stability and link.mode == "printed":
                raise TopologyError(
                    f"link {link.name!r}: with stability a link is 'causal' or 'fifo'; as printed, nobody knows when a message "
                    "that waits for its number is across",
                    "links",
                    link.name,
                    "mode",
                )

    def _check_replicas(self) -> None:
        seen: set[str] = set()
        linked = {relay for link in self.links.values() for relay in link.members}
        for group in self.replicas:
            by_link = self._linked_by.get(group)
            what, about = (f"link {by_link!r}", ("links", by_link)) if by_link else ("relays", ("relays", *group[:1]))
            for replica in group:
                self._known("relays", replica, self.homes, "process", *group[:1])
            if len(group) < 2 or len(set(group)) < len(group):
                raise TopologyError("relays: replicas are at least two different processes", *about)
            first, *others = group
            for other in others:
                if set(self.homes[other]) != set(self.homes[first]):
                    raise TopologyError(
                        f"{what}: {first!r} is in {', '.join(self.homes[first])}, {other!r} in {', '.join(self.homes[other])}: "
                        "who stands for the same relay is in the same domains",
                        *about,
                    )
            if len(self.homes[first]) < 2:
                raise TopologyError(f"{what}: {first!r} is in one domain only, so it relays nothing", *about)
            for replica in group:
                if replica in seen:
                    raise TopologyError(f"{what}: {replica!r} stands for two relays", *about)
                if replica in linked:
                    raise TopologyError(f"{what}: {replica!r} is a relay of a link too: a replica carries nothing else", *about)
            seen.update(group)
            self._check_gates(first, what, about)
        if len(seen) == len(self.homes):
            raise TopologyError("relays: everybody is a replica, so that nobody sends anything", "relays")

    def _check_gates(self, replica: str, what: str, about: tuple[str, ...]) -> None:
        for home in self.homes[replica]:
            ordering = ordering_named(self.domains[home].ordering)
            if not ordering.traits.gated:
                able = ", ".join(name for name, other in ORDERINGS.items() if other.traits.gated)
                raise TopologyError(
                    f"{what}: {replica!r} has replicas, and domain {home!r} runs {ordering.traits.name}, which cannot make them "
                    f"wait for each other; there are: {able}",
                    *about,
                )

    def _known(self, table: str, name: str, known: Iterable[str], what: str, *about: str) -> None:
        known = list(known)
        if name not in known:
            raise TopologyError(f"{table}: there is no {what} {name!r}{_hint(name, known)}", table, *about, name)

    def check_joined(self) -> None:
        """Refuse a fabric in which somebody cannot reach somebody else."""
        first = next(iter(self.domains))
        reached = {first}
        queue = [first]
        peers: dict[str, list[str]] = {name: [] for name in self.domains}
        by_member: dict[str, str] = {}
        for domain in self.domains.values():
            for member in domain.members:
                other = by_member.setdefault(member, domain.name)
                peers[domain.name].append(other)
                peers[other].append(domain.name)
        for link in self.links.values():
            peers[link.between[0]].append(link.between[1])
            peers[link.between[1]].append(link.between[0])
        for name in queue:
            for other in peers[name]:
                if other not in reached:
                    reached.add(other)
                    queue.append(other)
        for name in self.domains:
            if name not in reached:
                raise TopologyError(
                    f"domain {name!r} cannot be reached from {first!r}: let them share a member, or add a link", "domains", name
                )

    def _check_addresses(self) -> None:
        for server, address in self.addresses.items():
            try:
                parse_address(address)
            except ConfigError as error:
                raise TopologyError(f"server {server!r}: {error}", "servers", server, "address") from None

    def _check_promise(self) -> None:
        if self.promise == "nothing":
            return
        if self.promise == "total" and len(self.domains) - len(self.inner) > 1:
            raise TopologyError(
                "promise = 'total': one order for all cannot be kept over several domains without changing their orderings; "
                "use one domain with ordering = 'sequenced', or promise = 'causal'",
                "promise",
            )
        for domain in self.domains.values():
            if self.promise not in ordering_named(domain.ordering).traits.guarantees:
                ordering = ordering_named(domain.ordering).traits.name
                raise TopologyError(
                    f"domain {domain.name!r} runs {ordering}, which does not keep {self.promise} order, so the fabric "
                    "cannot promise it: choose another ordering, or promise less",
                    "domains",
                    domain.name,
                )
        for link in self.links.values():
            if self.promise == "causal" and link.mode != "causal":
                raise TopologyError(
                    f"link {link.name!r} has mode = {link.mode!r}: its relays are not enough coordinated, so what crosses it may "
                    "overtake its cause; use mode = 'causal', or promise = 'fifo'",
                    "links",
                    link.name,
                )
            if self.promise == "causal" and link.only_from is not None:
                raise TopologyError(f"link {link.name!r}: only_from is for fabrics that promise fifo", "links", link.name)

    def _replica_hint(self, cycle: list[str]) -> str:
        processes = dict.fromkeys(cycle[1::2])
        alike = {frozenset(self.homes.get(process, (process,))) for process in processes}
        return f"; or let {' and '.join(processes)} stand for one relay, as replicas" if len(alike) == 1 else ""

    def _refuse_cycles(self) -> None:
        # Where only FIFO is promised, different senders may use different ways, as long as each has only one.
        origins = {name for link in self.links.values() for name in link.only_from or ()} if self.promise == "fifo" else set()
        others = next((process for process in self.processes if process not in origins), None)
        ways_to_try = [*sorted(origins), *([others] if others else [])] if self.promise == "fifo" else [None]
        cycle = next((found for origin in ways_to_try if (found := self.find_cycle(origin))), None)
        if cycle is None:
            return
        drawn = " - ".join(cycle)
        ways = " or ".join(dict.fromkeys(cycle[1::2]))
        raise TopologyError(
            f"a cycle: {drawn}. Around a cycle a message can overtake its cause: take {ways} out of one of these domains, "
            f"or put them all into one{self._replica_hint(cycle)}",
            "domains",
            cycle[-1],
        )


def _distinct(what: str, parts: Iterable[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for part in parts:
        if part.name in found:
            raise TopologyError(f"two {what}s are called {part.name!r}", f"{what}s", part.name)
        found[part.name] = part
    return list(found.values())


def _check_name(name: str, *about: str, spaces: bool = False) -> None:
    """Refuse a name that cannot be one.

    Names become parts of paths, log lines and commands, and may come in a file that somebody else wrote. So they hold nothing
    that leads to another folder or that a terminal would obey.
    """
    why = ""
    if not name or len(name) > MAX_NAME_CHARACTERS or (not spaces and any(character.isspace() for character in name)):
        why = f"1 to {MAX_NAME_CHARACTERS} characters{'' if spaces else ', without spaces'}"
    elif not name.isprintable():
        why = "it has characters that cannot be printed"
    elif "/" in name or name in {".", ".."}:
        why = "servers keep their data in folders called after them, so it must not lead to another folder"
    elif len(name.encode()) > MAX_NAME_BYTES:
        why = f"{len(name.encode())} bytes; MAX_NAME_BYTES is {MAX_NAME_BYTES}"
    if why:
        raise TopologyError(f"{name!r} is no name: {why}", *about)


def _hint(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
