"""Whoever sends and receives by a name keeps the same rules: a client, a script's client, and a member.

Each rule is shown a broken endpoint.
A script's client is called from another thread, so that all kinds are tried by the same coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, addressed, servers, url
from thence.client.endpoint import Endpoint
from thence.errors import UsageError

COUNT = 30


class Script:
    """A client of a script, awaited."""

    def __init__(self, client: thence.BlockingClient) -> None:
        self.client = client
        self.name = client.name

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        called = getattr(self.client, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(called, *arguments, **named)

        return call


class Fabric:
    """Two endpoints of one kind, at two servers or as two members, which can be left and entered again."""

    places: ClassVar = {"a": "s1", "b": "s2"}
    """Where each endpoint is."""
    knows_all = False
    """Whether all names are known before anybody has come."""

    def __init__(self, data: Path) -> None:
        members = ", ".join(f'"{name}"' for name in self.places.values())
        self.topology = addressed(f'name = "two"\nstability = true\n[domains.D]\nmembers = [{members}]\nordering = "matrix"\n')
        self.data = data

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what the endpoints connect to."""
        async with servers(self.topology, self.data):
            yield

    @asynccontextmanager
    async def endpoint(self, name: str) -> AsyncIterator[Any]:
        """Enter an endpoint, and leave it in order."""
        async with thence.connect(url(self.topology, self.places[name]), name) as client:
            yield client


class Scripts(Fabric):
    """Clients of scripts."""

    @asynccontextmanager
    async def endpoint(self, name: str) -> AsyncIterator[Any]:
        blocking = thence.connect_blocking(url(self.topology, self.places[name]), name)
        await asyncio.to_thread(blocking.__enter__)
        try:
            yield Script(blocking)
        finally:
            await asyncio.to_thread(blocking.__exit__, None, None, None)


class Members(Fabric):
    """Members inside a program."""

    places: ClassVar = {"a": "a", "b": "b"}
    knows_all = True

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield

    @asynccontextmanager
    async def endpoint(self, name: str) -> AsyncIterator[Any]:
        async with thence.Member(self.topology, name=name, data=self.data / name) as member:
            yield member


KINDS: dict[str, type[Fabric]] = {"client": Fabric, "script": Scripts, "member": Members}


@asynccontextmanager
async def both(fabric: Fabric) -> AsyncIterator[tuple[Any, Any]]:
    """Enter two endpoints that know each other."""
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(fabric.endpoint("a"))
        b = await stack.enter_async_context(fabric.endpoint("b"))
        await a.known("b")
        await b.known("a")
        yield a, b


async def received(endpoint: Any, count: int) -> list[Any]:
    return [(await endpoint.receive(PATIENCE_S)).value() for _ in range(count)]


# --- the rules ---------------------------------------------------------------------------------------------------------


async def messages_come_once_and_in_order(fabric: Fabric) -> None:
    async with both(fabric) as (a, b):
        for number in range(COUNT):
            await a.send("b", number)
            await b.send(["a", "b"], -number)
        assert [one for one in await received(b, 2 * COUNT) if one > 0] == list(range(1, COUNT))
        assert await received(a, COUNT) == [-number for number in range(COUNT)]
        with pytest.raises(TimeoutError):
            await a.receive(0.05)


async def bodies_and_headers_come_as_they_were(fabric: Fabric) -> None:
    async with both(fabric) as (a, b):
        for body in (b"", b"\x00" * 100_000, "text", 7, {"a": [1, None]}):
            await a.send("b", body, headers={"k": "Zoë"})
            message = await b.receive(PATIENCE_S)
            assert (message.body if isinstance(body, bytes) else message.value()) == body
            assert (message.sender, dict(message.headers)) == ("a", {"k": "Zoë"})


async def a_request_gets_its_reply(fabric: Fabric) -> None:
    async with both(fabric) as (a, b):
        asked = asyncio.ensure_future(a.request("b", 20, within=PATIENCE_S))
        question = await b.receive(PATIENCE_S)
        await b.send("a", "beside")
        replied = b.reply(question, question.value() + 1)
        if replied is not None:
            await replied
        assert (await asked).value() == 21
        assert await received(a, 1) == ["beside"], "a reply is no message"
        with pytest.raises(TimeoutError):
            await a.request("b", 0, within=0.05)


async def topics_are_followed_and_left(fabric: Fabric) -> None:
    async with both(fabric) as (a, b):
        await b.subscribe("news")
        await a.send("b", "is it there?")
        assert await received(b, 1) == ["is it there?"]
        await until_published(a, b)
        await b.unsubscribe("news")
        await b.send("a", "left")
        assert await received(a, 1) == ["left"]
        await a.publish("news", "late")
        await a.send("b", "behind")
        assert await received(b, 1) == ["behind"]


