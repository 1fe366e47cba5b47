"""A server's part in a change of its fabric: answers whoever leads it, switches, and goes back if nobody leads any more.

What a step means is in ``core.views``; who asks for which is in ``core.changeover``; docs/evolution.md tells the whole story.

Rules:

* A question is answered when all that the server has done so far is durable: what it says then holds after a crash.
* On a switch the server hangs up first. Connections of the new version are made when the switch is durable. So no packet of one
  version can meet a member of the other.
* A server that holds and is not led for ``HOLD_LEASE_S`` goes back to normal; to be asked by somebody who does not lead its
  attempt is nothing. One that is prepared does not go back: its status says so, and it is told by a neighbour that has
  switched, or by the command when it is started again.
* A server that hears that it was declared lost has left: it takes nothing more, and says so to its clients when they send.
* The store says which topology is in force, not the file: that one counts on the first start, and for addresses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thence.core.flushing import Inventory
from thence.core.messages import Envelope, MessageId, weight_of
from thence.core.topology import Topology
from thence.core.topology_text import parse, write
from thence.core.views import Bar, Expel, Flush, Hold, Prepare, Resume, Standing, Switch, ViewInput
from thence.errors import Busy, ConfigError, StorageError, UsageError
from thence.runtime import journal
from thence.runtime.protocol import ViewAnswer, ViewRequest
from thence.runtime.store import MemoryStore, Store
from thence.trace.events import LEAVE

if TYPE_CHECKING:
    from thence.runtime.node import Node

HOLD_LEASE_S: Final = 30.0
"""How long a server holds without hearing from whoever leads the change."""

FLUSH_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of copies go into one answer or request, unless it is a single one."""

MAX_GREETINGS_BYTES: Final = 48 * 1024 * 1024
"""How many bytes servers that come in may be told of our clients: they go out with the switch, in one entry of the log."""

SHOWN_CLIENTS: Final = 5
"""How many clients are named where a server cannot be what it is to be because of them."""

log = logging.getLogger("thence.evolution")


