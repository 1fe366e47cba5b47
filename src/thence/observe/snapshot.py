"""One look at a server, for its metrics: what has to be added up over clients, peers and what waits.

Rules:

* Nothing is changed, and nothing is counted for it while messages go through: all of it is found when somebody asks.
* A server may have a great many clients. Their mailboxes are looked at ``MAILBOXES_AT_A_TIME``, and others have their turn in
  between; so the sums may be of slightly different moments.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from thence.node.peers.peer import Peer
from thence.server.server import Server
from thence.storage.mailbox import Mailbox

MAILBOXES_AT_A_TIME: Final = 5_000
_PROC: Final = Path("/proc/self")


class MailboxTotals(NamedTuple):
    """What waits for clients."""

    messages: int = 0
    bytes: int = 0
    longest_messages: int = 0
    longest_bytes: int = 0


class ProcessFigures(NamedTuple):
    """What the system says of this process; None: it says nothing."""

    cpu_seconds: float
    resident_bytes: int | None
    open_files: int | None
    max_files: int | None


class ServerLook(NamedTuple):
    """What one look saw."""

    server: Server
    mailboxes: MailboxTotals
    mailbox_ratio: float
    """How full the fullest mailbox is, or, where messages are spilled, their files: 1 means that whoever writes there
    waits."""
    peers: Collection[Peer]
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


async def look(server: Server) -> ServerLook:
    """Look at everything."""
    node, outgoing = server.node, server.node.backlog.outgoing
    mailboxes = await _mailboxes(list(node.directory.state.mailboxes.values()))
    waits = node.member.attachment.waiting()
    since = [wait.since for wait in waits if wait.since]
    committing = node.driver.commits.since
    return ServerLook(
        server,
        mailboxes,
        _mailbox_ratio(server, mailboxes),
        list(node.peers.peers.values()),
        node.member.attachment.queued(),
        node.member.attachment.queued_bytes_by_peer(),
        {} if outgoing is None else outgoing.frames_by_peer(),
        {} if outgoing is None else outgoing.bytes_by_peer(),
        {} if outgoing is None else outgoing.trouble_by_peer(),
        len(waits),
        max(0.0, (node.driver.clock.now() - min(since)) / 1e9) if since else 0.0,
        0.0 if committing is None else time.monotonic() - committing,
        None if node.options.data is None else _free(str(node.options.data)),
        _process_figures(),
    )


async def _mailboxes(mailboxes: list[Mailbox]) -> MailboxTotals:
    seen = MailboxTotals()
    for at in range(0, len(mailboxes), MAILBOXES_AT_A_TIME):
        if at:
            await asyncio.sleep(0)
        seen = _with(seen, mailboxes[at : at + MAILBOXES_AT_A_TIME])
    return seen


def _with(seen: MailboxTotals, mailboxes: list[Mailbox]) -> MailboxTotals:
    messages = [mailbox.position - mailbox.acknowledged for mailbox in mailboxes]
    sizes = [mailbox.bytes for mailbox in mailboxes]
    longest = max(seen.longest_messages, *messages) if messages else seen.longest_messages
    longest_bytes = max(seen.longest_bytes, *sizes) if sizes else seen.longest_bytes
    return MailboxTotals(seen.messages + sum(messages), seen.bytes + sum(sizes), longest, longest_bytes)


def _mailbox_ratio(server: Server, seen: MailboxTotals) -> float:
    directory, spill = server.node.directory, server.node.backlog.spill
    if directory.mailboxes.spills and spill is not None:
        return spill.bytes / spill.limit_bytes
    return max(seen.longest_messages / directory.mailboxes.room.messages, seen.longest_bytes / directory.mailboxes.room.bytes)


def _free(folder: str) -> int | None:
    try:
        about = os.statvfs(folder)
    except OSError:
        return None
    return about.f_bavail * about.f_frsize


def _process_figures() -> ProcessFigures:
    used = resource.getrusage(resource.RUSAGE_SELF)
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ProcessFigures(
        used.ru_utime + used.ru_stime, _resident(), _open_files(), None if most == resource.RLIM_INFINITY else most
    )


def _resident() -> int | None:
    try:
        return int((_PROC / "statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _open_files() -> int | None:
    try:
        return len(os.listdir(_PROC / "fd"))  # noqa: PTH208  Names are enough, and there may be many.
    except OSError:
        return None
