"""How a cost grows with the number of servers, said as a line through the points: a + b n, or a + b n².

An exponent alone cannot tell a line with a large constant from something flatter than a line. So what is said is the line itself,
and by how much the farthest point is off it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

SIGNS = {1: "n", 2: "n²"}


class Fit(NamedTuple):
    """A cost as ``constant + slope * servers ** power``."""

    power: int
    slope: float
    constant: float
    off: float
    """By which share the farthest point is off it."""

    def at(self, servers: int) -> float:
        """Return what the fit says of so many servers."""
        return self.constant + self.slope * float(servers**self.power)

    def __str__(self) -> str:
        """Return it in words."""
        sign = "+" if self.constant >= 0 else "-"
        return f"{self.slope:.3g} {SIGNS[self.power]} {sign} {float(f'{abs(self.constant):.3g}'):,g}, at most {self.off:.1%} off"


def fit(power: int, costs: Mapping[int, float]) -> Fit:
    """Return the best fit of costs by numbers of servers, by least squares."""
    slope, constant = statistics.linear_regression([servers**power for servers in costs], list(costs.values()))
    found = Fit(power, slope, constant, 0.0)
    return found._replace(off=max(abs(found.at(servers) / cost - 1) for servers, cost in costs.items()))
