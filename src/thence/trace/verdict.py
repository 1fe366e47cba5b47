"""What the judge says: the properties it knows, one row per violation, and the verdict over all rows.

Rules:

* A row is the same whatever the order of the rows in the files, so another implementation can be compared with the
  judge row by row.
* Rows are sorted by run, by property in the order of ``PROPERTIES``, by process, by index, by message.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

PROPERTIES: Final[tuple[str, ...]] = (
    "well-formed",
    "creation",
    "duplication",
    "fifo",
    "causal",
    "total",
    "completeness",
    "agreement",
)
OPTIONAL: Final = ("total", "agreement")
"""Required only where they are asked for: not every ordering promises the one, and completeness is more than the other."""

DEFAULT_REQUIRED: Final[tuple[str, ...]] = tuple(name for name in PROPERTIES if name not in OPTIONAL)

_PLACE: Final = {name: place for place, name in enumerate(PROPERTIES)}


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One offending event, or for ``total`` one pair of processes, or for ``completeness`` one missing delivery."""

    property: str
    process: str
    later: str | None = None
    """The message of the offending event."""
    earlier: str | None = None
    """For fifo and causal: a missing message that no other missing one precedes. For total: the other witness."""
    missing: int = 0
    """How many messages were missing."""
    chain: tuple[str, ...] = ()
    """For fifo and causal: the shortest causal path from ``earlier`` to ``later``, both included."""
    run: str | None = None
    index: int | None = None
    """The offending event's index at its process; null where no event offends."""
    detail: str = ""
    """The same in a sentence."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement on a trace. Only properties that were required are listed."""

    verdict: Literal["kept", "violated"]
    events: int
    properties: dict[str, int]
    violations: list[Violation]

    @property
    def kept(self) -> bool:
        return self.verdict == "kept"

    def to_json(self) -> bytes:
        """Return the form that ``thence judge --json`` prints."""
        return msgspec.json.encode(self)


def sort_key(row: Violation) -> tuple[object, ...]:
    """Return where a row stands among all rows."""
    return (
        row.run is not None,
        row.run or "",
        _PLACE[row.property],
        row.process,
        row.index is None,
        row.index or 0,
        row.later or "",
        row.earlier or "",
        row.detail,
    )


def conclude(events: int, required: tuple[str, ...], violations: list[Violation]) -> Verdict:
    """Count and sort the rows."""
    counts = {name: 0 for name in PROPERTIES if name in required}
    for row in violations:
        counts[row.property] += 1
    return Verdict(
        verdict="violated" if violations else "kept",
        events=events,
        properties=counts,
        violations=sorted(violations, key=sort_key),
    )
