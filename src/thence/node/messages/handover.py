"""Hands over one delivery of the member: messages go into mailboxes or to the program itself, notices to whom they concern.

Rules:

* Of each delivery is noted whose messages came with it, where it is told later that they are safe (``storage.mailbox_safety``).
* Messages for a server itself, in which no program runs, are left out, and the log says so: nobody would ever read them.
* What another server cannot tell (``node.directory.announcement_checks``), or nobody can read, is left out: whoever wrote it must
  not be able to stop what comes behind. The log says each reason once of each server.
"""

from __future__ import annotations

import logging
from typing import Final

from thence.core.member.contract import Delivery
from thence.core.reconfig.protocol import FABRIC
from thence.core.wire.messages import Envelope
from thence.errors import MalformedFrame
from thence.net.names import RETURNED
from thence.net.protocol import BatchItem, write_messages
from thence.node.directory.announcement_checks import AnnouncementChecks
from thence.node.directory.directory import Directory, DirectoryChange
from thence.node.hooks import NodeHooks
from thence.node.messages.removal import Removal
from thence.node.messages.returns import Returning
from thence.node.reconfiguration import Reconfiguration
from thence.storage.agents import AgentLedger
from thence.storage.bodies import Body
from thence.storage.mailbox import Batch
from thence.storage.mailbox_safety import MailboxSafety

MAX_LOGGED_UNREAD: Final = 20
"""How often the log says that messages came for this server itself, in which no program runs; and that some of another server
cannot be read."""

log = logging.getLogger("thence.node")


