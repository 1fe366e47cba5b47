"""Long frames of clients: whoever may do nothing makes a server read none, since a short name takes thirty times its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import thence
from tests.integration.security.test_hostile import complained
from tests.support.servers.running import PATIENCE_S, flat, servers, url
from tests.support.servers.securing import Access, Speaker, framed, prove
from thence.errors import UsageError
from thence.net.protocol import CONTROL_KIND, MAX_RECIPIENTS, MAX_SHORT_BYTES, PROTOCOL, ClientHello, Refused
from thence.net.security.tokens import parse_token
from thence.node.options import NodeOptions
from thence.server.server import Server

LONG = "\x00" * MAX_SHORT_BYTES
NAMES = ["ab"] * (MAX_RECIPIENTS + 1)
LONG_NAMES = [f"{number:0200}" for number in range(6_000)]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([12, 1, 1, NAMES, None, b"\x91\xc0"], f"length <= {MAX_RECIPIENTS}"),
        ([12, 1, 1, LONG_NAMES, None, b"\x91\xc0"], "name 1200000 bytes of recipients; MAX_RECIPIENTS_BYTES is 1048576"),
        ([12, 1, 2**31, ["ann"], None, b"\x91\xc0"], "cannot be"),
        ([23, LONG], "that is no long one"),
        ([17, LONG, True], "that is no long one"),
        ([3, LONG], "that is no long one"),
        ([1, 1, "f", "p", "s", "c", "i", 1, {str(at): [1, 1, 1, 1] for at in range(9_000)}], "that is no long one"),
        ([42, 1, LONG.encode()], "that is no long one"),
        ([16, 0, 0, False, *NAMES], "that is no long one"),
    ],
    ids=[
        "recipients",
        "long recipients",
        "a count",
        "a name",
        "a topic",
        "a reason",
        "a server's progress",
        "a question",
        "what comes behind",
    ],
)
async def test_what_need_not_be_long_is_not_even_read(said: list[Any], why: str, caplog: pytest.LogCaptureFixture) -> None:
    """30 MiB of short names took 900 MiB, and everybody waited for 3 s; 8 MiB of a name that nobody has took 42 to refuse."""
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        mallory = await Speaker.call(topology.addresses["s1"])
        mallory.say(ClientHello(PROTOCOL, "mallory"))
        await mallory.hear()
        mallory.writer.write(framed(CONTROL_KIND + msgspec.msgpack.encode(said)))
        assert await mallory.ended()
        mallory.close()
        await ann.send("ann", b"behind")
        assert (await ann.receive(within=PATIENCE_S)).body == b"behind"
    assert complained(caplog, f"client 'mallory': .*{why}")


async def test_who_may_not_change_the_fabric_is_refused_before_what_it_asks_is_read(tmp_path: Path) -> None:
    """30 MiB of names that copies are wanted of took 700 MiB, and 5 s of everybody's time."""
    topology = flat("s1")
    access = Access(tmp_path / "access.toml", mallory={})
    server = Server(topology, "s1", NodeOptions(access=access.path))
    await server.start()
    try:
        mallory = await Speaker.call(topology.addresses["s1"])
        await prove(mallory, "", parse_token(access.tokens["mallory"]))
        asked = [40, "give", 0, "", False, False, [], [["a", "this is no number"]] * 9_000]
        mallory.writer.write(framed(CONTROL_KIND + msgspec.msgpack.encode(asked)))
        refused = await mallory.hear()
        assert isinstance(refused, Refused)
        assert "does not let 'mallory' lead a change of the fabric" in refused.reason
        mallory.close()
    finally:
        await server.stop(drain_s=0)


async def test_a_program_is_told_that_it_names_too_many() -> None:
    topology = flat("s1")
    async with servers(topology), thence.connect(url(topology, "s1"), "ann") as ann:
        with pytest.raises(UsageError, match="65537 recipients; MAX_RECIPIENTS is 65536"):
            await ann.send([f"name {number}" for number in range(MAX_RECIPIENTS + 1)], b"x")
        with pytest.raises(UsageError, match="names of 1200000 characters together; MAX_RECIPIENTS_BYTES is 1048576"):
            await ann.send([f"{number:0200}" for number in range(6_000)], b"x")
