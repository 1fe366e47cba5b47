"""How soon a server is ready again that was killed with a million messages queued for a peer that is away.

Each message of 100 bytes is one of its own, the worst case: messages that travel together count as one here. Then the same for a
server that was stopped in order, which leaves a snapshot and no log. The bound is ten seconds.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.table import Row, markdown
from thence.core.topology.domain import Domain
from thence.core.topology.model import Topology
from thence.errors import InternalError
from thence.net.protocol import BatchItem, write_messages
from thence.node.node import Node
from thence.node.options import NodeOptions
from thence.storage.mailbox import Batch

QUEUED = 1_000_000
BOUND_S = 10.0
BODY = bytes(100)
PER_TURN = 1_000


def run(queued: int = QUEUED) -> list[Row]:
    """Fill a store, and open it twice."""
    with tempfile.TemporaryDirectory(prefix="thence-recovery-") as folder:
        killed, stopped = asyncio.run(_measure(Path(folder), queued))
    return [
        Row(f"{queued:,} queued, killed", f"{killed:.2f} s", f"{BOUND_S:.0f} s", BOUND_S / killed),
        Row(f"{queued:,} queued, stopped", f"{stopped:.2f} s", f"{BOUND_S:.0f} s", BOUND_S / stopped),
    ]


async def _measure(folder: Path, queued: int) -> tuple[float, float]:
    topology = Topology.flat(Domain("pair", ("here", "away"), "vector"))
    options = NodeOptions(data=folder)
    await _fill(Node(topology, "here", options), queued)
    began = perf_counter()
    node = Node(topology, "here", options)
    killed = perf_counter() - began
    _check(node, queued)
    await node.close()
    began = perf_counter()
    node = Node(topology, "here", options)
    stopped = perf_counter() - began
    _check(node, queued)
    await node.close()
    return killed, stopped


async def _fill(node: Node, queued: int) -> None:
    """Queue messages, and leave without a word, as a kill would."""
    messages = write_messages([BatchItem(BODY)])
    for number in range(1, queued + 1):
        while node.intake.full:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        node.intake.submit(Batch("writer", number, 1, ("away",), None, messages))
        if number % PER_TURN == 0:
            await asyncio.sleep(0)
    while node.driver.store.durable < node.driver.store.appended:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    node.driver.store.close()


def _check(node: Node, queued: int) -> None:
    found = sum(node.member.attachment.queued().values())
    if found != queued:
        raise InternalError(f"{found} messages came back, of {queued}")


if __name__ == "__main__":
    print(markdown(run()))