async def until_published(a: Any, b: Any) -> None:
    """Publish until it is seen: that somebody follows is known at another server a little later."""
    for number in range(100):
        await a.publish("news", number)
        try:
            assert (await b.receive(0.2)).topic == "news"
        except TimeoutError:
            continue
        await a.send("b", "end")
        while (await b.receive(PATIENCE_S)).value() != "end":
            pass
        return
    raise AssertionError("nothing that was published came")


async def what_is_not_done_comes_again(fabric: Fabric) -> None:
    async with both(fabric) as (a, b):
        for number in range(4):
            await a.send("b", number)
        assert await received(b, 2) == [0, 1]
        done = b.done()
        if done is not None:
            await done
    async with both(fabric) as (a, b):
        assert await received(b, 2) == [2, 3]
        await a.send("b", 4)
        assert await received(b, 1) == [4]


async def names_are_known_or_waited_for(fabric: Fabric) -> None:
    async with fabric.endpoint("a") as a:
        waiting = asyncio.ensure_future(a.known("b"))
        await asyncio.sleep(0.05)
        assert waiting.done() == fabric.knows_all
        async with fabric.endpoint("b") as b:
            await waiting
            await a.send("b", "hello")
            assert await received(b, 1) == ["hello"]
            await a.stable()


async def wrong_use_is_refused(fabric: Fabric) -> None:
    async with fabric.endpoint("a") as a:
        with pytest.raises(UsageError):
            await a.send([], "to nobody")
        with pytest.raises(UsageError):
            await a.publish("", "no topic")
    with pytest.raises(UsageError):
        await a.send("a", "outside")


Rule = Callable[[Fabric], Awaitable[None]]
RULES: tuple[Rule, ...] = (
    messages_come_once_and_in_order,
    bodies_and_headers_come_as_they_were,
    a_request_gets_its_reply,
    topics_are_followed_and_left,
    what_is_not_done_comes_again,
    names_are_known_or_waited_for,
    wrong_use_is_refused,
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
async def test_an_endpoint(rule: Rule, kind: type[Fabric], tmp_path: Path) -> None:
    fabric = kind(tmp_path)
    async with fabric.running():
        await rule(fabric)


# --- planted -----------------------------------------------------------------------------------------------------------


class Wrapped:
    """An endpoint with some of its calls replaced."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self.endpoint, name)


class Reverses(Wrapped):
    """Gives two messages in the other order."""

    kept: list[Any]

    async def receive(self, within: float | None = None) -> Any:
        waiting = self.__dict__.setdefault("kept", [])
        if not waiting:
            waiting.append(await self.endpoint.receive(within))
            waiting.append(await self.endpoint.receive(within))
        return waiting.pop()


class DropsHeaders(Wrapped):
    """Sends no headers."""

    async def send(self, to: Any, body: Any, *, headers: Any = None) -> None:
        await self.endpoint.send(to, body)


class RepliesAsMessage(Wrapped):
    """Sends a message where a reply is wanted."""

    def reply(self, message: Any, body: Any) -> Awaitable[None]:
        return self.endpoint.send(message.sender, body)


class NeverLeaves(Wrapped):
    """Goes on following a topic."""

    async def unsubscribe(self, topic: str) -> None:
        pass


class DoneAtOnce(Wrapped):
    """Calls a message done before the program has."""

    def done(self) -> None:
        pass

    async def receive(self, within: float | None = None) -> Any:
        message = await self.endpoint.receive(within)
        while len(self.__dict__.setdefault("seen", [])) < 3:
            self.seen.append(await self.endpoint.receive(within))
            self.endpoint.done()
        return message


class TakesAnything(Wrapped):
    """Refuses nothing."""

    async def send(self, to: Any, body: Any, *, headers: Any = None) -> None:
        if to:
            await self.endpoint.send(to, body, headers=headers)


class NeverWaits(Wrapped):
    """Says that it knows everybody."""

    async def known(self, name: str) -> None:
        pass


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (Reverses, messages_come_once_and_in_order),
        (DropsHeaders, bodies_and_headers_come_as_they_were),
        (RepliesAsMessage, a_request_gets_its_reply),
        (NeverLeaves, topics_are_followed_and_left),
        (DoneAtOnce, what_is_not_done_comes_again),
        (NeverWaits, names_are_known_or_waited_for),
        (TakesAnything, wrong_use_is_refused),
    ],
)
async def test_a_broken_endpoint_is_noticed(
    planted: type[Wrapped], rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.conformance.test_endpoints.PATIENCE_S", 2.0)

    class Planted(Fabric):
        @asynccontextmanager
        async def endpoint(self, name: str) -> AsyncIterator[Any]:
            async with super().endpoint(name) as client:
                yield planted(client)

    fabric = Planted(tmp_path)
    async with fabric.running():
        with pytest.raises((AssertionError, pytest.fail.Exception, TimeoutError)):
            await rule(fabric)
