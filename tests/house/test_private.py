"""Tests use what is public; where they still reach into private state, the file is listed with how often it does at most.

A test may reach into itself and into what it derives from: ``self._x``, ``cls._x`` and ``super()._x`` are not counted. The list
may only become shorter: a file that no longer needs its row fails the test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import name_of, parse, python_files

LISTED = {
    "tests/conformance/test_waiting.py": 2,
    "tests/integration/clients/test_clients.py": 3,
    "tests/integration/faults/test_epochs_embedded.py": 2,
    "tests/integration/faults/test_faults.py": 3,
    "tests/integration/clients/test_fencing.py": 4,
    "tests/integration/clients/test_leaving.py": 7,
    "tests/integration/clients/test_members.py": 6,
    "tests/integration/changes/test_reconfiguration.py": 1,
    "tests/integration/clients/test_spans.py": 1,
    "tests/pipeline/following/test_following_spark.py": 1,
    "tests/support/planted/planted_routes.py": 1,
    "tests/support/planted/planted_takeover.py": 1,
    "tests/support/campaigns/crash_clients.py": 1,
}
"""Files that still reach into private state, and how often at most."""

PUBLIC = frozenset({"_asdict", "_exit", "_fields", "_make", "_replace"})
"""What named tuples and ``os`` call so, though it is public."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def reaches(tree: ast.Module) -> Iterator[str]:
    """Yield ``line: name`` for each private name of something else that a module uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")) | ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield f"{node.lineno}: {name}"
            case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "thence":
                yield from (f"{node.lineno}: {one.name}" for one in names if is_private(one.name))
            case _:
                pass


def test_no_test_reaches_into_more_private_state() -> None:
    found = {name_of(path): list(reaches(parse(path))) for path in python_files("tests")}
    more = {name: places for name, places in found.items() if len(places) > LISTED.get(name, 0)}
    assert more == {}
    assert sorted(name for name in LISTED if not found.get(name)) == [], "these no longer do: take them off the list"


def test_a_reach_into_private_state_is_noticed() -> None:
    planted = "from thence.sim.laws import _LAWS\nserver._clients\nnode.peers._all[0]\nassert Stage()._commands"
    assert list(reaches(ast.parse(planted))) == ["1: _LAWS", "2: _clients", "4: _commands", "3: _all"]


def test_what_is_public_or_ones_own_is_not() -> None:
    planted = "self._x\nsuper()._x()\nrow._replace(a=1)\nx.__class__\nfrom tests.support import _y\n_local = 1"
    assert list(reaches(ast.parse(planted))) == []
