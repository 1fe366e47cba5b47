"""Frames to replicas of a relay: which of them nobody has to wait for, since another one stands in.

Source: interconnect §7 (a relay that dies before or after it passed a message on). Design note: docs/concepts/stability.md. Used
at places of replicas in fabrics that find out what is safe; ``core.stability.stable`` counts what is left.

Rules:

* One report is enough: the replica that forwards says that all beyond have a message. Another one says so when it has forwarded
  it, too, or was told that it is safe.
* The others must have the message, or be suspected since it went out: then one of them can go on if the first one dies. Who is
  suspected, rightly or not, gets it from whoever has it (``core.transport.ack_all``).
* Replicas beside us need not report: what we keep for them, or forward, is in our own account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from thence.core.wire.messages import Envelope

Key = tuple[str, int, str]
"""A message, by origin and number, and the place by which it came."""

Excused = tuple[str, int, Envelope, str]
"""A frame that nobody waits for: to whom it went, its number, its message, and the place by which that came."""


class WaitedFor(msgspec.Struct):
    """One message that went to replicas."""

    envelope: Envelope
    frames: dict[str, int] = msgspec.field(default_factory=dict)
    """Frames that are waited for, by replica."""
    lacking: dict[str, None] = msgspec.field(default_factory=dict)
    """Replicas that have not acknowledged it and were not suspected."""
    reported: dict[tuple[str, ...], None] = msgspec.field(default_factory=dict)
    """The relays of which one replica has reported it."""

    def fork(self) -> WaitedFor:
        """Return an independent copy."""
        return WaitedFor(self.envelope, dict(self.frames), dict(self.lacking), dict(self.reported))


class StandIns:
    """The frames to replicas at one place that are waited for."""

    def __init__(self, me: str, groups: Mapping[str, tuple[str, ...]]) -> None:
        """``groups`` says of each replica who stands for the same relay, itself included."""
        self._me = me
        self._groups = groups
        self._begin()

    def _begin(self) -> None:
        self.suspected: dict[str, None] = {}
        self._standing: dict[Key, WaitedFor] = {}
        self._unacked: dict[str, dict[int, Key]] = {name: {} for name in self._groups}
        self._touched: dict[Key, None] = {}
        self.reported_by_fellows: list[tuple[Envelope, str]] = []
        """What replicas beside us have reported, with the place by which it came here."""

    def fork(self) -> StandIns:
        """Return an independent copy."""
        twin = StandIns(self._me, self._groups)
        twin.suspected, twin._touched = dict(self.suspected), dict(self._touched)
        twin._standing = {key: standing.fork() for key, standing in self._standing.items()}
        twin._unacked = {name: dict(unacked) for name, unacked in self._unacked.items()}
        twin.reported_by_fellows = list(self.reported_by_fellows)
        return twin

    def sent(self, peer: str, number: int, envelope: Envelope, came_by: str) -> None:
        """Note a frame that goes out."""
        if peer not in self._groups:
            return
        key = (envelope.origin, envelope.number, came_by)
        standing = self._standing.setdefault(key, WaitedFor(envelope))
        standing.frames[peer] = number
        if peer in self.suspected:
            self._touched[key] = None
        else:
            standing.lacking[peer] = None
            self._unacked[peer][number] = key

    def reported(self, peer: str, number: int, envelope: Envelope, came_by: str) -> None:
        """Note that a replica has reported a frame."""
        group = self._groups.get(peer)
        if group is None:
            return
        key = (envelope.origin, envelope.number, came_by)
        if self._me in group:
            self.reported_by_fellows.append((envelope, came_by))
        standing = self._standing.get(key)
        if standing is not None and standing.frames.pop(peer, None) is not None:
            standing.lacking.pop(peer, None)
            self._unacked[peer].pop(number, None)
            standing.reported[group] = None
            self._touched[key] = None

    def heard(self, peer: str, acked: Callable[[str, int], bool]) -> None:
        """Look which frames a replica has acknowledged by now."""
        unacked = self._unacked.get(peer)
        while unacked:
            number = next(iter(unacked))
            if not acked(peer, number):
                return
            self._has(peer, number)

    def suspect(self, peer: str, suspected: bool) -> None:
        """Note that a replica is suspected, or no longer. What went out before that is waited for no longer."""
        if not suspected:
            self.suspected.pop(peer, None)
        elif peer in self._groups:
            self.suspected[peer] = None
            for number in list(self._unacked[peer]):
                self._has(peer, number)

    def _has(self, peer: str, number: int) -> None:
        key = self._unacked[peer].pop(number)
        self._standing[key].lacking.pop(peer, None)
        self._touched[key] = None

    def excused(self) -> Iterator[Excused]:
        """Give the frames that nobody waits for since the last call."""
        touched, self._touched = self._touched, {}
        for key in touched:
            standing = self._standing.get(key)
            if standing is None:
                continue
            for peer, number in list(standing.frames.items()):
                group = self._groups[peer]
                beside = self._me in group
                lacked = standing.lacking.keys() if not beside else standing.lacking.keys() & {peer}
                if (beside or group in standing.reported) and not any(other in lacked for other in group):
                    del standing.frames[peer]
                    yield peer, number, standing.envelope, key[2]
            if not standing.frames:
                del self._standing[key]

    def waited_for(self) -> tuple[tuple[Key, tuple[str, ...], tuple[str, ...]], ...]:
        """Return for each message which frames are waited for, and who has neither acknowledged it nor was suspected."""
        table = sorted(self._standing.items())
        return tuple((key, tuple(sorted(one.frames)), tuple(sorted(one.lacking))) for key, one in table)

    def load(self, unstable: Iterable[Excused], excused: Iterable[Excused]) -> None:
        """Begin anew with the frames that are not stable, of which some are ``excused``.

        A message goes to all who stand for a relay. So if the frame to one of them is stable, that one has reported it.
        """
        gone = {(peer, number) for peer, number, _, _ in excused}
        self._begin()
        there: dict[Key, dict[str, None]] = {}
        for peer, number, envelope, came_by in unstable:
            there.setdefault((envelope.origin, envelope.number, came_by), {})[peer] = None
            if (peer, number) not in gone:
                self.sent(peer, number, envelope, came_by)
        for key, standing in self._standing.items():
            for group in {self._groups[peer]: None for peer in standing.frames}:
                if any(other not in there[key] for other in group if other != self._me):
                    standing.reported[group] = None
