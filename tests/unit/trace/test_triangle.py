"""Acceptance test number one: A sends to C, then to B; B then sends to C; C must get A's first."""

from tests.support.traces import parse
from thence.trace.judge import PROPERTIES, judge

SENT = """
    A send first -> C
    A send second -> B
    B deliver second
    B send third -> C
"""
SENT_BY_A_DETOUR = """
    A send first -> D
    A send second -> B
    B deliver second
    B send third -> C
    C deliver third
    C send fourth -> D
"""


def test_c_gets_as_first_message_first() -> None:
    verdict = judge(parse(SENT + "C deliver first\n C deliver third"), PROPERTIES)
    assert verdict.kept
    assert verdict.properties == dict.fromkeys(PROPERTIES, 0)
    assert verdict.events == 6


def test_c_gets_bs_message_first() -> None:
    verdict = judge(parse(SENT + "C deliver third\n C deliver first"), PROPERTIES)
    (row,) = verdict.violations
    assert not verdict.kept
    assert (row.property, row.process, row.index) == ("causal", "C", 0)
    assert (row.later, row.earlier, row.missing) == ("third", "first", 1)
    assert row.chain == ("first", "second", "third")
    assert row.detail == ("C delivered third although first, sent to C causally before it, had not been delivered there yet")


def test_c_never_gets_as_message() -> None:
    verdict = judge(parse(SENT + "C deliver third"))
    assert [(row.property, row.later, row.earlier) for row in verdict.violations] == [
        ("causal", "third", "first"),
        ("completeness", "first", None),
    ]


def test_a_detour_through_a_process_outside_the_destinations_kept() -> None:
    assert judge(parse(SENT_BY_A_DETOUR + "D deliver first\n D deliver fourth"), PROPERTIES).kept


def test_a_detour_through_a_process_outside_the_destinations_violated() -> None:
    (row,) = judge(parse(SENT_BY_A_DETOUR + "D deliver fourth\n D deliver first"), PROPERTIES).violations
    assert (row.property, row.process, row.later, row.earlier) == ("causal", "D", "fourth", "first")
    assert row.chain == ("first", "second", "third", "fourth")


def test_no_cause_no_order() -> None:
    independent = SENT.replace("B deliver second\n    B send third -> C", "B send third -> C\n    B deliver second")
    assert judge(parse(independent + "C deliver third\n C deliver first"), PROPERTIES).kept
