"""What every test shares: how hypothesis behaves, and which worker does what in which order.

Rules: a test run is repeatable, so the ``ci`` profile draws the same examples every time; looking for new ones is the
work of ``make campaign``, which loads the ``campaign`` profile by ``HYPOTHESIS_PROFILE=campaign``. No deadline in
either: a slow machine is not a bug.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

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

LONG = ("integration", "properties", "papers", "pipeline", "studies")
"""Folders with tests that take long."""
TWO_SPARKS = {"test_audit_page.py", "test_audit_spark.py", "test_audit_urls.py", "test_spark.py"}
"""The modules that share one session of Spark; all others with Spark share another. Both halves take about as long."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long work comes first; what shares something costly, a session of Spark or what a module made, is done by one worker."""

    def group(item: pytest.Item) -> str:
        if item.get_closest_marker("spark") is None:
            return str(item.path.relative_to(item.config.rootpath))
        return "Spark, audits and studies" if item.path.name in TWO_SPARKS else "Spark, everything else"

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("spark") is not None:
            return 0
        return 1 if item.path.relative_to(item.config.rootpath).parts[1] in LONG else 2

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=rank)
