"""The drawings of the five papers as fabrics, and the table of all shapes by name.

Each function is called after its paper and figure. What a drawing shows is taken from the text around it; where the text
gives no number, the smallest that shows the point is used, and the function says so.

Departures: docs/research/errata.md tells where a figure's text contradicts itself (domains Fig. 2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from thence.core.topology.domain import Domain
from thence.core.topology.model import Link, Topology
from thence.errors import ConfigError
from thence.studies.parts import shapes
from thence.studies.parts.shapes import Orderings, fabric, in_turn


def domains_fig2(ordering: Orderings = "matrix") -> Topology:
    """Domains, Fig. 2: eight servers. Printed C is {S7, S8}; the route through it needs S6."""
    members = {"A": "S1 S2 S3", "B": "S4 S5", "C": "S6 S7 S8", "D": "S3 S6", "E": "S1 S4"}
    return fabric("domains-fig2", _domains(members, ordering))


def domains_fig10_bus(ordering: Orderings = "matrix") -> Topology:
    """Domains, Fig. 10: the bus (sizes are ours)."""
    return _called("domains-fig10-bus", shapes.bus(4, 4, ordering))


def domains_fig10_daisy(ordering: Orderings = "matrix") -> Topology:
    """Domains, Fig. 10: the daisy, of three levels (sizes are ours).

    The text names it and refers to the hierarchical daisy (daisy §3.2): one of two levels would be the bus over again.
    """
    return _called("domains-fig10-daisy", shapes.hierarchy(3, 2, 4, ordering))


def domains_fig10_tree(ordering: Orderings = "matrix") -> Topology:
    """Domains, Fig. 10: the tree (sizes are ours; §6.2 gives the formula)."""
    return _called("domains-fig10-tree", shapes.tree(3, 2, 4, ordering))


def clusters_fig2(ordering: Orderings = "matrix") -> Topology:
    """Clusters, Fig. 2: three layers; R is an agent on two of them and a client on the third (sizes are ours)."""
    made = shapes.hierarchy(3, 2, 3, ordering)
    renamed = [
        domain._replace(members=tuple("R" if name == "p1-1-1" else name for name in domain.members))
        for domain in made.domains.values()
    ]
    return fabric("clusters-fig2", renamed)


CLUSTERS_FIG6 = {
    "a": {"C1": "X Xi", "C2": "Xi Y"},
    "b": {"C1": "X Y", "C2": "Y Xi"},
    "c": {"C1": "Xi X", "C2": "X Y"},
    "d": {"C1": "X W", "C2": "W Y", "C3": "W Xi"},
    "e": {"C1": "X W1", "C2": "W1 W2 W3", "C3": "W2 Xi", "C4": "W3 Y"},
}
"""The five ways in which the routes among X, Y and Xi can lie, as Thm 1's proof tells them, with one hop for each line."""


def clusters_fig6(case: str = "a", ordering: Orderings = "matrix") -> Topology:
    """Clusters, Fig. 6: the five shapes that routes among X, Y and Xi can have."""
    if case not in CLUSTERS_FIG6:
        raise ConfigError(f"case {case}: must be one of {', '.join(CLUSTERS_FIG6)}")
    return fabric(f"clusters-fig6{case}", _domains(CLUSTERS_FIG6[case], ordering))


def daisy_fig3(ordering: Orderings = "vector") -> Topology:
    """Daisy, Fig. 3: local groups around the servers group (sizes are ours)."""
    return _called("daisy-fig3", shapes.daisy(4, 5, ordering, standbys=0))


def daisy_fig5(ordering: Orderings = "vector") -> Topology:
    """Daisy, Fig. 5 with the sizes of §5.1: three daisies of four groups of five, 60 processes in three levels."""
    return _called("daisy-fig5", shapes.hierarchy(3, (3, 4), 5, ordering))


def gateways_fig5(ordering: Orderings = "vector") -> Topology:
    """Gateways, Fig. 5: subgroups with a gateway each, and the main subgroup of gateways (sizes are ours)."""
    return fabric("gateways-fig5", _subgroups([ordering] * 3 if isinstance(ordering, str) else ordering))


def gateways_fig6(ordering: Orderings = ("sequenced", "vector", "matrix")) -> Topology:
    """Gateways, Fig. 6: the same with another ordering in each subgroup; a controller is the gateway (sizes are ours)."""
    return fabric("gateways-fig6", _subgroups([ordering] * 3 if isinstance(ordering, str) else ordering))


def _subgroups(orderings: Orderings) -> list[Domain]:
    groups = [
        Domain(f"G{at}", tuple(f"p{at}{place}" for place in range(4)), ordering) for at, ordering in enumerate(orderings, start=1)
    ]
    return [*groups, Domain("main", tuple(group.members[0] for group in groups), "vector")]


