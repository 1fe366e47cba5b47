"""Which send a delivery is of, by clocks."""

from __future__ import annotations

from hypothesis import given

from tests.support.pipeline.executions import executions, happens_before
from thence.pipeline.importers.clocks import Logged
from thence.pipeline.importers.matches import ChannelEvent, match_by_clock


def test_messages_on_a_channel_are_told_apart_by_clocks() -> None:
    steps = [
        ChannelEvent("a", "send", "a>b", {"a": 1}),
        ChannelEvent("a", "local", None, {"a": 2}),
        ChannelEvent("a", "send", "a>b", {"a": 3}),
        ChannelEvent("b", "deliver", "a>b", {"a": 3, "b": 1}),
        ChannelEvent("b", "deliver", "a>b", {"a": 3, "b": 2}),
        ChannelEvent("b", "deliver", "a>b", {"a": 3, "b": 3}),
        ChannelEvent("b", "deliver", "c>b", {"a": 3, "b": 4}),
    ]
    # The second one overtook; the first, which brings no news, comes next; then the last that fits comes once more.
    assert match_by_clock(steps) == ["a>b#1", None, "a>b#2", "a>b#2", "a>b#1", "a>b#2", "c>b#0"]


def test_a_delivery_that_knows_too_little_or_too_much_is_of_nothing_known() -> None:
    steps = [
        ChannelEvent("a", "send", "m", {"a": 1, "x": 4}),
        ChannelEvent("b", "deliver", "m", {"a": 1, "b": 1}),
        ChannelEvent("c", "deliver", "m", {"a": 1, "c": 1, "x": 4, "y": 1}),
        ChannelEvent("d", "deliver", "m", {"d": 1}),
    ]
    assert match_by_clock(steps) == ["m#1", "m#0", "m#0", "m#0"]


def test_each_process_delivers_for_itself_and_senders_may_share_a_channel() -> None:
    steps = [
        ChannelEvent("a", "send", "m", {"a": 1}),
        ChannelEvent("b", "send", "m", {"b": 1}),
        ChannelEvent("c", "deliver", "m", {"b": 1, "c": 1}),
        ChannelEvent("c", "deliver", "m", {"a": 1, "b": 1, "c": 2}),
        ChannelEvent("d", "deliver", "m", {"a": 1, "d": 1}),
    ]
    assert match_by_clock(steps) == ["m#1", "m#2", "m#2", "m#1", "m#1"]


@given(executions())
def test_a_receipt_is_of_the_send_whose_clock_it_shows(events: list[Logged]) -> None:
    """Every event is a send on its host's channel; somebody new hears of one of them."""
    ordered = sorted(events, key=lambda event: (event.host, event.number))
    steps = [ChannelEvent(event.host, "send", f"from {event.host}", dict(event.clock)) for event in ordered]
    ids = match_by_clock(steps)
    assert ids == [f"from {step.process}#{step.clock[step.process]}" for step in steps]
    for one in events:
        heard = [other for other in events if happens_before(other, one) and other.host != one.host]
        if heard:
            newest = max(heard, key=lambda other: sum(other.clock.values()))
            receipt = ChannelEvent("new", "deliver", f"from {newest.host}", {**newest.clock, "new": 1})
            found = match_by_clock([*steps, receipt])[-1]
            assert found == f"from {newest.host}#{newest.number}"
