"""``thence topology apply`` without servers: what it says of a change, and what it refuses. With them: tests/integration."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli import refusal, run

OLD = """name = "f"
[domains.d]
members = ["A", "B", "C"]
"""
NEW = """name = "f"
version = 2
[domains.d]
members = ["A", "B"]
[domains.e]
members = ["B", "D"]
[servers.A]
address = "127.0.0.1:1"
"""


def files(folder: Path, old: str = OLD, new: str = NEW) -> list[str]:
    (folder / "old.toml").write_text(old, encoding="utf-8")
    (folder / "new.toml").write_text(new, encoding="utf-8")
    return ["topology", "apply", str(folder / "new.toml"), "--from", str(folder / "old.toml")]


def test_a_plan_says_what_changes_who_holds_and_what_to_do_before_and_after(tmp_path: Path) -> None:
    result = run(*files(tmp_path), "--plan")
    assert result.code == 0, result.out
    for said in (
        "D joins, in e",
        "C leaves",
        "domain e is new, with B, D",
        "before: start D with the new file",
        "all 3 servers hold",
        "all hold, since what is on its way to those who leave, or from them, has to arrive before",
        "afterwards: stop C",
    ):
        assert said in " ".join(result.out.split()), result.out


def test_a_plan_says_who_holds_and_who_goes_on(tmp_path: Path) -> None:
    beside = '[domains.e]\nmembers = ["C", "D"]\n'
    old = OLD + beside + '[domains.g]\nmembers = ["D", "E"]\n'
    new = NEW.replace('["B", "D"]', '["B", "C"]') + beside.replace(".e]", ".h]") + '[domains.g]\nmembers = ["D", "E"]\n'
    result = run(*files(tmp_path, old, new), "--plan")
    assert "then: 4 servers hold, A, B, C, D, and 1 other goes on: what clients send" in " ".join(result.out.split()), result.out
    assert "all hold, since" not in result.out
    plan = json.loads(run(*files(tmp_path, old, new), "--plan", "--json").out)
    assert (plan["holds"], plan["all_hold_because"]) == (["A", "B", "C", "D"], "")


def test_a_plan_for_programs(tmp_path: Path) -> None:
    result = run(*files(tmp_path), "--plan", "--json")
    plan = json.loads(result.out)
    assert (plan["from_version"], plan["to_version"]) == (1, 2)
    assert [change["kind"] for change in plan["changes"]] == ["join", "leave", "domain"]
    assert plan["holds"] == ["A", "B", "C"]


def test_a_version_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    said = refusal(*files(tmp_path, new=NEW.replace("version = 2", "version = 4")), "--plan")
    assert said == "version 4 of 'f' cannot follow version 1: only 2 can"


def test_nobody_answers(tmp_path: Path) -> None:
    files(tmp_path)
    assert refusal("topology", "apply", tmp_path / "new.toml").startswith("no server of version 2 of 'f' answers: ")


def test_servers_without_an_address_are_named(tmp_path: Path) -> None:
    assert refusal(*files(tmp_path)).startswith("no address for B, C")


def test_servers_that_are_lost_hold_nothing_and_need_no_address(tmp_path: Path) -> None:
    result = run(*files(tmp_path), "--plan", "--lost", "C")
    assert "all 2 servers hold" in " ".join(result.out.split()), result.out
    assert "C is lost: before the switch the others give each other what they have of its messages" in result.out.replace(
        "\n", " "
    )
    assert "afterwards" not in result.out
    plan = json.loads(run(*files(tmp_path), "--plan", "--json", "--lost", "C").out)
    assert (plan["holds"], plan["lost"]) == (["A", "B"], ["C"])
    assert refusal(*files(tmp_path), "--lost", "C").startswith("no address for B:")


def test_only_those_that_were_there_and_are_not_any_more_can_be_lost(tmp_path: Path) -> None:
    said = refusal(*files(tmp_path), "--plan", "--lost", "A,C")
    assert said == "'A' is to be lost, and version 2 of 'f' still has it"
    said = refusal(*files(tmp_path), "--plan", "--lost", "C", "--lost", "X")
    assert said == "'X' cannot be lost: it is no member of version 1 of 'f'"
