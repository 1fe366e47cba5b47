"""What every test shares: how hypothesis behaves, and which worker does what in which order.

Rules: a test run is repeatable, so the ``ci`` profile draws the same examples every time; ``HYPOTHESIS_PROFILE=campaign`` loads
the ``campaign`` profile, which draws new and many more ones. No deadline in either: a slow machine is not a bug.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

CI_EXAMPLES = 100
CAMPAIGN_EXAMPLES = 5_000

settings.register_profile("ci", derandomize=True, max_examples=CI_EXAMPLES, deadline=None, database=None, print_blob=True)
settings.register_profile(
    "campaign",
    derandomize=False,
    max_examples=CAMPAIGN_EXAMPLES,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Java in tests runs for seconds: what it would gain by compiling well, and by collecting garbage beside, is less than that costs.
for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

MAX_TEST_S = 120.0
"""How long an async test may wait for what must come to pass; machines may be busy."""
LONG = ("integration", "properties", "papers", "pipeline", "studies")
"""Folders with tests that take long: they come first, those with Spark before all others."""
SPARK_OF_AUDITS = ("test_audit_page.py", "test_audit_spark.py", "test_audit_urls.py", "test_frames.py", "test_spark.py")
"""The modules that share one session of Spark; all others with Spark share another. Both halves take about as long."""


@cache
def text_of(path: Path) -> str:
    """Return a module of tests."""
    return path.read_text(encoding="utf-8")


class ByWhatTestsShare(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """A module that makes something for all its tests is done by one worker; two workers have a session of Spark each, which
    takes long to start and longer to warm up."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", maxsplit=1)[0]
        text = text_of(self.config.rootpath / path)
        if "pytest.mark.spark" in text and "/integration/" not in path:
            return "Spark of audits" if path.rpartition("/")[2] in SPARK_OF_AUDITS else "Spark of the rest"
        return path if 'scope="module"' in text else nodeid

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Return how many tests a worker has left; what is done is forgotten, or each test would cost a look at all before it."""
        for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
            del workload[scope]
        return sum(not done for tests in workload.values() for done in tests.values())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatTestsShare:
    """Workers get tests by what these share."""
    return ByWhatTestsShare(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long work comes first; tests of a module stay together, or what they share would be made twice."""

    def rank(item: pytest.Item) -> int:
        if "pytest.mark.spark" in text_of(item.path):
            return 0
        return 1 if item.path.relative_to(item.config.rootpath).parts[1] in LONG else 2

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end, so no search for garbage has to look at it again."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """An async test does not run for ever."""
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(test := item.obj):

        @wraps(test)
        async def bounded(*arguments: Any, **named: Any) -> None:
            async with asyncio.timeout(MAX_TEST_S):
                await test(*arguments, **named)

        item.obj = bounded


@pytest.fixture(autouse=True)
def steered_by_nobody() -> None:
    """A command or a benchmark that ran within another test, or a fixture, has steered the log of the whole process."""
    logging.disable(logging.NOTSET)
    root = logging.getLogger("thence")
    root.handlers.clear()
    root.setLevel(logging.NOTSET)
    root.propagate = True
