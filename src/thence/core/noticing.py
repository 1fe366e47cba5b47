"""Everything is handed up at once, and the application is told later that everybody has it.

Source: interconnect §7, the note: a message is delivered as soon as its order allows, and a notice that it is *safe* comes later.
Design note: docs/stability.md. Used in domains with ``delivery = "notify"``, and on links between such domains. Who tells whom
what is safe is the same as where nothing is handed up before (``core.telling``), and so is what safe means.

Rules:

* What comes in and what is delivered is noted in one log, in that order. A notice is one number: all deliveries up to this
  position are safe, and so is all that came in before them. So what led to a message is safe before the message is.
* A sender says that a message is safe when all have confirmed it and all that it had noted by the time it sent it is safe. So
  nobody is told of a message that hangs on one which a crash could still take away from another. Nothing can wait in a circle:
  what is waited for happened before.
* A message of our own, and one that we pass on from a link, is safe for our application when it is safe in the domains that we
  put it into.
* Nothing of this is recorded: what is safe stays so, and who has forgotten it asks again. After a restart the application is
  told again, never of more than is safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from thence.core.messages import Packet
from thence.core.numbers import NumberSet
from thence.core.telling import Peer, Telling
from thence.core.transport import Frames, Incoming, Packets
from thence.errors import StorageError

Awaited = tuple[str, str, int]
"""What is to become safe: a domain or link, by whom it was sent there, and its number; our own messages are counted there."""


class SavedNoticed(msgspec.Struct, array_like=True):
    """What a restart must find again of one peer."""

    sent: int
    safe: int
    heard: int
    highest: int
    taken: NumberSet
    confirmed: NumberSet


class SavedNoticing(msgspec.Struct, array_like=True):
    """What a restart must find again of one domain or link."""

    own: int
    unsafe: list[tuple[int, list[tuple[str, int]]]]
    """Each message of our own: how much of what we had noted before it is not safe, and to whom it went."""
    peers: dict[str, SavedNoticed]


class SavedNotices(msgspec.Struct, array_like=True):
    """What a restart must find again of the log."""

    upto: int
    log: list[Awaited | int]


class _Noticed(Peer):
    """What matters only where the network is trusted to be exact, and nobody else confirms."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = NumberSet()
        """Which of its frames we have taken,"""
        self.unconfirmed = False
        """whether we have to say so,"""
        self.confirmed = NumberSet()
        """and which of ours it has."""
        self.on_the_wire = 0


class Noticing(Telling[_Noticed]):
    """One domain or link. See the module's text."""

    behind = 0
    """How much of the log must be safe before what is sent next is; set by the member before it sends."""

    def __init__(self, *arguments: Any) -> None:
        """The same as for ``Telling``."""
        super().__init__(*arguments)
        self._behind: deque[int] = deque()
        """The same of each message that is not safe."""
        self._passed = 0
        """How much of the log was safe when this was last looked at."""

    def _new_peer(self) -> _Noticed:
        return _Noticed()

    def _waits(self, state: _Noticed) -> bool:
        return state.highest > state.heard

    @property
    def unsafe(self) -> int:
        """How many messages that we sent here are not safe."""
        return len(self._unsafe)

    # What comes in.

    def frames_in(self, peer: str, packet: Packet[Any], now: int) -> list[Incoming]:
        incoming = super().frames_in(peer, packet, now)
        if self.exact:
            if packet.frames:
                pairs = zip(packet.numbers, incoming, strict=True)
                incoming = [Incoming(peer, number, one.frame, one.to) for number, one in pairs]
            for number in (*range(self._peers[peer].confirmed.upto + 1, packet.taken + 1), *packet.taken_beyond):
                self._peers[peer].confirmed.add(number)
        return incoming

    def take(self, incoming: Incoming) -> None:
        self.inner.take(incoming)
        self._have(incoming.peer, incoming.number)

    def skip(self, peer: str, number: int) -> None:
        self.inner.skip(peer, number)
        self._have(peer, number)

    def _have(self, peer: str, number: int) -> None:
        state = self._peers[peer]
        state.highest = max(state.highest, number)
        self._to_visit[peer] = None
        if self.exact:
            state.unconfirmed = state.taken.add(number) or state.unconfirmed

    def confirmed(self, peer: str, number: int) -> bool:
        return number in self._peers[peer].confirmed if self.exact else self.inner.confirmed(peer, number)

    def is_safe(self, sender: str, number: int) -> bool:
        """Return whether a frame of a peer, or a message of our own, is known to be safe."""
        return number <= (self.own if sender == self.me else self._peers[sender].heard)

    def look(self, passed: int) -> None:
        """Find out which of our own messages are safe, now that so much of the log is."""
        self._passed = passed
        while self._unsafe and self._behind[0] <= passed and self._have_confirmed(self._unsafe[0]):
            self._behind.popleft()
            self._tell_of_own(self.own + 1)

    # What goes out.

    def push(self, frames: Frames) -> None:
        super().push(frames)
        if self._unsafe:
            self._behind.append(self.behind)

    def collect(self, now: int) -> Packets:
        if not self.exact:
            return super().collect(now)
        packets = [(peer, self._exactly(self._peers[peer], packet)) for peer, packet in super().collect(now)]
        silent = [(peer, state) for peer, state in self._peers.items() if state.unconfirmed]
        return [*packets, *((peer, self._exactly(state, Packet(self.name, ()))) for peer, state in silent)]

    def _exactly(self, state: _Noticed, packet: Packet[Any]) -> Packet[Any]:
        """Number the frames of a packet and confirm what was taken, as a channel would."""
        first = state.on_the_wire + 1
        state.on_the_wire += len(packet.frames)
        numbers = tuple(range(first, state.on_the_wire + 1))
        if not state.unconfirmed:
            return msgspec.structs.replace(packet, numbers=numbers)
        state.unconfirmed = False
        beyond = tuple(sorted(state.taken.beyond))
        return msgspec.structs.replace(packet, numbers=numbers, taken=state.taken.upto, taken_beyond=beyond)

    # Outside.

    def save_noticing(self) -> SavedNoticing:
        """Return what a restart must find again beside what the inner transport keeps."""
        groups = zip(self._behind, self._unsafe, strict=True)
        unsafe = [(max(0, behind - self._passed), list(group)) for behind, group in groups]
        peers = {
            peer: SavedNoticed(state.sent, state.safe, state.heard, state.highest, state.taken, state.confirmed)
            for peer, state in self._peers.items()
        }
        return SavedNoticing(self.own, unsafe, peers)

    def load_noticing(self, saved: SavedNoticing | None) -> None:
        """Become what ``save_noticing`` returned."""
        if saved is None or set(saved.peers) != set(self._peers):
            raise StorageError(f"{self.name!r} at {self.me!r}: the snapshot of a domain without notices, or of other members")
        self.own, self.pushed = saved.own, saved.own + len(saved.unsafe)
        self._unsafe = deque(tuple(group) for _, group in saved.unsafe)
        self._behind = deque(behind for behind, _ in saved.unsafe)
        for peer, kept in saved.peers.items():
            state = self._peers[peer]
            state.sent, state.safe, state.heard, state.highest = kept.sent, kept.safe, kept.heard, kept.highest
            state.taken, state.confirmed, state.on_the_wire = kept.taken, kept.confirmed, kept.sent


