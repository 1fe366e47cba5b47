"""What becomes of messages for a client that has lost its name to another server: they go back to their senders.

Two servers that cannot hear each other may give the same name to two clients. When they meet, one of them keeps it
(``node.directory.directory``). Messages that were accepted for the other must not vanish. They are not forwarded to whoever has
the name now: that is another program, and what its senders wrote to it since, knowing where it is, could come before them,
against the causal order. So they go back, and the sender decides.

Rules:

* The mailbox that was lost, and each message that comes for it later, is an *orphan*. It is kept until every message in it has
  gone back. Orphans follow from deliveries, so after a crash the same deliveries make them again.
* A message goes back as a message to its sender, from ``RETURNED`` and the name that it was for. What is sent and the record of
  it (``Returned``) are one entry of the log, so each goes back once.
* What the client had not acknowledged goes back: it may have handled the last of it all the same.
* Messages on topics and messages to everyone do not go back: they were for whoever was there. What has no sender any more,
  or came back once already, ends here. All of it is counted, and the log has a line for each mailbox that is lost.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Literal

import msgspec

from thence.core.member.contract import Submit
from thence.core.reconfig.protocol import FABRIC
from thence.core.wire.messages import UNREADABLE, Envelope
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.net.names import RETURNED
from thence.net.protocol import read_messages, write_messages
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.messages.intake import Intake
from thence.storage.agents import AgentLedger
from thence.storage.journal import Returned
from thence.storage.mailbox import Batch, Mailbox, MailboxRoom
from thence.storage.mailbox_spill import MailboxReader
from thence.storage.spill_files import SpillFile

RETURN_AT_ONCE: Final = 256
"""How many batches go back in one turn of the loop."""

MAX_LOST_NAMES: Final = 10_000
"""How many names that were lost are remembered, for messages that are still on their way: the newest."""

Outcome = Literal["returned", "published", "no-sender"]

log = logging.getLogger("thence.node")


class Orphan(msgspec.Struct, array_like=True):
    """A mailbox without a client."""

    client: str
    mailbox: Mailbox


class ReturningState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    orphans: dict[str, Orphan] = msgspec.field(default_factory=dict)
    """By the position of the delivery by which each came to be, and its name."""
    lost: dict[str, None] = msgspec.field(default_factory=dict)
    """Names that clients of this server have lost to others."""


class Returning:
    """Sends back what clients of a server did not get before they lost their names."""

    def __init__(self, directory: Directory, driver: Driver, intake: Intake, ledger: AgentLedger) -> None:
        """Send back by ``intake`` what was for clients of ``directory``, or for the agents of ``ledger``."""
        self.state = ReturningState()
        self.counts: dict[str, int] = dict.fromkeys(("returned", "published", "no-sender"), 0)
        """How many messages ended how since the start."""
        self._directory = directory
        self._driver = driver
        self._intake = intake
        self._ledger = ledger
        self._readers: dict[str, MailboxReader] = {}
        self._going = False
        """Whether more goes back in the next turn of the loop."""

    # What follows from deliveries.

    def lost(self, at: int, client: str, mailbox: Mailbox) -> None:
        """A client has lost its name, by the delivery at a position."""
        self.state.lost.pop(client, None)
        self.state.lost[client] = None
        while len(self.state.lost) > MAX_LOST_NAMES:
            del self.state.lost[next(iter(self.state.lost))]
        waiting = mailbox.position - mailbox.acknowledged
        if waiting:
            self.state.orphans[f"{at}:{client}"] = Orphan(client, mailbox)
        elif self._directory.mailboxes.spill is not None:
            self._directory.mailboxes.spill.done_with(mailbox.spilled)
        if not self._driver.recovering:
            home = self._directory.home(client)
            log.warning("client %s has lost its name to one of %s; messages that go back: %d", client, home, waiting)
            self._soon()

    def astray(self, at: int, batch: Batch, envelope: Envelope) -> None:
        """Keep what came for clients that have lost their names, unless it went to whoever has them, too."""
        if not self.state.lost or batch.to is None:
            return
        directory = self._directory
        for client in batch.to:
            elsewhere = envelope.to is None or directory.home(client) in envelope.to
            if (
                client in self.state.lost
                and client not in directory.state.mailboxes
                and (not elsewhere or directory.home(client) is None)
            ):
                mailbox = Mailbox()
                mailbox.put(batch, MailboxRoom(0, 0))
                self.state.orphans[f"{at}:{client}"] = Orphan(client, mailbox)
                self._soon()

    def found(self, client: str) -> None:
        """A client of this name has a mailbox here again."""
        self.state.lost.pop(client, None)

    def came_back(self, batch: Batch) -> None:
        """Log what has come back to an agent, which is told in its turn: an agent that does not care writes down nothing."""
        if batch.to is not None and batch.to[0] in self._ledger.agents and not self._driver.recovering:
            name, to = batch.to[0], batch.sender.removeprefix(RETURNED)
            log.warning("messages of agent %s to %s came back, since that name was lost: %d", name, to, batch.count)

    # Sending back.

    def _soon(self) -> None:
        if not self._going and not self._driver.recovering:
            self._going = True
            asyncio.get_running_loop().call_soon(self.go_on)

    def go_on(self) -> None:
        """Send back what there is room for; to be called now and then."""
        self._going = False
        for _ in range(RETURN_AT_ONCE):
            key = next(iter(self.state.orphans), "")
            if not key:
                return
            try:
                self.send_next(key, self.state.orphans[key])
            except Busy:
                return  # Tried again by the clock.
            except StorageError as error:
                log.warning("messages for %s cannot go back now: %s", self.state.orphans[key].client, error)
                return
        self._soon()

    def send_next(self, key: str, orphan: Orphan) -> None:
        directory, mailbox = self._directory, orphan.mailbox
        if full := self._intake.full or directory.mailboxes.why_full:
            raise Busy(f"{directory.server!r} takes nothing now: {full}")
        reader = self._readers.setdefault(key, MailboxReader(directory.mailboxes.spill, orphan.client))
        first, batch = reader.behind(mailbox, mailbox.acknowledged)
        skipped = max(0, mailbox.acknowledged + 1 - first)
        outcome, submits = self._returned(orphan.client, batch, skipped)
        record = Returned(key, first + batch.count - 1)
        self._intake.write_together(submits, record, None)
        self.counts[outcome] += batch.count - skipped
        self.again(record)

    def _returned(self, client: str, batch: Batch, skipped: int) -> tuple[Outcome, list[Submit]]:
        if batch.to is None or client not in batch.to:
            return "published", []
        if batch.sender == FABRIC or batch.sender.startswith(RETURNED):
            return "no-sender", []
        messages = bytes(batch.messages)
        try:
            if skipped:
                messages = write_messages(read_messages(messages, batch.sender)[skipped:])
            back = Batch(RETURNED + client, 1, batch.count - skipped, (batch.sender,), None, messages)
            servers = self._directory.route(back)
        except (UsageError, MalformedFrame):
            return "no-sender", []
        return "returned", [Submit(servers, self._directory.write(back))]

    def again(self, record: Returned) -> None:
        """Messages have gone back, now or in what is being brought back."""
        orphan = self.state.orphans.get(record.orphan)
        if orphan is None:
            return
        done = orphan.mailbox.acknowledge(record.upto)
        if self._directory.mailboxes.spill is not None:
            self._directory.mailboxes.spill.done_with(done)
        if orphan.mailbox.acknowledged >= orphan.mailbox.position:
            del self.state.orphans[record.orphan]
            self._readers.pop(record.orphan, None)

    # Snapshots.

    def spilled(self) -> list[SpillFile]:
        """Return the files that orphans need."""
        return [file for orphan in self.state.orphans.values() for file in orphan.mailbox.spilled]

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encoder.encode(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Become what ``snapshot`` returned."""
        self.state = read_returning(snapshot)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ReturningState)


def read_returning(snapshot: bytes) -> ReturningState:
    """Return the state that was saved; nothing, if a server wrote it that sent nothing back."""
    if not snapshot:
        return ReturningState()
    try:
        return _decoder.decode(snapshot)
    except UNREADABLE as error:
        raise StorageError(f"a snapshot of what goes back that cannot be read: {error}") from None
