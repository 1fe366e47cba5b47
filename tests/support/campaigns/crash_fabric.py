"""What a crash campaign spoils: servers on faulty disks, programs with clients, and the proxies between them all.

Rules:

* A server that ends though nobody killed it breaks a promise, unless its disk failed under it: then it must say so.
* All processes are stopped, whatever happens. They are also killed by the system if this program dies.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from tests.support.campaigns.crash_plan import NEWCOMERS, changes_in, fabric, groups, plan, stable_addresses
from tests.support.campaigns.crash_verdict import histories
from tests.support.servers.faulty_disk import Control, Disk
from tests.support.servers.server_processes import STOP_WITHIN_S, kill_processes, last_words, start_process
from thence.core.topology.toml import write
from thence.net.proxy import Mode, Proxy
from thence.server.proxied_lines import Lines

START_WITHIN_S: Final = 120.0
MAX_WRONG: Final = 20
"""A run with more that is wrong is given up."""
MAX_SMALL_S: Final = 2.0
"""How long a fault of a small run lasts at most."""
MAX_DOWN: Final = 4
"""How many servers are down at the same time at most."""
SPILLING_STARTS: Final = 0.6
"""How often a server that starts is told to spill."""
SYNCS_US: Final = (0, 1_000, 5_000)
"""How long a sync of a server takes."""


class Options(NamedTuple):
    """How hard a run is."""

    seed: int
    fault_s: float = 60.0
    """How long faults come."""
    mean_pause_s: float = 0.8
    """How long it is from one fault to the next, on average."""
    mean_gap_s: float = 0.15
    """How long a client rests between two things that it does."""
    kill_clients: bool = True
    small: bool = False
    """Five servers, and not twelve, and no fault for long."""
    trace: bool = True
    """Whether servers write a trace. One that is put on an old copy of its store does not fit the trace it wrote before."""
    program: str = ""
    """The module to run servers from; nothing: as the seed has it."""
    lie: bool = False
    """A planted mistake: syncs of servers do nothing, and say that they did."""


class Fabric:
    """Everything that runs."""

    def __init__(self, options: Options, folder: Path) -> None:
        """``start`` starts it; ``close`` must be called whatever happens."""
        self.options = options
        self.folder = folder.resolve()
        self.topology = fabric(options.seed, small=options.small)
        """The version in force."""
        self.clients = groups(self.topology)
        """By domain, as it was first: those of one domain run in one program."""
        self.addresses: dict[str, str] = {}
        """Where servers listen, those too that may join."""
        self.chance = Random(f"crashes/{options.seed}")
        self.faults: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.servers: dict[str, subprocess.Popen[bytes]] = {}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        """The programs with clients, by their domain."""
        self._started: list[subprocess.Popen[bytes]] = []
        """All servers and programs, those too that another one has replaced."""
        self._programs: Counter[str] = Counter()
        """How many programs with the clients of each domain were started; their number begins the names of their lives."""
        self.dead: list[str] = []
        """Servers that died for good."""
        self.busy: set[str] = set()
        """Servers and programs with which something is being done."""
        self.failed_disks: dict[str, subprocess.Popen[bytes]] = {}
        """Servers whose disk failed, as they were started then. They may go on, or stop at any time later and say why."""
        self.lines: Lines
        self.links: dict[tuple[str, str], Proxy] = {}
        self.doors: dict[str, Proxy] = {}
        """The proxies between servers and their clients."""
        self.disks: dict[str, Disk] = {}
        self.clocks: dict[str, Control] = {}
        """Of the programs with clients."""

    # The beginning.

    async def start(self) -> None:
        """Start everybody, and wait until all clients know each other."""
        for name in ("clients", "logs", "data", "disks", "clocks", "die", "trace"):
            (self.folder / name).mkdir(parents=True)
        chance = Random(os.urandom(8))  # Another run with the same seed may be under way.
        names = self.topology.processes
        spares = NEWCOMERS if changes_in(self.options.seed, small=self.options.small) else ()
        everybody = (*names, *spares)
        self.addresses = dict(zip(everybody, stable_addresses(len(everybody), chance), strict=True))
        addresses = {name: self.addresses[name] for name in names}
        lines = self.lines = Lines(self.topology.at(addresses), self.chance)
        self.links = lines.proxies
        self.doors = {name: Proxy(addresses[name], self.chance) for name in names}
        for proxy in self.proxies:
            await proxy.start()
        for name in names:
            self.write_file(name)
            self.add_disk(name)
        members = self.clients
        urls = {client: f"thence://{self.doors[client.split('-')[0]].address}" for group in members.values() for client in group}
        planned = plan(self.topology, self.options.seed, urls, self.options.mean_gap_s)
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(planned))
        self.set_phase("join")
        for name in names:
            self.start_server(name)
        for domain in members:
            self.clocks[domain] = Control(self.folder / "clocks" / domain)
            self.start_worker(domain)
        await self.until(lambda: self._all_noted("joined"), START_WITHIN_S, "not all clients joined")
        self.set_phase("hello")
        await self.until(lambda: self._all_noted("ready"), START_WITHIN_S, "not all clients know of each other")

    def write_file(self, name: str) -> None:
        """Write the topology with which a server is to start from now on."""
        (self.folder / f"{name}.toml").write_text(write(self.lines.seen_by(name)), encoding="utf-8")

    def add_disk(self, name: str) -> None:
        """Give a server an empty disk."""
        self.disks[name] = Disk(self.folder / "data" / name, self.folder / "disks" / name)
        self.disks[name].set(sync_us=self.chance.choice(SYNCS_US), lie=int(self.options.lie))

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        """All proxies."""
        return (*self.links.values(), *self.doors.values())

    def set_phase(self, phase: str) -> None:
        """Tell clients what to do."""
        unfinished_phase = self.folder / "phase.tmp"
        unfinished_phase.write_text(phase, encoding="ascii")
        unfinished_phase.rename(self.folder / "phase")

    def _all_noted(self, kind: str) -> bool:
        told = histories(self.folder)
        clients = sum(map(len, self.clients.values()))
        return len(told) == clients and all(any(line.kind == kind for line in lines) for lines in told.values())

    async def until(self, condition: Callable[[], object], within_s: float, otherwise: str) -> None:
        """Wait until something holds, or raise TimeoutError."""
        deadline = time.monotonic() + within_s
        while not condition():
            self.look_for_the_dead()
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            await asyncio.sleep(0.3)

    def how_long(self, *choices_s: float) -> float:
        """Draw how long a fault lasts."""
        return min(self.chance.choice(choices_s), MAX_SMALL_S if self.options.small else choices_s[-1])

    def give_up_if_broken(self) -> None:
        """Raise TimeoutError when so much is wrong that more of it would tell nothing."""
        if len(self.wrong) > MAX_WRONG:
            raise TimeoutError(f"given up: more than {MAX_WRONG} things are wrong")

    # Processes.

    def start_server(self, name: str, *options: str) -> None:
        """Start a server, or start it again."""
        arguments = [*self.server_arguments(name), *options]
        if self.chance.random() < SPILLING_STARTS:  # A server may spill once and not the next time.
            arguments += ["--backlog", "spill", "--spill-after-bytes", "4000"]
        self.servers[name] = start_process(self.folder, name, arguments, self.disks[name].environment())
        self._started.append(self.servers[name])

    def server_arguments(self, name: str, file: str = "") -> list[str]:
        """Return what a server is started with; its topology and its store are called ``file``, or as it is."""
        # Every other run has small limits, which are reached all the time.
        program = "tests.support.servers.small_server" if self.options.seed % 2 else "thence.cli.main"
        arguments = ["-m", self.options.program or program, "serve", str(self.folder / f"{file or name}.toml")]
        arguments += ["--server", name, "--drain", "3", "--data", str(self.folder / "data" / (file or name))]
        if not file:  # After a change its store has the addresses of proxies.
            arguments += ["--listen", self.addresses[name]]
        return arguments + (["--trace", str(self.folder / "trace")] if self.options.trace else [])

    def start_worker(self, domain: str) -> None:
        """Start a program with clients, or start it again."""
        clients = self.clients[domain]
        arguments = ["-m", "tests.support.campaigns.crash_clients", str(self.folder), *clients]
        self._programs[domain] += 1
        environment = {**self.clocks[domain].environment(), "CRASH_PROGRAM": f"{self._programs[domain]}-"}
        self.workers[domain] = start_process(self.folder, f"clients-{domain}", arguments, environment)
        self._started.append(self.workers[domain])

    def all_joined(self, domain: str) -> bool:
        """Return whether each client of the newest program was let in."""
        told, mark = histories(self.folder), f"{self._programs[domain]}-"
        joined = {name for name, lines in told.items() for line in lines if line.kind == "joined" and line.life.startswith(mark)}
        return joined >= set(self.clients[domain])

    def look_for_the_dead(self) -> None:
        """Notice who ended though nobody told it to, and start it again."""
        for table, start in ((self.servers, self.start_server), (self.workers, self.start_worker)):
            for name, process in list(table.items()):
                if name not in self.busy and process.poll() is not None:
                    if self.failed_disks.get(name) is process and self.says_that_its_disk_failed(name):
                        start(name)
                        continue
                    self.wrong.append(f"{name} ended by itself with {process.returncode}: {self.last_words(name)}")
                    self.give_up_if_broken()
                    start(name)

    def says_that_its_disk_failed(self, name: str) -> bool:
        """Return whether a server has ended with an error that names its store."""
        self.faults["servers stopped for a disk that failed"] += 1
        return self.servers[name].returncode > 0 and str(self.disks[name].root) in self.last_words(name)

    def last_words(self, name: str) -> str:
        """Return the end of somebody's log."""
        return last_words(self.folder, name if name in self.servers else f"clients-{name}")

    def choose_server(self) -> str | None:
        """Choose a server that is up, unless enough of them are down; it is busy until that is taken back."""
        down = [name for name in self.servers if name in self.busy]
        up = [name for name in self.servers if name not in self.busy]
        if len(down) >= min(MAX_DOWN, len(self.servers) - 1):
            return None
        name = self.chance.choice(up)
        self.busy.add(name)
        return name

    def choose_worker(self) -> str | None:
        """Choose a program with clients that is up; it is busy until that is taken back."""
        free = [domain for domain in self.workers if domain not in self.busy]
        if not free:
            return None
        domain = self.chance.choice(free)
        self.busy.add(domain)
        return domain

    def kill(self, *names: str) -> None:
        """Kill servers, all at once."""
        for name in names:
            self.servers[name].kill()
        for name in names:
            self.servers[name].wait()

    async def ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until somebody who was told to stop has; one that does not breaks a promise."""
        deadline = time.monotonic() + STOP_WITHIN_S
        while process.poll() is None:
            if time.monotonic() > deadline:
                self.wrong.append(f"{name} does not stop within {STOP_WITHIN_S:g} s: {self.last_words(name)}")
                process.kill()
            await asyncio.sleep(0.05)

    # The end.

    def heal(self) -> None:
        """Let nothing go wrong any more, but for mistakes that are planted."""
        for proxy in self.proxies:
            proxy.set_mode(Mode.WELL)
        for disk in (*self.disks.values(), *self.clocks.values()):
            disk.heal()
        for disk in self.disks.values():
            disk.set(lie=int(self.options.lie))

    async def stop(self) -> None:
        """Let everybody end in peace."""
        self.set_phase("end")
        for domain, worker in self.workers.items():
            await self.ended(domain, worker)
        for server in self.servers.values():
            server.terminate()
        for name, server in self.servers.items():
            await self.ended(name, server)
        ended = {**self.servers, **self.workers}
        self.wrong += [
            f"{name} stopped with {process.returncode}: {self.last_words(name)}"
            for name, process in ended.items()
            if process.returncode
        ]

    async def close(self) -> None:
        """Leave nobody behind."""
        kill_processes(self._started)
        await asyncio.gather(*(proxy.close() for proxy in self.proxies))
