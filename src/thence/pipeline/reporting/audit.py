"""What was found about order, in the form that the report shows: a verdict, and how it was come by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from thence.trace.verdict import Verdict, Violation


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement on a trace, by the judge or by Spark."""

    verdict: Literal["kept", "violated"]
    events: int
    properties: Mapping[str, int]
    """How many violations of each property that was checked."""
    violations: Sequence[Violation] = ()
    """All of them, or a sample; ``properties`` has the numbers."""
    bad_rows: int = 0
    """Rows of the input that could not be read."""
    slices: int | None = None
    """Into how many pieces the work was cut."""
    timings_s: Mapping[str, float] = {}
    """How long each stage took, in order."""

    @classmethod
    def of(
        cls, verdict: Verdict, *, bad_rows: int = 0, slices: int | None = None, timings_s: Mapping[str, float] | None = None
    ) -> Audit:
        """A verdict, with what is known about how it was come by."""
        return cls(
            verdict=verdict.verdict,
            events=verdict.events,
            properties=verdict.properties,
            violations=verdict.violations,
            bad_rows=bad_rows,
            slices=slices,
            timings_s=timings_s or {},
        )
