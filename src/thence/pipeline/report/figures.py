"""From the tables of metrics to what a report shows: read by pyarrow, summed over runs, and cut to a size one can look at.

Rules:

* Nothing is left out without a word: what does not fit is summed into one line that says how many it stands for.
* Same tables, same figures: ties are broken by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from thence.errors import TraceError
from thence.pipeline.tables import PERCENTILES, TABLES, percentile_column

if TYPE_CHECKING:
    import pyarrow as pa

MAX_MATRIX: Final = 24
"""A traffic matrix has at most so many lines; beyond that it is of domains, or of the busiest processes and the rest."""

MAX_PAIRS: Final = 1_000_000
"""Of more pairs of processes only the traffic between their domains is read."""

MAX_BARS: Final = 12
"""So many processes or domains are drawn one by one."""

OTHERS: Final = "others"

Row = Mapping[str, Any]


class Tables(NamedTuple):
    """The tables of metrics as lists of rows."""

    runs: Sequence[Row]
    distributions: Sequence[Row]
    traffic: Sequence[Row]
    clients: Sequence[Row]
    sizes: Sequence[Row]
    load: Sequence[Row]
    busiest: Sequence[Row]
    activity: Sequence[Row]


def read_tables(folder: str | Path) -> Tables:
    """Read what ``write_metrics`` has written, as far as a report shows it: no distributions of pairs, no second busiest."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    kept = {"distributions": pc.field("scope") != "pair", "busiest": pc.field("place") == 1}
    tables: dict[str, list[Row]] = {}
    for name, columns in TABLES.items():
        try:
            found = pq.read_table(Path(folder) / name, columns=[column.name for column in columns], filters=kept.get(name))
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{Path(folder) / name}: cannot be read as a table of metrics: {error}") from None
        tables[name] = (_of_domains(found) if name == "traffic" and found.num_rows > MAX_PAIRS else found).to_pylist()
    return Tables(**tables)


def _of_domains(traffic: pa.Table) -> pa.Table:
    """The traffic with a domain in place of each process."""
    summed = traffic.group_by(["sender_domain", "receiver_domain"]).aggregate([("deliveries", "sum")])
    columns = [summed["sender_domain"], summed["receiver_domain"]]
    return summed.from_arrays(
        [*columns, *columns, summed["deliveries_sum"]], ["sender", "receiver", "sender_domain", "receiver_domain", "deliveries"]
    )


def totals(tables: Tables) -> dict[str, int]:
    """The table ``runs``, summed."""
    counted = [column.name for column in TABLES["runs"] if column.name not in {"run", "first_time_ns", "last_time_ns"}]
    return {name: sum(row[name] for row in tables.runs) for name in counted}


def distribution(tables: Tables, measure: str) -> Row | None:
    """How a measure is distributed over all deliveries; None if nothing of it is known."""
    for row in tables.distributions:
        if row["measure"] == measure and row["scope"] == "all" and row["measured"]:
            return row
    return None


def by(scope: str, tables: Tables, measure: str) -> list[Row]:
    """The same for each run, domain or topic, the one with most deliveries first."""
    rows = [row for row in tables.distributions if row["measure"] == measure and row["scope"] == scope and row["measured"]]
    return sorted(rows, key=lambda row: (-row["deliveries"], row[scope] or ""))


def curve(row: Row) -> list[tuple[float, float]]:
    """The percentiles of a distribution as points: per cent, value."""
    return [(0.0, row["smallest"]), *((percent, row[percentile_column(percent)]) for percent in PERCENTILES)]


class Series(NamedTuple):
    """What happened over time, all runs on top of each other, each from its own beginning."""

    width_ns: int
    sends_per_s: list[float]
    deliveries_per_s: list[float]
    in_flight: list[int]


def series(tables: Tables) -> Series | None:
    """None if no event has a time. A run that has ended keeps in flight what it never delivered."""
    if not tables.activity:
        return None
    width_ns, length = tables.activity[0]["width_ns"], 1 + max(row["bucket"] for row in tables.activity)
    sends, deliveries, in_flight = [0.0] * length, [0.0] * length, [0] * length
    last: dict[str | None, Row] = {}
    for row in tables.activity:
        sends[row["bucket"]] += row["sends"] * 1e9 / width_ns
        deliveries[row["bucket"]] += row["deliveries_per_s"]
        in_flight[row["bucket"]] += row["in_flight"]
        if row["run"] not in last or last[row["run"]]["bucket"] < row["bucket"]:
            last[row["run"]] = row
    for row in last.values():
        for bucket in range(row["bucket"] + 1, length):
            in_flight[bucket] += row["in_flight"]
    return Series(width_ns, sends, deliveries, in_flight)


class TrafficMatrix(NamedTuple):
    """Deliveries from each line to each column, and of what the lines are."""

    of: str
    lines: list[str | None]
    cells: list[list[int]]
    summed: int
    """How many processes or domains the line ``others`` stands for; 0 if there is none."""


