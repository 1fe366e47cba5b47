"""Whom a node suspects: its connections, looked at now and then, where that makes a difference.

It does where relays have replicas (``core.failover.replicas``), and in domains that ack to everybody
(``core.transport.ack_all``).

Rules:

* A peer whose connection is gone for ``SUSPECT_AFTER_S``, or was never made since the start, is suspected. So is one
  that says nothing for ``SUSPECT_SILENCE_S`` though it is connected: it has stopped, or the line swallows everything.
* It is suspected no longer as soon as it is connected and says something.
* Either may be wrong. Then two replicas forward for a while, or somebody is not waited for and catches up later, which costs
  messages and nothing else; so there is no harm in being quick, and the limits are much shorter than the time after which a
  connection is given up (``node.peers.connections``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from thence.core.member.contract import Suspicion
from thence.node.driver.driver import Driver
from thence.node.peers.connections import Peers
from thence.node.peers.peer import HEARTBEAT_S, Peer

SUSPECT_AFTER_S: Final = 0.5
"""How long a connection may be gone."""

SUSPECT_SILENCE_S: Final = 3 * HEARTBEAT_S
"""How long a peer may be silent, which says at least once in every ``HEARTBEAT_S`` and a half that it is there."""

DETECT_EVERY_S: Final = 0.1

log = logging.getLogger("thence.watching")


class FailureDetector:
    """Tells a node's member whom to suspect."""

    def __init__(self, peers: Peers, driver: Driver) -> None:
        """Watch ``peers`` for the member of ``driver``; ``look`` is to be called every ``DETECT_EVERY_S``."""
        self._peers = peers
        self._driver = driver

    def look(self) -> None:
        """Tell the member what has changed."""
        me, member, topology = self._peers.me, self._driver.member, self._peers.topology
        if me not in topology.suspicious or self._peers.between:
            return  # It makes no difference here, or we talk to nobody for a moment.
        now, loop_now = time.monotonic(), asyncio.get_running_loop().time()
        for peer in self._peers.peers.values():
            dead = _seems_dead(peer, now, loop_now)
            if dead != (peer.name in member.attachment.suspected) and not self._driver.full:
                self._driver.step(Suspicion(peer.name, dead))
                if peer.name in topology.fellows.get(me, ()):
                    log.warning("suspecting %s" if dead else "no longer suspecting %s", peer.name)


def _seems_dead(peer: Peer, now: float, loop_now: float) -> bool:
    if peer.connection is None:
        return now - peer.since > SUSPECT_AFTER_S
    return loop_now - peer.connection.heard_at > SUSPECT_SILENCE_S
