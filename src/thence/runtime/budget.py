"""The memory of a server: what each limit can cost at most, and that all of them together fit what the server may take.

Rules:

* Every limit by which others can make a server keep something is a ``Part`` here, with its name and its worst case. ``share_out``
  gives each part what it asks for, or all that can be smaller the same fraction of it; if what then remains of one is too little
  to work with, the server does not start, and says what each part needs.
* What is on its way is counted as it comes and goes (``runtime.pool``). Clients have one pool, and neighbours another, so that
  clients cannot starve the fabric.
* Without ``--memory`` a server takes one part in ``MACHINE_SHARE`` of what the machine has, or the container it is in. A member
  inside a program has no budget: that is the program's decision.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from thence.core.limits import MAX_QUEUED_BYTES, MAX_UNCONSUMED_BYTES
from thence.core.ordering.holding import MAX_HELD, MAX_HELD_BYTES
from thence.core.retention import MAX_RETAINED_BYTES
from thence.errors import ConfigError
from thence.runtime.boxes import MAX_BOXES_BYTES
from thence.runtime.ledger import MAX_DEAD_BYTES, MAX_STATES_BYTES
from thence.runtime.pool import NO_LIMIT

MIB: Final = 1024 * 1024

MACHINE_SHARE: Final = 2
"""One part in so many of the machine's memory is for a server, where nobody says otherwise."""

PROCESS_BYTES: Final = 128 * MIB
"""What a server takes that has nothing to do, what the interpreter does not give back, and those who ask over HTTP."""

CONNECTION_BYTES: Final = 24 * 1024
"""What a connection takes that says nothing: its buffer and its objects."""

CLIENT_BYTES: Final = 700
"""What a client of ours takes that is away, with what was rejected of it being little,"""

SUBSCRIPTION_BYTES: Final = 400
"""and a subscription."""

POOL_BYTES: Final = 1024 * MIB
"""What clients may have on its way, where there is memory enough."""

PEER_BYTES: Final = 160 * MIB
"""What one neighbour may: a frame as long as can be (``MAX_FRAME_BYTES``) and what it has not taken (``MAX_UNSENT_BYTES``)."""

SNAPSHOT_COPIES: Final = 2
"""How often what waits is copied while a snapshot is made of it."""


class Part(NamedTuple):
    """What one limit can cost."""

    name: str
    most: int
    """In bytes, with the limit as it is without a budget,"""
    least: int
    """and with the smallest one that can be worked with."""


class Needs(NamedTuple):
    """What a server is asked to bear."""

    connections: int
    tls_bytes: int
    """What TLS takes of each connection; 0: there is none."""
    stranger_bytes: int
    neighbours: int
    places: int
    """Domains and links that it is part of."""
    clients: int
    subscriptions: int
    durable: bool
    buffered_bytes: int
    """What the store may have in memory."""
    spill_after_bytes: int | None
    agents: bool


class Limits(NamedTuple):
    """The limits that fit together."""

    memory: int
    """All that the server may take; 0: there is no budget."""
    parts: tuple[tuple[str, int], ...] = ()
    """What each part of it can cost."""
    connections: int = NO_LIMIT
    clients_pool_bytes: int = NO_LIMIT
    peers_pool_bytes: int = NO_LIMIT
    boxes_bytes: int = MAX_BOXES_BYTES
    queued_bytes: int = MAX_QUEUED_BYTES
    unconsumed_bytes: int = MAX_UNCONSUMED_BYTES
    held: int = MAX_HELD
    states_bytes: int = MAX_STATES_BYTES
    clients: int = NO_LIMIT
    subscriptions: int = NO_LIMIT


_UNITS: Final = "KMGT"

NO_BUDGET: Final = Limits(0)


