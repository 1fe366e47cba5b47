"""The figures of the papers, as ``thence topology make`` gives them: every route that a drawing or its text shows.

A figure that is added must be put into ``ROUTES``. Where a paper draws groups without saying who is in them, sizes are ours.
"""

from __future__ import annotations

import pytest

from thence.core.topology.routing import Routes
from thence.studies.parts import figures
from thence.studies.parts.figures import SHAPES

ROUTES = {
    "clusters-fig2": (
        "p1-1-2 g1-1 R top p2-1-1 g2 p2-2-1 g2-2 p2-2-3",
        "p1-1-2 g1-1 R g1 p1-2-1 g1-2 p1-2-3",
        "p1-1-2 g1-1 p1-1-3",
    ),
    "clusters-fig6": ("X C1 Xi C2 Y", "Y C2 Xi C1 X"),
    "daisy-fig3": ("p1-2 g1 p1-1 servers p4-1 g4 p4-5", "p1-2 g1 p1-5", "p4-1 servers p2-1"),
    "daisy-fig5": (
        "p1-2-5 g1-2 p1-2-1 g1 p1-1-1 top p3-1-1 g3 p3-4-1 g3-4 p3-4-5",
        "p1-2-5 g1-2 p1-2-1 g1 p1-3-1 g1-3 p1-3-2",
        "p1-2-5 g1-2 p1-2-4",
    ),
    "domains-fig10-bus": ("p1-2 g1 p1-1 bus p4-1 g4 p4-4", "p1-2 g1 p1-4"),
    "domains-fig10-daisy": (
        "p1-2-4 g1-2 p1-2-1 g1 p1-1-1 top p2-1-1 g2 p2-2-1 g2-2 p2-2-3",
        "p1-1-2 g1-1 p1-1-1 g1 p1-2-1 g1-2 p1-2-2",
    ),
    "domains-fig10-tree": ("p1-1-4 d1-1 p1-2 d1 p2 root p3 d2 p2-3 d2-2 p2-2-4", "p1-1-4 d1-1 p1-2 d1 p1-3 d1-2 p1-2-2"),
    "domains-fig2": ("S1 A S3 D S6 C S8", "S5 B S4 E S1 A S3 D S6 C S7", "S2 A S1 E S4"),
    "gateways-fig5": ("p11 G1 p10 main p30 G3 p33", "p11 G1 p12"),
    "gateways-fig6": ("p21 G2 p20 main p10 G1 p13", "p31 G3 p32"),
    "interconnect-fig3": (
        "a S0 isp01 isp01-isp11 isp11 S1 g",
        "b S0 isp02 isp02-isp11 isp11 S1 g",
        "c S0 isp03 isp03-isp12 isp12 S1 d",
        "d S1 isp11 isp11-isp01 isp01 S0 c",
        "e S1 isp11 isp11-isp02 isp02 S0 c",
        "f S1 isp12 isp12-isp02 isp02 S0 a",
        "g S1 isp12 isp12-isp03 isp03 S0 a",
    ),
    "interconnect-fig4": (
        "p S0 isp01 red-isp01-isp11 isp11 S1 s",
        "p S0 isp01 red-isp01-isp21 isp21 S2 t",
        "p S0 isp01 red-isp01-isp32 isp32 S3 u",
        "q S0 isp02 black-isp02-isp21 isp21 S2 t",
        "q S0 isp02 black-isp02-isp21 isp21 black-isp21-isp12 isp12 S1 s",
        "q S0 isp02 black-isp02-isp21 isp21 black-isp21-isp12 isp12 black-isp12-isp33 isp33 S3 u",
        "r S0 isp03 blue-isp03-isp31 isp31 S3 u",
        "r S0 isp03 blue-isp03-isp31 isp31 blue-isp31-isp21 isp21 S2 t",
        "r S0 isp03 blue-isp03-isp31 isp31 blue-isp31-isp12 isp12 S1 s",
    ),
    "interconnect-fig4-star": (
        "q S0 isp01 red-isp01-isp11 isp11 S1 s",
        "t S2 isp21 red-isp01-isp21 isp01 red-isp01-isp32 isp32 S3 u",
    ),
    "interconnect-fig4-chain": ("p S0 isp02 black-isp02-isp21 isp21 black-isp21-isp12 isp12 black-isp12-isp33 isp33 S3 u",),
    "interconnect-fig4-tree": (
        "s S1 isp12 blue-isp31-isp12 isp31 blue-isp31-isp21 isp21 S2 t",
        "p S0 isp03 blue-isp03-isp31 isp31 S3 u",
    ),
}
"""By figure, as process, domain or link, process, ..."""


def test_no_figure_is_left_out() -> None:
    assert {name for name, shape in SHAPES.items() if shape.make.__module__ == figures.__name__} == set(ROUTES)


@pytest.mark.parametrize("figure", ROUTES)
def test_the_routes_of_the_figure(figure: str) -> None:
    """I1, I2, D1, D2, C2, G1, M1: a message goes the way that is drawn."""
    path = Routes(SHAPES[figure].make()).path
    for route in ROUTES[figure]:
        steps = route.split()
        assert path(steps[0], steps[-1]) == steps
