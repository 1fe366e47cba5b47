"""What a verdict says beyond its counts: rows, their order, runs, and what does not matter."""

import random

import msgspec
import pytest

from tests.support.traces import (
    drop_delivery,
    drop_send,
    parse,
    random_case,
    random_trace,
    repeat_delivery,
    swap_deliveries,
    tell_more,
)
from thence.errors import ConfigError
from thence.trace.judge import DEFAULT_REQUIRED, PROPERTIES, Verdict, judge


def test_by_default_everything_but_total_and_agreement_is_required() -> None:
    assert set(PROPERTIES) - set(DEFAULT_REQUIRED) == {"total", "agreement"}
    assert tuple(judge([]).properties) == DEFAULT_REQUIRED


def test_an_unknown_property_is_refused_with_the_list_of_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown property 'order'; the properties are well-formed, .*completeness"):
        judge([], ["fifo", "order"])


def test_requiring_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no property is required"):
        judge([], [])


def test_a_fifo_row_counts_what_is_missing_and_names_the_first() -> None:
    events = parse("""
        A send m1 -> B
        A send m2 -> B
        A send m3 -> B
        A send m4 -> B
        B deliver m2
        B deliver m4
        B deliver m1
        B deliver m3
    """)
    rows = judge(events, ["fifo"]).violations
    assert [(row.index, row.later, row.earlier, row.missing, row.chain) for row in rows] == [
        (0, "m2", "m1", 1, ("m1", "m2")),
        (1, "m4", "m1", 2, ("m1", "m4")),
    ]
    assert rows[1].detail == (
        "B delivered m4 although m1 (and 1 more), which A sent to B before it, had not been delivered there yet"
    )


def test_earlier_is_a_missing_message_that_no_other_missing_one_precedes() -> None:
    # z is the first missing one by causality, although its sender's name is the last.
    events = parse("""
        Z send z -> A D
        A deliver z
        A send a -> D
        A send go -> B
        B deliver go
        B send b -> D
        D deliver b
        D deliver z
        D deliver a
    """)
    (row,) = judge(events, ["causal"]).violations
    assert (row.later, row.earlier, row.missing) == ("b", "z", 2)
    assert row.chain == ("z", "go", "b")


def test_of_several_such_messages_the_smallest_sender_is_named() -> None:
    events = parse("""
        C send c -> B D
        A send a -> B D
        B deliver c
        B deliver a
        B send b -> D
        D deliver b
        D deliver c
        D deliver a
    """)
    (row,) = judge(events, ["causal"]).violations
    assert (row.later, row.earlier, row.missing, row.chain) == ("b", "a", 2, ("a", "b"))


def test_a_total_row_names_the_pair_in_the_order_of_the_first() -> None:
    events = parse("""
        A send a -> C D
        B send b -> C D
        C deliver a
        C deliver b
        D deliver b
        D deliver a
    """)
    (row,) = judge(events, ["total"]).violations
    assert (row.process, row.earlier, row.later, row.index) == ("C,D", "a", "b", 1)
    assert row.detail == "C delivered a before b, D delivered them the other way round"


def test_a_completeness_row_names_the_destination() -> None:
    (row,) = judge(parse("A send m -> B")).violations
    assert (row.property, row.process, row.later, row.missing, row.index) == ("completeness", "B", "m", 1, None)
    assert row.detail == "B never delivered m, which A sent to it"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("A@2 note", "A's event 2 comes where event 0 should be"),
        ("A@-2 note", "A's event -2 has a negative index"),
        ("A note\n A@0 note", "A's event 0 has the index of the event before it"),
        ("A send", "A's event 0 is of kind send but names no message and is a send but names no destinations"),
        ("A send m -> \n B send m ->", "B's event 0 sends m, which A sent in its event 0"),
    ],
)
def test_a_well_formed_row_says_what_is_wrong(text: str, detail: str) -> None:
    (row,) = judge(parse(text)).violations
    assert (row.property, row.detail) == ("well-formed", detail)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("A deliver m", "A delivered m, which nobody ever sent"),
        ("A send m ->\n A deliver m", "A delivered m, which was not sent to it"),
        ("A deliver m\n A send m -> A", "A delivered m, although its sending was itself caused by this delivery"),
    ],
)
def test_a_creation_row_says_why(text: str, detail: str) -> None:
    (row,) = judge(parse(text)).violations
    assert (row.property, row.detail) == ("creation", detail)


