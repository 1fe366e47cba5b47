"""The documentation is run: commands, examples, links, and the tables that repeat what the code says.

Rules for whoever writes a page:

* In a ``console`` block every command must exit with 0, unless ``$ echo $?`` and another code follow. What is shown below a
  command is compared with what it prints, word by word and line by line; ``…`` stands for anything, also for several lines.
  A command with nothing shown below it may print anything. The blocks of one page share an empty folder, and see ``tests``
  and ``examples``.
* A ``python`` block is run, with the others of its page before it.

Some pages have a test of their own: those on trace and judge ``tests/unit/trace/test_docs.py``, that on the store
``tests/unit/storage/test_store_page.py``, the recipes and that on chat theirs in ``tests/integration``, ``test_recipes.py`` and
``test_chat.py``, and those that need Spark theirs in ``tests/pipeline``, ``test_pages.py``, ``test_importing_page.py``,
``test_audit_page.py``, ``test_notebook.py``, ``test_following_page.py``. The README, the tutorial, the quickstart and the
pages on agents and on security start servers: ``tests/support/pages/typed_pages.py`` says how they are written and run.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.main import get_command

from tests.unit.cli import run
from thence.cli.main import COMMANDS, build
from thence.cli.traces import simulate
from thence.core.ordering import ORDERINGS
from thence.sim.laws import LAWS
from thence.sim.scenario import Stage

ROOT = Path(__file__).resolve().parents[1]
INTEGRATION = ROOT / "tests" / "integration"
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
NEED_SPARK = {"docs/reference/metrics.md", "docs/reference/data-source.md"}
PAGES_WITH_SPARK = {f"docs/how-to/{name}.md" for name in ("importing", "audit", "audit-notebook", "following")}
TESTED_ELSEWHERE = {
    "README.md",
    "docs/tutorial/quickstart.md",
    "docs/how-to/agents.md",
    "docs/how-to/chat.md",
    "docs/how-to/security.md",
    "docs/reference/trace.md",
    "docs/how-to/judge.md",
    "docs/reference/store.md",
    *(f"docs/how-to/recipes/{page.name}" for page in (DOCS / "how-to" / "recipes").glob("*.md")),
    *(f"docs/tutorial/{chapter.name}" for chapter in (DOCS / "tutorial").glob("*.md")),
    *PAGES_WITH_SPARK,
    *NEED_SPARK,
}
RUN = [page for page in PAGES if page.relative_to(ROOT).as_posix() not in TESTED_ELSEWHERE]
QUICK_STEPS = 5_000
CODE = ("src", "tests", "benchmarks", "examples", "packaging")
MAPS = {"index.md", "studies.md"}
"""Pages that lead to other pages."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading line that holds these words."""
    table = takewhile(lambda line: line.startswith("|"), text[text.index(heading) :].splitlines())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in islice(table, 2, None)]


# --- commands ----------------------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A command of a page, what it shows below, and the exit code stated."""

    command: str
    shown: str
    code: int


def calls(block: str) -> list[Call]:
    """Split a block at its prompts; ``echo $?`` belongs to the command before it."""
    found: list[Call] = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        if command == "echo $?":
            found[-1] = found[-1]._replace(code=int(shown))
        else:
            found.append(Call(command.partition(" # ")[0].strip(), shown, 0))
    return found


def plain(printed: str) -> list[str]:
    """Return the lines that say something, with single spaces: widths and rules do not matter."""
    return [" ".join(line.split()) for line in printed.splitlines() if line.strip(" ─")]


def matches(shown: str, printed: str) -> bool:
    pattern = ""
    for line in plain(shown):
        pattern += r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
    return re.fullmatch(pattern, "".join(line + "\n" for line in plain(printed))) is not None


def execute(command: str) -> tuple[int, str]:
    words = shlex.split(command)
    if words[0] == "thence":
        ended = run(*words[1:])
        return ended.code, ended.out
    assert words[0] in {"printf", "cat"}, f"a page uses {words[0]}"
    other = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
    return other.returncode, other.stdout