def parts_of(needs: Needs) -> list[Part]:
    """Return what each limit can cost."""
    copies = 1 + (SNAPSHOT_COPIES if needs.durable else 0)
    each = CONNECTION_BYTES + needs.tls_bytes
    room = min(needs.spill_after_bytes or MAX_BOXES_BYTES, MAX_BOXES_BYTES)
    agents = MAX_STATES_BYTES + MAX_DEAD_BYTES if needs.agents else 0
    return [
        Part("process", PROCESS_BYTES, PROCESS_BYTES),
        Part("strangers (MAX_STRANGER_BYTES)", needs.stranger_bytes, needs.stranger_bytes),
        Part("store (MAX_BUFFERED_BYTES)", needs.buffered_bytes, needs.buffered_bytes),
        Part("copies for the lost (MAX_RETAINED_BYTES)", MAX_RETAINED_BYTES, MAX_RETAINED_BYTES),
        Part("connections (MAX_CONNECTIONS)", needs.connections * each, min(64, needs.connections) * each),
        Part("clients in flight", POOL_BYTES, 128 * MIB),
        Part("neighbours in flight", needs.neighbours * PEER_BYTES, PEER_BYTES if needs.neighbours else 0),
        # Small letters take twice what they count for (``boxes.MIN_BUNDLE_BYTES``).
        Part("mailboxes (MAX_BOXES_BYTES)", (1 + copies) * MAX_BOXES_BYTES, (1 + copies) * min(room, 16 * MIB)),
        # What is sent on for others may be four times what is sent (``MAX_QUEUED_BYTES_HARD``), in each domain and link.
        Part("queues (MAX_QUEUED_BYTES_HARD)", 4 * copies * needs.places * MAX_QUEUED_BYTES, 64 * copies * needs.places * MIB),
        Part("held deliveries (MAX_UNCONSUMED_BYTES)", copies * MAX_UNCONSUMED_BYTES, copies * 16 * MIB),
        Part("early frames (MAX_HELD_BYTES)", copies * needs.places * MAX_HELD_BYTES, copies * needs.places * 32 * MIB),
        Part("agents (MAX_STATES_BYTES, MAX_DEAD_BYTES)", copies * agents, copies * agents // 16),
        Part("clients (MAX_CLIENTS)", copies * needs.clients * CLIENT_BYTES, copies * min(1_000, needs.clients) * CLIENT_BYTES),
        Part(
            "subscriptions (MAX_SUBSCRIPTIONS)",
            copies * needs.subscriptions * SUBSCRIPTION_BYTES,
            copies * min(10_000, needs.subscriptions) * SUBSCRIPTION_BYTES,
        ),
    ]


def share_out(memory: int | None, needs: Needs) -> Limits:
    """Return limits that fit into so many bytes together; ``ConfigError`` if there are none.

    None: into a share of the machine, or what is needed at least if that is more: a small machine should not keep a server from
    starting that nobody has told what it may take.
    """
    parts = parts_of(needs)
    if memory is None:
        memory = max(machine_memory() // MACHINE_SHARE, sum(part.least for part in parts))
    given = dict(_given(memory, parts))
    most = {part.name: part.most for part in parts}

    def scaled(part: str, limit: int) -> int:
        name = next(name for name in most if name.startswith(part))
        return limit if not most[name] else limit * given[name] // most[name]

    return Limits(
        memory,
        tuple(given.items()),
        connections=scaled("connections", needs.connections),
        clients_pool_bytes=given["clients in flight"],
        peers_pool_bytes=given["neighbours in flight"] or NO_LIMIT,
        boxes_bytes=scaled("mailboxes", MAX_BOXES_BYTES),
        queued_bytes=scaled("queues", MAX_QUEUED_BYTES),
        unconsumed_bytes=scaled("held deliveries", MAX_UNCONSUMED_BYTES),
        held=scaled("early frames", MAX_HELD),
        states_bytes=scaled("agents", MAX_STATES_BYTES),
        clients=scaled("clients (", needs.clients),
        subscriptions=scaled("subscriptions", needs.subscriptions),
    )


def _given(memory: int, parts: list[Part]) -> Iterator[tuple[str, int]]:
    """Give each part what it asks for; or, of what it can do without, the same fraction as all others."""
    most, least = sum(part.most for part in parts), sum(part.least for part in parts)
    if memory < least:
        told = "; ".join(f"{part.name} {_mib(part.least)}" for part in parts if part.least)
        asked, enough = _mib(memory) if memory >= MIB else f"{memory:,} bytes", -(-least // MIB)
        raise ConfigError(
            f"--memory {asked}: the limits cannot fit, they need {_mib(least)} at least: {told}. Give --memory {enough}M or more"
        )
    for part in parts:
        spare = part.most - part.least
        yield part.name, part.least + (spare if memory >= most else spare * (memory - least) // (most - least))


def parse_size(text: str, option: str = "--memory") -> int:
    """Return a number of bytes that somebody wrote, as ``2GiB``, ``512M`` or ``1073741824``."""
    number, unit = text.strip().rstrip("BbIi"), 1
    if number and number[-1].upper() in _UNITS:
        number, unit = number[:-1], 1024 ** (1 + _UNITS.index(number[-1].upper()))
    try:
        size = int(float(number) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ConfigError(f"{option} {text}: must be a number of bytes, such as 2G or 512M")
    return size


def parse_memory(text: str) -> int:
    """Return the budget that somebody wrote for a server; more than there is could not be kept."""
    size, there = parse_size(text), machine_memory()
    if size > there:
        raise ConfigError(f"--memory {text}: there are {_mib(there)} here; give that or less, or leave the option out")
    return size


def _mib(size: int) -> str:
    return f"{-(-size // MIB):,} MiB"


def machine_memory(root: Path = Path("/")) -> int:
    """Return how much memory there is for this process: that of the machine, or of the container if that is less."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = Path()
    try:
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, kinds, place = line.split(":", 2)
            if kinds == "" or "memory" in kinds.split(","):
                group = Path(place.lstrip("/"))
                top = root / "sys/fs/cgroup" / ("" if kinds == "" else "memory")
                for folder in (group, *group.parents):
                    for name in ("memory.max", "memory.limit_in_bytes"):
                        found.extend(_limit_in(top / folder / name))
    except (OSError, ValueError):
        pass  # Not Linux, or not to be seen from here.
    return min(found)


def _limit_in(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() else []
