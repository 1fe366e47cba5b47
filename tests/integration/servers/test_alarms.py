"""Every metric moves and every alarm goes off: each scenario brings about one kind of trouble with real servers."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

import thence
from benchmarks.takeover import TWIN
from examples.bank import Account, AccountState, Deposit
from tests.support.servers.alarm_memory import MEMORY_METRICS, clients_want_more_memory_than_there_is
from tests.support.servers.alarm_rights import a_right_to_a_topic_is_withdrawn
from tests.support.servers.running import addressed, flat, posted, servers, started, until, url
from tests.support.servers.scraping import Prometheus, fires, rules
from thence.agents.kinds import kinds_of
from thence.client.client import Client
from thence.core.member.limits import MemberOptions
from thence.core.topology.toml import parse, write
from thence.core.transport import channel
from thence.core.wire.messages import Packet
from thence.net.framing import Connection
from thence.net.protocol import ViewRequest
from thence.net.proxy import Mode, Proxy
from thence.node import history, listener
from thence.node.options import NodeOptions
from thence.node.peers import outgoing_calls
from thence.node.peers.peer import Peer
from thence.observe.metrics import FAMILIES
from thence.server.server import Server
from thence.storage import files
from thence.storage import mailbox as mailbox_module
from thence.storage.spill import list_spill
from thence.trace.files import read_trace
from thence.trace.judge import judge
from thence.trace.live import LiveTraceWriter
from thence.trace.parquet import ParquetSink

TWO_DOMAINS: Final = """
name = "two"
[domains.A]
members = ["s1", "s2"]
ordering = "matrix"
[domains.B]
members = ["s2", "s3"]
"""

LINKED: Final = """
name = "linked"
[domains.A]
members = ["a1", "a2"]
[domains.C]
members = ["c1", "c2"]
[[links]]
between = ["A", "C"]
relays = [["a1", "c1"], ["a2", "c2"]]
"""

NOTIFYING: Final = """
name = "three"
[domains.D]
members = ["s1", "s2", "s3"]
ordering = "vector"
delivery = "notify"
"""


class Given(NamedTuple):
    """What a scenario works with."""

    prometheus: Prometheus
    data: Path
    monkeypatch: pytest.MonkeyPatch


class Scenario(NamedTuple):
    """What happens, which alarms that sets off, and which metrics it moves."""

    happens: Callable[[Given], Awaitable[None]]
    alarms: frozenset[str]
    moves: frozenset[str]


SCENARIOS: Final[dict[str, Scenario]] = {}


def scenario(*shows: str) -> Callable[[Callable[[Given], Awaitable[None]]], Callable[[Given], Awaitable[None]]]:
    """Enter a scenario into the table: the alarms it sets off, and the metrics it moves."""

    def enter(happens: Callable[[Given], Awaitable[None]]) -> Callable[[Given], Awaitable[None]]:
        alarms = frozenset(name for name in shows if name.startswith("Thence"))
        SCENARIOS[happens.__name__] = Scenario(happens, alarms, frozenset(shows) - alarms)
        return happens

    return enter


# --- all is well -------------------------------------------------------------------------------------------------------


@scenario(
    "thence_build_info",
    "thence_topology_info",
    "thence_messages_submitted_total",
    "thence_messages_delivered_total",
    "thence_messages_forwarded_total",
    "thence_letters_accepted_total",
    "thence_letters_delivered_total",
    "thence_neighbour_up",
    "thence_neighbour_state_seconds",
    "thence_neighbour_connections_total",
    "thence_neighbour_protocol",
    "thence_neighbour_frames_received_total",
    "thence_neighbour_frames_sent_total",
    "thence_neighbour_received_bytes_total",
    "thence_neighbour_sent_bytes_total",
    "thence_sampled_bytes_total",
    "thence_clients_connected",
    "thence_clients_known",
    "thence_commit_seconds",
    "thence_commit_entries",
    "thence_store_bytes",
    "thence_disk_free_bytes",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
)
async def messages_go_over_a_relay(given: Given) -> None:
    topology = addressed(TWO_DOMAINS)
    async with servers(topology, given.data) as running:
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s3"), "cleo") as cleo:
            await cleo.send(thence.EVERYONE, b"here")
            assert (await ann.receive()).body == b"here"
            for number in range(10):
                await ann.send("cleo", b"%d" % number)
            for server in running.values():
                await given.prometheus.scrape(server)
            seen = await given.prometheus.scrape(running["s1"])
            assert seen["thence_letters_accepted_total"] == {frozenset(): 10}
            relay = await given.prometheus.scrape(running["s2"])
            assert relay["thence_messages_forwarded_total"][frozenset()] >= 11
            assert relay["thence_neighbour_up"] == {frozenset({("neighbour", name)}): 1 for name in ("s1", "s3")}
        assert not given.prometheus.fired


# --- peers --------------------------------------------------------------------------------------------------------


@scenario("ThenceServerDown", "ThenceNeighbourDown", "thence_queued_frames", "thence_queued_bytes", "thence_queue_full_ratio")
async def a_server_is_gone(given: Given) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, given.data) as running:
        async with thence.connect(url(topology, "s2"), "bob") as bob:
            await bob.send(thence.EVERYONE, b"here")
        await given.prometheus.scrape(running["s2"])
        await running["s2"].stop(drain_s=0)
        given.prometheus.close()
        await given.prometheus.until_fired(running["s2"], "ThenceServerDown")
        assert "ThenceNeighbourDown" not in given.prometheus.fired
        failure_detector = Prometheus()
        await until(lambda: running["s1"].node.directory.home("bob"))
        await posted(topology, "s1", "bob", 3)
        await failure_detector.until_fired(running["s1"], "ThenceNeighbourDown")
        given.prometheus.fired |= failure_detector.fired
        given.prometheus.moved |= failure_detector.moved
        failure_detector.close()


@scenario("thence_unsafe_deliveries", "thence_unsafe_sent")
async def one_who_should_have_it_is_away(given: Given) -> None:
    topology = addressed(NOTIFYING)
    async with servers(topology, given.data) as running:
        sending, getting = running["s1"], running["s2"]
        for server in (sending, getting):
            await given.prometheus.scrape(server)
        await running["s3"].stop(drain_s=0)
        async with thence.connect(url(topology, "s1"), "ann") as ann:
            await ann.send(thence.EVERYONE, b"at once")
            await until(lambda: sending.node.member.forwarder.unsafe and getting.node.member.log.unsafe)
            for server in (sending, getting):
                await given.prometheus.scrape(server)


def _is_another(peer: Peer, lost: Connection) -> bool:
    return peer.connection not in (None, lost)


@scenario("ThenceNeighbourFlapping")
async def a_connection_breaks_again_and_again(given: Given) -> None:
    given.monkeypatch.setattr(outgoing_calls, "MAX_BACKOFF_S", outgoing_calls.FIRST_BACKOFF_S)
    async with servers(flat("s1", "s2")) as running:
        peer = running["s1"].node.peers.peers["s2"]
        await given.prometheus.scrape(running["s1"])
        for _ in range(6):
            connection = peer.connection
            assert connection is not None
            connection.fail(ConnectionResetError("cut by the test"))
            await until(partial(_is_another, peer, connection))
        await given.prometheus.until_fired(running["s1"], "ThenceNeighbourFlapping")


@scenario("ThenceNeighbourSuspected", "thence_neighbour_suspected")
async def a_replica_is_gone(given: Given) -> None:
    async with servers(addressed(TWIN)) as running:
        await running["r1"].stop(drain_s=0)
        await given.prometheus.until_fired(running["r2"], "ThenceNeighbourSuspected")


@scenario("ThenceNeighbourForgot", "ThenceFenced", "thence_neighbour_forgot", "thence_fenced")
async def a_server_comes_back_on_an_empty_store(given: Given) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, given.data) as running:
        await running["s2"].stop(drain_s=0)
        running["s2"] = await started(topology, "s2", given.data / "new")
        await given.prometheus.until_fired(running["s1"], "ThenceNeighbourForgot")
        await given.prometheus.until_fired(running["s2"], "ThenceFenced")


@scenario("ThenceFramesRefused", "thence_refused_frames_total")
async def a_peer_says_what_cannot_be(given: Given) -> None:
    async with servers(flat("s1", "s2")) as running:
        await given.prometheus.scrape(running["s1"])
        running["s2"].node.peers.send("s1", Packet("D", (), (), 1_000_000))
        await given.prometheus.until_fired(running["s1"], "ThenceFramesRefused")


@scenario("ThenceStrangers", "thence_strangers_turned_away_total")
async def many_connections_do_not_introduce_themselves(given: Given) -> None:
    given.monkeypatch.setattr(listener, "MAX_STRANGERS", 2)
    topology = flat("s1")
    async with servers(topology) as running:
        await given.prometheus.scrape(running["s1"])
        host, _, port = topology.addresses["s1"].rpartition(":")
        strangers = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        await given.prometheus.until_fired(running["s1"], "ThenceStrangers")
        for _, writer in strangers:
            writer.close()


scenario(*MEMORY_METRICS)(clients_want_more_memory_than_there_is)
scenario("thence_letters_withheld_total")(a_right_to_a_topic_is_withdrawn)


@scenario("ThenceLongWait", "thence_waiting_messages", "thence_oldest_wait_seconds")
async def a_message_waits_for_one_that_does_not_come(given: Given) -> None:
    topology = flat("s1", "s2", "s3")
    proxy = Proxy(topology.addresses["s3"], Random(1))
    # Only s1 calls s3 through the proxy: what s1 sends goes to s2 at once, and to s3 when the line is well again.
    known_to_s1 = topology.at({**topology.addresses, "s3": await proxy.start()})
    running = {name: await started(topology, name) for name in ("s2", "s3")}
    running["s1"] = await started(known_to_s1, "s1")
    try:
        for server in running.values():
            await server.node.peers.wait_connected()
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s2"), "bob") as bob:
            await bob.send("bob", b"here")
            await until(lambda: running["s1"].node.directory.home("bob"))
            proxy.set_mode(Mode.CUT)
            await until(lambda: not running["s1"].node.peers.peers["s3"].up)
            await ann.send(thence.EVERYONE, b"first")
            assert [(await bob.receive()).body for _ in range(2)] == [b"here", b"first"]
            await bob.send(thence.EVERYONE, b"then")
            await until(running["s3"].node.member.attachment.waiting)
            running["s3"].node.driver.clock.offset_ns += 61 * 10**9  # A minute later.
            await given.prometheus.until_fired(running["s3"], "ThenceLongWait")
            proxy.set_mode(Mode.WELL)
            await until(lambda: not running["s3"].node.member.attachment.waiting())
    finally:
        for server in running.values():
            await server.stop(drain_s=0)
        await proxy.close()


@scenario("ThenceLongWait", "thence_oldest_wait_seconds")
async def a_message_waits_at_a_link_for_one_that_crosses_elsewhere(given: Given) -> None:
    topology = addressed(LINKED)
    proxy = Proxy(topology.addresses["c1"], Random(1))
    known_to_a1 = topology.at({**topology.addresses, "c1": await proxy.start()})
    running = {name: await started(topology, name) for name in ("a2", "c1", "c2")}
    running["a1"] = await started(known_to_a1, "a1")
    try:
        for server in running.values():
            await server.node.peers.wait_connected()
        proxy.set_mode(Mode.CUT)
        await until(lambda: not running["a1"].node.peers.peers["c1"].up)
        async with thence.connect(url(topology, "a1"), "ann") as ann:
            for _ in range(4):  # The pairs carry in turn, and the first one cannot.
                await ann.send(thence.EVERYONE, b"")
            await until(running["c1"].node.member.attachment.waiting)
            running["c1"].node.driver.clock.offset_ns += 61 * 10**9  # A minute later.
            await given.prometheus.until_fired(running["c1"], "ThenceLongWait")
            status = running["c1"].status.report()
            assert 61 <= status["oldest_wait_seconds"] < 600
            assert re.match(r"a1:\d+ from c2 waits for number 1 of link A-C, since \d{2,3}\.\d{3} s$", status["waiting"][0])
            proxy.set_mode(Mode.WELL)
            await until(lambda: not running["c1"].node.member.attachment.waiting())
    finally:
        for server in running.values():
            await server.stop(drain_s=0)
        await proxy.close()


@scenario(
    "ThenceQueueFilling", "ThenceQueueStalled", "thence_stalled", "thence_neighbour_stalled_seconds", "thence_waiting_clients"
)
async def a_peer_stays_away(given: Given) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, given.data, member=MemberOptions(max_queued=20)) as running:
        async with thence.connect(url(topology, "s2"), "bob") as bob:
            await bob.send(thence.EVERYONE, b"here")
        await until(lambda: running["s1"].node.directory.home("bob"))
        await running["s2"].stop(drain_s=0)
        await posted(topology, "s1", "bob", 15)
        await given.prometheus.until_fired(running["s1"], "ThenceQueueFilling")
        waiting = asyncio.create_task(_write_for_ever(topology, "s1", "bob"))
        await given.prometheus.until_fired(running["s1"], "ThenceQueueStalled")
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting


async def _write_for_ever(topology: Any, server: str, to: str) -> None:
    async with thence.connect(url(topology, server), "ann") as ann:
        while True:
            await ann.send(to, b"")


@scenario(
    "ThenceBoxFilling",
    "ThenceBoxStalled",
    "thence_box_letters",
    "thence_box_bytes",
    "thence_box_longest_letters",
    "thence_box_longest_bytes",
    "thence_box_full_ratio",
    "thence_stalled",
    "thence_letters_dropped_total",
)
async def a_client_does_not_empty_its_mailbox(given: Given) -> None:
    given.monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 10)
    topology = flat("s1", "s2")
    async with servers(topology, given.data) as running:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await bob.send(thence.EVERYONE, b"here")
        await until(lambda: running["s2"].node.directory.home("bob"))
        await posted(topology, "s2", "bob", 9)
        await until(lambda: "bob" in running["s1"].node.directory.mailboxes.closed)
        await given.prometheus.until_fired(running["s1"], "ThenceBoxStalled")
        async with Client(url(topology, "s1"), "", temporary=False) as operator:
            assert (await operator.operator.remove("bob"))["dropped_messages"] == 10
        seen = await given.prometheus.scrape(running["s1"])
        assert seen["thence_stalled"][frozenset({("by", "box")})] == 0


@scenario("thence_held_deliveries")
async def a_server_does_not_keep_to_it_that_a_mailbox_is_closed(given: Given) -> None:
    given.monkeypatch.setattr(mailbox_module, "MAX_MAILBOXES_BYTES", 10_000)
    async with servers(topology := flat("s1", "s2")) as running:
        given.monkeypatch.setattr(running["s2"].node.directory.closings, "to", lambda *_: "")
        async with thence.connect(url(topology, "s1"), "bob", temporary=False):
            await posted(topology, "s2", "bob", 200)
            await until(lambda: running["s1"].node.dispatch.held)
        await given.prometheus.scrape(running["s1"])


@scenario("thence_letters_undeliverable_total")
async def a_name_is_given_twice(given: Given) -> None:
    topology = flat("s1", "s2")
    for server in ("s2", "s1"):
        alone = await started(topology, server, given.data)
        await posted(topology, server, "ann", 1, "ann")
        await alone.stop(drain_s=0)
    async with servers(topology, given.data) as running:
        await until(lambda: running["s2"].node.returning.counts["returned"])
        await given.prometheus.scrape(running["s2"])


@scenario("thence_spilled_bytes")
async def messages_are_spilled(given: Given) -> None:
    given.monkeypatch.setattr(mailbox_module, "BLOCK_BYTES", 1_000)
    topology = flat("s1")
    async with servers(topology, given.data, spill_after_bytes=1_000) as running:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await bob.send("bob", b"here")
        await posted(topology, "s1", "bob", 100)
        await until(lambda: running["s1"].node.directory.state.mailboxes["bob"].spilled_bytes)
        await given.prometheus.scrape(running["s1"])
        assert not given.prometheus.fired


@scenario("ThenceFramesUnreadable", "thence_spilled_frames", "thence_neighbour_unreadable")
async def what_waits_for_a_peer_is_damaged(given: Given) -> None:
    given.monkeypatch.setattr(mailbox_module, "SPILL_AFTER_MESSAGES", 10)
    given.monkeypatch.setattr(mailbox_module, "BLOCK_BATCHES", 5)
    given.monkeypatch.setattr(channel, "WINDOW", 8)
    topology = flat("s1", "s2")
    async with servers(topology, given.data, spill_after_bytes=1_000_000) as running:
        async with thence.connect(url(topology, "s2"), "bob") as bob:
            await bob.send(thence.EVERYONE, b"here")
        await until(lambda: running["s1"].node.directory.home("bob"))
        await running["s2"].stop(drain_s=0)
        await posted(topology, "s1", "bob", 100)
        seen = await given.prometheus.scrape(running["s1"])
        assert seen["thence_spilled_frames"][frozenset({("neighbour", "s2")})] > 50
        assert not given.prometheus.fired - {"ThenceNeighbourDown"}
        (path,) = list_spill(given.data / "s1").values()
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        running["s2"] = await started(topology, "s2", given.data)
        await given.prometheus.until_fired(running["s1"], "ThenceFramesUnreadable")
        assert f"{path}, offset " in running["s1"].status.report()["neighbours"][0]["unreadable"]
        path.write_bytes(whole)
        await until(lambda: not any(running["s1"].node.member.attachment.queued().values()))
        assert running["s2"].node.directory.state.mailboxes["bob"].position == 101


# --- the disk ----------------------------------------------------------------------------------------------------------


@scenario("ThenceStoreFilling", "ThenceStoreStalled", "thence_store_limit_bytes", "thence_store_full_ratio", "thence_stalled")
async def the_store_is_full(given: Given) -> None:
    topology = flat("s1")
    async with servers(topology, given.data, max_store_bytes=20_000) as running:
        async with thence.connect(url(topology, "s1"), "bob") as bob:
            await bob.send("bob", b"here")
        writing = asyncio.create_task(posted(topology, "s1", "bob", 300))
        await given.prometheus.until_fired(running["s1"], "ThenceStoreStalled")
        await given.prometheus.until_fired(running["s1"], "ThenceStoreFilling")
        await writing


@scenario("ThenceDiskFilling")
async def the_disk_is_nearly_full(given: Given) -> None:
    real = os.statvfs

    def nearly_full(path: str) -> os.statvfs_result:
        """Say of a disk what it would say if somebody had filled it, which a test should not do."""
        fields = list(real(path))
        fields[4] = 100
        return os.statvfs_result(fields)

    given.monkeypatch.setattr(os, "statvfs", nearly_full)
    async with servers(flat("s1"), given.data) as running:
        await given.prometheus.until_fired(running["s1"], "ThenceDiskFilling")


@scenario("ThenceCommitHangs", "thence_commit_running_seconds", "thence_store_buffered_bytes")
async def the_disk_does_not_answer(given: Given) -> None:
    answers = threading.Event()
    real = files.sync_data

    def slow(descriptor: int, path: Path) -> None:
        answers.wait()
        real(descriptor, path)

    topology = flat("s1")
    async with servers(topology, given.data) as running, thence.connect(url(topology, "s1"), "bob") as bob:
        await bob.send("bob", b"here")
        await until(lambda: running["s1"].node.driver.store.durable == running["s1"].node.driver.store.appended)
        given.monkeypatch.setattr(files, "sync_data", slow)
        try:
            bob.post("bob", b"?")
            await given.prometheus.until_fired(running["s1"], "ThenceCommitHangs")
        finally:
            answers.set()


@scenario("ThenceTraceStopped", "thence_trace_stopped")
async def the_trace_cannot_be_written(given: Given) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with servers(flat("s1"), given.data, given.data / "trace") as running:
        with given.monkeypatch.context() as filled:
            filled.setattr(LiveTraceWriter, "tick", full)
            filled.setattr(LiveTraceWriter, "write", full)
            running["s1"].node.history.tick()
            await given.prometheus.until_fired(running["s1"], "ThenceTraceStopped")


@scenario("ThenceTraceStopped", "ThenceStoreStalled", "thence_stalled")
async def the_trace_cannot_be_written_for_long(given: Given) -> None:
    """The server takes nothing, and goes on when there is room: the trace has no gap."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    given.monkeypatch.setattr(history, "ROWS_PER_PART", 2)
    given.monkeypatch.setattr(history, "MAX_UNWRITTEN", 10)
    topology, trace = flat("s1"), given.data / "trace"
    async with servers(topology, given.data, trace) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        with given.monkeypatch.context() as filled:
            filled.setattr(ParquetSink, "_flush", full)
            await posted(topology, "s1", "ann", 20)
            assert "MAX_UNWRITTEN" in running["s1"].status.not_ready
            await given.prometheus.until_fired(running["s1"], "ThenceTraceStopped")
            await given.prometheus.until_fired(running["s1"], "ThenceStoreStalled")
            assert not running["s1"].stopped.done()
        await until(lambda: not running["s1"].status.stalled)
        await ann.send("ann", b"last")
        async for message in ann:
            if message.body == b"last":
                break
    assert judge(read_trace(trace)).kept