def assert_commands_do_what_they_say(page: str, count: int) -> None:
    """Run the commands of a page one after the other; there must be so many."""
    given = [call for block in blocks(page, "console") for call in calls(block)]
    assert len(given) == count
    for call in given:
        code, printed = execute(call.command)
        assert code == call.code, f"{call.command} exits with {code}: {printed}"
        assert matches(call.shown, printed), f"{call.command} prints:\n{printed}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for shared in ("tests", "examples"):
        (tmp_path / shared).symlink_to(ROOT / shared)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", [page for page in RUN if "```console" in page.read_text(encoding="utf-8")], ids=name_of)
def test_commands_do_what_the_page_says(page: Path) -> None:
    given = [call for block in blocks(page.read_text(encoding="utf-8"), "console") for call in calls(block)]
    assert given
    for call in given:
        code, printed = execute(call.command)
        assert code == call.code, f"{call.command} exits with {code}"
        assert not call.shown.strip() or matches(call.shown, printed), f"{call.command} prints:\n{printed}"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", [page for page in RUN if "```python" in page.read_text(encoding="utf-8")], ids=name_of)
def test_examples_run(page: Path) -> None:
    known: dict[str, object] = {}
    for code in blocks(page.read_text(encoding="utf-8"), "python"):
        exec(compile(code, str(page), "exec"), known)
    assert len(known) > 1


def test_what_is_shown_must_match() -> None:
    assert matches("a  b\n…\nd … f\n", "a b\n\n ────\nc\nc\nd e f\n")
    assert not matches("a b\n", "a b\nc\n")
    assert not matches("a\n…\nb\n", "a\nc\n")
    assert calls("$ thence x # why\nsaid\n$ echo $?\n1\n$ thence y\n") == [Call("thence x", "said\n", 1), Call("thence y", "", 0)]


# --- links -------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return what can stand behind a # in a link to this page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")) if "://" not in link]
    for link in links:
        path, _, anchor = link.partition("#")
        target = page if not path else (page.parent / path)
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_on_the_map() -> None:
    """Each part has an index that leads to its pages; studies and benchmarks of the research part have a page that does."""
    seen: set[Path] = set()
    waiting = [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8")) if page.name in MAPS else []
        waiting += [found for link in links if (found := (page.parent / link).resolve()) not in seen]
    assert {page for page in PAGES if DOCS in page.parents} <= seen
    assert "docs/index.md" in read("README.md")


def test_every_file_that_a_page_names_exists() -> None:
    named = {
        (name_of(page), path)
        for page in PAGES
        if page.name != "CHANGELOG.md"  # It tells of what was.
        for path in re.findall(
            r"`((?:src|tests|docs|benchmarks|examples|packaging)/[\w./-]+\w)`", page.read_text(encoding="utf-8")
        )
    }
    assert [(page, path) for page, path in sorted(named) if "NAME" not in path and not (ROOT / path).exists()] == []


def test_every_page_that_code_names_exists() -> None:
    files = [path for folder in CODE for path in (ROOT / folder).rglob("*") if path.suffix in {".py", ".toml", ".yml"}]
    named = {
        (name_of(path), page)
        for path in files
        for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|svg)", path.read_text(encoding="utf-8"))
        if page != "docs/nowhere.md"  # A test plants it.
    }
    assert len(named) > 50
    assert [(path, page) for path, page in sorted(named) if not (ROOT / page).exists()] == []


# --- tables that repeat what the code says -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "heading"), [("docs/concepts/guarantees.md", "| ordering | keeps |"), ("docs/concepts/index.md", "| name | keeps |")]
)
def test_the_promises_are_those_of_the_code(page: str, heading: str) -> None:
    told = {name.strip("[`").partition("`")[0]: keeps for name, keeps, *_ in rows(read(page), heading)}
    assert set(told) == set(ORDERINGS)
    for name, keeps in told.items():
        assert set(re.findall("fifo|causal|total", keeps)) == ORDERINGS[name].traits.guarantees, name


