"""Causal unicast and multicast to any subset, with a matrix of who sent how much to whom.

Source: clusters §II (RST) and domains §3 and App. A (Updates). Design note: docs/concepts/orderings/matrix.md.

Only recipients are written to. A message carries its sender's matrix, itself included. It is delivered at j when it
is the next one from its sender to j and when, for every other member k, what the matrix says was sent from k to j
has been delivered.

Stamps, by the option ``stamps``:

* ``updates`` (default) carries what changed since the sender's last message to the same member (see
  ``core.ordering.matrix_clock`` for what is wrong in App. A as printed). Entries that are left out were in an earlier message of
  the same sender, which is delivered first, or came from the receiver itself. So this needs no FIFO channel either.
* ``full`` carries all n² entries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar, Literal

import msgspec

from thence.core.ordering.base import Ordering, Output
from thence.core.ordering.matrix_clock import FULL_MATRIX_LIMIT, FullMatrix, UpdatesMatrix
from thence.core.ordering.pending import Held
from thence.core.wire.messages import Envelope, Frame
from thence.errors import ImpossibleFrame, MalformedFrame, StorageError, UsageError
from thence.words import counted


class MatrixStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The ``number``-th message from its sender to its receiver, with (row * members + column, value), … flattened."""

    number: int
    updates: tuple[int, ...]


