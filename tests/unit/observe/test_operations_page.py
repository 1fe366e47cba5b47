"""The page on operations, the file of alarms and the dashboard say what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.support.servers.scraping import rules
from tests.test_docs import read, rows
from thence.observe.metrics import FAMILIES

ROOT = Path(__file__).resolve().parents[3]
NOT_OURS = {"up"}
"""What Prometheus itself says of whom it asks."""


def names() -> set[str]:
    """Return every name that a query may use."""
    found = {family.name for family in FAMILIES} | NOT_OURS
    histograms = [family.name for family in FAMILIES if family.kind == "histogram"]
    return found | {f"{name}_{part}" for name in histograms for part in ("bucket", "sum", "count")}


def named(query: str) -> set[str]:
    return set(re.findall(r"\b(?:thence|process)_\w+|\bup\b", re.sub(r'"[^"]*"', "", query)))


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    told = [tuple(row) for row in rows(read("docs/how-to/operations.md"), "| metric | type | labels |")]
    assert told == [
        (f"`{family.name}`", family.kind, ", ".join(f"`{label}`" for label in family.labels), family.about) for family in FAMILIES
    ]


def test_the_figures_for_sizing_are_those_of_their_benchmarks() -> None:
    """Whatever was measured stands in the section of the command that the row names, digit by digit."""
    benchmarks = read("docs/research/benchmarks.md")
    told = {row[2]: row[1] for row in rows(read("docs/how-to/operations.md"), "| question | rule | measured by |")}
    for command, figures in {
        "peers": r"\d[\d,]{5,}",
        "servers_growth": r"\d[\d,]* B\b",
        "memory": r"\d+ MiB",
        "recovery": r"[\d.]+ s\b",
        "takeover": r"\d+\.\d+ s\b",
    }.items():
        section = re.split(r"^## ", benchmarks.partition(f"\n## {command}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        section += (ROOT / "docs" / "research" / "data" / f"{command}.csv").read_text(encoding="utf-8")
        found = re.findall(figures, told[f"`python -m benchmarks {command}`"])
        assert len(found) > (command == "memory"), command
        assert all(figure in section for figure in found), f"{command}: {found}"


def test_names_say_what_they_are() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"(thence|process)(_[a-z]+)+", family.name)
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name


def test_the_table_of_alarms_is_that_of_the_file() -> None:
    told = rows(read("docs/how-to/operations.md"), "| alarm | when | for |")
    assert [tuple(row[:4]) for row in told] == [
        (f"`{rule.name}`", f"`{rule.expression}`", rule.lasts, rule.severity) for rule in rules()
    ]
    assert all(len(row[4].split()) > 5 for row in told), "each says what to do"


def test_every_alarm_is_about_a_metric_that_there_is() -> None:
    file = (ROOT / "packaging/prometheus/alerts.yml").read_text(encoding="utf-8")
    assert len(rules()) == file.count("- alert:") > 10
    for rule in rules():
        assert len(named(rule.expression)) == 1
        assert named(rule.expression) <= names()


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    board: dict[str, Any] = json.loads((ROOT / "packaging/grafana/thence.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    for query in queries:
        assert named(query), query
        assert named(query) <= names(), query
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
