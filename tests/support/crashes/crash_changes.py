"""The operator of a crash campaign: changes the fabric, version after version, and removes servers that died, under all faults.

Rules:

* One change at a time, led as ``thence topology apply`` does (``thence.server.apply``), by way of the proxies. A change that does
  not get through, or whose leader is stopped at a random moment, is led again until it is done.
* Who dies for good is killed and loses its disk. It is one that nobody misses by what the topology promises
  (``sim.faults.failures.mortal``), without clients of its own, since those would be lost with it. For a while the others go on
  without it; then it is declared lost, and for a replica a new server takes its place.
* Servers that have been told of a version start from its file from then on, so that they call each other by way of their own
  proxies.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from tests.support.campaigns.crash_fabric import Fabric
from tests.support.campaigns.crash_plan import CLIENTLESS, NEWCOMERS
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import ThenceError
from thence.net.protocol import ViewRequest
from thence.net.proxy import Proxy
from thence.server.apply import Access, Callers, TopologyChange
from thence.sim.faults.failures import mortal

TRIES_S: Final = (6.0, 15.0, 30.0)
"""How long a leader tries."""
CHANGE_WITHIN_S: Final = 240.0
"""How long a change may take, with all its leaders."""
REST_S: Final = 1.0
"""How long it is on average from one change to the next."""
MISSING_S: Final = (0.0, 1.0, 3.0, 6.0)
"""How long others go on without a dead server before it is removed."""
SPLIT: Final = "-2"
"""What the name of the other half of a domain ends with."""

KINDS: Final = ("splits", "merges", "joins", "leaves", "deaths for good")


class Operator:
    """Whoever changes the fabric of one run."""

    def __init__(self, run: Fabric) -> None:
        self._run = run
        self._chance = run.chance
        self._fresh: Iterator[str] = iter(NEWCOMERS)
        self.ending = False
        """Whether no other change is to begin."""

    async def work(self) -> None:
        """Change the fabric until it is to end."""
        kinds: dict[str, Callable[[], object]] = {
            "splits": self._split,
            "merges": self._merge,
            "joins": self._join,
            "leaves": self._leave,
            "deaths for good": self._die,
        }
        while not self.ending:
            await asyncio.sleep(self._chance.expovariate(1 / REST_S))
            missing = [kind for kind in KINDS if not self._run.faults[kind]]
            wanted = self._chance.choice(missing or KINDS)
            try:
                done = await kinds[wanted]()  # type: ignore[misc]
            except StopIteration:
                continue  # There is nobody left who could join.
            self._run.faults[wanted] += bool(done)

    # What changes.

    async def _split(self) -> bool:
        """A domain becomes two, joined by one who is in both, or by a link."""
        now = self._run.topology
        whole = [name for name in "AB" if name in now.domains and name + SPLIT not in now.domains]
        if not whole:
            return False
        name = self._chance.choice(whole)
        domain = now.domains[name]
        clients = [member for member in domain.members if member[0] not in CLIENTLESS]
        leaving, joint = clients[-1], clients[0]
        stay = tuple(member for member in domain.members if member != leaving)
        linked = self._chance.random() < 0.5
        domains = {**now.domains, name: domain._replace(members=stay)}
        domains[name + SPLIT] = domain._replace(name=name + SPLIT, members=(leaving,) if linked else (joint, leaving))
        links = [Link(name + SPLIT + "l", (name, name + SPLIT), ((joint, leaving),))] if linked else []
        return await self._change(self._version(domains, [*now.links.values(), *links]))

    async def _merge(self) -> bool:
        """Two domains become one again."""
        now = self._run.topology
        halves = [name for name in now.domains if name.endswith(SPLIT)]
        if not halves:
            return False
        half = self._chance.choice(halves)
        name = half.removesuffix(SPLIT)
        members = tuple(dict.fromkeys((*now.domains[name].members, *now.domains[half].members)))
        domains = {key: domain for key, domain in now.domains.items() if key != half}
        domains[name] = domains[name]._replace(members=members)
        return await self._change(self._version(domains, [link for link in now.links.values() if half not in link.between]))

    async def _join(self) -> bool:
        """A new server comes into a domain."""
        now, new = self._run.topology, next(self._fresh)
        name = self._chance.choice("AB")
        domains = {**now.domains, name: now.domains[name]._replace(members=(*now.domains[name].members, new))}
        return await self._change(self._version(domains, list(now.links.values())))

    async def _leave(self) -> bool:
        """A server without clients goes, and is stopped."""
        now = self._run.topology
        able = [name for name in now.processes if name[0] in "nv" and name not in now.relays]
        if not able:
            return False
        gone = self._chance.choice(able)
        domains = {key: _without(domain, gone) for key, domain in now.domains.items()}
        if not await self._change(self._version(domains, list(now.links.values()))):
            return False
        await self._stop(gone)
        return True

    async def _die(self) -> bool:
        """A server is gone for good, with its disk; others go on without it for a while, and then it is removed."""
        run, now = self._run, self._run.topology
        able = [name for name in mortal(now) if name[0] in CLIENTLESS and name not in run.busy]
        if not able:
            return False
        gone = self._chance.choice(able)
        run.busy.add(gone)
        run.kill(gone)
        shutil.rmtree(run.folder / "data" / gone)
        del run.servers[gone], run.disks[gone]
        run.busy.discard(gone)
        run.dead.append(gone)
        run.faults["replicas that died for good"] += gone in now.fellows
        await asyncio.sleep(self._chance.choice(MISSING_S))
        new = next(self._fresh) if gone in now.fellows or self._chance.random() < 0.5 else None
        domains = {key: _without(domain, gone, new) for key, domain in now.domains.items()}
        instead = {gone: new} if new else {}
        return await self._change(self._version(domains, list(now.links.values()), instead), (gone,))

    def _version(
        self, domains: Mapping[str, Domain], links: Sequence[Link], instead: Mapping[str, str] | None = None
    ) -> Topology:
        """Return the next version; ``instead`` says who stands for a relay in whose place."""
        now, instead = self._run.topology, instead or {}
        return Topology(
            now.name,
            domains.values(),
            links,
            replicas=[tuple(instead.get(name, name) for name in group) for group in now.replicas],
            local={instead.get(name, name): home for name, home in now.local.items()},
            version=now.version + 1,
        )

    # How it is done.

    async def _change(self, new: Topology, lost: tuple[str, ...] = ()) -> bool:
        """Lead the fabric to its next version, as often as it takes."""
        run, old = self._run, self._run.topology
        await run.lines.follow(new.at({name: run.addresses[name] for name in new.processes}))
        for name in new.processes:
            if name not in old.homes:
                await self._bring_in(name)
        asked = {name: run.doors[name].address for name in {**old.homes, **new.homes} if name in run.doors}
        deadline = time.monotonic() + CHANGE_WITHIN_S
        trouble = ""
        while time.monotonic() < deadline:
            run.faults["commands"] += 1
            change = TopologyChange(_at(old, asked), _at(new, asked), Access(), lambda _: None, lost)
            tries_s = self._chance.choice(TRIES_S)
            try:
                if self._chance.random() < 0.3:  # It dies at some moment, and leaves the others where they are.
                    await asyncio.wait_for(change.apply(tries_s), self._chance.uniform(0.05, 3.0))
                else:
                    await change.apply(tries_s)
            except TimeoutError:
                run.faults["commands that died"] += 1
            except ThenceError as error:
                trouble = str(error)
                run.faults["commands that gave up"] += 1
                await asyncio.sleep(0.3)
            else:
                await self._settle(old, new, asked)
                return True
        run.wrong.append(f"not done within {CHANGE_WITHIN_S:g} s: version {new.version}, without {lost}: {trouble}")
        return False

    async def _bring_in(self, name: str) -> None:
        run = self._run
        door = run.doors[name] = Proxy(run.addresses[name], run.chance)
        await door.start()
        run.write_file(name)
        run.add_disk(name)
        run.start_server(name)

    async def _settle(self, old: Topology, new: Topology, asked: Mapping[str, str]) -> None:
        """The version is in force: let those who know of it start from its file."""
        run = self._run
        run.topology = new
        callers = Callers({name: asked[name] for name in new.processes}, Access())
        answers = await callers.ask_all({name: ViewRequest("ask") for name in new.processes})
        await callers.close()
        for name, answer in answers.items():
            if answer.standing.version == new.version:
                run.write_file(name)

    async def _stop(self, name: str) -> None:
        """Stop a server that has left."""
        run = self._run
        while name in run.busy:  # noqa: ASYNC110 - as long as another fault has it
            await asyncio.sleep(0.1)
        run.busy.add(name)
        server = run.servers[name]
        server.terminate()
        await run.ended(name, server)
        del run.servers[name], run.disks[name]
        run.busy.discard(name)


def _without(domain: Domain, gone: str, new: str | None = None) -> Domain:
    members = tuple(new if name == gone else name for name in domain.members)
    return domain._replace(members=tuple(name for name in members if name is not None and name != gone))


def _at(topology: Topology, addresses: Mapping[str, str]) -> Topology:
    return topology.at({name: addresses[name] for name in topology.processes if name in addresses})
