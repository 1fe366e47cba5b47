"""Which letters in the boxes of a server are safe (docs/stability.md); a state, without I/O.

In domains with ``delivery = "notify"`` the member tells up to which of its deliveries all are safe (``core.noticing``). Here that
becomes positions in the boxes of clients. ``runtime.sessions`` tells those who want to know; ``runtime.awaiting`` is their side.

Rules:

* In each box the letters that are not safe are the last ones. So one number for each says it all.
* What is not safe is bounded by what the servers may have sent that is not: ``max_queued`` each (``core.member``).
* It follows from what the member delivered and told, so after a crash the same makes it again; the member may have to ask others
  once more. Nothing is ever said to be safe that is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import msgspec

from thence.core.messages import UNREADABLE
from thence.core.topology import Topology
from thence.errors import StorageError


def why_untold(topology: Topology, server: str) -> str:
    """Say why a server cannot tell what is safe, if so: a domain that it is in does not find out."""
    for home in topology.homes.get(server, ()):
        if topology.domains[home].delivery == "at once":
            return (
                f"nobody finds out in domain {home!r} of {topology.name!r} when a message is safe; its topology must say "
                "delivery = 'notify', or 'safe'"
            )
    return "" if server in topology.homes else f"{server!r} has left the fabric {topology.name!r}"


class Unsafe(msgspec.Struct, array_like=True):
    """A delivery that is not known to be safe: its position at the member, and the boxes into which it put so many letters."""

    position: int
    letters: int
    names: tuple[str, ...]


class SavedSafety(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    upto: int = 0
    unsafe: list[Unsafe] = []


class BoxSafety:
    """See the module's text."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self.upto = 0
        """Up to which position of the member all deliveries are safe."""
        self._unsafe: deque[Unsafe] = deque()
        self._letters: dict[str, int] = {}
        """How many letters of each client are not."""

    def delivered(self, position: int, letters: int, names: tuple[str, ...]) -> None:
        """The member delivered letters for these clients."""
        if position <= self.upto or not names:
            return
        self._unsafe.append(Unsafe(position, letters, names))
        for name in names:
            self._letters[name] = self._letters.get(name, 0) + letters

    def safe(self, upto: int) -> Collection[str]:
        """All deliveries up to this position are safe; return whose letters are among them."""
        self.upto = max(upto, self.upto)
        concerned: dict[str, None] = {}
        while self._unsafe and self._unsafe[0].position <= self.upto:
            done = self._unsafe.popleft()
            for name in done.names:
                left = self._letters[name] - done.letters
                if left:
                    self._letters[name] = left
                else:
                    del self._letters[name]
                concerned[name] = None
        return concerned

    def unsafe_of(self, client: str) -> int:
        """Return how many letters of a client are not safe: the last ones."""
        return self._letters.get(client, 0)

    def forget(self, client: str) -> None:
        """A client is gone; whoever has its name next begins with nothing."""
        if self._letters.pop(client, 0):
            for one in self._unsafe:
                if client in one.names:
                    one.names = tuple(name for name in one.names if name != client)

    @property
    def letters(self) -> int:
        """How many letters in boxes are not safe."""
        return sum(self._letters.values())

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
            self.delivered(one.position, one.letters, one.names)
        self.upto = saved.upto


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SavedSafety)