@pytest.mark.parametrize(
    "page", ["docs/concepts/guarantees.md", "docs/how-to/servers.md", "docs/how-to/agents.md", "docs/how-to/security.md"]
)
def test_the_limits_are_those_of_the_code(page: str) -> None:
    told = rows(read(page), "| limit | value |")
    assert len(told) > 5
    for name, value, _ in told:
        module, _, constant = name.strip("`").rpartition(".")
        assert getattr(importlib.import_module(module), constant) == int(value), name


def test_every_option_of_simulate_is_explained() -> None:
    app = typer.Typer(add_completion=False)
    app.command()(simulate.command)
    options = {name for param in get_command(app).params for name in (*param.opts, *param.secondary_opts)}
    told = " ".join(first for first, *_ in rows(read("docs/how-to/simulator.md"), "| option | what it does |"))
    assert set(re.findall(r"--[\w-]+", told)) == options


def test_every_law_is_explained() -> None:
    assert {
        first.strip("`").partition(":")[0] for first, *_ in rows(read("docs/how-to/simulator.md"), "| law | meaning |")
    } == set(LAWS)


def test_every_command_of_a_scenario_is_explained() -> None:
    told = {first.strip("`").split()[0] for first, *_ in rows(read("docs/reference/scenarios.md"), "| command | what happens |")}
    assert told == set(Stage().commands)


def test_every_threat_names_a_test_that_there_is() -> None:
    table = rows(read("docs/how-to/security.md"), "| attacker | what it can do | what it cannot | the test that shows it |")
    assert table[0][0]
    for attacker, can, cannot, shown in table:
        assert bool(attacker) == bool(can), "who is named can do something"
        assert cannot
        file, _, name = shown.strip("`").partition("::")
        found = [(INTEGRATION / file).resolve()] if file.startswith("..") else list(INTEGRATION.rglob(file))
        text = "".join([path.read_text(encoding="utf-8") for path in found])
        assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), shown


STEPS = [
    (command.strip("`"), int(steps.replace(",", "")))
    for command, steps in rows(read("docs/how-to/explorer.md"), "| command | steps |")
]


@pytest.mark.parametrize(("command", "steps"), [row for row in STEPS if row[1] <= QUICK_STEPS])
def test_the_explorer_takes_as_many_steps_as_the_page_says(command: str, steps: int) -> None:
    ended = run(*command.split()[1:])
    assert ended.code == 0
    assert f": {steps:,} steps tried" in ended.out


# --- options -----------------------------------------------------------------------------------------------------------


def options_of(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    """Give the options of a command, and of those below it, where there are such."""
    yield name, {option for param in command.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    for below, one in getattr(command, "commands", {}).items():
        yield from options_of(one, f"{name} {below}")


def all_options() -> dict[str, set[str]]:
    found = dict(options_of(build(), "thence"))
    for entry in COMMANDS:
        module = importlib.import_module(entry.module)
        app = module.command
        if not isinstance(app, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command()(module.command)
        found |= options_of(get_command(app), f"thence {entry.name}")
    return found


def unknown_options(page: str, known: dict[str, set[str]]) -> list[str]:
    """Return the options that a page gives to commands of ours that do not have them."""
    quoted = [*re.findall(r"`(thence [^`]+)`", page), *re.findall(r"^(?:\$ |.*[;|] |\w+=\S+ )(thence .+)$", page, re.MULTILINE)]
    wrong = []
    for said in quoted:
        words = re.split(r"[|;&]", said)[0].split(" # ")[0].split()
        command = max((name for name in known if words[: name.count(" ") + 1] == name.split()), key=len, default="")
        wrong += [f"{command} {word}" for word in words if word.startswith("--") and word != "--" and word not in known[command]]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_are_there(page: Path) -> None:
    assert unknown_options(page.read_text(encoding="utf-8"), all_options()) == []


def test_an_option_that_is_not_there_is_found() -> None:
    page = "`thence topology apply NEW --lost s1 --nope`\n\n```console\n$ seq 3 | thence send URL --quick | cat --plain\n```\n"
    assert unknown_options(page, all_options()) == ["thence topology apply --nope", "thence send --quick"]
