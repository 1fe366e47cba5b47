"""No class and no package of ours is too large to read, no public class name exists twice, but for those listed.

Each rule is first shown a planted offender. A list below may only become shorter: a row that is no longer needed fails the test.
"""

from __future__ import annotations

import ast

import pytest

from tests.house.shapes import Shape, classes, crowded, doubled, files_of_packages, large, source

Classes = dict[str, dict[str, Shape]]

LARGE = {
    # The API of programs: its parts do the work, its names are released, and no group of them is a thing of its own.
    "client/client.py:Client": (39, 9, 2),
    "client/endpoint.py:Endpoint": (27, 5, 1),  # As for ``Client``.
    # Wrong protocols that studies count with: ``Grouped`` with one of its rules replaced, and nothing else.
    "studies/parts/gateway_clocks.py:GatewayClock": (24, 10, 3),
    "studies/parts/gateway_clocks.py:MergedVectors": (24, 10, 3),
    "client/embedded.py:Member": (30, 9, 2),  # As for ``Client``.
}
"""Classes beyond a limit: methods, attributes and depth at most."""

TWICE = {
    "Member": 2,  # ``thence.Member`` is released, and ``member.step`` is the name of the contract.
}
"""Class names that exist more than once, and how often at most."""

CROWDED: dict[str, int] = {}
"""Packages with too many files, and how many at most."""


@pytest.fixture(scope="module")
def known() -> Classes:
    """Return the classes of the package."""
    return classes(source())


def test_no_class_is_larger_than_it_was_and_no_other_one_is_large(known: Classes) -> None:
    found = {name: tuple(sizes) for name, *sizes in large(known)}
    grown = [
        name
        for name, sizes in found.items()
        if any(is_ > most for is_, most in zip(sizes, LARGE.get(name, (0, 0, 0)), strict=True))
    ]
    assert grown == []
    assert sorted(LARGE.keys() - found.keys()) == [], "these are small enough now: take them off the list"


def test_no_class_name_exists_twice_that_did_not(known: Classes) -> None:
    found = doubled(known)
    assert [name for name, count in found.items() if count > TWICE.get(name, 1)] == []
    assert sorted(TWICE.keys() - found.keys()) == [], "these exist once now: take them off the list"


def test_no_package_has_more_files_than_one_can_look_at() -> None:
    found = crowded(files_of_packages())
    assert [name for name, count in found.items() if count > CROWDED.get(name, 0)] == []
    assert sorted(CROWDED.keys() - found.keys()) == [], "these are small enough now: take them off the list"


def planted(methods: int = 1, attributes: int = 1, bases: str = "") -> str:
    """Return the text of a class of this size."""
    body = "".join(f"    def m{number}(self): self.a{number % attributes} = 1\n" for number in range(max(methods, attributes)))
    return f"class Planted({bases}):\n{body}"


def found_in(text: str) -> list[tuple[str, int, int, int]]:
    """Return the large classes of a file with this text."""
    return list(large(classes({"planted.py": ast.parse(text)})))


def test_a_large_class_is_noticed() -> None:
    assert found_in(planted(25, 20)) == []
    assert found_in(planted(26)) == [("planted.py:Planted", 26, 1, 1)]
    assert found_in(planted(21, 21)) == [("planted.py:Planted", 21, 21, 1)]


def test_what_is_inherited_counts() -> None:
    text = "class Base:\n" + "".join(f"    def b{number}(self): ...\n" for number in range(20)) + planted(10, 1, "Base")
    assert found_in(text) == [("planted.py:Planted", 30, 1, 2)]
    deep = "class A: ...\nclass B(A): ...\nclass C(B): ...\n"
    assert found_in(deep) == [("planted.py:C", 0, 0, 3)]


def test_a_name_that_exists_twice_is_noticed() -> None:
    one = ast.parse("class Same: ...\nclass _Private: ...")
    assert doubled(classes({"a.py": one, "b.py": one})) == {"Same": 2}


def test_a_crowded_package_is_noticed() -> None:
    assert crowded({"thence/a": 15, "thence/b": 16}) == {"thence/b": 16}
