"""The metrics of a server: the table of them, and their text. docs/operations.md explains each, and a test compares the two.

Rules:

* A metric is one line of ``FAMILIES``: its name, its labels, what it is about, and how it is read off a look (``web.looking``).
* Names say the unit. What only grows ends with ``total``, and begins with the process unless its text says otherwise.
* There are no labels with names of clients: there may be a million of them.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from thence import __version__
from thence.runtime.pool import Pool
from thence.runtime.protocol import PROTOCOL
from thence.runtime.server import Server
from thence.web.exposition import Kind, Samples, Value, write_family
from thence.web.looking import Seen, look

Read = Callable[[Seen], Samples]


class Family(NamedTuple):
    """One metric."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    about: str
    read: Read


async def exposition(server: Server) -> str:
    """Return all metrics of a server as text."""
    seen = await look(server)
    lines = [line for family in FAMILIES for line in write_family(*_head(family), family.read(seen))]
    return "\n".join(lines) + "\n"


def _head(family: Family) -> tuple[str, Kind, str, tuple[str, ...]]:
    return family.name, family.kind, family.about, family.labels


def _one(read: Callable[[Seen], Value | None]) -> Read:
    """Return how to read a metric without labels; None: there is no such thing here."""

    def samples(seen: Seen) -> Samples:
        value = read(seen)
        return () if value is None else [((), value)]

    return samples


def _by(read: Callable[[Seen], dict[str, float]]) -> Read:
    """Return how to read a metric with one label."""
    return lambda seen: [((name,), value) for name, value in read(seen).items()]


def _build(seen: Seen) -> Samples:
    node = seen.server.node
    yield (__version__, platform.python_version(), str(PROTOCOL), node.topology.name, node.name), 1


def _topology(seen: Seen) -> Samples:
    topology = seen.server.node.topology
    yield (str(topology.version), topology.fingerprint), 1


def _stalled(seen: Seen) -> Samples:
    node = seen.server.node
    yield ("store",), bool(node.full)
    yield ("box",), bool(node.office.full)
    yield ("queue",), bool(node.stalls.all())


def _used_ratio(seen: Seen) -> float:
    store = seen.server.node.store
    return (store.held_bytes + store.buffered_bytes) / store.limit_bytes if store.limit_bytes else 0.0


def _pools(seen: Seen) -> tuple[tuple[str, Pool], ...]:
    return ("clients", seen.server.node.pools.clients), ("neighbours", seen.server.node.pools.peers)


def _spilled(seen: Seen) -> float:
    spill = seen.server.node.backlog.spill
    return 0 if spill is None else spill.bytes


def _queue_ratio(seen: Seen) -> float:
    node = seen.server.node
    outgoing = node.backlog.outgoing
    in_files = outgoing.bytes / outgoing.limit_bytes if outgoing is not None else 0.0
    return max(node.member.fullest_queue, in_files)


def _open_ratio(seen: Seen) -> float | None:
    opened, most = seen.process.open_files, seen.process.max_files
    return None if opened is None or most is None else opened / most


def _sampled(seen: Seen) -> Samples:
    yield ("stamp",), sum(peer.sampled_stamp_bytes for peer in seen.neighbours)
    yield ("body",), sum(peer.sampled_body_bytes for peer in seen.neighbours)


