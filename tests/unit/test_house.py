"""The rules of the house, checked: what the tree as a whole promises, whatever is in it.

Rules: a check that could pass because it looks at nothing is first shown something bad (a planted snippet), and every
check names the offending place, so that its failure can be acted on without reading this file.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import thence
from thence import errors
from thence.cli import main as cli

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "thence"
CORE = SOURCE / "core"
ORDERINGS = CORE / "ordering"

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MAX_IMPORTED_MODULES = 40


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


# --- the core is pure -------------------------------------------------------------------------------------------------

PURE_MODULES = frozenset(
    {
        "__future__", "abc", "array", "bisect", "collections", "copy", "dataclasses", "difflib", "enum", "functools",
        "hashlib", "heapq", "itertools", "math", "operator", "re", "string", "struct", "textwrap", "tomllib", "types",
        "typing", "zlib",
        "msgspec", "numpy",
    }
)  # fmt: skip
# The registry has to find its files; nothing else in the core may import by name.
ALLOWED_FOR = {"ordering/__init__.py": frozenset({"importlib", "pkgutil"})}
IMPURE_CALLS = frozenset({"open", "print", "input", "eval", "exec", "compile", "breakpoint", "__import__"})
# Their results differ from one process to the next, and with them the trace of one seed.
UNSTABLE_CALLS = frozenset({"hash", "id"})
IMPURE_ATTRIBUTES = {
    "numpy": frozenset({"random", "load", "save", "savez", "loadtxt", "savetxt", "genfromtxt", "fromfile", "memmap"}),
    "np": frozenset({"random", "load", "save", "savez", "loadtxt", "savetxt", "genfromtxt", "fromfile", "memmap"}),
}


def impurities(tree: ast.Module, allowed: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield ``line: what`` for everything in the module that a pure one must not have."""
    in_hash_methods = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        for module in imported_modules(node):
            if not is_pure_module(module, allowed):
                yield f"{getattr(node, 'lineno', 0)}: imports {module}"
        match node:
            case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                yield f"{node.lineno}: is asynchronous"
            case ast.Global():
                yield f"{node.lineno}: changes a global"
            case ast.Call(func=ast.Name(id=called)) if called in IMPURE_CALLS:
                yield f"{node.lineno}: calls {called}()"
            case ast.Call(func=ast.Name(id=called)) if called in UNSTABLE_CALLS and id(node) not in in_hash_methods:
                yield f"{node.lineno}: calls {called}(), which differs between processes"
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if name in IMPURE_ATTRIBUTES.get(owner, ()):
                yield f"{node.lineno}: uses {owner}.{name}"
            case _:
                pass


def imported_modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.module is None or node.level:
            return ["." * node.level + (node.module or "")]
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def is_pure_module(module: str, allowed: frozenset[str]) -> bool:
    top = module.partition(".")[0]
    if top == "thence":
        return module.startswith(("thence.core.", "thence.errors.", "thence.words.")) or module in {
            "thence.errors",
            "thence.core",
            "thence.words",
        }
    if module.startswith("numpy.random"):
        return False
    return top in PURE_MODULES or top in allowed


def test_core_is_pure() -> None:
    found = [
        f"{name_of(path)}:{what}"
        for path in sorted(CORE.rglob("*.py"))
        for what in impurities(parse(path), ALLOWED_FOR.get(path.relative_to(CORE).as_posix(), frozenset()))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("snippet", "what"),
    [
        ("import asyncio", "imports asyncio"),
        ("import os.path", "imports os.path"),
        ("from time import monotonic", "imports time.monotonic"),
        ("def f():\n    import random", "imports random"),
        ("from numpy.random import default_rng", "imports numpy.random.default_rng"),
        ("from numpy import random", "imports numpy.random"),
        ("import numpy as np\nx = np.random.rand()", "uses np.random"),
        ("import importlib", "imports importlib"),
        ("from thence.sim import kernel", "imports thence.sim.kernel"),
        ("from thence import sim", "imports thence.sim"),
        ("from . import base", "imports ."),
        ("open('x')", "calls open()"),
        ("def f():\n    print('x')", "calls print()"),
        ("__import__('time')", "calls __import__()"),
        ("async def f(): pass", "is asynchronous"),
        ("count = 0\ndef f():\n    global count\n    count += 1", "changes a global"),
        ("hash('x')", "calls hash()"),
        ("id(object())", "calls id()"),
    ],
)
def test_an_impure_module_is_noticed(snippet: str, what: str) -> None:
    assert any(what in found for found in impurities(ast.parse(snippet)))


def test_a_pure_module_is_let_through() -> None:
    snippet = """
        from __future__ import annotations
        import collections.abc
        import msgspec
        import numpy as np
        from thence.core.ordering.matrix_clock import Vector
        from thence.errors import UsageError
        class C:
            def __hash__(self):
                return hash((1, 2))
            def reopen(self):
                return self.open()
        """
    assert list(impurities(ast.parse(textwrap.dedent(snippet)))) == []


