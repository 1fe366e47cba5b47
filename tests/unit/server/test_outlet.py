"""What a connected client is told, and when: the connection is a list, and the disk is played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thence.net.byte_pool import BytePool, HeldBytes
from thence.net.protocol import Accepted, Acknowledge, Deliver, Undeliverable
from thence.server import outlet as server_outlet
from thence.server.outlet import ClientOutlet
from thence.storage.mailbox import Batch


class Played:
    """An outlet, and what goes through it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.disk: list[Callable[[], None]] = []
        self.room = 0
        holding = HeldBytes()
        holding.enter(BytePool(1_000))
        writer = SimpleNamespace(full=False, send=lambda _, what: self.sent.append(what))
        self.connection = SimpleNamespace(writer=writer, holding=holding)
        intake = SimpleNamespace(accepted_of=lambda _: 7)
        node = SimpleNamespace(intake=intake, driver=SimpleNamespace(when_durable=self.disk.append))
        chatter = SimpleNamespace(spend=lambda _: None)
        self.outlet = ClientOutlet(cast("Any", node), "ann", cast("Any", self.connection), cast("Any", chatter), self.on_room)

    def on_room(self) -> None:
        self.room += 1


async def test_whoever_waits_for_acceptance_is_told_at_once_and_others_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_outlet, "ACCEPTED_EVERY", 4)
    played = Played()
    played.outlet.hurried = 1
    played.outlet.accepted(1)
    assert played.sent == [Accepted(1, 7)]
    for upto in (2, 3, 4):
        played.outlet.accepted(upto)
    assert len(played.sent) == 1
    played.outlet.accepted(5)
    assert played.sent[1:] == [Accepted(5, 7)], "many are told at once"
    played.outlet.accepted(6)
    await asyncio.sleep(4 * server_outlet.ACCEPTED_WITHIN_S)
    assert played.sent[2:] == [Accepted(6, 7)]


async def test_acceptance_comes_before_what_is_refused_behind_it() -> None:
    played = Played()
    played.outlet.accepted(3)
    played.outlet.undeliverable(4, 2, "never", forbidden=False)
    assert played.sent == [Accepted(3, 7), Undeliverable(4, 2, "never")]


async def test_of_acks_that_wait_for_the_disk_the_last_one_is_told() -> None:
    played = Played()
    for upto in (1, 2, 3):
        played.outlet.acknowledged(Acknowledge(upto, 10, True))
    (first,) = played.disk
    first()
    played.disk[1]()
    assert played.sent == [Acknowledge(1, 10), Acknowledge(3, 10)]


async def test_a_client_is_blocked_while_it_does_not_read_or_there_is_no_memory() -> None:
    played = Played()
    blocked = [played.outlet.blocked]
    played.connection.holding.note("unsent", 999)
    blocked.append(played.outlet.blocked)
    played.connection.holding.pool.look(0.0, lambda: None)
    assert played.room == 1
    played.connection.holding.clear()
    blocked.append(played.outlet.blocked)
    played.connection.writer.full = True
    assert [*blocked, played.outlet.blocked] == [False, True, False, True]


async def test_who_gets_a_message_that_went_to_everyone_is_told() -> None:
    played = Played()
    played.outlet.deliver(3, 1, Batch("bob", 1, 2, None, None, b"12"))
    played.outlet.deliver(5, 0, Batch("bob", 3, 1, ("ann",), None, b"1"))
    assert played.sent == [Deliver(3, 1, "bob", None, b"12", True), Deliver(5, 0, "bob", None, b"1")]