def matrix(tables: Tables, most: int = MAX_MATRIX) -> TrafficMatrix:
    """The traffic between processes; of more than ``most``, between domains, or between the busiest and the others."""
    pairs = _sum((row["sender"], row["receiver"], row["deliveries"]) for row in tables.traffic)
    if len(_names(pairs)) <= most:
        return _matrix("processes", pairs, most)
    domains = _sum((row["sender_domain"], row["receiver_domain"], row["deliveries"]) for row in tables.traffic)
    if len(_names(domains)) > 1:
        return _matrix("domains", domains, most)
    return _matrix("processes", pairs, most)


Pairs = Mapping[tuple[str | None, str | None], int]


def _sum(rows: Iterable[tuple[str | None, str | None, int]]) -> Pairs:
    counted: Counter[tuple[str | None, str | None]] = Counter()
    for sender, receiver, count in rows:
        counted[sender, receiver] += count
    return counted


def _names(pairs: Pairs) -> set[str | None]:
    return {name for pair in pairs for name in pair}


def _matrix(of: str, pairs: Pairs, most: int) -> TrafficMatrix:
    handled: Counter[str | None] = Counter()
    for (sender, receiver), count in pairs.items():
        handled[sender] += count
        handled[receiver] += count
    ranked = sorted(handled, key=lambda name: (-handled[name], name or ""))
    kept = set(ranked if len(ranked) <= most else ranked[: most - 1])
    place = {name: place for place, name in enumerate(sorted(kept, key=_natural))}
    summed = len(ranked) - len(kept)
    count = len(place) + bool(summed)
    cells = [[0] * count for _ in range(count)]
    for (sender, receiver), deliveries in pairs.items():
        cells[place.get(sender, count - 1)][place.get(receiver, count - 1)] += deliveries
    lines: list[str | None] = [*place, *([OTHERS] if summed else [])]
    return TrafficMatrix(of, lines, cells, summed)


def _natural(name: str | None) -> tuple[object, ...]:
    """p2 before p10, and what has no name last."""
    if name is None:
        return (1,)
    digits = "".join(item if item.isdecimal() and item.isascii() else " " for item in name).split()
    return (0, "".join(item for item in name if not item.isdecimal()), [int(part) for part in digits[:3]], name)


class Rooms(NamedTuple):
    """Who sends how much to which topic: deliveries from each client to each topic, the busiest of both first."""

    clients: list[str | None]
    topics: list[str | None]
    cells: list[list[int]]
    all_clients: int
    all_topics: int
    """How many there are; the others are left out."""


def rooms(tables: Tables, most: int = MAX_BARS) -> Rooms:
    """The table ``clients`` as a matrix, without what is on nobody's behalf."""
    named = [row for row in tables.clients if row["client"] is not None]
    clients, topics = ([name for name, _ in _ranked(named, key)] for key in ("client", "topic"))
    shown = Rooms(clients[:most], topics[:most], [], len(clients), len(topics))
    found = {(row["client"], row["topic"]): row["deliveries"] for row in named}
    return shown._replace(cells=[[found.get((client, topic), 0) for topic in shown.topics] for client in shown.clients])


def _ranked(rows: Iterable[Row], key: str) -> list[tuple[str | None, int]]:
    counted: Counter[str | None] = Counter()
    for row in rows:
        counted[row[key]] += row["deliveries"]
    return sorted(counted.items(), key=lambda item: (-item[1], item[0] or ""))


class Handler(NamedTuple):
    """A process and what it sent and delivered."""

    process: str
    domains: tuple[str | None, ...]
    sends: int
    deliveries: int
    bytes: int
    share: float
    """Of all sends and deliveries."""
    led: int
    """In how many stretches of time nobody did more."""


def hottest(tables: Tables) -> list[Handler]:
    """All processes, the one that handled most first."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in tables.load:
        rows[row["process"]].append(row)
    led = Counter(row["process"] for row in tables.busiest if row["place"] == 1)
    everything = sum(row["sends"] + row["deliveries"] for row in tables.load) or 1
    handlers = []
    for process, own in rows.items():
        sends, deliveries = sum(row["sends"] for row in own), sum(row["deliveries"] for row in own)
        domains = tuple(sorted({row["domain"] for row in own}, key=_natural))
        handled = (sends + deliveries) / everything
        handlers.append(Handler(process, domains, sends, deliveries, sum(row["bytes"] for row in own), handled, led[process]))
    return sorted(handlers, key=lambda handler: (-handler.share, handler.process))


def costs(tables: Tables) -> list[Row]:
    """The table ``sizes``, the domain with most deliveries first."""
    return sorted(tables.sizes, key=lambda row: (-row["deliveries"], row["domain"] or ""))
