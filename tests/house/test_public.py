"""What is public: what ``import thence`` costs and gives, and what each package exports.

Every package says what it is for, what it may import and what it exports. It is a way in for those outside of it: its
``__all__``, and the modules that its text names after "Exports". What is not named is private. Pages and examples import what is
exported.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

import thence
from tests.house.tree import ROOT, SOURCE, imported_modules, name_of, parse, run_python

MAX_IMPORTED_MODULES = 40
HEAVY = ("asyncio", "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "rich", "typer")


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


# --- packages ----------------------------------------------------------------------------------------------------------

NOT_YET: Final = frozenset({"thence.pipeline", "thence.pipeline.kernels", "thence.pipeline.report", "thence.pipeline.streaming"})
"""Packages that do not say what they export."""


@pytest.fixture(scope="module")
def known() -> dict[str, ast.Module]:
    """Return all modules by name; a package has the name of its folder."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = parse(path)
    return found


def packages() -> set[str]:
    return {".".join(path.parent.relative_to(SOURCE.parent).parts) for path in SOURCE.rglob("__init__.py")}


def exports(text: str) -> set[str]:
    """Return the modules that the text of a package names as exported."""
    return {name for said in re.findall(r"\bExports\s([^.]*)\.(?:\s|$)", text) for name in re.findall(r"``?(\w+)``?", said)}


def unsaid(package: ast.Module) -> list[str]:
    """Return what a package does not say."""
    text = ast.get_docstring(package) or ""
    exported = re.search(r"\bExports\s", text) is not None or any(
        isinstance(node, ast.Name) and node.id == "__all__" for node in ast.walk(package)
    )
    return [*(["imports"] if "import" not in text.lower() else []), *(["exports"] if not exported else [])]


def loaded(tree: ast.Module, known: Mapping[str, ast.Module]) -> Iterator[str]:
    """Give the modules that a piece of code imports; of a name in a module, the module."""
    for node in ast.walk(tree):
        for name in imported_modules(node):
            found = name if name in known else name.rpartition(".")[0]
            if found in known:
                yield found


def is_exported(module: str, known: Mapping[str, ast.Module], folders: set[str]) -> bool:
    """Return whether those outside may import a module; a package itself is its ``__all__``."""
    package, _, name = module.rpartition(".")
    return module in folders or package in NOT_YET or name in exports(ast.get_docstring(known[package]) or "")


def trespasses(known: Mapping[str, ast.Module], folders: set[str]) -> list[str]:
    """Name every import of what another package keeps to itself."""
    found = []
    for name, tree in known.items():
        for target in loaded(tree, known):
            package = target.rpartition(".")[0]
            if not f"{name}.".startswith(f"{package}.") and not is_exported(target, known, folders):
                found.append(f"{name} imports {target}")
    return sorted(set(found))


def examples() -> Iterator[tuple[str, ast.Module]]:
    """Give the programs of pages and examples."""
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield name_of(path), parse(path)
    for page in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]):
        for code in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield name_of(page), ast.parse(textwrap.dedent(code))


def test_a_package_says_what_it_is_for_what_it_may_import_and_what_it_exports(known: Mapping[str, ast.Module]) -> None:
    assert {name: missing for name in sorted(packages()) if name not in NOT_YET and (missing := unsaid(known[name]))} == {}


def test_what_is_exported_is_there(known: Mapping[str, ast.Module]) -> None:
    gone = {f"{name}.{one}" for name in packages() for one in exports(ast.get_docstring(known[name]) or "")} - known.keys()
    assert sorted(gone) == []


def test_nobody_imports_what_a_package_keeps_to_itself(known: Mapping[str, ast.Module]) -> None:
    assert trespasses(known, packages()) == []


def test_pages_and_examples_import_what_is_public(known: Mapping[str, ast.Module]) -> None:
    folders = packages()
    used = {(where, target) for where, tree in examples() for target in loaded(tree, known)}
    assert {"docs", "examples"} <= {where.partition("/")[0] for where, _ in used}
    assert sorted(one for one in used if one[1] not in folders and not is_exported(one[1], known, folders)) == []


def test_a_trespass_is_noticed() -> None:
    texts = {
        "thence.a": '"""A. May import nothing. Exports ``way``."""',
        "thence.a.way": "import thence.a.inner",
        "thence.a.inner": "",
        "thence.b": "from thence.a.inner import x\nfrom thence.a import way, inner",
    }
    known = {name: ast.parse(text) for name, text in texts.items()}
    assert trespasses(known, {"thence.a", "thence.b"}) == ["thence.b imports thence.a.inner"]


def test_a_package_that_says_too_little_is_noticed() -> None:
    assert unsaid(ast.parse('"""What it is for."""')) == ["imports", "exports"]
    assert unsaid(ast.parse('"""What it is for. May import ``core``. Exports ``a``."""')) == []
    assert unsaid(ast.parse('"""What it is for. It imports ``core``."""\n__all__ = ["a"]')) == []
    assert exports("May import ``core``. Exports ``a`` and\n``b``. The rest is private: ``c``.") == {"a", "b"}
    assert exports("Exports nothing.") == set()
