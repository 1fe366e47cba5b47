"""The files of the project: nothing of one machine in them, packages pinned and used, exceptions from rules explained."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.house.tree import ROOT, SOURCE, imported_modules, name_of, parse, python_files

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


def test_an_exception_from_a_rule_of_security_says_why() -> None:
    exceptions = [
        (path.relative_to(ROOT), line.strip(), said[1])
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if (said := re.search(r"# noqa: S\d+(.*)", line))
    ]
    assert exceptions
    assert [(path, line) for path, line, why in exceptions if len(why.strip(" -")) < 5] == []


# --- dead dependencies --------------------------------------------------------------------------------------------------

MODULES: Final = {
    "aio-pika": "aio_pika",
    "nats-py": "nats",
    "opentelemetry-api": "opentelemetry",
    "opentelemetry-exporter-otlp-json-file": "opentelemetry.exporter.otlp.json.file",
    "opentelemetry-exporter-zipkin-json": "opentelemetry.exporter.zipkin.json",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "prometheus-client": "prometheus_client",
}
"""What a package is imported as, where that is not its name."""

CALLED: Final = {
    "import-linter": ("Makefile", "$(BIN)/lint-imports"),
    "mkdocs": ("Makefile", "$(BIN)/mkdocs"),
    "mkdocs-material": ("mkdocs.yml", "name: material"),
    "mkdocstrings": ("mkdocs.yml", "- mkdocstrings:"),
    "mypy": ("Makefile", "$(BIN)/mypy"),
    "pandas": (
        "src/thence/pipeline/source/reader.py",
        "from pyspark.sql.pandas",
    ),  # pyspark calls it for all that has Arrow in it
    "pytest-asyncio": ("pyproject.toml", "asyncio_mode"),
    "pytest-xdist": ("Makefile", "$(BIN)/pytest -q -n $(WORKERS)"),
    "ruff": ("Makefile", "$(BIN)/ruff"),
}
"""Packages that nobody imports, and where we call them, or what calls them for us."""


def wanted(project: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """Return the packages of each extra, those that are always needed under ``always``."""
    table = project or tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {"always": table["dependencies"], **table["optional-dependencies"]}
    return {extra: [re.split(r"[^A-Za-z0-9-]", one)[0].lower() for one in packages] for extra, packages in named.items()}


def imported(trees: Iterable[ast.Module]) -> set[str]:
    """Return every module that is imported, and those that it is in."""
    found = {module for tree in trees for node in ast.walk(tree) for module in imported_modules(node)}
    return {".".join(parts[:end]) for module in found for parts in [module.split(".")] for end in range(1, len(parts) + 1)}


def dead(extras: Mapping[str, list[str]], modules: set[str]) -> list[str]:
    """Name every package, with its extra, that is neither imported nor called."""
    return [
        f"{extra}: {package}"
        for extra, packages in extras.items()
        for package in packages
        if package != "thence" and package not in CALLED and MODULES.get(package, package) not in modules
    ]


def test_every_package_of_an_extra_is_used() -> None:
    extras = wanted()
    code = imported(parse(path) for path in python_files("src", "benchmarks", "examples"))
    tests = imported(parse(path) for path in python_files("tests"))
    assert dead({name: packages for name, packages in extras.items() if name != "dev"}, code) == []
    assert dead({"dev": extras["dev"]}, code | tests) == []


def test_every_tool_is_called_where_it_is_said() -> None:
    assert [tool for tool, (file, words) in CALLED.items() if words not in (ROOT / file).read_text(encoding="utf-8")] == []
    named = {package for packages in wanted().values() for package in packages}
    assert sorted((CALLED.keys() | MODULES.keys()) - named) == [], "these are no longer named: take them off the lists"


def test_a_dead_package_is_noticed() -> None:
    extras = wanted({"dependencies": ["numpy>=2"], "optional-dependencies": {"web": ["starlette>=0.40", "thence[report]"]}})
    assert extras == {"always": ["numpy"], "web": ["starlette", "thence"]}
    assert dead(extras, imported([ast.parse("import numpy.linalg")])) == ["web: starlette"]
    assert dead({"otel": ["opentelemetry-sdk"]}, imported([ast.parse("from opentelemetry import trace")])) == [
        "otel: opentelemetry-sdk"
    ]
