"""daisy §3.4 (i): the printed idea tried, with a vector of the group behind. Row D7; "Forwarding early" in the errata."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.papers.early_vectors import AS_IT_COMES, CARRIED, FAR, PLAIN, WAITING, WITH_FACTS, WITH_WORDS, EarlyRun, Rule
from thence.trace.judge import judge

SEEDS = range(40)


def runs(rule: Rule) -> list[EarlyRun]:
    return [EarlyRun(rule, seed) for seed in SEEDS]


def disorder(found: Sequence[EarlyRun]) -> int:
    """Return in how many runs somebody got an effect before its cause."""
    return sum(bool(judge(run.events, ["causal"]).violations) for run in found)


def waiting(found: Sequence[EarlyRun]) -> int:
    return sum(run.waiting for run in found)


def test_d7_early_with_vectors_that_nobody_waits_for_breaks_order() -> None:
    assert disorder(runs(AS_IT_COMES)) > 0
    assert disorder(runs(PLAIN)) == waiting(runs(PLAIN)) == 0


def test_d7_early_whoever_waits_for_all_that_a_vector_counts_waits_for_ever() -> None:
    """D7: most of it never leaves its group, and the vector does not say what does."""
    found = runs(WAITING)
    assert disorder(found) == 0
    assert waiting(found) > 0


def test_d7_early_with_a_word_of_what_stays_it_works_and_nothing_comes_sooner() -> None:
    """D7: in order, nothing waits; and everything is delivered at the very moment of the plain rule."""
    found, plain = runs(WITH_WORDS), runs(PLAIN)
    assert disorder(found) == waiting(found) == 0
    assert [one.delivered_at for one in found] == [one.delivered_at for one in plain]
    assert sum(process == FAR for run in found for process, _ in run.delivered_at) > 100


def test_d7_early_messages_would_have_to_say_whom_all_that_precedes_them_is_for() -> None:
    """D7: then it gains time. Now the server has to hold what comes back, and can, where that carries the vector on."""
    assert disorder(runs(WITH_FACTS)) > 0, "an answer overtakes at the server what caused it"
    found, plain = runs(CARRIED), runs(PLAIN)
    assert disorder(found) == waiting(found) == 0
    far = [[run.delivered_at[key] for key in sorted(plain[at].delivered_at) if key[0] == FAR] for at, run in enumerate(found)]
    later = [[run.delivered_at[key] for key in sorted(run.delivered_at) if key[0] == FAR] for run in plain]
    assert sum(map(sum, far)) < sum(map(sum, later))
