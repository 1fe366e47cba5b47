"""How a node works: its options, and what follows from them for its store, its boxes and its member."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from thence.core.member import MemberOptions
from thence.core.overflow import SpillRoom
from thence.core.retention import MAX_RETAINED_BYTES
from thence.core.topology import Topology
from thence.runtime import boxes, budget
from thence.runtime.backlog import Limits, share_out
from thence.runtime.door import MAX_CONNECTIONS, MAX_STRANGER_BYTES, MAX_STRANGERS, RESERVED_FILES, TLS_BYTES
from thence.runtime.neighbour import neighbours_of
from thence.runtime.office import MAX_CLIENTS, Office
from thence.runtime.pool import Pool
from thence.runtime.spill import Spill
from thence.runtime.store import MAX_BUFFERED_BYTES, MemoryStore, Store
from thence.runtime.subscriptions import MAX_SUBSCRIPTIONS
from thence.runtime.tls import TlsFiles

MAX_QUEUED: Final = 1_000_000
"""How many frames may wait for acknowledgement before clients have to wait: more than a member has by itself, since a server
whose neighbour is away for a night should go on."""

CONFIRM_WITHIN_NS: Final = 5_000_000
"""How long a neighbour may wait to hear that its frames were taken, where nothing else goes to it before."""

RETAINED_SHARE: Final = 16
"""How small a part of a store with a limit copies for others may take."""

NO_LIMIT: Final = 2**63


class NodeOptions(NamedTuple):
    """How a node works."""

    data: Path | None = None
    """Where it keeps what must survive; None: in memory."""
    tls: TlsFiles | None = None
    access: Path | None = None
    """The file that says which clients are let in and what they may do (``runtime.access``); None: all, and everything."""
    insecure: bool = False
    """Whether others may be let in without proof, where that would be refused (``runtime.exposure``)."""
    trace: Path | None = None
    """Where it writes its history."""
    max_store_bytes: int | None = None
    """The most that the store may hold; what is spilled is part of it."""
    spill_after_bytes: int | None = None
    """How much of each box, and of what waits for each neighbour, stays in memory, where the rest is spilled; None: nothing is,
    and a full box stops deliveries."""
    embedded: bool = False
    memory: int | None = None
    """How many bytes the process may take (``runtime.budget``); 0: a share of the machine; None: there is no budget."""
    agents: bool = False
    """Whether it knows classes of agents."""
    member: MemberOptions = MemberOptions(max_queued=MAX_QUEUED)


def memory_limits(options: NodeOptions, topology: Topology, name: str) -> budget.Limits:
    """Return limits that fit into the memory that a node may take."""
    if options.memory is None:
        return budget.NO_BUDGET
    durable, files = options.data is not None, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, files - RESERVED_FILES)
    places = len(topology.homes[name]) + sum(name in link.members for link in topology.links.values())
    return budget.share_out(
        options.memory or None,
        budget.Needs(
            connections=min(MAX_CONNECTIONS, files),
            tls_bytes=0 if options.tls is None else TLS_BYTES,
            stranger_bytes=MAX_STRANGER_BYTES - (0 if options.tls else MAX_STRANGERS * TLS_BYTES),
            neighbours=len(neighbours_of(topology, name)),
            places=places,
            clients=MAX_CLIENTS,
            subscriptions=MAX_SUBSCRIPTIONS,
            durable=durable,
            buffered_bytes=MAX_BUFFERED_BYTES if durable else 0,
            spill_after_bytes=options.spill_after_bytes,
            agents=options.agents,
        ),
    )


class Pools(NamedTuple):
    """What may be on its way."""

    clients: Pool
    peers: Pool


def budget_of(options: NodeOptions, topology: Topology, name: str) -> tuple[budget.Limits, Pools]:
    """Return the limits of a node, and its pools, with nothing in them."""
    limits = memory_limits(options, topology, name)
    return limits, Pools(Pool(limits.clients_pool_bytes), Pool(limits.peers_pool_bytes))


def member_options(options: NodeOptions, limits: budget.Limits = budget.NO_BUDGET) -> MemberOptions:
    """Return how the member of a node works.

    What is only in memory need not be told apart from what the application has consumed: both are lost together.
    """
    durable = options.data is not None
    room = limits_of(options).in_memory
    spill = None
    if durable and room is not None:
        spill = SpillRoom(*room, min(boxes.BLOCK_BUNDLES, room.letters), min(boxes.BLOCK_BYTES, room.bytes))
    given = options.member
    return msgspec.structs.replace(
        given,
        durable=durable,
        max_held=min(given.max_held, limits.held),
        max_queued_bytes=min(given.max_queued_bytes, limits.queued_bytes),
        max_unconsumed_bytes=min(given.max_unconsumed_bytes, limits.unconsumed_bytes),
        confirm_within_ns=options.member.confirm_within_ns or CONFIRM_WITHIN_NS,
        retain_bytes=min(MAX_RETAINED_BYTES, (options.max_store_bytes or NO_LIMIT) // RETAINED_SHARE) if durable else 0,
        spill=spill,
    )


def open_store(options: NodeOptions, topology: Topology, name: str) -> Store | MemoryStore:
    """Open the store of a node, or make one that keeps nothing."""
    if options.data is None:
        return MemoryStore()
    return Store.open(options.data, f"{topology.name}/{name}", limit_bytes=limits_of(options).log_bytes)


def limits_of(options: NodeOptions) -> Limits:
    """Return how much may wait in memory and on disk."""
    return share_out(options.max_store_bytes, options.spill_after_bytes)


def open_office(
    options: NodeOptions, topology: Topology, name: str, spill: Spill | None, limits: budget.Limits = budget.NO_BUDGET
) -> Office:
    """Return the office of a node, without anything in it."""
    beyond = limits_of(options).in_memory
    office = Office(name, topology.processes, embedded=options.embedded, spill=spill, spill_beyond=beyond)
    office.limit(limits.boxes_bytes, limits.clients, limits.subscriptions)
    return office
