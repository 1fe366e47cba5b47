"""What was found about order in a trace, by the audit or by the judge, in the form that commands and reports show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from thence.trace.verdict import Verdict, Violation


@dataclass(frozen=True, slots=True)
class MissingMessage:
    """A message that a process lacked, at first or for good, and what that caused."""

    run: str | None
    message: str
    process: str
    lost: bool
    """Whether it never came."""
    fifo: int
    causal: int
    """How many deliveries came too early because of it."""


@dataclass(slots=True, kw_only=True)
class AuditResult:
    """The judgement on a trace, and how it was come by."""

    events: int
    properties: dict[str, int]
    """How many violations of each property that was checked."""
    violations: list[Violation] = field(default_factory=list)
    """The first of them, in the judge's order; ``properties`` has the numbers."""
    stories: dict[Violation, str] = field(default_factory=dict)
    """Of those whose chain was looked for: the chain in words."""
    findings: int = 0
    """How many messages are missing somewhere; a message that two processes lack counts twice."""
    worst: list[MissingMessage] = field(default_factory=list)
    """Those that caused the most violations."""
    source: str = ""
    runs: int = 0
    processes: int = 0
    slices: int = 0
    """Into how many pieces the work was cut."""
    bad_rows: int = 0
    """Rows of the input that could not be read."""
    bad_examples: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    clocks: dict[str, int] = field(default_factory=dict)
    """Of clocks that the trace logs: how many were ``compared`` with those that follow from its messages, how many ``differ``."""
    notes: list[str] = field(default_factory=list)
    """What has to be known to read the verdict."""
    cones: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each step took, in order."""

    @classmethod
    def of(cls, verdict: Verdict) -> AuditResult:
        """Return what the judge found."""
        return cls(events=verdict.events, properties=verdict.properties, violations=verdict.violations)

    @property
    def verdict(self) -> Literal["kept", "violated"]:
        return "violated" if any(self.properties.values()) else "kept"

    def to_json(self) -> bytes:
        """Return the judge's object, and what is more to say."""
        first = ("verdict", "events", "properties", "violations")
        names = [*first, *(name for name in self.__slots__ if name not in (*first, "stories"))]
        return msgspec.json.encode({name: getattr(self, name) for name in names})