def test_only_the_registry_may_import_by_name() -> None:
    tree = ast.parse("import importlib\nimport pkgutil")
    assert list(impurities(tree, ALLOWED_FOR["ordering/__init__.py"])) == []
    assert len(list(impurities(tree))) == 2


# --- what `import thence` costs and gives -----------------------------------------------------------------------------

HEAVY = ("asyncio", "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer")


def run_python(code: str, cache: Path) -> str:
    # Bytecode is cached, as it is for a user, also where the tests themselves run without.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(cache)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


def test_import_thence_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = run_python("import sys, thence; print(*sorted({name.split('.')[0] for name in sys.modules}))", tmp_path)
    assert "thence" in loaded.split()
    assert set(HEAVY).isdisjoint(loaded.split())


def test_import_thence_loads_little(tmp_path: Path) -> None:
    """What takes time is what is loaded; the time itself says more of the machine."""
    code = """
        import sys
        before = set(sys.modules)
        import thence
        print(len(set(sys.modules) - before))
        """
    assert 0 < int(run_python(code, tmp_path)) <= MAX_IMPORTED_MODULES


def test_public_names_are_pinned() -> None:
    assert thence.__all__ == [
        "EVERYONE",
        "Agent",
        "Agents",
        "BlockingClient",
        "Busy",
        "Client",
        "ConfigError",
        "Fenced",
        "FrameRefused",
        "ImpossibleFrame",
        "InternalError",
        "MalformedFrame",
        "Member",
        "Message",
        "NewView",
        "NotAllowed",
        "OverflowingFrame",
        "Refusal",
        "ReplayedFrame",
        "StateLost",
        "StorageError",
        "StoreFull",
        "StrangerFrame",
        "ThenceError",
        "TlsFiles",
        "TraceError",
        "UsageError",
        "__version__",
        "connect",
        "connect_blocking",
        "stay_awake",
    ]
    assert all(hasattr(thence, name) for name in thence.__all__)


def test_the_version_is_said_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == thence.__version__


# --- files that can be read in one go ---------------------------------------------------------------------------------


def functions_too_long(tree: ast.Module) -> list[str]:
    return [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    ]


@pytest.mark.parametrize("path", python_files("src", "tests", "benchmarks"), ids=name_of)
def test_a_file_opens_with_why_and_can_be_read_in_one_go(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "has no module docstring"
    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert functions_too_long(tree) == []


def test_a_long_function_is_noticed() -> None:
    body = "    pass\n"
    assert functions_too_long(ast.parse("def f():\n" + body * (MAX_FUNCTION_LINES - 1))) == []
    assert functions_too_long(ast.parse("def f():\n" + body * MAX_FUNCTION_LINES)) == ["f has 81 lines"]


# --- errors -----------------------------------------------------------------------------------------------------------


def drawn_parents(drawing: str) -> dict[str, str | None]:
    """Read the tree that a docstring draws: each class with its parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in drawing.splitlines():
        drawn = re.match(r"^( {4}[│ ]*(?:[├└]── )?)([A-Z]\w+)(?:  |$)", line)
        if drawn:
            depth = (len(drawn[1]) - 4) // 4
            path = [*path[:depth], drawn[2]]
            parents[drawn[2]] = path[depth - 1] if depth else None
    return parents


def test_an_exception_from_a_rule_of_security_says_why() -> None:
    exceptions = [
        (path.relative_to(ROOT), line.strip(), said[1])
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if (said := re.search(r"# noqa: S\d+(.*)", line))
    ]
    assert exceptions
    assert [(path, line) for path, line, why in exceptions if len(why.strip(" -")) < 5] == []


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)}
    actual = {kind.__name__: kind.__base__.__name__ for kind in classes if kind.__base__ not in {None, Exception}}
    assert drawn_parents(errors.__doc__ or "") == {"ThenceError": None, **actual}


@pytest.mark.parametrize(
    "kind", [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
)
def test_an_error_says_whose_fault_it_is_and_whether_it_happened(kind: type[errors.ThenceError]) -> None:
    assert kind.__doc__
    assert kind.fault in get_args(errors.Fault)
    assert kind.happened in get_args(errors.Happened)
    parent = kind.__base__
    if parent is not None and issubclass(parent, errors.ThenceError) and parent.happened == "no":
        assert kind.happened == "no", f"whoever catches {parent.__name__} relies on it"


# --- orderings and their design notes ---------------------------------------------------------------------------------


def ordering_names(tree: ast.Module) -> list[str]:
    """Return the names of the orderings that a module defines: ``name = "…"`` in a class derived from Ordering."""
    return [
        statement.value.value
        for node in tree.body
        if isinstance(node, ast.ClassDef) and any("Ordering" in ast.unparse(base) for base in node.bases)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        and ast.unparse(statement.targets[0] if isinstance(statement, ast.Assign) else statement.target) == "name"
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]


def defined_orderings() -> list[tuple[str, Path]]:
    return [(name, path) for path in sorted(ORDERINGS.glob("*.py")) for name in ordering_names(parse(path))]


def test_orderings_are_found() -> None:
    assert "fifo" in [name for name, _ in defined_orderings()]


@pytest.mark.parametrize(("name", "path"), defined_orderings(), ids=[name for name, _ in defined_orderings()])
def test_an_ordering_has_a_design_note_and_links_to_it(name: str, path: Path) -> None:
    note = f"docs/concepts/orderings/{name}.md"
    assert path.stem == name, "an ordering lives in the file of its name"
    assert (ROOT / note).is_file(), f"{note} is missing"
    assert note in (ast.get_docstring(parse(path)) or ""), f"the docstring does not link to {note}"


# --- nothing of one machine in the tree -------------------------------------------------------------------------------

# Written in pieces, so that this file does not hold what it looks for.
OF_ONE_MACHINE = re.compile(
    "|".join(["/" + "work" + "/", "/" + "root" + "/", "/home" + "/[a-z]", "/" + "opt/", "pypi" + r"\.org",
              "python" + "hosted", "artifact" + "ory", "index" + "-url", "file:" + "//"])
)  # fmt: skip
BINARY = frozenset({".parquet", ".png", ".gz", ".zip"})


def files_of_the_project() -> list[Path]:
    """Everything that is or would be committed; in a tree without git, everything that is not hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        hidden = re.compile(r"(^|/)(\.(?!ci/|git[a-z]+$)|__pycache__|[^/]*\.egg-info/)")
        paths = (path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*"))
        names = [name for name in paths if not hidden.search(name)]
    return [ROOT / name for name in names if (ROOT / name).is_file() and Path(name).suffix not in BINARY]


def test_nothing_of_one_machine_is_in_the_tree() -> None:
    files = files_of_the_project()
    assert SOURCE / "errors.py" in files
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert found == []


def test_a_path_of_one_machine_is_noticed() -> None:
    assert OF_ONE_MACHINE.search("see /" + "work/main")
    assert OF_ONE_MACHINE.search("https://" + "pypi." + "org/simple")
    assert not OF_ONE_MACHINE.search("/tmp/run.jsonl and src/thence/core")


def test_constraints_pin_every_package_and_name_no_address() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line)] == []
    pinned = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    assert {re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in wanted} <= {*pinned, "thence"}


