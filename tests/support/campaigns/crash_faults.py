"""The faults of a crash campaign, one function for each kind.

Rules:

* A fault ends by itself, and returns whether it really happened: a server may be busy, or a disk may not be written to meanwhile.
* With whom something is being done is ``busy`` meanwhile, so that no other fault takes its end for something else.
* A server whose disk fails under it may go on, or stop; if it stops, its log names what failed.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.campaigns.crash_fabric import Fabric
from thence.net.proxy import Mode, Proxy

HAPPENS_WITHIN_S: Final = 8.0
"""How long a fault waits for somebody whom it hits."""
ENDS_WITHIN_S: Final = 15.0
"""How long a server may take to stop when its disk has failed."""
DUPLICATE_WITHIN_S: Final = 60.0
"""How long it may take until of two programs with the same clients the newer is let in, and until the older has ended."""
DAY_NS: Final = 86_400 * 10**9
POWER_LOSS_TOO: Final = 0.5
"""How often the power fails after a server was killed by a torn write, or stopped for a disk that failed."""


class Fault(NamedTuple):
    """A kind of fault."""

    name: str
    weight: float
    """How often it comes, compared with others."""
    make: Callable[[Fabric], Awaitable[bool]]


# Processes.


async def kill_server(run: Fabric) -> bool:
    """Kill a server, and start it again."""
    name = run.choose_server()
    return name is not None and await _kill(run, [name])


async def kill_domain(run: Fabric) -> bool:
    """Kill all servers of a domain at once."""
    domain = run.chance.choice(list(run.topology.domains.values()))
    names = [name for name in domain.members if name in run.servers and name not in run.busy]
    run.busy.update(names)
    return await _kill(run, names) and len(names) == len(domain.members)


async def _kill(run: Fabric, names: list[str]) -> bool:
    alive = all(run.servers[name].poll() is None for name in names)
    run.kill(*names)
    run.faults["servers killed"] += len(names)
    await asyncio.sleep(run.how_long(0.0, 0.5, 3.0))
    for name in names:
        run.start_server(name)
    run.busy.difference_update(names)
    return alive


async def drain_server(run: Fabric) -> bool:
    """Stop a server as an operator does, and start it again."""
    name = run.choose_server()
    if name is None:
        return False
    process = run.servers[name]
    process.terminate()
    await run.ended(name, process)
    # One that was told before it could listen to signals ends by them.
    if process.returncode not in (0, -signal.SIGTERM):
        run.wrong.append(f"{name} stopped with {process.returncode}: {run.last_words(name)}")
    run.start_server(name)
    run.busy.discard(name)
    return process.returncode == 0


async def pause_server(run: Fabric) -> bool:
    """Let a server stand still for a while, with all its connections open."""
    name = run.choose_server()
    return name is not None and await _pause(run, name)


async def pause_clients(run: Fabric) -> bool:
    """Let a program with clients stand still for a while."""
    domain = run.choose_worker()
    return domain is not None and await _pause(run, domain)


async def _pause(run: Fabric, name: str) -> bool:
    process = {**run.servers, **run.workers}[name]
    process.send_signal(signal.SIGSTOP)
    # Sometimes for longer than it takes to notice that nobody answers.
    await asyncio.sleep(run.how_long(0.3, 1.0, 4.0, 12.0))
    stood_still = _state(process.pid) == "T"
    process.send_signal(signal.SIGCONT)
    run.busy.discard(name)
    return stood_still


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


async def limit_store(run: Fabric) -> bool:
    """Start a server with little room, and again with enough."""
    name = run.choose_server()
    if name is None:
        return False
    folder = run.folder / "data" / name
    for options in (("--max-store-bytes",), ()):
        run.kill(name)
        held = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
        room = str(held + run.chance.randrange(20_000))
        run.start_server(name, *options, *([room] if options else []))
        await asyncio.sleep(run.how_long(2.0, 4.0, 6.0) if options else 0.0)
    run.busy.discard(name)
    return True


# Clients.


async def kill_clients(run: Fabric) -> bool:
    """Kill a program with clients, and start it again."""
    domain = run.choose_worker()
    if domain is None:
        return False
    run.workers[domain].kill()
    run.workers[domain].wait()
    run.faults["clients killed"] += len(run.clients[domain])
    await asyncio.sleep(run.chance.choice((0.0, 1.0)))
    run.start_worker(domain)
    run.busy.discard(domain)
    return True


async def kill_before_ack(run: Fabric) -> bool:
    """Let a program die when one of its clients has got a message and written that down, and not acknowledged it."""
    domain = run.choose_worker()
    if domain is None:
        return False
    order = run.folder / "die" / run.chance.choice(run.clients[domain])
    order.touch()
    worker = run.workers[domain]
    happened = await _within(HAPPENS_WITHIN_S, lambda: worker.poll() is not None)
    order.unlink(missing_ok=True)
    await asyncio.sleep(0 if happened else 0.1)  # It may have seen the order right before that was taken back.
    if worker.poll() is not None:
        run.start_worker(domain)
    run.busy.discard(domain)
    return happened


async def duplicate_clients(run: Fabric) -> bool:
    """Start a program with clients beside one with the same: the older one must hear of it, whatever it was doing, and end."""
    domain = run.choose_worker()
    if domain is None:
        return False
    older = run.workers[domain]
    happened = run.all_joined(domain)  # Otherwise nobody knows which of the two comes first.
    if happened:
        stands_still = run.chance.random() < 0.5
        if stands_still:
            older.send_signal(signal.SIGSTOP)
        run.start_worker(domain)
        await _within(DUPLICATE_WITHIN_S, lambda: run.all_joined(domain))
        older.send_signal(signal.SIGCONT)
        if not await _within(DUPLICATE_WITHIN_S, lambda: older.poll() is not None):
            run.wrong.append(f"of two programs with the clients of {domain} the older goes on: {run.last_words(domain)}")
            older.kill()
        if older.wait():
            run.wrong.append(f"the older of two programs with the clients of {domain} ended with {older.returncode}")
    run.busy.discard(domain)
    return happened


# Connections.


async def spoil_link(run: Fabric, mode: Mode) -> bool:
    """Spoil a connection between two servers, or of a server and its clients."""
    return await _spoil([run.chance.choice(run.proxies)], mode, run)


async def _spoil(proxies: list[Proxy], mode: Mode, run: Fabric) -> bool:
    proxies = [proxy for proxy in proxies if proxy.mode is Mode.WELL]
    before = sum(proxy.happened[mode] for proxy in proxies)
    for proxy in proxies:
        proxy.delay_s = run.chance.uniform(0.01, 0.5)
        proxy.bytes_per_s = run.chance.choice((5_000, 50_000, 500_000))
        proxy.corrupt_every_bytes = run.chance.choice((500, 5_000, 50_000))
        proxy.set_mode(mode)
    await _within(HAPPENS_WITHIN_S, lambda: sum(proxy.happened[mode] for proxy in proxies) > before)
    # Sometimes for longer than it takes to notice that nobody answers.
    await asyncio.sleep(run.how_long(0.2, 1.0, 3.0, 9.0))
    for proxy in proxies:
        proxy.set_mode(Mode.WELL)
    return sum(proxy.happened[mode] for proxy in proxies) > before


async def partition(run: Fabric) -> bool:
    """Cut the servers in two."""
    names = run.topology.processes
    side = set(run.chance.sample(names, run.chance.randint(1, len(names) - 1)))
    between = [proxy for (caller, called), proxy in run.links.items() if (caller in side) != (called in side)]
    return await _spoil(between, run.chance.choice((Mode.CUT, Mode.BLACKHOLE)), run)


# Disks and clocks.


async def write_short(run: Fabric) -> bool:
    """Let a server's writes be short for a while, as they may be at any time."""
    name = run.chance.choice(list(run.disks))
    disk, before = run.disks[name], run.disks[name].counts["short writes"]
    disk.set(short_one_in=run.chance.randint(1, 3))
    await _within(HAPPENS_WITHIN_S, lambda: disk.counts["short writes"] > before)
    await asyncio.sleep(run.how_long(1.0, 2.0, 4.0))
    disk.set(short_one_in=0)
    return disk.counts["short writes"] > before


