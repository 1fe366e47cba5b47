"""How long messages waited, by the trace of a server: the same over kills and snapshots, and over a new version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thence.core.member.contract import Arrived, Submit
from thence.core.member.limits import MemberOptions
from thence.core.member.member import Member
from thence.core.topology.toml import parse
from thence.core.wire.messages import MAX_NAME_CHARACTERS, Envelope, Frame, Packet
from thence.net.names import MAX_TOPIC_CHARACTERS
from thence.node import arrival_times, recovery
from thence.node.arrival_times import ArrivalTimes
from thence.node.driver import driver
from thence.node.history import TraceHistory
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage.bodies import write_body
from thence.storage.journal import Opened, Started
from thence.storage.mailbox import Batch
from thence.trace.events import Event
from thence.trace.files import read_trace
from thence.trace.judge import judge

TOPOLOGY = parse('name = "three"\n[domains.D]\nmembers = ["s1", "s2", "s3"]\n')


class _Clock:
    """A clock that tests set."""

    at = 0

    def now(self) -> int:
        return _Clock.at


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "Clock", _Clock)


class Others:
    """The other two servers: what they send to s1, in causal order."""

    def __init__(self) -> None:
        self.s2, self.s3 = (Member(name, TOPOLOGY, MemberOptions(durable=False)) for name in ("s2", "s3"))
        self.sent = 0

    def pair(self) -> tuple[Arrived, Arrived]:
        """Return what brings a message of s2 to s1, and what brings one of s3 that has to be delivered behind it."""
        first = self._submit(self.s2, "ann", "news")
        self.s3.step(Arrived("s2", first["s3"]), 0)
        second = self._submit(self.s3, "bob", None)
        return Arrived("s2", first["s1"]), Arrived("s3", second["s1"])

    def _submit(self, member: Member, client: str, topic: str | None) -> dict[str, Packet[Any]]:
        self.sent += 1
        body = write_body(Batch(client, self.sent, 1, None if topic else ("cat",), topic, b""))
        return dict(member.step(Submit(None if topic else ("s1",), body), 0).send)


class Life:
    """One server after the other on the same data and trace."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.trace = folder / "trace"
        self._options = NodeOptions(data=folder / "data" if durable else None, trace=self.trace)
        self.node = Node(TOPOLOGY, "s1", self._options)

    def take(self, arrived: Arrived, at: int) -> None:
        _Clock.at = at
        self.node.driver.step(arrived)

    def kill(self) -> None:
        """End it as a kill does, which leaves what is in the store and in whole parts of the trace."""
        self.node.driver.store.commit()
        self.node.history.release(self.node.driver.store.durable)
        self.node.driver.store.close()

    def start(self, at: int) -> None:
        _Clock.at = at
        self.node = Node(TOPOLOGY, "s1", self._options)

    async def events(self) -> Iterator[Event]:
        """Return the events about messages, in their order; there is no hole, and nothing is wrong with them."""
        await self.node.close()
        found = sorted(read_trace(self.trace), key=lambda event: event.index)
        assert [event.index for event in found] == list(range(len(found)))
        assert judge(found, ["well-formed", "duplication"]).violations == []
        return (event for event in found if event.message)


WAITED = [
    ("arrive", "s2:1", 200, None, None),
    ("deliver", "s2:1", 200, "ann", "news"),
    ("arrive", "s3:1", 100, None, None),
    ("deliver", "s3:1", 200, "bob", None),
]


def told(events: Iterator[Event]) -> list[tuple[object, ...]]:
    return [(event.kind, event.message, event.time, event.client, event.topic) for event in events]


