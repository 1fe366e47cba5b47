"""A frame that cannot be is refused for the right reason, by name, and leaves every byte of the state as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.conformance.suite import IMPOSSIBLE, MEMBERS, VARIANTS, Variant, every_ordering, with_each_number_replaced
from tests.support.runs import Flight, Run
from thence.core.ordering import ORDERINGS, Ordering
from thence.core.ordering.fifo import FifoStamp
from thence.core.ordering.unordered import UnorderedStamp
from thence.core.wire.messages import Envelope, Frame
from thence.errors import FrameRefused, ImpossibleFrame, MalformedFrame, ReplayedFrame, StrangerFrame

HUGE = 2**63 - 1


def assert_refused(ordering: Ordering, peer: str, frame: Frame[Any], kind: type[FrameRefused]) -> None:
    """The frame is refused with exactly this error, which names message and peer, and nothing changes."""
    before = ordering.snapshot()
    with pytest.raises(FrameRefused) as caught:
        ordering.accept(peer, frame, 7)
    assert type(caught.value) is kind, caught.value
    text = str(caught.value)
    assert (str(frame.envelope.id) if frame.envelope else "marker") in text
    assert repr(peer) in text
    assert repr(ordering.me) in text
    assert ordering.snapshot() == before


def each_flight(variant: Variant, messages: int = 10) -> Iterator[tuple[Run, Flight]]:
    """Give every frame that may arrive next in a run with many on their way."""
    run = variant.busy_run(5, messages)
    assert run.flights()
    for flight in run.flights():
        yield run, flight


@every_ordering
def test_a_stranger(variant: Variant) -> None:
    for run, flight in each_flight(variant):
        assert_refused(run.orderings[flight.target], "Z", flight.frame, StrangerFrame)


@every_ordering
def test_a_frame_from_myself(variant: Variant) -> None:
    for run, flight in each_flight(variant):
        assert_refused(run.orderings[flight.target], flight.target, flight.frame, StrangerFrame)


@every_ordering
def test_a_stamp_of_another_ordering(variant: Variant) -> None:
    stamp = UnorderedStamp(1) if variant.name == "fifo" else FifoStamp(1)
    for run, flight in each_flight(variant):
        assert_refused(run.orderings[flight.target], flight.source, Frame(stamp, flight.frame.envelope), MalformedFrame)


@pytest.mark.parametrize("name", [name for name, kind in ORDERINGS.items() if len(kind.traits.stamps) > 1 and kind.traits.direct])
def test_the_other_kind_of_stamp_of_the_same_ordering(name: str) -> None:
    """Where two kinds of stamp say the same, the domain has agreed on one of them."""
    one, other = [variant for variant in VARIANTS if variant.name == name]
    run = one.run()
    for flight in each_flight(other):
        assert_refused(run.orderings[flight[1].target], flight[1].source, flight[1].frame, MalformedFrame)


@every_ordering
def test_negative_numbers(variant: Variant) -> None:
    tried = 0
    for run, flight in each_flight(variant):
        for stamp in with_each_number_replaced(flight.frame.stamp, -1):
            assert_refused(run.orderings[flight.target], flight.source, Frame(stamp, flight.frame.envelope), MalformedFrame)
            tried += 1
    assert tried


@every_ordering
def test_bytes_that_are_cut_off(variant: Variant) -> None:
    for run, flight in each_flight(variant):
        stamp = flight.frame.stamp
        for field in stamp.__struct_fields__:
            if isinstance(getattr(stamp, field), bytes):
                cut = msgspec.structs.replace(stamp, **{field: getattr(stamp, field)[:-1]})
                frame = Frame(cut, flight.frame.envelope)
                assert_refused(run.orderings[flight.target], flight.source, frame, MalformedFrame)


@every_ordering
def test_lists_with_one_number_too_many(variant: Variant) -> None:
    """An integer at the end of a list makes half a pair, a clock for nobody, or a recipient who does not exist."""
    for run, flight in each_flight(variant):
        stamp = flight.frame.stamp
        for field in stamp.__struct_fields__:
            if isinstance(getattr(stamp, field), tuple):
                longer = msgspec.structs.replace(stamp, **{field: (*getattr(stamp, field), HUGE)})
                frame = Frame(longer, flight.frame.envelope)
                assert_refused(run.orderings[flight.target], flight.source, frame, MalformedFrame)


@every_ordering
def test_huge_numbers_are_refused_or_wait_and_never_break_anything(variant: Variant) -> None:
    for run, flight in each_flight(variant):
        for stamp in with_each_number_replaced(flight.frame.stamp, HUGE):
            ordering = run.orderings[flight.target].fork()
            before = ordering.snapshot()
            try:
                ordering.accept(flight.source, Frame(stamp, flight.frame.envelope), 7)
            except FrameRefused:
                assert ordering.snapshot() == before
            else:
                ordering.waiting()
                ordering.fork()


@every_ordering
def test_a_marker_where_the_ordering_sends_none(variant: Variant) -> None:
    run = variant.run()
    for member in MEMBERS:
        for to in ((member,), ("A",), ("B", "C"), None):
            run.send(member, to)
    flights = run.flights()
    with_markers = {type(flight.frame.stamp) for flight in flights if flight.frame.envelope is None}
    for flight in flights:
        if type(flight.frame.stamp) not in with_markers:
            assert_refused(run.orderings[flight.target], flight.source, Frame(flight.frame.stamp, None), MalformedFrame)


@every_ordering
def test_a_replay_of_what_was_taken_or_waits(variant: Variant) -> None:
    """Whatever arrives is refused ever after: while it waits, right after it, and when all is over."""
    run = variant.busy_run(9)
    taken: list[Flight] = []
    while flights := run.flights():
        flight = flights[len(taken) * 7 % len(flights)]
        run.arrive(flight.source, flight.target, flight.place)
        taken.append(flight)
        assert_refused(run.orderings[flight.target], flight.source, flight.frame, ReplayedFrame)
    for flight in taken:
        assert_refused(run.orderings[flight.target], flight.source, flight.frame, ReplayedFrame)
    assert run.complaints() == []


@pytest.mark.parametrize(
    "variant", [v for v in VARIANTS if v.name in IMPOSSIBLE], ids=[v.label for v in VARIANTS if v.name in IMPOSSIBLE]
)
def test_impossible_claims(variant: Variant) -> None:
    tried = 0
    for run, flight in each_flight(variant):
        ordering = run.orderings[flight.target]
        for stamp in IMPOSSIBLE[variant.name](ordering, flight.frame):
            assert_refused(ordering, flight.source, Frame(stamp, flight.frame.envelope), ImpossibleFrame)
            tried += 1
    assert tried or variant.label == "grouped-one", "in one group there are no global streams to lie about"


@every_ordering
def test_after_refusals_the_run_goes_on_as_if_nothing_had_been(variant: Variant) -> None:
    plain, bothered = variant.busy_run(3), variant.busy_run(3)
    while flights := plain.flights():
        flight = flights[len(flights) // 2]
        target = bothered.orderings[flight.target]
        for peer, frame in (("Z", flight.frame), (flight.source, Frame(FifoStamp(-1), Envelope("A", 1, None, b"")))):
            with pytest.raises(FrameRefused):
                target.accept(peer, frame, 0)
        plain.arrive(flight.source, flight.target, flight.place)
        bothered.arrive(flight.source, flight.target, flight.place)
    assert plain.outputs == bothered.outputs
