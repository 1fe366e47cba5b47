"""The checks, one file for each property, in the order of the rows of the table that defines them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from thence.trace.checks import causal, completeness, creation, duplication, fifo, total, well_formed
from thence.trace.evidence.evidence import Evidence
from thence.trace.verdict import Violation

Check = Callable[[Evidence], Iterator[Violation]]

CHECKS: Final[dict[str, Check]] = {
    "well-formed": well_formed.check,
    "creation": creation.check,
    "duplication": duplication.check,
    "fifo": fifo.check,
    "causal": causal.check,
    "total": total.check,
    "completeness": completeness.check,
    "agreement": completeness.check_agreement,
}

__all__ = ["CHECKS", "Check"]
