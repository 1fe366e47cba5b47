"""``updates`` against ``full`` stamps of the matrix ordering: bytes, and µs of a processor per message, from 8 to 512 servers.

Three kinds of traffic. *uniform*: everybody writes to random others, which is the worst for ``updates``, since most entries
change between two messages to the same member. *near*: everybody writes to the next four only. *broadcast*: everybody writes to
all; what is said is of each frame. Both stamps meet the same messages, one after the other in the same run.

Rules:

* *send and accept* is the ordering alone: a stamp is handed over as it is. *to the other's disk* adds all that a stamp
  costs until it is persistent: it becomes bytes, goes through a TCP connection, is summed up (CRC-32) on both sides, written to
  a file, and read again.
* Time is what the processor spends, in the kernel too: it depends less on what else runs. No line takes time here; at 1 Gbit/s a
  kilobyte takes 8 µs more.
* The first messages are not timed. A whole matrix of 512 servers is a megabyte at each of them, so there fewer
  messages go to the disk (``FULL_MESSAGES``).

``python -m benchmarks.stamps`` prints the table, ``python -m benchmarks.stamps 8 64`` for these sizes.
"""

from __future__ import annotations

import contextlib
import math
import socket
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from random import Random
from typing import IO, NamedTuple, Self

import msgspec

from benchmarks.table import Row, markdown
from thence.core.ordering import Ordering, make_ordering
from thence.core.wire.messages import Envelope, control_bytes

SIZES = (8, 16, 32, 64, 128, 256, 512)
LEAST_MESSAGES = 4_000
UNTIMED = 500
MESSAGES_EACH = 20
"""So many messages are sent by each server, on average, where there are many."""
FULL_MESSAGES = 1_500
"""So many go to the disk where one is a megabyte."""
LARGE = 512
NEAR = 4
"""Near traffic goes to so many others."""
TRAFFICS = ("uniform", "near", "broadcast")
KINDS = ("updates", "full")
FRAMES = 16_000
"""So many go out where everybody writes to all, about, and half of them are timed."""


class StampCost(NamedTuple):
    """What one message costs: bytes of its stamp, and seconds."""

    stamp_bytes: float
    ordering_s: float
    disk_s: float


class Line:
    """A TCP connection to oneself."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._from = socket.create_connection(listener.getsockname())
            self._to, _ = listener.accept()
        self._from.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._from.setblocking(False)
        self._room = bytearray(1 << 21)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._from.close()
        self._to.close()

    def carry(self, data: bytes) -> memoryview:
        """Return what arrives."""
        view, room = memoryview(data), memoryview(self._room)
        sent = arrived = 0
        while arrived < len(data):
            if sent < len(data):
                with contextlib.suppress(BlockingIOError):
                    sent += self._from.send(view[sent:])
            arrived += self._to.recv_into(room[arrived:])
        return room[:arrived]


def pair(names: list[str], traffic: str, chance: Random) -> tuple[str, str | None]:
    """Return who writes to whom next; None: to all."""
    if traffic == "broadcast":
        return chance.choice(names), None
    if traffic == "uniform":
        sender, target = chance.sample(names, 2)
        return sender, target
    at = chance.randrange(len(names))
    return names[at], names[(at + chance.randint(1, NEAR)) % len(names)]


class Fabric:
    """Members with one kind of stamp, and what their messages cost."""

    def __init__(self, names: list[str], kind: str, log: IO[bytes], line: Line) -> None:
        self._members: dict[str, Ordering] = {name: make_ordering("matrix", name, names, {"stamps": kind}) for name in names}
        self._log = log
        self._line = line
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoders: dict[type, msgspec.msgpack.Decoder[object]] = {}
        self.costs: list[StampCost] = []

    def send(self, envelope: Envelope, *, to_disk: bool) -> None:
        """Let a message go to its receivers; ``to_disk``: and each stamp to a disk."""
        clock = time.thread_time
        began = clock()
        sent = self._members[envelope.origin].send(envelope, envelope.to).send
        each_s = (clock() - began) / len(sent)
        for target, frame in sent:
            began = clock()
            self._members[target].accept(envelope.origin, frame, 0)
            ordering_s = each_s + clock() - began
            stamp_bytes, disk_s = self._store(frame.stamp) if to_disk else (control_bytes(frame.stamp), math.nan)
            self.costs.append(StampCost(stamp_bytes, ordering_s, ordering_s + disk_s))

    def _store(self, stamp: object) -> tuple[int, float]:
        kept = type(stamp)
        decode = self._decoders.setdefault(kept, msgspec.msgpack.Decoder(kept)).decode
        before = time.thread_time()
        written = self._encode(stamp)
        zlib.crc32(written)
        arrived = self._line.carry(written)
        zlib.crc32(arrived)
        self._log.write(arrived)
        decode(arrived)
        disk_s = time.thread_time() - before
        self._log.seek(0)
        return len(written), disk_s


def costs(count: int, traffic: str = "uniform") -> list[StampCost]:
    """Let everybody write to others; return the mean cost of a frame with either stamp."""
    chance = Random(7)
    names = [f"m{number}" for number in range(count)]
    messages = max(LEAST_MESSAGES, MESSAGES_EACH * count) if traffic != "broadcast" else max(20, FRAMES // count)
    untimed = UNTIMED if traffic != "broadcast" else FRAMES // 2
    with tempfile.TemporaryFile(buffering=0) as log, Line() as line:
        fabrics = [Fabric(names, kind, log, line) for kind in KINDS]
        for number in range(1, messages + 1):
            sender, target = pair(names, traffic, chance)
            envelope = Envelope(sender, number, None if target is None else (target,), b"x" * 100)
            for fabric in fabrics:
                # A whole matrix of 512 servers is a megabyte: there fewer go to the disk.
                fabric.send(envelope, to_disk=target is not None and (count < LARGE or number <= FULL_MESSAGES))
    return [
        StampCost(
            *(mean(cost for cost in column if not math.isnan(cost)) for column in zip(*fabric.costs[untimed:], strict=True))
        )
        for fabric in fabrics
    ]


def mean(values: Iterable[float]) -> float:
    """Return the mean; of nothing, nan."""
    kept = list(values)
    return sum(kept) / len(kept) if kept else math.nan


def rows(sizes: Iterable[int] = SIZES) -> Iterator[Row]:
    """Bytes of a stamp, the time of send and accept, and the time until it is on the other's disk, at each size."""
    for count in sizes:
        for traffic in TRAFFICS:
            updates, full = costs(count, traffic)
            what = f"{traffic}, {count} servers"
            yield Row(
                f"{what}: stamp",
                f"{updates.stamp_bytes:,.0f} B",
                f"{full.stamp_bytes:,.0f} B",
                full.stamp_bytes / updates.stamp_bytes,
            )
            for label, ours, theirs in (
                ("send and accept", updates.ordering_s, full.ordering_s),
                ("to the other's disk", updates.disk_s, full.disk_s),
            ):
                if not math.isnan(ours):
                    yield Row(f"{what}: {label}", f"{ours * 1e6:,.1f} µs", f"{theirs * 1e6:,.1f} µs", theirs / ours)


if __name__ == "__main__":
    print(markdown(rows([int(size) for size in sys.argv[1:]] or SIZES)))