class Handover:
    """Puts what one delivery holds where it belongs."""

    def __init__(
        self,
        directory: Directory,
        ledger: AgentLedger,
        safety: MailboxSafety,
        returning: Returning,
        removal: Removal,
        reconfiguration: Reconfiguration,
        hooks: NodeHooks,
    ) -> None:
        """Hand over to the mailboxes of ``directory``; ``hooks`` tell the program that owns the node."""
        self.safety = safety
        self.messages_delivered = 0
        """How many messages were put into mailboxes; one for several clients counts for each of them."""
        self._directory = directory
        self._ledger = ledger
        self._returning = returning
        self._removal = removal
        self._reconfiguration = reconfiguration
        self._hooks = hooks
        self._checks = AnnouncementChecks(directory)
        self._unread = 0
        self._said: dict[str, dict[str, int]] = {}
        """What the log has said of deliveries that were left out, by server."""
        self.unreadable = 0
        """How many deliveries were left out since nobody could read them."""

    def hand(self, delivery: Delivery, mailboxes: dict[str, None]) -> None:
        """Hand over one delivery; add to ``mailboxes`` who has new messages."""
        envelope = delivery.envelope
        if envelope.origin == FABRIC:
            self._hand_news(delivery.position, envelope, mailboxes)
            return
        body = self._read(envelope)
        if body is None:
            return
        if isinstance(body, Batch):
            self._hand_messages(delivery.position, body, envelope, mailboxes)
        else:
            left_out = self._directory.claims.left_out
            self._notice_change(delivery.position, self._checks.take(body, envelope), envelope.number)
            if self._directory.claims.left_out != left_out:
                self._tell_left_out(envelope.origin, left_out)

    def _hand_messages(self, position: int, batch: Batch, envelope: Envelope, mailboxes: dict[str, None]) -> None:
        direct = self._is_for_program(batch)
        if direct and self._hand_to_program(position, batch):
            self.messages_delivered += batch.count
            return
        if batch.sender.startswith(RETURNED):
            self._returning.came_back(batch)
        change = self._directory.take(batch, envelope)
        for name in change.mailboxes:
            mailboxes[name] = None
        if not direct:
            self._note(position, batch.count, change.mailboxes)
        self.messages_delivered += batch.count * len(change.mailboxes)
        if self._hooks.spans is not None:
            self._hooks.spans.delivering(batch, change.mailboxes)
        if batch.to is not None and len(change.mailboxes) < len(batch.to):
            self._returning.astray(position, batch, envelope)
            if not change.mailboxes and self._directory.server in batch.to:
                self._complain(batch)

    def _tell_left_out(self, server: str, before: int) -> None:
        """Say that names are unknown here: at the first one, and whenever there are twice as many."""
        directory = self._directory
        if directory.claims.left_out.bit_length() != before.bit_length():
            log.warning(
                "names of clients of %s are left out (%d so far): MAX_NAMES_BYTES is %d; give this server more --memory",
                server,
                directory.claims.left_out,
                directory.claims.announced.limit,
            )

    def _notice_change(self, position: int, change: DirectoryChange, number: int) -> None:
        if change.left is not None:
            self._removal.forget(change.left)
            if change.lost is not None:
                self._returning.lost(position, change.left, change.lost)
        if change.joined is not None and change.joined in self._directory.state.mailboxes:
            self._returning.found(change.joined)
        if change.made is not None:
            self._ledger.made(change.made, number)
        if change.opened:
            self._hooks.on_room()
        self._hooks.on_notice(change)

    def _read(self, envelope: Envelope) -> Body | None:
        """Return what a message says; None: nobody can read it, and it is left out."""
        try:
            body = self._directory.read(envelope)
            if not isinstance(body, Batch) or envelope.origin != self._directory.server:  # Ours were checked when they came.
                self._checks.check(body, envelope.origin)
        except MalformedFrame as error:
            self.unreadable += 1
            said = self._said.setdefault(envelope.origin, {})
            if len(said) < MAX_LOGGED_UNREAD and said.setdefault(str(error), self.unreadable) == self.unreadable:
                log.warning("a delivery that cannot be read is left out (%d so far): %s", self.unreadable, error)
            return None
        return body

    def _complain(self, batch: Batch) -> None:
        """Messages came for a program in this server. Whoever sent them could not know that there is none: the log says it."""
        self._unread += 1
        if self._unread <= MAX_LOGGED_UNREAD:
            log.warning(
                "%d messages of %s are left out: they are for %s, a server in which no program runs (%d times so far)",
                batch.count,
                batch.sender,
                self._directory.server,
                self._unread,
            )

    def _hand_news(self, position: int, envelope: Envelope, mailboxes: dict[str, None]) -> None:
        """Tell our clients of a new view. All that they got before is of the old one, also what was handed over at its end."""
        if not self._reconfiguration.left:
            self._directory.change(self._reconfiguration.topology.processes)
        names = tuple(name for name in self._directory.clients() if name not in self._ledger.agents)
        if not names:
            return
        messages = write_messages([BatchItem(envelope.body, coded=True)])
        batch = Batch(FABRIC, envelope.number, 1, names, None, messages)
        direct = self._is_for_program(batch)
        if not direct or not self._hand_to_program(position, batch):
            change = self._directory.take(batch, envelope)
            if not direct:
                self._note(position, 1, change.mailboxes)
            mailboxes.update(dict.fromkeys(change.mailboxes))

    def _is_for_program(self, batch: Batch) -> bool:
        """Return whether messages are to be offered to the program in which we run: then nobody else gets them here."""
        return (
            self._hooks.on_batch is not None and batch.topic is None and (batch.to is None or self._directory.server in batch.to)
        )

    def _hand_to_program(self, position: int, batch: Batch) -> bool:
        """Offer messages to it, and say whether it has taken them. They are noted before it sees them."""
        self._note(position, batch.count, (self._directory.server,))
        if self._hooks.on_batch is None or not self._hooks.on_batch(batch):
            return False
        if position <= self.safety.upto:
            self._hooks.on_safe((self._directory.server,))
        return True

    def _note(self, position: int, messages: int, names: tuple[str, ...]) -> None:
        if self._reconfiguration.topology.notifying:
            self.safety.delivered(position, messages, names)