class Notices:
    """The log of one member, and how far it is safe. See the module's text."""

    def __init__(self, places: Mapping[str, Noticing], position: int) -> None:
        """Begin in a fabric in which all deliveries up to ``position`` are safe, and these places tell what else is."""
        self.places = places
        self.upto = position
        """Up to which position all deliveries are safe,"""
        self.told = 0
        """and up to which the application was told so."""
        self._log: deque[Awaited | int] = deque()
        self._noted = 0
        self._passed = 0

    @property
    def behind(self) -> int:
        """How much of the log there is by now: what is sent now is safe only if all of it is."""
        return self._noted

    def taken(self, place: str, incoming: Incoming) -> None:
        """A frame is about to be taken."""
        self._note((place, incoming.peer, incoming.number))

    def not_taken(self) -> None:
        """It was not, after all."""
        self._log.pop()
        self._noted -= 1

    def delivered(self, position: int, *, put_out: bool) -> None:
        """A message is delivered; ``put_out``: it is our own, or one that we brought into a domain."""
        if put_out:
            for name, place in self.places.items():
                if place.own < place.pushed:
                    self._note((name, place.me, place.pushed))
        self._note(position)

    def _note(self, what: Awaited | int) -> None:
        self._log.append(what)
        self._noted += 1

    def look(self) -> None:
        """Find out what is safe by now."""
        before = -1
        while before < self._passed:
            before = self._passed
            for place in self.places.values():
                place.look(self._passed)
            while self._log:
                what = self._log[0]
                if isinstance(what, int):
                    self.upto = what
                elif not self.places[what[0]].is_safe(*what[1:]):
                    break
                self._log.popleft()
                self._passed += 1

    def news(self) -> int:
        """Return up to which position all deliveries are safe, if that has not been told; otherwise 0."""
        if self.upto == self.told:
            return 0
        self.told = self.upto
        return self.told

    @property
    def unsafe(self) -> int:
        """How many messages that we sent are not safe."""
        return sum([place.unsafe for place in self.places.values()])

    def fork(self, places: Mapping[str, Noticing]) -> Notices:
        """Return a log that goes on from here on its own, with copies of its places."""
        twin = Notices(places, self.upto)
        twin.told, twin._noted, twin._passed = self.told, self._noted, self._passed
        twin._log = deque(self._log)
        return twin

    def save(self) -> SavedNotices:
        """Return what a restart must find again beside what the places keep."""
        return SavedNotices(self.upto, list(self._log))

    def load(self, saved: SavedNotices) -> None:
        """Become what ``save`` returned."""
        self.upto, self._log = saved.upto, deque(saved.log)
        self._noted, self._passed = len(self._log), 0
