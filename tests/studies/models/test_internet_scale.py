"""The model of internet-scale: what is calculated against what is simulated, and the figures of memory against real ones."""

from __future__ import annotations

import math
import tomllib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import thence
from thence.core.ordering.matrix_clock import UpdatesMatrix
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope
from thence.node.directory.directory import Directory
from thence.storage.bodies import Joined, write_body
from thence.studies.models import internet_scale as model
from thence.studies.parts import layouts
from thence.trace.events import Event
from thence.trace.judge import judge

FILE = Path(thence.__file__).parent / "studies" / "catalogue" / "internet-scale.toml"
PARAMETERS: dict[str, Any] = tomllib.loads(FILE.read_text(encoding="utf-8"))["parameters"]
COUNTED = 3_000
"""How many clients or entries are made to weigh them."""


def point(levels: int, servers: int, **changes: Any) -> dict[str, Any]:
    return {**PARAMETERS, "messages": 40, "ways": 2_000, "levels": levels, "servers": servers, **changes}


def weight(make: Callable[[], object]) -> float:
    """Return how many bytes it takes to keep what is made."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = make()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return float(after - before)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_runs_are_causal_and_the_same_for_the_same_seed(levels: int) -> None:
    events: list[Event] = []
    measures = model.run(point(levels, 100), 3, events.append)
    assert judge(events).kept
    again: list[Event] = []
    assert repr(measures) == repr(model.run(point(levels, 100), 3, again.append))
    assert events == again


@pytest.mark.parametrize(("levels", "servers"), [(1, 400), (2, 400), (3, 1_000), (4, 1_296)])
def test_hops_and_the_load_of_the_busiest_are_as_calculated(levels: int, servers: int) -> None:
    measures = model.run(point(levels, servers), 1, lambda _: None)
    assert measures["hops"] == pytest.approx(measures["formula_hops"], rel=0.04)
    assert measures["busiest_share"] == pytest.approx(measures["formula_busiest"], rel=0.1)


def test_the_formula_of_two_levels_by_hand() -> None:
    # Ten groups of ten: one end in the group and one outside, and a relay's own messages inside.
    assert model.busiest_share([0.1], 100) == pytest.approx(2 * 0.1 * 0.9 + 2 * 0.1 / 100)
    assert model.hops(1, 100) == 1


def test_beyond_what_is_simulated_only_formulas_are_given() -> None:
    measures = model.run(point(3, 100_000), 1, lambda _: None)
    assert {name for name, value in measures.items() if math.isnan(value)} == set(model.SIMULATED)


def test_a_client_weighs_what_the_study_says() -> None:
    servers = [f"s{number}" for number in range(10)]

    def fill(server: str) -> Callable[[], Directory]:
        notices = [
            Envelope(server, number + 1, None, write_body(Joined(f"client-{number:07d}", server, False)))
            for number in range(COUNTED)
        ]

        def make() -> Directory:
            directory = Directory("s0", servers)
            for notice in notices:
                directory.deliver(notice)
            return directory

        return make

    elsewhere, here = weight(fill("s1")) / COUNTED, weight(fill("s0")) / COUNTED
    assert elsewhere == pytest.approx(PARAMETERS["directory_entry_bytes"], rel=0.25)
    assert here - elsewhere == pytest.approx(PARAMETERS["box_bytes"], rel=0.25)


def test_an_entry_of_a_clock_weighs_what_the_study_says() -> None:
    def make() -> UpdatesMatrix:
        # So many members that few entries are above 0: where many are, one takes less (``core.ordering.matrix_entries``).
        clock = UpdatesMatrix([f"m{number}" for number in range(2_000)], 0)
        for key in range(300, 300 + 10 * COUNTED):
            clock.learn((key, 300 + key % 7), 1)
        return clock

    assert weight(make) / (10 * COUNTED) == pytest.approx(PARAMETERS["clock_entry_bytes"], rel=0.25)


def test_an_entry_of_a_routing_table_weighs_what_the_study_says() -> None:
    topology = layouts.even(3, 1_000)
    names = topology.processes
    routes = Routes(topology)

    def make() -> None:
        for target in names[:500]:
            routes.path(names[-1], target)

    weighed = weight(make)
    entries = sum(len(table) for table in routes.tables.values())
    assert entries > 50 * len(topology.domains)
    assert weighed / entries == pytest.approx(PARAMETERS["route_entry_bytes"], rel=0.3)
