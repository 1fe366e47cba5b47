"""What the explorer is asked to search: every run of these cases, for each ordering of the registry.

``CASES`` are searched in every test run. ``CAMPAIGN_CASES`` take longer and are searched by ``make campaign``. Together they hold
every ordering and pattern for 3 processes with 3 and with 4 messages; with fewer for those in ``CONFIRMING``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from thence.core.ordering import ORDERINGS
from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.sim.search.explorer import Action, Case, Fault

NAMES: Final = ("A", "B", "C")
Mode = Literal["causal", "fifo"]
PATTERNS: Final = ("unicast", "multicast", "broadcast")

OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {"grouped": {"groups": [["A", "B"], ["C"]]}}
"""With three members the default would be three subgroups of one. This has a gateway with somebody behind it."""

LARGE: Final = {
    ("flood", "unicast", 4),
    ("flood", "multicast", 4),
    ("grouped", "multicast", 4),
    ("matrix", "multicast", 4),
    ("relayed", "multicast", 4),
    ("sequenced", "multicast", 4),
    ("vector", "multicast", 4),
}
"""What takes more than a few seconds."""

CONFIRMING: Final = {"clocked", "resilient"}
"""Every message is answered and acknowledged, so a case of two messages is as large as one of four elsewhere."""


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

TAKEOVER_SUSPICION: Final = (Action("r2", "r1", fault=Fault.SUSPECT),)
TAKEOVER_BACK_AND_FORTH: Final = (*TAKEOVER_SUSPICION, Action("r2", "r1", fault=Fault.TRUST))
TAKEOVER_CRASH: Final = (Action("r1", fault=Fault.CRASH), *TAKEOVER_SUSPICION)


def takeover_fabric(ordering: str, other: str | None = None, *, wide: bool = False, local: bool = False) -> Topology:
    """Return two domains with a relay of two replicas between them; ``wide``: somebody more in the second.

    ``local``: the replicas are ordinary members of the first.
    """
    near, far = (("x",), ("y", "z")) if wide else (("a",), ("d",))
    domains = [Domain("A", (*near, "r1", "r2"), ordering), Domain("D", (*far, "r1", "r2"), other or ordering)]
    return Topology("twin", domains, replicas=[("r1", "r2")], local=dict.fromkeys(("r1", "r2"), "A") if local else {})


def _local(ordering: str, messages: int, faults: tuple[Action, ...], pattern: str = "unicast") -> Case:
    return Case(takeover_fabric(ordering, local=True), messages, pattern, faults=faults)


def _takeover(ordering: str, messages: int, pattern: str, faults: tuple[Action, ...], other: str | None = None) -> Case:
    return Case(takeover_fabric(ordering, other), messages, pattern, faults=faults, among=("a", "d"))


LINK_SUSPICION: Final = (Action("a2", "a1", fault=Fault.SUSPECT),)
LINK_BACK_AND_FORTH: Final = (*LINK_SUSPICION, Action("a2", "a1", fault=Fault.TRUST))
LINK_CRASH: Final = (Action("a1", fault=Fault.CRASH), *LINK_SUSPICION)
LINK_BOTH_CRASH: Final = (*LINK_CRASH, Action("b1", fault=Fault.CRASH), Action("b2", "b1", fault=Fault.SUSPECT))


def linked_fabric(ordering: str, *, single: bool = False, mode: Mode = "causal") -> Topology:
    """Return two domains with a link whose relays take over; ``single``: on one side only, there being one on the other."""
    far = ("b1",) if single else ("b1", "b2")
    domains = [Domain("A", ("x", "a1", "a2"), ordering), Domain("B", ("y", *far), ordering)]
    link = Link("L", ("A", "B"), (("a1", "b1"), ("a2", far[-1])), mode, takeover=True)
    return Topology("linked", domains, [link], promise=mode)


def _linked(ordering: str, messages: int, faults: tuple[Action, ...], *, single: bool = False, mode: Mode = "causal") -> Case:
    """Return the case in which x and y write to each other, so that answers come back the way that the questions went."""
    return Case(linked_fabric(ordering, single=single, mode=mode), messages, "unicast", faults=faults, among=("x", "y"))


LINK_WRITTEN_TO: Final = Case(linked_fabric("vector", single=True), 2, "multicast", faults=LINK_SUSPICION, among=("x", "y", "a2"))
"""Here an answer can overtake its question at the successor itself, which is written to as well."""

TAKEOVER_CASES: Final = {
    "vector, a wrong suspicion": _takeover("vector", 2, "unicast", TAKEOVER_SUSPICION),
    "vector, a wrong suspicion that ends": _takeover("vector", 2, "unicast", TAKEOVER_BACK_AND_FORTH),
    "vector, a death": _takeover("vector", 2, "unicast", TAKEOVER_CRASH),
    "matrix, a wrong suspicion that ends": _takeover("matrix", 2, "unicast", TAKEOVER_BACK_AND_FORTH),
    "matrix, a death": _takeover("matrix", 2, "unicast", TAKEOVER_CRASH),
    "sequenced, a death": _takeover("sequenced", 2, "unicast", TAKEOVER_CRASH),
    "matrix and vector, a death": _takeover("matrix", 2, "unicast", TAKEOVER_CRASH, "vector"),
    "replicas are written to as well": Case(takeover_fabric("matrix"), 2, "unicast", faults=TAKEOVER_SUSPICION),
    "replicas that send, a wrong suspicion": _local("vector", 2, TAKEOVER_SUSPICION),
    "replicas that send, matrix, a death": _local("matrix", 2, TAKEOVER_CRASH),
    "a link, a wrong suspicion of its sequencer": _linked("vector", 2, LINK_SUSPICION, single=True),
    "a link, the death of its sequencer": _linked("vector", 2, LINK_CRASH, single=True),
    "a FIFO link, the death of a sender's relay": _linked("vector", 2, LINK_CRASH, single=True, mode="fifo"),
    "a link, the deaths of both sequencers": _linked("vector", 1, LINK_BOTH_CRASH),
}

LOCAL_WIDE: Final = Case(
    takeover_fabric("matrix", wide=True, local=True), 2, "multicast", faults=TAKEOVER_SUSPICION, among=("x", "y", "r2")
)

TAKEOVER_CAMPAIGN_CASES: Final = {
    "replicas that send, a wrong suspicion that ends": _local("vector", 2, TAKEOVER_BACK_AND_FORTH),
    "replicas that send, a death": _local("vector", 2, TAKEOVER_CRASH),
    "replicas that send, matrix, to several, a wrong suspicion": _local("matrix", 2, TAKEOVER_SUSPICION, "multicast"),
    "a link, a wrong suspicion that ends": _linked("vector", 2, LINK_BACK_AND_FORTH, single=True),
    "a link in a matrix domain, the death of its sequencer": _linked("matrix", 2, LINK_CRASH, single=True),
    "a link with two relays on each side, a wrong suspicion": _linked("vector", 2, LINK_SUSPICION),
    "a link with two relays on each side, the death of its sequencer": _linked("vector", 2, LINK_CRASH),
    "a link whose relays are written to, a wrong suspicion": LINK_WRITTEN_TO,
    "matrix, three messages, a wrong suspicion": _takeover("matrix", 3, "unicast", TAKEOVER_SUSPICION),
    "sequenced, three messages, a wrong suspicion": _takeover("sequenced", 3, "unicast", TAKEOVER_SUSPICION),
    "sequenced, three messages, a death": _takeover("sequenced", 3, "unicast", TAKEOVER_CRASH),
    "matrix, to any of three, a wrong suspicion": Case(
        takeover_fabric("matrix", wide=True), 2, "multicast", faults=TAKEOVER_SUSPICION, among=("x", "y", "z")
    ),
}
