"""Which messages of a client were rejected, and why, as long as it may not have heard of it; bounded, whatever is sent.

Rules:

* What was rejected stays so, for ``KEEP_REJECTED`` numbers back: acceptance of a later message must not pass for acceptance of
  it.
* The reasons are kept of the last ``MAX_REASONS`` rejections, and ``MAX_REASONS_BYTES`` of them. Of all before only the numbers
  are: one record has a bit for each, 16 KiB at most. Whoever hears of them so late hears that, and not why.
* Peers with the same reason are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

KEEP_REJECTED: Final = 2 * 65_536
"""How many numbers back it is kept that messages were rejected: twice ``MAX_UNACCEPTED`` (``client.endpoint``)."""

MAX_REASONS: Final = 64
"""Of how many rejections of one client it is kept why, as far as ``MAX_REASONS_BYTES`` allow."""

MAX_REASONS_BYTES: Final = 16 * 1024
"""How many bytes the reasons may have."""

FORGOTTEN: Final = "it was rejected, and many others too, so that the reason is not kept any more"


class Rejected(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=17):
    """Messages of a client that were not accepted, and never will be."""

    client: str
    first: int
    count: int
    reason: str
    forbidden: bool
    """Whether the access file is why."""
    only: bytes = b""
    """Which of them: a bit for each, the lowest of the first byte for the first; empty: all."""

    @property
    def last(self) -> int:
        """The number of the last of them."""
        return self.first + self.count - 1


def note(known: list[Rejected], rejected: Rejected) -> None:
    """Add a rejection to those that are known, in order, and keep them within their limits."""
    oldest = rejected.first - KEEP_REJECTED
    while known and known[0].last < oldest:
        del known[0]
    before = known[-1] if known else None
    if before is not None and _continues(before, rejected):
        known[-1] = msgspec.structs.replace(before, count=before.count + rejected.count)
        return
    known.append(rejected)
    if len(known) > MAX_REASONS or sum([len(one.reason.encode()) for one in known]) > MAX_REASONS_BYTES:
        kept = len(known) // 2
        known[:-kept] = [_without_reasons(known[:-kept], oldest)]


def runs(known: Sequence[Rejected]) -> Iterator[Rejected]:
    """Give what was rejected, each time messages that follow each other."""
    for rejected in known:
        if not rejected.only:
            yield rejected
            continue
        bits = f"{int.from_bytes(rejected.only, 'little'):b}"[::-1]
        for run in re.finditer("1+", bits):
            first, count = rejected.first + run.start(), run.end() - run.start()
            yield msgspec.structs.replace(rejected, first=first, count=count, only=b"")


def _continues(before: Rejected, later: Rejected) -> bool:
    same = before.reason == later.reason and before.forbidden == later.forbidden
    return same and before.last + 1 == later.first and not before.only and not later.only


def _without_reasons(known: Sequence[Rejected], oldest: int) -> Rejected:
    """Return several as one, without those before a number."""
    first, last = max(oldest, known[0].first), known[-1].last
    bits = 0
    for rejected in known:
        some = int.from_bytes(rejected.only, "little") if rejected.only else (1 << rejected.count) - 1
        at = rejected.first - first
        bits |= some << at if at >= 0 else some >> -at
    count = last - first + 1
    only = b"" if bits + 1 == 1 << count else bits.to_bytes((count + 7) // 8, "little")
    return Rejected(known[0].client, first, count, FORGOTTEN, all(one.forbidden for one in known), only)
