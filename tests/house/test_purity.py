"""The core is pure: no sockets, files, clocks, chance, threads or async, and nothing that differs between two processes."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

import pytest

from tests.house.tree import SOURCE, imported_modules, name_of, parse

CORE = SOURCE / "core"

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
