"""The crash campaign with agents: six real servers with a bank's accounts, killed at random moments; then the books are audited.

Accounts (``tests/support/crashes/bank.py``) live on all servers. A client of each server sends trees of moves to accounts
anywhere, and now and then something that no account can react to. Servers are killed with ``kill -9``, one or several at a
time, and started again. In the end every tree that was accepted must have been carried out, each move once; the sum of all
balances must be what it was; what could not be reacted to must be set aside, once; and the trace of the servers is judged.

Everything that chance decides is drawn from the seed; when the machine does it is another matter. Every other seed runs servers
with small limits, so that snapshots and full mailboxes come all the time. A run that breaks a promise keeps its folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from tests.support.campaigns.crash_plan import stable_addresses
from tests.support.campaigns.crash_verdict import judge_servers
from tests.support.crashes.bank import AccountState, Move, Poison, audit, state_of, tree
from tests.support.servers.server_processes import Outcome, Processes, in_folder
from thence.client.client import Client, ask_status, connect
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.errors import ThenceError

ACCOUNTS_PER_SERVER: Final = 4
FIRST_BALANCE: Final = 1_000
POISON: Final = 0.01
"""How much of what is sent cannot be reacted to."""
HEAL_WITHIN_S: Final = 180.0
START_WITHIN_S: Final = 120.0

FABRIC: Final = """
name = "bank"
[domains.A]
members = ["s1", "s2", "s3"]
ordering = "matrix"
[domains.B]
members = ["s3", "s4", "s5"]
ordering = "{B}"
[domains.C]
members = ["s5", "s6"]
ordering = "matrix"
"""


class Options(NamedTuple):
    """How hard a run is."""

    seed: int
    fault_s: float = 60.0
    """How long servers are killed."""
    mean_pause_s: float = 1.5
    """How long it is from one kill to the next, on average."""
    mean_gap_s: float = 0.02
    """How long a client rests after each tree."""


class AgentCrashes(Processes):
    """One run. ``run`` does all of it."""

    def __init__(self, options: Options, folder: Path) -> None:
        super().__init__(folder)
        self.options = options
        self.faults: Counter[str] = Counter()
        self._chance = Random(f"agent crashes/{options.seed}")
        topology = parse(FABRIC.format(B=self._chance.choice(["vector", "matrix", "sequenced"])))
        names = topology.processes
        addresses = dict(zip(names, stable_addresses(len(names), Random(os.urandom(8))), strict=True))
        self.topology = Topology(topology.name, topology.domains.values(), addresses=addresses)
        self._accounts = [f"{server}-{number}" for server in names for number in range(ACCOUNTS_PER_SERVER)]
        self._trees: list[Move] = []
        self._poison: list[str] = []
        self._sending = True

    async def run(self) -> Outcome:
        """Start, spoil, heal, audit and stop."""
        began = time.monotonic()
        healing_s = 0.0
        counts: Counter[str] = Counter()
        tills: list[asyncio.Task[None]] = []
        try:
            for name in ("logs", "data", "trace"):
                (self.folder / name).mkdir(parents=True)
            (self.folder / "topology.toml").write_text(write(self.topology), encoding="utf-8")
            for name in self.topology.processes:
                self.start_server(name)
            await self._open_accounts()
            tills = [asyncio.create_task(self._till(server)) for server in self.topology.processes]
            await self._spoil()
            self._sending = False
            began_to_heal = time.monotonic()
            async with asyncio.timeout(HEAL_WITHIN_S):
                await asyncio.gather(*tills)
            await self._heal(began_to_heal + HEAL_WITHIN_S)
            healing_s = time.monotonic() - began_to_heal
            await self.stop_servers()
            found, wrong = judge_servers(self.folder)
            counts.update(found)
            self.wrong += wrong
        except TimeoutError as error:
            self.wrong.append(f"not in time: {error}")
        finally:
            for till in tills:
                till.cancel()
            await asyncio.gather(*tills, return_exceptions=True)
            self.kill_all()
        counts["trees"] = len(self._trees)
        counts["moves"] = sum(1 for one in self._trees for _ in one.ids())
        counts["poison"] = len(self._poison)
        return Outcome(counts, self.faults, self.wrong, self.folder, time.monotonic() - began, healing_s)

    def arguments(self, name: str) -> list[str]:
        program = "tests.support.servers.small_server" if self.options.seed % 2 else "thence.cli.main"
        spilling = ("--backlog", "spill", "--spill-after-bytes", "2000") if self.options.seed % 4 < 2 else ()
        return [
            *("-m", program, "serve", str(self.folder / "topology.toml"), "--server", name, "--drain", "3"),
            *(
                "--agents",
                "tests.support.crashes.bank",
                "--data",
                str(self.folder / "data" / name),
                "--trace",
                str(self.folder / "trace"),
            ),
            *spilling,
        ]

    def _url(self, server: str) -> str:
        return f"thence://{self.topology.addresses[server]}"

    async def _open_accounts(self) -> None:
        async with asyncio.timeout(START_WITHIN_S):
            for server in self.topology.processes:
                async with Client(self._url(server), "", temporary=False, connect_timeout=None) as client:
                    for account in self._accounts_of(server):
                        await client.agents.create(account, "Account", AccountState(FIRST_BALANCE))

    def _accounts_of(self, server: str) -> list[str]:
        return [account for account in self._accounts if account.partition("-")[0] == server]

    async def _till(self, server: str) -> None:
        """Send trees to accounts; each is accepted in the end, whatever is killed meanwhile."""
        chance = Random(f"till/{self.options.seed}/{server}")
        async with connect(self._url(server), f"till-{server}", connect_timeout=None) as client:
            for account in self._accounts:
                await client.known(account)
            number = 0
            while self._sending:
                number += 1
                account = chance.choice(self._accounts)
                if chance.random() < POISON:
                    poison = Poison(f"{server}/{number}")
                    await client.send(account, poison)
                    self._poison.append(poison.id)
                else:
                    root = tree(chance, self._accounts, f"{server}/{number}")
                    await client.send(account, root)
                    self._trees.append(root)
                await asyncio.sleep(chance.expovariate(1 / self.options.mean_gap_s))

    # Faults.

    async def _spoil(self) -> None:
        deadline = time.monotonic() + self.options.fault_s
        faults: list[asyncio.Task[None]] = []
        while time.monotonic() < deadline:
            await asyncio.sleep(min(self._chance.expovariate(1 / self.options.mean_pause_s), 5.0))
            self.look_for_the_dead()
            up = [name for name in self.topology.processes if name not in self.busy]
            several = self._chance.choices([1, 2, len(self.topology.processes)], [8, 2, 1])[0]
            names = self._chance.sample(up, min(several, len(up)))
            faults.append(asyncio.create_task(self._kill(names, self._chance.choice((0.0, 0.3, 1.5)))))
        await asyncio.gather(*faults)

    async def _kill(self, names: list[str], rest_s: float) -> None:
        for name in names:
            self.kill_server(name)
            self.faults["kills of servers"] += 1
        await asyncio.sleep(rest_s)
        for name in names:
            self.start_server(name)

    # The end.

    async def _heal(self, deadline: float) -> None:
        """Wait until the books balance and nothing is under way any more."""
        while wrong := await self._look():
            self.look_for_the_dead()
            if time.monotonic() > deadline:
                self.wrong += wrong
                return
            await asyncio.sleep(0.5)

    async def _look(self) -> list[str]:
        states: dict[str, AccountState] = {}
        dead: list[str] = []
        for server in self.topology.processes:
            try:
                status = await ask_status(self._url(server))
                async with Client(self._url(server), "", temporary=False) as client:
                    for account in self._accounts_of(server):
                        states[account] = state_of(shown := await client.agents.show(account))
                        if shown["waiting_letters"] or shown["trouble"]:
                            return [f"{account} has not done with its messages: {shown['trouble']}"]
                    for item in await client.agents.dead():
                        content = await client.agents.dead_letter(item["number"])
                        dead.append(content["messages"][0]["body"]["id"])
            except (OSError, TimeoutError, ThenceError) as error:
                return [f"{server} does not answer: {error}"]
            if status["stalled"] or status["held_deliveries"] or any(peer["queued_frames"] for peer in status["neighbours"]):
                return [f"{server} has not done: {status['stalled']}, {status['held_deliveries']} held"]
        return audit(states, FIRST_BALANCE * len(self._accounts), self._trees, dead, self._poison)


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: AgentCrashes(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    return f"python -m tests.campaign --kind agents --seed {options.seed} --seconds {options.fault_s:g}"