@scenario("ThenceFilesScarce", "thence_open_fds_ratio")
async def few_files_may_be_opened(given: Given) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with servers(flat("s1")) as running:
        others = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
        seen = await given.prometheus.scrape(running["s1"])
        opened = int(seen["process_open_fds"][frozenset()])
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 10, before[1]))
        try:
            await given.prometheus.until_fired(running["s1"], "ThenceFilesScarce")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for descriptor in others:
                os.close(descriptor)


# --- agents and changes ------------------------------------------------------------------------------------------------


@scenario(
    "ThenceDeadLetters",
    "thence_agents",
    "thence_agent_reactions_total",
    "thence_agent_failures_total",
    "thence_agent_dead_letters",
)
async def an_agent_cannot_react(given: Given) -> None:
    topology = flat("s1")
    server = Server(topology, "s1", NodeOptions(), kinds_of([Account]))
    await server.start()
    try:
        async with thence.connect(url(topology, "s1"), "till") as till:
            await till.agents.create("account", "Account", AccountState(10))
            assert (await till.request("account", Deposit(5))).value(int) == 10
            await till.send("account", b"\xc1 is no msgpack")
            await given.prometheus.until_fired(server, "ThenceDeadLetters")
    finally:
        await server.stop(drain_s=0)


@scenario("ThenceChangeHangs", "thence_topology_changing")
async def a_change_is_not_led_to_its_end(given: Given) -> None:
    topology = flat("s1", "s2")
    following = parse(write(topology).replace("vector", "matrix").replace('name = "flat"', 'name = "flat"\nversion = 2'))
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "leader") as leader:
        answer = await leader.ask_view(ViewRequest("hold", 1, write(following)))
        assert (answer.refused, answer.standing.phase) == ("", "holding")
        await given.prometheus.until_fired(running["s1"], "ThenceChangeHangs")


# --- the tests ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Given]:
    made = Given(Prometheus(), tmp_path, monkeypatch)
    yield made
    made.prometheus.close()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_trouble_is_seen(name: str, given: Given) -> None:
    happens, alarms, moves = SCENARIOS[name]
    await happens(given)
    assert alarms <= given.prometheus.fired
    assert moves <= given.prometheus.moved


def test_every_metric_and_every_alarm_is_tried() -> None:
    assert {family.name for family in FAMILIES} == frozenset().union(*(one.moves for one in SCENARIOS.values()))
    assert {rule.name for rule in rules()} == frozenset().union(*(one.alarms for one in SCENARIOS.values()))


def test_a_rule_goes_off_when_it_should_and_only_then() -> None:
    ann, bob = frozenset({("kind", "ann")}), frozenset({("kind", "bob")})
    before, now = {"x_total": {ann: 3.0, bob: 3.0}}, {"x_total": {ann: 3.0, bob: 4.0}}
    assert fires("x_total > 3", before, now)
    assert not fires("x_total > 4", before, now)
    assert fires('increase(x_total{kind="bob"}[5m]) > 0', before, now)
    assert not fires('increase(x_total{kind!="bob"}[5m]) > 0', before, now)
    assert not fires("y == 0", before, now)
