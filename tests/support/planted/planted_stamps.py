"""Stamps that are longer than they need be, with what reads them: order is kept, and only a count of bytes tells."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from unittest import mock

from thence.core.ordering import Output, matrix
from thence.core.ordering.matrix_clock import FullMatrix, FullMatrixStamp
from thence.core.ordering.vector import FullVectorStamp, Vector
from thence.core.wire.messages import Envelope, Frame


class ARowMore(FullMatrix):
    """A stamp holds a row that nobody reads."""

    def stamp_for(self, column: int) -> FullMatrixStamp:
        stamp = super().stamp_for(column)
        return FullMatrixStamp(stamp.number, stamp.matrix + bytes(4 * self._count))

    def read(self, written: bytes) -> Any:
        return super().read(written[: 4 * self._count**2])

    def check(self, sender: int, stamp: Any) -> None:
        super().check(sender, FullMatrixStamp(stamp.number, stamp.matrix[: 4 * self._count**2]))


def a_row_more() -> Any:
    """Let whole matrices be a row longer."""
    return mock.patch.object(matrix, "FullMatrix", ARowMore)


class AnEntryMore(Vector):
    """A full vector has an entry that nobody reads."""

    def send(self, envelope: Envelope, to: Collection[str] | None) -> Output:
        output = super().send(envelope, to)
        return Output([(peer, _with(frame, (*frame.stamp.clock, 0))) for peer, frame in output.send], output.deliver)

    def accept(self, peer: str, frame: Frame[Any], now: int) -> Output:
        return super().accept(peer, _with(frame, frame.stamp.clock[:-1]), now)


def _with(frame: Frame[Any], clock: tuple[int, ...]) -> Frame[Any]:
    return Frame(FullVectorStamp(clock), frame.envelope)
