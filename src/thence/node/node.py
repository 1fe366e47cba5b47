"""A node: member, directory, store, driver and peers. A server and a member inside a program both consist of one.

The node puts its parts together and starts and stops them. Messages on their way out enter by the intake, those on their way in
by the arrivals, and go through the driver, the member and the dispatch (docs/concepts/architecture.md).
"""

from __future__ import annotations

import asyncio

from thence.core.member.member import Member
from thence.core.topology.model import Topology
from thence.errors import StorageError, UsageError
from thence.net.security.credentials import Security
from thence.node import options as node_options
from thence.node.backlog import Backlog
from thence.node.directory.homes import Homes
from thence.node.driver.driver import Driver
from thence.node.effects import Effects
from thence.node.history import TraceHistory
from thence.node.hooks import NodeHooks
from thence.node.messages.acknowledgements import Acknowledgements
from thence.node.messages.arrivals import Arrivals
from thence.node.messages.closing_notices import ClosingNotices
from thence.node.messages.dispatch import Dispatch
from thence.node.messages.handover import Handover
from thence.node.messages.intake import Intake
from thence.node.messages.removal import Removal
from thence.node.messages.returns import Returning
from thence.node.offline.backup import read_restored
from thence.node.options import NodeOptions
from thence.node.peers.connections import Peers
from thence.node.peers.epochs import PeerEpochs
from thence.node.peers.failure_detector import DETECT_EVERY_S, FailureDetector
from thence.node.reconfiguration import Reconfiguration, stored_topology
from thence.node.recovery import Parts, recover
from thence.runtime.event_loop import repeat, tell_if_it_fails
from thence.runtime.files import LOOK_EVERY_S
from thence.storage.agents import AgentLedger
from thence.storage.mailbox_safety import MailboxSafety, why_unknown


class Node:
    """One member that runs, with its store, its peers and its mailboxes."""

    def __init__(self, topology: Topology, name: str, options: NodeOptions) -> None:
        """Open the store and bring back what is in it."""
        if name not in topology.homes:
            raise UsageError(f"{name!r} is no server of {topology.name!r}; there are {', '.join(topology.processes)}")
        self.name = name
        self.options = options
        self.security = Security(options.tls, options.access, insecure=options.insecure)
        self.memory = node_options.MemoryBudget(options, topology, name)
        self.hooks = NodeHooks()
        store = node_options.open_store(options, topology, name)
        given, topology = topology, stored_topology(store) or topology
        self.memory.fit(topology)
        self.member = Member(name, topology, self.memory.member_options)
        self.driver = Driver(self.member, store)
        self.backlog = Backlog(store, node_options.limits_of(options))
        self.backlog.keep_frames_of(self.member, self.driver)
        self.directory = node_options.open_directory(options, topology, name, self.backlog.spill, self.memory)
        self.ledger = AgentLedger(self.memory.limits.states_bytes)
        self.history = TraceHistory(options.trace, name, topology)
        self.homes = Homes(name, self.directory, self.driver.write)
        self._connect_parts(topology, epochs := PeerEpochs(name, self.driver))
        parts = Parts(
            self.driver,
            self.directory,
            self.homes,
            self.ledger,
            epochs,
            self.intake,
            self.acknowledgements,
            self.removal,
            self.returning,
            self.dispatch,
            self.reconfiguration,
            self.history,
            self.backlog,
        )
        recover(parts, given)
        epochs.restored = 0 if options.data is None else read_restored(options.data)
        arrivals = Arrivals(self.directory, self.driver, epochs, self.intake, self.dispatch, self.reconfiguration)
        self.peers = Peers(self.topology, name, arrivals, epochs, self.security)
        self.peers.pool = self.memory.pools.peers
        if self.reconfiguration.left:
            self.peers.enter(None)
        epochs.begin(self.peers)
        self.reconfiguration.begin(self.peers, lambda: self.dispatch.held)
        self.driver.attach(Effects(parts, self.peers, self.hooks))
        self._tasks: list[asyncio.Task[None]] = []

    def _connect_parts(self, topology: Topology, epochs: PeerEpochs) -> None:
        """Make the parts that messages go through."""
        directory, driver, hooks, safety = self.directory, self.driver, self.hooks, MailboxSafety()
        self.reconfiguration = Reconfiguration(topology, directory, driver, self.backlog, self.history, hooks)
        self.intake = Intake(directory, driver, self.history, epochs, hooks)

        def go_on() -> None:
            self.dispatch.go_on()

        def forget(client: str) -> None:
            self.intake.forget(client)
            self.ledger.forget(client)
            safety.forget(client)

        def switched() -> None:
            epochs.changed()
            self.intake.waiters.changed()
            hooks.on_safe(directory.clients())

        def fit(following: Topology) -> bool:
            changed = self.memory.fit(following)
            if changed:  # Before the member enters it: what it keeps there for each peer is made then.
                self.member.options, self.ledger.limit = self.memory.member_options, self.memory.limits.states_bytes
                self.memory.limit(directory)
            return changed

        self.acknowledgements = Acknowledgements(directory, driver, go_on)
        self.returning = Returning(directory, driver, self.intake, self.ledger)
        self.removal = Removal(directory, driver, self.acknowledgements, hooks, forget, go_on)
        handover = Handover(directory, self.ledger, safety, self.returning, self.removal, self.reconfiguration, hooks)
        notices = ClosingNotices(directory, self.intake)
        self.dispatch = Dispatch(directory, driver, handover, self.intake, notices, hooks)
        self.reconfiguration.on_switched = switched
        self.reconfiguration.check_memory, self.reconfiguration.fit_memory = self.memory.check, fit

    def start(self) -> None:
        """Call the peers, watch over them, and begin to tick."""
        self.peers.start()
        detect, loop = FailureDetector(self.peers, self.driver).look, asyncio.get_running_loop()
        for what, every_s, call in (("clock", LOOK_EVERY_S, self._tick), ("failure detector", DETECT_EVERY_S, detect)):
            self._tasks.append(loop.create_task(repeat(every_s, call)))
            tell_if_it_fails(self._tasks[-1], f"the {what} of {self.name!r}", self.hooks.on_failed)

    def _tick(self) -> None:
        """Write the history even when nothing happens, and try again what had to wait."""
        self.history.tick()
        self.reconfiguration.tick()
        self.look_after_backlog()
        self.security.look()
        self.hooks.on_room()
        self.hooks.on_tick()

    def look_after_backlog(self) -> None:
        """Try again what could not be spilled, and let go of what is not needed any more; to be called now and then."""
        self.intake.stalls.look()
        self.intake.stalls.tell()
        try:
            self.dispatch.look_for_room()
            self.backlog.try_frames_again()
            self.returning.go_on()
        except StorageError as error:
            self.driver.actions.failed(error)
        if self.backlog.release_overdue():
            self.driver.commits.compact_soon()

    async def close(self) -> None:
        """Hang up, make durable what was taken, and stop."""
        for task in self._tasks:
            task.cancel()
        await self.peers.close()
        await self.driver.close()
        self.history.close()

    # Seen from outside.

    @property
    def topology(self) -> Topology:
        """The topology in force: what is stored, not what was given."""
        return self.reconfiguration.topology

    def safe_of(self, client: str) -> int:
        """Return up to which position the messages of a client are safe."""
        return self.directory.state.mailboxes[client].position - self.dispatch.handover.safety.unsafe_of(client)

    @property
    def why_unknown(self) -> str:
        """Why nobody is told what is safe, if so."""
        return why_unknown(self.topology, self.name)
