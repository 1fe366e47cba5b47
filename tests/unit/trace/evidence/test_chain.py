"""Shortest chains, and which of several is named."""

import pytest

from tests.support.traces import parse
from thence.errors import InternalError
from thence.trace.evidence import chain as chain_module
from thence.trace.evidence.chain import Chains
from thence.trace.evidence.history import History
from thence.trace.judge import judge
from thence.trace.words import tell_chain

RING = 400


def chain_of(text: str) -> tuple[str, ...]:
    (row,) = judge(parse(text), ["causal"]).violations
    return row.chain


def test_the_message_itself_may_be_the_way() -> None:
    assert chain_of("""
        A send m1 -> B C
        A send m2 -> B
        B deliver m1
        B deliver m2
        B send m3 -> C
        C deliver m3
        C deliver m1
    """) == ("m1", "m3")


def test_fewer_messages_win_over_an_earlier_arrival() -> None:
    assert chain_of("""
        A send m1 -> D
        A send x1 -> C
        C deliver x1
        C send x2 -> B
        B deliver x2
        A send y -> B
        B deliver y
        B send m2 -> D
        D deliver m2
        D deliver m1
    """) == ("m1", "y", "m2")


def test_of_two_ways_of_one_length_the_first_to_arrive_is_named() -> None:
    text = """
        A send m1 -> D
        A send to-b -> B
        A send to-c -> C
        B deliver to-b
        C deliver to-c
        B send from-b -> E
        C send from-c -> E
        E deliver {first}
        E deliver {second}
        E send m2 -> D
        D deliver m2
        D deliver m1
    """
    assert chain_of(text.format(first="from-b", second="from-c")) == ("m1", "to-b", "from-b", "m2")
    assert chain_of(text.format(first="from-c", second="from-b")) == ("m1", "to-c", "from-c", "m2")


def test_a_chain_round_a_long_ring_is_found() -> None:
    lines = ["P0 send late -> Z", "P0 send m0 -> P1"]
    for n in range(1, RING):
        lines += [f"P{n} deliver m{n - 1}", f"P{n} send m{n} -> P{n + 1 if n + 1 < RING else 'Z'}".replace("PZ", "Z")]
    lines += [f"Z deliver m{RING - 1}", "Z deliver late"]
    assert chain_of("\n".join(lines)) == ("late", *(f"m{n}" for n in range(RING)))


def test_remembering_fewer_sources_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        A send a -> C
        B send b -> C
        A send x -> D
        B send y -> D
        D deliver x
        D deliver y
        D send d1 -> C
        D send d2 -> C
        C deliver d1
        C deliver a
        C deliver d2
        C deliver b
    """
    expected = judge(parse(text), ["causal"])
    monkeypatch.setattr(chain_module, "MAX_KEPT_SOURCES", 1)
    assert judge(parse(text), ["causal"]) == expected
    assert [row.chain for row in expected.violations] == [("a", "x", "d1"), ("b", "y", "d2")]


def test_asking_for_a_chain_that_cannot_be_is_our_mistake() -> None:
    history = History(None, parse("A send a -> B\n B send b -> A\n A deliver b\n B deliver a"))
    with pytest.raises(InternalError, match="does not precede"):
        Chains(history, set()).between(0, 1)


def test_a_chain_is_told_as_a_story() -> None:
    senders = {"m1": "A", "m2": "A", "m3": "B"}
    assert tell_chain(["m1", "m2", "m3"], senders) == "A sent m1, then A sent m2, then B delivered m2 and sent m3"
    assert tell_chain([], senders) == ""
