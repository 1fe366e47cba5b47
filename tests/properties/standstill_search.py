"""Looks for members that wait for each other: random fabrics with rings, replicas and links, by the smallest limits there are.

    python -m tests.properties.standstill_search FIRST LAST [LIMIT ...]

A fabric that stands still is printed with its number and limit; ``python -m tests.fabrics NUMBER`` writes it into a file. Names
of what comes back to a relay (``MAX_ECHOES``) keep their own limit: docs/campaigns.md says what happens when it is reached.
"""

from __future__ import annotations

import sys
from unittest import mock

from tests import fabrics
from thence.core import limits
from thence.errors import InternalError

LIMITS = (1, 2, 3, 6)


def found(seed: int, limit: int) -> str:
    """Return what is wrong with the run of the fabric with this number where queues hold so little, or nothing."""
    with mock.patch.multiple(limits, MAX_QUEUED_HARD=limit, MAX_KEPT=limit):
        try:
            outcome = fabrics.run_one(seed, reliable=True, deaths=0)
        except InternalError as error:
            return str(error)
    outcome.broken.pop("refused", None)
    return str(outcome.broken or "")


def main(arguments: list[str]) -> int:
    """Search; return whether something was found."""
    first, last, *chosen = [int(argument) for argument in arguments]
    runs, bad = 0, 0
    for seed in range(first, last):
        for limit in chosen or LIMITS:
            runs += 1
            if wrong := found(seed, limit):
                bad += 1
                sys.stdout.write(f"fabric {seed}, limit {limit}: {wrong}\n")
    sys.stdout.write(f"{runs} runs, {bad} of them stood still or broke something\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
