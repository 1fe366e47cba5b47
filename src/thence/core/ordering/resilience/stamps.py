"""What members of a ``resilient`` domain say to each other.

Rules:

* Members are numbered. A *stream* is what one member sends, and has that member's number; its messages are numbered from 1.
* Every frame from one member to another has a number of its own (``number``), so a repetition is found, whatever it says.
* A message has one stamp for all who get it, whoever hands it on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thence.core.ordering.matrix_clock import MatrixStamp
from thence.core.ordering.matrix_entries import HIGHEST_VALUE
from thence.core.wire.number_set import NumberSet
from thence.errors import MalformedFrame

MAX_NAMED = 64
"""How many ranges, or numbers of done messages, one frame names; the rest goes with the next ones."""

MAX_AHEAD = 1 << 17
"""How many numbers behind a hole of a stream are remembered: more than a member has on its way before it takes no more."""

SENSELESS = "numbers that make no sense"


class ResilientMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=40):
    """A message, for one of its recipients or for somebody who keeps a copy."""

    number: int
    stream: int
    """By whom it was first sent."""
    sequence: int
    """Its number in that stream."""
    safe: int
    """When it was first sent, all earlier ones up to this number were held by enough."""
    to: tuple[int, ...] | None
    """Who delivers it, beside its first sender; None: all."""
    updates: tuple[int, ...]
    """What its recipients lacked of its first sender's matrix, as (row * members + column, value), … flattened."""
    done: tuple[int, ...]
    """Earlier messages of its first sender that all their recipients hold."""


class ResilientHeld(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=41):
    """I hold this message on disk."""

    number: int
    stream: int
    sequence: int


class ResilientEnough(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=42):
    """These messages of a stream are held by enough: all up to ``upto``, and those from each first to each last."""

    number: int
    stream: int
    upto: int
    ranges: tuple[int, ...]
    done: tuple[int, ...]
    """These are held by all their recipients, too: copies of them may go."""


class EarlierCopy(MatrixStamp, frozen=True, array_like=True, gc=False, tag=13):
    """As a matrix stamp, on a message that its receiver did not deliver. These three were sent before 0.2.0 was complete."""


class EarlierKept(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    """I keep your ``number``-th message to me."""

    number: int


class EarlierSafe(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    """My ``number``-th message to you is kept by enough others."""

    number: int


def ranges_of(numbers: NumberSet) -> Iterator[tuple[int, ...]]:
    """Give what a set has behind its holes as (first, last, …), a part for each frame; at least one."""
    ranges: list[int] = []
    for number in sorted(numbers.beyond):
        if ranges and ranges[-1] == number - 1:
            ranges[-1] = number
            continue
        if len(ranges) == 2 * MAX_NAMED:
            yield tuple(ranges)
            ranges = []
        ranges += (number, number)
    yield tuple(ranges)


def entry_of(updates: tuple[int, ...], place: int) -> int:
    """Return one entry of a matrix out of (key, value, …); 0: it is not among them."""
    return dict(zip(updates[::2], updates[1::2], strict=True)).get(place, 0)


def check_message(stamp: ResilientMessage, members: int) -> None:
    """Refuse a message whose numbers cannot be."""
    named = stamp.to or ()
    _check_numbers((stamp.number, stamp.sequence), stamp.done)
    if not 0 <= stamp.stream < members or not 0 <= stamp.safe < stamp.sequence:
        raise MalformedFrame(SENSELESS)
    if len(set(named)) != len(named) or stamp.stream in named or any(not 0 <= member < members for member in named):
        raise MalformedFrame("recipients that make no sense")


def check_held(stamp: ResilientHeld, sender: int, members: int) -> None:
    """Refuse an answer of ``sender`` whose numbers cannot be."""
    _check_numbers((stamp.number, stamp.sequence), ())
    if not 0 <= stamp.stream < members or stamp.stream == sender:
        raise MalformedFrame(SENSELESS)


def check_enough(stamp: ResilientEnough, members: int, known_upto: int) -> None:
    """Refuse a claim about a stream, of which all up to a number are known, that cannot be or that asks for too much room."""
    ranges = stamp.ranges
    _check_numbers((stamp.number,), stamp.done)
    if not 0 <= stamp.stream < members or not 0 <= stamp.upto <= HIGHEST_VALUE or len(ranges) % 2 or len(ranges) > 2 * MAX_NAMED:
        raise MalformedFrame(SENSELESS)
    bounds = (stamp.upto, *ranges)
    if any(bounds[at + 1] - bounds[at] < (0 if at % 2 else 2) for at in range(len(bounds) - 1)):
        raise MalformedFrame(SENSELESS)
    if ranges and ranges[-1] > max(stamp.upto, known_upto) + MAX_AHEAD:
        raise MalformedFrame(f"more than MAX_AHEAD = {MAX_AHEAD} numbers behind a hole")


def _check_numbers(numbers: tuple[int, ...], done: tuple[int, ...]) -> None:
    if min(numbers) < 1 or len(done) > MAX_NAMED or any(not 1 <= number <= HIGHEST_VALUE for number in done):
        raise MalformedFrame(SENSELESS)
