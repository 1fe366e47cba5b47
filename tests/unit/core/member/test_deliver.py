"""Deliveries of one process: positions, and what the application has not consumed."""

from __future__ import annotations

from typing import Any

from thence.core.member.attachment import Attachment
from thence.core.member.deliver import DeliveryLog
from thence.core.member.limits import MemberOptions
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.core.topology.routing import Routes
from thence.core.wire.messages import Envelope, Frame

ROUTES = Routes(Topology.flat(Domain("d", ("a", "b"), "vector")))


def log(*, durable: bool = True) -> DeliveryLog:
    return DeliveryLog(Attachment("a", ROUTES, MemberOptions(durable=durable)), None)


def frames(*numbers: int) -> list[tuple[str, Frame[Any]]]:
    return [("d", Frame(None, Envelope("b", number, None, b"x"))) for number in numbers]


def test_positions_count_from_one_and_what_is_consumed_is_forgotten() -> None:
    found = log()
    assert [delivery.position for delivery in found.add(frames(1, 2, 3))] == [1, 2, 3]
    found.consumed(2)
    assert [delivery.position for delivery in found.again()] == [3]
    assert found.unconsumed_bytes == frames(3)[0][1].weight
    found.consumed(9)
    assert (found.again(), found.unconsumed_bytes, found.position) == ((), 0, 3)


def test_only_a_durable_member_keeps_deliveries() -> None:
    found = log(durable=False)
    found.add(frames(1))
    assert (found.position, found.unconsumed) == (1, {})


def test_a_loaded_log_goes_on_behind_what_was_delivered() -> None:
    before, after = log(), log()
    before.add(frames(1, 2))
    before.consumed(1)
    after.load(before.position, [(at, place, frame) for at, (place, frame) in before.unconsumed.items()])
    assert after.again() == before.again()
    assert after.unconsumed_bytes == before.unconsumed_bytes
    assert [delivery.position for delivery in after.add(frames(3))] == [3]


def test_a_fork_goes_on_by_itself() -> None:
    found = log()
    found.add(frames(1))
    twin = found.fork(Attachment("a", ROUTES, MemberOptions()), None)
    twin.consumed(1)
    assert len(found.unconsumed) == 1
