"""How a server is: why it takes nothing, what to do about it, and everything else that ``thence status`` shows."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import TYPE_CHECKING, Any, Final

from thence.core.member.member import describe_wait
from thence.node.status import backlog, clients, memory, peers, relay, topics, unsafe
from thence.runtime.event_loop import polling_of
from thence.runtime.printable import printable

if TYPE_CHECKING:
    from thence.server.server import Server

MAX_WAITS_LISTED: Final = 1_000
"""How many waiting messages a status lists, of those that wait longest; ``waiting_left_out`` counts the others."""


class ServerStatus:
    """What a server says of itself."""

    def __init__(self, server: Server) -> None:
        """Look at ``server`` whenever somebody asks."""
        self._server = server
        self.started_at = time.time()

    @property
    def stalled(self) -> str:
        """Why nothing is taken at the moment, or nothing for some peers, if so."""
        return self.takes_nothing or "; ".join([str(stall) for stall in self._server.node.intake.stalls.all()])

    @property
    def takes_nothing(self) -> str:
        """Why nothing is taken from anybody, if so."""
        return (
            self._server.node.peers.epochs.fenced
            or self._server.node.intake.full
            or self._server.node.directory.mailboxes.why_full
        )

    @property
    def remedy(self) -> str:
        """What to do about the mailbox that stops everybody, if one does."""
        client, node = self._server.node.directory.mailboxes.in_the_way, self._server.node
        if not client or node.peers.epochs.fenced or node.intake.full:
            return ""
        scheme = "thence" if node.options.tls is None else "thences"
        make_room = f"thence client show|purge|remove {scheme}://{self._server.address} {shlex.quote(client)}"
        return printable(f"start the program of {client!r}, or make room: {make_room}")

    @property
    def not_ready(self) -> str:
        """Why it should be sent nothing now, if so."""
        if self._server.stopping:
            return f"{self._server.node.name} is stopping"
        if self._server.node.reconfiguration.left:
            return f"{self._server.node.name} has left the fabric"
        if 0 < len(self._server.node.peers.peers) == len(self._server.node.intake.stalls.peers):
            return self.stalled  # It takes only what its own clients have for each other.
        return self.takes_nothing

    def report(self) -> dict[str, Any]:
        """Return how everything is, for people and programs."""
        node, now = self._server.node, self._server.node.driver.clock.now()
        waits = sorted(node.member.waiting(), key=lambda wait: wait.since or now)
        oldest = min((wait.since for wait in waits if wait.since), default=now)
        return {
            "server": node.name,
            "fabric": node.topology.name,
            "version": node.topology.version,
            "fingerprint": node.topology.fingerprint,
            "change": node.reconfiguration.status(),
            "address": self._server.address,
            "up_seconds": round(time.time() - self.started_at, 3),
            "awake": polling_of(asyncio.get_running_loop()).status(),
            "stalled": self.stalled,
            "waiting_clients": len(self._server.clients.waiting()),
            "fenced": node.peers.epochs.fenced,
            "neighbours": peers(node),
            "relay": relay(node),
            "clients": clients(node, self._server.clients.addresses()),
            "clients_count": len(node.directory.state.mailboxes) - len(node.ledger.agents),
            "agents": {
                "count": len(node.ledger.agents),
                "reactions": self._server.engine.reactions,
                "failed_attempts": self._server.engine.failures,
                "dead_letters": len(node.ledger.state.dead),
                "stopped": dict(self._server.engine.stopped),
                "state_bytes": node.ledger.states_bytes,
            },
            "topics": topics(node),
            "topics_count": len(node.directory.state.followers),
            "clocks": node.member.clocks(),
            "held_deliveries": node.dispatch.held,
            "waiting": [describe_wait(wait, now) for wait in waits[:MAX_WAITS_LISTED]],
            "waiting_count": len(waits),
            "waiting_left_out": max(0, len(waits) - MAX_WAITS_LISTED),
            "oldest_wait_seconds": round(max(0, now - oldest) / 1e9, 3),
            "letters_accepted": node.intake.messages_accepted,
            "letters_delivered": node.dispatch.handover.messages_delivered,
            "letters_undeliverable": dict(node.returning.counts),
            "letters_withheld": self._server.revocation.withheld,
            "messages_forwarded": node.member.forwarded,
            "refused_frames": dict(node.peers.refusals.counts),
            "store": {
                "durable": node.options.data is not None,
                "commits": node.driver.commits.count,
                "mean_commit_ms": round(1e3 * node.driver.commits.seconds.total / max(1, node.driver.commits.count), 3),
                "bytes_since_snapshot": node.driver.store.bytes_since_snapshot,
            },
            "backlog": backlog(node),
            "memory": memory(node),
            "queued_bytes": node.member.queued_bytes,
            "unstable": len(node.member.unstable()) if node.topology.stability else None,
            "unsafe": unsafe(node),
        }
