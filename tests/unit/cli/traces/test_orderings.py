"""``thence orderings``: all of the registry, with what each promises."""

from __future__ import annotations

import json

from tests.unit.cli import run
from thence.core.ordering import ORDERINGS, ArrivalOrder

NARROWEST_TERMINAL_COLUMNS = 80


def test_every_ordering_is_listed_with_what_it_keeps() -> None:
    ended = run("orderings")
    assert ended.code == 0
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.strip() and line.split()[0] in ORDERINGS}
    assert list(rows) == list(ORDERINGS)
    for name, row in rows.items():
        kept = row.split("any" if ORDERINGS[name].traits.arrival is ArrivalOrder.ANY else "FIFO")[0].split()[1:]
        assert {word.strip(",") for word in kept} - {"nothing"} == ORDERINGS[name].traits.guarantees
    assert "nothing" in rows["unordered"]


def test_json_says_the_same() -> None:
    ended = run("orderings", "--json")
    assert ended.code == 0
    listed = json.loads(ended.out)
    assert list(listed) == list(ORDERINGS)
    assert {name: set(told["guarantees"]) for name, told in listed.items()} == {
        name: set(ordering.traits.guarantees) for name, ordering in ORDERINGS.items()
    }
    assert [name for name, told in listed.items() if told["needs_fifo_channels"]] == ["clocked", "flood"]
    assert listed["matrix"]["options"] == ["stamps"]
    assert listed["sequenced"]["options"] == ["coordinator"]
