"""The metrics of a server: the table of them, and their text. docs/how-to/operations.md explains each, and a test compares the
two.

Rules:

* A metric is one line of ``FAMILIES``: its name, its labels, what it is about, and how it is read off a look
  (``observe.snapshot``).
* Names say the unit. What only grows ends with ``total``, and begins with the process unless its text says otherwise.
* There are no labels with names of clients: there may be a million of them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from thence import __version__
from thence.net.byte_pool import BytePool
from thence.net.protocol import PROTOCOL
from thence.node.node import Node
from thence.node.peers.peer import Peer
from thence.observe.snapshot import ServerLook, look
from thence.runtime.counters import Histogram
from thence.server.server import Server

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Kind = Literal["counter", "gauge", "histogram"]
Value = float | Histogram
Samples = Iterable[tuple[Sequence[str], Value]]
"""The values of the labels, and the value."""

Read = Callable[[ServerLook], Samples]


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    about: str
    read: Read

    def metric(self, samples: Samples) -> Metric:
        """Return the metric as prometheus-client writes it; what it is about is said even if there are no samples."""
        made = Metric(self.name.removesuffix("_total"), self.about, self.kind)
        for values, value in samples:
            labels = dict(zip(self.labels, values, strict=True))
            if not isinstance(value, Histogram):
                made.add_sample(self.name, labels, value)
                continue
            counts = list(accumulate(value.counts))
            for bound, count in zip((*(f"{bound:g}" for bound in value.bounds), "+Inf"), counts, strict=True):
                made.add_sample(f"{self.name}_bucket", {**labels, "le": bound}, count)
            made.add_sample(f"{self.name}_sum", labels, value.total)
            made.add_sample(f"{self.name}_count", labels, counts[-1])
        return made


class _Look(Collector):
    """All metrics of one look."""

    def __init__(self, seen: ServerLook) -> None:
        self._seen = seen

    def collect(self) -> Iterator[Metric]:
        return (family.metric(family.read(self._seen)) for family in FAMILIES)


async def exposition(server: Server) -> str:
    """Return all metrics of a server as text."""
    return generate_latest(_Look(await look(server))).decode()


def _single(name: str, about: str, read: Callable[[ServerLook], Value | None], kind: Kind = "gauge") -> Family:
    """Return a metric without labels; None: there is no such thing here."""

    def samples(seen: ServerLook) -> Samples:
        value = read(seen)
        return () if value is None else [((), value)]

    return Family(name, "counter" if name.endswith("_total") else kind, (), about, samples)


def _of_node(name: str, about: str, read: Callable[[Node], Value | None], kind: Kind = "gauge") -> Family:
    """Return a metric without labels that the node tells."""
    return _single(name, about, lambda seen: read(seen.server.node), kind)


def _labelled(name: str, label: str, about: str, read: Callable[[ServerLook], Mapping[str, float]]) -> Family:
    """Return a metric with one label."""
    kind: Kind = "counter" if name.endswith("_total") else "gauge"
    return Family(name, kind, (label,), about, lambda seen: [((of,), value) for of, value in read(seen).items()])


def _of_peers(name: str, about: str, read: Callable[[ServerLook, Peer], float]) -> Family:
    """Return a metric that each peer has."""
    return _labelled(name, "neighbour", about, lambda seen: {peer.name: read(seen, peer) for peer in seen.peers})


def _build(seen: ServerLook) -> Samples:
    node = seen.server.node
    yield (__version__, platform.python_version(), str(PROTOCOL), node.topology.name, node.name), 1


def _topology(seen: ServerLook) -> Samples:
    topology = seen.server.node.topology
    yield (str(topology.version), topology.fingerprint), 1


def _stalled(seen: ServerLook) -> Samples:
    node = seen.server.node
    yield ("store",), bool(node.intake.full)
    yield ("box",), len(node.directory.mailboxes.closed) > 0
    yield ("queue",), bool(node.intake.stalls.all())


def _used_ratio(seen: ServerLook) -> float:
    store = seen.server.node.driver.store
    return (store.held_bytes + store.buffered_bytes) / store.limit_bytes if store.limit_bytes else 0.0


def _pools(seen: ServerLook) -> tuple[tuple[str, BytePool], ...]:
    return ("clients", seen.server.node.memory.pools.clients), ("neighbours", seen.server.node.memory.pools.peers)


def _spilled(seen: ServerLook) -> float:
    spill = seen.server.node.backlog.spill
    return 0 if spill is None else spill.bytes


def _queue_ratio(seen: ServerLook) -> float:
    node = seen.server.node
    outgoing = node.backlog.outgoing
    in_files = outgoing.bytes / outgoing.limit_bytes if outgoing is not None else 0.0
    return max(node.member.admission.fullest, in_files)


def _open_ratio(seen: ServerLook) -> float | None:
    opened, most = seen.process.open_files, seen.process.max_files
    return None if opened is None or most is None else opened / most


def _sampled(seen: ServerLook) -> Samples:
    yield ("stamp",), sum(peer.traffic.sampled_stamp_bytes for peer in seen.peers)
    yield ("body",), sum(peer.traffic.sampled_body_bytes for peer in seen.peers)


FAMILIES: Final = (
    # Who it is.
    Family("thence_build_info", "gauge", ("version", "python", "protocol", "fabric", "server"), "Who this is; always 1.", _build),
    Family("thence_topology_info", "gauge", ("version", "fingerprint"), "The topology in force; always 1.", _topology),
    _of_node(
        "thence_topology_changing",
        "Whether a change of the fabric is under way here.",
        lambda node: node.member.view.state.phase in ("holding", "prepared"),
    ),
    # What goes through.
    _of_node(
        "thence_messages_submitted_total",
        "Messages that this server has sent since its store began: batches of messages, and notices.",
        lambda node: node.member.forwarder.number,
    ),
    _of_node(
        "thence_messages_delivered_total", "Messages delivered here since its store began.", lambda node: node.member.log.position
    ),
    _of_node("thence_messages_forwarded_total", "Messages sent on for others.", lambda node: node.member.forwarder.forwarded),
    _of_node(
        "thence_letters_accepted_total", "Messages of clients that were accepted.", lambda node: node.intake.messages_accepted
    ),
    _of_node(
        "thence_letters_delivered_total",
        "Messages put into mailboxes of clients; one for several clients counts for each.",
        lambda node: node.dispatch.handover.messages_delivered,
    ),
    _labelled(
        "thence_letters_dropped_total",
        "by",
        "Messages that waited for a client and were dropped: it left, or an operator removed it or emptied its mailbox.",
        lambda seen: dict(seen.server.node.removal.dropped),
    ),
    _labelled(
        "thence_letters_undeliverable_total",
        "by",
        "Messages for a client that lost its name to one of another server: sent back, or published, or without a sender.",
        lambda seen: dict(seen.server.node.returning.counts),
    ),
    _single(
        "thence_letters_withheld_total",
        "Messages that waited for a client on a topic that it may not follow any more, and that it did not get.",
        lambda seen: seen.server.revocation.withheld,
    ),
    # Peers.
    _of_peers("thence_neighbour_up", "Whether the peer is connected.", lambda _, peer: peer.up),
    _of_peers(
        "thence_neighbour_state_seconds", "How long it has been connected, or not.", lambda _, peer: time.monotonic() - peer.since
    ),
    _of_peers("thence_neighbour_connections_total", "Connections made with it.", lambda _, peer: peer.traffic.connections),
    _of_peers(
        "thence_neighbour_protocol", "Which protocol is spoken with it: the newest that both know.", lambda _, peer: peer.protocol
    ),
    _of_peers(
        "thence_neighbour_suspected",
        "Whether it is suspected, where relays have replicas.",
        lambda seen, peer: peer.name in seen.server.node.member.attachment.suspected,
    ),
    _of_peers(
        "thence_neighbour_forgot",
        "Whether there is no connection with it because one of the two runs on an old copy of its store.",
        lambda _, peer: peer.behind != "nobody",
    ),
    _of_node(
        "thence_fenced",
        "Whether this server has stopped for good, since a peer showed that it runs on an old copy of its store.",
        lambda node: bool(node.peers.epochs.fenced),
    ),
    _of_peers("thence_neighbour_frames_received_total", "Frames that came from it.", lambda _, one: one.traffic.total.frames_in),
    _of_peers("thence_neighbour_frames_sent_total", "Frames that went to it.", lambda _, peer: peer.traffic.total.frames_out),
    _of_peers("thence_neighbour_received_bytes_total", "Bytes that came from it.", lambda _, peer: peer.traffic.total.bytes_in),
    _of_peers("thence_neighbour_sent_bytes_total", "Bytes that went to it.", lambda _, peer: peer.traffic.total.bytes_out),
    Family(
        "thence_sampled_bytes_total",
        "counter",
        ("part",),
        "Of one packet in 64: bytes of stamps, which is what order costs, and of bodies.",
        _sampled,
    ),
    # Queues and waits.
    _of_peers(
        "thence_queued_frames",
        "Frames that the peer has not acknowledged.",
        lambda seen, peer: seen.queued_frames.get(peer.name, 0),
    ),
    _of_peers(
        "thence_queued_bytes",
        "About how many bytes they have, in memory and in files.",
        lambda seen, peer: seen.queued_bytes.get(peer.name, 0) + seen.spilled_bytes.get(peer.name, 0),
    ),
    _of_peers(
        "thence_spilled_frames",
        "How many of them are in files, for want of memory.",
        lambda seen, peer: seen.spilled_frames.get(peer.name, 0),
    ),
    _of_peers(
        "thence_neighbour_unreadable",
        "Whether a file with frames for it cannot be read, so that it gets nothing.",
        lambda seen, peer: peer.name in seen.unreadable,
    ),
    _single(
        "thence_queue_full_ratio",
        "How full the fullest queue to a peer is, or their files; with 1 in memory who sends to that peer waits.",
        _queue_ratio,
    ),
    _of_peers(
        "thence_neighbour_stalled_seconds",
        "How long nothing more has been taken for it since the queue to it is full; 0: it has room.",
        lambda seen, peer: seen.server.node.intake.stalls.peers.get(peer.name, 0),
    ),
    _single(
        "thence_waiting_clients",
        "Clients that have sent something that waits for room.",
        lambda seen: len(seen.server.clients.waiting()),
    ),
    _single("thence_waiting_messages", "Messages that wait for an earlier one.", lambda seen: seen.waiting),
    _single("thence_oldest_wait_seconds", "How long the oldest of them has been waiting.", lambda seen: seen.oldest_wait_s),
    _of_node(
        "thence_unsafe_deliveries",
        "Deliveries of which it is not known that all have them, where that is told later.",
        lambda node: node.member.log.unsafe,
    ),
    _of_node(
        "thence_unsafe_sent",
        "Messages sent from here that are not safe, where that is told later; with max_queued senders wait.",
        lambda node: node.member.forwarder.unsafe,
    ),
    _of_node("thence_held_deliveries", "Deliveries that wait because a mailbox is full.", lambda node: node.dispatch.held),
    _single("thence_box_letters", "Messages that wait for clients.", lambda seen: seen.mailboxes.messages),
    _single("thence_box_bytes", "Their bytes.", lambda seen: seen.mailboxes.bytes),
    _single(
        "thence_box_longest_letters", "The most messages that wait for one client.", lambda seen: seen.mailboxes.longest_messages
    ),
    _single("thence_box_longest_bytes", "The most bytes that do.", lambda seen: seen.mailboxes.longest_bytes),
    _single(
        "thence_box_full_ratio",
        "How full the fullest mailbox is, or the files for what is spilled; with 1 whoever writes there waits.",
        lambda seen: seen.mailbox_ratio,
    ),
    _single("thence_spilled_bytes", "Messages and frames in files, for want of memory.", _spilled),
    Family(
        "thence_stalled",
        "gauge",
        ("by",),
        "Whether the server takes nothing now, because of its store (or trace) or a mailbox, or nothing for a peer (queue).",
        _stalled,
    ),
    # Clients and agents.
    _single("thence_clients_connected", "Clients that are connected.", lambda seen: len(seen.server.clients.here)),
    _of_node(
        "thence_clients_known",
        "Clients and agents that have their mailbox here.",
        lambda node: len(node.directory.state.mailboxes),
    ),
    _of_node("thence_agents", "Agents that live here.", lambda node: len(node.ledger.agents)),
    _single(
        "thence_agent_reactions_total", "Reactions of agents that were committed.", lambda seen: seen.server.engine.reactions
    ),
    _single("thence_agent_failures_total", "Attempts of agents to react that failed.", lambda seen: seen.server.engine.failures),
    _of_node(
        "thence_agent_dead_letters",
        "Messages that agents could not react to and that were set aside.",
        lambda node: len(node.ledger.state.dead),
    ),
    # Who was not let in.
    _labelled(
        "thence_refused_frames_total",
        "kind",
        "Frames of peers that were not taken, by the error.",
        lambda seen: dict(seen.server.node.peers.refusals.counts),
    ),
    _single(
        "thence_strangers_turned_away_total",
        "Connections that were turned away because too many had not introduced themselves.",
        lambda seen: seen.server.turned_away,
    ),
    # Memory.
    _of_node("thence_memory_limit_bytes", "What the server may take in all (--memory).", lambda node: node.memory.limits.memory),
    _labelled(
        "thence_in_flight_bytes",
        "of",
        "Frames that are read in part, what is not sent yet and what waits to be done, of clients and of peers.",
        lambda seen: {name: pool.used for name, pool in _pools(seen)},
    ),
    _labelled(
        "thence_in_flight_limit_bytes",
        "of",
        "How much that may be.",
        lambda seen: {name: pool.limit for name, pool in _pools(seen)},
    ),
    _labelled(
        "thence_shown_out_total",
        "of",
        "Connections that were ended because others waited for the memory that was held for them.",
        lambda seen: {name: pool.shown_out for name, pool in _pools(seen)},
    ),
    # The store.
    _of_node(
        "thence_commit_seconds", "How long commits took, sync and all.", lambda node: node.driver.commits.seconds, "histogram"
    ),
    _of_node("thence_commit_entries", "How many entries shared a commit.", lambda node: node.driver.commits.entries, "histogram"),
    _single(
        "thence_commit_running_seconds",
        "How long the commit that is under way has been; 0: none is.",
        lambda seen: seen.committing_s,
    ),
    _of_node("thence_store_buffered_bytes", "What is not durable yet.", lambda node: node.driver.store.buffered_bytes),
    _of_node("thence_store_bytes", "What the store holds on disk.", lambda node: node.driver.store.held_bytes),
    _of_node(
        "thence_store_limit_bytes", "What it may hold; only with --max-store-bytes.", lambda node: node.driver.store.limit_bytes
    ),
    _single(
        "thence_store_full_ratio", "How full it is by that limit, with what waits to be stored; 0 without a limit.", _used_ratio
    ),
    _single("thence_disk_free_bytes", "What is free on the disk of the store.", lambda seen: seen.free_bytes),
    _of_node(
        "thence_trace_stopped", "Whether the trace cannot be written at the moment.", lambda node: bool(node.history.trouble)
    ),
    # The process, by the names that others use too.
    _single("process_cpu_seconds_total", "Time on processors.", lambda seen: seen.process.cpu_seconds),
    _single("process_resident_memory_bytes", "Memory in use.", lambda seen: seen.process.resident_bytes),
    _single("process_open_fds", "Open files and connections.", lambda seen: seen.process.open_files),
    _single("process_max_fds", "How many there may be.", lambda seen: seen.process.max_files),
    _single("thence_open_fds_ratio", "The one by the other.", _open_ratio),
    _single("process_start_time_seconds", "When the server was started.", lambda seen: seen.server.status.started_at),
)
