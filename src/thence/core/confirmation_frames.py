"""What members of a group that confirms receipt tell each other and remember, and the options. See ``core.confirmation``.

Rules:

* Members are numbered in frames, as in stamps. A *stream* is what one member sends: it has that member's number, and its
  messages are numbered from 1.
* A *claim* says what its sender has of a stream: ``(stream, upto, first, last, first, last, …)``, all up to ``upto``, and behind
  it from each ``first`` to its ``last``.
* These frames form a union of their own; they never meet those of ``core.messages``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from thence.core.numbers import NumberSet
from thence.errors import ConfigError, MalformedFrame

MAX_KEPT = 1_024
"""How many messages of one stream may be on their way: from the oldest that somebody has not confirmed to the newest."""

MAX_COPIES = 16 * MAX_KEPT
"""How many messages of others a member keeps to repeat them; beyond it the oldest is dropped, and its sender still has it."""

MAX_CLAIMED_RANGES = 32
"""How many ranges behind holes one claim lists: what is not listed is at worst sent once more."""

MAX_REQUESTED = 64
"""How many numbers one request names."""

RESEND_BURST = 64
"""How many messages one timer repeats: the oldest ones."""

PATIENCE_AT_MOST_NS = 5_000_000_000
"""Waits double from attempt to attempt, up to this."""

Claim = tuple[int, ...]


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


def makes_sense(claim: Claim, streams: int, max_kept: int) -> bool:
    """Return whether a claim names one of so many streams, and numbers that rise and are within the window."""
    numbers = claim[1:]
    if len(claim) < 2 or len(claim) % 2 or len(claim) > 2 + 2 * MAX_CLAIMED_RANGES or not 0 <= claim[0] < streams:
        return False
    rises = all(earlier <= later for earlier, later in pairwise(numbers))
    return rises and numbers[0] >= 0 and numbers[-1] <= numbers[0] + max_kept


def claimed_beyond(claim: Claim) -> Iterator[int]:
    """Give the numbers that a claim lists behind holes."""
    for at in range(2, len(claim), 2):
        yield from range(claim[at], claim[at + 1] + 1)


class Data(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """The ``number``-th message of ``stream``, by whomever it is sent; it is the ``origin_number``-th that ``origin`` made."""

    stream: int
    number: int
    origin: int
    origin_number: int
    body: bytes
    claims: tuple[Claim, ...] = ()
    """Confirmations that travel along."""


class Confirmation(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """What its sender has; ``wanted`` asks for the same in return."""

    claims: tuple[Claim, ...]
    wanted: bool = False


class Request(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """Its sender lacks these messages of a stream and asks for them."""

    stream: int
    numbers: tuple[int, ...]


Frame = Data | Confirmation | Request


class Released(NamedTuple):
    """A message, handed over once: who made it, its how-manieth it is, and what it says."""

    origin: str
    number: int
    body: bytes


class Outcome(NamedTuple):
    """What to do: send these frames, hand over these messages, and call ``timer`` at ``wake``, if that is a time."""

    send: list[tuple[str, Frame]]
    deliver: list[Released]
    wake: int | None


class Kept(msgspec.Struct):
    """A message of ours that some have not confirmed."""

    data: Data
    lacking: dict[int, None]
    due: int
    patience_ns: int


class Missing(msgspec.Struct):
    """A message that we know of and do not have."""

    ask_at: int
    patience_ns: int
    attempts: int = 0


class Owed(msgspec.Struct):
    """A confirmation that we have put off."""

    messages: int
    due: int


class Counts(msgspec.Struct):
    """What one member did."""

    data: int = 0
    resent: int = 0
    confirmations: int = 0
    requests: int = 0
    repeated: int = 0
    """Copies that came of what we had already."""
    peak: int = 0
    """The most messages that were kept at one time, for others or until their turn."""


class ConfirmationOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a group confirms. All its members must be given the same."""

    scheme: Literal["centralised", "decentralised", "distributed"] = "decentralised"
    retransmission: Literal["sender", "nearest"] = "sender"
    """Who repeats what a destination asks for. Only with ``distributed`` does a destination know who else has it."""
    confirm_after_messages: int = 1
    """Delayed confirmation: confirm when so many messages have come,"""
    confirm_after_ns: int = 0
    """or when this long has passed since the first of them. 0: at once."""
    resend_after_ns: int = 200_000_000
    """How long a sender waits for confirmation before it sends again."""
    ask_after_ns: int = 5_000_000
    """How long a destination waits for what it knows to be missing, before it asks: it may only be late."""
    ask_again_ns: int = 100_000_000
    """How long it waits for the answer, before it asks somebody else."""
    controller: str | None = None
    """Who passes everything on, with ``centralised`` (default: the first member)."""
    max_kept: int = MAX_KEPT

    def check(self) -> None:
        """Refuse what makes no sense together."""
        if self.retransmission == "nearest" and self.scheme != "distributed":
            raise ConfigError(
                f"retransmission 'nearest' needs scheme 'distributed': with {self.scheme!r} nobody knows who has what"
            )
        if self.controller is not None and self.scheme != "centralised":
            raise ConfigError(f"a controller needs scheme 'centralised', not {self.scheme!r}")
        for name in ("confirm_after_messages", "resend_after_ns", "ask_again_ns", "max_kept"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.max_kept > MAX_KEPT:
            raise ConfigError(f"max_kept is {self.max_kept}; MAX_KEPT is {MAX_KEPT}")
        if self.ask_after_ns < 0 or not 0 <= self.confirm_after_ns < self.resend_after_ns:
            raise ConfigError(
                f"confirm_after_ns is {self.confirm_after_ns}: it must be from 0 to less than resend_after_ns, which is "
                f"{self.resend_after_ns}, or everything would be sent twice"
            )
        if self.confirm_after_messages > 1 and not self.confirm_after_ns:
            raise ConfigError("confirm_after_messages above 1 needs confirm_after_ns: the last messages would never be confirmed")


def check_numbers(frame: Frame, described: str, streams: int, max_kept: int) -> None:
    """Refuse a frame whose numbers cannot be, in a group of so many streams."""
    if isinstance(frame, Request):
        if not 0 <= frame.stream < streams or not 0 < len(frame.numbers) <= MAX_REQUESTED or min(frame.numbers) < 1:
            raise MalformedFrame(f"{described}: {frame.numbers} of stream {frame.stream} make no sense")
        return
    for claim in frame.claims:
        if not makes_sense(claim, streams, max_kept):
            raise MalformedFrame(f"{described}: the claim {claim} makes no sense")
    if isinstance(frame, Data):
        known = 0 <= frame.stream < streams and 0 <= frame.origin < streams
        if not known or min(frame.number, frame.origin_number) < 1:
            raise MalformedFrame(f"{described}: its numbers make no sense")