@pytest.mark.parametrize("between", ["nothing", "memory", "kill", "snapshot", "flush and kill", "snapshot and kill twice"])
async def test_a_message_waits_from_when_it_came_in(between: str, tmp_path: Path) -> None:
    life, (first, second) = Life(tmp_path, durable=between != "memory"), Others().pair()
    life.take(second, 100)
    if "snapshot" in between:
        await life.node.driver.commits.compact()
    if "flush" in between:
        life.node.history.flush()
    if "kill" in between:
        life.kill()
        life.start(150)
    if "twice" in between:
        life.kill()
        life.start(160)
    life.take(first, 200)
    if "twice" in between:
        life.kill()
        life.start(900)
    assert told(await life.events()) == WAITED


async def test_what_comes_twice_has_waited_since_the_first_time(tmp_path: Path) -> None:
    life, (first, second) = Life(tmp_path, durable=False), Others().pair()
    for at in (100, 150):
        life.take(second, at)
    for at in (200, 250):
        life.take(first, at)
    assert told(await life.events()) == WAITED


@pytest.mark.parametrize("snapshot", [False, True])
async def test_a_store_of_a_version_without_arrivals_keeps_its_numbers(
    snapshot: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others()
    pairs = [others.pair() for _ in range(3)]
    with monkeypatch.context() as earlier:
        earlier.setattr(recovery, "Opened", lambda text, at, **_: Opened(text, at))
        earlier.setattr(recovery, "Started", lambda at, **_: Started(at))
        earlier.setattr(TraceHistory, "begin", lambda *_, **__: None)
        life = Life(tmp_path)
        life.take(pairs[0][0], 100)
        life.node.driver.store.commit()
        life.node.history.release(life.node.driver.store.durable)
        life.node.history.flush()  # Of the first message it is told, of the second one not.
        if snapshot:
            await life.node.driver.commits.compact()
        life.take(pairs[0][1], 100)
        life.take(pairs[1][1], 110)
        life.kill()
    life.start(150)
    life.take(pairs[1][0], 200)
    await life.node.driver.commits.compact()
    life.kill()
    life.start(250)
    for arrived in pairs[2]:
        life.take(arrived, 300)
    found = [(kind, message, time) for kind, message, time, *_ in told(await life.events())]
    assert found == [
        ("deliver", "s2:1", 100),
        ("deliver", "s3:1", 100),
        *[("arrive", "s2:2", 200), ("deliver", "s2:2", 200), ("arrive", "s3:2", 110), ("deliver", "s3:2", 200)],
        *[(kind, message, 300) for message in ("s2:3", "s3:3") for kind in ("arrive", "deliver")],
    ]


def test_only_so_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_times, "MAX_ARRIVED", 3)
    times, messages = ArrivalTimes("s1"), [Envelope("s2", number, None, b"") for number in range(1, 6)]
    times.note([Frame(None, message) for message in messages], 7)
    times.note([Frame(None, Envelope("s1", 1, None, b"")), Frame(None, Envelope("s2", 9, ("s3",), b"")), Frame(None, None)], 8)
    again = ArrivalTimes("s1")
    again.load(times.save())
    assert [again.take(message) for message in messages] == [None, None, 7, 7, 7]
    assert again.save() == []


@pytest.mark.parametrize(
    ("client", "topic", "said"),
    [
        ("x" * MAX_NAME_CHARACTERS, "y" * MAX_TOPIC_CHARACTERS, ("x" * MAX_NAME_CHARACTERS, "y" * MAX_TOPIC_CHARACTERS)),
        ("x" * (MAX_NAME_CHARACTERS + 1), "y", (None, None)),
        ("x", "y" * (MAX_TOPIC_CHARACTERS + 1), ("x", None)),
    ],
)
def test_names_that_cannot_be_fill_no_memory(client: str, topic: str, said: tuple[object, ...], tmp_path: Path) -> None:
    history = TraceHistory(tmp_path, "s1", TOPOLOGY)
    bodies = [write_body(Batch(client, 1, 1, None, topic, b"")), b"no body"]
    history.record(0, [Envelope("s1", number, None, body) for number, body in enumerate(bodies)], (), 5)
    history.release(0)
    history.close()
    assert [(event.client, event.topic) for event in read_trace(tmp_path)] == [said, (None, None)]
