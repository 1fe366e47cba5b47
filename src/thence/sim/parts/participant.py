"""How a simulated process takes part in changes of the topology: it answers commands, and goes back if it hears of none.

Rules:

* It answers when all that its process has done so far is on the disk.
* A packet is of the version in which it was made. It is taken by members of that version only, as a connection between servers
  stands for one version; a member that is prepared and hears a member of the old fabric speak in the new version has been told.
* A member that holds and hears nothing from a command for ``LEASE_NS`` goes back to normal by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from thence.core.member.member import Member
from thence.core.reconfig.flush import Inventory
from thence.core.reconfig.protocol import Follow, Resume, Standing, ViewInput
from thence.core.topology.model import Topology
from thence.core.wire.messages import Envelope, MessageId, Packet
from thence.errors import UsageError
from thence.sim.kernel import Kernel
from thence.sim.parts.sync_queue import SyncQueue

LEASE_NS: Final = 1_000_000_000
"""How long a member holds without hearing of a command."""

Report = tuple[Inventory, Mapping[MessageId, Envelope]]
"""What a member has to compare with others, and the messages themselves."""


class VersionedPacket(NamedTuple):
    """A packet on its way, and the version of the topology in which it was made."""

    version: int
    packet: Packet[Any]
    fingerprint: str = ""
    topology: Topology | None = None
    """What its sender would tell one who is late."""


class Participant:
    """One process's part in changes."""

    def __init__(self, kernel: Kernel, queue: SyncQueue, member: Callable[[], Member], step: Callable[[ViewInput], None]) -> None:
        """Speak for the member that ``member`` gives, which another one replaces at each start; ``step`` lets it act."""
        self.on_lost_speaker: Callable[[str, int], None] | None = None
        """Called with who still speaks in an old version though it was lost, and the version of which it should know."""
        self.on_switched: Callable[[], None] | None = None
        """Called when the member has switched."""
        self.resumed = 0
        """How often the member went back by itself."""
        self._kernel = kernel
        self._queue = queue
        self._member = member
        self._step = step
        self._heard_at = 0
        self.on_started: Callable[[], None] | None = None
        """Called when the process came back."""

    def meet(self, source: str, topology: Topology) -> None:
        """A peer says that it has a later version: switch, if that is what we are prepared for; or follow it."""
        member = self._member()
        if source not in member.topology.homes or topology.version <= member.topology.version:
            return
        if topology.version == member.topology.version + 1 and (switch := member.view.heard_from(source, topology.fingerprint)):
            self.change(switch)
        elif member.view.state.phase in ("normal", "holding"):
            self.change(Follow(topology, (source,)))

    def ask(self, reply: Callable[[Standing], None], attempt: int = 0) -> None:
        """Say where the member stands now, to one who leads an attempt, or only asks."""
        if attempt == self._member().view.state.attempt:
            self._heard_at = self._kernel.now
        self._queue.store((), partial(reply, self._member().reconfigurer.standing()))

    def ask_report(self, reply: Callable[[Report], None]) -> None:
        """Say what the member has."""
        self._heard_at = self._kernel.now
        try:
            report = self._member().survivor.report()
        except UsageError:
            return  # The next round of questions shows why.
        names = tuple(copy.id for copy in report.copies)
        given = dict(zip(names, self._member().survivor.give(names), strict=True))
        self._queue.store((), partial(reply, (report, given)))

    def change(self, change: ViewInput) -> None:
        """Do what a command asks for, if that may be."""
        self._heard_at = self._kernel.now
        version = self._member().topology.version
        try:
            self._step(change)
        except UsageError:
            return  # The next round of questions shows it.
        if self._member().topology.version > version and self.on_switched is not None:
            self.on_switched()
        if self._member().view.holding:
            self._kernel.schedule(LEASE_NS, self._end_lease, self._queue.life)

    def _end_lease(self, life: int) -> None:
        state = self._member().view.state
        if life != self._queue.life or state.phase != "holding":
            return  # Nobody goes on for one that is down, or for an attempt that is over.
        if self._kernel.now - self._heard_at < LEASE_NS:
            self._kernel.schedule(LEASE_NS, self._end_lease, life)
            return
        self.resumed += 1
        self._step(Resume(state.attempt))

    def started(self) -> None:
        """Wait for a command, if the member came back in the middle of a change; and meet its peers."""
        if self.on_started is not None:
            self.on_started()
        if self._member().view.state.phase == "holding":
            self._heard_at = self._kernel.now
            self._kernel.schedule(LEASE_NS, self._end_lease, self._queue.life)

    def sealed(self, packet: Packet[Any]) -> VersionedPacket:
        """Return a packet with the version in which it is made."""
        topology = self._member().topology
        return VersionedPacket(topology.version, packet, topology.fingerprint, topology)

    def opened(self, source: str, sealed: VersionedPacket) -> Packet[Any] | None:
        """Return a packet that has come, if it is of the member's version; None: it is not taken."""
        if sealed.topology is not None and sealed.version > self._member().topology.version:
            self.meet(source, sealed.topology)
        topology = self._member().topology
        if sealed.fingerprint == topology.fingerprint:
            return sealed.packet
        if source in self._member().view.state.gone and self.on_lost_speaker is not None:
            self.on_lost_speaker(source, topology.version)
        return None
