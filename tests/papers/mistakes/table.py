"""All planted mistakes, paper by paper."""

from __future__ import annotations

from typing import Final

from tests.papers.mistakes import clusters, daisy, domains, gateways, interconnect
from tests.papers.mistakes.mistake import Mistake

MISTAKES: Final[tuple[Mistake, ...]] = (
    *interconnect.MISTAKES,
    *daisy.MISTAKES,
    *clusters.MISTAKES,
    *gateways.MISTAKES,
    *domains.MISTAKES,
)