FAMILIES: Final = (
    # Who it is.
    Family("thence_build_info", "gauge", ("version", "python", "protocol", "fabric", "server"), "Who this is; always 1.", _build),
    Family("thence_topology_info", "gauge", ("version", "fingerprint"), "The topology in force; always 1.", _topology),
    Family(
        "thence_topology_changing",
        "gauge",
        (),
        "Whether a change of the fabric is under way here.",
        _one(lambda seen: seen.server.node.member.view.state.phase in ("holding", "prepared")),
    ),
    # What goes through.
    Family(
        "thence_messages_submitted_total",
        "counter",
        (),
        "Messages that this server has sent since its store began: bundles of letters, and notices.",
        _one(lambda seen: seen.server.node.member.submitted),
    ),
    Family(
        "thence_messages_delivered_total",
        "counter",
        (),
        "Messages delivered here since its store began.",
        _one(lambda seen: seen.server.node.member.delivered),
    ),
    Family(
        "thence_messages_forwarded_total",
        "counter",
        (),
        "Messages sent on for others.",
        _one(lambda seen: seen.server.node.member.forwarded),
    ),
    Family(
        "thence_letters_accepted_total",
        "counter",
        (),
        "Letters of clients that were accepted.",
        _one(lambda seen: seen.server.node.letters_accepted),
    ),
    Family(
        "thence_letters_delivered_total",
        "counter",
        (),
        "Letters put into boxes of clients; one for several clients counts for each.",
        _one(lambda seen: seen.server.node.letters_delivered),
    ),
    Family(
        "thence_letters_dropped_total",
        "counter",
        ("by",),
        "Letters that waited for a client and were dropped: it left, or an operator removed it or emptied its mailbox.",
        _by(lambda seen: dict(seen.server.node.removal.dropped)),
    ),
    Family(
        "thence_letters_undeliverable_total",
        "counter",
        ("by",),
        "Letters for a client that lost its name to one of another server: sent back, or published, or without a sender.",
        _by(lambda seen: dict(seen.server.node.returning.counts)),
    ),
    # Neighbours.
    Family(
        "thence_neighbour_up",
        "gauge",
        ("neighbour",),
        "Whether the neighbour is connected.",
        _by(lambda seen: {peer.name: peer.up for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_state_seconds",
        "gauge",
        ("neighbour",),
        "How long it has been connected, or not.",
        _by(lambda seen: {peer.name: time.monotonic() - peer.since for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_connections_total",
        "counter",
        ("neighbour",),
        "Connections made with it.",
        _by(lambda seen: {peer.name: peer.connections for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_protocol",
        "gauge",
        ("neighbour",),
        "Which protocol is spoken with it: the newest that both know.",
        _by(lambda seen: {peer.name: peer.protocol for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_suspected",
        "gauge",
        ("neighbour",),
        "Whether it is held for dead, where relays have replicas.",
        _by(lambda seen: {peer.name: peer.name in seen.server.node.member.suspected for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_forgot",
        "gauge",
        ("neighbour",),
        "Whether there is no connection with it because one of the two runs on an old copy of its store.",
        _by(lambda seen: {peer.name: peer.forgot for peer in seen.neighbours}),
    ),
    Family(
        "thence_fenced",
        "gauge",
        (),
        "Whether this server has stopped for good, since a neighbour showed that it runs on an old copy of its store.",
        _one(lambda seen: bool(seen.server.node.meetings.fenced)),
    ),
    Family(
        "thence_neighbour_frames_received_total",
        "counter",
        ("neighbour",),
        "Frames that came from it.",
        _by(lambda seen: {peer.name: peer.traffic.frames_in for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_frames_sent_total",
        "counter",
        ("neighbour",),
        "Frames that went to it.",
        _by(lambda seen: {peer.name: peer.traffic.frames_out for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_received_bytes_total",
        "counter",
        ("neighbour",),
        "Bytes that came from it.",
        _by(lambda seen: {peer.name: peer.traffic.bytes_in for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_sent_bytes_total",
        "counter",
        ("neighbour",),
        "Bytes that went to it.",
        _by(lambda seen: {peer.name: peer.traffic.bytes_out for peer in seen.neighbours}),
    ),
    Family(
        "thence_sampled_bytes_total",
        "counter",
        ("part",),
        "Of one packet in 64: bytes of stamps, which is what order costs, and of bodies.",
        _sampled,
    ),
    # Queues and waits.
    Family(
        "thence_queued_frames",
        "gauge",
        ("neighbour",),
        "Frames that the neighbour has not confirmed.",
        _by(lambda seen: {peer.name: seen.queued_frames.get(peer.name, 0) for peer in seen.neighbours}),
    ),
    Family(
        "thence_queued_bytes",
        "gauge",
        ("neighbour",),
        "About how many bytes they have, in memory and in files.",
        _by(
            lambda seen: {
                peer.name: seen.queued_bytes.get(peer.name, 0) + seen.spilled_bytes.get(peer.name, 0) for peer in seen.neighbours
            }
        ),
    ),
    Family(
        "thence_spilled_frames",
        "gauge",
        ("neighbour",),
        "How many of them are in files, for want of memory.",
        _by(lambda seen: {peer.name: seen.spilled_frames.get(peer.name, 0) for peer in seen.neighbours}),
    ),
    Family(
        "thence_neighbour_unreadable",
        "gauge",
        ("neighbour",),
        "Whether a file with frames for it cannot be read, so that it gets nothing.",
        _by(lambda seen: {peer.name: peer.name in seen.unreadable for peer in seen.neighbours}),
    ),
    Family(
        "thence_queue_full_ratio",
        "gauge",
        (),
        "How full the fullest queue to a neighbour is, or their files; with 1 in memory who sends to that neighbour waits.",
        _one(_queue_ratio),
    ),
    Family(
        "thence_neighbour_stalled_seconds",
        "gauge",
        ("neighbour",),
        "How long nothing more has been taken for it since the queue to it is full; 0: it has room.",
        _by(lambda seen: {peer.name: seen.server.node.stalls.peers.get(peer.name, 0) for peer in seen.neighbours}),
    ),
    Family(
        "thence_waiting_clients",
        "gauge",
        (),
        "Clients that have sent something that waits for room.",
        _one(lambda seen: seen.server.waiting_clients),
    ),
    Family(
        "thence_waiting_messages",
        "gauge",
        (),
        "Messages that wait for an earlier one.",
        _one(lambda seen: seen.waiting),
    ),
    Family(
        "thence_oldest_wait_seconds",
        "gauge",
        (),
        "How long the oldest of them has been waiting.",
        _one(lambda seen: seen.oldest_wait_s),
    ),
    Family(
        "thence_unsafe_deliveries",
        "gauge",
        (),
        "Deliveries of which it is not known that all have them, where that is told later.",
        _one(lambda seen: seen.server.node.member.unsafe),
    ),
    Family(
        "thence_unsafe_sent",
        "gauge",
        (),
        "Messages sent from here that are not safe, where that is told later; with max_queued senders wait.",
        _one(lambda seen: seen.server.node.member.unsafe_sent),
    ),
    Family(
        "thence_held_deliveries",
        "gauge",
        (),
        "Deliveries that wait because a box is full.",
        _one(lambda seen: seen.server.node.held),
    ),
    Family("thence_box_letters", "gauge", (), "Letters that wait for clients.", _one(lambda seen: seen.boxes.letters)),
    Family("thence_box_bytes", "gauge", (), "Their bytes.", _one(lambda seen: seen.boxes.bytes)),
    Family(
        "thence_box_longest_letters",
        "gauge",
        (),
        "The most letters that wait for one client.",
        _one(lambda seen: seen.boxes.longest_letters),
    ),
    Family("thence_box_longest_bytes", "gauge", (), "The most bytes that do.", _one(lambda seen: seen.boxes.longest_bytes)),
    Family(
        "thence_box_full_ratio",
        "gauge",
        (),
        "How full the fullest box is, or the files for what is spilled; with 1 the server takes nothing more.",
        _one(lambda seen: seen.box_ratio),
    ),
    Family("thence_spilled_bytes", "gauge", (), "Letters and frames in files, for want of memory.", _one(_spilled)),
    Family(
        "thence_stalled",
        "gauge",
        ("by",),
        "Whether the server takes nothing now, because of its store (or trace) or a box, or nothing for a neighbour (queue).",
        _stalled,
    ),
    # Clients and agents.
    Family("thence_clients_connected", "gauge", (), "Clients that are connected.", _one(lambda seen: seen.server.connected)),
    Family(
        "thence_clients_known",
        "gauge",
        (),
        "Clients and agents that have their box here.",
        _one(lambda seen: len(seen.server.node.office.state.boxes)),
    ),
    Family("thence_agents", "gauge", (), "Agents that live here.", _one(lambda seen: len(seen.server.node.ledger.agents))),
    Family(
        "thence_agent_reactions_total",
        "counter",
        (),
        "Reactions of agents that were committed.",
        _one(lambda seen: seen.server.engine.reactions),
    ),
    Family(
        "thence_agent_failures_total",
        "counter",
        (),
        "Attempts of agents to react that failed.",
        _one(lambda seen: seen.server.engine.failures),
    ),
    Family(
        "thence_agent_dead_letters",
        "gauge",
        (),
        "Letters that agents could not react to and that were set aside.",
        _one(lambda seen: len(seen.server.node.ledger.state.dead)),
    ),
    # Who was not let in.
    Family(
        "thence_refused_frames_total",
        "counter",
        ("kind",),
        "Frames of neighbours that were not taken, by the error.",
        _by(lambda seen: dict(seen.server.node.refusals)),
    ),
    Family(
        "thence_strangers_turned_away_total",
        "counter",
        (),
        "Connections that were turned away because too many had not introduced themselves.",
        _one(lambda seen: seen.server.turned_away),
    ),
    # Memory.
    Family(
        "thence_memory_limit_bytes",
        "gauge",
        (),
        "What the server may take in all (--memory).",
        _one(lambda seen: seen.server.node.limits.memory),
    ),
    Family(
        "thence_in_flight_bytes",
        "gauge",
        ("of",),
        "Frames that are read in part, what is not sent yet and what waits to be done, of clients and of neighbours.",
        _by(lambda seen: {name: pool.used for name, pool in _pools(seen)}),
    ),
    Family(
        "thence_in_flight_limit_bytes",
        "gauge",
        ("of",),
        "How much that may be.",
        _by(lambda seen: {name: pool.limit for name, pool in _pools(seen)}),
    ),
    Family(
        "thence_shown_out_total",
        "counter",
        ("of",),
        "Connections that were ended because others waited for the memory that was held for them.",
        _by(lambda seen: {name: pool.shown_out for name, pool in _pools(seen)}),
    ),
    # The store.
    Family(
        "thence_commit_seconds",
        "histogram",
        (),
        "How long commits took, sync and all.",
        _one(lambda seen: seen.server.node.driver.commit_seconds),
    ),
    Family(
        "thence_commit_entries",
        "histogram",
        (),
        "How many entries shared a commit.",
        _one(lambda seen: seen.server.node.driver.commit_entries),
    ),
    Family(
        "thence_commit_running_seconds",
        "gauge",
        (),
        "How long the commit that is under way has been; 0: none is.",
        _one(lambda seen: seen.committing_s),
    ),
    Family(
        "thence_store_buffered_bytes",
        "gauge",
        (),
        "What is not durable yet.",
        _one(lambda seen: seen.server.node.store.buffered_bytes),
    ),
    Family(
        "thence_store_bytes", "gauge", (), "What the store holds on disk.", _one(lambda seen: seen.server.node.store.held_bytes)
    ),
    Family(
        "thence_store_limit_bytes",
        "gauge",
        (),
        "What it may hold; only with --max-store-bytes.",
        _one(lambda seen: seen.server.node.store.limit_bytes),
    ),
    Family(
        "thence_store_full_ratio",
        "gauge",
        (),
        "How full it is by that limit, with what waits to be stored; 0 without a limit.",
        _one(_used_ratio),
    ),
    Family("thence_disk_free_bytes", "gauge", (), "What is free on the disk of the store.", _one(lambda seen: seen.free_bytes)),
    Family(
        "thence_trace_stopped",
        "gauge",
        (),
        "Whether the trace cannot be written at the moment.",
        _one(lambda seen: bool(seen.server.node.history.trouble)),
    ),
    # The process, by the names that others use too.
    Family("process_cpu_seconds_total", "counter", (), "Time on processors.", _one(lambda seen: seen.process.cpu_seconds)),
    Family("process_resident_memory_bytes", "gauge", (), "Memory in use.", _one(lambda seen: seen.process.resident_bytes)),
    Family("process_open_fds", "gauge", (), "Open files and connections.", _one(lambda seen: seen.process.open_files)),
    Family("process_max_fds", "gauge", (), "How many there may be.", _one(lambda seen: seen.process.max_files)),
    Family("thence_open_fds_ratio", "gauge", (), "The one by the other.", _one(_open_ratio)),
    Family("process_start_time_seconds", "gauge", (), "When the server was started.", _one(lambda seen: seen.server.started_at)),
)
