"""One look at a server, for its metrics: what has to be added up over clients, neighbours and what waits.

Rules:

* Nothing is changed, and nothing is counted for it while messages go through: all of it is found when somebody asks.
* A server may have a great many clients. Their boxes are looked at ``BOXES_AT_A_TIME``, and others have their turn in between;
  so the sums may be of slightly different moments.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from typing import Final, NamedTuple

from thence.runtime.boxes import Box
from thence.runtime.neighbour import Neighbour
from thence.runtime.server import Server
from thence.web import process
from thence.web.process import ProcessFigures

BOXES_AT_A_TIME: Final = 5_000


class Boxes(NamedTuple):
    """What waits for clients."""

    letters: int = 0
    bytes: int = 0
    longest_letters: int = 0
    longest_bytes: int = 0


class Seen(NamedTuple):
    """What one look saw."""

    server: Server
    boxes: Boxes
    box_ratio: float
    """How full the fullest box is, or, where letters are spilled, their files: 1 means that the server takes nothing more."""
    neighbours: Collection[Neighbour]
    queued_frames: dict[str, int]
    queued_bytes: dict[str, int]
    """As far as they are in memory."""
    spilled_frames: dict[str, int]
    spilled_bytes: dict[str, int]
    unreadable: dict[str, str]
    waiting: int
    oldest_wait_s: float
    committing_s: float
    free_bytes: int | None
    """On the disk of the store."""
    process: ProcessFigures


async def look(server: Server) -> Seen:
    """Look at everything."""
    node, outgoing = server.node, server.node.backlog.outgoing
    boxes = await _boxes(list(node.office.state.boxes.values()))
    waits = node.member.waiting()
    since = [wait.since for wait in waits if wait.since]
    committing = node.driver.committing_since
    return Seen(
        server,
        boxes,
        _box_ratio(server, boxes),
        list(node.peers.neighbours.values()),
        node.member.queued(),
        node.member.queued_bytes_by_peer(),
        {} if outgoing is None else outgoing.frames_by_peer(),
        {} if outgoing is None else outgoing.bytes_by_peer(),
        {} if outgoing is None else outgoing.trouble_by_peer(),
        len(waits),
        max(0.0, (node.clock.now() - min(since)) / 1e9) if since else 0.0,
        0.0 if committing is None else time.monotonic() - committing,
        None if node.options.data is None else _free(str(node.options.data)),
        process.look(),
    )


async def _boxes(boxes: list[Box]) -> Boxes:
    seen = Boxes()
    for at in range(0, len(boxes), BOXES_AT_A_TIME):
        if at:
            await asyncio.sleep(0)
        seen = _with(seen, boxes[at : at + BOXES_AT_A_TIME])
    return seen


def _with(seen: Boxes, boxes: list[Box]) -> Boxes:
    letters = [box.position - box.acknowledged for box in boxes]
    sizes = [box.bytes for box in boxes]
    longest = max(seen.longest_letters, *letters) if letters else seen.longest_letters
    longest_bytes = max(seen.longest_bytes, *sizes) if sizes else seen.longest_bytes
    return Boxes(seen.letters + sum(letters), seen.bytes + sum(sizes), longest, longest_bytes)


def _box_ratio(server: Server, seen: Boxes) -> float:
    office, spill = server.node.office, server.node.backlog.spill
    if office.spills and spill is not None:
        return spill.bytes / spill.limit_bytes
    return max(seen.longest_letters / office.room.letters, seen.longest_bytes / office.room.bytes)


def _free(folder: str) -> int | None:
    try:
        about = os.statvfs(folder)
    except OSError:
        return None
    return about.f_bavail * about.f_frsize
