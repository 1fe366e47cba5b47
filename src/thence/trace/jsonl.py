"""Traces as JSON lines: one object per line, keys as in :class:`~thence.trace.events.Event`.

Rules:

* Blank lines and unknown keys are ignored; absent and null mean the same.
* Writing is deterministic: keys in the order of the columns, clocks sorted, nothing that is null.
* Nothing but :class:`~thence.errors.TraceError` comes out of a bad file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from thence.errors import TraceError
from thence.trace.complaints import Complaints, explain, show
from thence.trace.events import Event

REPORT_EVERY_LINES: Final = 4096
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_decode_event = msgspec.json.Decoder(Event).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_line(event: Event) -> bytes:
    """Return one event as one line, with its newline."""
    return _encode(event) + b"\n"


def decode_line(line: bytes, partition: Mapping[str, str | None] | None = None) -> Event:
    """Return one line as an event; ``partition`` gives columns that only the folder's name holds.

    Raises :class:`TraceError` that names the column, without the place.
    """
    try:
        if not partition:
            return _decode_event(line)
        row = _decode_any(line)
        if isinstance(row, dict):
            row = _filled(row, partition)
        return msgspec.convert(row, Event)
    except _UNREADABLE as error:
        raise TraceError(_why(line, partition or {}, error)) from None


def _why(line: bytes, partition: Mapping[str, str | None], error: Exception) -> str:
    try:
        row = _decode_any(line)
    except UnicodeDecodeError:
        return "expected UTF-8, found other bytes"
    except RecursionError:
        return "expected a JSON object, found one nested too deeply"
    except msgspec.MsgspecError as broken:
        return f"expected a JSON object: {broken}"
    if not isinstance(row, dict):
        return f"expected a JSON object, found {show(row)}"
    return "; ".join(explain(_filled(row, partition))) or str(error)


def _filled(row: dict[str, object], partition: Mapping[str, str | None]) -> dict[str, object]:
    """Return the row with what the folder's name says, where the row itself says nothing."""
    given = {column: value for column, value in partition.items() if row.get(column) is None}
    return {**row, **given}


def read_jsonl(
    path: Path,
    complaints: Complaints,
    partition: Mapping[str, str | None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Event]:
    """Give the events of one file, in file order. Bad lines go to ``complaints``; ``progress`` hears of bytes read."""
    with path.open("rb") as file:
        read = 0
        if file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            file.seek(0)
        for number, line in enumerate(file, 1):
            read += len(line)
            if line.isspace():
                continue
            try:
                event = decode_line(line, partition)
            except TraceError as error:
                complaints.add(f"{path}:{number}", str(error))
                continue
            yield event
            if progress and not number % REPORT_EVERY_LINES:
                progress(read)
                read = 0
        if progress:
            progress(read)


class JsonlSink:
    """Writes events to an open file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, event: Event) -> None:
        self._file.write(encode_line(event))

    def close(self) -> None:
        self._file.close()

    def discard(self) -> None:
        """Let go of what is open; what was written is of no use any more."""
        self._file.close()
