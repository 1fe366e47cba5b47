"""The crash campaign: real servers and clients, killed, cut off, slowed down, corrupted and out of disk; then healed, and judged.

Everything that chance decides is drawn from the seed; when the machine does it is another matter, so a run with the same seed
is similar and not the same. A run that breaks a promise keeps its folder.

Rules:

* Faults come one after the other and overlap; each ends by itself. In the end all have ended, all servers are up, and everything
  that was accepted must arrive within ``HEAL_WITHIN_S``.
* A server that ends though nobody killed it breaks a promise, whatever the judge says.
* All processes are stopped, whatever happens. They are also killed by the system if this program dies.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import msgspec

from tests.integration.crash_plan import fabric, groups, plan, stable_addresses
from tests.integration.crash_verdict import histories, judge_clients, judge_servers, unfinished
from tests.integration.server_processes import STOP_WITHIN_S, Outcome, in_folder, kill_processes, last_words, start_process
from thence.core.topology_text import write
from thence.runtime.client import ask_status
from thence.runtime.lines import Lines
from thence.runtime.proxy import Mode, Proxy

HEAL_WITHIN_S: Final = 180.0
START_WITHIN_S: Final = 120.0
MAX_DOWN: Final = 4
"""How many servers are down at the same time at most."""
MAX_WRONG_TOLD: Final = 10
SPILLING_STARTS: Final = 0.6
"""How often a server that starts is told to spill."""


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


class Crashes:
    """One run. ``run`` does all of it."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.topology = fabric(options.seed)
        self.faults: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._chance = Random(f"crashes/{options.seed}")
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._busy: set[str] = set()
        """Servers, programs and links with which something is being done."""
        self._links: dict[tuple[str, str], Proxy] = {}
        self._doors: dict[str, Proxy] = {}
        """The proxies between servers and their clients."""
        self._healing_s = 0.0

    async def run(self) -> Outcome:
        """Start, spoil, heal, judge and stop."""
        began = time.monotonic()
        counts: Counter[str] = Counter()
        try:
            await self._start()
            await self._spoil()
            began_to_heal = time.monotonic()
            await self._heal()
            self._healing_s = time.monotonic() - began_to_heal
            await self._stop()
            for judged in (judge_clients, judge_servers):
                found, wrong = judged(self.folder)
                counts.update(found)
                self.wrong += wrong
        except TimeoutError as error:
            self.wrong.append(f"not in time: {error}")
        finally:
            kill_processes((*self._servers.values(), *self._workers.values()))
            await asyncio.gather(*(proxy.close() for proxy in (*self._links.values(), *self._doors.values())))
        flipped = sum(proxy.bits_flipped for proxy in (*self._links.values(), *self._doors.values()))
        self.faults["bits flipped"] = flipped
        return Outcome(counts, self.faults, self.wrong, self.folder, time.monotonic() - began, self._healing_s)

    # The beginning.

    async def _start(self) -> None:
        for name in ("clients", "logs", "data", "trace"):
            (self.folder / name).mkdir(parents=True)
        chance = Random(os.urandom(8))  # Another run with the same seed may be under way.
        names = self.topology.processes
        addresses = dict(zip(names, stable_addresses(len(names), chance), strict=True))
        lines = Lines(self.topology.at(addresses), self._chance)
        self._links = lines.proxies
        self._doors = {name: Proxy(addresses[name], self._chance) for name in names}
        for proxy in (*self._links.values(), *self._doors.values()):
            await proxy.start()
        for name in names:
            (self.folder / f"{name}.toml").write_text(write(lines.seen_by(name)), encoding="utf-8")
        members = groups(self.topology)
        urls = {client: f"thence://{self._doors[client.split('-')[0]].address}" for group in members.values() for client in group}
        planned = plan(self.topology, self.options.seed, urls, self.options.mean_gap_s)
        (self.folder / "plan.json").write_bytes(msgspec.json.encode(planned))
        self._set_phase("join")
        for name in names:
            self._start_server(name)
        for domain in members:
            self._start_worker(domain)
        await self._until(lambda: self._all_noted("joined"), START_WITHIN_S, "not all clients joined")
        self._set_phase("hello")
        await self._until(lambda: self._all_noted("ready"), START_WITHIN_S, "not all clients know of each other")

    def _set_phase(self, phase: str) -> None:
        unfinished_phase = self.folder / "phase.tmp"
        unfinished_phase.write_text(phase, encoding="ascii")
        unfinished_phase.rename(self.folder / "phase")

    def _all_noted(self, kind: str) -> bool:
        told = histories(self.folder)
        clients = sum(map(len, groups(self.topology).values()))
        return len(told) == clients and all(any(line.kind == kind for line in lines) for lines in told.values())

    async def _until(self, condition: Callable[[], object], within_s: float, otherwise: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            self._look_for_the_dead()
            if time.monotonic() > deadline:
                raise TimeoutError(otherwise)
            await asyncio.sleep(0.3)

    # Processes.

    def _start_server(self, name: str, *options: str) -> None:
        # Every other run has small limits, which are reached all the time.
        program = "tests.integration.small_server" if self.options.seed % 2 else "thence.cli.main"
        arguments = ["-m", program, "serve", str(self.folder / f"{name}.toml"), "--server", name, "--drain", "3"]
        arguments += ["--data", str(self.folder / "data" / name), "--trace", str(self.folder / "trace"), *options]
        if self._chance.random() < SPILLING_STARTS:  # A server may spill once and not the next time.
            arguments += ["--backlog", "spill", "--spill-after-bytes", "4000"]
        self._servers[name] = start_process(self.folder, name, arguments)

    def _start_worker(self, domain: str) -> None:
        clients = groups(self.topology)[domain]
        arguments = ["-m", "tests.integration.crash_clients", str(self.folder), *clients]
        self._workers[domain] = start_process(self.folder, f"clients-{domain}", arguments)

    def _look_for_the_dead(self) -> None:
        """Notice who ended though nobody told it to, and start it again."""
        for table, start in ((self._servers, self._start_server), (self._workers, self._start_worker)):
            for name, process in list(table.items()):
                if name not in self._busy and process.poll() is not None:
                    self.wrong.append(f"{name} ended by itself with {process.returncode}: {self._last_words(name)}")
                    start(name)

    def _last_words(self, name: str) -> str:
        return last_words(self.folder, name if name in self._servers else f"clients-{name}")

    # Faults.

    async def _spoil(self) -> None:
        self._set_phase("traffic")
        deadline = time.monotonic() + self.options.fault_s
        faults: dict[asyncio.Task[None], None] = {}
        kinds: list[tuple[float, Callable[[], Coroutine[None, None, None]]]] = [
            (5, self._kill_server),
            (1, self._kill_domain),
            (2, self._drain_server),
            (2, self._fill_disk),
            (1, self._limit_store),
            (4, self._spoil_link),
            (2, self._spoil_door),
            (1.5, self._partition),
            (1.5 if self.options.kill_clients else 0, self._kill_worker),
        ]
        weights = [weight for weight, _ in kinds]
        while time.monotonic() < deadline:
            await asyncio.sleep(min(self._chance.expovariate(1 / self.options.mean_pause_s), 5.0))
            self._look_for_the_dead()
            ((_, fault),) = self._chance.choices(kinds, weights)
            task = asyncio.create_task(fault())
            faults[task] = None
            for done in [one for one in faults if one.done()]:
                done.result()
                del faults[done]
        await asyncio.gather(*faults)

    def _choose_server(self) -> str | None:
        """Choose a server that is up, unless enough of them are down."""
        down = [name for name in self._servers if name in self._busy]
        up = [name for name in self._servers if name not in self._busy]
        return self._chance.choice(up) if len(down) < MAX_DOWN else None

    async def _kill_server(self) -> None:
        name = self._choose_server()
        if name is not None:
            await self._kill([name], "kills of servers")

    async def _kill_domain(self) -> None:
        domain = self._chance.choice(list(self.topology.domains.values()))
        names = [name for name in domain.members if name not in self._busy]
        await self._kill(names, "kills of servers")
        self.faults["kills of whole domains"] += 1

    async def _kill(self, names: list[str], what: str) -> None:
        self._busy.update(names)
        for name in names:
            self._servers[name].kill()
            self.faults[what] += 1
        for name in names:
            self._servers[name].wait()
        await asyncio.sleep(self._chance.choice((0.0, 0.5, 3.0)))
        for name in names:
            self._start_server(name)
        self._busy.difference_update(names)

    async def _drain_server(self) -> None:
        name = self._choose_server()
        if name is None:
            return
        self._busy.add(name)
        process = self._servers[name]
        process.terminate()
        await self._ended(name, process)
        self.faults["stops with SIGTERM"] += 1
        # One that was told before it could listen to signals ends by them.
        if process.returncode not in (0, -signal.SIGTERM):
            self.wrong.append(f"{name} stopped with {process.returncode}: {self._last_words(name)}")
        self._start_server(name)
        self._busy.discard(name)

    async def _ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + STOP_WITHIN_S
        while process.poll() is None:
            if time.monotonic() > deadline:
                self.wrong.append(f"{name} does not stop within {STOP_WITHIN_S:g} s: {self._last_words(name)}")
                process.kill()
            await asyncio.sleep(0.05)

    async def _fill_disk(self) -> None:
        """Let no file of a server grow for a while, as a full disk would."""
        name = self._choose_server()
        if name is None:
            return
        process = self._servers[name]
        sizes = [path.stat().st_size for path in (self.folder / "data" / name).glob("*") if path.is_file()]
        limit = max(sizes, default=0) + self._chance.randrange(2_000)
        self.faults["full disks"] += 1
        try:
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            await asyncio.sleep(self._chance.uniform(0.5, 4.0))
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ProcessLookupError:
            pass  # It was killed meanwhile, and its successor has no limit.

    async def _limit_store(self) -> None:
        """Start a server with little room, and again with enough."""
        name = self._choose_server()
        if name is None:
            return
        self._busy.add(name)
        folder = self.folder / "data" / name
        for options in (("--max-store-bytes",), ()):
            self._servers[name].kill()
            self._servers[name].wait()
            held = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
            room = str(held + self._chance.randrange(20_000))
            self._start_server(name, *options, *([room] if options else []))
            await asyncio.sleep(self._chance.uniform(2.0, 6.0) if options else 0.0)
        self.faults["small stores"] += 1
        self._busy.discard(name)

    async def _spoil_link(self) -> None:
        await self._spoil_proxies([self._chance.choice(list(self._links.values()))])

    async def _spoil_door(self) -> None:
        await self._spoil_proxies([self._chance.choice(list(self._doors.values()))])

    async def _spoil_proxies(self, proxies: list[Proxy], mode: Mode | None = None) -> None:
        proxies = [proxy for proxy in proxies if proxy.mode is Mode.WELL]
        mode = mode or self._chance.choice((Mode.CUT, Mode.BLACKHOLE, Mode.SLOW, Mode.CORRUPT))
        for proxy in proxies:
            proxy.delay_s = self._chance.uniform(0.01, 0.5)
            proxy.bytes_per_s = self._chance.choice((5_000, 50_000, 500_000))
            proxy.corrupt_every_bytes = self._chance.choice((500, 5_000, 50_000))
            proxy.set_mode(mode)
            self.faults[f"links {mode}"] += 1
        # Sometimes for longer than it takes to notice that nobody answers.
        await asyncio.sleep(self._chance.choice((0.2, 1.0, 3.0, 9.0)))
        for proxy in proxies:
            proxy.set_mode(Mode.WELL)

    async def _partition(self) -> None:
        """Cut the servers in two."""
        names = self.topology.processes
        side = set(self._chance.sample(names, self._chance.randint(1, len(names) - 1)))
        self.faults["partitions"] += 1
        between = [proxy for (caller, called), proxy in self._links.items() if (caller in side) != (called in side)]
        await self._spoil_proxies(between, self._chance.choice((Mode.CUT, Mode.BLACKHOLE)))

    async def _kill_worker(self) -> None:
        free = [domain for domain in self._workers if domain not in self._busy]
        if not free:
            return
        domain = self._chance.choice(free)
        self._busy.add(domain)
        self._workers[domain].kill()
        self._workers[domain].wait()
        self.faults["kills of clients"] += len(groups(self.topology)[domain])
        await asyncio.sleep(self._chance.choice((0.0, 1.0)))
        self._start_worker(domain)
        self._busy.discard(domain)

    # The end.

    async def _heal(self) -> None:
        """Wait until everything that was accepted has arrived."""
        for proxy in (*self._links.values(), *self._doors.values()):
            proxy.set_mode(Mode.WELL)
        self._set_phase("quiet")
        waiting = "everything"
        deadline = time.monotonic() + HEAL_WITHIN_S
        while waiting or (waiting := await self._on_the_way()):
            self._look_for_the_dead()
            if time.monotonic() > deadline:
                self.wrong.append(f"after {HEAL_WITHIN_S:g} s there still wait: {waiting}")
                return
            await asyncio.sleep(0.5)
            waiting = unfinished(self.folder)

    async def _on_the_way(self) -> str:
        """Say what servers have not confirmed to each other, if there is anything."""
        waiting = []
        for name, proxy in self._doors.items():
            try:
                status = await ask_status(f"thence://{proxy.target}")
            except (OSError, TimeoutError) as error:
                return f"{name} does not answer: {error}"
            queued = sum(peer["queued_frames"] for peer in status["neighbours"])
            if queued or status["waiting_count"] or status["held_deliveries"] or status["stalled"]:
                waiting.append(f"{name}: {queued} frames, {status['waiting'][:3]}, {status['stalled']}")
        return "; ".join(waiting)

    async def _stop(self) -> None:
        """Let everybody end in peace."""
        self._set_phase("end")
        for domain, worker in self._workers.items():
            await self._ended(domain, worker)
        for server in self._servers.values():
            server.terminate()
        for name, server in self._servers.items():
            await self._ended(name, server)
        ended = {**self._servers, **self._workers}
        self.wrong += [
            f"{name} stopped with {process.returncode}: {self._last_words(name)}"
            for name, process in ended.items()
            if process.returncode
        ]


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: Crashes(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    return f"python -m tests.campaign --kind servers --seed {options.seed} --seconds {options.fault_s:g}"
