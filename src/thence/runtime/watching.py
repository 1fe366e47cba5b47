"""Whom a node holds for dead: its connections, looked at now and then, where that makes a difference.

It does where relays have replicas (``core.takeover``), and in domains that confirm to everybody (``core.distributed``).

Rules:

* A neighbour whose connection is gone for ``SUSPECT_AFTER_S``, or was never made since the start, is held for dead. So is one
  that says nothing for ``SUSPECT_SILENCE_S`` though it is connected: it has stopped, or the line swallows everything.
* It is held for dead no longer as soon as it is connected and says something.
* Either may be wrong. Then two replicas forward for a while, or somebody is not waited for and catches up later, which costs
  messages and nothing else; so there is no harm in being quick, and the limits are much shorter than the time after which a
  connection is given up (``runtime.peers``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from thence.core.contract import Suspicion
from thence.runtime.neighbour import Neighbour
from thence.runtime.peers import HEARTBEAT_S
from thence.runtime.tasks import tell_if_it_fails

if TYPE_CHECKING:
    from thence.runtime.node import Node

SUSPECT_AFTER_S: Final = 0.5
"""How long a connection may be gone."""

SUSPECT_SILENCE_S: Final = 3 * HEARTBEAT_S
"""How long a neighbour may be silent, which says at least once in every ``HEARTBEAT_S`` and a half that it is there."""

LOOK_EVERY_S: Final = 0.1

log = logging.getLogger("thence.watching")


class Watcher:
    """Tells a node's member whom to hold for dead."""

    def __init__(self, node: Node) -> None:
        """Watch the neighbours of ``node``; ``start`` begins with it."""
        self._node = node
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._watch())
        tell_if_it_fails(self._task, f"the watcher of {self._node.name!r}", self._node.on_failed)

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Tell the member what has changed."""
        node = self._node
        if node.name not in node.topology.suspicious or node.peers.between:
            return  # It makes no difference here, or we talk to nobody for a moment.
        now, loop_now = time.monotonic(), asyncio.get_running_loop().time()
        for peer in node.peers.neighbours.values():
            dead = _seems_dead(peer, now, loop_now)
            if dead != (peer.name in node.member.suspected) and not node.driver.full:
                node.driver.step(Suspicion(peer.name, dead))
                if peer.name in node.topology.fellows.get(node.name, ()):
                    log.warning("holding %s for dead" if dead else "no longer holding %s for dead", peer.name)


def _seems_dead(peer: Neighbour, now: float, loop_now: float) -> bool:
    if peer.connection is None:
        return now - peer.since > SUSPECT_AFTER_S
    return loop_now - peer.connection.heard_at > SUSPECT_SILENCE_S
