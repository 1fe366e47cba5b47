"""``thence top``: all servers of a fabric at a glance, and again every second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from thence.cli import answers, console, live
from thence.cli.options import Authority, Token
from thence.client.client import ask_status
from thence.core.topology.model import Topology
from thence.errors import ThenceError
from thence.runtime.files import read_topology

ANSWER_WITHIN_S: Final = 3.0
"""How long a server may take to answer before it counts as away."""

FIRST_LOOKS_S: Final = 1.0
"""How far apart the first two looks are: rates need two."""

MAX_TROUBLES: Final = 10
"""How many troubles are told below the tables."""

MAX_PEERS: Final = 500
"""How many peers of one server are listed: one that means ill would keep the others from being seen."""

Status = dict[str, Any]


class Look(NamedTuple):
    """What all servers said at one time; a text: why one said nothing."""

    at: float
    said: dict[str, Status | str]


def command(
    topology: Annotated[Path, typer.Argument(metavar="TOPOLOGY", help="The TOML file of the fabric, with addresses.")],
    every_s: live.Every = 1.0,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Watch all servers of a fabric: links, queues, waits and rates.

    On a terminal it looks again every second, until Ctrl-C. Elsewhere it
    looks twice, a second apart, prints that once, and ends.

    In the upper table a line is a server: messages that its clients send and
    get a second, messages that it sends on for others, what waits. In the
    lower one it is one direction between two peers.

    Exits with 0 if all servers answered, all links stood and nothing was
    stalled when it last looked; with 1 if not; with 2 if the file holds no
    fabric.

    Example: thence top data/topology.toml
    """
    watch = Watch(read_topology(topology), token, authority)
    live.show(watch.frame, every_s)
    if watch.troubles:
        raise typer.Exit(1)


class Watch:
    """Looks at a fabric, and remembers the look before."""

    def __init__(self, topology: Topology, token: str | None, authority: Path | None) -> None:
        """Nothing was seen yet. With an ``authority``, servers are asked over TLS."""
        self.troubles: list[str] = []
        """What was wrong at the last look."""
        self._topology = topology
        self._before: Look | None = None
        self._ask = partial(_ask, token, authority)

    async def frame(self) -> Sequence[RenderableType]:
        """Look at all servers; return what there is to show."""
        if self._before is None:
            self._before = await self._look()
            await asyncio.sleep(FIRST_LOOKS_S)
        before, now = self._before, await self._look()
        self._before = now
        self.troubles = list(troubles(now))
        return frame(self._topology, before, now, self.troubles)

    async def _look(self) -> Look:
        """Ask all servers at once."""
        names, addresses = self._topology.processes, self._topology.addresses
        said = await asyncio.gather(*(self._ask(addresses.get(name)) for name in names))
        return Look(time.monotonic(), dict(zip(names, said, strict=True)))


async def _ask(token: str | None, authority: Path | None, address: str | None) -> Status | str:
    if address is None:
        return "no address in the topology"
    try:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            url = f"{'thence' if authority is None else 'thences'}://{address}"
            return answers.checked(await ask_status(url, token=token, authority=authority), answers.Status, url)
    except TimeoutError:
        return f"no answer at {address}"
    except (OSError, ThenceError) as error:
        return str(error)


def troubles(now: Look) -> Iterator[str]:
    """Say what is wrong."""
    for name, said in now.said.items():
        if isinstance(said, str):
            yield f"{name}: {said}"
            continue
        if said["stalled"]:
            yield f"{name} is stalled: {said['stalled']}"
        for peer in said["neighbours"]:
            if not peer["connected"]:
                yield f"{name} to {peer['name']}: {peer['trouble']}"


def frame(topology: Topology, before: Look, now: Look, wrong: Sequence[str]) -> list[RenderableType]:
    """Return what to show of two looks."""
    answered = sum(not isinstance(said, str) for said in now.said.values())
    head = f"{topology.name}: {answered} of {console.count(len(now.said), 'server')} answered"
    shown: list[RenderableType] = [
        Text(console.plain(head)),
        console.table(
            (
                "server",
                "state",
                "up",
                "sent/s",
                "got/s",
                "on/s",
                "clients",
                "in mailboxes",
                "waiting",
                "oldest",
                "held",
                "commit",
            ),
            [server_row(name, before, now) for name in now.said],
        ),
        console.table(("from", "to", "state", "frames/s", "bytes/s", "queued", "bytes queued"), link_rows(before, now)),
    ]
    shown += [Text(console.plain(line), style="red") for line in wrong[:MAX_TROUBLES]]
    if len(wrong) > MAX_TROUBLES:
        shown.append(Text(f"and {len(wrong) - MAX_TROUBLES} more"))
    return shown


def server_row(name: str, before: Look, now: Look) -> Sequence[object]:
    said = now.said[name]
    if isinstance(said, str):
        return (name, "away", *["-"] * 10)
    state = "stalled" if said["stalled"] else said["change"]["phase"] if said["change"]["phase"] != "normal" else "well"
    return (
        name,
        state,
        f"{said['up_seconds']:,.0f} s",
        *(_rate(name, key, before, now) for key in ("letters_accepted", "letters_delivered", "messages_forwarded")),
        f"{sum(client['connected'] for client in said['clients']):,}",
        f"{sum(client['waiting_letters'] for client in said['clients']):,}",
        f"{said['waiting_count']:,}",
        f"{said['oldest_wait_seconds']:,.1f} s",
        f"{said['held_deliveries']:,}",
        f"{said['store']['mean_commit_ms']:.2f} ms" if said["store"]["durable"] else "memory",
    )


def _rate(name: str, key: str, before: Look, now: Look) -> str:
    earlier, later = before.said.get(name), now.said[name]
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return "-"
    return _per_second(later[key] - earlier[key], before, now)


def _per_second(more: int, before: Look, now: Look) -> str:
    # Less than before: it was started again meanwhile.
    return f"{more / (now.at - before.at):,.0f}" if more >= 0 and now.at > before.at else "-"


def link_rows(before: Look, now: Look) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for name, said in now.said.items():
        if isinstance(said, str):
            continue
        earlier = before.said.get(name)
        known = {peer["name"]: peer for peer in earlier["neighbours"]} if isinstance(earlier, dict) else {}
        for peer in said["neighbours"][:MAX_PEERS]:
            past = known.get(peer["name"])
            rates = [
                "-" if past is None else _per_second(peer[key] - past[key], before, now) for key in ("frames_out", "bytes_out")
            ]
            state = "suspected" if peer["held_for_dead"] else "connected" if peer["connected"] else "down"
            queued = (f"{peer['queued_frames']:,}", f"{peer['queued_bytes']:,}")
            rows.append((name, peer["name"], state, *rates, *queued))
        if (more := len(said["neighbours"]) - MAX_PEERS) > 0:
            rows.append((name, f"… and {more:,} more", *["-"] * 5))
    return rows
