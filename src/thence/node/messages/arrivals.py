"""What comes from peers: packets go to the member, unless there is no room for what they bring."""

from __future__ import annotations

from typing import Any

from thence.core.member.contract import Arrived, Connected
from thence.core.wire.messages import Packet
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.messages.dispatch import Dispatch
from thence.node.messages.intake import Intake
from thence.node.peers.epochs import PeerEpochs
from thence.node.reconfiguration import Reconfiguration


class Arrivals:
    """Takes what the connections with peers bring."""

    def __init__(
        self,
        directory: Directory,
        driver: Driver,
        epochs: PeerEpochs,
        intake: Intake,
        dispatch: Dispatch,
        reconfiguration: Reconfiguration,
    ) -> None:
        """Step the member of ``driver`` with packets; ``reconfiguration`` hears of other versions of the topology."""
        self.other_version = reconfiguration.other_version
        self.gone, self.expelled = reconfiguration.gone, reconfiguration.expelled
        self._directory = directory
        self._driver = driver
        self._epochs = epochs
        self._intake = intake
        self._dispatch = dispatch

    def connected(self, peer: str, store_id: str) -> None:
        """A peer is there, on this store, and nothing is wrong with what it said."""
        self._epochs.met_on(peer, store_id)
        self._driver.step(Connected(peer))

    def arrived(self, peer: str, packet: Packet[Any]) -> None:
        """A packet came in."""
        if packet.frames and (self._intake.full or (self._directory.mailboxes.full and self._dispatch.holds_too_many())):
            return  # It will come again. What cannot be stored or told, or waits for a mailbox that is full, is not taken.
        self._driver.step(Arrived(peer, packet))
        self._intake.look_for_room()