async def fill_disk(run: Fabric) -> bool:
    """Let a server's files grow by no more than a little for a while."""
    name = run.choose_server()
    if name is None:
        return False
    disk, before = run.disks[name], run.disks[name].counts["writes without room"]
    disk.set(room_bytes=run.chance.randrange(2_000), no_room=1)
    await _within(HAPPENS_WITHIN_S, lambda: disk.counts["writes without room"] > before)
    await asyncio.sleep(run.how_long(0.2, 1.0, 3.0))
    disk.set(no_room=0)
    run.busy.discard(name)
    return disk.counts["writes without room"] > before


async def fail_disk(run: Fabric, setting: str, counter: str) -> bool:
    """Let some calls of a server to its disk fail: writes, syncs, or a write that gets through in part before a kill."""
    name = run.choose_server()
    if name is None:
        return False
    disk, server, before = run.disks[name], run.servers[name], run.disks[name].counts[counter]
    disk.set(**{setting: run.chance.randint(1, 2)})
    await _within(HAPPENS_WITHIN_S, lambda: disk.counts[counter] > before or server.poll() is not None)
    disk.set(**{setting: 0})
    happened = disk.counts[counter] > before
    # A mark that could not be written is nothing to stop for.
    if happened:
        run.failed_disks[name] = server
    if happened and await _within(ENDS_WITHIN_S if setting != "eio_writes" else 2.0, lambda: server.poll() is not None):
        _check_last_words(run, name, setting)
        if run.chance.random() < POWER_LOSS_TOO:
            run.faults["unsynced changes taken by power losses"] += sum(disk.lose_power(run.chance).values())
        run.start_server(name)
    elif happened and setting != "eio_writes":
        run.wrong.append(f"{name} went on although {counter} happened: {run.last_words(name)}")
    run.busy.discard(name)
    return happened


