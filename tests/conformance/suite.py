"""What the conformance suite of orderings runs on: every ordering of the registry, by itself and with each of its options.

An ordering needs no entry here. Where it has options, ``OPTIONS`` names variants of it that must pass the same suite; where
a frame can claim what cannot be, ``IMPOSSIBLE`` makes such frames from real ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.runs import Run, random_run
from thence.core.ordering import MAX_HELD, ORDERINGS, Ordering, Traits
from thence.core.ordering.resilience.stamps import ResilientHeld
from thence.core.wire.messages import Frame

MEMBERS = ("A", "B", "C", "D", "E")

Options = Callable[[Sequence[str]], Mapping[str, Any]]


def _chain(members: Sequence[str]) -> list[list[str]]:
    return [[one, other] for one, other in pairwise(members)]


def _halves(members: Sequence[str]) -> list[list[str]]:
    """Two subgroups, the members in another order than the domain's."""
    return [list(reversed(members[::2])), list(members[1::2])] if len(members) > 1 else [list(members)]


OPTIONS: Mapping[str, Mapping[str, Options]] = {
    "clocked": {"physical": lambda _: {"clock": "physical"}, "hybrid": lambda _: {"clock": "hybrid"}},
    "vector": {"full": lambda _: {"stamps": "full"}},
    "matrix": {"full": lambda _: {"stamps": "full"}},
    "flood": {"ring": lambda _: {"links": "ring"}, "chain": lambda members: {"links": _chain(members)}},
    "grouped": {
        "halves": lambda members: {"groups": _halves(members)},
        "singles": lambda members: {"groups": [[name] for name in members]},
        "one": lambda members: {"groups": [list(members)]},
    },
    "resilient": {"two": lambda _: {"copies": 2}, "none": lambda _: {"copies": 0}},
    "sequenced": {"last": lambda members: {"coordinator": members[-1]}},
}


class Variant(NamedTuple):
    """An ordering with the options that it is to be tried with."""

    label: str
    name: str
    options_for: Options

    @property
    def confirms(self) -> bool:
        """Whether a message waits until others have been heard of, though nothing that precedes it is missing."""
        return self.name == "resilient" and self.options_for(MEMBERS).get("copies", 1) > 1

    @property
    def kind(self) -> type[Ordering]:
        """The ordering's class."""
        return ORDERINGS[self.name]

    @property
    def traits(self) -> Traits:
        """What is true of every member of every domain with it."""
        return self.kind.traits

    def run(self, members: Sequence[str] = MEMBERS, *, max_held: int = MAX_HELD, kind: type[Ordering] | None = None) -> Run:
        """Return a run in which nothing has happened yet."""
        return Run(kind or self.name, members, self.options_for(members), max_held=max_held)

    def busy_run(self, seed: int, messages: int = 12) -> Run:
        """Return a run in the middle: some frames have arrived, some wait, some are on their way."""
        chance = random.Random(seed)
        run = self.run()
        random_run(run, chance, messages)
        for at in range(messages):
            run.send(chance.choice(MEMBERS), None)
            if at % 2 and (flights := run.flights()):
                flight = chance.choice(flights)
                run.arrive(flight.source, flight.target, flight.place)
        return run


def _variants() -> Iterator[Variant]:
    for name in ORDERINGS:
        yield Variant(name, name, lambda _: {})
        for label, options in OPTIONS.get(name, {}).items():
            yield Variant(f"{name}-{label}", name, options)


VARIANTS = tuple(_variants())

every_ordering = pytest.mark.parametrize("variant", VARIANTS, ids=[variant.label for variant in VARIANTS])


# --- frames that claim what cannot be ----------------------------------------------------------------------------------

Claim = Callable[[Ordering, Frame[Any]], Iterator[object]]
"""Gives stamps, made from that of a frame on its way to this member, that claim what cannot be."""


def _vector(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """It depends on a message that I have not sent."""
    mine, sent = target.my_index, target.state.delivered[target.my_index]
    if hasattr(frame.stamp, "clock"):
        yield _replaced(frame.stamp, clock=_put(frame.stamp.clock, mine, sent + 1))
    else:
        others = [x for member, number in _pairs(frame.stamp.after) if member != mine for x in (member, number)]
        yield _replaced(frame.stamp, after=(*others, mine, sent + 1))


def _matrix(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """I have sent more than I have."""
    count, mine = len(target.members), target.my_index
    key = mine * count + (mine + 1) % count
    if hasattr(frame.stamp, "matrix"):
        written = bytearray(frame.stamp.matrix)
        written[4 * key : 4 * key + 4] = (999).to_bytes(4, "little")
        yield _replaced(frame.stamp, matrix=bytes(written))
    else:
        others = [x for entry, value in _pairs(frame.stamp.updates) if entry != key for x in (entry, value)]
        yield _replaced(frame.stamp, updates=(*others, key, 999))


def _resilient(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """I have sent more than I have, or somebody keeps what I have not sent."""
    if hasattr(frame.stamp, "updates"):
        yield from _matrix(target, frame)
    elif isinstance(frame.stamp, ResilientHeld):
        yield _replaced(frame.stamp, sequence=999)


def _grouped(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """It has seen more of a global stream than its gateway, or more of mine than there is."""
    released = target.state.released
    if hasattr(frame.stamp, "news"):
        yield _replaced(frame.stamp, news=(0, released[0] + 1))
    elif hasattr(frame.stamp, "to"):
        own = getattr(target, "my_group")  # noqa: B009 - only this ordering has it
        yield _replaced(frame.stamp, clock=_put(frame.stamp.clock, own, released[own] + 1))


def _relayed(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """It depends on a message that I have not sent."""
    mine, sent = target.my_index, target.state.sent
    others = [entry for entry in _pairs(frame.stamp.vector) if entry[0] != mine]
    yield _replaced(frame.stamp, vector=tuple(x for entry in sorted([*others, (mine, sent + 1)]) for x in entry))


def _flood(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """A hole on a FIFO link, a hole in an origin's numbers, or a message of mine that I never sent."""
    yield _replaced(frame.stamp, hop=frame.stamp.hop + 1)
    yield _replaced(frame.stamp, number=target.state.seen[frame.stamp.origin] + 2)
    yield _replaced(frame.stamp, origin=target.my_index, number=target.state.seen[target.my_index] + 1)


def _clocked(target: Ordering, frame: Frame[Any]) -> Iterator[object]:
    """A hole on a FIFO channel, or a time at the end of all times."""
    sender = target.state.frames_in
    yield _replaced(frame.stamp, number=max(sender) + 2)
    yield _replaced(frame.stamp, time=2**63 - 1)


IMPOSSIBLE: Mapping[str, Claim] = {
    "clocked": _clocked,
    "vector": _vector,
    "matrix": _matrix,
    "resilient": _resilient,
    "grouped": _grouped,
    "relayed": _relayed,
    "flood": _flood,
}


def _pairs(flat: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _put(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _replaced(stamp: Any, **fields: object) -> object:
    return msgspec.structs.replace(stamp, **fields)


def with_each_number_replaced(stamp: Any, by: int) -> Iterator[object]:
    """Give the stamp with each integer in it, one after the other, replaced."""
    for field in stamp.__struct_fields__:
        value = getattr(stamp, field)
        if isinstance(value, int):
            yield _replaced(stamp, **{field: by})
        elif isinstance(value, tuple):
            for at in range(len(value)):
                yield _replaced(stamp, **{field: _put(value, at, by)})
