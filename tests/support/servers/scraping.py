"""What Prometheus does, as far as tests need it: ask a server for its metrics, read them, and see which alarms go off.

The rules are those of ``packaging/prometheus/alerts.yml``. Each compares one metric with one number, or what it grew by, so no
language of queries is needed; how long something has to last (``for``) is not waited for.
"""

from __future__ import annotations

import asyncio
import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.support.servers.running import PATIENCE_S
from thence.observe.http import Answerer
from thence.server.server import Server

RULES: Final = Path(__file__).resolve().parents[3] / "packaging" / "prometheus" / "alerts.yml"

Labels = frozenset[tuple[str, str]]
Scraped = dict[str, dict[Labels, float]]
"""The samples by name and labels."""

_EXPRESSION: Final = re.compile(r"(?:(increase)\()?(\w+)(?:\{(.*)\})?(?:\[\d+m\]\))? (==|>|<) ([\d.]+)")
_MATCHER: Final = re.compile(r'(\w+)(=|!=)"([^"]*)"')
_COMPARE: Final = {"==": operator.eq, ">": operator.gt, "<": operator.lt}


class Rule(NamedTuple):
    """One alarm."""

    name: str
    expression: str
    lasts: str
    severity: str


def rules() -> list[Rule]:
    """Read the rules, which are written in one form only."""
    found = re.findall(
        r"^ +- alert: (\w+)\n +expr: (.+)\n +for: (\w+)\n +labels:\n +severity: (\w+)\n +annotations:\n +summary: \".+\"$",
        RULES.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [Rule(*one) for one in found]


def fires(expression: str, before: Scraped, now: Scraped) -> bool:
    """Return whether a rule holds for any of the samples; what grew is seen from ``before`` to ``now``."""
    whole = _EXPRESSION.fullmatch(expression)
    assert whole is not None, expression
    increase, name, matchers, comparison, number = whole.groups()
    for labels, value in now.get(name, {}).items():
        if _matches(dict(labels), matchers or ""):
            seen = value - before.get(name, {}).get(labels, 0.0) if increase else value
            if _COMPARE[comparison](seen, float(number)):
                return True
    return False


def _matches(labels: Mapping[str, str], matchers: str) -> bool:
    return all((labels.get(name, "") == value) == (sign == "=") for name, sign, value in _MATCHER.findall(matchers))


async def ask(address: str, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Ask for a page; return its status, its head and its text."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        writer.close()
    head, _, text = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, text


class Prometheus:
    """Watches servers: what was ever more than nothing, and which alarms went off."""

    def __init__(self) -> None:
        self.moved: set[str] = set()
        """Metrics, by the names that the table has."""
        self.fired: set[str] = set()
        self._answerers: dict[Server, tuple[Answerer, str]] = {}
        self._before: dict[str, Scraped] = {}

    async def scrape(self, server: Server) -> Scraped:
        """Ask a server, and evaluate every rule."""
        if server not in self._answerers:
            answerer = Answerer(server)
            self._answerers[server] = answerer, await answerer.open("0")
        address = self._answerers[server][1]
        try:
            status, _, text = await ask(address, "/metrics")
            assert status == 200
        except ConnectionError:
            text = ""
        now = self._read(text, up=bool(text))
        before = self._before.setdefault(address, now)
        self.fired |= {rule.name for rule in rules() if fires(rule.expression, before, now)}
        return now

    def _read(self, text: str, *, up: bool) -> Scraped:
        now: Scraped = {"up": {frozenset({("job", "thence")}): float(up)}}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                now.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
                if sample.value:
                    self.moved |= {sample.name, family.name}
        return now

    async def until_fired(self, server: Server, alarm: str) -> None:
        """Scrape until an alarm goes off."""
        async with asyncio.timeout(PATIENCE_S):
            while alarm not in self.fired:
                await self.scrape(server)
                await asyncio.sleep(0.05)

    def close(self) -> None:
        """Answer no more; a server that was stopped is found to be down from now on."""
        for answerer, _ in self._answerers.values():
            answerer.close()
