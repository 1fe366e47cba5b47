"""What becomes of messages for a client that has lost its name to another server: they go back to their senders.

Two servers that cannot hear each other may give the same name to two clients. When they meet, one of them keeps it
(``runtime.office``). Messages that were accepted for the other must not vanish. They are not forwarded to whoever has the name
now: that is another program, and what its senders wrote to it since, knowing where it is, could come before them, against the
causal order. So they go back, and the sender decides.

Rules:

* The mailbox that was lost, and each message that comes for it later, is an *orphan*. It is kept until every message in it has
  gone back. Orphans follow from deliveries, so after a crash the same deliveries make them again.
* A message goes back as a message to its sender, from ``RETURNED`` and the name that it was for. What is sent and the record of
  it (``Returned``) are one entry of the log, so each goes back once.
* What the client had not acknowledged goes back: it may have handled the last of it all the same.
* Publications on topics and messages to everyone do not go back: they were for whoever was there. What has no sender any more,
  or came back once already, ends here. All of it is counted, and the log has a line for each mailbox that is lost.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.core.contract import Submit
from thence.core.messages import UNREADABLE, Envelope
from thence.core.views import FABRIC
from thence.errors import Busy, MalformedFrame, StorageError, UsageError
from thence.runtime.boxes import Box, Bundle, Room, SpillFile
from thence.runtime.names import RETURNED
from thence.runtime.protocol import read_letters, write_letters
from thence.runtime.spill import Reader

if TYPE_CHECKING:
    from thence.runtime.node import Node

RETURN_AT_ONCE: Final = 256
"""How many bundles go back in one turn of the loop."""

MAX_LOST_NAMES: Final = 10_000
"""How many names that were lost are remembered, for messages that are still on their way: the newest."""

Outcome = Literal["returned", "published", "no-sender"]

log = logging.getLogger("thence.node")


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """The messages of an orphan up to a position have gone back, or had nobody to go to."""

    orphan: str
    upto: int


class Orphan(msgspec.Struct, array_like=True):
    """A mailbox without a client."""

    client: str
    box: Box


class ReturningState(msgspec.Struct, array_like=True):
    """Everything that a restart must find again."""

    orphans: dict[str, Orphan] = msgspec.field(default_factory=dict)
    """By the position of the delivery by which each came to be, and its name."""
    lost: dict[str, None] = msgspec.field(default_factory=dict)
    """Names that clients of this server have lost to others."""


class Returning:
    """See the module's text."""

    def __init__(self, node: Node) -> None:
        """Send back what clients of ``node`` did not get before they lost their names."""
        self.state = ReturningState()
        self.counts: dict[str, int] = dict.fromkeys(("returned", "published", "no-sender"), 0)
        """How many messages ended how since the start."""
        self._node = node
        self._readers: dict[str, Reader] = {}
        self._going = False
        """Whether more goes back in the next turn of the loop."""

    # What follows from deliveries.

    def lost(self, at: int, client: str, box: Box) -> None:
        """A client has lost its name, by the delivery at a position."""
        self.state.lost.pop(client, None)
        self.state.lost[client] = None
        while len(self.state.lost) > MAX_LOST_NAMES:
            del self.state.lost[next(iter(self.state.lost))]
        waiting = box.position - box.acknowledged
        if waiting:
            self.state.orphans[f"{at}:{client}"] = Orphan(client, box)
        elif self._node.office.spill is not None:
            self._node.office.spill.done_with(box.spilled)
        if not self._node.coming_back:
            home = self._node.office.home(client)
            log.warning("client %s has lost its name to one of %s; messages that go back: %d", client, home, waiting)
            self._soon()

    def astray(self, at: int, bundle: Bundle, envelope: Envelope) -> None:
        """Keep what came for clients that have lost their names, unless it went to whoever has them, too."""
        if not self.state.lost or bundle.to is None:
            return
        office = self._node.office
        for client in bundle.to:
            elsewhere = envelope.to is None or office.home(client) in envelope.to
            if client in self.state.lost and client not in office.state.boxes and (not elsewhere or office.home(client) is None):
                box = Box()
                box.put(bundle, Room(0, 0))
                self.state.orphans[f"{at}:{client}"] = Orphan(client, box)
                self._soon()

    def found(self, client: str) -> None:
        """A client of this name has a mailbox here again."""
        self.state.lost.pop(client, None)

    def is_for_agent(self, bundle: Bundle) -> bool:
        """Return whether something has come back to an agent. Agents are not told; it is counted."""
        if bundle.to is None or bundle.to[0] not in self._node.ledger.agents:
            return False
        name, to = bundle.to[0], bundle.sender.removeprefix(RETURNED)
        log.warning("messages of agent %s to %s came back, since that name was lost: %d", name, to, bundle.count)
        return True

    # Sending back.

    def _soon(self) -> None:
        if not self._going and not self._node.coming_back:
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
                self._send_next(key, self.state.orphans[key])
            except Busy:
                return  # Tried again by the clock.
            except StorageError as error:
                log.warning("messages for %s cannot go back now: %s", self.state.orphans[key].client, error)
                return
        self._soon()

    def _send_next(self, key: str, orphan: Orphan) -> None:
        node, box = self._node, orphan.box
        if full := node.full or node.office.why_full:
            raise Busy(f"{node.name!r} takes nothing now: {full}")
        reader = self._readers.setdefault(key, Reader(node.office.spill, orphan.client))
        first, bundle = reader.behind(box, box.acknowledged)
        skipped = max(0, box.acknowledged + 1 - first)
        outcome, submits = self._returned(orphan.client, bundle, skipped)
        record = Returned(key, first + bundle.count - 1)
        node.write_together(submits, record, None)
        self.counts[outcome] += bundle.count - skipped
        self.again(record)

    def _returned(self, client: str, bundle: Bundle, skipped: int) -> tuple[Outcome, list[Submit]]:
        if bundle.to is None or client not in bundle.to:
            return "published", []
        if bundle.sender == FABRIC or bundle.sender.startswith(RETURNED):
            return "no-sender", []
        letters = bytes(bundle.letters)
        try:
            if skipped:
                letters = write_letters(read_letters(letters, bundle.sender)[skipped:])
            back = Bundle(RETURNED + client, 1, bundle.count - skipped, (bundle.sender,), None, letters)
            servers = self._node.office.route(back)
        except (UsageError, MalformedFrame):
            return "no-sender", []
        return "returned", [Submit(servers, self._node.office.write(back))]

    def again(self, record: Returned) -> None:
        """Messages have gone back, now or in what is being brought back."""
        orphan = self.state.orphans.get(record.orphan)
        if orphan is None:
            return
        done = orphan.box.acknowledge(record.upto)
        if self._node.office.spill is not None:
            self._node.office.spill.done_with(done)
        if orphan.box.acknowledged >= orphan.box.position:
            del self.state.orphans[record.orphan]
            self._readers.pop(record.orphan, None)

    # Snapshots.

    def spilled(self) -> list[SpillFile]:
        """Return the files that orphans need."""
        return [file for orphan in self.state.orphans.values() for file in orphan.box.spilled]

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
