"""Delay laws: what is written is what is drawn, printed and refused."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.topology.durations import MAX_DELAY_NS, format_duration, parse_duration_ns
from thence.errors import ConfigError
from thence.sim.laws import (
    Constant,
    Exponential,
    Law,
    LogNormal,
    Pareto,
    Uniform,
    parse_law,
)

MS = 1_000_000

WRITTEN = [
    ("constant:2ms", Constant(2 * MS)),
    ("constant:0ns", Constant(0)),
    ("uniform:1ms..5ms", Uniform(1 * MS, 5 * MS)),
    ("exponential:10ms", Exponential(10 * MS)),
    ("exponential:10ms,min=1ms", Exponential(10 * MS, minimum_ns=MS)),
    ("pareto:5ms,1.5", Pareto(5 * MS, 1.5)),
    ("pareto:5ms,1.5,min=6ms", Pareto(5 * MS, 1.5, minimum_ns=6 * MS)),
    ("lognormal:5ms,0.8", LogNormal(5 * MS, 0.8)),
    ("uniform:1us..2s,min=7ns", Uniform(1_000, 2_000 * MS, minimum_ns=7)),
]


@pytest.mark.parametrize(("text", "law"), WRITTEN)
def test_text_and_law_are_the_same_thing(text: str, law: Law) -> None:
    assert parse_law(text) == law
    assert str(law) == text


@pytest.mark.parametrize(
    ("text", "ns"), [("7ns", 7), ("1.5us", 1_500), ("0.25ms", 250_000), ("2s", 2_000 * MS), (" 3 ms ", 3 * MS)]
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@given(st.integers(0, MAX_DELAY_NS))
def test_every_duration_comes_back(ns: int) -> None:
    assert parse_duration_ns(format_duration(ns)) == ns


NS = st.integers(0, MAX_DELAY_NS)
SHAPES = st.floats(0.001, 1_000)
LAWS = st.one_of(
    st.builds(Constant, NS, minimum_ns=NS),
    st.builds(lambda a, b, m: Uniform(min(a, b), max(a, b), minimum_ns=m), NS, NS, NS),
    st.builds(Exponential, NS, minimum_ns=NS),
    st.builds(Pareto, NS, SHAPES, minimum_ns=NS),
    st.builds(LogNormal, NS, SHAPES, minimum_ns=NS),
)


@given(LAWS)
def test_every_law_comes_back(law: Law) -> None:
    assert parse_law(str(law)) == law


@given(LAWS, st.integers(0, 1_000))
def test_every_delay_is_whole_and_between_floor_and_ceiling(law: Law, seed: int) -> None:
    rng = Random(seed)
    for delay in [law.draw_ns(rng) for _ in range(20)] + [law.mean_ns()]:
        assert type(delay) is int
        assert law.minimum_ns <= delay <= MAX_DELAY_NS


def drawn(law: Law) -> list[int]:
    rng = Random(1)
    return [law.draw_ns(rng) for _ in range(50_000)]


def test_uniform_reaches_both_ends_and_nothing_beyond() -> None:
    assert set(drawn(Uniform(10, 14))) == {10, 11, 12, 13, 14}


def test_half_of_lognormal_is_below_its_median() -> None:
    assert median(drawn(LogNormal(5 * MS, 0.8))) == pytest.approx(5 * MS, rel=0.03)


def test_a_heavy_tail_is_heavier_than_an_exponential_of_the_same_mean() -> None:
    pareto = Pareto(5 * MS, 1.5)
    delays = drawn(pareto)
    assert min(delays) >= 5 * MS
    assert max(delays) > 3 * max(drawn(Exponential(pareto.mean_ns())))


def test_a_mean_that_is_infinite_is_the_ceiling() -> None:
    assert Pareto(5 * MS, 0.9).mean_ns() == MAX_DELAY_NS
    assert LogNormal(5 * MS, 900.0).mean_ns() == MAX_DELAY_NS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exponental:10ms", r"'exponental:10ms' names no delay law: did you mean exponential:10ms\?"),
        ("zzz:1ms", "use one of constant, uniform, exponential, pareto, lognormal"),
        ("", "names no delay law"),
        ("constant:5", r"'5' has no unit: did you mean 5ms\?"),
        ("constant:5msec", r"no unit we know \(msec\): did you mean 5ms\?"),
        ("constant:5MS", r"did you mean 5ms\?"),
        ("constant:5parsecs", "use ns, us, ms or s"),
        ("constant:", r"'' is not a duration: .* \(an example: constant:2ms\)"),
        ("constant", "is not a duration"),
        ("constant:-5ms", "'-5ms' is not a duration"),
        ("constant:0.5ns", "not a whole number of nanoseconds"),
        ("constant:2000000s", "longer than the longest delay, 3600s"),
        ("uniform:1ms", r"it takes low_ns\.\.high_ns, and 1 of these 2 are given"),
        ("uniform:5ms..1ms", r"did you mean uniform:1ms\.\.5ms\?"),
        ("pareto:5ms", "it takes scale_ns,shape, and 1 of these 2"),
        ("pareto:5ms,x", "the shape 'x' is not a number"),
        ("pareto:5ms,0", "shape must be a number above 0"),
        ("pareto:5ms,nan", "shape must be a number above 0"),
        ("lognormal:5ms,inf", "sigma must be a number above 0"),
        ("exponential:10ms,min=oops", "'oops' is not a duration"),
        ("exponential:10ms,max=2ms", "it takes average_ns"),
    ],
)
def test_what_cannot_be_is_refused_with_a_hint(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_law(text)


def test_a_law_made_in_code_is_checked_too() -> None:
    with pytest.raises(ConfigError, match="constant delay law's delay_ns must be between 0ns and 3600s, not -1 ns"):
        Constant(-1)
    with pytest.raises(ConfigError, match="minimum_ns must be between"):
        Exponential(MS, minimum_ns=-1)


@given(st.text(max_size=30) | st.from_regex(r"(constant|uniform|pareto|lognormal|exponential):[0-9a-z.,=]{0,20}"))
def test_no_text_gives_anything_but_a_law_or_our_error(text: str) -> None:
    law = None
    with suppress(ConfigError):
        law = parse_law(text)
    assert law is None or parse_law(str(law)) == law
