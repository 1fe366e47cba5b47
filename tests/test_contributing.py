"""What contributors rely on: README, templates, workflow, hooks, commit messages, the targets of ``make``, the changelog.

Each check is also shown a planted offender, so that none passes because it looks at nothing.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.test_docs import PAGES, ROOT, blocks, name_of, read

VERSIONS = ["3.11", "3.12", "3.13", "3.14"]
WORKFLOW = ".github/workflows/test.yml"
MAX_README_CODE_LINES = 10
TEMPLATES = {
    ".github/ISSUE_TEMPLATE/bug.md": ["What happens", "How to see it again", "SECURITY.md"],
    ".github/ISSUE_TEMPLATE/proposal.md": ["The problem", "What it promises"],
    ".github/PULL_REQUEST_TEMPLATE.md": ["Why", "How it is tested", "CHANGELOG.md", "72 characters"],
    "SECURITY.md": ["Report a vulnerability", "Supported versions", "docs/how-to/security.md#threats"],
}


# --- README ------------------------------------------------------------------------------------------------------------


def test_the_readme_goes_from_the_problem_to_the_two_commands() -> None:
    """Its code and commands are run by ``tests/integration/servers/test_typed_pages.py``."""
    readme = read("README.md")
    order = ["reply arrives before its question", "make setup", "import thence", "make demo", "make test", "## Where to go"]
    places = [readme.index(words) for words in order]
    assert places == sorted(places)
    (code,) = blocks(readme, "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= MAX_README_CODE_LINES


# --- templates, workflow, hooks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_template_asks_for_what_we_need(name: str) -> None:
    text = read(name)
    assert [words for words in TEMPLATES[name] if words not in text] == []


def wrong_in_workflow(text: str) -> list[str]:
    """Return what is missing in a workflow: versions of Python, ``.ci/run``, or the interpreter that it is to use."""
    matrix = re.search(r"^ +python: \[(.*)\]$", text, re.MULTILINE)
    named = re.findall(r'"([\d.]+)"', matrix[1]) if matrix else []
    wrong = [version for version in VERSIONS if version not in named]
    if not re.search(r"^ +- run: \.ci/run$", text, re.MULTILINE):
        wrong.append(".ci/run")
    if "PYTHON: ${{ steps.python.outputs.python-path }}" not in text:
        wrong.append("PYTHON")
    return wrong + [f"tab in {line!r}" for line in text.splitlines() if "\t" in line]


def test_the_workflow_runs_what_a_person_runs_on_every_version() -> None:
    text = read(WORKFLOW)
    assert wrong_in_workflow(text) == []
    assert wrong_in_workflow(text.replace('"3.13", ', "").replace(".ci/run", "make lint")) == ["3.13", ".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_the_classifiers_name_versions_that_the_workflow_runs() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert named
    assert set(named) <= set(VERSIONS)
    assert project["requires-python"] == f">={VERSIONS[0]}"


def test_hooks_are_local_and_call_what_is_there() -> None:
    hooks = read(".pre-commit-config.yaml")
    assert re.findall(r"repo: (\S+)", hooks) == ["local"]
    assert "://" not in hooks
    programs = re.findall(r"entry: (\S+)", hooks)
    assert {".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/lint-imports", "scripts/check-commit-message"} == set(programs)
    lint = read("Makefile").partition("\nlint:")[2].partition("\n\n")[0]
    assert [program for program in programs if program.startswith(".venv") and Path(program).name not in lint] == []


# --- commit messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Bound the queue of a peer\n\nIt grew without limit.\n", ""),
        ("Bound the queue of a peer\n\nIt grew.\n# Please enter the commit message\n", ""),
        ("fixup! Bound the queue of a peer\n", ""),
        (f"{'x' * 72}\n\nWhy.\n", ""),
        (f"{'x' * 73}\n\nWhy.\n", "73 characters"),
        ("Bound the queue of a peer.\n\nWhy.\n", "full stop"),
        ("Bound the queue\nof a peer\n", "second line"),
        ("Bound the queue of a peer\n", "no body"),
        ("Bound the queue of a peer\n\n# Please enter\n# ---- >8 ----\ndiff --git\n", "no body"),
        ("# Please enter\n", "empty"),
    ],
)
def test_the_hook_reads_commit_messages(message: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_text(message, encoding="utf-8")
    ended = subprocess.run([ROOT / "scripts" / "check-commit-message", file], check=False, capture_output=True, text=True)
    assert (ended.returncode, bool(ended.stderr)) == ((1, True) if said else (0, False))
    assert said in ended.stderr


# --- targets of make ---------------------------------------------------------------------------------------------------


def targets_named(page: str) -> set[str]:
    """Return the targets that a page tells its readers to make, in blocks and in quoted commands."""
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    typed = re.findall(r"^(?:\$ )?(?:\w+=\S+ )*make ([a-z][a-z-]*)", fenced, re.MULTILINE)
    quoted = re.findall(r"(?<!`)`(?:\w+=\S+ )*make ([a-z][a-z-]*)[^`\n]*`", page)
    return {*typed, *quoted}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob(".github/**/*.md"))], ids=name_of)
def test_every_target_that_a_page_names_is_there(page: Path) -> None:
    assert targets_named(page.read_text(encoding="utf-8")) - targets() == set()


def test_a_target_that_is_not_there_is_found() -> None:
    page = "We make room.\n\n```sh\nmake test\nPYTHON=x make nope  # why\n```\n\n`make bench` and `WORKERS=8 make nothing X=1`\n"
    assert targets_named(page) == {"test", "nope", "bench", "nothing"}
    assert targets_named(page) - targets() == {"nope", "nothing"}
    assert {"test", "test-all"} <= targets_named(read("CONTRIBUTING.md"))


def test_every_target_is_phony_and_explained() -> None:
    text = read("Makefile")
    assert set(text.partition(".PHONY: ")[2].partition("\n")[0].split()) == targets()
    assert set(re.findall(r"^([a-z-]+):.*## \S", text, re.MULTILINE)) == targets()


# --- changelog ---------------------------------------------------------------------------------------------------------


def wrong_in_changelog(text: str) -> list[str]:
    """Return what is not in the form of Keep a Changelog, and files that are named and not there."""
    headings = re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE)
    wrong = [] if headings[:1] == ["[Unreleased], 0.2.0 in preparation"] else ["the first section"]
    kinds = [heading for heading in headings[1:] if not heading.startswith("[")]
    wrong += [kind for kind in kinds if kind not in {"Added", "Changed", "Removed", "Fixed"}]
    wrong += [f"no {kind}" for kind in ("Added", "Changed", "Fixed") if not re.search(rf"^### {kind}$", text, re.MULTILINE)]
    return wrong + [file for file in re.findall(r"\bdocs/[\w/-]+\.md", text) if not (ROOT / file).exists()]


def test_the_changelog_has_its_form() -> None:
    text = read("CHANGELOG.md")
    assert wrong_in_changelog(text) == []
    planted = text.replace("### Fixed", "### Repaired").replace("docs/concepts/links.md", "docs/nowhere.md", 1)
    assert wrong_in_changelog(planted) == ["Repaired", "no Fixed", "docs/nowhere.md"]
