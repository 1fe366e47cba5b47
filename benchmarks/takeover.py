"""How long nothing arrives when a relay or a link's sequencer is killed: running servers, durable, with takeover and without.

A client at one side sends a message every few milliseconds to one at the other side. The relay that forwards, or the sequencer,
is killed (``kill -9``) in the middle and stays dead. Measured is the longest time between two deliveries, beside the same before
the kill. Without replicas nothing arrives until it is started again, here after ``AWAY_S``. With takeover the bound is two
seconds (``BOUND_S``): whether it was kept is printed, and if not the exit code is 1.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import thence
from benchmarks.table import Row, judged, markdown
from thence.cli.servers.up import Fleet, with_addresses
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse
from thence.errors import InternalError

MESSAGES: Final = 2_000
EVERY_S: Final = 0.005
AWAY_S: Final = 5.0
BOUND_S: Final = 2.0
PATIENCE_S: Final = 120.0

TWIN: Final = """
name = "twin"
[domains.A]
members = ["a1", "a2", "r1", "r2"]
[domains.D]
members = ["d1", "d2", "r1", "r2"]
[[relays]]
replicas = ["r1", "r2"]
"""

BETWEEN: Final = """
name = "between"
[domains.west]
members = ["a1", "rw1", "rw2"]
[domains.between]
members = ["rw1", "rw2", "re1", "re2"]
[domains.east]
members = ["d1", "re1", "re2"]
[[relays]]
replicas = ["rw1", "rw2"]
[[relays]]
replicas = ["re1", "re2"]
"""

LINK: Final = """
name = "link"
[domains.A]
members = ["a1", "a2", "ra1", "ra2"]
[domains.D]
members = ["d1", "d2", "rd1", "rd2"]
[[links]]
between = ["A", "D"]
relays = [["ra1", "rd1"], ["ra2", "rd2"]]
takeover = true
"""

WAITING: Final = LINK.replace("link", "waiting", 1).replace("takeover = true\n", "")

FIFO_LINK: Final = LINK.replace('"link"', '"fifo-link"\npromise = "fifo"').replace("takeover", 'mode = "fifo"\ntakeover')

SETS: Final = """
name = "sets"
promise = "fifo"
[domains.A]
members = ["a1", "a2", "ra1", "ra2"]
[domains.D]
members = ["d1", "d2", "rd1", "rd2"]
[[links]]
name = "one"
between = ["A", "D"]
relays = [["ra1", "rd1"], ["ra2", "rd2"]]
mode = "fifo"
only_from = ["a1", "d1"]
takeover = true
[[links]]
name = "two"
between = ["A", "D"]
relays = [["ra2", "rd1"], ["ra1", "rd2"]]
mode = "fifo"
only_from = ["a2", "d2"]
takeover = true
"""

ALONE: Final = """
name = "alone"
[domains.A]
members = ["a1", "a2", "r1"]
[domains.D]
members = ["d1", "d2", "r1"]
"""


NOTES: Final = """
A client sends a message every 5 ms to one at the other side, and the longest time between two deliveries counts, beside the same
before the kill. Most of it is `SUSPECT_AFTER_S`, half a second. Without replicas, what comes on top of the relay's absence are
its start and the time until its peers call again. The last four rows were measured while the two processors were busy with much
other work (a load above 20), hence the long start in the last one.
"""


class Gaps(NamedTuple):
    """The longest times between two deliveries, in seconds, and how many messages came, in which order."""

    before: float
    after: float
    numbers: list[int]
    without: int
    """How many of the messages that were sent after the kill came before who was killed was started again, if ever."""


class Back(NamedTuple):
    """When who was killed is started again: after so long, or when so many messages came that were sent after the kill."""

    after_s: float | None = None
    after_messages: int | None = None


NEVER: Final = Back()


def measure(
    text: str,
    killed: tuple[str, ...],
    *,
    back: Back,
    messages: int = MESSAGES,
    trace: Path | None = None,
    kind: type[Fleet] = Fleet,
) -> Gaps:
    """Run a fabric, kill these relays in the middle, and start them again after a while, or never."""
    with tempfile.TemporaryDirectory(prefix="thence-takeover-") as folder:
        data = Path(folder)
        topology = with_addresses(parse(text), data / "topology.toml")
        fleet = kind(topology, data, trace=trace)
        try:
            fleet.start()
            return asyncio.run(_talk(fleet, topology, killed, back, messages))
        finally:
            fleet.stop()


async def _talk(fleet: Fleet, topology: Topology, killed: tuple[str, ...], back: Back, messages: int) -> Gaps:
    await _all_up(topology)
    times: list[float] = []
    numbers: list[int] = []
    killed_at, first_after = 0.0, messages // 3
    came_before: list[int] = []
    async with (
        asyncio.timeout(PATIENCE_S),
        thence.connect(_url(topology, "a1"), "ann") as ann,
        thence.connect(_url(topology, "d1"), "dan") as dan,
    ):

        def start_again() -> None:
            came_before.append(len(numbers))
            for name in killed:
                fleet.start_one(name)

        async def listen() -> None:
            async for message in dan:
                times.append(time.monotonic())
                numbers.append(int(message.body))
                if back.after_messages is not None and numbers[-1] == first_after + back.after_messages - 1:
                    start_again()
                if len(numbers) == messages:
                    return

        await ann.known("dan")
        listening = asyncio.create_task(listen())
        loop = asyncio.get_running_loop()
        for number in range(messages):
            if number == first_after:
                killed_at = time.monotonic()
                for name in killed:
                    fleet.kill(name)
                if back.after_s is not None:
                    loop.call_later(back.after_s, start_again)
            await ann.send("dan", str(number).encode())
            await asyncio.sleep(EVERY_S)
        await listening
    if back != NEVER:
        await _all_up(topology)
    gaps = [(later, later - earlier) for earlier, later in pairwise(times)]
    before = max(gap for at, gap in gaps if at < killed_at)
    without = sum(number >= first_after for number in numbers[: came_before[0] if came_before else messages])
    return Gaps(before, max(gap for at, gap in gaps if at >= killed_at), numbers, without)


async def _all_up(topology: Topology) -> None:
    async with asyncio.timeout(PATIENCE_S):
        for name in topology.processes:
            while not await _up(topology, name):  # noqa: ASYNC110  It tells nobody when it is up.
                await asyncio.sleep(0.05)


async def _up(topology: Topology, name: str) -> bool:
    try:
        status = await ask_status(_url(topology, name))
    except (OSError, TimeoutError):
        return False
    return all(peer["connected"] for peer in status["neighbours"])


def _url(topology: Topology, server: str) -> str:
    return f"thence://{topology.addresses[server]}"


def run() -> list[Row]:
    """Kill relays and sequencers."""
    rows = []
    for what, text, killed, back in (
        ("two replicas, one killed for good", TWIN, ("r1",), NEVER),
        ("a domain between two sites, one of two replicas killed on each side", BETWEEN, ("rw1", "re1"), NEVER),
        (f"no replicas, the relay back after {AWAY_S:g} s", ALONE, ("r1",), Back(AWAY_S)),
        ("a parallel link with takeover, the sequencer killed for good", LINK, ("ra1",), NEVER),
        ("the same, on the side that receives", LINK, ("rd1",), NEVER),
        ("the same, the sequencers of both sides", LINK, ("ra1", "rd1"), NEVER),
        ("a FIFO link with takeover, the sender's relay killed for good", FIFO_LINK, ("ra1",), NEVER),
        ("a transfer set with a second pair, both relays of the first killed for good", SETS, ("ra1", "rd1"), NEVER),
        (f"a parallel link without takeover, the sequencer back after {AWAY_S:g} s", WAITING, ("ra1",), Back(AWAY_S)),
    ):
        gaps = measure(text, killed, back=back)
        if gaps.numbers != list(range(MESSAGES)):
            raise InternalError(f"{what}: {len(gaps.numbers)} messages came, not in order or not each once")
        goal = 1.0 if back == NEVER else None  # Who is waited for may be away for as long as it likes.
        seen = (f"{gaps.after:.2f} s", f"{BOUND_S:.0f} s", BOUND_S / gaps.after)
        rows.append(Row(f"{what} (before: {gaps.before:.3f} s)", *seen, goal))
    return rows


if __name__ == "__main__":
    measured = run()
    print(markdown(measured))
    if not judged(measured):
        raise SystemExit(1)
