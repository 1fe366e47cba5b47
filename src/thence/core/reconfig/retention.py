"""Copies of messages that somebody else may still lack, for the day on which a member is gone for good.

Design note: docs/how-to/removal.md. A member that dies may have handed a message to some and not to others. Whoever has it must
be able to give it to those who lack it (``core.reconfig.flush``), also when its application has long consumed it. So a member
keeps what it sent, delivered or forwarded in the version of the fabric that is in force; a switch to the next version begins
anew, since by then everybody has everything.

Rules:

* *Depth* orders copies of whatever origin: a message is deeper than all that its origin had sent or delivered before. So causes
  are less deep than their effects, without a look at any stamp.
* Of each origin, messages are delivered in the order of their numbers; so one number for each origin says what came. Another one
  says what of it came before the version in force: up to there nothing can be missing anywhere.
* At most ``MAX_RETAINED`` messages and ``MAX_RETAINED_BYTES`` are kept. Of those that had to make room it is known for whom they
  were, so that nobody lacks one of them unnoticed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator

import msgspec

from thence.core.wire.messages import FRAME_WEIGHT, Envelope, weight_of

MAX_RETAINED = 16_384
"""How many copies a member keeps."""

MAX_RETAINED_BYTES = 16 * 1024 * 1024
"""How many bytes they take at most, about, unless whoever runs the member has room for less."""

EVERYONE = ""
"""Stands for all members where messages that made room are counted by whom they were for; behind it may be a version, in
digits."""


def everyone_of(version: int) -> str:
    """Return what stands for all members of a version, of 0 for those of the first one."""
    return f"{EVERYONE} {version}" if version else EVERYONE


def is_everyone(name: str, since: int) -> bool:
    """Return whether a name stands for all members of some version, one who came in with version ``since`` among them."""
    return (name == EVERYONE and not since) or (name.startswith(" ") and int(name) >= since)


class SavedRetention(msgspec.Struct, array_like=True):
    """What a restart must find again."""

    depth: int
    latest: list[tuple[str, int]]
    copies: list[Envelope]
    dropped: list[tuple[str, str, int]]
    before: list[tuple[str, int]] = []


class Retention:
    """What one member keeps for others."""

    def __init__(self, me: str, limit_bytes: int = MAX_RETAINED_BYTES) -> None:
        """Keep nothing yet; at most so many bytes later."""
        self._only_me = (me,)
        self._limit_bytes = limit_bytes
        self.depth = 0
        """The depth of the deepest message that was sent or delivered here."""
        self.latest: dict[str, int] = {}
        """The number of the last message of each origin that was delivered here, in this version of the fabric."""
        self.before: dict[str, int] = {}
        """The same for all versions before."""
        self.dropped: dict[str, dict[str, int]] = {}
        """Of what had to make room: by origin and by whom it was for, the highest number."""
        self._copies: OrderedDict[tuple[str, int], Envelope] = OrderedDict()
        # Not a plain table: to find its first entry again and again would step over all that was removed before it.
        self._bytes = 0

    def sent(self, envelope: Envelope) -> None:
        """We have sent a message."""
        self.depth = max(self.depth, envelope.depth)
        self.keep(envelope)

    def delivered(self, envelope: Envelope) -> None:
        """Our application gets a message."""
        self.latest[envelope.origin] = envelope.number
        self.depth = max(self.depth, envelope.depth)

    def keep(self, envelope: Envelope) -> None:
        """Keep a copy of a message that was sent, delivered or forwarded, if others may lack it."""
        if envelope.to == self._only_me:
            return
        copies, name = self._copies, (envelope.origin, envelope.number)  # No MessageId, since this is done with every message.
        if name in copies:
            return
        copies[name] = envelope
        self._bytes += FRAME_WEIGHT + len(envelope.body)
        while len(copies) > MAX_RETAINED or (self._bytes > self._limit_bytes and len(copies) > 1):
            self._drop(copies.popitem(last=False)[1])

    def _drop(self, envelope: Envelope) -> None:
        self._bytes -= weight_of(envelope)
        dropped = self.dropped.setdefault(envelope.origin, {})
        for member in (everyone_of(envelope.version),) if envelope.to is None else envelope.to:
            dropped[member] = max(envelope.number, dropped.get(member, 0))

    def copies(self) -> Iterator[Envelope]:
        """Give all copies."""
        return iter(self._copies.values())

    def __len__(self) -> int:
        return len(self._copies)

    def begin_anew(self, members: Collection[str]) -> None:
        """Another version of the fabric is in force, with these members: everybody has everything."""
        self.before = {name: number for name, number in {**self.before, **self.latest}.items() if name in members}
        self.latest, self.dropped, self._copies, self._bytes = {}, {}, OrderedDict(), 0

    def save(self) -> SavedRetention:
        """Return everything, for a snapshot. Equal states give equal bytes."""
        dropped = [(origin, member, number) for origin, of in self.dropped.items() for member, number in of.items()]
        copies = sorted(self._copies.values(), key=lambda envelope: (envelope.depth, envelope.origin, envelope.number))
        return SavedRetention(self.depth, sorted(self.latest.items()), copies, sorted(dropped), sorted(self.before.items()))

    def load(self, saved: SavedRetention | None) -> None:
        """Become what ``save`` returned."""
        if saved is None:
            return  # The snapshot is of a time when nothing was kept.
        self.depth, self.latest, self.before = saved.depth, dict(saved.latest), dict(saved.before)
        self._copies = OrderedDict((envelope.id, envelope) for envelope in saved.copies)
        self._bytes = sum(map(weight_of, saved.copies))
        self.dropped = {}
        for origin, member, number in saved.dropped:
            self.dropped.setdefault(origin, {})[member] = number

    def fork(self) -> Retention:
        """Return one that goes on from here on its own."""
        twin = Retention(self._only_me[0], self._limit_bytes)
        twin.depth, twin.latest, twin.before = self.depth, dict(self.latest), dict(self.before)
        twin._copies, twin._bytes = self._copies.copy(), self._bytes
        twin.dropped = {origin: dict(of) for origin, of in self.dropped.items()}
        return twin
