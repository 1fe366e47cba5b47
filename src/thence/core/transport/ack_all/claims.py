"""What members that ack to everybody say to each other, and what of it cannot be. See ``core.transport.ack_all``.

Rules:

* Members are numbered, as in stamps. A *stream* is what one member sends: it has that member's number, and its messages are
  numbered from 1.
* A *claim* says what somebody has of a stream: ``(stream, upto, first, last, first, last, …)``, all up to ``upto``, and behind it
  from each ``first`` to its ``last``.
* A *request* says what somebody lacks: ``(stream, number, number, …)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from thence.core.transport.channel import WINDOW
from thence.core.wire.messages import Frame, GroupAcks, Packet
from thence.core.wire.number_set import NumberSet
from thence.errors import MalformedFrame
from thence.words import counted

MAX_CLAIMED_RANGES = 32
"""How many ranges behind holes one claim lists: what is not listed is at worst sent once more."""

MAX_REQUESTED = 64
"""How many numbers one request names."""

Claim = tuple[int, ...]
Carried = tuple[int, int, Frame[Any], tuple[int, ...] | None]
"""A frame in a packet: the stream and its number there, the frame, and for whom its message is (None: for all)."""


def claim_of(stream: int, numbers: NumberSet) -> Claim:
    """Return what somebody who has ``numbers`` of a stream says."""
    ranges: list[int] = []
    for number in sorted(numbers.beyond):
        if ranges and ranges[-1] == number - 1:
            ranges[-1] = number
        elif len(ranges) < 2 * MAX_CLAIMED_RANGES:
            ranges += (number, number)
        else:
            break
    return (stream, numbers.upto, *ranges)


def claimed_beyond(claim: Claim) -> Iterator[int]:
    """Give the numbers that a claim lists behind holes."""
    for at in range(2, len(claim), 2):
        yield from range(claim[at], claim[at + 1] + 1)


def note(known: NumberSet, claim: Claim) -> None:
    """Add what is claimed to what is known."""
    known.add_upto(claim[1])
    for number in claimed_beyond(claim):
        known.add(number)


def carried(packet: Packet[Any], source: int) -> list[Carried]:
    """Return the frames of a packet that has been checked, each with its stream, number and recipients."""
    group_acks = packet.group_acks or GroupAcks()
    count = len(packet.frames)
    streams = group_acks.streams or (source,) * count
    recipients = group_acks.recipients or (None,) * count
    return list(zip(streams, packet.numbers, packet.frames, recipients, strict=True))


def check_packet(packet: Packet[Any], described: str, members: int, me: int) -> None:
    """Refuse a packet whose parts do not fit together, at member ``me`` of so many."""
    group_acks = packet.group_acks
    if group_acks is None:
        raise MalformedFrame(f"{described}: it says nothing of what its sender has, and here all ack to all")
    count = len(packet.frames)
    if {len(packet.numbers), len(group_acks.streams or packet.frames), len(group_acks.recipients or packet.frames)} != {count}:
        raise MalformedFrame(
            f"{described}: {counted(count, 'frame')} and {counted(len(packet.numbers), 'number')}, "
            f"or streams and recipients of others"
        )
    if max(len(group_acks.claims), len(group_acks.requests)) > members:
        raise MalformedFrame(f"{described}: more claims or requests than there are members")
    for claim in group_acks.claims:
        if not _is_claim(claim, members):
            raise MalformedFrame(f"{described}: the claim {claim} makes no sense")
    for request in group_acks.requests:
        if not 2 <= len(request) <= 1 + MAX_REQUESTED or not 0 <= request[0] < members or min(request[1:]) < 1:
            raise MalformedFrame(f"{described}: the request {request} makes no sense")
    for stream, number, frame, to in carried(packet, 0):
        if not 0 <= stream < members or number < 1 or any(not 0 <= member < members for member in to or ()):
            raise MalformedFrame(f"{described}: number {number} of stream {stream}, for {to}, makes no sense")
        if (to is None or me in to) == (frame.envelope is None):
            raise MalformedFrame(f"{described}: a message for others, or a marker of one for me")


def _is_claim(claim: Claim, members: int) -> bool:
    """Return whether a claim names one of the streams, and numbers that rise and are within the window."""
    if len(claim) < 2 or len(claim) % 2 or len(claim) > 2 + 2 * MAX_CLAIMED_RANGES or not 0 <= claim[0] < members:
        return False
    numbers = claim[1:]
    rises = all(earlier <= later for earlier, later in pairwise(numbers))
    return rises and numbers[0] >= 0 and numbers[-1] <= numbers[0] + WINDOW
