"""Which messages in the mailboxes of a server are safe (docs/concepts/stability.md); a state, without I/O.

In domains with ``delivery = "notify"`` the member tells up to which of its deliveries all are safe
(``core.stability.safe_notification``). Here that becomes positions in the mailboxes of clients. ``node.sessions.feed`` tells
those who want to know; ``client.safe_waits`` is their side.

Rules:

* In each mailbox the messages that are not safe are the last ones. So one number for each says it all.
* What is not safe is bounded by what the servers may have sent that is not: ``max_queued`` each (``core.member.member``).
* It follows from what the member delivered and told, so after a crash the same makes it again; the member may have to ask others
  once more. Nothing is ever said to be safe that is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import msgspec

from thence.core.topology.model import Topology
from thence.core.wire.messages import UNREADABLE
from thence.errors import StorageError


def why_unknown(topology: Topology, server: str) -> str:
    """Say why a server cannot tell what is safe, if so: a domain that it is in does not find out."""
    for home in topology.homes.get(server, ()):
        if topology.domains[home].delivery == "at once":
            return (
                f"nobody finds out in domain {home!r} of {topology.name!r} when a message is safe; its topology must say "
                "delivery = 'notify', or 'safe'"
            )
    return "" if server in topology.homes else f"{server!r} has left the fabric {topology.name!r}"


class UnsafeDelivery(msgspec.Struct, array_like=True):
    """A delivery that is not known to be safe: its position at the member, and the mailboxes into which it put so many
    messages."""

    position: int
    messages: int
    names: tuple[str, ...]


class SavedSafety(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    upto: int = 0
    unsafe: list[UnsafeDelivery] = []


class MailboxSafety:
    """Which messages in the mailboxes of a server are not safe yet."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self.upto = 0
        """Up to which position of the member all deliveries are safe."""
        self._unsafe: deque[UnsafeDelivery] = deque()
        self._messages: dict[str, int] = {}
        """How many messages of each client are not."""

    def delivered(self, position: int, messages: int, names: tuple[str, ...]) -> None:
        """The member delivered messages for these clients."""
        if position <= self.upto or not names:
            return
        self._unsafe.append(UnsafeDelivery(position, messages, names))
        for name in names:
            self._messages[name] = self._messages.get(name, 0) + messages

    def safe(self, upto: int) -> Collection[str]:
        """All deliveries up to this position are safe; return whose messages are among them."""
        self.upto = max(upto, self.upto)
        concerned: dict[str, None] = {}
        while self._unsafe and self._unsafe[0].position <= self.upto:
            done = self._unsafe.popleft()
            for name in done.names:
                left = self._messages[name] - done.messages
                if left:
                    self._messages[name] = left
                else:
                    del self._messages[name]
                concerned[name] = None
        return concerned

    def unsafe_of(self, client: str) -> int:
        """Return how many messages of a client are not safe: the last ones."""
        return self._messages.get(client, 0)

    def forget(self, client: str) -> None:
        """A client is gone; whoever has its name next begins with nothing."""
        if self._messages.pop(client, 0):
            for one in self._unsafe:
                if client in one.names:
                    one.names = tuple(name for name in one.names if name != client)

    @property
    def messages(self) -> int:
        """How many messages in mailboxes are not safe."""
        return sum(self._messages.values())

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return _encoder.encode(SavedSafety(self.upto, list(self._unsafe)))

    def restore(self, snapshot: bytes) -> None:
        """Become what ``snapshot`` returned."""
        if not snapshot:
            return  # It was written by a server that knew of none.
        try:
            saved = _decoder.decode(snapshot)
        except UNREADABLE as error:
            raise StorageError(f"a snapshot of what is safe that cannot be read: {error}") from None
        self.upto = 0
        for one in saved.unsafe:
            self.delivered(one.position, one.messages, one.names)
        self.upto = saved.upto


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SavedSafety)
