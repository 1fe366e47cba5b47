"""What one weak client can make a server spend, or others wait: little, and it is told why."""

from __future__ import annotations

import asyncio

import pytest

import thence
from examples.bank import Account
from tests.integration.running import PATIENCE_S, flat, run, servers, url
from tests.integration.securing import Speaker
from tests.integration.test_hostile import complained
from thence.errors import MalformedFrame
from thence.runtime.agent_kinds import kinds_of
from thence.runtime.node_options import NodeOptions
from thence.runtime.protocol import PROTOCOL, ClientHello, Letter, Publish, write_letters
from thence.runtime.server import Server


def test_a_body_nested_too_deeply_stops_no_reader_whatever_it_is() -> None:
    """A client, an embedded member, an agent and whoever looks at what it could not do: each goes on behind it."""
    deep = Letter(b"\x91" * 100_000 + b"\xc0", coded=True)

    async def main() -> None:
        topology = flat("s1", "b")
        server = Server(topology, "s1", NodeOptions(), kinds_of([Account]))
        await server.start()
        try:
            async with (
                thence.Member(topology, name="b") as member,
                thence.connect(url(topology, "s1"), "ann") as ann,
            ):
                await ann.agents.create("till", "Account")
                await ann.known("b")
                mallory = await Speaker.call(topology.addresses["s1"])
                mallory.say(ClientHello(PROTOCOL, "mallory"))
                for number, to in enumerate(("ann", "b", "till"), start=1):
                    mallory.say(Publish(number, 1, (to,), None, write_letters([deep])))
                for reader in (ann, member):
                    poison = await reader.receive(within=PATIENCE_S)
                    with pytest.raises(MalformedFrame, match="a message from 'mallory' is no"):
                        poison.value()
                    await ann.send(reader.name, b"behind")
                    assert (await reader.receive(within=PATIENCE_S)).body == b"behind"
                async with asyncio.timeout(30):
                    while not (dead := await ann.agents.dead()):  # noqa: ASYNC110  A dead letter tells nobody.
                        await asyncio.sleep(0.05)
                assert (await ann.agents.dead_letter(dead[0]["number"]))["agent"] == "till"
                mallory.close()
        finally:
            await server.stop(drain_s=0)

    run(main)


def test_bundles_that_only_claim_their_letters_fill_no_box(caplog: pytest.LogCaptureFixture) -> None:
    """316 bytes stopped a server for everybody."""

    async def main() -> None:
        topology = flat("s1")
        async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
            async with thence.connect(url(topology, "s1"), "away", temporary=False):
                pass
            mallory = await Speaker.call(topology.addresses["s1"])
            mallory.say(ClientHello(PROTOCOL, "mallory"))
            await mallory.hear()
            for at in range(10):
                mallory.say(Publish(1 + 131_072 * at, 131_072, ("away",), None, b"\xdd\x00\x02\x00\x00"))
            assert await mallory.ended()
            mallory.close()
            await ann.send("away", b"behind")
            office = running["s1"].node.office
            assert (office.state.boxes["away"].position, office.full) == (1, "")
        assert complained(caplog, "client 'mallory': letters 1 to 131072 of 'mallory' cannot be, or are not there")

    run(main)
