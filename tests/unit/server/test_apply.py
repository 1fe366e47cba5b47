"""Whoever leads a change says why it does not get on; tests/integration has whole changes."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from thence.core.reconfig.flush import Copy, Inventory, settle
from thence.core.reconfig.protocol import Standing
from thence.core.topology.toml import parse
from thence.net.protocol import ViewAnswer, ViewRequest
from thence.server.apply import Access, TopologyChange

TEXT = 'name = "f"\nversion = {}\n[domains.D]\nmembers = [{}]\n[servers.a]\naddress = "127.0.0.1:1"\n'
OLD = parse(TEXT.format(1, '"a", "b"'))
NEW = parse(TEXT.format(2, '"a"'))
STANDING = Standing(1, "", "prepared", 1, 2, "", True, (0, 0), 0, lost=("b",))


class Refusing:
    """Servers that refuse one kind of request."""

    def __init__(self, action: str) -> None:
        self.action = action

    async def ask(self, name: str, request: ViewRequest) -> ViewAnswer:
        return ViewAnswer(name, STANDING, "the disk is full" if request.action == self.action else "")

    async def ask_all(self, requests: dict[str, ViewRequest]) -> dict[str, ViewAnswer]:
        return {name: await self.ask(name, request) for name, request in requests.items()}


def test_who_refuses_to_give_or_to_be_given_is_named_once() -> None:
    found = settle(("b",), {"a": Inventory({}, [Copy("b", 1, 1, None)], {}, {})})
    nothing = settle(("b",), {"a": Inventory({}, [], {}, {})})
    for action, owed in (("give", found), ("flush", nothing)):
        told: list[str] = []
        applying = TopologyChange(OLD, NEW, Access(), told.append, ("b",))
        applying.callers = cast("Any", Refusing(action))
        for _ in range(3):
            asyncio.run(applying.hand_over("a", owed))
        assert told == ["a refused: the disk is full"]
