"""What changes from one topology to the next, in words: for whoever is about to apply it, and for programs.

Rules:

* Each difference is told once, by the name under which people think of it: a domain that splits is no list of members that move.
* Nothing is guessed from the order of names in a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from thence.core.ordering import ordering_named
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology


class DiffLine(NamedTuple):
    """One thing that changes: what kind of change, what it is about, and how one would say it."""

    kind: str
    """``join``, ``leave``, ``split``, ``merge``, ``domain``, ``move``, ``ordering``, ``link``, ``replicas``, ``promise``,
    ``stability`` or ``address``."""
    about: str
    said: str


def differences(old: Topology, new: Topology) -> list[DiffLine]:
    """Return everything that changes."""
    found = [
        *_servers(old, new),
        *_domains(old, new),
        *_orderings(old, new),
        *_links(old, new),
        *_takeovers(old, new),
        *_replicas(old, new),
    ]
    if old.promise != new.promise:
        found.append(DiffLine("promise", new.promise, f"the fabric promises {new.promise}, not {old.promise} any more"))
    if old.stability != new.stability:
        until = "every recipient" if new.stability else "the next process on its way"
        found.append(DiffLine("stability", new.name, f"messages are kept until {until} has them"))
    for name, address in new.addresses.items():
        before = old.addresses.get(name)
        if before is not None and before != address:
            found.append(DiffLine("address", name, f"{name} listens on {address}, not {before} any more"))
    return found


def _servers(old: Topology, new: Topology) -> Iterator[DiffLine]:
    for name in new.processes:
        if name not in old.homes:
            yield DiffLine("join", name, f"{name} joins, in {_listed(_domains_of(new, name))}")
    for name in old.processes:
        if name not in new.homes:
            yield DiffLine("leave", name, f"{name} leaves")


def _domains(old: Topology, new: Topology) -> Iterator[DiffLine]:
    explained: set[str] = set()
    for name, domain in new.domains.items():
        if name in old.domains or name in old.links:
            continue
        staying = [member for member in domain.members if member in old.homes]
        source = next((other for other in old.domains.values() if staying and set(staying) <= set(other.members)), None)
        rest = new.domains.get(source.name) if source is not None else None
        if source is not None and (rest is None or not set(staying) <= set(rest.members)):
            kept = f"{source.name} keeps {_listed(rest.members)}" if rest is not None else f"there is no {source.name} any more"
            yield DiffLine("split", source.name, f"domain {source.name} splits: {name} takes {_listed(domain.members)}; {kept}")
            explained |= set(source.members)
        else:
            yield DiffLine("domain", name, f"domain {name} is new, with {_listed(domain.members)}")
            explained |= set(domain.members)
    for name, domain in old.domains.items():
        if name in new.domains or name in new.links:
            continue
        staying = [member for member in domain.members if member in new.homes]
        target = next((other for other in new.domains.values() if staying and set(staying) <= set(other.members)), None)
        if target is not None and target.name in old.domains:
            yield DiffLine("merge", target.name, f"domain {name} is merged into {target.name}")
        elif target is None:
            yield DiffLine("domain", name, f"domain {name} is dissolved")
        explained |= set(domain.members)
    yield from _moves(old, new, explained)


def _moves(old: Topology, new: Topology, explained: set[str]) -> Iterator[DiffLine]:
    for name in new.processes:
        if name not in old.homes or name in explained:
            continue
        before = [domain for domain in _domains_of(old, name) if domain not in new.links]
        after = [domain for domain in _domains_of(new, name) if domain not in old.links]
        left = [domain for domain in before if domain not in after]
        entered = [domain for domain in after if domain not in before]
        if left and entered:
            yield DiffLine("move", name, f"{name} moves from {_listed(left)} to {_listed(entered)}")
        elif entered:
            yield DiffLine("move", name, f"{name} is also in {_listed(entered)} from now on")
        elif left:
            yield DiffLine("move", name, f"{name} is in {_listed(left)} no more")


def _orderings(old: Topology, new: Topology) -> Iterator[DiffLine]:
    for name, domain in new.domains.items():
        before = old.domains.get(name)
        if before is not None and _kept_by(before) != _kept_by(domain):
            yield DiffLine("ordering", name, f"domain {name} runs {_kept_by(domain)}, not {_kept_by(before)} any more")
        elif before is not None and _works(before) != _works(domain):
            yield DiffLine("ordering", name, f"domain {name} acks, forwards or delivers otherwise")
        if before is not None:
            yield from _pairs_of(name, f"domain {name}", before.pairs, domain.pairs)


def _links(old: Topology, new: Topology) -> Iterator[DiffLine]:
    for name, link in new.links.items():
        if name in old.domains:
            continue
        before = old.links.get(name)
        joins = f"between {link.between[0]} and {link.between[1]}"
        if before is None:
            yield DiffLine("link", name, f"link {name} is new, {joins}: {_pairs(link.relays)}")
            continue
        yield from _pairs_of(name, f"link {name} {joins}", before.relays, link.relays)
        if _rest(before) != _rest(link):
            yield DiffLine("link", name, f"link {name} {joins} works otherwise: mode {link.mode}")
    for name, link in old.links.items():
        if name not in new.links and name not in new.domains:
            yield DiffLine("link", name, f"there is no link {name} between {link.between[0]} and {link.between[1]} any more")


def _takeovers(old: Topology, new: Topology) -> Iterator[DiffLine]:
    """Give the links that become the domains of their relays, which such with ``takeover`` are, and the other way round."""
    for name, link in old.links.items():
        if name in new.domains:
            yield DiffLine("link", name, f"the relays of link {name} take over from each other")
            yield from _pairs_of(name, f"link {name}", link.relays, new.domains[name].pairs)
    for name, link in new.links.items():
        if name in old.domains:
            yield DiffLine("link", name, f"the relays of link {name} take over from each other no more")
            yield from _pairs_of(name, f"link {name}", old.domains[name].pairs, link.relays)


def _replicas(old: Topology, new: Topology) -> Iterator[DiffLine]:
    """Give who stands for one relay with whom from now on, or no more, where that is not a matter of links."""
    linked = [domain for topology in (old, new) for domain in topology.domains.values() if domain.pairs]
    linked_sides = {frozenset(side) for domain in linked for side in zip(*domain.pairs, strict=True)}
    before = {frozenset(group): group for group in old.replicas if all(replica in new.homes for replica in group)}
    after = {frozenset(group): group for group in new.replicas}
    for members in after.keys() - before.keys() - linked_sides:
        yield DiffLine(
            "replicas", after[members][0], f"{_listed(after[members])} stand for one relay and take over from each other"
        )
    for group in after.values():
        local = new.local.get(group[0])
        if local != old.local.get(group[0]):
            does = f"send and deliver in {local}" if local is not None else "send nothing any more"
            yield DiffLine("replicas", group[0], f"{_listed(group)} {does}")
    for members in before.keys() - after.keys() - linked_sides:
        yield DiffLine("replicas", before[members][0], f"{_listed(before[members])} do not stand for one relay any more")


def _pairs_of(name: str, said: str, old: Sequence[tuple[str, str]], new: Sequence[tuple[str, str]]) -> Iterator[DiffLine]:
    added = [pair for pair in new if pair not in old]
    removed = [pair for pair in old if pair not in new]
    if added:
        yield DiffLine("link", name, f"{said} gets {_pairs(added)}")
    if removed:
        yield DiffLine("link", name, f"{said} loses {_pairs(removed)}")


def _domains_of(topology: Topology, process: str) -> list[str]:
    return [name for name, domain in topology.domains.items() if process in domain.members]


def _kept_by(domain: Domain) -> str:
    options = ", ".join(f"{key} = {value}" for key, value in sorted(domain.options.items()))
    name = ordering_named(domain.ordering).traits.name
    return f"{name} ({options})" if options else name


def _works(domain: Domain) -> tuple[object, ...]:
    sites = () if domain.pairs else domain.acks.sites  # Else they are those of the pairs.
    acks = msgspec.structs.replace(domain.acks, sites=sites)
    return acks, domain.forward_early, domain.delivery, domain.by_sender, domain.only_from


def _rest(link: Link) -> tuple[object, ...]:
    return link.between, link.mode, link.only_from


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{one} and {other}" for one, other in pairs)


def _listed(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
