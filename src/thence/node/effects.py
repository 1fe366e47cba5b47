"""What follows from the steps of a node's member, and from its commits: each part of the node does its own."""

from __future__ import annotations

import logging
from typing import Any

from thence.core.member.contract import Arrived, Input, Ready
from thence.core.wire.messages import Packet
from thence.node import recovery
from thence.node.hooks import NodeHooks
from thence.node.peers.connections import Peers
from thence.node.recovery import Parts

log = logging.getLogger("thence.node")


class Effects:
    """Does what the driver of a node asks for."""

    def __init__(self, parts: Parts, peers: Peers, hooks: NodeHooks) -> None:
        """``parts`` get what concerns them, and ``peers`` the packets."""
        self._parts = parts
        self._peers = peers
        self._hooks = hooks
        self.refused = peers.refusals.note
        self.accepted = parts.intake.accepted
        self.secured = parts.intake.secured
        self.stable = parts.intake.waiters.heard
        self.deliver = parts.dispatch.deliver
        self.safe = parts.dispatch.safe

    # Steps.

    @property
    def records(self) -> bool:
        """Whether a history is written."""
        return self._parts.history.active

    def stepped(self, sequence: int, step_input: Input, ready: Ready) -> None:
        """Note what will have happened once the entry with this number is durable."""
        driver, reconfiguration = self._parts.driver, self._parts.reconfiguration
        if driver.member.topology is not reconfiguration.topology or reconfiguration.pending:
            reconfiguration.followed(sequence, driver.stepped_at)
        history = self._parts.history
        if ready.persist:  # It says the same after a crash.
            history.arrived(ready.persist, driver.stepped_at)
        elif driver.volatile and isinstance(step_input, Arrived):
            history.arrived(step_input.packet.frames, driver.stepped_at)
        if ready.sent or ready.deliver:
            history.record(sequence, ready.sent, ready.deliver, driver.stepped_at)

    def transmit(self, peer: str, packet: Packet[Any]) -> None:
        """Send a packet."""
        if self._hooks.spans is not None:
            self._hooks.spans.transmitting(peer, packet)
        self._peers.send(peer, packet)

    # Commits.

    def stored(self, durable: int) -> None:
        """All up to this entry is durable: it may be told."""
        self._parts.history.release(durable)
        self._parts.intake.tell_of_room()
        if self._parts.backlog.release_due():
            self._parts.driver.commits.compact_soon()

    def waiting_bytes(self) -> int:
        """Return how much waits for peers and in mailboxes, as far as it is in memory."""
        mailboxes = self._parts.directory.state.mailboxes.values()
        return self._parts.driver.member.attachment.queued_bytes + sum(
            mailbox.bytes - mailbox.spilled_bytes for mailbox in mailboxes
        )

    def snapshot(self) -> bytes:
        """Return everything at this moment."""
        return recovery.snapshot(self._parts)

    async def before_compaction(self) -> None:
        """What the log loses must be in the history, and what mailboxes spilled must be durable."""
        self._parts.history.flush()
        await self._parts.backlog.make_durable()

    def compacted(self) -> None:
        """Nobody needs what only earlier snapshots did."""
        self._parts.backlog.snapshot_durable()
        self._parts.dispatch.look_for_room()

    def failed(self, error: Exception) -> None:
        """The store cannot go on."""
        log.critical("the store has failed: %s", error)
        self._hooks.on_failed(error)