class FullMatrixStamp(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """The same with all entries, row by row, four bytes each."""

    number: int
    matrix: bytes


class MatrixOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stamp is written."""

    stamps: Literal["updates", "full"] = "updates"


class MatrixState(msgspec.Struct):
    """What was delivered from each member, and the matrix: one of the two is there."""

    delivered: list[int]
    updates: tuple[int, list[tuple[int, int, int, int]], list[int]] | None
    full: bytes | None


class Matrix(Ordering):
    """See the module's text."""

    name = "matrix"
    gated = True
    interchangeable = True
    guarantees = frozenset({"fifo", "causal"})
    stamps: ClassVar[tuple[type, ...]] = (MatrixStamp, FullMatrixStamp)
    Options: ClassVar[type[msgspec.Struct]] = MatrixOptions
    State: ClassVar[type[msgspec.Struct]] = MatrixState

    def _start(self, options: Any) -> None:
        count = len(self.members)
        self._delivered = [0] * count
        self._clock: UpdatesMatrix | FullMatrix
        self._clock = (UpdatesMatrix if options.stamps == "updates" else FullMatrix)(count, self.my_index)

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        recipients = self._recipients(to)
        others = [member for member in recipients if member != self.my_index]
        out = Output([], [])
        clock, mine = self._clock, self.my_index
        if isinstance(clock, FullMatrix) and any(clock.value(mine, other) == FULL_MATRIX_LIMIT for other in others):
            raise UsageError("matrix: stamps = 'full' counts to 2^32 - 1; use stamps = 'updates'")
        # All recipients are counted first: each must know of the others, or what it sends them next could overtake this.
        clock.count_sent(others)
        written = clock.written() if isinstance(clock, FullMatrix) else b""
        for member in others:
            number = clock.value(mine, member)
            stamp: MatrixStamp | FullMatrixStamp
            if isinstance(clock, UpdatesMatrix):
                stamp = MatrixStamp(number, clock.updates_for(member))
            else:
                stamp = FullMatrixStamp(number, written)
            out.send.append((self.members[member], Frame(stamp, envelope)))
        if len(others) < len(recipients):
            out.deliver.append(Frame(MatrixStamp(0, ()), envelope))
        return out

    def _check(self, sender: int, frame: Frame[Any]) -> tuple[int, int]:
        stamp = frame.stamp
        count = len(self.members)
        if stamp.number < 1 or frame.envelope is None:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: needs a message and a number from 1")
        if isinstance(self._clock, FullMatrix):
            if not isinstance(stamp, FullMatrixStamp) or len(stamp.matrix) != 4 * count * count:
                raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: no full matrix of {count} members")
            claims = list(self._clock.claims_about_us(stamp.matrix))
            if int(self._clock.read(stamp.matrix)[sender, self.my_index]) != stamp.number:
                raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: its number contradicts its matrix")
        else:
            claims = self._check_updates(sender, frame)
        if claims:
            column, value = claims[0]
            raise ImpossibleFrame(
                f"{self._describe(self.members[sender], frame)}: it says that I sent {counted(value, 'message')} to "
                f"{self.members[column]!r}, but I sent {self._clock.value(self.my_index, column)}"
            )
        return sender, stamp.number

    def _check_updates(self, sender: int, frame: Frame[Any]) -> list[tuple[int, int]]:
        """Return what the stamp claims about us that is not so: (column, value)."""
        count = len(self.members)
        if not isinstance(frame.stamp, MatrixStamp) or len(frame.stamp.updates) % 2:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: no updates stamp")
        updates = frame.stamp.updates
        if not updates:
            return []
        keys = updates[::2]
        reserved = sender * count + self.my_index
        if min(keys) < 0 or max(keys) >= count * count or min(updates[1::2]) < 1 or reserved in keys:
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: updates that make no sense")
        if len(set(keys)) != len(keys):
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: an entry twice")
        for_us = [key % count == self.my_index for key in keys]
        if not all(for_us[: sum(for_us)]):
            raise MalformedFrame(f"{self._describe(self.members[sender], frame)}: what was sent to me does not come first")
        first, last = self.my_index * count, (self.my_index + 1) * count
        about_us = [(key - first, updates[2 * at + 1]) for at, key in enumerate(keys) if first <= key < last]
        return [(column, value) for column, value in about_us if value > self._clock.value(self.my_index, column)]

    def _missing(self, held: Held[Any]) -> tuple[int, int] | None:
        before = held.number - 1
        if self._delivered[held.sender] != before:
            return held.sender, before
        if isinstance(self._clock, FullMatrix):
            return self._missing_full(held, self._clock)
        count, mine, delivered = len(self.members), self.my_index, self._delivered
        updates = held.frame.stamp.updates
        for at in range(held.cursor, len(updates), 2):
            row, column = divmod(updates[at], count)
            if column != mine:
                break
            if delivered[row] < updates[at + 1] and row != mine:
                held.cursor = at
                return row, updates[at + 1]
        return None

    def _missing_full(self, held: Held[Any], clock: FullMatrix) -> tuple[int, int] | None:
        column = clock.read(held.frame.stamp.matrix)[held.cursor :, self.my_index].tolist()
        for row, value in enumerate(column, held.cursor):
            if self._delivered[row] < value and row not in (held.sender, self.my_index):
                held.cursor = row
                return row, value
        return None

    def _release(self, held: Held[Any], out: Output) -> None:
        self._delivered[held.sender] = held.number
        clock, stamp = self._clock, held.frame.stamp
        if isinstance(clock, FullMatrix):
            clock.learn(stamp.matrix)
        else:
            clock.learn(stamp.updates, held.sender)
            clock.learn((held.sender * len(self.members) + self.my_index, held.number), held.sender)
        out.deliver.append(held.frame)

    def _released(self, stream: int) -> int:
        return self._delivered[stream]

    def _state_to_save(self) -> Any:
        if isinstance(self._clock, FullMatrix):
            return MatrixState(self._delivered, None, self._clock.written())
        return MatrixState(self._delivered, self._clock.save(), None)

    def _restore_state(self, state: Any) -> None:
        clock = type(self._clock)(len(self.members), self.my_index)
        if isinstance(clock, FullMatrix) and state.full is not None and len(state.full) == 4 * len(self.members) ** 2:
            clock.load(state.full)
        elif isinstance(clock, UpdatesMatrix) and state.updates is not None:
            clock.load(*state.updates)
        else:
            raise StorageError("matrix: a snapshot without the matrix that it should hold")
        self._clock = clock
        self._delivered = state.delivered
