"""The part of a member that comes back after a crash: its snapshot, and the records since then, stepped through again.

With ``core.member.reconfigure`` this is the upper half of ``core.member.member``, in files of their own so that each can be read
in one go.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

import msgspec

from thence.core.failover.replicas import SavedTakeover
from thence.core.member.contract import Delivery, Ready, Repeated, Restored
from thence.core.member.reconfigure import Deliverable, Reconfiguring
from thence.core.ordering.base import stamp_union
from thence.core.places.place import DomainPlace, LinkPlace, SavedPlace
from thence.core.reconfig.protocol import ViewState
from thence.core.reconfig.retention import SavedRetention
from thence.core.stability.accounts import SavedAccounts
from thence.core.stability.safe_notification import SavedNotices
from thence.core.transport.base import Incoming
from thence.core.wire.messages import UNREADABLE, Envelope, Frame
from thence.core.wire.records import Changed, Owed, Passed, Received, Record, Skipped, Submitted, Suspecting
from thence.errors import FrameRefused, MalformedFrame, StorageError, UsageError

StampT = TypeVar("StampT")


class _Saved(msgspec.Struct, Generic[StampT], array_like=True):
    """A member's snapshot."""

    name: str
    fabric: str
    number: int
    position: int
    places: dict[str, SavedPlace[StampT]]
    unconsumed: list[tuple[int, str, Frame[StampT]]]
    takeover: SavedTakeover | None = None
    view: ViewState | None = None
    ledger: SavedAccounts | None = None
    late: list[tuple[str, Frame[StampT], list[tuple[str, int]]]] = []
    retained: SavedRetention | None = None
    notices: SavedNotices | None = None


class _SavedView(msgspec.Struct, array_like=True):
    """As much of a snapshot as says which places the rest is of."""

    name: str
    fabric: str
    number: int
    position: int
    places: msgspec.Raw
    unconsumed: msgspec.Raw
    takeover: msgspec.Raw = msgspec.Raw(b"\xc0")
    view: ViewState | None = None


