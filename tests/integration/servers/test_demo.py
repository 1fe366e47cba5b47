"""``thence demo``: both halves are shown, the verdict is one line, and what goes wrong is said."""

from __future__ import annotations

import pytest

from tests.unit.cli import run
from thence.cli.messages import demo
from thence.cli.messages.demo_fabric import FabricOutcome

QUIET = FabricOutcome(messages=10, deliveries=20, too_early=0, lost=0, doubled=0, out_of_order=0, seconds=0.1)


def test_it_shows_order_kept_over_a_killed_relay() -> None:
    ended = run("demo", "--no-spark", "--questions", "20")
    assert ended.code == 0, ended
    assert "Judge: violated: C delivered B:1 although A:1, sent to C causally before it" in ended.out
    assert "it waits for number 1 of A" in ended.out
    assert "the relay r1 is killed (kill -9); the others go on" in ended.out
    assert "280 questions and answers, 1,960 deliveries to clients" in ended.out
    assert "0 lost, 0 doubled, 0 out of order, 0 answers before their question" in ended.out
    assert ended.out.splitlines()[-1].startswith("Verdict: a relay was killed in the middle of 280 messages between real servers")


@pytest.mark.parametrize("wrong", ["too_early", "lost", "doubled", "out_of_order"])
def test_it_says_so_when_it_did_not_show_what_it_should(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "run_fabric", lambda *_: QUIET._replace(**{wrong: 1}))
    monkeypatch.setattr(demo, "read_trace", lambda _: [])
    ended = run("demo", "--no-spark")
    assert ended.code == 1
    assert ended.out.splitlines()[-1].startswith("This is not what the demo should show")


def test_few_questions_are_refused() -> None:
    ended = run("demo", "--questions", str(demo.MIN_QUESTIONS - 1))
    assert ended.code == 2
    assert "--questions" in ended.err
