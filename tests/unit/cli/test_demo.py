"""``thence demo``: both halves are shown, the verdict is one line, and the seed is taken."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.unit.cli import Ran, run
from thence.cli import demo
from thence.trace.judge import judge


def shown(seed: int) -> Ran:
    """Run a short demo; the seconds it took are left out."""
    ended = run("demo", "--no-spark", "--messages", "100", "--seed", str(seed))
    return ended._replace(out=re.sub(r"\(\d+\.\d s\)", "", ended.out))


def test_it_ends_with_a_one_line_verdict() -> None:
    ended = shown(seed=1)
    assert (ended.code, ended.err) == (0, "")
    last = ended.out.splitlines()[-1]
    assert re.match(
        r"Verdict: on the same lossy network, \d+ deliveries came before their cause without order, and none with it\.", last
    )


def test_the_triangle_is_broken_and_kept() -> None:
    before, after = shown(seed=1).out.split("With causal order (matrix): the triangle")
    assert "Without order (unordered): the triangle" in before
    assert "Judge: violated: C delivered B:1 although A:1, sent to C causally before it" in before
    assert "it waits for number 1 of A" in after
    assert "Judge: kept: everything came after what caused it." in after


def test_it_takes_the_seed() -> None:
    first, again, other = shown(seed=1), shown(seed=1), shown(seed=2)
    assert first == again
    assert other.code == 0
    assert other.out != first.out


def test_its_larger_runs_can_be_repeated() -> None:
    lines = [line.split("again: ")[1] for line in shown(seed=2).out.splitlines() if "again: " in line]
    assert [line.split()[:4] for line in lines] == [
        ["thence", "simulate", "--ordering", name] for name in ("unordered", "matrix")
    ]
    for line in lines:
        assert "--seed 2" in line
        assert run(*shlex.split(line)[1:]).code == 0


def test_few_messages_are_refused() -> None:
    ended = run("demo", "--messages", str(demo.MIN_MESSAGES - 1))
    assert ended.code == 2
    assert "--messages" in ended.err


def test_it_says_so_when_it_did_not_show_what_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_traffic", lambda *_: judge([]))
    ended = run("demo", "--no-spark")
    assert ended.code == 1
    assert ended.out.splitlines()[-1].startswith("This is not what the demo should show")
