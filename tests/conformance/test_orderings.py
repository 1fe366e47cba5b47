"""Every message exactly once to exactly its recipients, in the order that the ordering guarantees, the same every time."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.suite import MEMBERS, VARIANTS, Variant, every_ordering
from tests.support.runs import PATTERNS, random_run
from thence.core.ordering import ORDERINGS, ArrivalOrder, make_ordering
from thence.core.wire.messages import Envelope
from thence.errors import ConfigError
from thence.trace.judge import PROPERTIES

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(12)


@every_ordering
@pytest.mark.parametrize("pattern", [*PATTERNS, "mixed"])
def test_guarantees_hold_under_random_arrivals(variant: Variant, pattern: str) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        run = variant.run(MEMBERS[: 2 + seed % 4])
        random_run(run, chance, 25, PATTERNS if pattern == "mixed" else (pattern,), eager=chance.choice([0.1, 0.5, 0.9]))
        assert run.complaints() == [], f"{variant.label}, seed {seed}"
        assert run.waiting() == 0


@every_ordering
def test_exactly_the_recipients_deliver(variant: Variant) -> None:
    for sender in MEMBERS:
        for to in (("A",), ("C",), ("B", "D"), ("A", "B", "E"), (sender,), MEMBERS, None, ("D", "B", "D")):
            run = variant.run()
            envelope = run.send(sender, to)
            run.arrive_everything(random.Random(0))
            expected = {name: [str(envelope.id)] if name in (to or MEMBERS) else [] for name in MEMBERS}
            assert {name: run.deliveries(name) for name in MEMBERS} == expected


@every_ordering
def test_the_body_arrives_unchanged(variant: Variant) -> None:
    run = variant.run()
    envelope = run.send("B", None, b"what was written")
    delivered = []
    while flights := run.flights():
        delivered += run.arrive(flights[0].source, flights[0].target, flights[0].place).deliver
    assert delivered
    assert all(frame.envelope == envelope for frame in delivered)


@every_ordering
def test_a_member_alone_delivers_to_itself(variant: Variant) -> None:
    run = variant.run(("A",))
    run.send("A", None)
    run.send("A", ("A",))
    assert run.deliveries("A") == ["A:1", "A:2"]
    assert run.flights() == []


@every_ordering
def test_it_promises_what_the_judge_knows(variant: Variant) -> None:
    assert variant.traits.guarantees <= set(PROPERTIES)
    assert "fifo" in variant.traits.guarantees or "causal" not in variant.traits.guarantees, "causal order implies fifo order"


@every_ordering
def test_who_says_so_gives_all_others_one_stamp(variant: Variant) -> None:
    """Then one number stands for a message at all members, and whoever has it can repeat it (``core.transport.ack_all``)."""
    run = variant.run()
    chance = random.Random(3)
    one_stamp = variant.traits.arrival is ArrivalOrder.ANY
    for at in range(30):
        sender = chance.choice(MEMBERS)
        to = None if at % 2 else tuple(chance.sample(MEMBERS, chance.randint(1, 4)))
        before = {way: len(frames) for way, frames in run.on_the_way.items()}
        run.send(sender, to)
        sent = [(way, frame) for way, frames in run.on_the_way.items() for frame in frames[before.get(way, 0) :]]
        one_stamp &= sorted(way for way, _ in sent) == [(sender, other) for other in MEMBERS if other != sender]
        one_stamp &= len({frame.stamp for _, frame in sent}) == 1
        one_stamp &= all((frame.envelope is not None) == (to is None or way[1] in to) for way, frame in sent)
        for _ in range(2):
            flight = chance.choice(run.flights())
            one_stamp &= run.arrive(flight.source, flight.target, flight.place).send == []
    assert variant.traits.one_stamp == one_stamp
    assert variant.traits.direct or not variant.traits.one_stamp


@every_ordering
def test_a_message_goes_where_room_is_asked_for_it(variant: Variant) -> None:
    """That is to whom ``carries_to`` names, or to all with an ordering that ``marks``: whoever is no recipient counts, too."""
    run = variant.run()
    for sender in MEMBERS:
        before = {way: len(frames) for way, frames in run.on_the_way.items()}
        to = (next(other for other in MEMBERS if other != sender),)
        run.send(sender, to)
        sent = {way[1] for way, frames in run.on_the_way.items() if len(frames) > before.get(way, 0)}
        room = {*MEMBERS} - {sender} if variant.traits.marks else {*run.orderings[sender].paths.carries_to(to)}
        assert sent <= room


@every_ordering
def test_the_first_hop_is_where_a_message_goes_first(variant: Variant) -> None:
    """So that its body may go there ahead of it (``core.failover.early_payloads``)."""
    named = 0
    for sender in MEMBERS:
        for to in (("A",), ("B", "D"), (sender,), MEMBERS, None):
            ordering = variant.run().orderings[sender]
            hop = ordering.paths.first_hop(to)
            got = [name for name, frame in ordering.send(Envelope(sender, 1, to, b""), to).send if frame.envelope is not None]
            assert sender not in hop
            assert len(set(hop)) == len(hop)
            assert set(hop) <= set(got)
            named += len(hop)
    assert named or not variant.traits.direct


@every_ordering
def test_who_says_so_sends_everything_through_one_member(variant: Variant) -> None:
    run = variant.run()
    for sender in MEMBERS:
        run.send(sender, None)
    through = [name for name in MEMBERS if all(name in (flight.source, flight.target) for flight in run.flights())]
    if variant.traits.centralised or variant.label == variant.name:  # Options may make a centre where otherwise there is none.
        assert variant.traits.centralised == (len(through) == 1)


# --- what cannot be asked for ------------------------------------------------------------------------------------------


@every_ordering
def test_members_and_options_are_checked(variant: Variant) -> None:
    with pytest.raises(ConfigError, match="twice"):
        make_ordering(variant.name, "A", ["A", "B", "A"])
    with pytest.raises(ConfigError, match="'Z'"):
        make_ordering(variant.name, "Z", MEMBERS)
    with pytest.raises(ConfigError, match="no_such_option"):
        make_ordering(variant.name, "A", MEMBERS, {"no_such_option": 1})


@every_ordering
def test_an_unknown_recipient_is_refused_and_nothing_happens(variant: Variant) -> None:
    for member, ordering in variant.busy_run(1).orderings.items():
        before = ordering.snapshot()
        with pytest.raises(ConfigError, match="'Z'"):
            ordering.send(Envelope(member, 99, ("A", "Z"), b""), ("A", "Z"))
        assert ordering.snapshot() == before


def test_an_unknown_name_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"no ordering 'matrx'; did you mean 'matrix'\?"):
        make_ordering("matrx", "A", MEMBERS)


# --- the same every time -----------------------------------------------------------------------------------------------


def digest(seed: int) -> str:
    """Return a fingerprint of all that all orderings return in a run with this seed."""
    found = hashlib.sha256()
    for variant in VARIANTS:
        run = variant.run()
        random_run(run, random.Random(seed), 30)
        found.update(variant.label.encode())
        for output in run.outputs:
            found.update(output)
        for ordering in run.orderings.values():
            found.update(ordering.snapshot())
    return found.hexdigest()


def test_same_inputs_same_outputs() -> None:
    assert digest(3) == digest(3)
    assert digest(3) != digest(4)


@pytest.mark.parametrize("hash_seed", ["1", "12345"])
def test_same_outputs_under_another_hash_seed(hash_seed: str) -> None:
    code = "from tests.conformance.test_orderings import digest; print(digest(3))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == digest(3)


def test_every_ordering_of_the_registry_is_here() -> None:
    assert {variant.name for variant in VARIANTS} == set(ORDERINGS)
