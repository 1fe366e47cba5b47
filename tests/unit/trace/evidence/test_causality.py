"""The replay: causes before effects, and circles found exactly."""

import random

import pytest

from tests.support.traces import parse, random_trace
from thence.trace.evidence.causality import Replay, replay
from thence.trace.evidence.clocks import Clocks
from thence.trace.evidence.evidence import Evidence
from thence.trace.evidence.history import DELIVER, SEND, History, in_order


def replayed(text: str) -> tuple[History, Replay]:
    history = History(None, parse(text))
    return history, replay(history)


def backward(text: str) -> set[tuple[str, str | None]]:
    history, result = replayed(text)
    return {(history.name_of(event), history.events[event].message) for event in result.backward}


@pytest.mark.parametrize("seed", range(50))
def test_every_event_comes_once_and_after_its_causes(seed: int) -> None:
    history = History(None, random_trace(random.Random(seed), 5, 60, ordered=False))
    result = replay(history)
    order = [event for _, stretch in result.stretches for event in stretch]
    place = {event: n for n, event in enumerate(order)}
    assert sorted(order) == list(range(len(history.events)))
    assert not result.backward
    for event, role in enumerate(history.roles):
        assert event in history.first_event or place[event - 1] < place[event]
        if role >= DELIVER:
            assert place[history.sent_at[history.message_of[event]]] < place[event]


def test_a_delivery_before_its_own_send_at_one_process() -> None:
    assert backward("A deliver m\n A send m -> A") == {("A", "m")}


def test_only_arrows_on_a_circle_are_backward() -> None:
    assert backward("""
        A deliver m2
        A send m1 -> B C
        B deliver m1
        B send m2 -> A C
        C deliver m1
        C deliver m2
        C send m3 -> A
        A deliver m3
    """) == {("A", "m2"), ("B", "m1")}


def test_two_circles_that_do_not_touch() -> None:
    assert backward("""
        A deliver a
        A send a -> A
        B deliver b
        B send b -> B
        C deliver a
    """) == {("A", "a"), ("B", "b")}


def test_a_second_delivery_after_the_send_is_not_backward() -> None:
    history, result = replayed("A deliver m\n A send m -> A\n A deliver m")
    assert result.backward == {0}
    assert [stretch for _, stretch in result.stretches][-1][-1] == len(history.events) - 1


def test_a_long_circle_needs_no_deep_stack() -> None:
    size = 5_000
    text = "\n".join(f"P{n} deliver m{n}\n P{n} send m{(n + 1) % size} -> P{(n + 1) % size}" for n in range(size))
    _, result = replayed(text)
    assert len(result.backward) == size


def test_ties_of_a_repeated_index_are_ordered_by_kind_message_and_destinations() -> None:
    events = parse("A@0 send b -> C\n A@0 send\n A@0 send b\n A@0 deliver z\n A@0 send a -> C\n A@0 send b -> B")
    described = [(event.kind, event.message, event.to) for event in in_order(events)]
    assert described == [
        ("deliver", "z", None),
        ("send", None, None),
        ("send", "a", ("C",)),
        ("send", "b", None),
        ("send", "b", ("B",)),
        ("send", "b", ("C",)),
    ]


def test_clocks_of_messages_that_arrived_everywhere_are_forgotten() -> None:
    history = History(None, parse("A send m1 -> B\n A send m2 -> B C\n B deliver m1\n B deliver m2"))
    evidence = Evidence(history)
    clocks = Clocks(history, evidence.undelivered)
    for process, stretch in evidence.replay.stretches:
        for event in stretch:
            if history.roles[event] == SEND:
                clocks.send(process, history.message_of[event])
            else:
                clocks.deliver(process, event, history.message_of[event])
                clocks.release(history.message_of[event])
    assert {history.message_names[message] for message in clocks.known_at_send} == {"m2"}, "C still has to get m2"
    assert clocks.of_send(history.message_names.index("m2")).tolist() == [1]
