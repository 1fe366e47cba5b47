"""How a server is: why it takes nothing, what to do about it, and everything else that ``thence status`` shows."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final

from thence.agents.engine import AgentEngine
from thence.core.member.member import describe_wait
from thence.net.byte_pool import NO_LIMIT
from thence.node.node import Node
from thence.runtime.event_loop import polling_of
from thence.runtime.printable import printable
from thence.server.clients import ConnectedClients
from thence.server.revocation import Revocation

MAX_WAITS_LISTED: Final = 1_000
"""How many waiting messages a status lists, of those that wait longest; ``waiting_left_out`` counts the others."""

MAX_LISTED: Final = 1_000
"""How many clients, and how many topics, a status lists; it says how many there are."""

MAX_CLOSED_LISTED: Final = 3
"""How many closed mailboxes it names."""

WAIT_FOR_CLOSED: Final = "whoever writes there waits, and everything else goes on"


class ServerStatus:
    """What a server says of itself."""

    def __init__(self, node: Node, clients: ConnectedClients, engine: AgentEngine, revocation: Revocation) -> None:
        """Look at the parts of a server whenever somebody asks."""
        self.started_at = time.time()
        self.address = ""
        """Where the server listens."""
        self.stopping = False
        self._node = node
        self._clients = clients
        self._engine = engine
        self._revocation = revocation

    @property
    def stalled(self) -> str:
        """Why nothing is taken at the moment, or nothing for some peers or clients, if so."""
        stalls = [str(stall) for stall in self._node.intake.stalls.all()]
        return self.takes_nothing or "; ".join([*stalls, *self._closed()])

    @property
    def takes_nothing(self) -> str:
        """Why nothing is taken from anybody, if so."""
        return self._node.peers.epochs.fenced or self._node.intake.full or self._node.directory.mailboxes.why_full

    def _closed(self) -> list[str]:
        """Say which mailboxes are closed, of our clients and of others."""
        directory = self._node.directory
        elsewhere = [(name, home) for name, home in directory.closings.closed.items() if home != directory.server]
        closed = [directory.mailboxes.why_closed(name) for name in islice(directory.mailboxes.closed, MAX_CLOSED_LISTED)]
        closed += [f"the mailbox of {name!r} at {home!r} is full" for name, home in elsewhere[: MAX_CLOSED_LISTED - len(closed)]]
        if (more := len(directory.mailboxes.closed) + len(elsewhere) - len(closed)) > 0:
            closed.append(f"{more} more mailboxes are full")
        return [*closed, WAIT_FOR_CLOSED] if closed else []

    @property
    def remedy(self) -> str:
        """What to do about the mailbox that stops everybody, or whoever writes to it, if one does."""
        directory, node = self._node.directory, self._node
        if node.peers.epochs.fenced or node.intake.full:
            return ""
        client, address = directory.mailboxes.in_the_way, self.address
        if not client:
            client = next((name for name, home in directory.closings.closed.items() if home != directory.server), "")
            if not client:
                return ""
            home = directory.closings.closed[client]
            address = node.topology.addresses.get(home, f"ADDRESS-OF-{home}")
        scheme = "thence" if node.options.tls is None else "thences"
        make_room = f"thence client show|purge|remove {scheme}://{address} {shlex.quote(client)}"
        return printable(f"start the program of {client!r}, or make room: {make_room}")

    @property
    def not_ready(self) -> str:
        """Why it should be sent nothing now, if so."""
        if self.stopping:
            return f"{self._node.name} is stopping"
        if self._node.reconfiguration.left:
            return f"{self._node.name} has left the fabric"
        if 0 < len(self._node.peers.peers) == len(self._node.intake.stalls.peers):
            return self.stalled  # It takes only what its own clients have for each other.
        return self.takes_nothing

    def report(self) -> dict[str, Any]:
        """Return how everything is, for people and programs."""
        node, now = self._node, self._node.driver.clock.now()
        waits = sorted(node.member.attachment.waiting(), key=lambda wait: wait.since or now)
        oldest = min((wait.since for wait in waits if wait.since), default=now)
        return {
            "server": node.name,
            "fabric": node.topology.name,
            "version": node.topology.version,
            "fingerprint": node.topology.fingerprint,
            "change": node.reconfiguration.status(),
            "address": self.address,
            "up_seconds": round(time.time() - self.started_at, 3),
            "awake": polling_of(asyncio.get_running_loop()).status(),
            "stalled": self.stalled,
            "waiting_clients": len(self._clients.waiting()),
            "fenced": node.peers.epochs.fenced,
            "neighbours": _peers(node),
            "relay": _relay(node),
            "clients": _clients(node, self._clients.addresses()),
            "clients_count": len(node.directory.state.mailboxes) - len(node.ledger.agents),
            "agents": {
                "count": len(node.ledger.agents),
                "reactions": self._engine.reactions,
                "failed_attempts": self._engine.failures,
                "dead_letters": len(node.ledger.state.dead),
                "stopped": dict(self._engine.stopped),
                "state_bytes": node.ledger.states_bytes,
            },
            "topics": _topics(node),
            "topics_count": len(node.directory.state.followers),
            "clocks": node.member.attachment.clocks(),
            "held_deliveries": node.dispatch.held,
            "waiting": [describe_wait(wait, now) for wait in waits[:MAX_WAITS_LISTED]],
            "waiting_count": len(waits),
            "waiting_left_out": max(0, len(waits) - MAX_WAITS_LISTED),
            "oldest_wait_seconds": round(max(0, now - oldest) / 1e9, 3),
            "letters_accepted": node.intake.messages_accepted,
            "letters_delivered": node.dispatch.handover.messages_delivered,
            "letters_undeliverable": dict(node.returning.counts),
            "letters_withheld": self._revocation.withheld,
            "messages_forwarded": node.member.forwarder.forwarded,
            "refused_frames": dict(node.peers.refusals.counts),
            "store": {
                "durable": node.options.data is not None,
                "commits": node.driver.commits.count,
                "mean_commit_ms": round(1e3 * node.driver.commits.seconds.total / max(1, node.driver.commits.count), 3),
                "bytes_since_snapshot": node.driver.store.bytes_since_snapshot,
            },
            "backlog": _backlog(node),
            "memory": _memory(node),
            "queued_bytes": node.member.attachment.queued_bytes,
            "unstable": len(node.member.forwarder.unstable()) if node.topology.stability else None,
            "unsafe": _unsafe(node),
        }


def _peers(node: Node) -> list[dict[str, Any]]:
    """Return how it is with each peer."""
    queued, windows = node.member.attachment.queued(), node.member.attachment.windows()
    queued_bytes, outgoing = node.member.attachment.queued_bytes_by_peer(), node.backlog.outgoing
    spilled = {} if outgoing is None else outgoing.frames_by_peer()
    spilled_bytes = {} if outgoing is None else outgoing.bytes_by_peer()
    unreadable = {} if outgoing is None else outgoing.trouble_by_peer()
    full = node.intake.stalls.peers
    return [
        {
            "name": peer.name,
            "connected": peer.up,
            "since_seconds": round(time.monotonic() - peer.since, 3),
            "trouble": peer.trouble,
            "connections": peer.traffic.connections,
            "protocol": peer.protocol,
            "full_seconds": round(full[peer.name], 3) if peer.name in full else None,
            "queued_frames": queued.get(peer.name, 0),
            "queued_bytes": queued_bytes.get(peer.name, 0) + spilled_bytes.get(peer.name, 0),
            "spilled_frames": spilled.get(peer.name, 0),
            "spilled_bytes": spilled_bytes.get(peer.name, 0),
            "unreadable": unreadable.get(peer.name, ""),
            **peer.traffic.total._asdict(),
            "held_for_dead": peer.name in node.member.attachment.suspected,
            "window_bytes": windows.get(peer.name),
        }
        for peer in node.peers.peers.values()
    ]


def _clients(node: Node, connected: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return how it is with each client, or some; ``connected`` says from where those are that are there, who come first."""
    mailboxes, agents = node.directory.state.mailboxes, node.ledger.agents
    others = (name for name in mailboxes if name not in agents and (len(mailboxes) <= MAX_LISTED or name not in connected))
    there = (name for name in connected if name in mailboxes) if len(mailboxes) > MAX_LISTED else ()
    return [
        {
            "name": name,
            "connected": name in connected,
            "from": connected.get(name, ""),
            "temporary": mailboxes[name].temporary,
            "sent": mailboxes[name].sent,
            "waiting_letters": mailboxes[name].position - mailboxes[name].acknowledged,
            "waiting_bytes": mailboxes[name].bytes,
            "spilled_letters": mailboxes[name].spilled_messages,
        }
        for name in islice(chain(there, others), MAX_LISTED)
    ]


