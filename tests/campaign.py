"""The long campaign: many thousands of random runs of every ordering and of random fabrics, and long searches of the explorer.

``make campaign`` makes 100,000 runs of each kind, searches every case that takes too long for each test run, and reports. CI
does a few thousand through ``tests/properties``, with the same code. A run that breaks something prints the one command that
repeats it, and the campaign then ends with 1.

    python -m tests.campaign --kind orderings --runs 100000 --first 0 --workers 2
    python -m tests.campaign --kind fabrics --runs 1000
    python -m tests.campaign --kind changes --runs 1000
    python -m tests.campaign --kind removals --runs 1000
    python -m tests.campaign --kind survivors --runs 1000
    python -m tests.campaign --kind rollbacks --runs 1000
    python -m tests.campaign --kind explorer
    python -m tests.campaign --kind servers --seconds 600 --seed 0
    python -m tests.campaign --kind copies --seconds 600 --seed 0
    python -m tests.campaign --kind agents --seconds 600 --seed 0
    python -m tests.campaign --kind hostile --seconds 600 --seed 0

The last four crash real servers (``tests/support/campaigns/crashes.py`` and ``agent_crashes.py``), put them on old copies of
their stores (``crash_copies.py``) or attack them (``hostile.py``), in rounds of ``ROUND_S`` seconds, or ``COPIES_S``, with a
seed each.

The explorer's cases are ``CAMPAIGN_CASES`` in ``tests/support/explorer_cases.py`` and whatever a module of ``tests/papers`` calls
``CAMPAIGN``: a list of cases, or, where the module has a ``main`` of its own, whatever that makes of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from random import Random
from types import ModuleType
from typing import Any, Final, NamedTuple, Protocol

from rich.progress import Progress

from tests.support import evolving, explorer_cases, fabrics
from tests.support.campaigns import agent_crashes, crash_copies, crashes, hostile
from tests.support.crashes import copied, surviving
from thence.core.ordering import ORDERINGS
from thence.sim.options import SimulationOptions
from thence.sim.search.explorer import Case, explore
from thence.sim.simulation import simulate
from thence.trace.judge import judge

ALWAYS = frozenset({"well-formed", "creation", "duplication", "completeness"})
CHUNK = 50
ROUND_S = 60.0
"""How long the faults of one round last, in a campaign with servers."""
COPIES_S = 12.0
"""The same, where one server goes back to an old copy of its store."""


class Outcome(NamedTuple):
    """What one run came to."""

    ordering: str
    messages: int
    deliveries: int
    faults: Counter[str]
    broken: dict[str, int]
    replay: str


def options_for(seed: int) -> SimulationOptions:
    """Return the options of run number ``seed``: everything about it is drawn from the number."""
    chance = Random(f"campaign/{seed}")
    ordering = sorted(ORDERINGS)[seed % len(ORDERINGS)]
    processes = chance.randint(2, 7)
    faulty = chance.random() < 0.7
    return SimulationOptions(
        ordering=ordering,
        ordering_options=_variant(ordering, processes, chance),
        processes=processes,
        messages=chance.randint(1, 40),
        pattern=chance.choice(("broadcast", "unicast", "multicast")),
        recipients=chance.randint(1, 3),
        body_bytes=chance.choice((0, 10, 100)),
        gap=chance.choice(("exponential:1ms", "exponential:10ms", "constant:3ms", "exponential:100ms")),
        replies=chance.choice((0.0, 0.5, 0.9)),
        delay=chance.choice(("exponential:10ms", "uniform:1ms..80ms", "pareto:3ms,1.3", "constant:5ms")),
        bandwidth_bytes_per_s=chance.choice((None, None, 50_000)),
        loss=chance.choice((0.0, 0.05, 0.3)) if faulty else 0.0,
        duplication=chance.choice((0.0, 0.1, 0.5)) if faulty else 0.0,
        reordering=chance.choice((0.0, 0.2)) if faulty else 0.0,
        partitions=chance.choice((0, 0, 1, 2)) if faulty else 0,
        crashes=chance.choice((0, 0, 1, 4)) if faulty else 0,
        sync=chance.choice(("constant:100us", "exponential:5ms")),
        seed=seed,
    )


def _variant(ordering: str, processes: int, chance: Random) -> dict[str, Any]:
    if ordering in ("vector", "matrix") and chance.random() < 0.3:
        return {"stamps": "full"}
    if ordering == "flood":
        return {"links": chance.choice(("full", "ring"))}
    if ordering == "sequenced":
        return {"coordinator": f"p{chance.randint(1, processes)}"}
    return {}


def run_one(seed: int) -> Outcome:
    """Simulate and judge one run."""
    options = options_for(seed)
    result, events = simulate(options)
    verdict = judge(events, ALWAYS | ORDERINGS[options.ordering].traits.guarantees)
    broken = {name: count for name, count in verdict.properties.items() if count}
    if result.waiting:
        broken["still waiting"] = result.waiting
    if result.statistics.repeated_deliveries:
        broken["repeated deliveries"] = result.statistics.repeated_deliveries
    faults = Counter({name: result.network[name] for name in ("lost", "duplicated", "reordered", "cut")})
    faults["crashes"] = result.statistics.crashes
    return Outcome(options.ordering, options.messages, result.statistics.deliveries, faults, broken, options.replay())


def run_many(seeds: Iterable[int]) -> list[Outcome]:
    """Run some, one after the other."""
    return [run_one(seed) for seed in seeds]


KINDS: Final = (
    "orderings",
    "fabrics",
    "changes",
    "removals",
    "survivors",
    "rollbacks",
    "explorer",
    "servers",
    "copies",
    "agents",
    "hostile",
)


class Run(Protocol):
    """What the report needs to know of a run, of whatever kind."""

    @property
    def messages(self) -> int: ...
    @property
    def deliveries(self) -> int: ...
    @property
    def faults(self) -> Counter[str]: ...
    @property
    def broken(self) -> Collection[str]: ...
    @property
    def replay(self) -> str: ...


def campaign_papers() -> list[ModuleType]:
    """Return the modules of ``tests/papers`` that have something for a campaign."""
    papers = find_spec("tests.papers")
    if papers is None:
        return []
    names = [module.name for module in iter_modules(papers.submodule_search_locations)]
    return [module for name in names if hasattr(module := import_module(f"tests.papers.{name}"), "CAMPAIGN")]


def campaign_cases() -> list[Case]:
    """Return every case that the explorer searches in a campaign."""
    cases = [case for module in campaign_papers() if not hasattr(module, "main") for case in module.CAMPAIGN]
    return [*explorer_cases.CAMPAIGN_CASES, *explorer_cases.TAKEOVER_CAMPAIGN_CASES.values(), *cases]


def run_paper(name: str) -> tuple[str, int]:
    """Run the campaign that a module has for itself; return whether it complained."""
    return name, import_module(name).main()


def search(case: Case) -> tuple[Case, int, str]:
    """Explore one case; return how many steps it took and what was found, if anything."""
    found = explore(case)
    return case, found.steps, "" if found.broken is None else f"{found.broken}, by {found.actions}"


def describe(case: Case) -> str:
    """Name a case, for the report."""
    if len(case.topology.domains) == 1:
        return explorer_cases.label(case)
    faults = "".join(f"-{fault.fault.value}" for fault in case.faults if fault.fault)
    return f"{case.topology.name}-{case.pattern}-{case.messages}{faults}"


class Failed(NamedTuple):
    """A run that ended by an error, which is as bad as a broken promise."""

    title: str
    seed: int
    error: str
    messages: int = 0
    deliveries: int = 0

    @property
    def faults(self) -> Counter[str]:
        return Counter()

    @property
    def broken(self) -> list[str]:
        return [self.error]

    @property
    def replay(self) -> str:
        return f"python -m tests.campaign --kind {self.title} --first {self.seed} --runs 1"


def run_chunk(title: str, run: Callable[[Iterable[int]], Sequence[Run]], seeds: Iterable[int]) -> list[Run]:
    """Make some runs, one after the other; an error in one does not stop the others."""
    outcomes: list[Run] = []
    for seed in seeds:
        try:
            outcomes += run((seed,))
        except Exception as error:  # noqa: BLE001  Whatever it is, it is told together with the number of its run.
            outcomes.append(Failed(title, seed, f"{type(error).__name__}: {error}"))
    return outcomes


def _in_chunks(
    pool: Executor, title: str, run: Callable[[Iterable[int]], Sequence[Run]], first: int, count: int
) -> Iterator[Run]:
    chunks = [range(at, min(at + CHUNK, first + count)) for at in range(first, first + count, CHUNK)]
    for outcomes in pool.map(partial(run_chunk, title, run), chunks):
        yield from outcomes


def run_random(
    title: str, run: Callable[[Iterable[int]], Sequence[Run]], kind: Callable[[Any], str], arguments: argparse.Namespace
) -> int:
    """Make random runs of one kind, report, and return how many broke a promise."""
    began = time.monotonic()
    kinds: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    broken = 0
    with ProcessPoolExecutor(arguments.workers) as pool, Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=arguments.runs)
        for outcome in _in_chunks(pool, title, run, arguments.first, arguments.runs):
            kinds["ended by an error" if isinstance(outcome, Failed) else kind(outcome)] += 1
            totals.update(messages=outcome.messages, deliveries=outcome.deliveries)
            faults.update(outcome.faults)
            if outcome.broken:
                broken += 1
                print(f"BROKEN {outcome.broken}: {outcome.replay}", flush=True)
            bar.advance(task)
    seconds = time.monotonic() - began
    print(f"{title}: {sum(kinds.values()):,} runs in {seconds:,.0f} s: " + _listed(kinds))
    print(f"  sent {totals['messages']:,} messages, delivered {totals['deliveries']:,}")
    print("  faults: " + _listed(faults))
    print(f"  runs that broke a promise: {broken}", flush=True)
    return broken


def run_explorer(arguments: argparse.Namespace) -> int:
    """Search every case of the campaign, report, and return in how many something was found."""
    began = time.monotonic()
    cases = campaign_cases()
    own = [module.__name__ for module in campaign_papers() if hasattr(module, "main")]
    steps = broken = 0
    with ProcessPoolExecutor(arguments.workers) as pool, Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("explorer", total=len(cases) + len(own))
        for case, taken, found in pool.map(search, cases):
            steps += taken
            print(f"  {describe(case)}: {taken:,} steps, {found or 'nothing found'}", flush=True)
            broken += bool(found)
            bar.advance(task)
        for name, complained in pool.map(run_paper, own):
            print(f"  {name}: {'FAILED' if complained else 'agrees'}", flush=True)
            broken += bool(complained)
            bar.advance(task)
    print(f"explorer: {len(cases)} cases and {len(own)} modules, {steps:,} steps in {time.monotonic() - began:,.0f} s")
    print(f"  cases that broke a promise: {broken}", flush=True)
    return broken


def run_rounds(title: str, rounds_of: Any, counted: str, arguments: argparse.Namespace, round_s: float = ROUND_S) -> int:
    """Crash running servers in one round after the other, report, and return how many rounds broke a promise.

    ``rounds_of`` is the module that makes a round, and ``counted`` what of its counts is told of each.
    """
    began = time.monotonic()
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    broken = rounds = 0
    left = arguments.seconds
    with Progress(disable=not sys.stderr.isatty(), auto_refresh=False) as bar:  # No thread: rounds start processes.
        task = bar.add_task(title, total=left)
        while left > 0:
            more = {"small": arguments.small} if rounds_of is crashes else {}
            options = rounds_of.Options(seed=arguments.seed + rounds, fault_s=min(round_s, left), **more)
            outcome = rounds_of.run_once(options)
            took_s = outcome.seconds if rounds_of is crash_copies else options.fault_s  # There, most of it is waiting.
            left -= took_s
            bar.update(task, advance=took_s, refresh=True)
            rounds += 1
            counts.update(outcome.counts)
            faults.update(outcome.faults)
            if outcome.wrong:
                broken += 1
                print(f"BROKEN: {rounds_of.replay(options)}\n  kept in {outcome.folder}", flush=True)
                for what in outcome.wrong[: crashes.MAX_WRONG_TOLD]:
                    print(f"  {what}", flush=True)
            took = f"{outcome.seconds:.0f} s, of these {outcome.healing_s:.0f} s to heal"
            done, wrong = outcome.counts[counted], len(outcome.wrong)
            print(f"  round {options.seed}: {took}, {done:,} {counted}, {wrong} wrong: {rounds_of.replay(options)}", flush=True)
            if outcome.never:
                print(f"    never happened in this round: {', '.join(outcome.never)}", flush=True)
    print(f"{title}: {rounds} rounds in {time.monotonic() - began:,.0f} s: " + _listed(counts))
    print("  faults: " + _listed(faults))
    print(f"  rounds that broke a promise: {broken}", flush=True)
    return broken


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def main() -> int:
    """Run the campaign and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=(*KINDS, "all"), default="all")
    parser.add_argument("--runs", type=int, default=100_000, help="random runs of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first run's number")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=1_800, help="how long servers have faults, in all; for copies, how long rounds take"
    )
    parser.add_argument("--small", action="store_true", help="crash five servers, not twelve, and no fault for long")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the first round with servers")
    arguments = parser.parse_args()
    broken = 0
    if arguments.kind in ("orderings", "all"):
        broken += run_random("orderings", run_many, lambda outcome: outcome.ordering, arguments)
    if arguments.kind in ("fabrics", "all"):
        broken += run_random("fabrics", fabrics.run_many, lambda outcome: outcome.kind, arguments)
    if arguments.kind in ("changes", "all"):
        broken += run_random("changes", evolving.run_many, lambda outcome: f"{len(outcome.done)} changes", arguments)
    if arguments.kind in ("removals", "all"):
        broken += run_random("removals", evolving.run_many_losing, lambda outcome: f"{len(outcome.done)} changes", arguments)
    if arguments.kind in ("survivors", "all"):
        broken += run_random("survivors", surviving.run_many, lambda outcome: f"{len(outcome.done)} changes", arguments)
    if arguments.kind in ("rollbacks", "all"):
        broken += run_random("rollbacks", copied.run_many, lambda outcome: outcome.ordering, arguments)
    if arguments.kind in ("explorer", "all"):
        broken += run_explorer(arguments)
    if arguments.kind in ("servers", "all"):
        broken += run_rounds("servers", crashes, "accepted", arguments)
    if arguments.kind in ("copies", "all"):
        broken += run_rounds("copies", crash_copies, "accepted", arguments, COPIES_S)
    if arguments.kind in ("agents", "all"):
        broken += run_rounds("agents", agent_crashes, "moves", arguments)
    if arguments.kind in ("hostile", "all"):
        broken += run_rounds("hostile", hostile, "accepted", arguments)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
