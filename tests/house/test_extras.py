"""No dead dependency: what pyproject.toml names, in an extra or always, is imported by our code or called by our tools."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tests.house.tree import ROOT, imported_modules, parse, python_files

MODULES: Final = {
    "aio-pika": "aio_pika",
    "nats-py": "nats",
    "opentelemetry-api": "opentelemetry",
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
    "pandas": ("src/thence/pipeline/source.py", "from pyspark.sql.pandas"),  # pyspark calls it for whatever has Arrow in it
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