def _check_last_words(run: Fabric, name: str, setting: str) -> None:
    words, code = run.last_words(name), run.servers[name].returncode
    if setting == "torn_writes":
        if code != -signal.SIGKILL:
            run.wrong.append(f"{name} ended with {code} and not by a torn write: {words}")
        return
    if not run.says_that_its_disk_failed(name):
        run.wrong.append(f"{name} ended with {code} and does not say that its disk failed: {words}")


async def lose_power(run: Fabric) -> bool:
    """Let the power of one server fail, or of a whole domain: what was not synced is gone, or garbled."""
    name = run.choose_server()
    if name is None:
        return False
    names = [name]
    if run.chance.random() < 0.3:
        domain = run.topology.homes.get(name, run.topology.homes["a1"])[0]  # A newcomer may be in none yet.
        more = [other for other in run.topology.domains[domain].members if other in run.servers and other not in run.busy]
        run.busy.update(more)
        names += more
    was = {each: run.disks[each] for each in names}
    for disk in was.values():
        disk.set(sync_us=50_000)  # So that it fails in the middle of a sync.
    writes = sum(disk.counts["writes"] for disk in was.values())
    await _within(HAPPENS_WITHIN_S, lambda: sum(disk.counts["writes"] for disk in was.values()) > writes + len(names))
    await asyncio.sleep(run.chance.uniform(0, 0.05))
    run.kill(*names)
    taken = 0
    for each, disk in was.items():
        taken += sum(disk.lose_power(run.chance).values())
        disk.set(sync_us=run.chance.choice((0, 1_000, 5_000)))
        run.start_server(each)
    run.faults["unsynced changes taken by power losses"] += taken
    run.busy.difference_update(names)
    return taken > 0


async def jump_clock(run: Fabric, whose: str) -> bool:
    """Let somebody's calendar jump by days, and back after a while."""
    controls = run.disks if whose == "servers" else run.clocks
    control = run.chance.choice(list(controls.values()))
    before = control.counts["wrong times read"]
    control.set(clock_ns=run.chance.choice((-1, 1)) * run.chance.randint(1, 400) * DAY_NS)
    await _within(HAPPENS_WITHIN_S, lambda: control.counts["wrong times read"] > before)
    await asyncio.sleep(run.how_long(0.2, 1.0, 4.0))
    control.set(clock_ns=0)
    return control.counts["wrong times read"] > before


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


FAULTS: Final[tuple[Fault, ...]] = (
    Fault("kills of servers", 5, kill_server),
    Fault("kills of whole domains", 1, kill_domain),
    Fault("stops with SIGTERM", 2, drain_server),
    Fault("servers paused", 2, pause_server),
    Fault("small stores", 1, limit_store),
    Fault("power losses", 4, lose_power),
    Fault("short writes", 1, write_short),
    Fault("full disks", 2, fill_disk),
    Fault("writes with EIO", 1, partial(fail_disk, setting="eio_writes", counter="writes with EIO")),
    Fault("syncs with EIO", 1, partial(fail_disk, setting="eio_syncs", counter="syncs with EIO")),
    Fault("torn writes", 2, partial(fail_disk, setting="torn_writes", counter="torn writes")),
    Fault("clock jumps of servers", 1, partial(jump_clock, whose="servers")),
    Fault("clock jumps of clients", 0.5, partial(jump_clock, whose="clients")),
    Fault("partitions", 1.5, partition),
    *(Fault(f"links {mode}", 1.2, partial(spoil_link, mode=mode)) for mode in Mode if mode is not Mode.WELL),
)
CLIENT_FAULTS: Final[tuple[Fault, ...]] = (
    Fault("kills of clients", 1.5, kill_clients),
    Fault("clients killed before they acknowledge", 1.5, kill_before_ack),
    Fault("clients paused", 1, pause_clients),
    Fault("duplicate programs", 1, duplicate_clients),
)
