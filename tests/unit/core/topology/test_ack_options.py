"""The options of ack: which make sense, with which orderings, and who is near to whom."""

from __future__ import annotations

from typing import Any

import pytest

from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.ordering import ORDERINGS, ordering_named
from thence.core.topology.ack_options import AT_ONCE, MAX_AFTER_MESSAGES, MAX_DISTRIBUTED, AckOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import ConfigError, TopologyError

NAMES = ("a", "b", "c", "d")
MS = 1_000_000


@pytest.mark.parametrize(
    ("ordering", "options", "complaint"),
    [
        ("vector", {"retransmission": "nearest"}, "needs scheme 'distributed'"),
        ("vector", {"scheme": "distributed", "sites": (("a",),)}, "need retransmission 'nearest'"),
        ("vector", {"scheme": "distributed", "retransmission": "nearest", "sites": (("z",),)}, "'z' is not among the members a"),
        ("vector", {"scheme": "distributed", "retransmission": "nearest", "sites": (("a",), ("b", "a"))}, "'a' is named twice"),
        ("vector", {"after_messages": 0}, "after_messages is 0: it must be from 1"),
        ("vector", {"after_messages": MAX_AFTER_MESSAGES + 1, "after_ns": MS}, f"from 1 to {MAX_AFTER_MESSAGES}"),
        ("vector", {"after_ns": -1}, "must be 0 or more"),
        ("vector", {"after_messages": 8}, "needs both"),
        ("vector", {"after_ns": MS}, "needs both"),
        (
            "vector",
            {"after_messages": 8, "after_ns": 51 * MS},
            "a sender repeats after 200ms, so it is at most 50ms",
        ),
        ("vector", {"scheme": "centralised"}, "all send by themselves: use ordering 'sequenced', or scheme 'decentralised'"),
        (
            "matrix",
            {"scheme": "distributed"},
            "matrix stamps for each receiver: use ordering 'vector', or scheme",
        ),
        ("sequenced", {"scheme": "distributed"}, "sequenced stamps for each receiver"),
    ],
)
def test_options_that_make_no_sense(ordering: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TopologyError, match=complaint) as refused:
        Topology.flat(Domain("left", NAMES, ordering, acks=AckOptions(**options)))
    assert refused.value.about == ("domains", "left", "confirmation")
    assert "domain 'left': confirmation: " in str(refused.value)


@pytest.mark.parametrize("name", ORDERINGS)
def test_every_ordering_confirms_at_once_or_later_and_some_in_other_ways(name: str) -> None:
    kind = ordering_named(name)
    AT_ONCE.check(kind, NAMES)
    AckOptions(after_messages=8, after_ns=MS).check(kind, NAMES)
    for scheme, fits in (("centralised", kind.traits.centralised), ("distributed", kind.traits.one_stamp)):
        options = AckOptions(scheme=scheme)  # type: ignore[arg-type]
        if fits:
            options.check(kind, NAMES)
        else:
            with pytest.raises(ConfigError, match=f"scheme '{scheme}'"):
                options.check(kind, NAMES)


def test_too_many_to_confirm_to_everybody() -> None:
    names = [f"p{number}" for number in range(MAX_DISTRIBUTED + 1)]
    options = AckOptions(scheme="distributed")
    options.check(ordering_named("vector"), names[:-1])
    with pytest.raises(ConfigError, match="MAX_DISTRIBUTED"):
        options.check(ordering_named("vector"), names)


def test_a_member_that_repeats_sooner_refuses_a_delay_that_is_too_long_for_it() -> None:
    domain = Domain("d", NAMES, "vector", acks=AckOptions(after_messages=8, after_ns=20 * MS))
    Member("a", domain, MemberOptions(resend_after_ns=80 * MS))
    with pytest.raises(ConfigError, match="a sender repeats after 79ms"):
        Member("a", domain, MemberOptions(resend_after_ns=79 * MS))
    Member("a", domain, MemberOptions(reliable=False, resend_after_ns=79 * MS))


def test_the_nearest_are_those_of_the_same_site_and_then_the_others_in_order() -> None:
    sited = AckOptions(scheme="distributed", retransmission="nearest", sites=(("a", "d"), ("b",)))
    assert sited.nearest("a", NAMES) == ["d", "b", "c"]
    assert sited.nearest("d", NAMES) == ["a", "b", "c"]
    assert sited.nearest("b", NAMES) == sited.nearest("b", NAMES) == ["a", "c", "d"]
    assert sited.nearest("c", NAMES) == ["a", "b", "d"], "at no site: the order of the members decides"
