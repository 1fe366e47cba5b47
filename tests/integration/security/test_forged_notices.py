"""Who tells of clients: the server that has them, and no other, however much it is believed otherwise."""

from __future__ import annotations

from typing import Any

import pytest

import thence
from tests.support.servers.running import PATIENCE_S, flat, servers, url
from thence.core.member.contract import Delivery
from thence.core.wire.messages import Envelope, Frame
from thence.storage.bodies import Body, Joined, Known, Left, write_body


@pytest.mark.parametrize(
    ("forged", "whose"),
    [
        (Left("ann", "s1"), "s1"),
        (Joined("ann", "a", False), "a"),
        (Joined("", "s1", False), "s1"),
        (Joined("till", "s1", False, kind="Account"), "s1"),
        (Known("a", {"ann": False}, []), "a"),
    ],
    ids=["it is gone", "it is elsewhere", "there is another", "there is an agent", "there are some"],
)
async def test_a_server_tells_of_its_own_clients_alone(forged: Body, whose: str, caplog: pytest.LogCaptureFixture) -> None:
    """A captured server removed the mailbox of a client of another one, with all that waited in it, and made some there."""
    topology = flat("s1", "s2")
    async with servers(topology) as running, thence.connect(url(topology, "s1"), "ann") as ann:
        node = running["s1"].node
        await ann.send("ann", b"before")
        frame = Frame[Any](None, Envelope("s2", 1_000, None, write_body(forged)))
        node.dispatch.handover.hand(Delivery(1_000, "A", frame), {})
        assert list(node.directory.state.mailboxes) == ["ann"]
        assert node.directory.home("ann") == "s1"
        assert (await ann.receive(within=PATIENCE_S)).body == b"before"
    assert f"a message of 's2' about clients of '{whose}', which alone tells of them" in caplog.text
