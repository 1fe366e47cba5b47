"""Running fabrics that change under load: domains split and merge, servers come and go, and anything may be killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

import thence
from tests.support.campaigns.evolving_load import following, load, written
from tests.support.servers.leading import APPLY, asked, phases, stopped_at
from tests.support.servers.running import (
    PATIENCE_S,
    addressed,
    assert_kept,
    flat,
    fleet,
    run,
    servers,
    started,
    until,
    url,
    wait_for_server,
)
from thence.cli.servers.up import free_addresses
from thence.core.topology.model import Topology
from thence.core.topology.toml import write
from thence.errors import ConfigError, UsageError
from thence.net.protocol import ViewRequest
from thence.node import reconfiguration
from thence.node.options import NodeOptions, memory_limits
from thence.server import apply, reception
from thence.server.apply import Access, Applied, TopologyChange, find_old
from thence.server.server import Server

SITES = """
name = "sites"
{version}
domains.A = {{ members = ["a1", "a2", "a3"], ordering = "vector" }}
domains.B = {{ members = ["b1", "b2", "b3"], ordering = "vector" }}
[[links]]
name = "line"
between = ["A", "B"]
relays = [["a1", "b1"], ["a2", "b2"]]
takeover = {takeover}
"""
NAMES = tuple(f"s{number}" for number in range(1, 9))


def quietly(said: str) -> None:
    """What is going on is of no interest."""


async def applied(new: Topology, timeout_s: float = 60.0) -> Applied:
    """Lead a change as the command does."""
    return await TopologyChange(await find_old(new, Access()), new, Access(), quietly).apply(timeout_s)


async def test_a_domain_of_eight_splits_and_merges_under_load(tmp_path: Path) -> None:
    old = flat(*NAMES, ordering="matrix")
    split = following(old, {"D": NAMES[:4], "E": NAMES[3:]})
    merged = following(split, {"D": NAMES})
    async with servers(old, tmp_path, tmp_path / "trace") as running, load(old, NAMES) as clients:
        for version in (split, merged):
            await clients.more()
            result = await applied(version)
            assert set(result.paused_ms) == set(NAMES)
            await clients.more()
            assert {server.node.topology.version for server in running.values()} == {version.version}
        assert len(running["s1"].node.peers.peers) == 7
        await clients.finish()
    assert_kept(tmp_path / "trace", sends=8 * 80)


def sites(before: Topology | None, takeover: bool) -> Topology:
    """Return two sites, as the version that follows, or as the first one."""
    version = "" if before is None else f"version = {before.version + 1}"
    made = addressed(SITES.format(version=version, takeover=str(takeover).lower()))
    if before is not None:
        made.addresses = before.addresses
    return made


async def test_the_relays_of_a_link_take_over_from_each_other_from_now_on_and_no_more(tmp_path: Path) -> None:
    old = sites(None, takeover=False)
    taking_over = sites(old, takeover=True)
    async with servers(old, tmp_path, tmp_path / "trace") as running, load(old, ("a3", "b3")) as clients:
        for version in (taking_over, sites(taking_over, takeover=False)):
            await clients.more()
            await applied(version)
            await clients.more()
            assert {server.node.topology.version for server in running.values()} == {version.version}
            assert {name for name, server in running.items() if server.status.report()["relay"]} == set(version.fellows)
        await clients.finish()
    assert_kept(tmp_path / "trace", sends=2 * 80)


async def test_a_server_with_clients_does_not_become_a_replica(tmp_path: Path) -> None:
    old = sites(None, takeover=False)
    taking_over = sites(old, takeover=True)
    async with servers(old, tmp_path) as running, thence.connect(url(old, "a1"), "ann") as ann:
        with pytest.raises(UsageError, match=r"'a1' has clients or agents: ann. In version 2 it is a replica"):
            await applied(taking_over, 1.0)
        await ann.send("ann", b"goes on")
        assert (await ann.receive()).body == b"goes on"
        # Who was announced before the others held is there when they are prepared.
        directory = running["a2"].node.directory
        attempt = time.time_ns()
        mailboxes = directory.state.mailboxes
        for action in ("hold", "prepare"):
            answers = [await asked(old, name, ViewRequest(action, attempt, write(taking_over))) for name in ("a2", "b1")]
            assert [bool(answer.refused) for answer in answers] == [action == "prepare", False]
            directory.state.mailboxes = {"bob": running["a1"].node.directory.state.mailboxes["ann"]}
        directory.state.mailboxes = mailboxes


async def test_a_server_joins_and_another_one_leaves_under_load(tmp_path: Path) -> None:
    old = flat("s1", "s2", "s3", ordering="matrix")
    (address,) = free_addresses(1)
    new = following(old, {"D": ("s1", "s2"), "E": ("s2", "s4")}, s4=address)
    async with servers(old, tmp_path, tmp_path / "trace") as running, load(old, ("s1", "s2", "s3")) as clients:
        await clients.more()
        with pytest.raises(UsageError, match="s4 is new and does not answer"):
            await applied(new)
        running["s4"] = await started(new, "s4", tmp_path, tmp_path / "trace")
        await clients.remove("client-of-s3")
        async with thence.connect(url(new, "s4"), "new", connect_timeout=60) as late:
            await applied(new)
            # Whoever came in is told of those who were there.
            await late.known("client-of-s1")
            await late.send("client-of-s1", b"0")
            await clients.more()
            with pytest.raises(UsageError, match=r"nobody is called 'client-of-s3'"):
                await clients.clients["client-of-s1"].send("client-of-s3", b"?")
            with pytest.raises(thence.Refusal, match="'s3' has left the fabric"):
                async with thence.connect(url(old, "s3"), "too late"):
                    pass
            await clients.finish(["client-of-s1", "client-of-s2"])
        assert running["s3"].status.report()["change"]["phase"] == "left"
    events = assert_kept(tmp_path / "trace", sends=60)
    assert {(event.process, event.kind) for event in events if event.kind in ("join", "leave")} == {
        ("s3", "leave"),
        ("s4", "join"),
    }


async def test_nobody_holds_for_a_switch_that_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What new servers are told of clients goes out with the switch, and by then it is too late to refuse."""
    old = flat("s1")
    new = following(old, {"D": ("s1", "s2")}, s2=free_addresses(1)[0])
    async with servers(old), thence.connect(url(old, "s1"), "a name of some length"):
        hold = ViewRequest("hold", 1, write(new))
        monkeypatch.setattr(reconfiguration, "MAX_GREETINGS_BYTES", 20)
        answer = await asked(old, "s1", hold)
        assert answer.refused.endswith("MAX_GREETINGS_BYTES is 20")
        assert answer.standing.phase == "normal"
        monkeypatch.setattr(reconfiguration, "MAX_GREETINGS_BYTES", 200)
        assert (await asked(old, "s1", hold)).standing.phase == "holding"


