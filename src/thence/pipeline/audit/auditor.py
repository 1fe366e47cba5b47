"""The audit: the judge's questions, asked of a trace that no machine can hold.

The steps, each a Spark job over slices (see docs/how-to/audit.md for why it is right):

1. **survey**: look at a few columns, and plan where to cut each run;
2. **encode**: read each slice once, turn names into numbers, and say which messages cross its edges. Where a message crosses
   a cut backwards, the cuts are repaired, and slices read again;
3. **sum up** each slice from an unknown start; a short walk over the sums, here, gives every slice its true one;
4. **judge** each slice from its true start; what is found goes into a table.

Chains are looked for afterwards, for as many violations as are asked for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from thence.errors import ConfigError, TraceError
from thence.pipeline.audit import tasks, total
from thence.pipeline.audit.fragments import Bad, Fragment, fragments_of
from thence.pipeline.audit.plan import (
    SLICE_EVENTS,
    Cuts,
    TraceRun,
    draft,
    exact,
    merge,
    offsets_of,
    runs_of,
    slice_events_for,
    whole_run,
)
from thence.pipeline.audit.survey import Question, Surveyed, first_at, survey
from thence.pipeline.audit.tasks import FoundSend, Slice, SliceStart
from thence.pipeline.engine import Engine, Many, Progress, packed
from thence.pipeline.kernels.gist import Gist
from thence.pipeline.kernels.ledger import Ledger
from thence.pipeline.kernels.logged_clocks import Compared
from thence.pipeline.kernels.replay import Ints, Longs
from thence.pipeline.kernels.rows import lost_rows
from thence.pipeline.kernels.story import resolve
from thence.pipeline.work import WorkFolder
from thence.trace.verdict import PROPERTIES
from thence.words import counted

GivenT = TypeVar("GivenT")
ResultT = TypeVar("ResultT")

MAX_UNKNOWN: Final = 1_000_000
"""How many different messages may be delivered without a send in sight before the audit gives up on the trace."""

MAX_CLOCK_REPAIRS: Final = 2
"""How often clocks are put right before slices are merged instead."""

MAX_REPAIRS: Final = 50
"""How often cuts are repaired before the audit gives up. Each time slices become fewer, so no sane trace gets there."""

CUTS_PER_TASK: Final = 8
"""In how many fragments one task looks up where to cut."""

SENDS_PER_TASK: Final = 8_000_000
"""How many messages one task compares, to find those that are sent twice."""

SLICES_PER_TASK: Final = 500
ROWS_PER_SURVEY: Final = 4_000_000
"""How many rows one task of the survey looks at, at most."""
FEWEST_SURVEYS: Final = 8
"""How many such tasks there are at least, if there are enough fragments: some cores should have something to do."""

NO_CUTS: Final = Cuts(np.empty((0, 0), np.int64), np.empty((0, 0), np.int64))


@dataclass(slots=True)
class RunAudit:
    """One run on its way through the audit."""

    run: TraceRun
    number: int
    cuts: Cuts = NO_CUTS
    slices: list[Slice] = field(default_factory=list)
    gists: list[Gist] = field(default_factory=list)
    unsent: set[str] = field(default_factory=set)
    resent: dict[tuple[int, int, str], tuple[str, int]] = field(default_factory=dict)
    """Sends that are not the first of their message: who sent it in which event."""
    ledger: Ledger | None = None
    offsets: Longs | None = None
    clock_repairs: int = 0


class Auditor:
    """Audits one trace. Use :func:`thence.pipeline.audit.audit` unless you want the steps one by one."""

    def __init__(
        self,
        engine: Engine,
        source: str,
        work: WorkFolder,
        require: Sequence[str],
        slice_events: int = SLICE_EVENTS,
        progress: Progress | None = None,
    ) -> None:
        unknown = sorted(set(require).difference(PROPERTIES))
        if unknown or not require:
            what = f"unknown property {unknown[0]!r}" if unknown else "no property is required"
            raise ConfigError(f"{what}; the properties are {', '.join(PROPERTIES)}")
        self.engine, self.work, self.source = engine, work, source
        self.require = tuple(name for name in PROPERTIES if name in require)
        self.slice_events = slice_events
        self.progress = progress
        self.fragments: list[Fragment] = []
        self.bad: list[Bad] = []
        self.runs: list[RunAudit] = []
        self._read: list[Slice] = []
        """The first slice of each task that read some."""
        self.repairs: list[str] = []
        """What had to be done to the cuts, in words."""

    @property
    def events(self) -> int:
        return sum(audit.run.events for audit in self.runs)

    @property
    def slices(self) -> list[Slice]:
        return [one for audit in self.runs for one in audit.slices]

    def prepare(self) -> None:
        """Survey, encode, repair, sum up and walk: afterwards every slice's true start is in the work folder."""
        self.fragments = fragments_of(self.source)
        surveyed = self._survey()
        self.bad = [bad for seen in surveyed for bad in seen.bad]
        for number, run in enumerate(runs_of(surveyed)):
            self.runs.append(RunAudit(run, number))
        self._cut(self.runs)
        self._encode(self.runs)
        self._account()
        self._walk()

    def _survey(self) -> list[Surveyed]:
        """Survey all fragments, several in a task: looking at one takes no time."""
        most = min(ROWS_PER_SURVEY, sum(fragment.rows for fragment in self.fragments) // FEWEST_SURVEYS)
        batches = packed(self.fragments, lambda fragment: fragment.rows, most)
        return [seen for some in self.engine.each("survey", Many(survey), batches, self.progress) for seen in some]

    def judge(self) -> Counter[str]:
        """Leave all rows in the work folder, without chains; return how many there are of each property."""
        counts: Counter[str] = Counter()
        for audit in self.runs:
            if audit.ledger:
                lost = lost_rows(audit.run.name, audit.run.processes, audit.ledger.lost, audit.ledger.gone, self.require)
                counts += tasks.keep_rows(self.work, f"lost-{audit.number}", lost, audit.number)
        to_judge = [(batch, self.require) for batch in self._packed(self.slices)]
        for some in self.engine.each("judge", tasks.judge_slices, to_judge, self.progress):
            counts.update(some)
        if "total" in self.require:
            blocks = [two for one in self.runs for two in total.blocks_of(one.slices, len(one.run.processes), one.run.events)]
            for some in self.engine.each("compare orders", total.compare, blocks, self.progress):
                counts.update(some)
        return counts

    def compare_clocks(self) -> list[Compared]:
        """Compare the clocks of the runs that log some, each run as a whole."""
        things = []
        for audit in self.runs:
            used = sorted({fragment for _, fragment, _, _ in audit.run.fragments})
            if any(self.fragments[fragment].clocked for fragment in used):
                whole = self._slice(replace(audit, cuts=whole_run(audit.run)), 0)
                things.append(whole._replace(fragments=[self.fragments[fragment] for fragment in used]))
        return self.engine.each("compare clocks", tasks.compare_clocks, things, self.progress)

    # Cutting and reading slices.

    def _cut(self, audits: Sequence[RunAudit]) -> None:
        """Cut these runs, and ask the fragments where exactly."""
        drafts = [draft(audit.run, slice_events_for(audit.run, self.slice_events), audit.offsets) for audit in audits]
        asked = defaultdict(list)
        for at, plan in enumerate(drafts):
            run = audits[at].run
            for (process, fragment), (_, times) in plan.questions.items():
                asked[fragment].append((at, process, Question(run.name, run.processes[process], times, run.timed)))
        things = [(self.fragments[fragment], [question for *_, question in some]) for fragment, some in asked.items()]
        answers: list[dict[tuple[int, int], Longs]] = [{} for _ in audits]
        batches = [things[at : at + CUTS_PER_TASK] for at in range(0, len(things), CUTS_PER_TASK)]
        found = [indices for some in self.engine.each("cut", Many(first_at), batches, self.progress) for indices in some]
        for (fragment, some), indices in zip(asked.items(), found, strict=True):
            for (at, process, _), index in zip(some, indices, strict=True):
                answers[at][process, fragment] = index
        for at, audit in enumerate(audits):
            audit.cuts = exact(drafts[at], answers[at])

    def _encode(self, audits: Sequence[RunAudit]) -> None:
        """Read all slices of these runs."""
        for audit in audits:
            audit.ledger = None
            audit.slices = [self._slice(audit, number) for number in range(audit.cuts.count)]
        batches = _batches([one for audit in audits for one in audit.slices], self.slice_events)
        results = self.engine.each("encode", tasks.encode_slices, batches, self.progress)
        by_run = defaultdict(list)
        if not self._read:
            self._read = [batch[0] for batch in batches]
        for batch, gists in zip(batches, results, strict=True):
            for one, gist in zip(batch, gists, strict=True):
                by_run[one.run_number].append(gist)
        for audit in audits:
            audit.gists = by_run[audit.number]

    def _slice(self, audit: RunAudit, number: int) -> Slice:
        run, low, high = audit.run, audit.cuts.low[number], audit.cuts.high[number]
        process, fragment, first, last = np.array(run.fragments, np.int64).T
        needed = np.unique(fragment[(first < high[process]) & (last >= low[process])])
        last_index = np.zeros(len(run.processes), np.int64)
        np.maximum.at(last_index, process, last)
        return Slice(
            self.work,
            run.name,
            audit.number,
            number,
            run.processes,
            low,
            high,
            [self.fragments[at] for at in needed.tolist()],
            last_index >= high,
            audit.resent,
        )

    def _packed(self, slices: Sequence[Slice]) -> list[list[Slice]]:
        """Return slices that have been read, by tasks: large ones alone, small ones of many short runs together."""

        def events(one: Slice) -> int:
            return self.runs[one.run_number].gists[one.number].events

        return packed(slices, events, self.slice_events, SLICES_PER_TASK)

    def _per_slice(
        self, step: str, function: Callable[[GivenT], ResultT], slices: Sequence[Slice], thing: Callable[[Slice], GivenT]
    ) -> list[ResultT]:
        """Call a function on something of each slice that has been read."""
        things = [[thing(one) for one in batch] for batch in self._packed(slices)]
        return [result for some in self.engine.each(step, Many(function), things, self.progress) for result in some]

    # Repairing cuts.

    def _account(self) -> None:
        """Look who is on the way where, and repair, until everything is accounted for."""
        self._find_resends()
        for _ in range(MAX_REPAIRS):
            for audit in self.runs:
                if audit.ledger is None:
                    audit.ledger = Ledger(audit.run.processes, audit.gists, audit.unsent)
            left = [audit for audit in self.runs if audit.ledger and audit.ledger.orphans]
            if not left:
                return
            self._account_for(left)
        raise TraceError(f"{self.source}: cuts could not be repaired in {MAX_REPAIRS} rounds")

    def _account_for(self, audits: Sequence[RunAudit]) -> None:
        """Find the sends of all orphans: nobody's, or in an earlier slice, or in a later one, and the cut is no cut."""
        orphans = {audit.number: audit.ledger.orphans for audit in audits if audit.ledger}
        for some in orphans.values():
            if len(some) > MAX_UNKNOWN:
                raise TraceError(f"{self.source}: {len(some)} messages are delivered and not sent; the limit is {MAX_UNKNOWN}")
        wanted = {number: (frozenset(some), np.empty(0, np.uint64)) for number, some in orphans.items()}
        again: list[Slice] = []
        recut: list[tuple[RunAudit, list[tuple[int, int]]]] = []
        for number, found in self._look_for(wanted).items():
            audit = self.runs[number]
            sent = {send.name: send.slice for send in found if (send.process, send.index, send.name) not in audit.resent}
            audit.unsent |= orphans[number].keys() - sent.keys()
            audit.ledger = None
            backward = [(orphans[number][name], at) for name, at in sent.items() if at > orphans[number][name]]
            if backward:
                recut.append((audit, backward))
                continue
            for one in audit.slices:
                names = frozenset(name for name, at in sent.items() if at == one.number)
                if names:
                    audit.slices[one.number] = one._replace(forced=one.forced | names)
                    again.append(audit.slices[one.number])
        self._repair(recut)
        gists = self._per_slice("look again", tasks.gist_again, again, lambda one: one)
        for one, gist in zip(again, gists, strict=True):
            self.runs[one.run_number].gists[one.number] = gist

    def _look_for(self, wanted: Mapping[int, tuple[frozenset[str], npt.NDArray[np.uint64]]]) -> dict[int, list[FoundSend]]:
        """All sends of messages with these names or hashes, by run."""
        slices = [one for number in wanted for one in self.runs[number].slices]
        results = self._per_slice("look for sends", tasks.find_sends, slices, lambda one: (one, *wanted[one.run_number]))
        found: dict[int, list[FoundSend]] = {number: [] for number in wanted}
        for one, sends in zip(slices, results, strict=True):
            found[one.run_number] += sends
        return found

    def _repair(self, broken: Sequence[tuple[RunAudit, Sequence[tuple[int, int]]]]) -> None:
        """Messages cross cuts backwards, from the second slice of each pair to the first: choose other cuts."""
        timed = [audit for audit, _ in broken if audit.run.timed and audit.clock_repairs < MAX_CLOCK_REPAIRS]
        slices = [one for audit in timed for one in audit.slices]
        lags = defaultdict(list)
        for one, found in zip(slices, self._per_slice("look at clocks", tasks.lags_in, slices, lambda one: one), strict=True):
            lags[one.run_number].append(found)
        for audit, backward in broken:
            self._choose_cuts(audit, backward, lags[audit.number])
        self._cut([audit for audit, _ in broken if not audit.cuts.count])
        self._encode([audit for audit, _ in broken])

    def _choose_cuts(self, audit: RunAudit, backward: Sequence[tuple[int, int]], lags: Sequence[Longs]) -> None:
        name = f"run {audit.run.name!r}: " if audit.run.name is not None else ""
        least = np.min(lags, axis=0) if lags else np.zeros(1, np.int64)
        if np.any(least < 0):
            audit.clock_repairs += 1
            audit.offsets = offsets_of(least)
            worst = int(np.ptp(audit.offsets))
            self.repairs.append(f"{name}clocks differ by up to {worst / 1e6:,.3f} ms, cut again by clocks put right")
            audit.cuts = NO_CUTS
        else:
            before = audit.cuts.count
            audit.cuts = merge(audit.cuts, backward)
            self.repairs.append(
                f"{name}{before - audit.cuts.count} of {counted(before, 'slice')} merged, as messages crossed cuts backwards"
            )
        audit.unsent.clear()

    def _find_resends(self) -> None:
        """Find messages that are sent more than once, in whatever slices; the first by process and index is the send."""
        hashed = defaultdict(list)
        parts = 1 + sum(audit.run.sends for audit in self.runs) // SENDS_PER_TASK
        shares = [tasks.Share(self._read, number, parts) for number in range(parts) if self._read]
        for some in self.engine.each("compare sends", tasks.repeated_sends, shares, self.progress):
            for number, value in some:
                hashed[number].append(value)
        wanted = {number: (frozenset[str](), np.array(values, np.uint64)) for number, values in hashed.items()}
        for number, found in self._look_for(wanted).items():
            audit = self.runs[number]
            by_name = defaultdict(list)
            for send in found:
                by_name[send.name].append((send.process, send.index))
            for name, places in by_name.items():
                first, *others = sorted(places)
                for place in set(others) - {first}:
                    audit.resent[*place, name] = (audit.run.processes[first[0]], first[1])
        self._encode([audit for audit in self.runs if audit.resent])

    # The walk.

    def _walk(self) -> None:
        """Sum up all slices, and give each its true start."""
        for audit in self.runs:
            for one, entry in zip(audit.slices, audit.ledger.entries if audit.ledger else (), strict=True):
                self.work.put(one.key("entry"), entry)
        sums = self._per_slice("sum up", tasks.sum_up_slice, self.slices, lambda one: one)
        at = 0
        for audit in self.runs:
            self._walk_run(audit, sums[at : at + len(audit.slices)])
            at += len(audit.slices)

    def _walk_run(self, audit: RunAudit, sums: Sequence[tuple[Ints, Ints]]) -> None:
        n = len(audit.run.processes)
        known = np.zeros((n, n), np.int32)
        clocks: dict[tuple[int, int], Ints] = {}
        if audit.ledger is None:
            return
        for one, entry, (end, leaving) in zip(audit.slices, audit.ledger.entries, sums, strict=True):
            places = list(zip(entry.slices.tolist(), entry.locals.tolist(), strict=True))
            nothing = np.zeros(n, np.int32)
            of_flights = np.array([clocks.get(place, nothing) for place in places], np.int32).reshape(len(places), n)
            self.work.put(one.key("start"), SliceStart(entry, known, of_flights))
            flights = entry.flights
            still = set(places)
            clocks = {place: clock for place, clock in clocks.items() if place in still}
            carried = resolve(leaving, known, flights.sender, flights.rank, of_flights)
            clocks.update({(one.number, local): clock for local, clock in zip(entry.carried.tolist(), carried, strict=True)})
            known = resolve(end, known, flights.sender, flights.rank, of_flights)


def _batches(slices: Sequence[Slice], slice_events: int) -> list[list[Slice]]:
    """Slices by tasks: large ones alone; small ones, of many short runs, together with others of the same fragments."""
    batches: list[list[Slice]] = []
    seen: set[Fragment] = set()
    rows = 0
    for one in slices:
        fresh = [fragment for fragment in one.fragments if fragment not in seen]
        rows += sum(fragment.rows for fragment in fresh)
        if not batches or rows > slice_events or (fresh and not seen.isdisjoint(one.fragments) and len(fresh) > 1):
            batches.append([])
            seen = set()
            rows = sum(fragment.rows for fragment in one.fragments)
        seen.update(one.fragments)
        batches[-1].append(one)
    return batches
