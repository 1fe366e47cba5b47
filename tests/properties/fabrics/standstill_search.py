"""Looks for members that wait for each other: random fabrics with rings, replicas and links, by the smallest limits there are.

    python -m tests.properties.fabrics.standstill_search FIRST LAST [LIMIT ...]

Each fabric runs with each limit on queues and on what replicas keep, and with each on what may come back to a relay
(``MAX_ECHOES``). One that stands still is printed with its number and limits; ``python -m tests.support.fabrics NUMBER`` writes
it into a file.
"""

from __future__ import annotations

import sys
from itertools import product
from unittest import mock

from tests.support import fabrics
from thence.core.member import admission
from thence.core.member.limits import MAX_ECHOES
from thence.errors import InternalError

LIMITS = (1, 2, 3, 6)


def found(seed: int, limit: int, echoes: int = MAX_ECHOES) -> str:
    """Return what is wrong with the run of the fabric with this number where queues hold so little, or nothing."""
    with mock.patch.multiple(admission, MAX_QUEUED_HARD=limit, MAX_KEPT=limit, MAX_ECHOES=echoes):
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
        for limit, echoes in product(chosen or LIMITS, repeat=2):
            runs += 1
            if wrong := found(seed, limit, echoes):
                bad += 1
                sys.stdout.write(f"fabric {seed}, limit {limit}, echoes {echoes}: {wrong}\n")
    sys.stdout.write(f"{runs} runs, {bad} of them stood still or broke something\n")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
