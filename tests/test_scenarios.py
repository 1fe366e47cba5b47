"""Every scenario in ``tests/scenarios`` happens as it is written; and a scenario that cannot be says where.

When a change alters what happens on purpose, ``thence scenario rewrite FILE`` writes the new output, to be read and committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from thence.core.ordering import ORDERINGS
from thence.errors import ConfigError
from thence.sim.scenario import Stage, format_blocks, parse, run_file, run_text
from thence.studies.parts.printed_links import PRINTED

FOLDER = Path(__file__).resolve().parent / "scenarios"
FILES = sorted(FOLDER.glob("*.txt"))
ROOT = FOLDER.parents[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_happens_as_written(path: Path) -> None:
    report = [
        f"{path.relative_to(ROOT)}:{block.line}: {block.command}\n  expected:\n{block.expected}\n  found:\n{found}"
        for block, found in run_file(path, link_ends=PRINTED)
    ]
    rewrite = f"If what was found is right: .venv/bin/thence scenario rewrite {path.relative_to(ROOT)}"
    assert not report, "\n".join([*report, rewrite])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_formatted_as_it_would_be_written(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_blocks(parse(text)) == text
    assert text.startswith("#"), "the first lines say what is shown"


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_ordering_has_its_triangle(name: str) -> None:
    text = (FOLDER / f"triangle_{name}.txt").read_text(encoding="utf-8")
    verdict = "kept" if "causal" in ORDERINGS[name].traits.guarantees else "violated: causal 1"
    assert f"domain d {name} A B C" in text
    assert parse(text)[-1].expected.splitlines()[0] == verdict


DOMAIN = "domain d fifo A B\n----\nd: fifo among A, B\n\n"

BAD = {
    "no separator": (DOMAIN + "send A to B\n", 5, "expected '----'"),
    "no command": (DOMAIN + "sned A to B\n----\n", 5, "no command 'sned'"),
    "no domain": ("send A to B\n----\n", 1, "begins with a domain"),
    "domain without members": ("domain d fifo\n----\n", 1, "expected: domain"),
    "unknown mode": (DOMAIN + "link L d e A=C mode:printed\n----\n", 5, "no mode 'printed' (there are: causal, fifo)"),
    "unknown ordering": ("domain d fifi A B\n----\n", 1, "did you mean 'fifo'"),
    "unknown option": ("domain d vector A B stamp=full\n----\n", 1, "stamp"),
    "unknown sender": (DOMAIN + "send Z to B\n----\n", 5, "no member 'Z'"),
    "unknown recipient": (DOMAIN + "send A to Z\n----\n", 5, "'Z'"),
    "send without to": (DOMAIN + "send A B\n----\n", 5, "expected: send"),
    "nothing there": (DOMAIN + "arrive A B\n----\n", 5, "0 frames"),
    "no such frame": (DOMAIN + "send A to B\n----\n\narrive A B 2\n----\n", 8, "no number 2"),
    "frame number 0": (DOMAIN + "send A to B\n----\n\narrive A B 0\n----\n", 8, "no number 0"),
    "no number": (DOMAIN + "arrive A B ²\n----\n", 5, "expected: FROM TO"),
    "not enough": (DOMAIN + "lose A\n----\n", 5, "expected: FROM TO"),
    "restart nobody": (DOMAIN + "restart\n----\n", 5, "expected: restart MEMBER"),
    "restart a stranger": (DOMAIN + "restart Z\n----\n", 5, "no member 'Z'"),
    "unknown property": (DOMAIN + "judge justice\n----\n", 5, "justice"),
    "frames out of turn": ("domain d flood A B\n----\n\n" + "send A to B\n----\n\n" * 2 + "arrive A B 2\n----\n", 10, "FIFO"),
}


@pytest.mark.parametrize(("text", "line", "words"), BAD.values(), ids=BAD.keys())
def test_a_mistake_is_named_with_file_and_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        run_file(path)
    assert words in str(caught.value)
    place = str(caught.value).removeprefix(f"{path}:").partition(":")[0]
    assert int(place) in {line, line + 1}, "the line of the command, or the one below it where its separator is missing"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.txt", tmp_path / "bytes.txt"):
        (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=path.name):
            run_file(path)


def test_a_difference_is_found_and_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text("# A comment stays.\n" + DOMAIN + "send A to B\n----\nA sends nothing\n", encoding="utf-8")
    (difference,) = run_file(path)
    assert difference.block.command == "send A to B"
    assert difference.found.startswith("A sends A:1 to B")
    assert run_file(path, rewrite=True) == [difference]
    assert path.read_text(encoding="utf-8").startswith("# A comment stays.\ndomain d fifo")
    assert run_file(path) == []


def test_a_comment_may_stand_alone() -> None:
    text = "# Only words.\n\n" + DOMAIN.rstrip("\n") + "\n"
    differences, rewritten = run_text(text)
    assert differences == []
    assert rewritten == text


def test_only_what_has_just_arrived_is_said_to_wait() -> None:
    """A:2 is behind A:1 and C:1. When A:1 comes, A:2 moves on to wait for C:1, but A:1 itself waits for nothing."""
    stage = Stage()
    for command in ("domain d vector A B C", "send A to B", "send C to everyone", "arrive C A", "send A to B"):
        stage.do(command)
    assert stage.do("arrive A B 2") == "B gets A:2 from A\n  it waits for number 1 of A"
    assert stage.do("arrive A B") == "B gets A:1 from A\n  B delivers A:1"
    assert stage.do("waits") == "B: A:2 from A waits for number 1 of C"
