"""``thence explore``: what it finds, what it prints, and a finding that runs as a scenario."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path

import pytest

from tests.unit.cli import refusal, run

TRIANGLE = ("explore", "--ordering", "fifo", "--require", "causal", "--pattern", "unicast")
NOT_TOTAL = ("explore", "--ordering", "vector", "--option", "stamps=full", "--require", "total", "--pattern", "broadcast")


def commands(scenario: str) -> list[str]:
    lines = scenario.splitlines()
    return [line for line, below in itertools.pairwise(lines) if below == "----"]


def test_fifo_is_not_causal_and_the_triangle_is_printed() -> None:
    ended = run(*TRIANGLE)
    assert ended.code == 1
    assert ended.out.startswith("# fifo breaks causal: the shortest run, of 5 actions\n")
    assert commands(ended.out) == [
        "domain d fifo A B C",
        "send A to B",
        "send A to C",
        "arrive A C",
        "send C to B",
        "arrive C B",
        "waits",
        "judge causal completeness creation duplication",
    ]
    assert "  causal: B delivered C:1 although A:1, sent to B causally before it" in ended.out


@pytest.mark.parametrize("command", [TRIANGLE, NOT_TOTAL], ids=["fifo", "vector"])
def test_a_finding_runs_unchanged_as_a_scenario(command: tuple[str, ...], tmp_path: Path) -> None:
    place = tmp_path / "found.txt"
    ended = run(*command, "--messages", "3", "--out", place)
    assert ended.code == 1
    assert f"The shortest run is in {place}." in ended.out
    assert place.read_text(encoding="utf-8") == run(*command, "--messages", "3").out
    assert run("scenario", "run", place) == (0, f"{place}: as expected\n", "")


def test_a_finding_names_the_options_of_the_ordering() -> None:
    assert commands(run(*NOT_TOTAL, "--messages", "2").out)[0] == 'domain d vector A B C stamps="full"'


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            "--ordering vector --pattern unicast",
            "vector keeps causal, fifo in every run of 3 processes, up to 3 messages, unicast: ",
        ),
        (
            "--ordering matrix --require causal --messages 2",
            "matrix keeps causal in every run of 3 processes, up to 2 messages, ",
        ),
        ("--ordering sequenced --messages 2 --option coordinator=C", "sequenced keeps causal, fifo, total in every run "),
        ("--ordering unordered --messages 2", "unordered keeps exactly once in every run "),
        ("--ordering fifo --processes 2 --require causal", "fifo keeps causal in every run of 2 processes, "),
    ],
)
def test_where_nothing_breaks_it_says_what_was_tried(arguments: str, says: str) -> None:
    ended = run("explore", *arguments.split())
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(says)
    assert ended.out.endswith(" steps tried, no violation.\n")


def test_a_limit_that_is_too_small_proves_nothing() -> None:
    says = refusal("explore", "--ordering", "matrix", "--limit", "100")
    assert says.startswith("nothing is proven, --limit 100 was too small: more than 100 steps")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--ordering matriks", "there is no ordering 'matriks'; did you mean 'matrix'?"),
        ("--pattern sideways", "--pattern sideways: must be one of broadcast, unicast, multicast"),
        ("--require order", "--require order: the explorer checks fifo, causal, total"),
        ("--option stamps", "--option stamps: expected NAME=VALUE"),
        ("--ordering matrix --option stamps=half", "--option stamps=half: must be one of updates, full"),
        ("--out no-such-folder/found.txt", "--out no-such-folder/found.txt: there is no such folder"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments: str, says: str) -> None:
    assert refusal("explore", *shlex.split(arguments)).startswith(says)


@pytest.mark.parametrize("arguments", ["--processes 1", "--processes 7", "--messages 0", "--limit 0"])
def test_a_number_out_of_range_exits_with_two(arguments: str) -> None:
    ended = run("explore", *arguments.split())
    assert ended.code == 2
    assert arguments.split(maxsplit=1)[0] in ended.err
