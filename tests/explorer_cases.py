"""What the explorer is asked to search: every run of these cases, for each ordering of the registry.

``CASES`` are searched in every test run. ``CAMPAIGN_CASES`` take longer and are searched by ``make campaign``. Together they hold
every ordering and pattern for 3 processes with 3 and with 4 messages; with fewer for those in ``CONFIRMING``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thence.core.domain import Domain
from thence.core.ordering import ORDERINGS
from thence.sim.explorer import Case

NAMES: Final = ("A", "B", "C")
PATTERNS: Final = ("unicast", "multicast", "broadcast")

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {"grouped": {"groups": [["A", "B"], ["C"]]}}
"""With three members the default would be three subgroups of one. This has a gateway with somebody behind it."""

LARGE: Final = {
    ("flood", "unicast", 4),
    ("flood", "multicast", 4),
    ("grouped", "multicast", 4),
    ("matrix", "multicast", 4),
    ("sequenced", "multicast", 4),
    ("vector", "multicast", 4),
}
"""What takes more than a few seconds."""

CONFIRMING: Final = {"clocked", "resilient"}
"""Every message is answered and confirmed, so a case of two messages is as large as one of four elsewhere."""


def case(name: str, pattern: str, messages: int, options: Mapping[str, Any] | None = None) -> Case:
    """Return the case of this ordering among three members."""
    chosen = OPTIONS.get(name, {}) if options is None else options
    return Case(Domain("d", NAMES, name, chosen), messages, pattern)


def label(given: Case) -> str:
    """Name a case, for a report."""
    (domain,) = given.topology.domains.values()
    options = "".join(f"-{key}={value}" for key, value in domain.options.items())
    return f"{domain.ordering}-{given.pattern}-{given.messages}{options}".replace(" ", "").replace("'", "")


def _all(messages: int) -> list[tuple[str, str, int]]:
    return [(name, pattern, messages) for name in ORDERINGS if name not in CONFIRMING for pattern in PATTERNS]


CASES: Final = (
    *(case(*chosen) for messages in (3, 4) for chosen in _all(messages) if chosen not in LARGE),
    *(case("grouped", pattern, 3, {"groups": [["A"], ["B"], ["C"]]}) for pattern in PATTERNS),
    *(case("sequenced", pattern, 3, {"coordinator": "C"}) for pattern in PATTERNS),
    *(case("flood", pattern, 3, {"links": [["A", "B"], ["B", "C"]]}) for pattern in PATTERNS),
    *(case(name, pattern, 3, {"stamps": "full"}) for name in ("vector", "matrix") for pattern in PATTERNS),
    *(case("resilient", pattern, 3, {"copies": 0}) for pattern in ("unicast", "broadcast")),
    *(case(name, pattern, 2) for name in ("clocked", "resilient") for pattern in PATTERNS),
)

CAMPAIGN_CASES: Final = (
    *(case(*chosen) for chosen in _all(4) if chosen in LARGE),
    *(case("grouped", pattern, 4, {"groups": [["A"], ["B"], ["C"]]}) for pattern in PATTERNS),
    *(case("matrix", pattern, 4, {"stamps": "full"}) for pattern in PATTERNS),
    *(case("vector", pattern, 4, {"stamps": "full"}) for pattern in ("unicast", "broadcast")),
    *(case("clocked", pattern, 3) for pattern in PATTERNS),
    *(case("resilient", pattern, 3) for pattern in ("unicast", "broadcast")),
)
