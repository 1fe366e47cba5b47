"""What an endpoint waits for by a key, and its state, alone."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from thence.client.parts.requests import Pending, Requests
from thence.client.parts.state import EndpointState
from thence.errors import UsageError


async def test_all_who_wait_for_a_key_get_its_answer() -> None:
    pending: Pending[str] = Pending(EndpointState("me"))
    both = [pending.wait("news"), pending.wait("news")]
    other = pending.wait("sports")
    assert (pending.keys, "news" in pending) == (["news", "sports"], True)
    both[0].cancel()
    assert pending.answer("news")
    assert not pending.answer("news"), "nobody asks any more"
    await both[1]
    pending.answer("sports", UsageError("no"))
    with pytest.raises(UsageError, match="no"):
        await other
    assert pending.keys == []


async def test_the_end_wakes_all_and_a_failure_that_nobody_gets_is_reported() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    state = EndpointState("me")
    waiting = Pending[str](state).wait("news")
    state.enter()
    state.fail(ValueError("gone"))
    state.fail(ValueError("again"))
    with pytest.raises(ValueError, match="gone"):
        await waiting
    assert (state.failure_seen, reports) == (True, [])
    alone = EndpointState("alone")
    alone.fail(ValueError("gone"))
    assert [context["message"] for context in reports] == ["thence: 'alone' has ended, and nobody waits for anything"]
    assert not alone.failure_seen


async def test_a_failure_that_was_got_in_another_way_is_not_printed() -> None:
    """Whoever asks waits until the request is accepted first, and gets the failure there."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    state = EndpointState("me")
    requests = Requests(state)
    request, reply = requests.ask("ann")
    state.enter()
    state.fail(ValueError("gone"))
    assert reply.done()
    requests.forget(request)
    del reply
    gc.collect()
    assert reports == []
