"""The memory of a server: what each limit can cost at most, and that all of them together fit what the server may take.

Rules:

* Every limit by which others can make a server keep something is a ``BudgetPart`` here, with its name and its worst case.
  ``share_out`` gives each part what it asks for, or all that can be smaller the same fraction of it. If what then remains of one
  is too little to work with, the server does not start, and says what each part needs.
* What is on its way is counted as it comes and goes (``net.byte_pool``). Clients have one pool, and peers another, so that
  clients cannot starve the fabric.
* Without ``--memory`` a server takes one part in ``MACHINE_SHARE`` of what the machine has, or the container it is in. A member
  inside a program has no budget: that is the program's decision.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from thence.core.failover.early_payloads import MAX_AHEAD_KEPT_BYTES
from thence.core.member.limits import (
    MAX_ECHO_BYTES,
    MAX_QUEUED_BYTES,
    MAX_QUEUED_BYTES_HARD,
    MAX_UNCONSUMED_BYTES,
    MIN_QUEUED_BYTES_HARD,
)
from thence.core.ordering.pending import MAX_HELD, MAX_HELD_BYTES, MIN_HELD_BYTES
from thence.core.places.link_end import MAX_EARLY_BYTES
from thence.core.reconfig.retention import MAX_RETAINED_BYTES
from thence.core.stability.stable import UNSTABLE_SLACK_BYTES, unstable_bytes
from thence.core.transport.ack_all.copies import MAX_COPIES_BYTES
from thence.core.transport.window import WINDOW_BYTES
from thence.core.wire.messages import MAX_BODY_BYTES
from thence.errors import ConfigError
from thence.net.byte_pool import NO_LIMIT
from thence.node.directory.announcement_memory import MAX_NAMES_BYTES, MAX_TOPICS_BYTES
from thence.node.directory.closings import CLOSED_BYTES, MAX_CLOSED
from thence.node.directory.mailboxes import ON_WAY_SHARE
from thence.storage.agents import MAX_DEAD_BYTES, MAX_STATES_BYTES
from thence.storage.mailbox import MAX_MAILBOXES_BYTES

MIB: Final = 1024 * 1024

MACHINE_SHARE: Final = 2
"""One part in so many of the machine's memory is for a server, where nobody says otherwise."""

PROCESS_BYTES: Final = 128 * MIB
"""What a server takes that has nothing to do, what the interpreter does not give back, and those who ask over HTTP."""

CONNECTION_BYTES: Final = 24 * 1024
"""What a connection takes that says nothing: its buffer and its objects."""

CLIENT_BYTES: Final = 2_000
"""What a client of ours takes that is away, with a name as long as can be: 1,350, and 650 of programs that came
back under it."""

SUBSCRIPTION_BYTES: Final = 1_150
"""What a subscription takes, with a topic as long as can be."""

MANY_SERVERS: Final = 4
"""Names and topics of all other servers together have as much room as those of so many of them."""

POOL_BYTES: Final = 1024 * MIB
"""What clients may have on its way, where there is memory enough."""

PEER_BYTES: Final = 160 * MIB
"""What one peer may: a frame as long as can be (``MAX_FRAME_BYTES``) and what it has not taken (``MAX_UNSENT_BYTES``)."""

SNAPSHOT_COPIES: Final = 2
"""How often what waits is copied while a snapshot is made of it."""


class BudgetPart(NamedTuple):
    """What one limit can cost."""

    name: str
    most: int
    """How many bytes, with the limit as it is without a budget."""
    least: int
    """How many bytes, with the smallest limit that can be worked with."""


class FabricShape(NamedTuple):
    """Where in the fabric a server is: what of it others can fill."""

    servers: int = 0
    """Other servers."""
    domains: int = 1
    links: int = 0
    peers: int = 0
    """Members that it exchanges frames with, in each domain and link anew."""
    fifo_peers: int = 0
    """Those of them whose frames are kept aside until their turn comes."""
    ring_peers: int = 0
    """Members of rings (``flood``), in each of which frames go to two peers."""
    rings: int = 0
    returned_to: int = 0
    """Members to whom it hands back what they sent (``sequenced``, ``grouped``)."""
    copied_from: int = 0
    """Members of whose messages it keeps copies (``core.transport.ack_all.copies``), in ``copying`` domains."""
    copying: int = 0
    safe: bool = False
    """Whether deliveries wait until all have them."""
    replica: bool = False
    stability: bool = False
    """Whether messages of others are kept until all have them."""