class Evolution:
    """See the module's text."""

    def __init__(self, node: Node) -> None:
        """Take part for ``node``."""
        self._node = node
        self._heard_at = time.monotonic()
        self._held_since: float | None = None
        self._paused_s = 0.0
        self._phase = "normal"
        self._refused = ""
        self.pending = False
        """Whether a step is being made of which the node has not been told."""

    # Being led.

    def request(self, request: ViewRequest, answer: Callable[[ViewAnswer], None]) -> None:
        """Do what was asked for, if that may be; answer when it is durable."""
        if request.action != "ask" or request.attempt == self._node.member.view.state.attempt:  # Whoever only looks leads nobody.
            self._heard_at = time.monotonic()
        refused = ""
        report: Inventory | None = None
        copies: tuple[Envelope, ...] = ()
        node = self._node
        try:
            if request.action == "report":
                report = node.member.report(node.backlog.messages())
            elif request.action == "give":
                copies = self._give(request)
            elif request.action != "ask":
                self._step(self._input(request))
        except (UsageError, StorageError) as error:  # What waits for neighbours may be in a file that cannot be read.
            refused = str(error)
            if refused != self._refused:  # Whoever leads asks again and again.
                log.warning("refused to %s: %s", request.action, error)
        self._refused = refused if request.action != "ask" else self._refused
        answered = ViewAnswer(
            node.name,
            self.standing(),
            refused,
            write(node.topology) if request.whole else "",
            node.member.view.state.previous if request.whole else "",
            round(1e3 * self._pause_s(), 3),
            report,
            copies,
        )
        node.driver.when_durable(lambda: answer(answered))

    def _give(self, request: ViewRequest) -> tuple[Envelope, ...]:
        """Return the first of the copies that were asked for, as many as fit into an answer."""
        names = tuple(MessageId(*name) for name in request.names)
        copies = self._node.member.give(names, self._node.backlog.messages())
        size = 0
        for at, envelope in enumerate(copies):
            size += weight_of(envelope)
            if size > FLUSH_BYTES and at:
                return copies[:at]
        return copies

    def _input(self, request: ViewRequest) -> ViewInput:
        if request.action == "hold":
            return Hold(request.attempt, parse(request.text, "the topology to follow", force=True), request.lost)
        if request.action == "flush":
            return Flush(request.attempt, request.list_id, request.at, request.last, request.envelopes)
        if request.action == "prepare":
            return Prepare(request.attempt)
        if request.action == "bar":
            return Bar(request.attempt, request.lost)
        if request.action == "switch":
            return Switch(request.attempt, without=request.lost)
        return Resume(request.attempt, request.dead)

    def standing(self) -> Standing:
        """Say where the server stands: it is idle only when its clients have what was delivered, or their boxes have."""
        standing, held = self._node.member.standing(), self._node.held
        met = tuple((name, store) for name, store in self._node.met.items() if name != self._node.name)
        forgetful = tuple(name for name, peer in self._node.peers.neighbours.items() if peer.forgot)
        standing = msgspec.structs.replace(standing, forgetful=forgetful, store=self._node.met[self._node.name], met=met)
        if standing.idle and held:
            full = self._node.office.full
            return msgspec.structs.replace(standing, idle=False, trouble=f"{held} deliveries wait: the box of {full!r} is full")
        return standing

    def told(self, peer: str, version: int, fingerprint: str) -> None:
        """A neighbour has another version: if we are prepared for exactly that one, the decision has been made."""
        view, following = self._node.member.view, self._node.member.view.next
        if following is None or peer not in self._node.topology.homes or peer not in following.homes:
            return
        switch = view.told_by(peer, fingerprint)
        if switch is not None and following.version == version and not self._node.driver.full:
            log.info("%s has switched to version %d, so we do too", peer, version)
            self._step(switch)

    def expelled(self, peer: str, version: int) -> None:
        """A neighbour says that we were declared lost."""
        behind = self._node.member.view.left_behind(version, self._node.topology)
        if not self.left and behind and not self._node.driver.full:
            log.critical(
                "%s says that %s was declared lost: %s has gone on without it since version %d. It takes nothing more; what it "
                "has that others lack is lost. Start it as a new server, under a new name, with an empty store",
                peer,
                self._node.name,
                self._node.topology.name,
                version,
            )
            self._step(Expel(version))

    def tick(self) -> None:
        """Go back to normal if nobody leads any more."""
        state = self._node.member.view.state
        if state.phase == "holding" and time.monotonic() - self._heard_at > HOLD_LEASE_S and not self._node.driver.full:
            log.warning("nobody has led the change for %g s: going back to normal", HOLD_LEASE_S)
            self._step(Resume(state.attempt))

    def status(self) -> dict[str, Any]:
        """Return how the change is, for people and programs."""
        standing = self.standing()
        return {
            "phase": standing.phase,
            "attempt": standing.attempt,
            "next_version": standing.next_version,
            "next_fingerprint": standing.next_fingerprint,
            "lost": list(standing.lost),
            "barred": list(standing.barred),
            "gone": dict(self._node.member.view.state.gone),
            "waiting_submissions": standing.waiting,
            "on_the_way": standing.trouble,
            "led_seconds_ago": round(time.monotonic() - self._heard_at, 3) if standing.phase != "normal" else None,
            "paused_ms": round(1e3 * self._pause_s(), 3),
        }

    # Steps.

    def _step(self, change: ViewInput) -> None:
        node = self._node
        view = node.member.view
        if node.driver.full:
            raise Busy(f"{node.name!r} takes nothing now: {node.driver.full}")
        if isinstance(change, Hold):
            self._check_greetings(change.topology)
            self._check_clients(change.topology)
        elif isinstance(change, Prepare) and view.next is not None:
            self._check_clients(view.next)  # One more may have come in, who was announced before we held.
        elif isinstance(change, Switch):
            if view.may_switch(change):
                node.peers.cut()
            change = Switch(change.attempt, self._greetings(view.next), change.without)
        elif isinstance(change, Expel):
            node.peers.cut()
        self.pending = True
        try:
            node.driver.step(change)
            if self.pending:
                self.followed(node.store.appended, node.clock.now())
        finally:
            self.pending = False
        if isinstance(change, Switch | Expel):
            entered = None if self.left else node.topology
            node.driver.when_durable(lambda: node.peers.enter(entered))
        node.on_room()

    def _greetings(self, following: Topology | None) -> tuple[bytes, ...]:
        """Return what servers that come in must be told of ours."""
        if following is None or all(name in self._node.topology.homes for name in following.processes):
            return ()
        return tuple(self._node.office.directory())

    def _check_greetings(self, following: Topology) -> None:
        """Refuse to hold for a switch that could not be stored: nobody could go back from there."""
        size = sum(map(len, self._greetings(following)))
        if size > MAX_GREETINGS_BYTES:
            raise UsageError(
                f"{self._node.name!r} would have to tell new servers of its clients in {size} bytes; MAX_GREETINGS_BYTES is "
                f"{MAX_GREETINGS_BYTES}"
            )

    def _check_clients(self, following: Topology) -> None:
        """Refuse to become a replica, which sends nothing itself, as long as somebody here may want to."""
        clients = [name for name in self._node.office.state.boxes if name != self._node.name]
        if clients and self._node.name in following.fellows:
            more = f" and {len(clients) - SHOWN_CLIENTS} more" if len(clients) > SHOWN_CLIENTS else ""
            raise UsageError(
                f"{self._node.name!r} has clients or agents: {', '.join(clients[:SHOWN_CLIENTS])}{more}. In version "
                f"{following.version} it is a replica, which carries messages of others and has none: let them leave first"
            )

    def followed(self, sequence: int, at: int) -> None:
        """The member has made a step of a change, now or when it was brought back: the office and the history go with it."""
        node, view = self._node, self._node.member.view
        before, self._phase = self._phase, view.state.phase
        self.pending = False
        if view.holding:
            if self._phase == "flushed" and before != "flushed":
                owed, lost = len(view.state.owed), ", ".join(view.state.lost)
                log.warning("without %s: %d messages that %s lacked were handed over", lost, owed, node.name)
            self._hold()
            return
        if self._held_since is not None:
            self._paused_s, self._held_since = time.monotonic() - self._held_since, None
        node.office.hold(())
        if self._phase == "left" and before != "left":
            log.warning("%s has left %s, which had version %d", node.name, node.topology.name, node.topology.version)
            node.history.note(sequence, LEAVE, at)
        elif node.member.topology is not node.topology:
            node.topology = node.member.topology
            node.office.change(node.topology.processes)
            node.history.changed(node.topology)
            node.patience.changed()
            node.on_safe(node.office.clients())
            log.info("%s switched to version %d, %s", node.name, node.topology.version, node.topology.fingerprint)

    def _hold(self) -> None:
        node, following = self._node, self._node.member.view.next
        if self._held_since is None:
            self._held_since = time.monotonic()
        staying = following.homes if following is not None else {}
        node.office.hold([name for name in node.topology.processes if name not in staying])

    def _pause_s(self) -> float:
        return time.monotonic() - self._held_since if self._held_since is not None else self._paused_s

    # Starting.

    def chosen(self, given: Topology) -> Topology:
        """Return the topology to go on with: what is stored, with the addresses that were given if these are of the same."""
        stored = self._node.topology = self._node.member.topology
        check_version(given, stored, self._node.name)
        if given.version < stored.version:
            log.warning("the file has version %d; the store is at version %d, which counts", given.version, stored.version)
        else:
            stored.addresses = {**stored.addresses, **given.addresses}
        if self._node.member.view.holding:
            self._hold()
        return stored

    @property
    def left(self) -> bool:
        """Whether the server is in the fabric no more."""
        return self._node.member.view.state.phase == "left"


def stored_topology(store: Store | MemoryStore) -> Topology | None:
    """Return the topology with which what is stored begins; None if nothing is, or nothing says so."""
    text = ""
    if store.snapshot is not None:
        text = journal.decode_snapshot(store.snapshot).topology
    elif store.entries:
        first = journal.decode_entry(store.entries[0])
        text = next((record.topology for record in first if isinstance(record, journal.Opened)), "")
    return parse(text, "the stored topology", force=True) if text else None


def check_version(given: Topology, stored: Topology, server: str) -> None:
    """Refuse a topology that is not the one in the store of a server, nor an older one."""
    if given.version > stored.version:
        raise ConfigError(
            f"the file has version {given.version} of {given.name!r}, and the store of {server!r} is at version "
            f"{stored.version}: start it with that one, and then use thence topology apply"
        )
    if given.version == stored.version and given.fingerprint != stored.fingerprint:
        raise ConfigError(
            f"the file has version {given.version} of {given.name!r} with fingerprint {given.fingerprint}, and the store of "
            f"{server!r} has that version with {stored.fingerprint}: a changed topology needs the next version, "
            "and thence topology apply"
        )
