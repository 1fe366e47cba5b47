"""Parts of a server's status: peers, clients and what waits for them, replicas, what is not safe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final

from thence.net.byte_pool import NO_LIMIT
from thence.node.node import Node

MAX_LISTED: Final = 1_000
"""How many clients, and how many topics, a status lists; it says how many there are."""


def peers(node: Node) -> list[dict[str, Any]]:
    """Return how it is with each peer."""
    queued, windows = node.member.queued(), node.member.windows()
    queued_bytes, outgoing = node.member.queued_bytes_by_peer(), node.backlog.outgoing
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
            "held_for_dead": peer.name in node.member.suspected,
            "window_bytes": windows.get(peer.name),
        }
        for peer in node.peers.peers.values()
    ]


def clients(node: Node, connected: Mapping[str, str]) -> list[dict[str, Any]]:
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


def topics(node: Node) -> dict[str, int]:
    """Return how many follow each topic, or some topics."""
    followed = ((topic, len(followers)) for topic, followers in node.directory.state.followers.items() if topic)
    return dict(islice(followed, MAX_LISTED))


def backlog(node: Node) -> dict[str, Any]:
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


def memory(node: Node) -> dict[str, Any]:
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


def relay(node: Node) -> dict[str, Any] | None:
    """Return how it is with us as one of several replicas, if we are one."""
    takeover = node.member.takeover
    if takeover is None or not takeover.group:
        return None
    return {"replicas": takeover.group, "forwards": takeover.forwards, "kept": takeover.kept}


def unsafe(node: Node) -> dict[str, int] | None:
    """Return how much is not known to be safe, where that is told: deliveries, messages in mailboxes, and messages sent from
    here."""
    if node.why_unknown:
        return None
    return {"deliveries": node.member.unsafe, "letters": node.dispatch.handover.safety.messages, "sent": node.member.unsafe_sent}
