"""Whom a change of the topology concerns: who has to hold for it, and what goes on as if nothing happened.

Design note: docs/how-to/reconfiguration.md. Source: daisy §3.1.1 (when a group splits, only those who depart stop sending).

A domain or link *goes on* if it is the same before and after, and all that comes into it from elsewhere comes in by the same
members. Its orderings, channels and numbers outlive the switch, and messages may be on their way in it meanwhile. All others
are replaced. Who is in one that is replaced is *concerned*: it holds. The others take part without a pause.

Rules:

* A place whose *entries* change is replaced, though its members stay. Otherwise two messages of one process could come in by two
  members, the first of them by the old way, and nothing would keep their order.
* So whoever is not concerned takes the same decision for every message before and after: by which of its places it goes on.
* Who stands for which relay, and in which domain it sends, is part of each place that it is in.
* Who comes in is in places that are replaced. Nobody sends to it by name, or takes anything from it, before it has the new
  version: a connection stands for one. What is for everyone says of which version (``Envelope.version``): who is outside may
  send on in the old one, and what then crosses the border is forwarded by those who came in, and delivered by none of them.
  So for every message it is certain for whom it is, and all others have the new routes before they can need them.
* What stays from version to version beyond a single place concerns everybody: who leaves, what is counted across the fabric
  (stability, safety), and who may use which link.
* Nobody *leaves* while others go on: what these have sent to it, or it to them, may still be on its way anywhere, and the new
  version has no routes for it. Nor is anybody *lost*: what survivors owe each other may be of any place that it went through.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from thence.core.topology.link import Link
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes


def why_everybody(old: Topology, new: Topology, lost: Collection[str] = ()) -> str:
    """Say why a change concerns all processes; empty: it need not."""
    if lost:
        return "the others have to compare what they have of those who are lost"
    if not set(old.homes) <= set(new.homes):
        return "what is on its way to those who leave, or from them, has to arrive before"
    for topology in (old, new):
        if topology.stability or any(domain.delivery != "at once" for domain in topology.domains.values()):
            return "it is counted across the whole fabric what all have"
        if any(domain.pairs for domain in topology.domains.values()):
            return "relays of a link that takes over share out what they carry"
        if any(way.only_from is not None for way in (*topology.links.values(), *topology.domains.values())):
            return "some links are not for everybody"
        if len(topology.domains) - len(topology.inner) == 1:
            return "there is a single domain"
    compared = Comparison(old, new)
    if old.streams != new.streams or not all(compared.goes_on(name) for name in new.streams):
        return "messages carry what was seen of the streams of relays, and these begin anew"
    return _why_for_replicas(old, compared)


def _why_for_replicas(old: Topology, compared: Comparison) -> str:
    """Say of which replicas some domains go on and several others may not: they keep by domain what is to go there."""
    for group in old.replicas:
        if len(homes := old.homes[group[0]]) > 2 and 0 < sum(map(compared.goes_on, homes)) < len(homes):
            return f"{' and '.join(group)} stand for one relay of several domains of which some are replaced"
    return ""


class Comparison:
    """Two topologies that follow each other, compared place by place."""

    def __init__(self, old: Topology, new: Topology) -> None:
        """Compare nothing yet."""
        self._old = Routes(old)
        self._new = Routes(new)

    def goes_on(self, name: str) -> bool:
        """Return whether a domain or link stays as it is."""
        old, new = self._old.topology, self._new.topology
        if name in old.domains and name in new.domains:
            same = old.domains[name] == new.domains[name] and name not in old.inner and name not in new.inner
            return same and self._stands_alike(name) and self._enters_alike(name)
        link = old.links.get(name)
        if link is None or link != new.links.get(name) or not all(end in new.domains for end in link.between):
            return False
        return all(self._lies_alike(link, domain) for domain in link.between)

    def _stands_alike(self, domain: str) -> bool:
        """Return whether the same members stand for the same relays before and after, and send in the same domains."""
        old, new = self._old.topology, self._new.topology
        return all(
            old.fellows.get(member) == new.fellows.get(member) and old.local.get(member) == new.local.get(member)
            for member in old.domains[domain].members
        )

    def _enters_alike(self, domain: str) -> bool:
        """Return whether everybody's messages come into a domain by the same members before and after."""
        return all(self._old.entry(domain, origin) == self._new.entry(domain, origin) for origin in self._old.topology.homes)

    def _lies_alike(self, link: Link, domain: str) -> bool:
        """Return whether everybody is on the same side of a link before and after, and uses the same relay."""
        old, new = self._old, self._new
        return all(
            old.beyond(link, domain, origin) == new.beyond(link, domain, origin)
            and (link.mode == "causal" or old.relay_of(link, domain, origin) == new.relay_of(link, domain, origin))
            for origin in old.topology.homes
        )

    def kept_by(self, process: str) -> tuple[str, ...]:
        """Return the places of a process that go on as they are."""
        return tuple(name for name in places_of(self._old.topology, process) if self.goes_on(name))

    def concerns(self, process: str) -> bool:
        """Return whether a place of a process is replaced, or it gets another one."""
        before, after = (set(places_of(routes.topology, process)) for routes in (self._old, self._new))
        return before != after or len(self.kept_by(process)) < len(before)

    def concerned(self) -> tuple[str, ...]:
        """Return all who are in a place that is replaced."""
        old, new = self._old.topology, self._new.topology
        stays = {name for name in (*old.domains, *old.links) if self.goes_on(name)}
        found = {member for topology in (old, new) for member in _members(topology, stays)}
        return tuple(name for name in old.processes if name in found)


def concerned_by(old: Topology, new: Topology, lost: Collection[str] = ()) -> tuple[str, ...]:
    """Return who holds for a change; who is lost does not."""
    if why_everybody(old, new, lost):
        return tuple(name for name in old.processes if name not in lost)
    return Comparison(old, new).concerned()


def places_of(topology: Topology, process: str) -> tuple[str, ...]:
    """Return the domains and links in which a process takes part."""
    links = (link.name for link in topology.links.values() if process in link.members)
    return (*topology.homes.get(process, ()), *links)


def _members(topology: Topology, stays: Collection[str]) -> Iterable[str]:
    """Give the members of all places but those that stay; what lies inside another domain is none."""
    for domain in topology.domains.values():
        if domain.name not in stays and domain.name not in topology.inner:
            yield from domain.members
    for link in topology.links.values():
        if link.name not in stays:
            yield from link.members
