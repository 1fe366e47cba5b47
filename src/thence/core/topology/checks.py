"""What a fabric must be: each check refuses what cannot be, and says what to do instead.

``core.topology.model`` has the rules, and calls the checks in their order when a ``Topology`` is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from thence.core.ordering import ORDERINGS, make_ordering, ordering_named
from thence.core.topology.ack_options import RESEND_AFTER_NS
from thence.core.topology.addresses import parse_address
from thence.core.topology.domain import Domain
from thence.core.topology.link import Link
from thence.core.wire.messages import MAX_NAME_CHARACTERS
from thence.errors import ConfigError, TopologyError

if TYPE_CHECKING:
    from thence.core.topology.model import Topology

MAX_NAME_BYTES = 240
"""How long a name may be as UTF-8: file systems have room for 255, and something is put behind it."""

MAX_PROCESSES = 1_000_000
MAX_DOMAINS = 100_000


def check_domains(topology: Topology) -> None:
    """Refuse domains that cannot be, or too many of them."""
    if not topology.domains:
        raise TopologyError("a fabric needs at least one domain", "domains")
    processes = {member for domain in topology.domains.values() for member in domain.members}
    for number, what, limit in ((len(processes), "processes", MAX_PROCESSES), (len(topology.domains), "domains", MAX_DOMAINS)):
        if number > limit:
            raise TopologyError(f"{number} {what}; MAX_{what.upper()} is {limit}", "domains")
    for domain in topology.domains.values():
        check_domain(domain)
        for origin in domain.only_from or ():
            check_known("domains", origin, processes, "process", domain.name)


def check_domain(domain: Domain) -> None:
    """Refuse a domain that cannot be."""
    check_name(domain.name, "domains", domain.name)
    if len(domain.members) < 1:
        raise TopologyError(f"domain {domain.name!r} has no members", "domains", domain.name)
    for member in domain.members:
        check_name(member, "domains", domain.name, "members", member)
    try:
        make_ordering(domain.ordering, domain.members[0], domain.members, domain.options)
    except ConfigError as error:
        raise TopologyError(f"domain {domain.name!r}: {error}", "domains", domain.name) from None
    if domain.forward_early is not None and domain.forward_early < 0:
        about = ("domains", domain.name, "forward_early")
        raise TopologyError(f"domain {domain.name!r}: forward_early is a number of bytes, 0 or more", *about)
    try:
        domain.acks.check(ordering_named(domain.ordering), domain.members)
        domain.acks.check_wait(RESEND_AFTER_NS)
    except ConfigError as error:
        about = ("domains", domain.name, "confirmation")
        raise TopologyError(f"domain {domain.name!r}: confirmation: {error}", *about) from None
    try:
        domain.check_pairs()
    except ConfigError as error:
        raise TopologyError(f"domain {domain.name!r}: pairs: {error}", "domains", domain.name, "pairs") from None


def check_links(topology: Topology) -> None:
    """Refuse links that cannot be."""
    for link in topology.links.values():
        about = ("links", link.name)
        check_name(link.name, *about)
        if link.name in topology.domains:
            raise TopologyError(f"{link.name!r} is the name of a domain and of a link", *about)
        if link.between[0] == link.between[1]:
            raise TopologyError(f"link {link.name!r} joins domain {link.between[0]!r} with itself", *about)
        for name in link.between:
            check_known("links", name, topology.domains, "domain", link.name)
        if not link.relays:
            raise TopologyError(f"link {link.name!r} needs at least one pair of relays", *about)
        _check_relays(topology, link)
        processes = {member: None for domain in topology.domains.values() for member in domain.members}
        for origin in link.only_from or ():
            check_known("links", origin, processes, "process", link.name)
        shared = set(topology.domains[link.between[0]].members) & set(topology.domains[link.between[1]].members)
        if shared:
            raise TopologyError(
                f"link {link.name!r} joins {link.between[0]!r} and {link.between[1]!r}, which share {min(shared)!r}: "
                "that process is a relay already, and a second way round would be a cycle; leave the link out",
                *about,
            )


def _check_relays(topology: Topology, link: Link) -> None:
    for pair in link.relays:
        for domain, relay in zip(link.between, pair, strict=True):
            members = topology.domains[domain].members
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


def check_stability(topology: Topology) -> None:
    """Refuse ways of delivery, and links, with which nobody would know who has a message."""
    for domain in topology.domains.values():
        about = ("domains", domain.name, "delivery")
        if domain.delivery != "at once" and not ordering_named(domain.ordering).traits.direct:
            direct = ", ".join(name for name, ordering in ORDERINGS.items() if ordering.traits.direct)
            raise TopologyError(
                f"domain {domain.name!r}: delivery = {domain.delivery!r} needs an ordering in which a message goes straight "
                f"from its sender to all who need it: {direct}",
                *about,
            )
    for group in topology.replicas if topology.uniform else ():
        home = next((home for home in topology.homes[group[0]] if not topology.domains[home].acks.whole), None)
        if home is not None:
            raise TopologyError(
                f"domain {home!r}: {group[0]!r} has replicas, and some domain has delivery = 'safe' or 'notify': who is told "
                "that all have a message relies on it that all deliver it, also behind what a replica sent that died. Nobody "
                "hands that on here: use ordering = 'vector', which does so unless its options say otherwise",
                "domains",
                home,
                "confirmation",
            )


def check_replicas(topology: Topology, linked_by: Mapping[tuple[str, ...], str]) -> None:
    """Refuse replicas that could not stand for one relay."""
    seen: set[str] = set()
    linked = {relay for link in topology.links.values() for relay in link.members}
    for group in topology.replicas:
        by_link = linked_by.get(group)
        what, about = (f"link {by_link!r}", ("links", by_link)) if by_link else ("relays", ("relays", *group[:1]))
        for replica in group:
            check_known("relays", replica, topology.homes, "process", *group[:1])
        if len(group) < 2 or len(set(group)) < len(group):
            raise TopologyError("relays: replicas are at least two different processes", *about)
        first, *others = group
        for other in others:
            mine, theirs = topology.homes[first], topology.homes[other]
            if set(theirs) != set(mine):
                raise TopologyError(
                    f"{what}: {first!r} is in {', '.join(mine)}, {other!r} in {', '.join(theirs)}: "
                    "who stands for the same relay is in the same domains",
                    *about,
                )
        if len(topology.homes[first]) < 2:
            raise TopologyError(f"{what}: {first!r} is in one domain only, so it relays nothing", *about)
        for replica in group:
            if replica in seen:
                raise TopologyError(f"{what}: {replica!r} stands for two relays", *about)
            if replica in linked:
                raise TopologyError(f"{what}: {replica!r} is a relay of a link too: a replica carries nothing else", *about)
        seen.update(group)
        _check_gates(topology, first, what, about)
        _check_local(topology, group, what, about)
    if not topology.senders:
        raise TopologyError("relays: everybody is a replica, so that nobody sends anything", "relays")


def _check_local(topology: Topology, group: tuple[str, ...], what: str, about: tuple[str, ...]) -> None:
    locals_ = {topology.local.get(replica) for replica in group}
    local = next(iter(locals_))
    if local is None and len(locals_) == 1:
        return
    if len(locals_) > 1 or local not in topology.homes[group[0]]:
        raise TopologyError(
            f"{what}: local = {local!r} is none of {', '.join(topology.homes[group[0]])}: "
            "it is the one of their domains in which all of them send and deliver",
            *about,
            "local",
        )
    if any(topology.domains[home].by_sender for home in topology.homes[group[0]]):
        raise TopologyError(f"{what}: local is not for relays of a link with mode = 'fifo'", *about, "local")
    ordering = ordering_named(topology.domains[local].ordering)
    if not ordering.traits.direct:
        raise TopologyError(
            f"{what}: local = {local!r}, which runs {ordering.traits.name}: there what a replica puts in comes back to it later; "
            "use vector or matrix, or leave local out and let others send",
            *about,
            "local",
        )


def _check_gates(topology: Topology, replica: str, what: str, about: tuple[str, ...]) -> None:
    for home in topology.homes[replica]:
        ordering = ordering_named(topology.domains[home].ordering)
        if not ordering.traits.gated:
            able = ", ".join(name for name, other in ORDERINGS.items() if other.traits.gated)
            raise TopologyError(
                f"{what}: {replica!r} has replicas, and domain {home!r} runs {ordering.traits.name}, which cannot make them "
                f"wait for each other; there are: {able}",
                *about,
            )


def check_known(table: str, name: str, known: Iterable[str], what: str, *about: str) -> None:
    """Refuse a name that is not among those that are known."""
    known = list(known)
    if name not in known:
        raise TopologyError(f"{table}: there is no {what} {name!r}{_hint(name, known)}", table, *about, name)


def check_joined(topology: Topology) -> None:
    """Refuse a fabric in which somebody cannot reach somebody else."""
    first = next(iter(topology.domains))
    reached = {first}
    queue = [first]
    peers: dict[str, list[str]] = {name: [] for name in topology.domains}
    by_member: dict[str, str] = {}
    for domain in topology.domains.values():
        for member in domain.members:
            other = by_member.setdefault(member, domain.name)
            peers[domain.name].append(other)
            peers[other].append(domain.name)
    for link in topology.links.values():
        peers[link.between[0]].append(link.between[1])
        peers[link.between[1]].append(link.between[0])
    for name in queue:
        for other in peers[name]:
            if other not in reached:
                reached.add(other)
                queue.append(other)
    for name in topology.domains:
        if name not in reached:
            raise TopologyError(
                f"domain {name!r} cannot be reached from {first!r}: let them share a member, or add a link", "domains", name
            )


def check_addresses(topology: Topology) -> None:
    """Refuse addresses that cannot be read."""
    for server, address in topology.addresses.items():
        try:
            parse_address(address)
        except ConfigError as error:
            raise TopologyError(f"server {server!r}: {error}", "servers", server, "address") from None


def check_promise(topology: Topology) -> None:
    """Refuse a promise that the domains and links do not keep."""
    if topology.promise == "nothing":
        return
    if topology.promise == "total" and len(topology.domains) - len(topology.inner) > 1:
        raise TopologyError(
            "promise = 'total': one order for all cannot be kept over several domains without changing their orderings; "
            "use one domain with ordering = 'sequenced', or promise = 'causal'",
            "promise",
        )
    for domain in topology.domains.values():
        if topology.promise not in ordering_named(domain.ordering).traits.guarantees:
            ordering = ordering_named(domain.ordering).traits.name
            raise TopologyError(
                f"domain {domain.name!r} runs {ordering}, which does not keep {topology.promise} order, so the fabric "
                "cannot promise it: choose another ordering, or promise less",
                "domains",
                domain.name,
            )
    for domain in topology.domains.values():
        if topology.promise == "causal" and (domain.by_sender or domain.only_from is not None):
            raise TopologyError(
                f"link {domain.name!r}: with mode = 'fifo' or only_from its relays are not enough coordinated, so what crosses "
                "may overtake its cause; use mode = 'causal' for all, or promise = 'fifo'",
                "links",
                domain.name,
            )
    for link in topology.links.values():
        if topology.promise == "causal" and link.mode != "causal":
            raise TopologyError(
                f"link {link.name!r} has mode = {link.mode_name!r}: its relays are not enough coordinated, so what crosses it "
                "may overtake its cause; use mode = 'causal', or promise = 'fifo'",
                "links",
                link.name,
            )
        if topology.promise == "causal" and link.only_from is not None:
            raise TopologyError(f"link {link.name!r}: only_from is for fabrics that promise fifo", "links", link.name)


def _replica_hint(topology: Topology, cycle: list[str]) -> str:
    processes = dict.fromkeys(cycle[1::2])
    alike = {frozenset(topology.homes.get(process, (process,))) for process in processes}
    return f"; or let {' and '.join(processes)} stand for one relay, as replicas" if len(alike) == 1 else ""


def refuse_cycles(topology: Topology) -> None:
    """Refuse a fabric in which a message can overtake its cause."""
    # Where only FIFO is promised, different senders may use different ways, as long as each has only one.
    ways = [*topology.links.values(), *topology.domains.values()]
    origins = {name for way in ways for name in way.only_from or ()} if topology.promise == "fifo" else set()
    others = next((process for process in topology.processes if process not in origins), None)
    senders = [*sorted(origins), *([others] if others else [])] if topology.promise == "fifo" else [None]
    cycle = next((found for origin in senders if (found := topology.find_cycle(origin))), None)
    if cycle is None:
        return
    drawn = " - ".join(cycle)
    joints = " or ".join(dict.fromkeys(cycle[1::2]))
    raise TopologyError(
        f"a cycle: {drawn}. Around a cycle a message can overtake its cause: take {joints} out of one of these domains, "
        f"or put them all into one{_replica_hint(topology, cycle)}",
        "domains",
        cycle[-1],
    )


def check_name(name: str, *about: str, spaces: bool = False) -> None:
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
