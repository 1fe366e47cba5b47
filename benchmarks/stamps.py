"""``updates`` against ``full`` stamps of the matrix ordering: bytes, and µs of a processor per message, from 8 to 512 servers.

Two kinds of traffic. *uniform*: everybody writes to random others, which is the worst for ``updates``, since most entries change
between two messages to the same member. *near*: everybody writes to the next four only. Both stamps meet the same messages.

Rules:

* *send and accept* is the ordering alone: a stamp is handed over as it is. *to the other's disk* adds all that a stamp
  costs until it is persistent: it becomes bytes, goes through a TCP connection, is summed up (CRC-32) on both sides, written to
  a file, and read again.
* Time is what the processor spends, in the kernel too: it depends less on what else runs. No line takes time here; at 1 Gbit/s a
  kilobyte takes 8 µs more.
* The first messages are not timed. A whole matrix of 512 servers is a megabyte at each of them, so there fewer
  messages are timed (``FULL_MESSAGES``).

``python -m benchmarks.stamps`` prints the table.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Self

import msgspec

from benchmarks.table import Row, markdown
from thence.core.ordering import Ordering, make_ordering
from thence.core.wire.messages import Envelope

SIZES = (8, 16, 32, 64, 128, 256, 512)
LEAST_MESSAGES = 4_000
UNTIMED = 500
MESSAGES_EACH = 20
"""So many messages are sent by each server, on average, where there are many."""
FULL_MESSAGES = 1_500
"""So many are timed with whole matrices where one is a megabyte."""
LARGE = 512
NEAR = 4
"""Near traffic goes to so many others."""
TRAFFICS = ("uniform", "near")


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


def pair(names: list[str], traffic: str, chance: Random) -> tuple[str, str]:
    """Return who writes to whom next."""
    if traffic == "uniform":
        sender, target = chance.sample(names, 2)
        return sender, target
    at = chance.randrange(len(names))
    return names[at], names[(at + chance.randint(1, NEAR)) % len(names)]


def unicasts(count: int, kind: str, traffic: str = "uniform") -> StampCost:
    """Let everybody write to others; return the mean cost of a message."""
    chance = Random(7)
    names = [f"m{number}" for number in range(count)]
    members: dict[str, Ordering] = {name: make_ordering("matrix", name, names, {"stamps": kind}) for name in names}
    messages = FULL_MESSAGES if count >= LARGE and kind == "full" else max(LEAST_MESSAGES, MESSAGES_EACH * count)
    encode = msgspec.msgpack.Encoder().encode
    decoders: dict[type, msgspec.msgpack.Decoder[object]] = {}
    clock = time.thread_time
    costs: list[StampCost] = []
    with tempfile.TemporaryFile(buffering=0) as log, Line() as line:
        for number in range(1, messages + 1):
            sender, target = pair(names, traffic, chance)
            envelope = Envelope(sender, number, (target,), b"x" * 100)
            began = clock()
            ((_, frame),) = members[sender].send(envelope, (target,)).send
            members[target].accept(sender, frame, 0)
            accepted = clock()
            kept = type(frame.stamp)
            decode = decoders.setdefault(kept, msgspec.msgpack.Decoder(kept)).decode
            before = clock()
            written = encode(frame.stamp)
            zlib.crc32(written)
            arrived = line.carry(written)
            zlib.crc32(arrived)
            log.write(arrived)
            decode(arrived)
            disk_s = clock() - before
            log.seek(0)
            costs.append(StampCost(len(written), accepted - began, accepted - began + disk_s))
    timed = costs[UNTIMED:]
    return StampCost(*(sum(column) / len(timed) for column in zip(*timed, strict=True)))


def rows() -> Iterator[Row]:
    """Bytes of a stamp, the time of send and accept, and the time until it is on the other's disk, at each size."""
    for traffic in TRAFFICS:
        for count in SIZES:
            updates, full = unicasts(count, "updates", traffic), unicasts(count, "full", traffic)
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
                yield Row(f"{what}: {label}", f"{ours * 1e6:,.1f} µs", f"{theirs * 1e6:,.1f} µs", theirs / ours)


if __name__ == "__main__":
    print(markdown(rows()))