class Needs(NamedTuple):
    """What a server is asked to bear."""

    connections: int
    tls_bytes: int
    """What TLS takes of each connection; 0: there is none."""
    stranger_bytes: int
    peers: int
    shape: FabricShape
    clients: int
    subscriptions: int
    durable: bool
    buffered_bytes: int
    """What the store may have in memory."""
    spill_after_bytes: int | None
    agents: bool


class MemoryLimits(NamedTuple):
    """The limits that fit together."""

    memory: int
    """All that the server may take; 0: there is no budget."""
    parts: tuple[tuple[str, int], ...] = ()
    """What each part of it can cost."""
    connections: int = NO_LIMIT
    clients_pool_bytes: int = NO_LIMIT
    peers_pool_bytes: int = NO_LIMIT
    mailboxes_bytes: int = MAX_MAILBOXES_BYTES
    queued_bytes: int = MAX_QUEUED_BYTES
    unconsumed_bytes: int = MAX_UNCONSUMED_BYTES
    held: int = MAX_HELD
    states_bytes: int = MAX_STATES_BYTES
    clients: int = NO_LIMIT
    subscriptions: int = NO_LIMIT
    early_bytes: int = MAX_EARLY_BYTES
    copies_bytes: int = MAX_COPIES_BYTES
    names_bytes: int = MAX_NAMES_BYTES
    topics_bytes: int = MAX_TOPICS_BYTES


class Sizes(NamedTuple):
    """Limits of the core that become smaller together, as the most and the least that they are."""

    queued: int
    """``MAX_QUEUED_BYTES_HARD``, of what is sent on for others: four times ``MAX_QUEUED_BYTES``."""
    held: int
    early: int
    copies: int


MOST_SIZES: Final = Sizes(MAX_QUEUED_BYTES_HARD, MAX_HELD_BYTES, MAX_EARLY_BYTES, MAX_COPIES_BYTES)

LEAST_SIZES: Final = Sizes(MIN_QUEUED_BYTES_HARD, MIN_HELD_BYTES, MIN_HELD_BYTES, 0)

_UNITS: Final = "KMGT"

NO_BUDGET: Final = MemoryLimits(0)