# --- the front listener ---------------------------------------------------------------------------------------------------


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    code = ended.value.code
    assert isinstance(code, int)
    return code


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    printed = capsys.readouterr().out
    assert all(entry.name in printed for entry in cli.COMMANDS)
    assert "Exit codes" in printed


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--version") == 0
    assert capsys.readouterr().out == f"thence {thence.__version__}\n"


def test_help_is_quick_because_it_imports_no_command(tmp_path: Path) -> None:
    code = """
        import sys
        from thence.cli.main import main
        try:
            main(["--help"])
        except SystemExit:
            print("loaded", *[name for name in sys.modules])
        """
    loaded = set(run_python(code, tmp_path).split("loaded")[1].split())
    assert {"pyarrow", "numpy", "pyspark", "thence.core", "thence.sim"}.isdisjoint(loaded)


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: str(entry.name))
def test_a_command_of_the_table_is_there(entry: cli.Entry, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(entry.name, "--help") == 0
    assert f"thence {entry.name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code", "printed"),
    [
        (errors.ConfigError("no domain\n 'X'"), 2, "thence: error: no domain 'X'\n"),
        (FileNotFoundError(2, "No such file", "run.jsonl"), 2, "thence: error: [Errno 2] No such file: 'run.jsonl'\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(
    raised: BaseException,
    code: int,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("THENCE_DEBUG", raising=False)
    plant_command(monkeypatch, raised)
    assert run_cli("demo") == code
    assert capsys.readouterr().err == printed


def test_an_interrupt_during_imports_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n", encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = settings["project"]["scripts"]["thence"].partition(":")
    for start in (["-c", f"from {module} import {function}; {function}()"], ["-m", "thence"]):
        environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'src'}"}
        done = subprocess.run([sys.executable, *start, "--help"], capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_debugging_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("THENCE_DEBUG", "1")
    plant_command(monkeypatch, errors.UsageError("wrong"))
    assert run_cli("demo") == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_bug_does_not_look_like_a_verdict(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    plant_command(monkeypatch, ZeroDivisionError("oops"))
    assert run_cli("demo") == 2
    assert "this is a bug in thence: ZeroDivisionError: oops" in capsys.readouterr().err


def test_wrong_usage_is_exit_code_2() -> None:
    assert run_cli("no-such-command") == 2
    assert run_cli("--no-such-option") == 2


def plant_command(monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    def command() -> None:
        raise raised

    planted = type(sys)("thence.cli.messages.demo")
    vars(planted)["command"] = command
    monkeypatch.setitem(sys.modules, "thence.cli.messages.demo", planted)