def test_a_delivery_before_its_own_send_overtakes_nothing_but_counts_as_delivered() -> None:
    events = parse("""
        A deliver m2
        A send m1 -> A
        A send m2 -> A
        A deliver m1
        A send m3 -> A
        A deliver m3
    """)
    assert judge(events).properties == {**dict.fromkeys(DEFAULT_REQUIRED, 0), "creation": 1}


def test_a_delivery_outside_the_destinations_carries_causality() -> None:
    events = parse("""
        A send m1 -> C
        A send m2 -> D
        B deliver m2
        D deliver m2
        B send m3 -> C
        C deliver m3
        C deliver m1
    """)
    verdict = judge(events)
    assert [(row.property, row.process, row.later) for row in verdict.violations] == [
        ("creation", "B", "m2"),
        ("causal", "C", "m3"),
    ]


def test_runs_are_judged_apart_and_named() -> None:
    verdict = judge(
        parse("""
        [r1]
        A send m -> B
        [r2]
        B deliver m
        """)
    )
    assert [(row.run, row.property) for row in verdict.violations] == [("r1", "completeness"), ("r2", "creation")]


def test_no_run_is_a_run_of_its_own_and_comes_first() -> None:
    verdict = judge([*parse("[r1]\n A deliver m"), *parse("A deliver m")])
    assert [row.run for row in verdict.violations] == [None, "r1"]


def test_clocks_and_times_decide_nothing() -> None:
    events = parse("A send m1 -> B\n A send m2 -> B\n B deliver m1\n B deliver m2")
    misleading = [msgspec.structs.replace(event, time=100 - n, clock={"A": 7 - n}) for n, event in enumerate(events)]
    assert judge(misleading) == judge(events)
    assert judge(misleading).kept


@pytest.mark.parametrize("seed", range(100))
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    events = random_case(seed)
    shuffled = random.Random(seed).sample(events, len(events))
    assert judge(shuffled, PROPERTIES) == judge(events, PROPERTIES)


def test_the_verdict_as_json_has_the_promised_shape() -> None:
    verdict = judge(parse("A send m1 -> B\n A send m2 -> B\n B deliver m2\n B deliver m1"), ["fifo", "total"])
    assert msgspec.json.decode(verdict.to_json()) == {
        "verdict": "violated",
        "events": 4,
        "properties": {"fifo": 1, "total": 0},
        "violations": [
            {
                "property": "fifo",
                "process": "B",
                "later": "m2",
                "earlier": "m1",
                "missing": 1,
                "chain": ["m1", "m2"],
                "run": None,
                "index": 0,
                "detail": "B delivered m2 although m1, which A sent to B before it, had not been delivered there yet",
            }
        ],
    }
    assert msgspec.json.decode(verdict.to_json(), type=Verdict) == verdict


def test_progress_is_told_of_every_check() -> None:
    heard: list[tuple[int, int]] = []
    judge(parse("[r1]\n A note\n [r2]\n A note"), ["fifo", "causal"], lambda done, total: heard.append((done, total)))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize("seed", range(100))
def test_arrivals_clients_and_topics_change_no_verdict(seed: int) -> None:
    chance = random.Random(seed)
    events = random_trace(chance, 4, 30, ordered=False)
    for _ in range(3):
        events = chance.choice([swap_deliveries, drop_delivery, drop_send, repeat_delivery])(chance, events)
    told = tell_more(chance, events)
    assert len(told) > len(events)
    plain, more = (
        [
            (row.property, row.process, row.later, row.earlier, row.missing, row.chain)
            for row in judge(these, PROPERTIES).violations
        ]
        for these in (events, told)
    )
    assert plain == more
