"""The report as sections: a heading, a sentence, a table, and a plot of the same. Pages and terminals show them alike.

Cells of tables are text already, cleaned but not escaped: that is the work of whoever makes HTML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from thence.pipeline.report import figures
from thence.pipeline.report.figures import MAX_BARS, Tables
from thence.pipeline.report.plots import BarPlot, HeatPlot, LinePlot, Plot, PlotBar, PlotLine
from thence.pipeline.report.text import MAX_NAME_CHARACTERS, duration, number, share, shown, size
from thence.pipeline.result import AuditResult
from thence.pipeline.tables import percentile_column
from thence.trace.verdict import Violation
from thence.words import counted

MAX_VIOLATIONS: Final = 50
MAX_CHAIN: Final = 12
TIMES_IN_TABLE: Final = 12
SHORT_NAME: Final = 14
SHOWN_PERCENTILES: Final = (1, 10, 50, 90, 95, 99, 99.9)
"""Percentiles that the tables name."""
TAIL_TICKS: Final = (0, 50, 90, 99, 99.9)
BY_NAME: Final = "(by name)"
PRICE: Final = "The price of causal order"
TIME_COLUMNS: Final = ("", "deliveries", "unknown", "negative", *(f"{percent:g} %" for percent in SHOWN_PERCENTILES), "largest")


class Section(NamedTuple):
    """One part of the report. ``text`` columns of the table are those that are not numbers."""

    title: str
    lead: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: int = 1
    plots: Sequence[Plot] = ()


def summary(tables: Tables) -> list[tuple[str, str]]:
    """The few numbers that come first."""
    total = figures.totals(tables)
    delay, wait, control = (figures.distribution(tables, measure) for measure in ("delay_ns", "wait_ns", "control_bytes"))
    return [
        ("run" if len(tables.runs) == 1 else "runs", number(len(tables.runs))),
        ("events", number(total["events"])),
        ("messages", number(total["messages"])),
        ("deliveries", number(total["deliveries"])),
        ("median delay", duration(delay["p50"]) if delay else "-"),
        ("99 % within", duration(delay["p99"]) if delay else "-"),
        ("waited", share(total["waited"] / wait["measured"]) if wait else "-"),
        ("control per delivery", size(control["mean"]) if control else "-"),
    ]


def notes(tables: Tables, audit: AuditResult | None) -> list[str]:
    """What to know before believing the numbers."""
    total = figures.totals(tables)
    said = [
        (total["negative_delays"], "delay", "below zero: the clocks of the processes differ, so all delays are off by as much."),
        (total["negative_waits"], "wait", "below zero: a clock was set back."),
        (total["untimed_sends"], "send", "without a time; nothing is known of the delays of these messages."),
        (total["untimed_deliveries"], "delivery", "without a time; nothing is known of their delays."),
        (total["unsent_deliveries"], "delivery", "of messages of which there is no send."),
        (
            total["repeated_deliveries"],
            "delivery",
            "repeated: a message again at the same process. Only first ones are measured.",
        ),
        (total["repeated_sends"], "send", "repeated: a message that was sent before."),
        (total["without_message"], "event", "without a message, counted nowhere else."),
        (max(0, total["copies"] - total["deliveries"] + total["unsent_deliveries"]), "copy", "sent and never delivered."),
        (audit.bad_rows if audit else 0, "row", "of the input that could not be read: missing from everything here."),
    ]
    found = [f"{counted(count, noun)} {what}" for count, noun, what in said if count]
    if total["deliveries"] and not total["waits"]:
        found.append("The trace does not say when messages arrived, so how long they waited is not known.")
    delay = figures.distribution(tables, "delay_ns")
    if delay and delay["accuracy"]:
        found.append(f"Percentiles are near: the rank of one is off by at most 1 in {number(delay['accuracy'])} of the values.")
    return found


def order(audit: AuditResult) -> list[Section]:
    """What was found about order: the counts, the violations, and how long that took."""
    broken = sum(map(bool, audit.properties.values()))
    lead = f"Every checked property was kept, in {counted(audit.events, 'event')}."
    if audit.verdict != "kept":
        lead = f"{broken} of {counted(len(audit.properties), 'property')} were violated, in {counted(audit.events, 'event')}."
    counts = [[shown(name), number(count), "violated" if count else "kept"] for name, count in audit.properties.items()]
    found = [Section("Order", lead, ("property", "violations", ""), counts)]
    if audit.violations:
        found.append(_violations(audit))
    if audit.seconds or audit.slices:
        stages = [[shown(stage), duration(seconds * 1e9)] for stage, seconds in audit.seconds.items()]
        cut = "" if not audit.slices else f"The work was cut into {counted(audit.slices, 'slice')}."
        found.append(Section("How the audit ran", cut, ("stage", "time"), stages))
    return found


def _violations(audit: AuditResult) -> Section:
    total, listed = sum(audit.properties.values()), list(audit.violations)[:MAX_VIOLATIONS]
    lead = f"{len(listed):,} of {total:,}." if len(listed) < total else f"All {total:,}."
    rows = [
        [
            shown(row.property),
            shown(row.run, "-"),
            shown(row.process),
            shown(row.later, "-"),
            shown(row.earlier, "-"),
            number(row.missing),
            _chain(row),
            shown(row.detail, "", 400),
        ]
        for row in listed
    ]
    columns = ("property", "run", "process", "later", "earlier", "missing", "chain", "in words")
    return Section("Violations", lead, columns, rows, text=len(columns))


def _chain(row: Violation) -> str:
    links = [shown(name) for name in row.chain]
    if len(links) > MAX_CHAIN:
        half = MAX_CHAIN // 2
        links = [*links[:half], f"… {len(links) - 2 * half} more …", *links[-half:]]
    return " → ".join(links)


def delays(tables: Tables) -> Section:
    """How long deliveries took."""
    everything = figures.distribution(tables, "delay_ns")
    if everything is None:
        return Section("Delay", "No delivery has a time together with its send, so no delay is known.", TIME_COLUMNS, [])
    lead = "From send to delivery; a tenth of the deliveries took longer than the value at 90 %."
    rows = _by(tables, "delay_ns", everything, ("domain",))
    return Section("Delay", lead, TIME_COLUMNS, rows, plots=[_percentiles("Delay by percentile", everything)])


def price(tables: Tables) -> Section:
    """How long messages waited for those before them."""
    everything, delay = figures.distribution(tables, "wait_ns"), figures.distribution(tables, "delay_ns")
    if everything is None:
        return Section(PRICE, "The trace does not say when messages arrived, so how long they waited is not known.", (), [])
    known, waited = everything["measured"], figures.totals(tables)["waited"]
    part = ""
    if delay and delay["mean"] > 0 and not (delay["negative"] or everything["negative"]):
        part = f", which is {share(everything['mean'] * known / (delay['mean'] * delay['measured']))} of all delay"
    lead = (
        "A message that arrives before one that has to be delivered first waits for it. "
        f"{number(waited)} of {counted(known, 'delivery')} waited ({share(waited / known)}); the average over all is "
        f"{duration(everything['mean'])}{part}."
    )
    scopes = ("run", "domain", "topic") if len(tables.runs) > 1 else ("domain", "topic")
    rows = _by(tables, "wait_ns", everything, scopes)
    return Section(PRICE, lead, TIME_COLUMNS, rows, plots=[_percentiles("Waiting by percentile", everything)])


def _by(tables: Tables, measure: str, everything: figures.Row, scopes: Sequence[str]) -> list[list[str]]:
    """How a measure is distributed: over all, and for each that has a name in these scopes."""
    rows = [_distribution("all", everything)]
    for scope in scopes:
        named = [row for row in figures.by(scope, tables, measure) if row[scope] is not None]
        rows += [_distribution(f"{scope} {shown(row[scope])}", row) for row in named[:MAX_BARS]]
    return rows


def _percentiles(title: str, row: figures.Row) -> LinePlot:
    points = [(_tail_place(percent), value) for percent, value in figures.curve(row)]
    ticks = {_tail_place(percent): f"{percent:g} %" for percent in TAIL_TICKS}
    about = f"half within {duration(row['p50'])}, 99 % within {duration(row['p99'])}"
    return LinePlot(title, about, [PlotLine("", points)], "share of the deliveries", x_ticks=ticks, y_words=duration)


def _tail_place(percent: float) -> float:
    """Return where a percentile stands on an axis that gives each further nine the same room."""
    return -math.log10(1 - percent / 100)


def _distribution(name: str, row: figures.Row) -> list[str]:
    counts = (row["deliveries"], row["deliveries"] - row["measured"], row["negative"])
    values = [row[percentile_column(percent)] for percent in SHOWN_PERCENTILES] + [row["largest"]]
    return [name, *map(number, counts), *map(duration, values)]


def over_time(tables: Tables) -> Section:
    """Throughput, and what was on its way."""
    columns = ("since the beginning", "sends / s", "deliveries / s", "in flight")
    found = figures.series(tables)
    if found is None:
        return Section("Over time", "No event has a time.", columns, [])
    count = len(found.in_flight)
    marks = [found.width_ns * place for place in range(count + 1)]
    peak = max(range(count), key=lambda place: found.deliveries_per_s[place])
    about = f"at most {number(found.deliveries_per_s[peak])} deliveries per second, after {duration(marks[peak])}"
    lines = [
        PlotLine("delivered", list(zip(marks, found.deliveries_per_s, strict=False))),
        PlotLine("sent", list(zip(marks, found.sends_per_s, strict=False)), colour=1, dash=1),
    ]
    x_name = "time since the beginning of the run"
    speed = LinePlot("Throughput, per second", about, lines, x_name, x_words=duration, y_words=number)
    about = f"at most {number(max(found.in_flight))}, at the end {number(found.in_flight[-1])}"
    way = PlotLine("in flight", [(0, 0), *zip(marks[1:], found.in_flight, strict=False)], filled=True)
    flight = LinePlot("Copies in flight", about, [way], x_name, x_words=duration, y_words=number)
    step = max(1, -(-count // TIMES_IN_TABLE))
    rows = []
    for first in range(0, count, step):
        last = min(count, first + step)
        sends, deliveries = (sum(values[first:last]) / (last - first) for values in (found.sends_per_s, found.deliveries_per_s))
        rows.append(
            [
                f"{duration(marks[first])} to {duration(marks[last])}",
                number(sends),
                number(deliveries),
                number(found.in_flight[last - 1]),
            ]
        )
    together = f" {len(tables.runs):,} runs on top of each other, each from its own beginning." if len(tables.runs) > 1 else ""
    lead = f"A copy is in flight from its send to its delivery, or for ever.{together}"
    return Section("Over time", lead, columns, rows, plots=[speed, flight])


def traffic(tables: Tables) -> Section:
    """Who sends to whom."""
    found = figures.matrix(tables)
    absent = "(never sent)" if found.of == "processes" else "(none)"
    full = [shown(name, absent) for name in found.lines]
    if found.summed:
        full[-1] = f"{found.summed:,} {figures.OTHERS}"
    names = [shown(name, absent, SHORT_NAME) for name in full]
    plain = len(full) - bool(found.summed)
    pairs = sorted(
        ((found.cells[row][column], row, column) for row in range(plain) for column in range(plain) if found.cells[row][column]),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    everything = sum(map(sum, found.cells)) or 1
    rows = [[full[row], full[column], number(count), share(count / everything)] for count, row, column in pairs[:MAX_BARS]]
    lead = f"First deliveries between {found.of}. The busiest {len(rows)} of the {counted(len(pairs), 'pair')} shown."
    about = f"busiest: {rows[0][0]} to {rows[0][1]}, {rows[0][2]} deliveries" if rows else "nothing was delivered"
    plot = HeatPlot(f"Traffic between {found.of}", about, names, full, found.cells, plain, number)
    return Section("Traffic", lead, ("from", "to", "deliveries", "share"), rows, text=2, plots=[plot] if rows else [])


def clients(tables: Tables) -> list[Section]:
    """Who sends how much to which topic; nothing if the trace names no clients."""
    found = figures.rooms(tables)
    if not found.clients:
        return []
    named = [row for row in tables.clients if row["client"] is not None]
    top = sorted(named, key=lambda row: (-row["deliveries"], row["client"], row["topic"] or ""))[:MAX_BARS]
    rows = [
        [
            shown(row["client"]),
            shown(row["topic"], BY_NAME),
            number(row["messages"]),
            number(row["deliveries"]),
            size(row["payload_bytes"]),
            duration(row["waited_ns"] / row["waits"]) if row["waits"] and row["waited_ns"] is not None else "-",
        ]
        for row in top
    ]
    lead = (
        f"Deliveries of what clients sent, by client and topic: the busiest {len(found.clients)} of "
        f"{counted(found.all_clients, 'client')}, and {len(found.topics)} of {counted(found.all_topics, 'topic')}, "
        f"{BY_NAME} being what went to none."
    )
    names = [[shown(name, BY_NAME, most) for name in found.clients] for most in (SHORT_NAME, MAX_NAME_CHARACTERS)]
    topics = [[shown(name, BY_NAME, most) for name in found.topics] for most in (SHORT_NAME, MAX_NAME_CHARACTERS)]
    about = f"busiest: {rows[0][0]} to {rows[0][1]}, {rows[0][3]} deliveries"
    plain = max(len(found.clients), len(found.topics))
    plot = HeatPlot("Traffic by client and topic", about, names[0], names[1], found.cells, plain, number, (topics[0], topics[1]))
    columns = ("client", "topic", "messages", "deliveries", "payload", "mean wait")
    return [Section("Clients and topics", lead, columns, rows, text=2, plots=[plot])]


def cost(tables: Tables) -> Section:
    """What order costs in each domain, in bytes."""
    found = figures.costs(tables)
    columns = ("domain", "messages", "deliveries", "control / message", "control / delivery", "payload / delivery")
    rows = [
        [
            shown(row["domain"]),
            number(row["messages"]),
            number(row["deliveries"]),
            size(row["control_bytes_per_message"]),
            size(row["control_bytes_per_delivery"]),
            size(row["payload_bytes_per_delivery"]),
        ]
        for row in found[:MAX_BARS]
    ]
    lead = "Control bytes are what an ordering adds to a message; of a message, all its deliveries count, in any domain."
    lead += f" The {MAX_BARS} domains with most deliveries, of {len(found):,}." if len(found) > MAX_BARS else ""
    each = [(row["domain"], row["control_bytes_per_delivery"]) for row in found[:MAX_BARS]]
    bars = [(name, [bytes_], size(bytes_)) for name, bytes_ in each if bytes_ is not None]
    drawn = _bars("Control bytes per delivery, by domain", bars)
    return Section(f"{PRICE}, in bytes", lead if drawn else "The trace names no control bytes.", columns, rows, plots=drawn)


def _bars(title: str, bars: Sequence[tuple[str | None, Sequence[float], str]], legend: Sequence[str] = ()) -> list[Plot]:
    """Return a plot of bars, each with its name, parts and label; none of no bars."""
    drawn = [PlotBar(shown(name, most=SHORT_NAME), shown(name), parts, label) for name, parts, label in bars]
    about = "; ".join(f"{bar.full_name}: {bar.label}" for bar in drawn)
    return [BarPlot(title, about, drawn, legend)] if drawn else []


def hot(tables: Tables) -> Section:
    """Which processes carry the load."""
    found = figures.hottest(tables)
    top = found[:MAX_BARS]
    rows = [
        [
            shown(one.process),
            ", ".join(shown(domain, "-") for domain in one.domains[:4]) + (" …" if len(one.domains) > 4 else ""),
            number(one.sends),
            number(one.deliveries),
            share(one.share),
            size(one.bytes),
            number(one.led),
        ]
        for one in top
    ]
    lead = "Sends and first deliveries, as the share of all; the last column says in how many stretches of time nobody did more."
    lead += f" The busiest {len(top)} of {counted(len(found), 'process')}." if len(found) > len(top) else ""
    bars = [(one.process, [one.deliveries, one.sends], share(one.share)) for one in top]
    drawn = _bars("Sends and deliveries by process", bars, ("deliveries", "sends"))
    columns = ("process", "domains", "sends", "deliveries", "share", "bytes", "led")
    return Section("Busiest processes", lead, columns, rows, text=2, plots=drawn)


def measurements(tables: Tables) -> list[Section]:
    """The sections that come from metrics."""
    parts = [delays(tables), price(tables), cost(tables), over_time(tables), traffic(tables)]
    return [*parts, *clients(tables), hot(tables)]