FIG3_SETS = {
    "isp01-isp11": "a isp01",
    "isp02-isp11": "b isp02",
    "isp03-isp12": "c isp03",
    "isp11-isp01": "d isp11",
    "isp11-isp02": "e",
    "isp12-isp02": "f isp12",
    "isp12-isp03": "g",
}
"""The arrows of the drawing, from the relay that transfers to the one that broadcasts, and whose messages take each."""


def interconnect_fig3(ordering: Orderings = "fifo") -> Topology:
    """Interconnect, Fig. 3: two FIFO systems, three relays here, two there, seven transfer sets (who is in which is ours)."""
    members = {"S0": "a b c isp01 isp02 isp03", "S1": "d e f g isp11 isp12"}
    links = []
    for arrow, senders in FIG3_SETS.items():
        pair = sorted(arrow.split("-"))
        links.append(Link(arrow, ("S0", "S1"), ((pair[0], pair[1]),), "fifo", only_from=tuple(senders.split())))
    return fabric("interconnect-fig3", _domains(members, ordering), links)


FIG4_SYSTEMS = {"S0": "p q r isp01 isp02 isp03", "S1": "s isp11 isp12", "S2": "t isp21", "S3": "u isp31 isp32 isp33"}
FIG4_LINKS = {
    "red": ("isp01-isp11", "isp01-isp21", "isp01-isp32"),
    "black": ("isp02-isp21", "isp21-isp12", "isp12-isp33"),
    "blue": ("isp03-isp31", "isp31-isp21", "isp31-isp12"),
}
"""By the colour of the drawing: a star for the messages of p, a chain for those of q, a tree for those of r."""


def interconnect_fig4(ordering: Orderings = "fifo") -> Topology:
    """Interconnect, Fig. 4: four FIFO systems, joined in three ways at once: a star for p, a chain for q, a tree for r.

    The text says nothing of the messages of the other processes; here they use the star too.
    """
    everybody = " ".join(FIG4_SYSTEMS.values()).split()
    senders = {"red": tuple(name for name in everybody if name not in ("q", "r")), "black": ("q",), "blue": ("r",)}
    links = [link._replace(only_from=senders[colour]) for colour in FIG4_LINKS for link in _fig4_links(colour, "fifo")]
    return fabric("interconnect-fig4", _domains(FIG4_SYSTEMS, ordering), links)


def interconnect_fig4_star(ordering: Orderings = "vector") -> Topology:
    """Interconnect, Fig. 4: the star of p alone, for everybody's messages."""
    return fabric("interconnect-fig4-star", _domains(FIG4_SYSTEMS, ordering), _fig4_links("red", "causal"))


def interconnect_fig4_chain(ordering: Orderings = "vector") -> Topology:
    """Interconnect, Fig. 4: the chain of q alone, for everybody's messages."""
    return fabric("interconnect-fig4-chain", _domains(FIG4_SYSTEMS, ordering), _fig4_links("black", "causal"))


def interconnect_fig4_tree(ordering: Orderings = "vector") -> Topology:
    """Interconnect, Fig. 4: the tree of r alone, for everybody's messages."""
    return fabric("interconnect-fig4-tree", _domains(FIG4_SYSTEMS, ordering), _fig4_links("blue", "causal"))


def _fig4_links(colour: str, mode: str) -> list[Link]:
    links = []
    for pair in FIG4_LINKS[colour]:
        near, _, far = pair.partition("-")
        between = (f"S{near[3]}", f"S{far[3]}")
        links.append(Link(f"{colour}-{pair}", between, ((near, far),), "causal" if mode == "causal" else "fifo"))
    return links


def _domains(members: dict[str, str], ordering: Orderings) -> list[Domain]:
    return [Domain(name, tuple(names.split()), in_turn(ordering, at)) for at, (name, names) in enumerate(members.items())]


def _called(name: str, topology: Topology) -> Topology:
    topology.name = name
    return topology


class NamedShape(NamedTuple):
    """A way to make a fabric: its parameters are those of ``make``, its one-line description that function's."""

    make: Callable[..., Topology]

    @property
    def about(self) -> str:
        """What it is, in one line."""
        return (self.make.__doc__ or "").partition("\n")[0]


SHAPES: dict[str, NamedShape] = {
    make.__name__.replace("_", "-"): NamedShape(make)
    for make in (
        shapes.flat,
        shapes.bus,
        shapes.daisy,
        shapes.hierarchy,
        shapes.tree,
        shapes.chain,
        shapes.star,
        shapes.linked,
        domains_fig2,
        domains_fig10_bus,
        domains_fig10_daisy,
        domains_fig10_tree,
        clusters_fig2,
        clusters_fig6,
        daisy_fig3,
        daisy_fig5,
        gateways_fig5,
        gateways_fig6,
        interconnect_fig3,
        interconnect_fig4,
        interconnect_fig4_star,
        interconnect_fig4_chain,
        interconnect_fig4_tree,
    )
}
"""Every shape by the name under which ``thence topology make`` knows it."""
