"""Which parts of a growing folder have been read: an offset that stays small while the folder grows.

Parts may come in any order, from several writers, so a highest number would not do: the offset is the set of names. Writers count
their parts, and so do we: names that differ only in their last number are kept as ranges of that number.

    part-00000.parquet, part-00001.parquet, part-00003.parquet   →   {"5:5:part-.parquet": "0-1,3"}

The key is how many digits the number has, at which message it begins, and the name without it. A name without a number is a key
of its own, with an empty value. A part of which only the beginning has been read is ``@NAME``, with where the rest begins.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MAX_DIGITS: Final = 15
"""A longer number is part of the name."""

Offset = dict[str, str]

_LAST_NUMBER: Final = re.compile(rf"(?s)(.*?)([0-9]{{1,{MAX_DIGITS}}})([^0-9]*)")
_KEY: Final = re.compile(r"(?s)([0-9]+):([0-9]+):(.*)")


def to_offset(names: Iterable[str], begun: Mapping[str, int] | None = None) -> Offset:
    """The offset at which exactly these parts have been read, and of those that are ``begun`` all before a place in them."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for name in names:
        key, number = _split(name)
        numbers[key].update(() if number is None else (number,))
    parts = {key: _ranges(sorted(numbers[key])) for key in sorted(numbers)}
    return parts | {f"@{name}": str(place) for name, place in sorted((begun or {}).items())}


def begun_in(offset: Offset) -> dict[str, int]:
    """The parts that have been read in part, and where the rest of each begins."""
    return {key[1:]: int(place) for key, place in offset.items() if key.startswith("@")}


def names_of(offset: Offset) -> Iterator[str]:
    """The parts that have been read at an offset, from beginning to end."""
    for key, ranges in offset.items():
        if key.startswith("@"):
            continue
        if not ranges:
            yield key.removeprefix("=")
            continue
        match = _KEY.fullmatch(key)
        if match is None:
            raise ValueError(f"{key!r} is no key of an offset")
        digits, place, rest = int(match[1]), int(match[2]), match[3]
        for part in ranges.split(","):
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{rest[:place]}{number:0{digits}d}{rest[place:]}"


def _split(name: str) -> tuple[str, int | None]:
    match = _LAST_NUMBER.fullmatch(name)
    if match is None:
        return f"={name}", None
    before, digits, after = match.groups()
    return f"{len(digits)}:{len(before)}:{before}{after}", int(digits)


def _ranges(numbers: list[int]) -> str:
    """Sorted numbers as text, such as 0-1,3."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
