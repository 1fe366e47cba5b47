"""What every test shares: how hypothesis behaves.

Rules: a test run is repeatable, so the ``ci`` profile draws the same examples every time; looking for new ones is the
work of ``make campaign``, which loads the ``campaign`` profile by ``HYPOTHESIS_PROFILE=campaign``. No deadline in
either: a slow machine is not a bug.
"""

from __future__ import annotations

import os

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