async def test_nobody_holds_for_a_place_in_the_fabric_for_which_it_has_too_little_memory(tmp_path: Path) -> None:
    """The parts of the memory were those of the topology at the start, however many peers there were later."""
    old = flat("s1")
    s2, s3, s4, s5 = free_addresses(4)
    new = following(old, {name: ("s1", name) for name in ("s2", "s3", "s4", "s5")}, s2=s2, s3=s3, s4=s4, s5=s5)
    server = Server(old, "s1", NodeOptions(data=tmp_path, memory=1024 * 1024 * 1024))
    await server.start()
    try:
        answer = await asked(old, "s1", ViewRequest("hold", 1, write(new)))
        assert answer.standing.phase == "normal"
        assert re.match(
            r"'s1' has too little memory for version 2 of 'flat': --memory 1,024 MiB: the limits cannot fit, they need "
            r"[\d,]+ MiB at least: .*Give --memory \d+M or more; restart it with that first",
            answer.refused,
        )
    finally:
        await server.stop()


async def test_limits_follow_the_topology_also_back_and_after_a_restart(tmp_path: Path) -> None:
    old = flat("s1", "s2")
    (address,) = free_addresses(1)
    new = following(old, {"D": ("s1", "s2"), "E": ("s1", "s3")}, s3=address)
    options = {name: NodeOptions(data=tmp_path / name, memory=4 * 1024**3) for name in ("s1", "s2", "s3")}
    running = {name: Server(old if name in old.homes else new, name, options[name]) for name in options}
    for server in running.values():
        await server.start()
    try:
        node = running["s1"].node
        before, after = (memory_limits(options["s1"], one, "s1") for one in (old, new))
        assert before.queued_bytes > after.queued_bytes
        assert (node.memory.limits, node.member.options.max_queued_bytes) == (before, before.queued_bytes)
        hold = ViewRequest("hold", 1, write(new))
        assert not (await asked(old, "s1", hold)).refused
        assert node.memory.limits == after
        assert not (await asked(old, "s1", ViewRequest("resume", 1))).refused
        assert node.memory.limits == before
        await applied(new)
        options_now = node.member.options
        assert (node.memory.limits, options_now.max_queued_bytes, options_now.max_held) == (after, after.queued_bytes, after.held)
        assert node.directory.mailboxes.limit == after.mailboxes_bytes
        assert node.memory.pools.clients.limit == after.clients_pool_bytes
        assert running["s1"].status.report()["memory"]["parts"] == dict(after.parts)
        await running["s1"].stop()
        running["s1"] = Server(old, "s1", options["s1"])  # With the file of before: the store counts.
        assert running["s1"].node.memory.limits == after
        await running["s1"].start()
    finally:
        for server in running.values():
            await server.stop()


