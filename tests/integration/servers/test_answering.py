"""What a server answers over HTTP, to whom, and how little somebody can make it keep."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import thence
from tests.support.campaigns.attacks import EVIL_HOST
from tests.support.servers.running import PATIENCE_S, flat, servers, until, url
from tests.support.servers.scraping import ask
from tests.unit.cli import refusal
from thence.errors import ConfigError
from thence.observe import http as observe_http
from thence.observe.http import Answerer, parse_listen
from thence.observe.snapshot import MAILBOXES_AT_A_TIME, look
from thence.server.status import WAIT_FOR_CLOSED
from thence.storage import mailbox as mailbox_module


def test_it_listens_on_this_machine_unless_told_otherwise() -> None:
    assert parse_listen("9401") == parse_listen(":9401") == "127.0.0.1:9401"
    assert parse_listen("0.0.0.0:9401") == "0.0.0.0:9401"
    assert parse_listen("[::1]:9401") == "[::1]:9401"
    with pytest.raises(ConfigError, match="is no address"):
        parse_listen("everywhere")


async def test_pages() -> None:
    async with servers(flat("s1")) as running:
        answerer = Answerer(running["s1"])
        address = await answerer.open("0")
        assert address.startswith("127.0.0.1:")
        status, head, text = await ask(address, "/metrics?x=1")
        assert status == 200
        assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
        assert f"Content-Length: {len(text.encode())}" in head
        assert (await ask(address, "/healthz"))[::2] == (200, "ok\n")
        assert (await ask(address, "/readyz"))[::2] == (200, "ready\n")
        assert (await ask(address, "/readyz", "HEAD"))[::2] == (200, "")
        assert (await ask(address, "/"))[::2] == (404, "there are /metrics, /healthz, /readyz\n")
        assert (await ask(address, "/metrics", "POST"))[0] == 405
        assert (await ask(address, "/metrics HTTP/1.1 x"))[0] == 400
        answerer.close()
        with pytest.raises(ConnectionRefusedError):
            await ask(address, "/healthz")


async def test_a_server_with_a_closed_mailbox_is_ready_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mailbox_module, "MAX_MAILBOX_MESSAGES", 1)
    topology = flat("s1")
    async with servers(topology, tmp_path) as running:
        server = running["s1"]
        answerer = Answerer(server)
        address = await answerer.open("0")
        async with thence.connect(url(topology, "s1"), "bob b") as bob:
            await bob.send("bob b", b"here")
            make_room = f"thence client show|purge|remove {url(topology, 's1')} 'bob b'"
            remedy = f"start the program of 'bob b', or make room: {make_room}"
            told = f"ready, but the mailbox of 'bob b' is full; {WAIT_FOR_CLOSED}\n{remedy}\n"
            assert (await ask(address, "/readyz"))[::2] == (200, told)
            assert (await ask(address, "/healthz"))[0] == 200
            assert (await bob.receive()).body == b"here"
            bob.done()
            await until(lambda: not server.status.stalled)
        await server.stop(drain_s=0)
        assert (await ask(address, "/readyz"))[::2] == (503, "s1 is stopping\n")
        answerer.close()


async def test_what_somebody_can_make_it_keep_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(observe_http, "REQUEST_WITHIN_S", 0.3)
    async with servers(flat("s1")) as running:
        answerer = Answerer(running["s1"])
        address = await answerer.open("0")
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 2 * observe_http.MAX_REQUEST_BYTES)
        assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
        writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()
        await until(lambda: not answerer.connections and not answerer.asking)
        answerer.close()
    said = [record.getMessage() for record in caplog.records]
    for why in ("request header fields too large: the limit is 8192 bytes", "request timeout: no request within 0.3 s"):
        assert any(re.fullmatch(rf"127\.0\.0\.1:\d+: refused over HTTP: {why}", line) for line in said), said


async def test_a_crowd_that_asks_for_nothing_keeps_nobody_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever could keep health checks out could have the server restarted."""
    monkeypatch.setattr(observe_http, "REQUEST_WITHIN_S", PATIENCE_S)  # Nobody goes because of the time.
    async with servers(flat("s1")) as running:
        answerer = Answerer(running["s1"])
        address = await answerer.open("0")
        host, _, port = address.rpartition(":")
        # One that is slow, from here, and more than there is room for, from elsewhere.
        slow, slow_writer = await asyncio.open_connection(host, int(port))
        crowd = [
            await asyncio.open_connection(host, int(port), local_addr=(EVIL_HOST, 0))
            for _ in range(2 * observe_http.MAX_CONNECTIONS)
        ]
        await until(lambda: len(answerer.connections) == observe_http.MAX_CONNECTIONS)
        assert (await ask(address, "/healthz"))[::2] == (200, "ok\n")
        assert (await crowd[0][0].read()) == b"", "the oldest of them has made room"
        slow_writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert (await slow.read()).endswith(b"ready\n"), "who is alone at its place stays"
        for _, writer in (*crowd, (slow, slow_writer)):
            writer.close()
        answerer.close()
    assert any(
        re.fullmatch(rf"{re.escape(EVIL_HOST)}:\d+: shown out: it has no answer yet, .*", record.getMessage())
        for record in caplog.records
    )


