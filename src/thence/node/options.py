"""How a node works: its options, and what follows from them for its store, its mailboxes and its member."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from thence.core.member.limits import MemberOptions
from thence.core.ordering import ArrivalOrder, make_ordering
from thence.core.reconfig.retention import MAX_RETAINED_BYTES
from thence.core.topology.model import Topology
from thence.core.transport.spill_queue import SpillRoom
from thence.net.byte_pool import BytePool
from thence.net.security.tls import TlsFiles
from thence.node import budget
from thence.node.backlog import BacklogLimits, share_out
from thence.node.directory.directory import MAX_CLIENTS, Directory
from thence.node.directory.subscriptions import MAX_SUBSCRIPTIONS
from thence.node.listener import MAX_CONNECTIONS, MAX_STRANGER_BYTES, MAX_STRANGERS, RESERVED_FILES, TLS_BYTES
from thence.node.peers.peer import peers_of
from thence.storage import mailbox
from thence.storage.spill import Spill
from thence.storage.store import MAX_BUFFERED_BYTES, MemoryStore, Store

MAX_QUEUED: Final = 1_000_000
"""How many frames may wait for acknowledgement before clients have to wait: more than a member has by itself, since a server
whose peer is away for a night should go on."""

ACK_WITHIN_NS: Final = 5_000_000
"""How long a peer may wait to hear that its frames were taken, where nothing else goes to it before."""

RETAINED_SHARE: Final = 16
"""How small a part of a store with a limit copies for others may take."""

NO_LIMIT: Final = 2**63


class NodeOptions(NamedTuple):
    """How a node works."""

    data: Path | None = None
    """Where it keeps what must survive; None: in memory."""
    tls: TlsFiles | None = None
    access: Path | None = None
    """The file that says which clients are let in and what they may do (``net.security.access``); None: all, and everything."""
    insecure: bool = False
    """Whether others may be let in without proof, where that would be refused (``net.security.exposure``)."""
    trace: Path | None = None
    """Where it writes its history."""
    max_store_bytes: int | None = None
    """The most that the store may hold; what is spilled is part of it."""
    spill_after_bytes: int | None = None
    """How much of each mailbox, and of what waits for each peer, stays in memory, where the rest is spilled; None: nothing is,
    and a full mailbox stops deliveries."""
    embedded: bool = False
    memory: int | None = None
    """How many bytes the process may take (``node.budget``); 0: a share of the machine; None: there is no budget."""
    agents: bool = False
    """Whether it knows classes of agents."""
    member: MemberOptions = MemberOptions(max_queued=MAX_QUEUED)


def memory_limits(options: NodeOptions, topology: Topology, name: str) -> budget.MemoryLimits:
    """Return limits that fit into the memory that a node may take."""
    if options.memory is None:
        return budget.NO_BUDGET
    return budget.share_out(options.memory or None, needs_of(options, topology, name))


def memory_beside(count: int, options: NodeOptions, topology: Topology, name: str) -> int:
    """Return what one of ``count`` servers on this machine may take: its part of the usual share, or the least that it needs."""
    least = sum(part.least for part in budget.parts_of(needs_of(options, topology, name)))
    return max(budget.machine_memory() // (budget.MACHINE_SHARE * count), least)


def needs_of(options: NodeOptions, topology: Topology, name: str) -> budget.Needs:
    """Return what a node is asked to bear."""
    durable, files = options.data is not None, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    files = MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, files - RESERVED_FILES)
    return budget.Needs(
        connections=min(MAX_CONNECTIONS, files),
        tls_bytes=0 if options.tls is None else TLS_BYTES,
        stranger_bytes=MAX_STRANGER_BYTES - (0 if options.tls else MAX_STRANGERS * TLS_BYTES),
        peers=len(peers_of(topology, name)),
        shape=shape_of(topology, name),
        clients=MAX_CLIENTS,
        subscriptions=MAX_SUBSCRIPTIONS,
        durable=durable,
        buffered_bytes=MAX_BUFFERED_BYTES if durable else 0,
        spill_after_bytes=options.spill_after_bytes,
        agents=options.agents,
    )


def shape_of(topology: Topology, name: str) -> budget.FabricShape:
    """Return where in the fabric a server is."""
    domains = [topology.domains[home] for home in topology.homes[name]]
    links = [link for link in topology.links.values() if name in link.members]
    orderings = [make_ordering(domain.ordering, name, domain.members, domain.options) for domain in domains]
    others = [[member for member in place.members if member != name] for place in (*domains, *links)]
    fifo = [ordering.traits.arrival is not ArrivalOrder.ANY for ordering in orderings] + [link.mode == "fifo" for link in links]
    rings = [len(peers) for ordering, peers in zip(orderings, others, strict=False) if ordering.paths.circular]
    copying = [len(domain.members) for domain in domains if domain.acks.retransmission == "nearest"]
    return budget.FabricShape(
        servers=len(topology.processes) - 1,
        domains=len(domains),
        links=len(links),
        peers=sum(map(len, others)),
        fifo_peers=sum([len(peers) for peers, in_order in zip(others, fifo, strict=True) if in_order]),
        ring_peers=sum(rings),
        rings=len(rings),
        returned_to=sum([sum(map(one.paths.hands_back_to, peers)) for one, peers in zip(orderings, others, strict=False)]),
        copied_from=sum(copying),
        copying=len(copying),
        safe=any(domain.delivery == "safe" for domain in domains),
        replica=name in topology.fellows,
        stability=topology.keeps_accounts,
    )


class Pools(NamedTuple):
    """What may be on its way."""

    clients: BytePool
    peers: BytePool


class MemoryBudget:
    """What a node may keep in memory, and what is on its way. It follows the topology: who has more peers has less for each."""

    def __init__(self, options: NodeOptions, topology: Topology, name: str) -> None:
        """Begin with nothing on its way; ``ConfigError`` if the limits do not fit."""
        self._options, self._name = options, name
        self.limits = memory_limits(options, topology, name)
        self.pools = Pools(BytePool(self.limits.clients_pool_bytes), BytePool(self.limits.peers_pool_bytes))

    def check(self, topology: Topology) -> None:
        """Refuse a topology as ``ConfigError`` with which the limits would not fit."""
        if self._name in topology.homes:
            memory_limits(self._options, topology, self._name)

    def fit(self, topology: Topology) -> bool:
        """Share out the memory anew, for another topology; return whether that changes a limit."""
        if self._name not in topology.homes:
            return False
        before, self.limits = self.limits, memory_limits(self._options, topology, self._name)
        self.pools.clients.limit, self.pools.peers.limit = self.limits.clients_pool_bytes, self.limits.peers_pool_bytes
        return self.limits != before

    @property
    def member_options(self) -> MemberOptions:
        """How the member works within the limits."""
        return member_options(self._options, self.limits)

    def limit(self, directory: Directory) -> None:
        """Let a directory keep to the limits."""
        limits = self.limits
        directory.limit(limits.mailboxes_bytes, limits.clients, limits.subscriptions, limits.names_bytes, limits.topics_bytes)


def member_options(options: NodeOptions, limits: budget.MemoryLimits = budget.NO_BUDGET) -> MemberOptions:
    """Return how the member of a node works.

    What is only in memory need not be told apart from what the application has consumed: both are lost together.
    """
    durable = options.data is not None
    room = limits_of(options).in_memory
    spill = None
    if durable and room is not None:
        spill = SpillRoom(*room, min(mailbox.BLOCK_BATCHES, room.messages), min(mailbox.BLOCK_BYTES, room.bytes))
    given = options.member
    return msgspec.structs.replace(
        given,
        durable=durable,
        max_held=min(given.max_held, limits.held),
        max_queued_bytes=min(given.max_queued_bytes, limits.queued_bytes),
        max_unconsumed_bytes=min(given.max_unconsumed_bytes, limits.unconsumed_bytes),
        max_early_bytes=min(given.max_early_bytes, limits.early_bytes),
        max_copies_bytes=min(given.max_copies_bytes, limits.copies_bytes),
        ack_within_ns=options.member.ack_within_ns or ACK_WITHIN_NS,
        retain_bytes=min(MAX_RETAINED_BYTES, (options.max_store_bytes or NO_LIMIT) // RETAINED_SHARE) if durable else 0,
        spill=spill,
    )


def open_store(options: NodeOptions, topology: Topology, name: str) -> Store | MemoryStore:
    """Open the store of a node, or make one that keeps nothing."""
    if options.data is None:
        return MemoryStore()
    return Store.open(options.data, f"{topology.name}/{name}", limit_bytes=limits_of(options).log_bytes)


def limits_of(options: NodeOptions) -> BacklogLimits:
    """Return how much may wait in memory and on disk."""
    return share_out(options.max_store_bytes, options.spill_after_bytes)


def open_directory(options: NodeOptions, topology: Topology, name: str, spill: Spill | None, memory: MemoryBudget) -> Directory:
    """Return the directory of a node, without anything in it."""
    beyond = limits_of(options).in_memory
    directory = Directory(name, topology.processes, embedded=options.embedded, spill=spill, spill_beyond=beyond)
    memory.limit(directory)
    if options.max_store_bytes is not None:  # All of it is for the log.
        directory.mailboxes.late_spilled_bytes = 0
    return directory
