"""Agents in one node, without sockets: reactions are serial, atomic, bounded and tried again. The node is real, with its disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

import thence
from tests.support.crashes.spills import kept_in
from tests.unit.node.test_node import PATIENCE_S, alone, durable, killed
from thence.agents import agent as agent_module
from thence.agents import engine as engine_module
from thence.agents import reactions as reactions_module
from thence.agents.engine import MAX_ATTEMPTS, AgentEngine
from thence.agents.kinds import kinds_of
from thence.agents.reactions import drop, revive
from thence.client.message import recipients
from thence.errors import Busy, UsageError
from thence.net.protocol import BatchItem, encode_value, read_messages, write_messages
from thence.node.directory import subscriptions
from thence.node.directory.directory import DirectoryChange
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage import agents as ledger_module
from thence.storage import mailbox as mailbox_module
from thence.storage.bodies import Follows, Joined, Left
from thence.storage.mailbox import Batch


class Log(thence.Agent):
    """Writes down what it is told, and does as it is told."""

    state: list[str]
    gates: ClassVar[dict[str, asyncio.Event]] = {}
    begun: ClassVar[list[str]] = []
    failing: ClassVar[dict[str, int]] = {}
    """How often the reaction to a text still fails."""

    async def react(self, message: thence.Message) -> None:
        text = message.value(str)
        self.begun.append(f"{self.name}:{text}")
        self.state.append(text if message.topic is None else f"{message.topic}/{text}")
        order, _, rest = text.partition(" ")
        if order == "tell":
            for name in rest.split(","):
                await self.send(name, f"from {self.name}")
        elif order == "follow":
            await self.subscribe(rest)
        elif order == "publish":
            await self.publish(rest, "news")
        elif order == "wait":
            await self.gates[rest].wait()
        if self.failing.get(text, 0) > 0:
            self.failing[text] -= 1
            raise ValueError(text)
        if message.wants_reply:
            message.reply(len(self.state))


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    Log.gates.clear()
    Log.begun.clear()
    Log.failing.clear()
    monkeypatch.setattr(engine_module, "FIRST_RETRY_S", 0.0)


class Home:
    """A node with agents, and a client called till."""

    def __init__(self, data: Path | None, classes: tuple[type[thence.Agent], ...] = (Log,), **options: Any) -> None:
        self.node = Node(alone(), "s1", NodeOptions(data=data, **options))
        self.engine = AgentEngine(self.node, kinds_of(classes))
        self.node.hooks.on_messages = self.engine.messages
        self.node.hooks.on_notice = self._notice
        self.engine.start()
        self._number = 0

    def _notice(self, change: DirectoryChange) -> None:
        if change.left is not None:
            self.engine.forget(change.left)

    async def make(self, *names: str, kind: str = "Log") -> None:
        for name in names:
            self.node.intake.announce(Joined(name, "s1", temporary=False, kind=kind, state=encode_value([])))
        self.node.intake.announce(Joined("till", "s1", temporary=False))
        await durable(self.node)

    def send(self, to: str, *texts: str, request: int = 0) -> None:
        for text in texts:
            messages = write_messages([BatchItem(encode_value(text), coded=True, request=request)])
            assert self.node.intake.submit(
                Batch("till", self.node.directory.state.mailboxes["till"].sent + 1, 1, recipients(to), None, messages)
            )

    async def rest(self) -> None:
        """Wait until nothing is left to do."""
        while self.busy():  # noqa: ASYNC110  Nobody is told.
            await asyncio.sleep(0)

    def busy(self) -> bool:
        working = any(running.scheduled for running in self.engine.running.values())
        return working or self.node.driver.commits.task is not None

    def state(self, name: str) -> list[str]:
        return msgspec.msgpack.decode(self.node.ledger.agents[name].state, type=list[str])

    def got(self, name: str) -> list[Any]:
        """Return what is in the mailbox of a client."""
        batches = kept_in(self.node.directory.state.mailboxes[name], self.node.backlog.spill, name)
        return [msgspec.msgpack.decode(one.body) for _, batch in batches for one in read_messages(batch.messages, "")]

    async def kill(self) -> None:
        await self.rest()
        await self.engine.close()
        killed(self.node)


@asynccontextmanager
async def home(data: Path | None = None, *names: str) -> AsyncIterator[Home]:
    """Run a node with some agents."""
    one = Home(data)
    await one.make(*names)
    try:
        yield one
    finally:
        await one.engine.close()
        await one.node.close()


async def until(condition: Callable[[], Any]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


# --- order and atomicity ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [True, False])
async def test_agents_react_in_order_and_what_they_send_arrives(on_disk: bool, tmp_path: Path) -> None:
    async with home(tmp_path if on_disk else None, "ann", "bob") as one:
        one.send("ann", "a", "tell bob,till,ann", "b")
        await one.rest()
        assert one.state("ann") == ["a", "tell bob,till,ann", "b", "from ann"]
        assert (one.state("bob"), one.got("till")) == (["from ann"], ["from ann"])
        assert one.engine.reactions == 5
        assert one.node.directory.state.mailboxes["ann"].waiting == {}


async def test_one_agent_reacts_serially_and_others_go_on_meanwhile() -> None:
    async with home(None, "ann", "bob", "carl") as one:
        Log.gates["x"] = asyncio.Event()
        one.send("ann", "wait x", "after")
        one.send("carl", "wait x")
        one.send("bob", "b")
        await until(lambda: one.node.ledger.agents["bob"].done)
        assert sorted(Log.begun) == ["ann:wait x", "bob:b", "carl:wait x"]
        assert one.state("ann") == []
        Log.gates["x"].set()
        await one.rest()
        assert one.state("ann") == ["wait x", "after"]


async def test_no_more_than_so_many_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "MAX_REACTING", 2)
    async with home(None, "a1", "a2", "a3") as one:
        Log.gates["x"] = asyncio.Event()
        for name in ("a1", "a2", "a3"):
            one.send(name, "wait x")
        for _ in range(20):
            await asyncio.sleep(0)
        assert Log.begun == ["a1:wait x", "a2:wait x"]
        Log.gates["x"].set()
        await one.rest()
        assert one.state("a3") == ["wait x"]


async def test_nothing_of_a_reaction_leaves_before_it_is_durable(tmp_path: Path) -> None:
    async with home(tmp_path, "ann") as one:
        store: Any = one.node.driver.store
        commit, begun, go_on = store.commit, threading.Semaphore(0), threading.Semaphore(1)

        def held(*how: int) -> int:
            begun.release()
            assert go_on.acquire(timeout=PATIENCE_S)
            return int(commit(*how))

        store.commit = held
        one.send("ann", "tell till")
        await until(lambda: Log.begun)
        await asyncio.to_thread(begun.acquire)  # The message's own,
        await asyncio.to_thread(begun.acquire)  # and now that of the reaction, which does not end yet.
        assert one.got("till") == []
        assert one.node.directory.state.mailboxes["ann"].acknowledged == 0
        assert one.state("ann") == ["tell till"]
        go_on.release(100)
        await one.rest()
        assert one.got("till") == ["from ann"]
        assert one.node.directory.state.mailboxes["ann"].acknowledged == 1


async def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_repeated(tmp_path: Path) -> None:
    one = Home(tmp_path)
    await one.make("ann")
    one.send("ann", "a", "tell till")
    await one.rest()
    Log.gates["x"] = asyncio.Event()
    one.send("ann", "wait x", "b")
    await until(lambda: "ann:wait x" in Log.begun)
    await durable(one.node)
    await one.engine.close()
    killed(one.node)
    Log.gates["x"].set()
    again = Home(tmp_path)
    await again.rest()
    assert again.state("ann") == ["a", "tell till", "wait x", "b"]
    assert again.got("till") == ["from ann"]
    assert Log.begun.count("ann:wait x") == 2
    assert Log.begun.count("ann:a") == 1
    await again.kill()


async def test_a_snapshot_holds_states_positions_and_dead_messages(tmp_path: Path) -> None:
    one = Home(tmp_path)
    await one.make("ann")
    Log.failing["bad"] = MAX_ATTEMPTS
    one.send("ann", "a", "bad", "b")
    await one.rest()
    await one.node.driver.commits.compact()
    one.send("ann", "c")
    await one.kill()
    again = Home(tmp_path)
    await again.rest()
    assert again.state("ann") == ["a", "b", "c"]
    assert [dead.error for dead in again.node.ledger.dead_letters()] == ["ValueError: bad"]
    assert Log.begun.count("ann:a") == 1
    await again.kill()


# --- failures --------------------------------------------------------------------------------------------------------


async def test_a_reaction_that_fails_leaves_nothing_and_is_tried_again() -> None:
    async with home(None, "ann") as one:
        Log.failing["tell till"] = MAX_ATTEMPTS - 1
        one.send("ann", "tell till", "b")
        await one.rest()
        assert one.state("ann") == ["tell till", "b"]
        assert one.got("till") == ["from ann"]
        assert (one.engine.failures, list(one.node.ledger.dead_letters())) == (MAX_ATTEMPTS - 1, [])


async def test_what_fails_too_often_is_set_aside_and_the_agent_goes_on() -> None:
    async with home(None, "ann") as one:
        Log.failing["tell till"] = MAX_ATTEMPTS
        one.send("ann", "a", "tell till", "b")
        await one.rest()
        assert (one.state("ann"), one.got("till")) == (["a", "b"], [])
        (dead,) = one.node.ledger.dead_letters()
        assert (dead.agent, dead.batch.sender, dead.error, dead.attempts) == (
            "ann",
            "till",
            "ValueError: tell till",
            MAX_ATTEMPTS,
        )
        revive(one.node, dead.number)
        await one.rest()
        assert (one.state("ann"), one.got("till")) == (["a", "b", "tell till"], ["from ann"])
        assert list(one.node.ledger.dead_letters()) == []


async def test_a_dead_message_that_is_retried_keeps_its_topic_and_goes_to_its_agent_alone(tmp_path: Path) -> None:
    one = Home(tmp_path)
    await one.make("ann", "bob")
    Log.failing["news"] = MAX_ATTEMPTS
    one.send("ann", "follow sport")
    await one.rest()
    one.send("bob", "publish sport")
    await one.rest()
    one.send("bob", "follow sport")
    await one.rest()
    revive(one.node, 1)
    await one.kill()
    again = Home(tmp_path)
    assert again.state("ann") == ["follow sport", "sport/news"]
    assert again.state("bob") == ["publish sport", "follow sport"]
    await again.kill()


async def test_a_reaction_that_takes_too_long_is_cancelled_and_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "REACTION_TIMEOUT_S", 0.001)
    async with home(None, "ann") as one:
        Log.gates["never"] = asyncio.Event()
        one.send("ann", "wait never", "b")
        await one.rest()
        assert one.state("ann") == ["b"]
        (dead,) = one.node.ledger.dead_letters()
        assert "REACTION_TIMEOUT_S" in dead.error


async def test_a_reaction_that_cancels_itself_is_a_failure() -> None:
    class Cancelled(Log):
        async def react(self, message: thence.Message) -> None:
            raise asyncio.CancelledError

    one = Home(None, (Cancelled,))
    await one.make("ann", kind="Cancelled")
    one.send("ann", "a")
    await one.rest()
    assert [dead.error for dead in one.node.ledger.dead_letters()] == ["RuntimeError: the reaction was cancelled from inside"]
    await one.kill()


async def test_messages_that_nobody_can_read_are_set_aside_as_they_are() -> None:
    async with home(None, "ann") as one:
        one.node.intake.submit(Batch("till", 1, 2, ("ann",), None, b"\x92\xc1"))
        one.send("ann", "b")
        await one.rest()
        assert one.state("ann") == ["b"]
        (dead,) = one.node.ledger.dead_letters()
        assert dead.batch.messages == b"\x92\xc1"


async def test_where_no_more_can_be_set_aside_the_agent_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_DEAD_MESSAGES", 1)
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    async with home(None, "ann", "bob") as one:
        Log.failing.update(x=MAX_ATTEMPTS, y=MAX_ATTEMPTS)
        one.send("ann", "x", "y", "z")
        await until(lambda: "MAX_DEAD_MESSAGES" in one.engine.trouble("ann"))
        one.send("bob", "b")
        await until(lambda: one.node.ledger.agents["bob"].done)
        assert one.state("ann") == []
        drop(one.node, 1)
        await one.rest()
        assert one.state("ann") == ["z"]
        assert [dead.number for dead in one.node.ledger.dead_letters()] == [2]


# --- limits ----------------------------------------------------------------------------------------------------------


async def test_a_reaction_that_cannot_be_committed_now_is_kept_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    async with home(None, "ann") as one:
        Log.gates["x"] = asyncio.Event()
        one.send("ann", "wait x")
        await until(lambda: Log.begun)
        one.node.driver.commits.stalled = "the disk is full"
        Log.gates["x"].set()
        await until(lambda: "the disk is full" in one.engine.trouble("ann"))
        assert one.state("ann") == []
        one.node.driver.commits.stalled = ""
        await one.rest()
        assert (one.state("ann"), Log.begun, one.engine.failures) == (["wait x"], ["ann:wait x"], 0)


async def test_an_agent_whose_mailbox_is_full_still_reacts_and_others_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    async with home(None, "ann", "bob") as one:
        Log.gates["x"] = asyncio.Event()
        one.send("ann", "wait x", "tell ann,bob", "tell ann,bob")
        assert list(one.node.directory.mailboxes.closed) == ["ann"]
        with pytest.raises(Busy, match="mailbox of 'ann' at 's1' is full"):
            one.send("ann", "no room")
        Log.gates["x"].set()
        await one.rest()
        assert one.state("ann") == ["wait x", "tell ann,bob", "tell ann,bob", "from ann", "from ann"]
        assert one.state("bob") == ["from ann", "from ann"]


async def test_agents_whose_mailboxes_are_closed_and_who_write_to_each_other_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    async with home(None, "ann", "bob") as one:
        Log.gates["x"] = asyncio.Event()
        for name in ("ann", "bob"):
            one.send(name, "wait x", "tell ann,bob", "tell ann,bob")
        assert list(one.node.directory.mailboxes.closed) == ["ann", "bob"]
        Log.gates["x"].set()
        await one.rest()
        for name in ("ann", "bob"):
            assert sorted(one.state(name)[3:]) == ["from ann", "from ann", "from bob", "from bob"]
        assert len(one.node.directory.mailboxes.closed) == 0


async def test_an_agent_that_writes_to_a_closed_mailbox_waits_until_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    async with home(None, "ann", "bob") as one:
        one.send("till", "1", "2", "3")
        one.send("ann", "tell till")
        await until(lambda: "the mailbox of 'till' at 's1' is full" in one.engine.trouble("ann"))
        one.send("bob", "goes on")
        await until(lambda: one.state("bob") == ["goes on"])
        one.node.removal.purge("till", lambda _: None)
        await one.rest()
        assert (one.state("ann"), one.got("till")) == (["tell till"], ["from ann"])


@pytest.mark.parametrize(("limit", "value"), [("HELD_TIMES", 0), ("MAX_HELD_HARD", 0)])
async def test_it_waits_too_when_as_much_is_held_as_memory_allows(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 3)
    monkeypatch.setattr(engine_module, "ROOM_RETRY_S", 0.001)
    before = getattr(reactions_module, limit)
    monkeypatch.setattr(reactions_module, limit, value)
    async with home(None, "ann", "bob") as one:
        one.send("ann", "tell ann,bob", "tell ann,bob", "tell ann,bob")
        await until(lambda: "wait for mailboxes that are full" in one.engine.trouble("ann"))
        assert one.state("ann") == []
        monkeypatch.setattr(reactions_module, limit, before)
        await one.rest()
        assert one.state("ann") == 3 * ["tell ann,bob"] + 3 * ["from ann"]


@pytest.mark.parametrize(("limit", "value"), [("MAX_REACTION_SENDS", 1), ("MAX_REACTION_BYTES", 30)])
async def test_a_reaction_that_sends_too_much_fails(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_module, limit, value)
    async with home(None, "ann") as one:
        one.send("ann", "tell till,till,till")
        await one.rest()
        (dead,) = one.node.ledger.dead_letters()
        assert limit in dead.error
        assert one.got("till") == []


async def test_a_state_that_has_become_too_large_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MAX_STATE_BYTES", 8)
    async with home(None, "ann") as one:
        one.send("ann", "a", "long enough", "b")
        await one.rest()
        assert one.state("ann") == ["a", "b"]
        (dead,) = one.node.ledger.dead_letters()
        assert "MAX_STATE_BYTES" in dead.error


async def test_an_agent_follows_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS_EACH", 1)
    async with home(None, "ann") as one:
        one.send("ann", "follow news", "follow news", "follow sport")
        await one.rest()
        (dead,) = one.node.ledger.dead_letters()
        assert "'ann' follows 1 topics; MAX_SUBSCRIPTIONS_EACH is 1" in dead.error
        assert list(one.node.directory.state.followers) == ["news"]


async def test_nobody_is_written_to_who_is_not_known_and_nothing_is_sent_outside_a_reaction() -> None:
    async with home(None, "ann") as one:
        one.send("ann", "tell nobody")
        await one.rest()
        (dead,) = one.node.ledger.dead_letters()
        assert "nobody is called 'nobody'" in dead.error
        one.send("ann", "a")
        await one.rest()
        agent = one.engine.running["ann"].agent
        assert agent is not None
        with pytest.raises(UsageError, match="only while it reacts"):
            await agent.send("till", b"")
        with pytest.raises(UsageError, match="only while it reacts"):
            await agent.subscribe("sport")


# --- names and classes -----------------------------------------------------------------------------------------------


async def test_messages_wait_for_an_agent_whose_class_is_not_known_or_cannot_read_its_state(tmp_path: Path) -> None:
    class Other(Log):
        state: int  # type: ignore[assignment]

    one = Home(tmp_path)
    await one.make("ann")
    await one.kill()
    without = Home(tmp_path, ())
    assert "there is no agent class 'Log' here" in without.engine.trouble("ann")
    without.send("ann", "a")
    await without.rest()
    assert "there is no agent class 'Log' here" in without.engine.trouble("ann")
    await without.kill()
    other = Home(tmp_path, (type("Log", (Other,), {}),))
    await other.rest()
    assert "the state of 'ann' is no int" in other.engine.trouble("ann")
    await other.kill()
    again = Home(tmp_path)
    await again.rest()
    assert again.state("ann") == ["a"]
    await again.kill()


async def test_who_gets_the_name_of_a_removed_agent_begins_anew_also_after_a_kill(tmp_path: Path) -> None:
    one = Home(tmp_path)
    await one.make("ann")
    one.send("ann", "a", "tell till")
    await one.rest()
    Log.gates["x"] = asyncio.Event()
    one.send("ann", "wait x")
    await until(lambda: "ann:wait x" in Log.begun)
    # The reaction is committed behind these notices in the log, and before they have come back from it.
    one.node.intake.announce(Left("ann", "s1"))
    one.node.intake.announce(Joined("ann", "s1", temporary=False, kind="Log", state=encode_value(["new"])))
    one.send("ann", "b")
    Log.gates["x"].set()
    await one.rest()
    assert one.state("ann") == ["new", "b"]
    await one.kill()
    again = Home(tmp_path)
    await again.rest()
    assert again.state("ann") == ["new", "b"]
    await again.kill()


async def test_agents_follow_topics_and_answer_requests() -> None:
    async with home(None, "ann", "bob") as one:
        one.send("ann", "follow sport")
        await one.rest()
        one.node.intake.announce(Follows("till", "sport", wanted=True))
        one.send("bob", "publish sport", "publish nothing")
        await one.rest()
        assert one.state("ann") == ["follow sport", "sport/news"]
        assert one.got("till") == ["news"]
        one.send("ann", "how many", request=5)
        await one.rest()
        assert one.got("till") == ["news", 3]
