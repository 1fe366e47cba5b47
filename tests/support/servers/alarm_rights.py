"""The scenario of ``test_alarms.py`` that is about rights: what waits on a topic is withheld when the right to it is gone."""

from __future__ import annotations

from typing import Any

import thence
from tests.support.servers.running import flat, servers, until, url
from tests.support.servers.securing import EVERYTHING, Access


async def a_right_to_a_topic_is_withdrawn(given: Any) -> None:
    """Withdraw the right to a topic while a message on it waits for its client, which then comes back."""
    topology = flat("s1")
    access = Access(given.data / "access.toml", ann={"subscribe": ["news"]}, bob=EVERYTHING)
    async with servers(topology, access=access.path) as running:
        server = running["s1"]
        here = url(topology, "s1")
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            await ann.subscribe("news")
        async with thence.connect(here, "bob", token=access.tokens["bob"]) as bob:
            await bob.publish("news", b"secret")
            await bob.send("ann", b"open")
        await given.prometheus.scrape(server)
        access.write(ann={}, bob=EVERYTHING)
        server.reload()
        await until(lambda: not server.node.directory.state.followers)
        async with thence.connect(here, "ann", token=access.tokens["ann"]) as ann:
            assert (await ann.receive()).body == b"open"
            ann.done()
        await given.prometheus.scrape(server)
