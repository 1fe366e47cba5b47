"""The outbox of an endpoint, alone: numbers, batches, limits, acceptance and refusal."""

from __future__ import annotations

import asyncio

import pytest

from thence.client.message import Message
from thence.client.parts import outbox as outbox_module
from thence.client.parts.outbox import Outbox
from thence.client.parts.state import EndpointState
from thence.errors import Busy, MalformedFrame, NotAllowed, UsageError
from thence.net.protocol import Publish


class Sent:
    """An outbox, its batches, and the refusals of messages that nobody waits for."""

    def __init__(self) -> None:
        self.batches: list[Publish] = []
        self.reasons: list[str] = []
        self.state = EndpointState("me")
        self.outbox = Outbox(self.state, self)
        self.outbox.transmit = self.batches.append
        self.state.enter()

    def refused(self, reason: str) -> None:
        self.reasons.append(reason)

    def unreadable(self, error: MalformedFrame) -> None:
        raise AssertionError("nothing is read here")

    def returned(self, message: Message, to: str) -> None:
        raise AssertionError("nothing comes here")

    @property
    def numbers(self) -> list[tuple[int, int]]:
        """The first number and the count of each batch."""
        return [(batch.first, batch.count) for batch in self.batches]


@pytest.fixture
async def sent() -> Sent:
    return Sent()


async def test_consecutive_messages_for_the_same_recipients_are_one_batch(sent: Sent) -> None:
    for to in ("ann", "ann", "bob", "ann"):
        sent.outbox.post(to, b"?", None)
    await asyncio.sleep(0)
    assert sent.numbers == [(1, 2), (3, 1), (4, 1)]
    assert [batch.to for batch in sent.batches] == [("ann",), ("bob",), ("ann",)]
    assert (sent.outbox.number, sent.outbox.unaccepted) == (4, 4)
    sent.outbox.on_accepted(3)
    assert sent.outbox.unaccepted == 1


@pytest.mark.parametrize(("limit", "value"), [("MAX_UNACCEPTED", 3), ("MAX_UNACCEPTED_BYTES", 3 * 17)])
async def test_a_full_outbox_is_busy_until_something_is_accepted(
    sent: Sent, limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, limit, value)
    for _ in range(3):
        sent.outbox.post("ann", b"?", None)
    with pytest.raises(Busy, match="3 messages of 51 bytes are not accepted yet"):
        sent.outbox.add(("ann",), None, b"?", None)
    room = asyncio.ensure_future(sent.outbox.room())
    await asyncio.sleep(0.01)
    assert not room.done()
    assert sent.numbers == [(1, 3)]
    sent.outbox.on_accepted(3)
    await room
    sent.outbox.post("ann", b"?", None)


async def test_a_refusal_goes_to_who_waits_for_the_message_or_to_the_hook(sent: Sent) -> None:
    sent.outbox.post("ann", b"?", None)
    waiting = asyncio.ensure_future(sent.outbox.send(("ann",), None, b"?", None))
    await asyncio.sleep(0)
    sent.outbox.on_undeliverable(1, 2, "no", forbidden=True)
    with pytest.raises(NotAllowed, match="no"):
        await waiting
    assert sent.reasons == ["no"]
    sent.outbox.on_undeliverable(1, 2, "again", forbidden=True)
    assert sent.reasons == ["no"], "an answer that comes twice counts once"


async def test_answers_about_messages_that_were_not_sent_mean_nothing(sent: Sent) -> None:
    sent.outbox.post("ann", b"1", None)
    sent.outbox.on_undeliverable(1, 100_000, "nobody", forbidden=False)
    assert sent.reasons == ["nobody"]
    sent.outbox.on_accepted(2**62)
    assert (sent.outbox.accepted, sent.outbox.unaccepted) == (1, 0)
    sent.outbox.post("ann", b"2", None)
    assert sent.outbox.unaccepted == 1


async def test_messages_sent_before_the_numbers_are_known_go_on_behind_those_of_an_earlier_program(sent: Sent) -> None:
    waiting = asyncio.ensure_future(sent.outbox.send(("ann",), None, b"?", None))
    await asyncio.sleep(0.01)
    assert sent.numbers == [(1, 1)]
    assert sent.outbox.begin(10) == 10
    assert (sent.outbox.number, sent.outbox.accepted) == (11, 10)
    sent.outbox.on_accepted(10)
    await asyncio.sleep(0)
    assert not waiting.done()
    sent.outbox.on_accepted(11)
    await waiting


async def test_the_end_wakes_who_waits_for_acceptance_or_for_room(sent: Sent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_UNACCEPTED", 1)
    calls = [asyncio.ensure_future(sent.outbox.send(("ann",), None, b"?", None)), asyncio.ensure_future(sent.outbox.room())]
    await asyncio.sleep(0.01)
    sent.state.fail(ValueError("gone"))
    for call in calls:
        with pytest.raises(ValueError, match="gone"):
            await call
    with pytest.raises(ValueError, match="gone"):
        sent.outbox.post("ann", b"?", None)
    assert sent.state.failure_seen


async def test_nothing_is_sent_before_the_block_is_entered_or_behind_its_end(sent: Sent) -> None:
    state = EndpointState("me")
    with pytest.raises(UsageError, match="'me' is not connected"):
        Outbox(state, sent).post("ann", b"?", None)
    sent.outbox.post("ann", b"?", None)
    sent.state.close()
    await asyncio.sleep(0)
    assert sent.batches == []
    with pytest.raises(UsageError, match="'me' is closed"):
        sent.outbox.post("ann", b"?", None)