def parts_of(needs: Needs) -> list[BudgetPart]:
    """Return what each limit can cost."""
    copies = 1 + (SNAPSHOT_COPIES if needs.durable else 0)
    each = CONNECTION_BYTES + needs.tls_bytes
    room = min(needs.spill_after_bytes or MAX_MAILBOXES_BYTES, MAX_MAILBOXES_BYTES)
    agents = MAX_STATES_BYTES + MAX_DEAD_BYTES if needs.agents else 0
    return [
        BudgetPart("process", PROCESS_BYTES, PROCESS_BYTES),
        BudgetPart("strangers (MAX_STRANGER_BYTES)", needs.stranger_bytes, needs.stranger_bytes),
        BudgetPart("store (MAX_BUFFERED_BYTES)", needs.buffered_bytes, needs.buffered_bytes),
        BudgetPart("copies for the lost (MAX_RETAINED_BYTES)", MAX_RETAINED_BYTES, MAX_RETAINED_BYTES),
        BudgetPart("connections (MAX_CONNECTIONS)", needs.connections * each, min(64, needs.connections) * each),
        BudgetPart("clients in flight", POOL_BYTES, 128 * MIB),
        BudgetPart("peers in flight", needs.peers * PEER_BYTES, PEER_BYTES if needs.peers else 0),
        # Small messages take twice what they count for (``mailboxes.MIN_BATCH_BYTES``).
        BudgetPart("mailboxes (MAX_MAILBOXES_BYTES)", (1 + copies) * MAX_MAILBOXES_BYTES, (1 + copies) * min(room, 16 * MIB)),
        # For those that are closed.
        BudgetPart(
            "late messages (MAX_MAILBOXES_BYTES, ON_WAY_SHARE)",
            (1 + copies) * MAX_MAILBOXES_BYTES // ON_WAY_SHARE,
            (1 + copies) * min(room, 16 * MIB) // ON_WAY_SHARE,
        ),
        BudgetPart("held deliveries (MAX_UNCONSUMED_BYTES)", copies * MAX_UNCONSUMED_BYTES, copies * 16 * MIB),
        BudgetPart(
            "deliveries held for agents (MAX_UNCONSUMED_BYTES)",
            copies * needs.agents * (MAX_UNCONSUMED_BYTES + MAX_BODY_BYTES),
            copies * needs.agents * (16 * MIB + MAX_BODY_BYTES),
        ),
        BudgetPart("agents (MAX_STATES_BYTES, MAX_DEAD_BYTES)", copies * agents, copies * agents // 16),
        BudgetPart(
            "clients (MAX_CLIENTS)", copies * needs.clients * CLIENT_BYTES, copies * min(1_000, needs.clients) * CLIENT_BYTES
        ),
        BudgetPart(
            "subscriptions (MAX_SUBSCRIPTIONS)",
            copies * needs.subscriptions * SUBSCRIPTION_BYTES,
            copies * min(10_000, needs.subscriptions) * SUBSCRIPTION_BYTES,
        ),
        *_parts_of_others(needs.shape, copies),
        *_parts_of_fabric(needs.shape, copies),
    ]


def _parts_of_others(shape: FabricShape, copies: int) -> Iterator[BudgetPart]:
    """Give what other servers can fill by what they tell of: each has the same part of it."""
    many = copies * min(shape.servers, MANY_SERVERS)
    closed = copies * shape.servers * MAX_CLOSED * CLOSED_BYTES
    yield BudgetPart("closed mailboxes of others (MAX_CLOSED)", closed, closed)
    yield BudgetPart("names of others (MAX_NAMES_BYTES)", many * MAX_NAMES_BYTES, copies * shape.servers * MIB)
    yield BudgetPart("subscriptions of others (MAX_TOPICS_BYTES)", many * MAX_TOPICS_BYTES, copies * shape.servers * MIB)


def _parts_of_fabric(shape: FabricShape, copies: int) -> Iterator[BudgetPart]:
    """Give what peers can fill in domains and links. What a limit is for each of them is multiplied."""
    places = shape.domains + shape.links
    costs: list[tuple[str, Callable[[Sizes], int]]] = [
        ("queues (MAX_QUEUED_BYTES_HARD)", lambda sizes: places * sizes.queued),
        ("one message more in each queue (MAX_BODY_BYTES)", lambda _: shape.peers * MAX_BODY_BYTES),
        # Each peer in a ring has a queue that may be as long as all of a domain, and have in it what waited elsewhere.
        (
            "queues around rings (MAX_QUEUED_BYTES_HARD, MAX_HELD_BYTES, MAX_EARLY_BYTES)",
            lambda sizes: (
                2 * (shape.ring_peers + 2 * shape.rings) * MAX_BODY_BYTES
                + 2 * shape.rings * (sizes.queued + (shape.domains - 1) * sizes.held + shape.links * sizes.early)
            ),
        ),
        (
            "queues back to relays (MAX_QUEUED_BYTES_HARD, MAX_HELD_BYTES, MAX_ECHO_BYTES)",
            lambda sizes: shape.returned_to * (sizes.queued + sizes.held + MAX_ECHO_BYTES + 3 * MAX_BODY_BYTES),
        ),
        ("kept for another replica (MAX_QUEUED_BYTES_HARD)", lambda sizes: shape.replica * shape.domains * sizes.queued),
        ("early frames (MAX_HELD_BYTES)", lambda sizes: shape.domains * sizes.held),
        ("early frames of links (MAX_EARLY_BYTES)", lambda sizes: shape.links * sizes.early),
        (
            "copies to repeat (MAX_COPIES_BYTES, WINDOW_BYTES)",
            lambda sizes: shape.copying * sizes.copies + shape.copied_from * (WINDOW_BYTES + MAX_BODY_BYTES),
        ),
    ]
    kept = unstable_bytes(1 + shape.servers) + UNSTABLE_SLACK_BYTES
    # All members have to keep to the same, however much memory they have.
    costs.append(
        ("kept until all have it (MAX_UNSTABLE_BYTES)", lambda _: shape.stability * places * shape.servers * kept),
    )
    costs.append(("deliveries that wait for all (MAX_UNSTABLE_BYTES)", lambda _: shape.safe * (1 + shape.servers) * kept))
    for name, cost in costs:
        yield BudgetPart(name, copies * cost(MOST_SIZES), copies * cost(LEAST_SIZES))
    # These are in no snapshot.
    ahead = shape.peers * MAX_AHEAD_KEPT_BYTES + shape.fifo_peers * (WINDOW_BYTES + MAX_BODY_BYTES)
    yield BudgetPart("frames before their turn (WINDOW_BYTES, MAX_AHEAD_KEPT_BYTES)", ahead, ahead)


def share_out(memory: int | None, needs: Needs) -> MemoryLimits:
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

    part = _fraction(memory, parts)
    sizes = Sizes(*[least + int(part * (largest - least)) for largest, least in zip(MOST_SIZES, LEAST_SIZES, strict=True)])
    spread = Fraction(min(needs.shape.servers, MANY_SERVERS), max(1, needs.shape.servers))
    return MemoryLimits(
        memory,
        tuple(given.items()),
        connections=scaled("connections", needs.connections),
        clients_pool_bytes=given["clients in flight"],
        peers_pool_bytes=given["peers in flight"] or NO_LIMIT,
        mailboxes_bytes=scaled("mailboxes", MAX_MAILBOXES_BYTES),
        queued_bytes=sizes.queued // 4,
        unconsumed_bytes=scaled("held deliveries", MAX_UNCONSUMED_BYTES),
        held=sizes.held * MAX_HELD // MAX_HELD_BYTES,
        states_bytes=scaled("agents", MAX_STATES_BYTES),
        clients=scaled("clients (", needs.clients),
        subscriptions=scaled("subscriptions (", needs.subscriptions),
        early_bytes=sizes.early,
        copies_bytes=sizes.copies,
        names_bytes=int(spread * scaled("names of others", MAX_NAMES_BYTES)),
        topics_bytes=int(spread * scaled("subscriptions of others", MAX_TOPICS_BYTES)),
    )


def _fraction(memory: int, parts: list[BudgetPart]) -> Fraction:
    """Return how much of what they can do without the parts get."""
    most, least = sum(part.most for part in parts), sum(part.least for part in parts)
    return Fraction(1) if memory >= most else Fraction(memory - least, most - least)


def _given(memory: int, parts: list[BudgetPart]) -> Iterator[tuple[str, int]]:
    """Give each part what it asks for; or, of what it can do without, the same fraction as all others."""
    least = sum(part.least for part in parts)
    if memory < least:
        needs = "; ".join(f"{part.name} {_mib(part.least)}" for part in parts if part.least)
        asked, enough = _mib(memory) if memory >= MIB else f"{memory:,} bytes", -(-least // MIB)
        raise ConfigError(
            f"--memory {asked}: the limits cannot fit, they need {_mib(least)} at least: {needs}. Give --memory {enough}M or more"
        )
    fraction = _fraction(memory, parts)
    for part in parts:
        yield part.name, part.least + int(fraction * (part.most - part.least))


def parse_size(text: str) -> int:
    """Return a number of bytes that somebody wrote, as ``2GiB``, ``512M`` or ``1073741824``."""
    number, unit = text.strip().rstrip("BbIi"), 1
    if number and number[-1].upper() in _UNITS:
        number, unit = number[:-1], 1024 ** (1 + _UNITS.index(number[-1].upper()))
    try:
        size = int(float(number) * unit)
    except (ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ConfigError(f"--memory {text}: must be a number of bytes, such as 2G or 512M")
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
