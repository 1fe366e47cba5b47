"""``thence status``: ask a server how it is."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType

from thence.cli import answers, console, live
from thence.cli.options import Authority, Token, Url, lines_on_stall
from thence.client.client import ask_status
from thence.runtime import event_loop
from thence.words import counted

SHOWN_WAITS = 20
"""How many waiting messages are listed for people; the number of the others is told."""
SHOWN_ROWS = 2_000
"""How many peers, and clients, are listed: servers list fewer, but one that means ill."""

POOLS: Final = {"neighbours": "peers"}
"""Pools by the keys of the answer, and what they are called for people."""


def command(
    url: Url,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object with everything.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again and again, until Ctrl-C; once, where there is no terminal.")
    ] = False,
    every_s: live.Every = 2.0,
    token: Token = None,
    authority: Authority = None,
) -> None:
    """Ask a server how it is: its peers, clients, queues and clocks.

    Messages that wait are counted, and the 20 that wait longest listed,
    with what they wait for, from whom and since when; --json lists 1,000.

    Exits with 0 if all peers are connected and nothing is stalled,
    with 1 if not, and with 2 if the server cannot be reached.

    Example: thence status thence://127.0.0.1:7401
    """
    seen: dict[str, Any] = {}

    async def frame() -> list[RenderableType]:
        told = await ask_status(url, token=token, authority=authority)
        seen.update(answers.checked(told, answers.Status, url))
        return list(_shown(seen))

    if json:
        event_loop.run(frame())
        console.say_object(seen)
    else:
        live.show(frame, every_s if watch else None)
    if seen["stalled"] or not all(peer["connected"] for peer in seen["neighbours"]):
        raise typer.Exit(1)


def _shown(status: dict[str, Any]) -> Iterator[RenderableType]:
    """Give what there is to show: lines and tables."""
    yield console.plain(
        f"{status['server']} of {status['fabric']}, version {status['version']} ({status['fingerprint']}), "
        f"at {status['address']}, up {status['up_seconds']:,.0f} s"
    )
    change = status["change"]
    if change["phase"] != "normal":
        yield console.plain(
            f"{change['phase']}: version {change['next_version']} ({change['next_fingerprint']}) is to follow; "
            f"{counted(change['waiting_submissions'], 'submission', 'wait')}; "
            f"last led {change['led_seconds_ago'] or 0:,.0f} s ago"
        )
    yield from map(console.plain, lines_on_stall("stalled: ", status["stalled"]))
    store = status["store"]
    if store["durable"]:
        yield f"store: {console.count(store['commits'], 'commit')}, {store['mean_commit_ms']:.2f} ms each on average"
    else:
        yield "store: in memory only"
    backlog = status["backlog"]
    if backlog["mode"] == "spill":
        yield (
            f"backlog: for each client {backlog['box_letters']:,} messages or {backlog['box_bytes']:,} bytes in memory; "
            f"{backlog['spilled_bytes']:,} of at most {backlog['max_spilled_bytes'] or 0:,} bytes in files, "
            f"{backlog['spilled_frame_bytes']:,} of these, and at most {backlog['max_spilled_frame_bytes'] or 0:,}, "
            "for peers"
        )
    if backlog["frames_stay_in_memory"]:
        yield console.plain(f"frames for peers stay in memory: {backlog['frames_stay_in_memory']}")
    yield from _memory(status.get("memory", {}))
    peers = [
        (
            peer["name"],
            peer["unreadable"] or ("connected" if peer["connected"] else peer["trouble"]),
            f"{peer['since_seconds']:,.0f} s",
            peer["connections"],
            peer["queued_frames"],
            peer["spilled_frames"],
        )
        for peer in status["neighbours"]
    ]
    yield console.table(("peer", "state", "since", "connections", "queued", "of these in files"), peers, most=SHOWN_ROWS)
    clients = [
        (
            client["name"],
            f"connected from {client['from']}" if client["connected"] else "away",
            client["sent"],
            client["waiting_letters"],
            client["spilled_letters"],
        )
        for client in status["clients"]
    ]
    yield console.table(("client", "state", "sent", "waiting for it", "of these in files"), clients, most=SHOWN_ROWS)
    if (more := status.get("clients_count", 0) - len(clients)) > 0:
        yield f"  … and {console.count(more, 'more client')}"
    agents = status["agents"]
    if agents["count"]:
        dead = console.count(agents["dead_letters"], "dead message")
        reactions = console.count(agents["reactions"], "reaction")
        yield f"{console.count(agents['count'], 'agent')}: {reactions} since the start, {dead}"
    for name, clock in status["clocks"].items():
        yield console.plain(f"clock of {name} ({clock['ordering']}): {json_.dumps(clock['state'])[:300]}")
    yield f"{console.count(status['waiting_count'], 'message')} waiting for an earlier one"
    for wait in status["waiting"][:SHOWN_WAITS]:
        yield console.plain(f"  {wait}")
    listed = len(status["waiting"])
    more = status["waiting_count"] - min(listed, SHOWN_WAITS)
    if more:
        how = "lists all" if listed == status["waiting_count"] else f"lists {listed:,}"
        yield f"  … and {more:,} more: --json {how}"
    if status.get("unsafe") is not None:
        unsafe = status["unsafe"]
        messages, sent = console.count(unsafe["letters"], "message"), console.count(unsafe["sent"], "message")
        yield f"not safe yet: {messages} for clients, {sent} from here"


def _memory(memory: dict[str, Any]) -> Iterator[str]:
    """Say what the server may take, and how much of that is on its way."""
    if memory.get("limit_bytes"):
        held = [
            f"{pool['bytes']:,} of {pool['limit_bytes']:,} bytes to and from {POOLS.get(name, name)}"
            for name, pool in memory.get("in_flight", {}).items()
            if pool["limit_bytes"]
        ]
        yield f"memory: at most {memory['limit_bytes']:,} bytes; on their way are {', '.join(held)}"
