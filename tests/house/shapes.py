"""Measures of classes and packages: methods and attributes with what is inherited, depth, doubled names, files in a folder."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).resolve().parents[2] / "src" / "thence"

MAX_METHODS: Final = 25
MAX_ATTRIBUTES: Final = 20
MAX_DEPTH: Final = 2
MAX_FILES: Final = 15


class Shape(NamedTuple):
    """One class by itself: what it adds to its bases."""

    methods: frozenset[str]
    attributes: frozenset[str]
    bases: tuple[str, ...]
    data: bool
    """Whether it only holds values, as a struct, a tuple or a dictionary with named fields does."""


VALUES: Final = frozenset({"NamedTuple", "TypedDict", "Struct", "Exception", "StrEnum", "Enum"})


def shape_of(node: ast.ClassDef) -> Shape:
    """Return the methods, attributes and bases that a class states."""
    methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    attributes = {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    for one in ast.walk(node):
        targets = (
            one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AnnAssign | ast.AugAssign) else []
        )
        attributes |= {
            target.attr
            for target in targets
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
        }
    bases = tuple(ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases)
    return Shape(frozenset(methods), frozenset(attributes), bases, bool(VALUES & set(bases)))


def classes(trees: Mapping[str, ast.Module]) -> dict[str, dict[str, Shape]]:
    """Return every class by its name, and under that by the file it is in."""
    found: defaultdict[str, dict[str, Shape]] = defaultdict(dict)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name][name] = shape_of(node)
    return dict(found)


def whole(name: str, known: Mapping[str, dict[str, Shape]], file: str) -> tuple[set[str], set[str], int, bool]:
    """Return all methods and attributes of a class, how deep it inherits from ours, and whether it only holds values."""
    shape = known[name].get(file) or next(iter(known[name].values()))
    methods, attributes, depth, data = set(shape.methods), set(shape.attributes), 1, shape.data
    for base in shape.bases:
        if base in known and base != name:
            more, further, below, holds = whole(base, known, file)
            methods, attributes, depth, data = methods | more, attributes | further, max(depth, below + 1), data or holds
    return methods, attributes, depth, data


def large(known: Mapping[str, dict[str, Shape]]) -> Iterator[tuple[str, int, int, int]]:
    """Give each class beyond a limit with its methods, attributes and depth. Classes that only hold values are left out."""
    for name, places in sorted(known.items()):
        for file in sorted(places):
            methods, attributes, depth, data = whole(name, known, file)
            if not data and (len(methods) > MAX_METHODS or len(attributes) > MAX_ATTRIBUTES or depth > MAX_DEPTH):
                yield f"{file}:{name}", len(methods), len(attributes), depth


def doubled(known: Mapping[str, dict[str, Shape]]) -> dict[str, int]:
    """Return the public class names that exist more than once, and how often."""
    return {name: len(places) for name, places in sorted(known.items()) if len(places) > 1 and not name.startswith("_")}


def crowded(files: Mapping[str, int]) -> dict[str, int]:
    """Return the packages with more files than a reader takes in at one look."""
    return {name: count for name, count in sorted(files.items()) if count > MAX_FILES}


def source() -> dict[str, ast.Module]:
    """Return the parsed files of the package."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))
    }


def files_of_packages() -> dict[str, int]:
    """Return how many files each package has directly in it."""
    return {
        path.parent.relative_to(SOURCE.parent).as_posix(): len(list(path.parent.glob("*.py")))
        for path in SOURCE.rglob("__init__.py")
    }
