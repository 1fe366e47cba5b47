"""One server is dead and the queue to it is full: everybody else goes on, and the server says for whom nothing is taken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import thence
from tests.support.servers.running import flat, servers, started, until, url
from tests.support.servers.scraping import ask
from tests.unit.cli import run as run_command
from thence.client.client import ask_status
from thence.core.member.limits import MemberOptions
from thence.observe.http import Answerer

MOST = 40
MESSAGES = 100
SMALL = MemberOptions(max_queued=MOST)


async def fill(writer: thence.Client, to: str) -> asyncio.Task[None]:
    """Send more than there is room for; return what waits until all of it is accepted."""
    for number in range(MESSAGES):
        writer.post(to, str(number).encode())
        await asyncio.sleep(0)  # Each in a batch of its own.
    return asyncio.create_task(writer.flush())


async def numbers(reader: thence.Client, count: int) -> list[int]:
    return [int((await reader.receive()).body) for _ in range(count)]


@pytest.mark.parametrize("ordering", ["matrix", "vector"])
async def test_a_dead_server_stops_what_is_for_it_and_nothing_else(ordering: str, tmp_path: Path) -> None:
    topology = flat("s1", "s2", "s3", ordering=ordering)
    async with servers(topology, tmp_path, member=SMALL) as running:
        answerer = Answerer(running["s1"])
        pages = await answerer.open("0")
        async with (
            thence.connect(url(topology, "s1"), "ann") as ann,
            thence.connect(url(topology, "s1"), "bob") as bob,
            thence.connect(url(topology, "s1"), "eve") as eve,
            thence.connect(url(topology, "s2"), "near") as near,
        ):
            async with thence.connect(url(topology, "s3"), "far"):
                pass
            for name in ("far", "near"):
                await ann.known(name)
                await bob.known(name)
            await running["s3"].stop(drain_s=0)
            waiting = await fill(ann, "far")
            await until(lambda: len(running["s1"].clients.waiting()) == 1)
            # Another client writes to a server that is there, and to one of the same server, far more than the limit.
            for number in range(3 * MOST):
                await bob.send("near", str(number).encode())
                await bob.send("eve", str(number).encode())
            assert await numbers(near, 3 * MOST) == await numbers(eve, 3 * MOST) == list(range(3 * MOST))
            async with thence.connect(url(topology, "s1"), "new") as new:  # All are told of it, the dead one later.
                await new.send("near", b"0")
                assert await numbers(near, 1) == [0]
            everyone = asyncio.create_task(eve.send(thence.EVERYONE, b"all"))
            await until(lambda: len(running["s1"].clients.waiting()) == 2)
            assert not waiting.done()
            await until(lambda: running["s1"].status.stalled)
            await _assert_told(running["s1"].address, pages)
            running["s3"] = await started(topology, "s3", tmp_path)
            await asyncio.gather(waiting, everyone)
            async with thence.connect(url(topology, "s3"), "far") as far:
                assert await numbers(far, MESSAGES) == list(range(MESSAGES))
                assert (await far.receive()).body == b"all"
            assert (await ask_status(url(topology, "s1")))["stalled"] == ""
            assert (await ask(pages, "/readyz"))[::2] == (200, "ready\n")
        answerer.close()


async def _assert_told(address: str, pages: str) -> None:
    """The server says for whom nothing is taken, since when, who waits and what to do; it is ready for others."""
    status = await ask_status(f"thence://{address}")
    stalled = status["stalled"]
    for part in (
        "nothing more is taken for 's3' since",
        "the queue to 's3' in 'D' is full",
        f"max_queued is {MOST}",
        "Start 's3' again",
        "if it runs, `thence status` of it says why it takes nothing",
    ):
        assert part in stalled
    assert {peer["name"]: peer["full_seconds"] is not None for peer in status["neighbours"]} == {"s2": False, "s3": True}
    assert status["waiting_clients"] == 2
    code, _, text = await ask(pages, "/readyz")
    assert code == 200
    assert text.startswith("ready, but nothing more is taken for 's3' since")
    metrics = (await ask(pages, "/metrics"))[2].splitlines()
    assert 'thence_stalled{by="queue"} 1.0' in metrics
    assert "thence_waiting_clients 2.0" in metrics
    assert 'thence_neighbour_stalled_seconds{neighbour="s2"} 0.0' in metrics
    (ratio,) = [line.split()[1] for line in metrics if line.startswith("thence_queue_full_ratio ")]
    assert float(ratio) >= 1
    shown = await asyncio.to_thread(run_command, "status", f"thence://{address}")
    assert shown.code == 1
    assert "nothing more is taken for 's3'" in " ".join(shown.out.split())


async def test_a_server_that_can_send_to_no_other_is_not_ready(tmp_path: Path) -> None:
    topology = flat("s1", "s2")
    async with servers(topology, tmp_path, member=SMALL) as running:
        answerer = Answerer(running["s1"])
        pages = await answerer.open("0")
        async with thence.connect(url(topology, "s1"), "ann") as ann, thence.connect(url(topology, "s1"), "bob") as bob:
            async with thence.connect(url(topology, "s2"), "far"):
                pass
            await ann.known("far")
            await running["s2"].stop(drain_s=0)
            waiting = await fill(ann, "far")
            await until(lambda: running["s1"].status.stalled)
            code, _, text = await ask(pages, "/readyz")
            assert (code, text[:38]) == (503, "nothing more is taken for 's2' since 1")
            await bob.send("ann", b"here")
            assert (await ann.receive()).body == b"here"
            waiting.cancel()
            running["s2"] = await started(topology, "s2", tmp_path)
            await until(lambda: not running["s1"].status.stalled)
        answerer.close()