async def test_who_asks_without_end_shares_looks_and_hears_what_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty that asked for metrics as fast as they could slowed down messages to a tenth."""
    looks: list[asyncio.Future[str]] = []

    def looked(_: object) -> asyncio.Future[str]:
        looks.append(asyncio.get_running_loop().create_future())
        return looks[-1]

    monkeypatch.setattr(observe_http, "exposition", looked)
    async with servers(flat("s1")) as running:
        answerer = Answerer(running["s1"])
        address = await answerer.open("0")
        first = asyncio.create_task(ask(address, "/metrics"))
        await until(lambda: looks)
        others = [asyncio.create_task(ask(address, "/metrics")) for _ in range(20)]
        await until(lambda: len(answerer.asking) == 21)
        assert (await ask(address, "/healthz"))[::2] == (200, "ok\n")
        looks[0].set_result("before\n")
        assert (await first)[2] == "before\n"
        await until(lambda: len(looks) == 2)
        looks[1].set_result("since\n")
        assert {(await other)[2] for other in others} == {"since\n"}
        assert len(looks) == 2
        answerer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /../../etc/passwd HTTP/1.1",
        b"GET /%2e%2e/etc/passwd HTTP/1.1",
        b"GET http://127.0.0.1/metrics HTTP/1.1",
        b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000",
        b"BREW /metrics HTTP/1.1",
        b"CONNECT 127.0.0.1:22 HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /metrics",
        b"GET /\x1b]0;x\x07 HTTP/1.1",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"\x00" * 100,
        b"",
    ],
    ids=lambda request: repr(request[:24]),
)
async def test_strange_requests_are_refused_in_words(request_: bytes) -> None:
    async with servers(flat("s1")) as running:
        answerer = Answerer(running["s1"])
        address = await answerer.open("0")
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request_ + b"\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n")
        told = await reader.read()
        assert re.match(rb"HTTP/1.1 (400|404|405) ", told), told
        assert told.count(b"HTTP/1.1") == 1, "one answer for one connection"
        assert b"\x1b" not in told
        writer.close()
        assert (await ask(address, "/healthz"))[0] == 200
        answerer.close()


async def test_it_is_not_opened_to_other_machines_unless_told(tmp_path: Path) -> None:
    async with servers(flat("s1")) as running:
        with pytest.raises(ConfigError, match="can be reached from other machines"):
            await Answerer(running["s1"]).open("0.0.0.0:0")
    file = tmp_path / "t.toml"
    file.write_text('name = "t"\n[domains.D]\nmembers = ["s1"]\n', encoding="utf-8")
    said = refusal("serve", file, "--server", "s1", "--durability", "memory", "--metrics", "0.0.0.0:9401")
    assert "--metrics: '0.0.0.0' can be reached from other machines" in said
    assert "--insecure if it is meant so" in said


async def test_a_port_that_is_taken_is_named() -> None:
    async with servers(flat("s1")) as running:
        answerer, second = Answerer(running["s1"]), Answerer(running["s1"])
        address = await answerer.open("0")
        with pytest.raises(ConfigError, match=f"cannot listen for --metrics on {re.escape(address)}"):
            await second.open(address)
        answerer.close()


def test_serve_refuses_what_is_no_address(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('name = "t"\n[domains.D]\nmembers = ["s1"]\n', encoding="utf-8")
    assert "'here:x' is no address" in refusal("serve", file, "--server", "s1", "--durability", "memory", "--metrics", "here:x")


async def test_a_great_many_mailboxes_are_added_up_a_part_at_a_time() -> None:
    async with servers(flat("s1")) as running:
        directory = running["s1"].node.directory
        count = 2 * MAILBOXES_AT_A_TIME + 1
        for number in range(count):
            directory.state.mailboxes[f"client {number}"] = mailbox_module.Mailbox(
                position=number, acknowledged=0, bytes=2 * number
            )
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = turns
        looked = await look(running["s1"])
        seen = looked.mailboxes
        assert turns > before
        task.cancel()
        assert (seen.messages, seen.bytes) == (count * (count - 1) // 2, count * (count - 1))
        assert (seen.longest_messages, seen.longest_bytes) == (count - 1, 2 * (count - 1))
        assert looked.mailbox_ratio == (count - 1) / mailbox_module.MAX_MAILBOX_MESSAGES
