"""How many bytes of control information an ordering costs: measured, and written into its design note.

    python -m tests.support.pages.stamp_sizes matrix      print the table of one ordering
    python -m tests.support.pages.stamp_sizes --write     write all tables into docs/concepts/orderings/*.md

A run of random messages among n members, each frame arriving after a random wait. Counted is every frame that an ordering
sends, markers, requests and forwarded copies included, with ``control_bytes`` of its stamp. The same numbers come out every
time, and a test compares them with what the notes say.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.suite import VARIANTS, Variant
from thence.core.ordering import ORDERINGS, Output
from thence.core.wire.messages import Envelope, Frame, control_bytes

NOTES = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "orderings"
BEGIN, END = "<!-- sizes: begin -->", "<!-- sizes: end -->"
MEMBERS = (4, 16, 64)
PATTERNS = ("unicast", "broadcast")
MESSAGES_PER_MEMBER = 2
SHOWN = {"vector-full", "matrix-full", "flood-ring"}
"""Variants that are shown beside the defaults."""


class Size(NamedTuple):
    """What a message costs on average."""

    frames: float
    bytes_per_frame: float


class Traffic:
    """Members who write to each other, frames on their way, and a count of what they weigh."""

    def __init__(self, variant: Variant, count: int) -> None:
        self.names = tuple(f"s{number}" for number in range(count))
        self.orderings = variant.run(self.names).orderings
        self.on_the_way: dict[tuple[str, str], deque[Frame[Any]]] = {}
        self.waiting: list[tuple[str, str]] = []
        self.frames = 0
        self.bytes = 0

    def follow(self, name: str, output: Output) -> None:
        for peer, frame in output.send:
            self.frames += 1
            self.bytes += control_bytes(frame.stamp)
            self.on_the_way.setdefault((name, peer), deque()).append(frame)
            self.waiting.append((name, peer))

    def arrive(self, chance: random.Random) -> None:
        """Let the oldest frame of a random channel arrive."""
        at = chance.randrange(len(self.waiting))
        self.waiting[at], self.waiting[-1] = self.waiting[-1], self.waiting[at]
        source, target = self.waiting.pop()
        frame = self.on_the_way[source, target].popleft()
        self.follow(target, self.orderings[target].accept(source, frame, 0))


def measure(variant: Variant, count: int, pattern: str) -> Size:
    """Return what a message costs among ``count`` members."""
    chance = random.Random(1)
    traffic = Traffic(variant, count)
    numbers = dict.fromkeys(traffic.names, 0)
    messages = MESSAGES_PER_MEMBER * count
    for _ in range(messages):
        sender = chance.choice(traffic.names)
        to = None if pattern == "broadcast" else (chance.choice([name for name in traffic.names if name != sender]),)
        numbers[sender] += 1
        traffic.follow(sender, traffic.orderings[sender].send(Envelope(sender, numbers[sender], to, b""), to))
        for _ in range(len(traffic.waiting) * 2 // 3):
            traffic.arrive(chance)
    while traffic.waiting:
        traffic.arrive(chance)
    return Size(traffic.frames / messages, traffic.bytes / traffic.frames)


def table(name: str) -> str:
    """Return the table of an ordering, as Markdown."""
    lines = ["| pattern | members | frames per message | bytes per stamp | bytes per message |", "|---|---|---|---|---|"]
    for variant in VARIANTS:
        if variant.name == name and (variant.label == name or variant.label in SHOWN):
            lines += _rows(variant)
    return "\n".join(lines)


def _rows(variant: Variant) -> Iterator[str]:
    extra = f", {variant.label.partition('-')[2]}" if variant.label != variant.name else ""
    for pattern in PATTERNS:
        for count in MEMBERS:
            size = measure(variant, count, pattern)
            weight = size.frames * size.bytes_per_frame
            yield f"| {pattern}{extra} | {count} | {size.frames:.1f} | {size.bytes_per_frame:.1f} | {weight:.0f} |"


def written_in(note: str) -> str:
    """Return the table that a design note holds."""
    return note.partition(BEGIN)[2].partition(END)[0].strip()


def main(arguments: list[str]) -> None:
    """Print one table, or write all."""
    if arguments != ["--write"]:
        print(table(arguments[0]))  # noqa: T201 - a command: its report is its output
        return
    for name in ORDERINGS:
        path = NOTES / f"{name}.md"
        before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{table(name)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