def _topics(node: Node) -> dict[str, int]:
    """Return how many follow each topic, or some topics."""
    followed = ((topic, len(followers)) for topic, followers in node.directory.state.followers.items() if topic)
    return dict(islice(followed, MAX_LISTED))


def _backlog(node: Node) -> dict[str, Any]:
    """Return how much may wait for a client or a peer in memory, and what becomes of more than that."""
    directory, spill, outgoing = node.directory, node.backlog.spill, node.backlog.outgoing
    return {
        "mode": "spill" if directory.mailboxes.spills else "memory",
        "box_letters": directory.mailboxes.room.messages,
        "box_bytes": directory.mailboxes.room.bytes,
        "boxes_in_memory_bytes": directory.mailboxes.in_memory,
        "max_boxes_in_memory_bytes": directory.mailboxes.most_bytes,
        "spilled_bytes": 0 if spill is None else spill.bytes,
        "max_spilled_bytes": spill.limit_bytes if spill is not None and directory.mailboxes.spills else None,
        "spilled_frame_bytes": 0 if outgoing is None else outgoing.bytes,
        "max_spilled_frame_bytes": outgoing.limit_bytes if outgoing is not None and directory.mailboxes.spills else None,
        "frames_stay_in_memory": "" if outgoing is None else outgoing.full,
    }


def _memory(node: Node) -> dict[str, Any]:
    """Return what the server may take, for what, and what is on its way; nothing is limited where it may take ``None``."""
    pools = {"clients": node.memory.pools.clients, "neighbours": node.memory.pools.peers}
    return {
        "limit_bytes": node.memory.limits.memory or None,
        "parts": dict(node.memory.limits.parts),
        "in_flight": {
            name: {
                "bytes": pool.used,
                "limit_bytes": pool.limit if pool.limit < NO_LIMIT else None,
                "waiting": pool.waiting,
                "shown_out": pool.shown_out,
            }
            for name, pool in pools.items()
        },
    }


def _relay(node: Node) -> dict[str, Any] | None:
    """Return how it is with us as one of several replicas, if we are one."""
    takeover = node.member.attachment.takeover
    if takeover is None or not takeover.group:
        return None
    return {"replicas": takeover.group, "forwards": takeover.forwards, "kept": takeover.kept}


def _unsafe(node: Node) -> dict[str, int] | None:
    """Return how much is not known to be safe, where that is told: deliveries, messages in mailboxes, and messages sent from
    here."""
    if node.why_unknown:
        return None
    return {
        "deliveries": node.member.log.unsafe,
        "letters": node.dispatch.handover.safety.messages,
        "sent": node.member.forwarder.unsafe,
    }