@pytest.mark.parametrize("stored", [True, False])
async def test_a_server_that_leaves_goes_on_for_those_who_read_what_waits_there(
    stored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its clients ask for that it cannot do any more is told to them, whether they asked before it left or afterwards."""
    old = flat("s1", "s2")
    new = following(old, {"D": ("s1",)})
    async with servers(old, tmp_path if stored else None) as running:
        leaving = running["s2"]
        async with thence.connect(url(old, "s2"), "bob") as bob, thence.connect(url(old, "s2"), "ann") as ann:
            gone = thence.connect(url(old, "s2"))
            await gone.__aenter__()
            await gone._hang_up()  # One that the server would forget after a while.
            await bob.send("bob", b"waits")
            for name in ("s1", "s2"):
                assert not (await asked(old, name, ViewRequest("hold", 1, write(new)))).refused
            early = asyncio.create_task(bob.subscribe("early"))
            await until(lambda: leaving.clients.here["bob"].session and leaving.clients.here["bob"].session.waiting)
            for action in ("prepare", "switch"):
                for name in ("s1", "s2"):
                    assert not (await asked(old, name, ViewRequest(action, 1))).refused
            assert leaving.node.reconfiguration.left
            for asking in (early, asyncio.create_task(bob.subscribe("late")), asyncio.create_task(bob.unsubscribe("early"))):
                with pytest.raises(UsageError, match="'s2' has left the fabric 'flat'"):
                    await asking
            with pytest.raises(UsageError, match="'s2' has left the fabric 'flat'"):
                await bob.send("ann", b"?")
            assert (await bob.receive()).body == b"waits"
            await ann.leave()
            await until(lambda: "ann" not in leaving.clients.here)
            assert gone.name in leaving.reception.away
            monkeypatch.setattr(reception, "AWAY_S", 0.0)
            looked = leaving.node.security.look
            looks: list[None] = []
            monkeypatch.setattr(leaving.node.security, "look", lambda: looks.append(looked()))
            await until(lambda: len(looks) > 1)
            assert not leaving.stopped.done()
            assert gone.name not in leaving.reception.away
            assert (await bob.status())["change"]["phase"] == "left"


async def test_who_comes_in_may_be_up_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = flat("s1", "s2")
    (address,) = free_addresses(1)
    new = following(old, {"D": ("s1", "s2", "s3")}, s3=address)
    joining = await started(new, "s3", tmp_path)
    try:
        finding = asyncio.create_task(find_old(new, Access()))
        async with servers(old, tmp_path):
            assert (await finding).version == 1
        monkeypatch.setattr(apply, "FIND_ROUNDS", 1)
        monkeypatch.setattr(apply, "ANSWER_S", 0.5)
        with pytest.raises(UsageError, match="have version 2, and only 1 leads to it; no answer from s1: "):
            await find_old(new, Access())
    finally:
        await joining.stop(drain_s=0)


COMMAND_KILLED_AT = {
    "to hold": "normal",
    "all hold (": "holding",
    "all hold and nothing is on its way": "holding",
    "all are prepared": "prepared",
}
"""What the command says when it is killed, and in which phase all servers are then; the next one goes on from there."""


@pytest.mark.slow
def test_the_command_and_servers_may_be_killed_at_any_moment(tmp_path: Path) -> None:
    """kill -9 of the command in each of its phases, and of a server while all hold, and while all are prepared."""
    names = NAMES[:5]
    with fleet(flat(*names, ordering="matrix"), tmp_path, tmp_path / "trace") as running:
        old = running.topology
        split = following(old, {"D": names[:3], "E": names[2:]})
        merged = following(split, {"D": names})
        again = following(merged, {"D": names[:3], "E": names[2:]})

        async def main() -> None:
            async with load(old, ("s1", "s3", "s5")) as clients:
                await clients.more()
                for said, phase in COMMAND_KILLED_AT.items():
                    leading = await asyncio.to_thread(stopped_at, said, split, tmp_path)
                    found = await phases(old, names)
                    leading.kill()
                    leading.wait()
                    assert found == {(1, phase)}, said
                await _finish(split, tmp_path)
                await clients.more()
                for new, said, phase in ((merged, "all hold (", "holding"), (again, "all are prepared", "prepared")):
                    leading = await asyncio.to_thread(stopped_at, said, new, tmp_path)
                    found = await phases(old, names)
                    running.kill("s4")
                    leading.send_signal(signal.SIGCONT)
                    # It is waited for; it comes back in its phase, or is told that the others have gone on.
                    await asyncio.sleep(0.3)
                    running.start_one("s4")
                    assert await asyncio.to_thread(leading.wait, 60) == 0
                    assert found == {(new.version - 1, phase)}, said
                    await clients.more(3)
                for name in names:
                    running.kill(name)
                    running.start_one(name)
                await clients.more()
                await clients.finish()

        run(main)
        for name in names:
            # The file says version 1, the store version 4.
            assert wait_for_server(again, name)["version"] == 4
    assert_kept(tmp_path / "trace", sends=3 * 80)


async def _finish(new: Topology, folder: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run, [*APPLY, str(written(new, folder)), "--json"], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["to_version"] == new.version


@pytest.mark.slow
def test_all_servers_are_restarted_one_after_the_other_under_load(tmp_path: Path) -> None:
    names = NAMES[:3]
    with fleet(flat(*names, ordering="matrix"), tmp_path, tmp_path / "trace") as running:
        topology = running.topology

        async def main() -> None:
            async with load(topology, names) as clients:
                for name in names:
                    await clients.more(10)
                    process = running.processes.pop(name)
                    process.terminate()
                    await asyncio.to_thread(process.wait, 30)
                    running.start_one(name)
                    await asyncio.to_thread(wait_for_server, topology, name)
                await clients.more(10)
                await clients.finish()

        run(main)
    events = assert_kept(tmp_path / "trace", sends=3 * 40)
    assert sum(event.kind == "recover" for event in events) == len(names)


def test_a_server_that_was_killed_while_prepared_is_told_by_a_peer(tmp_path: Path) -> None:
    with fleet(flat("s1", "s2", "s3", ordering="matrix"), tmp_path) as running:
        old = running.topology
        new = following(old, {"D": ("s1", "s2"), "E": ("s2", "s3")})

        async def decided() -> None:
            for request in (ViewRequest("hold", 1, write(new)), ViewRequest("prepare", 1)):
                for name in old.processes:
                    assert not (await asked(old, name, request)).refused
            running.kill("s3")
            # Nobody tells s1 and s3 but s2, which calls them or is called by them.
            assert not (await asked(old, "s2", ViewRequest("switch", 1))).refused

        async def talked() -> None:
            async with thence.connect(url(new, "s1"), "ann") as ann, thence.connect(url(new, "s3"), "bob") as bob:
                await ann.known("bob")
                await ann.send("bob", b"over the relay")
                assert (await bob.receive()).body == b"over the relay"

        run(decided)
        running.start_one("s3")
        deadline = time.monotonic() + PATIENCE_S
        while wait_for_server(new, "s3")["version"] != new.version and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [wait_for_server(new, name)["version"] for name in new.processes] == [2, 2, 2]
        run(talked)


async def test_a_hold_that_nobody_leads_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconfiguration, "HOLD_LEASE_S", 1.0)
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1",), "E": ("s1", "s2")})
    async with servers(old, tmp_path) as running, thence.connect(url(old, "s1"), "ann") as ann:
        answer = await asked(old, "s1", ViewRequest("hold", 1, write(new)))
        assert answer.standing.phase == "holding"
        await ann.send("ann", b"waits")
        assert running["s1"].status.report()["change"]["waiting_submissions"] == 1
        # Whoever leads keeps it up; whoever only looks, as --plan does, does not.
        led = time.monotonic()
        while time.monotonic() < led + 1.5:
            await asked(old, "s1", ViewRequest("ask", 1))
            await asyncio.sleep(0.1)
        assert running["s1"].status.report()["change"]["phase"] == "holding"
        while running["s1"].status.report()["change"]["phase"] == "holding":
            assert time.monotonic() < led + PATIENCE_S
            await asked(old, "s1", ViewRequest("ask", whole=True))
            await asyncio.sleep(0.1)
        assert (await ann.receive(within=30)).body == b"waits"
        assert running["s1"].status.report()["change"]["phase"] == "normal"
        assert running["s1"].node.topology.version == 1


async def test_a_change_that_takes_too_long_goes_back_and_says_why(tmp_path: Path) -> None:
    old = flat("s1", "s2", "s3", ordering="matrix")
    new = following(old, {"D": ("s1", "s2"), "E": ("s2", "s3")})
    async with servers(old, tmp_path) as running:
        await running["s3"].stop(drain_s=0)
        with pytest.raises(UsageError, match=r"not done within 0.5 s: waiting for s3 to answer; s3: "):
            await applied(new, 0.5)
        running["s3"] = await started(old, "s3", tmp_path)
        for name in ("s1", "s2"):
            assert not (await asked(old, name, ViewRequest("hold", 7, write(new)))).refused
        await TopologyChange(old, new, Access(), quietly).abort(10)
        assert {server.status.report()["change"]["phase"] for server in running.values()} == {"normal"}
        await applied(new)


async def test_the_store_says_which_topology_is_in_force(tmp_path: Path) -> None:
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1", "s2"), "E": ("s2",)})
    other = following(old, {"D": ("s2", "s1")})
    async with servers(old, tmp_path):
        pass
    with pytest.raises(ConfigError, match="the file has version 2 of 'flat', and the store of 's1' is at version 1"):
        await started(new, "s1", tmp_path)
    async with servers(old, tmp_path):
        await applied(new)
    async with servers(old, tmp_path) as running:
        assert running["s1"].node.topology.fingerprint == new.fingerprint
    async with servers(new, tmp_path) as running:
        assert running["s1"].node.topology.version == 2
    with pytest.raises(ConfigError, match="has that version with"):
        await started(other, "s1", tmp_path)


async def test_servers_of_different_versions_name_both(tmp_path: Path) -> None:
    old = flat("s1", "s2", ordering="matrix")
    new = following(old, {"D": ("s1", "s2"), "E": ("s2",)})
    one = await started(old, "s1", tmp_path)
    other = await started(new, "s2", tmp_path)
    try:
        await until(lambda: "has version" in one.node.peers.peers["s2"].trouble)
        trouble = one.node.peers.peers["s2"].trouble
        assert f"version 1 of the topology of 'flat', {old.fingerprint}" in trouble
        assert f"s2 has version 2, {new.fingerprint}" in trouble
    finally:
        await one.stop(drain_s=0)
        await other.stop(drain_s=0)


async def test_members_inside_programs_change_too(tmp_path: Path) -> None:
    old = flat("a", "b", "c", ordering="matrix")
    new = following(old, {"D": ("a", "b"), "E": ("b", "c")})
    async with (
        thence.Member(old, name="a", data=tmp_path / "a") as a,
        thence.Member(old, name="b") as b,
        thence.Member(old, name="c") as c,
    ):
        await asyncio.gather(*(member.connected() for member in (a, b, c)))
        await a.send("c", b"before")
        await applied(new)
        await a.send("c", b"after")
        assert [(await c.receive()).body for _ in range(2)] == [b"before", b"after"]
