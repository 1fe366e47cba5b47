"""The campaign with old copies: a server is put on an old copy of its store, runs beside a copy of itself, or loses its disk.

What such a server has forgotten cannot be brought back. So it is not asked that everything arrives, but that nothing vanishes
without a word.

Rules:

* Clients write down what they were told was accepted. Whatever of it does not arrive must be *excused*: the sender or the
  receiver was told that its server does not go on with it; or servers refuse each other, say so in their status and their logs,
  each naming both, and the message had to pass the server in question, or waits in a server that says that it waits.
* What arrives arrives once and in order, excused or not.
* A program that starts anew remembers nothing, so it cannot notice that its server has. No client is started twice here.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.support.campaigns.crash_fabric import Fabric, Options
from tests.support.campaigns.crash_plan import stable_addresses
from tests.support.campaigns.crash_verdict import CLONE, Missing, histories, judge_clients, missing, told
from tests.support.servers.server_processes import Outcome, in_folder, kill_processes, start_process
from thence.client.client import ask_status
from thence.core.topology.toml import write
from thence.net.proxy import Mode
from thence.node.offline.backup import backup, restore

KINDS: Final = ("rollback", "clone", "lost disk")
SETTLE_WITHIN_S: Final = 60.0
ANSWER_WITHIN_S: Final = 60.0
QUIET_S: Final = 3.0
"""For how long nothing may change before what is missing counts as missing."""
COPY: Final = "copy"

__all__ = ["KINDS", "Options", "replay", "run_once"]


class _Found(NamedTuple):
    """What is missing at the end."""

    excused: list[Missing]
    wrong: list[str]
    counts: Counter[str]


class Copies:
    """One run. ``run`` does all of it."""

    def __init__(self, options: Options, folder: Path) -> None:
        """Of the options, ``fault_s`` is how long there is traffic, and the seed says which kind it is."""
        self.fabric = Fabric(options._replace(small=True, trace=False, kill_clients=False), folder)
        self.kind = KINDS[options.seed % len(KINDS)]
        self._victim = self.fabric.chance.choice(self.fabric.topology.processes)
        self._clone: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []
        self._clone_url = ""
        self._ours = False
        """Whether the copy was made by our own command."""
        self._waiting: set[str] = set()
        """Servers that say that something waits in them."""

    async def run(self) -> Outcome:
        """Start, go back, wait, judge and stop."""
        began = time.monotonic()
        fabric, counts = self.fabric, Counter[str]()
        began_to_heal = began
        excused: list[Missing] = []
        try:
            await fabric.start()
            fabric.set_phase("traffic")
            await asyncio.sleep(fabric.options.fault_s / 3)
            await {"rollback": self._roll_back, "clone": self._run_clone, "lost disk": self._lose_disk}[self.kind]()
            await asyncio.sleep(fabric.options.fault_s / 3)
            began_to_heal = time.monotonic()
            fabric.heal()
            fabric.set_phase("quiet")
            settled = await self._settle()
            counts.update(settled.counts)
            excused = settled.excused
            fabric.wrong += settled.wrong
            fabric.set_phase("end")
        except TimeoutError as error:
            fabric.wrong.append(f"not in time: {error}")
        finally:
            kill_processes(self._beside)
            await fabric.close()
        found, wrong = judge_clients(fabric.folder, excused)
        counts.update(found)
        fabric.wrong += wrong
        never = [] if fabric.faults[self.kind] else [self.kind]
        now = time.monotonic()
        return Outcome(counts, +fabric.faults, fabric.wrong, fabric.folder, now - began, now - began_to_heal, never)

    # Faults.

    @property
    def _data(self) -> Path:
        return self.fabric.folder / "data" / self._victim

    async def _copy(self) -> None:
        """Copy the store: by our own command while the server runs, or as people do when it does not."""
        target = self.fabric.folder / "data" / COPY
        self._ours = self.fabric.chance.random() < 0.5
        if self._ours:
            await asyncio.to_thread(backup, self._data, target)
            return
        self.fabric.busy.add(self._victim)
        self.fabric.kill(self._victim)
        shutil.copytree(self._data, target, ignore=shutil.ignore_patterns("lock"))
        self.fabric.start_server(self._victim)
        await self._until_answers(self._victim)
        self.fabric.busy.discard(self._victim)

    async def _until_answers(self, name: str) -> None:
        """Wait until a server that was started answers: on a busy machine that takes longer than the rest of a round."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while True:
            try:
                await ask_status(f"thence://{self.fabric.doors[name].target}")
                return
            except (OSError, TimeoutError):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} does not answer for {ANSWER_WITHIN_S:g} s after its start") from None
            await asyncio.sleep(0.1)

    def _put(self, target: Path) -> None:
        """Make a store of the copy."""
        if self._ours:
            restore(self.fabric.folder / "data" / COPY, target)
        else:
            shutil.copytree(self.fabric.folder / "data" / COPY, target)

    async def _roll_back(self) -> None:
        """Put the server on a copy of its store that is some seconds old."""
        fabric = self.fabric
        await self._copy()
        await asyncio.sleep(fabric.options.fault_s / 3)
        fabric.busy.add(self._victim)
        fabric.kill(self._victim)
        shutil.rmtree(self._data)
        self._put(self._data)
        await self._start_again()

    async def _lose_disk(self) -> None:
        """Start the server on an empty disk."""
        self.fabric.busy.add(self._victim)
        self.fabric.kill(self._victim)
        shutil.rmtree(self._data)
        await self._start_again()

    async def _start_again(self) -> None:
        """Start the server; in every other run where none of its peers are, for a while."""
        fabric = self.fabric
        fabric.disks[self._victim].forget()
        around = [proxy for pair, proxy in fabric.links.items() if self._victim in pair]
        alone = fabric.chance.random() < 0.5
        for proxy in around if alone else ():
            proxy.set_mode(Mode.CUT)
        fabric.start_server(self._victim)
        await self._until_answers(self._victim)
        fabric.faults[self.kind] += 1
        if alone:
            fabric.faults[f"{self.kind}, alone at first"] += 1
            await asyncio.sleep(fabric.options.fault_s / 3)
        for proxy in around:
            proxy.set_mode(Mode.WELL)

    async def _run_clone(self) -> None:
        """Start a copy of the server beside it, with clients of its own; in every other run while it stands still."""
        fabric, name = self.fabric, self._victim
        await self._copy()
        await asyncio.sleep(fabric.options.fault_s / 3)
        self._put(fabric.folder / "data" / CLONE)
        (address,) = stable_addresses(1, Random(os.urandom(8)))
        topology = fabric.lines.seen_by(name)
        beside = topology.at({**topology.addresses, name: address})
        (fabric.folder / f"{CLONE}.toml").write_text(write(beside), encoding="utf-8")
        stands_still = fabric.chance.random() < 0.5
        if stands_still:
            fabric.servers[name].send_signal(signal.SIGSTOP)
        self._clone = start_process(fabric.folder, CLONE, fabric.server_arguments(name, CLONE))
        self._clone_url = f"thence://{address}"
        client = f"{name}-{CLONE}={self._clone_url}"
        clients = start_process(
            fabric.folder, "clients-clone", ["-m", "tests.support.campaigns.crash_clients", str(fabric.folder), client]
        )
        self._beside = [self._clone, clients]
        fabric.faults[self.kind] += 1
        await asyncio.sleep(fabric.options.fault_s / 3)
        if stands_still:
            fabric.faults[f"{self.kind}, while the original stands still"] += 1
            fabric.servers[name].send_signal(signal.SIGCONT)

    # The end.

    async def _settle(self) -> _Found:
        """Wait until nothing changes any more and all that is missing is excused; return what there is if that takes too long."""
        deadline = time.monotonic() + SETTLE_WITHIN_S
        before, since = -1, time.monotonic()
        while True:
            left = len(missing(histories(self.fabric.folder)))
            if left != before:
                before, since = left, time.monotonic()
            late = time.monotonic() > deadline
            if not left or late or time.monotonic() - since > QUIET_S:
                found = await self._excuse()
                if late or not found.wrong:
                    return found
                since = time.monotonic()  # A server may still be starting, or a program on its way back to it.
            await asyncio.sleep(0.5)

    async def _excuse(self) -> _Found:
        """Look who was told of what is missing; what nobody was told of is wrong."""
        gone = missing(histories(self.fabric.folder))
        wrong: list[str] = []
        clients, servers = told(self.fabric.folder), await self._refusals(wrong)
        counts = Counter({"servers that refuse each other": len(servers)})
        excused = []
        for one in gone:
            if one.sender in clients or one.to in clients:
                counts["missing, and a client was told"] += 1
            elif servers and self._passes(one):
                counts["missing, and servers say so"] += 1
            elif servers and self._waiting & {one.sender.split("-")[0], one.to.split("-")[0]}:
                counts["waiting for a server that was refused"] += 1
            else:
                wrong.append(f"vanished without a word: {one.message} from {one.sender} to {one.to}; {self._victim}: {servers}")
                continue
            excused.append(one)
        return _Found(excused, wrong, counts)

    def _passes(self, one: Missing) -> bool:
        """Return whether a message must pass the server in question."""
        topology, homes = self.fabric.topology, [one.sender.split("-")[0], one.to.split("-")[0]]
        apart = not set(topology.homes[homes[0]]) & set(topology.homes[homes[1]])
        return self._victim in homes or (apart and len(topology.homes[self._victim]) > 1)

    async def _refusals(self, wrong: list[str]) -> list[str]:
        """Return what servers say of each other that do not go on, where the log says it as well and names both."""
        fabric, found = self.fabric, []
        self._waiting.clear()
        urls = {name: f"thence://{proxy.target}" for name, proxy in fabric.doors.items()}
        if self._clone is not None and self._clone.poll() is None:
            urls[CLONE] = self._clone_url
        for name, url in urls.items():
            try:
                status = await ask_status(url)
            except (OSError, TimeoutError) as error:
                wrong.append(f"{name} does not answer: {error}")
                continue
            me = self._victim if name == CLONE else name
            queued = sum(peer["queued_frames"] for peer in status["neighbours"])
            if queued or status["waiting_count"] or status["held_deliveries"] or status["stalled"]:
                self._waiting.add(name)
            said = [status.get("fenced", ""), *(peer["trouble"] for peer in status["neighbours"] if not peer["connected"])]
            log = (fabric.folder / "logs" / f"{name}.log").read_text(encoding="utf-8", errors="replace")
            loud = [line for line in log.splitlines() if "error:" in line or "critical:" in line]
            for text in said:
                others = [peer for peer in fabric.topology.processes if peer != me and repr(peer) in text]
                if (
                    others
                    and self._victim in (me, *others)
                    and any(repr(me) in line and repr(others[0]) in line for line in loud)
                ):
                    found.append(f"{name}: {text}")
        return found


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: Copies(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    return f"python -m tests.campaign --kind copies --seed {options.seed} --seconds {options.fault_s:g}"
