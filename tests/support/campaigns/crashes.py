"""The crash campaign: real servers and clients, spoiled in every way that ``crash_faults`` has; then healed, and judged.

Everything that chance decides is drawn from the seed; when the machine does it is another matter, so a run with the same seed
is similar and not the same. A run that breaks a promise keeps its folder.

Rules:

* Faults come one after the other and overlap; each ends by itself. In the end all have ended, all servers are up, and everything
  that was accepted must arrive within ``HEAL_WITHIN_S``.
* Each kind of fault comes at least once, in a random order, and then as chance has it. One that never happened is named.
* What counts is what clients wrote down. The trace of the servers is judged as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.support.campaigns.crash_fabric import Fabric, Options
from tests.support.campaigns.crash_faults import CLIENT_FAULTS, FAULTS, Fault
from tests.support.campaigns.crash_plan import changes_in
from tests.support.campaigns.crash_verdict import judge_clients, judge_servers, told, unfinished
from tests.support.crashes.crash_changes import KINDS as CHANGES
from tests.support.crashes.crash_changes import Operator
from tests.support.servers.server_processes import Outcome, in_folder, tracebacks
from thence.client.client import ask_status

HEAL_WITHIN_S: Final = 180.0
MAX_WRONG_TOLD: Final = 10
CHANGING_PAUSES: Final = 2.5
"""How many times longer it is from one fault to the next where the fabric changes: a change needs all servers for a moment."""
MAX_EXTRA_S: Final = 60.0
"""For how much longer faults may come until each kind has happened once."""

__all__ = ["MAX_WRONG_TOLD", "Options", "replay", "run_once"]


class Crashes:
    """One run. ``run`` does all of it."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.fabric = Fabric(options, folder)
        self._healing_s = 0.0
        self.kinds: tuple[Fault, ...] = (*FAULTS, *(CLIENT_FAULTS if options.kill_clients else ()))
        self.first_kinds = self.fabric.chance.sample(self.kinds, len(self.kinds))
        self._changes = changes_in(options.seed, small=options.small)

    async def run(self) -> Outcome:
        """Start, spoil, heal, judge and stop."""
        began = time.monotonic()
        fabric, counts = self.fabric, Counter[str]()
        try:
            await fabric.start()
            await self.spoil()
            began_to_heal = time.monotonic()
            await self._heal()
            self._healing_s = time.monotonic() - began_to_heal
            await fabric.stop()
        except TimeoutError as error:
            fabric.wrong.append(f"not in time: {error}")
        finally:
            await fabric.close()
        for judged in (judge_clients, judge_servers):
            found, wrong = judged(fabric.folder)
            counts.update(found)
            fabric.wrong += wrong
        if counts["told that the server does not go on"]:
            fabric.wrong.append(f"a server did not go on with a client: {told(fabric.folder)}")
        fabric.wrong += tracebacks(fabric.folder)
        fabric.faults["bits flipped"] = sum(proxy.bits_flipped for proxy in fabric.proxies)
        for disk in fabric.disks.values():
            fabric.faults["syncs that lied"] += disk.counts["syncs that lied"]
        kinds = [*(kind.name for kind in self.kinds), *(CHANGES if self._changes else ())]
        never = [kind for kind in kinds if not fabric.faults[kind]]
        seconds = time.monotonic() - began
        return Outcome(counts, +fabric.faults, fabric.wrong, fabric.folder, seconds, self._healing_s, never)

    async def spoil(self) -> None:
        fabric, options = self.fabric, self.fabric.options
        fabric.set_phase("traffic")
        deadline = time.monotonic() + options.fault_s
        faults: dict[asyncio.Task[None], None] = {}
        people = Operator(fabric)
        operator = asyncio.create_task(people.work()) if self._changes else None
        try:
            while time.monotonic() < deadline or (self._missing() and time.monotonic() < deadline + MAX_EXTRA_S):
                fabric.give_up_if_broken()
                pause_s = options.mean_pause_s * (CHANGING_PAUSES if self._changes else 1)
                await asyncio.sleep(min(fabric.chance.expovariate(1 / pause_s), 5.0))
                fabric.look_for_the_dead()
                task = asyncio.create_task(self._make(self._next()))
                faults[task] = None
                for done in [one for one in faults if one.done()]:
                    done.result()
                    del faults[done]
            people.ending = True
            await asyncio.gather(*faults)
            if operator is not None:
                await operator  # The change under way is done, now that nothing else happens.
        finally:  # A run that is given up starts nothing more.
            tasks = [*faults, *([operator] if operator else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _missing(self) -> list[Fault]:
        return [kind for kind in self.kinds if not self.fabric.faults[kind.name]]

    def _next(self) -> Fault:
        """Choose a fault: the first ones are all different, so that a short run has each of them."""
        chance = self.fabric.chance
        if self.first_kinds:
            return self.first_kinds.pop()
        missing = self._missing()
        if missing and chance.random() < 0.5:
            return chance.choice(missing)
        (kind,) = chance.choices(self.kinds, [kind.weight for kind in self.kinds])
        return kind

    async def _make(self, fault: Fault) -> None:
        if await fault.make(self.fabric):
            self.fabric.faults[fault.name] += 1

    # The end.

    async def _heal(self) -> None:
        """Wait until everything that was accepted has arrived."""
        fabric = self.fabric
        fabric.heal()
        fabric.set_phase("quiet")
        waiting = "everything"
        deadline = time.monotonic() + HEAL_WITHIN_S
        while waiting or (waiting := await self._on_the_way()):
            fabric.look_for_the_dead()
            if time.monotonic() > deadline:
                fabric.wrong.append(f"after {HEAL_WITHIN_S:g} s there still wait: {waiting}")
                return
            await asyncio.sleep(0.5)
            waiting = unfinished(fabric.folder)

    async def _on_the_way(self) -> str:
        """Say what servers have not acknowledged to each other, if there is anything."""
        waiting = []
        for name, proxy in self.fabric.doors.items():
            if name not in self.fabric.servers:
                continue  # It died for good, or has left.
            try:
                status = await ask_status(f"thence://{proxy.target}")
            except (OSError, TimeoutError) as error:
                return f"{name} does not answer: {error}"
            queued = sum(peer["queued_frames"] for peer in status["neighbours"])
            if queued or status["waiting_count"] or status["held_deliveries"] or status["stalled"]:
                waiting.append(f"{name}: {queued} frames, {status['waiting'][:3]}, {status['stalled']}")
        return "; ".join(waiting)


def run_once(options: Options, folder: Path | None = None) -> Outcome:
    """Make one run in a folder of its own, which goes if nothing was wrong."""
    return in_folder(folder, lambda where: Crashes(options, where).run())


def replay(options: Options) -> str:
    """Return the command that makes a run like this one again."""
    small = " --small" if options.small else ""
    return f"python -m tests.campaign --kind servers{small} --seed {options.seed} --seconds {options.fault_s:g}"