class Restoring(Reconfiguring):
    """See the module's text. What is declared here is the member's."""

    _position: int
    _consumed_upto: int
    _started: bool
    _restoring: bool
    _late: deque[tuple[str, Frame[Any], list[tuple[str, int]]]] | None
    """In a fabric with safe delivery: what is delivered when our own messages before it are safe, each with what it waits for."""
    _unconsumed_bytes: int

    @abstractmethod
    def _take(self, place: DomainPlace | LinkPlace, incoming: Incoming, now: int) -> Deliverable:
        """Accept one frame."""

    @abstractmethod
    def _pass(self, place: DomainPlace | LinkPlace, passed: Passed) -> tuple[Deliverable, list[FrameRefused]]:
        """Accept what everybody has by now."""

    @abstractmethod
    def _balance(self) -> None:
        """Find out which frames are settled by what has happened."""

    @abstractmethod
    def _consumed(self, position: int) -> None:
        """The application has durably done with all deliveries up to this position."""

    @abstractmethod
    def _suspect(self, peer: str, suspected: bool) -> Deliverable:
        """Suspect another replica, or no longer."""

    @abstractmethod
    def _count_queued(self) -> None:
        """Find out anew how many frames are in memory."""

    @abstractmethod
    def _tell_transports(self, peer: str, suspected: bool) -> None:
        """Let transports know of a suspicion."""

    def snapshot(self) -> bytes:
        """Return the whole state. Records from before it are not needed any more."""
        places = {name: place.save() for name, place in self._places.items()}
        unconsumed = [(position, place, frame) for position, (place, frame) in self._unconsumed.items()]
        takeover = None if self._takeover is None else self._takeover.save()
        ledger = None if self._ledger is None else self._ledger.save()
        retained = None if self._retained is None else self._retained.save()
        name, fabric = self.name, self.topology.name
        late, view = list(self._late or ()), self.view.save()
        notices = None if self._notices is None else self._notices.save()
        numbers = (self._number, self._position)
        saved = _Saved(name, fabric, *numbers, places, unconsumed, takeover, view, ledger, late, retained, notices)
        return _ENCODER.encode(saved)

    def _brought_back(self, step_input: Restored | Repeated, now: int) -> Ready:
        return self._restored(step_input, now) if isinstance(step_input, Restored) else self._repeated(step_input.record)

    def _restored(self, restored: Restored, now: int) -> Ready:
        if self._started:
            raise UsageError(f"{self.name!r} has started already; Restored must be its first input")
        self._started = self._restoring = True
        if restored.snapshot is not None:
            self._load(restored.snapshot)
            for link_place in self._links.values():
                link_place.end.restored(now)
        sent = [envelope for record in restored.records for envelope in self._repeat(record)[0]]
        self._consumed(restored.consumed)
        deliver = tuple(Delivery(position, place, frame) for position, (place, frame) in self._unconsumed.items())
        for place in self._places.values():
            place.bodies.forget_sent()
            place.transport.visit_all()
        for peer in self._takeover.suspected if self._takeover is not None else ():
            self._tell_transports(peer, True)
        safe = self._safe_news()
        send = self._collect(now)
        stable = self._ledger.news() if self._ledger is not None else 0
        return Ready(send=send, sent=tuple(sent), deliver=deliver, wake=self._wake(), stable=stable, safe=safe)

    def _repeated(self, record: Record) -> Ready:
        if not self._restoring:
            raise UsageError(f"{self.name!r} is not being restored; records are repeated right behind Restored")
        sent, deliver = self._repeat(record)
        accepted = (record.envelope,) if isinstance(record, Submitted) else ()
        return Ready(accepted=accepted, sent=sent, deliver=deliver, wake=self._wake(), safe=self._safe_news())

    def _repeat(self, record: Record) -> tuple[tuple[Envelope, ...], tuple[Delivery, ...]]:
        """Step through a record again. What follows from it is queued or delivered as it was the first time."""
        sent: tuple[Envelope, ...] = ()
        self._check_record(record)
        if isinstance(record, Suspecting):
            return (), self._deliver(self._suspect(record.peer, record.suspected))
        try:
            if isinstance(record, Submitted):
                sent, deliver = self._send_or_wait(record.envelope)
            elif isinstance(record, Received):
                if record.frame.bodiless:
                    raise MalformedFrame(f"a frame from {record.peer!r} without its body")
                incoming = Incoming(record.peer, record.number, record.frame, record.to)
                deliver = self._take(self._places[record.domain], incoming, record.at)
            elif isinstance(record, Changed | Owed):
                sent, deliver = self._follow(record)
            elif isinstance(record, Passed):
                deliver, _ = self._pass(self._domains[record.domain], record)
            else:
                deliver = []
                self._places[record.domain].transport.skip(record.peer, record.number)
        except (FrameRefused, UsageError) as error:
            raise StorageError(f"{self.name!r}: a stored record does not follow from those before it: {error}") from error
        if self._ledger is not None:
            self._balance()
        return sent, self._deliver(deliver)

    def _check_record(self, record: Record) -> None:
        """Refuse a record that cannot be ours."""
        if isinstance(record, Submitted):
            if (record.envelope.origin, record.envelope.number) != (self.name, self._number + 1):
                raise StorageError(
                    f"{self.name!r}: a stored record of message {record.envelope.id} after {self.name}:{self._number}"
                )
        elif isinstance(record, Passed):
            if record.domain not in self._domains or self._domains[record.domain].guard is None:
                raise StorageError(f"{self.name!r}: a stored record of safe delivery in {record.domain!r}, where there is none")
        elif isinstance(record, Received | Skipped) and (
            record.domain not in self._places or record.peer not in self._places[record.domain].peers
        ):
            raise StorageError(
                f"{self.name!r}: a stored record names {record.peer!r} in {record.domain!r}, to whom there is no channel"
            )

    def _load(self, snapshot: bytes) -> None:
        saved_type: Any = _Saved
        try:
            self._load_view(msgspec.msgpack.decode(snapshot, type=_SavedView).view)
            kinds = [kind for place in self._places.values() for kind in place.stamps]
            saved = msgspec.msgpack.decode(snapshot, type=saved_type[stamp_union(kinds) | None if kinds else None])
        except UNREADABLE as error:
            raise StorageError(f"{self.name!r}: a snapshot that cannot be read: {error}") from None
        if (saved.name, saved.fabric, set(saved.places)) != (self.name, self.topology.name, set(self._places)):
            raise StorageError(
                f"{self.name!r} in {self.topology.name!r}: this is the snapshot of {saved.name!r} in {saved.fabric!r}"
            )
        if (saved.takeover is None) != (self._takeover is None):
            raise StorageError(f"{self.name!r}: the snapshot of a fabric {'without' if self._takeover else 'with'} replicas")
        if self._takeover is not None and saved.takeover is not None:
            self._takeover.load(saved.takeover)
        if (saved.ledger is None) != (self._ledger is None):
            kind = "without" if self._ledger is not None else "with"
            raise StorageError(f"{self.name!r}: the snapshot of a fabric {kind} stability")
        if self._ledger is not None and saved.ledger is not None:
            self._ledger.load(saved.ledger)
        if self._retained is not None:
            self._retained.load(saved.retained)
        self._number, self._position = saved.number, saved.position
        for name, place in self._places.items():
            place.load(saved.places[name])
        self._count_queued()
        self._unconsumed = {position: (place, frame) for position, place, frame in saved.unconsumed}
        self._unconsumed_bytes = sum(frame.weight for _, _, frame in saved.unconsumed)
        if self._late is not None:
            self._late.extend(saved.late)
            self._late_bytes = sum(frame.weight for _, frame, _ in saved.late)
        if self._notices is not None and saved.notices is not None:
            self._notices.load(saved.notices)
        self._consumed_upto = min(self._unconsumed, default=self._position + 1) - 1


_ENCODER = msgspec.msgpack.Encoder()
