"""Mistakes for the claims of domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import structs

from tests.papers import test_domains, test_domains_agents
from tests.papers.costs import test_domains_growth
from tests.papers.mistakes.mistake import Mistake, instead
from tests.support.planted import planted_fabric, planted_stamps
from tests.support.planted.planted_orderings import OwnNewsClock, PrintedClock
from thence.core.member.contract import Input, Ready, Submit, SubmitAll
from thence.core.ordering import matrix
from thence.core.ordering.matrix_clock import MatrixStamp, UpdatesMatrix
from thence.core.ordering.matrix_entries import PackedMatrixStamp
from thence.core.topology.model import Topology
from thence.node import node
from thence.node.driver.driver import Driver
from thence.node.messages.intake import Intake
from thence.storage.journal import Written
from thence.studies.parts import layouts
from thence.studies.parts.figures import domains_fig2
from thence.studies.parts.shapes import bus


class EverythingClock(UpdatesMatrix):
    """Every stamp holds all that is known, as if nothing had been sent before."""

    def stamp_for(self, column: int) -> MatrixStamp | PackedMatrixStamp:
        self._positions[column] = 0
        return super().stamp_for(column)


class OwnRowClock(OwnNewsClock):
    """Tells what it sent itself and nothing of what it heard from others, however much that is."""

    def stamp_for(self, column: int) -> Any:
        return MatrixStamp(self.value(self._me, column), self.updates_for(column))


_even = layouts.even


def _two_domains(levels: int, servers: int, **options: Any) -> Topology:
    """A bus has two domains, however many servers there are."""
    groups = layouts.shares(layouts.names_of(servers), 2)
    return layouts.levels("bus", groups, (), **options) if levels == 2 else _even(levels, servers, **options)


def _all_on_top(levels: int, servers: int, **options: Any) -> Topology:
    """The domain of the relays holds all servers."""
    return _even(1 if levels == 2 else levels, servers, **options)


_tree = layouts.tree


def _chain(servers: int, size: int, _: int, **options: Any) -> Topology:
    """Each domain of a tree has one domain below it."""
    return _tree(servers, size, 1, **options)


def _in_two_entries(self: Intake, submits: list[Submit], record: Written, then: Callable[[], None] | None) -> None:
    """What an agent sends is stored first, and what it has become when that is durable."""
    if not submits:
        self.driver.write([record], then)
        return
    self.submitted.extend([None] * len(submits))
    self.driver.step(SubmitAll(tuple(submits)), (), lambda: self.driver.write([record], then))


class DoesItAtOnce(Driver):
    """What follows from a step does not wait until its records are durable."""

    def _store(self, step_input: Input, ready: Ready, also: Sequence[Written]) -> None:
        self._perform(ready)
        super()._store(step_input, structs.replace(ready, send=(), accepted=(), deliver=(), stable=0, safe=0), also)


MISTAKES: Final[tuple[Mistake, ...]] = (
    Mistake(
        "M1",
        "relays forward on arrival",
        partial(planted_fabric.in_place, planted_fabric.ForwardsOnArrival),
        test_domains.test_m1_traffic_over_the_figures_is_causal,
        {"shape": "domains-fig2", "pattern": "unicast"},
    ),
    Mistake(
        "M2",
        "cycles are not found",
        instead(Topology, "find_cycle", lambda *_: None),
        test_domains.test_m2_refused_exactly_when_a_run_breaks_causal_order,
        {"choice": ((0, 1), (0, 2), (1, 2))},
    ),
    Mistake(
        "M2",
        "a domain inside another is taken for a cycle",
        instead(Topology, "inner", {}),
        test_domains.test_m2_there_are_so_many_topologies,
    ),
    Mistake(
        "M3",
        "the position moves before the entries are selected",
        instead(matrix, "UpdatesMatrix", PrintedClock),
        test_domains.test_m3_updates_deliver_as_full_matrices_and_cost_less,
        {"shape": domains_fig2(), "times": 1},
    ),
    Mistake(
        "M3",
        "every stamp holds all that is known",
        instead(matrix, "UpdatesMatrix", EverythingClock),
        test_domains.test_m3_updates_deliver_as_full_matrices_and_cost_less,
        {"shape": bus(6, 6), "times": 8},
    ),
    Mistake(
        "M4",
        "a reaction is stored in two parts",
        instead(Intake, "write_together", _in_two_entries),
        test_domains_agents.test_m4_a_reaction_is_atomic_wherever_its_server_ends,
    ),
    Mistake(
        "M5",
        "what follows from a step does not wait for the disk",
        instead(node, "Driver", DoesItAtOnce),
        test_domains_agents.test_m5_nothing_is_sent_before_it_is_saved,
    ),
    Mistake(
        "M5",
        "what follows from a step does not wait for the disk, acks included",
        instead(node, "Driver", DoesItAtOnce),
        test_domains_agents.test_m5_nothing_is_acknowledged_before_it_is_saved,
    ),
    Mistake(
        "M6",
        "a stamp holds a row more than there are members",
        planted_stamps.a_row_more,
        test_domains_growth.test_m6_without_domains_whole_matrices_grow_with_the_square,
        {"pattern": "unicast"},
    ),
    Mistake(
        "M6",
        "nobody tells what it heard from others",
        instead(matrix, "UpdatesMatrix", OwnRowClock),
        test_domains_growth.test_m6_so_do_updates_where_everybody_writes_to_everybody,
    ),
    Mistake(
        "M7",
        "a bus has two domains, however many servers there are",
        instead(layouts, "even", _two_domains),
        test_domains_growth.test_m7_so_do_updates,
    ),
    Mistake(
        "M7",
        "a stamp holds a row more than there are members",
        planted_stamps.a_row_more,
        test_domains_growth.test_m7_with_domains_on_a_bus_whole_matrices_grow_with_the_servers,
    ),
    Mistake(
        "M8",
        "each domain of a tree has one below it",
        instead(layouts, "tree", _chain),
        test_domains_growth.test_m8_in_a_tree_of_fixed_domains_it_grows_with_the_logarithm,
    ),
    Mistake(
        "M10",
        "every stamp holds all that is known",
        instead(matrix, "UpdatesMatrix", EverythingClock),
        test_domains_growth.test_m10_domains_with_updates_reduce_stamps_and_state,
        {"shape": "bus"},
    ),
    Mistake(
        "M11",
        "the domain of the relays holds all servers",
        instead(layouts, "even", _all_on_top),
        test_domains_growth.test_m11_domains_write_less_to_disks_and_keep_less,
        {"stamps": "full"},
    ),
)
