"""``thence scenario``: compare, show what differs, rewrite, and name the line that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli import refusal, run

SCENARIO = """\
# A message, and its arrival.
domain d fifo A B
----
d: fifo among A, B

send A to B
----
A sends A:1 to B
  on its way A -> B: A:1 FifoStamp(number=1)

arrive A B
----
B gets A:1 from A
  B delivers A:1

judge
----
kept
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "one.txt"
    place.write_text(SCENARIO, encoding="utf-8")
    return place


def test_what_is_expected_is_said_in_one_line(place: Path) -> None:
    assert run("scenario", "run", place) == (0, f"{place}: as expected\n", "")


def test_a_difference_is_shown_and_exits_with_one(place: Path) -> None:
    place.write_text(SCENARIO.replace("B delivers A:1", "B delivers A:2"), encoding="utf-8")
    ended = run("scenario", "run", place)
    assert ended.code == 1
    assert ended.out.splitlines() == [
        f"{place}: 1 command differs",
        f"  {place}:11: arrive A B",
        "    --- expected",
        "    +++ found",
        "    @@ -1,2 +1,2 @@",
        "     B gets A:1 from A",
        "    -  B delivers A:2",
        "    +  B delivers A:1",
    ]
    assert ended.err == "Other than expected: 1 of 1 scenario. If the new output is right: thence scenario rewrite FILE\n"


def test_rewriting_writes_what_happens_and_keeps_comments(place: Path) -> None:
    place.write_text(SCENARIO.replace("B delivers A:1", "B delivers A:2").replace("\nkept", ""), encoding="utf-8")
    assert run("scenario", "rewrite", place) == (0, f"{place}: 2 commands rewritten\n", "")
    assert place.read_text(encoding="utf-8") == SCENARIO
    assert run("scenario", "rewrite", place) == (0, f"{place}: unchanged\n", "")


def test_a_run_changes_no_file(place: Path) -> None:
    wrong = SCENARIO.replace("kept", "violated")
    place.write_text(wrong, encoding="utf-8")
    assert run("scenario", "run", place).code == 1
    assert place.read_text(encoding="utf-8") == wrong


def test_a_folder_stands_for_its_text_files_in_order(place: Path) -> None:
    other = place.with_name("another.txt")
    other.write_text(SCENARIO.replace("kept", "violated"), encoding="utf-8")
    place.with_name("notes.md").write_text("no scenario", encoding="utf-8")
    ended = run("scenario", "run", place.parent)
    assert ended.code == 1
    assert [line for line in ended.out.splitlines() if not line.startswith(" ")] == [
        f"{other}: 1 command differs",
        f"{place}: as expected",
    ]
    assert "1 of 2 scenarios" in ended.err


@pytest.mark.parametrize("command", ["run", "rewrite"])
def test_a_missing_file_exits_with_two(command: str, tmp_path: Path) -> None:
    place = tmp_path / "nowhere.txt"
    assert refusal("scenario", command, place).startswith(f"{place}: cannot be read: ")
    assert refusal("scenario", command, tmp_path) == f"no scenario (.txt) in {tmp_path}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("send A to B\n----\n", "1: send A to B: a scenario begins with a domain"),
        ("domain d fifo A B\nsend A to B\n", "2: expected '----' below the command 'domain d fifo A B'"),
        ("domain d fifo\n----\n", "1: domain d fifo: expected: domain NAME ORDERING MEMBER …"),
        ("domain d fivo A B\n----\n", "1: domain d fivo A B: there is no ordering 'fivo'; did you mean 'fifo'?"),
        ("domain d fifo A A\n----\n", "1: domain d fifo A A: domain 'd': fifo: a member is listed twice in A, A"),
        ("domain d matrix A B stamps=half\n----\n", "1: domain d matrix A B stamps=half: domain 'd': matrix: "),
        ("domain d fifo A B\n----\n\nlink L d\n----\n", "4: link L d: expected: link NAME DOMAIN DOMAIN RELAY=RELAY …"),
        ("# a comment\n\nfly A\n----\n", "3: fly A: there is no command 'fly'"),
    ],
)
def test_a_line_that_cannot_be_is_named(text: str, says: str, place: Path) -> None:
    place.write_text(text, encoding="utf-8")
    assert refusal("scenario", "run", place).startswith(f"{place}:{says}")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("send A to C", "'C' is not among the members A, B"),
        ("send C to A", "there is no member 'C' (there are: A, B)"),
        ("send A", "expected: send MEMBER to MEMBER … or: send MEMBER to everyone"),
        ("arrive A B", "0 frames are on the way from A to B; there is no number 1"),
        ("arrive A", "expected: FROM TO [N]"),
        ("lose A B x", "expected: FROM TO [N]"),
        ("repeat A B 0", "0 frames are on the way from A to B; there is no number 0"),
        ("restart", "expected: restart MEMBER"),
        ("judge order", "unknown property 'order'"),
    ],
)
def test_a_command_that_cannot_be_is_named_and_nothing_is_rewritten(command: str, says: str, place: Path) -> None:
    text = f"domain d fifo A B\n----\n\n{command}\n----\n"
    place.write_text(text, encoding="utf-8")
    said = refusal("scenario", "rewrite", place)
    assert said.startswith(f"{place}:4: {command}: ")
    assert says in said
    assert place.read_text(encoding="utf-8") == text


def test_every_command_of_a_scenario(place: Path) -> None:
    place.write_text(
        "\n".join(
            f"{command}\n----\n"
            for command in (
                "domain d matrix A B C",
                "send A to C",
                "send A to B",
                "arrive A B",
                "send B to C",
                "repeat B C",
                "arrive B C",
                "waits",
                "restart C",
                "waits",
                "lose B C",
                "arrive everything",
                "arrive everything",
                "judge causal completeness",
            )
        ),
        encoding="utf-8",
    )
    assert run("scenario", "rewrite", place).code == 0
    text = place.read_text(encoding="utf-8")
    waits = "waits\n----\nC: B:1 from B waits for number 1 of A\n"
    assert text.count(waits) == 2, "a message waits also after a restart"
    assert "a frame from B to C is on its way once more" in text
    assert "a frame from B to C is lost" in text
    assert "C goes on from its snapshot" in text
    assert "arrive everything\n----\nC gets A:1 from A\n  C delivers A:1\n  C delivers B:1\n" in text
    assert "arrive everything\n----\nnothing is on its way\n" in text
    assert text.endswith("judge causal completeness\n----\nkept\n")


def test_domains_can_be_joined_by_a_link(place: Path) -> None:
    given = ("domain d fifo A B", "domain e fifo C D", "link L d e B=C", "send A to D", "arrive everything", "judge")
    place.write_text("\n".join(f"{command}\n----\n" for command in given), encoding="utf-8")
    assert run("scenario", "rewrite", place).code == 0
    text = place.read_text(encoding="utf-8")
    assert "link L d e B=C\n----\nL: joins d and e by B and C\n" in text
    assert "  on its way B -> C in L: A:1 " in text
    assert "  D delivers A:1\n" in text
    assert text.endswith("judge\n----\nkept\n")
