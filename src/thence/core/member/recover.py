"""Coming back after a crash: the snapshot of a member, and the records since then, stepped through again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from thence.core.failover.replicas import SavedTakeover
from thence.core.member.attachment import Attachment
from thence.core.member.contract import Delivery, Ready, Repeated, Restored
from thence.core.member.deliver import DeliveryLog
from thence.core.member.forward import Forwarder
from thence.core.member.receive import Receiver
from thence.core.member.reconfigure import Reconfigurer
from thence.core.member.submit import Submitter
from thence.core.ordering import survival_of, unsecured_in
from thence.core.ordering.base import stamp_union
from thence.core.places.place import SavedPlace
from thence.core.reconfig.protocol import View, ViewState
from thence.core.reconfig.retention import Retention, SavedRetention
from thence.core.stability.accounts import SavedAccounts
from thence.core.stability.safe_notification import SavedNotices
from thence.core.stability.safe_turn import Deliverable
from thence.core.transport.base import Incoming
from thence.core.wire.messages import UNREADABLE, Envelope, Frame
from thence.core.wire.records import (
    Changed,
    Owed,
    Passed,
    Received,
    Record,
    SafeUpto,
    Shared,
    Skipped,
    Submitted,
    Suspecting,
    happened_at,
)
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
    accounts: SavedAccounts | None = None
    was_late: list[msgspec.Raw] = []
    """What versions before 0.2.0 kept until a message of ours was safe in its domain."""
    retained: SavedRetention | None = None
    notices: SavedNotices | None = None
    crossings: list[tuple[str, Envelope]] = []
    seen: list[int] | None = None


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


_ENCODER: Final = msgspec.msgpack.Encoder()


@dataclass(eq=False)
class Recovery:
    """Writes snapshots, and brings the parts of a member back from a snapshot and records, by repeating what they did."""

    _attachment: Attachment
    _log: DeliveryLog
    _forwarder: Forwarder
    receiver: Receiver
    submitter: Submitter
    _reconfigurer: Reconfigurer
    _view: View
    _retained: Retention | None

    def snapshot(self) -> bytes:
        """Return the whole state. Records from before it are not needed any more."""
        here, log, retained = self._attachment, self._log, self._retained
        saved = _Saved(
            here.name,
            here.topology.name,
            self._forwarder.number,
            log.position,
            {name: place.save() for name, place in here.places.items()},
            [(position, place, frame) for position, (place, frame) in log.unconsumed.items()],
            None if here.takeover is None else here.takeover.save(),
            self._view.save(),
            None if here.accounts is None else here.accounts.save(),
            [],
            None if retained is None else retained.save(),
            None if here.notices is None else here.notices.save(),
            here.border.crossings,
            here.seen.known or None,
        )
        return _ENCODER.encode(saved)

    def restore(self, restored: Restored, now: int) -> Ready:
        """Go on from what was found on disk; what the application had not consumed is delivered again."""
        here, log = self._attachment, self._log
        if restored.snapshot is not None:
            self._load(restored.snapshot)
            for link_place in here.links.values():
                link_place.end.restored(now)
        sent = [envelope for record in restored.records for envelope in self.step_through(record)[0]]
        log.consumed(restored.consumed)
        for place in here.places.values():
            place.bodies.forget_sent()
        here.visit_all()
        for peer in self._suspected():
            here.suspect(peer, True)
        ready = log.ready([], now, sent=sent)
        return msgspec.structs.replace(ready, deliver=log.hand_up(log.again()))

    def _suspected(self) -> list[str]:
        """Return whom we suspect as far as that is stored, since what we sent depends on it."""
        here = self._attachment
        parts = [survival_of(place.ordering) for place in here.domains.values()]
        replicas = () if here.takeover is None else here.takeover.suspected
        return list(dict.fromkeys([*replicas, *(peer for part in parts if part is not None for peer in part.suspected)]))

    def repeat(self, repeated: Repeated) -> Ready:
        """Step through one record again; return what followed from it."""
        record = repeated.record
        sent, deliver = self.step_through(record)
        accepted = (record.envelope,) if isinstance(record, Submitted) else ()
        safe, deliver = self._log.safe_news(), self._log.hand_up(deliver)
        return Ready(accepted=accepted, sent=sent, deliver=deliver, wake=self._attachment.wake(), safe=safe)

    def step_through(self, record: Record) -> tuple[tuple[Envelope, ...], tuple[Delivery, ...]]:
        """Step through a record again. What follows from it is queued or delivered as it was the first time."""
        here = self._attachment
        self._check(record)
        self._forwarder.now = happened_at(record)
        if isinstance(record, Suspecting):
            return (), self._log.add(self._forwarder.suspect(record.peer, record.suspected, record.safe))
        if isinstance(record, Shared):
            return (), self._log.add(self._forwarder.share(record.upto))
        if isinstance(record, SafeUpto):
            if here.turn is not None:
                here.turn.recorded = record.position
            return (), ()
        try:
            sent, deliver = self._follow(record)
        except (FrameRefused, UsageError) as error:
            raise StorageError(f"{here.name!r}: a stored record does not follow from those before it: {error}") from error
        here.balance()
        return sent, self._log.add(deliver)

    def _follow(self, record: Record) -> tuple[tuple[Envelope, ...], Deliverable]:
        places = self._attachment.places
        if isinstance(record, Submitted):
            return self.submitter.send_or_wait(record.envelope)
        if isinstance(record, Changed | Owed):
            return self._reconfigurer.follow(record)
        if isinstance(record, Received):
            if record.frame.bodiless:
                raise MalformedFrame(f"a frame from {record.peer!r} without its body")
            incoming = Incoming(record.peer, record.number, record.frame, record.to)
            return (), self.receiver.take(places[record.domain], incoming, record.at, stored=True)
        if isinstance(record, Skipped):
            places[record.domain].transport.skip(record.peer, record.number)
        return (), []

    def _check(self, record: Record) -> None:
        """Refuse a record that cannot be ours."""
        here, number = self._attachment, self._forwarder.number
        if isinstance(record, Submitted):
            if (record.envelope.origin, record.envelope.number) != (here.name, number + 1):
                raise StorageError(f"{here.name!r}: a stored record of message {record.envelope.id} after {here.name}:{number}")
        elif isinstance(record, Passed):
            raise StorageError(
                f"{here.name!r}: a stored record of safe delivery within {record.domain!r}, which only programs made between "
                "0.1 and 0.2.0 wrote: let such a program finish with delivery = 'at once' first"
            )
        elif isinstance(record, Received | Skipped) and (
            record.domain not in here.places or record.peer not in here.places[record.domain].peers
        ):
            raise StorageError(
                f"{here.name!r}: a stored record names {record.peer!r} in {record.domain!r}, to whom there is no channel"
            )

    def _load(self, snapshot: bytes) -> None:
        here = self._attachment
        saved_type: Any = _Saved
        try:
            self._reconfigurer.load(msgspec.msgpack.decode(snapshot, type=_SavedView).view)
            kinds = [kind for place in here.places.values() for kind in place.stamps]
            saved = msgspec.msgpack.decode(snapshot, type=saved_type[stamp_union(kinds) | None if kinds else None])
        except UNREADABLE as error:
            raise StorageError(f"{here.name!r}: a snapshot that cannot be read: {error}") from None
        if (saved.name, saved.fabric, set(saved.places)) != (here.name, here.topology.name, set(here.places)):
            raise StorageError(
                f"{here.name!r} in {here.topology.name!r}: this is the snapshot of {saved.name!r} in {saved.fabric!r}"
            )
        for what, part, kept in (("replicas", here.takeover, saved.takeover), ("stability", here.accounts, saved.accounts)):
            if (part is None) != (kept is None):
                raise StorageError(f"{here.name!r}: the snapshot of a fabric {'without' if kept is None else 'with'} {what}")
            if part is not None:
                part.load(kept)
        if self._retained is not None:
            self._retained.load(saved.retained)
        for name, place in here.places.items():
            place.load(saved.places[name])
        here.count_frames()
        self._forwarder.number = saved.number
        if here.secured is not None:
            here.secured.load(saved.number, unsecured_in(place.ordering for place in here.domains.values()))
        self._log.load(saved.position, saved.unconsumed)
        here.border.load(saved.crossings)
        if here.notices is not None and saved.notices is not None:
            here.notices.load(saved.notices)
        if saved.seen is not None:
            here.seen.known = saved.seen
