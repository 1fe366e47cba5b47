"""A server's part in a change of its fabric: answers whoever leads it, switches, and goes back if nobody leads any more.

What a step means is in ``core.reconfig.protocol``; who asks for which is in ``core.reconfig.coordinator``;
docs/how-to/reconfiguration.md tells the whole story.

Rules:

* A question is answered when all that the server has done so far is durable: what it says then holds after a crash.
* On a switch the server hangs up first. Connections of the new version are made when the switch is durable. So no packet of one
  version can meet a member of the other.
* A server that holds and is not led for ``HOLD_LEASE_S`` goes back to normal; to be asked by somebody who does not lead its
  attempt is nothing. One that is prepared does not go back: its status says so, and it is told by a peer that has
  switched, or by the command when it is started again.
* A fenced server takes no part in a change: what it has may be old. It is asked where it stands, and may go back.
* A server that hears that it was declared lost has left: it takes nothing more, and says so to its clients when they send.
* The limits of the next version must fit the memory of the server (``node.budget``), or it does not hold, and says what it needs.
  They hold from then on, so that the switch finds them; a server that goes back has its former ones again.
* The store says which topology is in force, not the file: that one counts on the first start, and for addresses.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from thence.core.reconfig.flush import Inventory
from thence.core.reconfig.protocol import BarLost, Expel, Flush, Follow, Hold, Prepare, Resume, Standing, Switch, ViewInput
from thence.core.topology.model import Topology
from thence.core.topology.toml import parse, write
from thence.core.wire.messages import Envelope, MessageId, weight_of
from thence.errors import Busy, ConfigError, StorageError, UsageError
from thence.net.protocol import ViewAnswer, ViewRequest
from thence.node.backlog import Backlog
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.history import TraceHistory
from thence.node.hooks import NodeHooks
from thence.node.peers.connections import Peers
from thence.node.peers.epochs import sent_to
from thence.runtime.event_loop import ignore
from thence.storage import journal
from thence.storage.store import MemoryStore, Store
from thence.trace.events import LEAVE
from thence.words import counted

HOLD_LEASE_S: Final = 30.0
"""How long a server holds without hearing from whoever leads the change."""

FLUSH_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of copies go into one answer or request, unless it is a single one."""

MAX_GREETINGS_BYTES: Final = 48 * 1024 * 1024
"""How many bytes servers that come in may be told of our clients: they go out with the switch, in one entry of the log."""

SHOWN_CLIENTS: Final = 5
"""How many clients are named where a server cannot be what it is to be because of them."""

log = logging.getLogger("thence.evolution")


class Reconfiguration:
    """The part of one server in changes of its fabric, and the topology that it works by."""

    def __init__(
        self, topology: Topology, directory: Directory, driver: Driver, backlog: Backlog, history: TraceHistory, hooks: NodeHooks
    ) -> None:
        """Take part for the server of ``directory``, which begins with ``topology``; ``begin`` says who its peers are."""
        self.topology = topology
        """The one in force: what is stored, not what was given."""
        self.on_switched: Callable[[], None] = ignore
        """Called when another topology is in force."""
        self.check_memory: Callable[[Topology], object] = _ignore_topology
        """Refuses a topology as ``ConfigError`` for which there is too little memory."""
        self.fit_memory: Callable[[Topology], bool] = _ignore_topology
        """Shares out the memory for a topology, and says whether that changes a limit."""
        self._server = directory.server
        self._directory = directory
        self._driver = driver
        self._member = driver.member
        self._backlog = backlog
        self._history = history
        self._hooks = hooks
        self._peers: Peers
        self._held: Callable[[], int] = int
        self._heard_at = time.monotonic()
        self._held_since: float | None = None
        self._paused_s = 0.0
        self._phase = "normal"
        self._refused = ""
        self.pending = False
        """Whether a step is being made of which the node has not been told."""

    def begin(self, peers: Peers, held: Callable[[], int]) -> None:
        """Everything is brought back; ``held`` returns how many deliveries wait for a mailbox."""
        self._peers, self._held = peers, held

    # Being led.

    def request(self, request: ViewRequest, answer: Callable[[ViewAnswer], None]) -> None:
        """Do what was asked for, if that may be; answer when it is durable."""
        if request.action != "ask" or request.attempt == self._member.view.state.attempt:  # Whoever only looks leads nobody.
            self._heard_at = time.monotonic()
        refused = ""
        report: Inventory | None = None
        copies: tuple[Envelope, ...] = ()
        try:
            self._check_fence(request.action)
            if request.action == "report":
                report = self._member.survivor.report(self._backlog.messages())
            elif request.action == "give":
                copies = self._give(request)
            elif request.action != "ask":
                self._step(self._input(request))
        except (UsageError, StorageError) as error:  # What waits for peers may be in a file that cannot be read.
            refused = str(error)
            if refused != self._refused:  # Whoever leads asks again and again.
                log.warning("refused to %s: %s", request.action, error)
        self._refused = refused if request.action != "ask" else self._refused
        answered = ViewAnswer(
            self._server,
            self.standing(),
            refused,
            write(self.topology) if request.whole else "",
            self._member.view.state.previous if request.whole else "",
            round(1e3 * self._pause_s(), 3),
            report,
            copies,
        )
        self._driver.when_durable(lambda: answer(answered))

    def _check_fence(self, action: str) -> None:
        if action not in {"ask", "resume"} and self._peers.epochs.fenced:
            raise UsageError(self._peers.epochs.fenced)

    def _give(self, request: ViewRequest) -> tuple[Envelope, ...]:
        """Return the first of the copies that were asked for, as many as fit into an answer."""
        names = tuple(MessageId(*name) for name in request.names)
        copies = self._member.survivor.give(names, self._backlog.messages())
        size = 0
        for at, envelope in enumerate(copies):
            size += weight_of(envelope)
            if size > FLUSH_BYTES and at:
                return copies[:at]
        return copies

    def _input(self, request: ViewRequest) -> ViewInput:
        if request.action == "hold":
            return Hold(
                request.attempt,
                parse(request.text, "the topology to follow", force=True),
                request.lost,
                request.limited,
                request.absent,
            )
        if request.action == "flush":
            return Flush(request.attempt, request.list_id, request.at, request.last, request.envelopes)
        if request.action == "prepare":
            return Prepare(request.attempt)
        if request.action == "follow":
            topology = parse(request.text, "the topology of others")
            return Follow(topology, request.peers, self._greetings(topology))
        if request.action == "bar":
            return BarLost(request.attempt, request.lost)
        if request.action == "switch":
            return Switch(request.attempt, without=request.lost)
        return Resume(request.attempt, request.dead)

    def standing(self) -> Standing:
        """Say where the server stands: it is idle only when its clients have what was delivered, or their mailboxes have."""
        standing, held = self._member.reconfigurer.standing(), self._held()
        met = tuple((name, store) for name, store in self._peers.epochs.met.items() if name != self._server)
        standing = msgspec.structs.replace(
            standing, forgetful=_forgetful(self._peers), store=self._peers.epochs.met[self._server], met=met
        )
        if standing.idle and held:
            full = self._directory.mailboxes.full
            return msgspec.structs.replace(
                standing, idle=False, trouble=f"{counted(held, 'delivery', 'wait')}: the mailbox of {full!r} is full"
            )
        return standing

    def other_version(self, peer: str, version: int, fingerprint: str, text: str = "") -> None:
        """A peer has another version: if we are prepared for exactly that one, the decision has been made.

        If we had no part in it, it is the decision of others, and we follow if it does not concern us.
        """
        view, following = self._member.view, self._member.view.next
        if text and view.state.phase in ("normal", "holding") and peer in self.topology.homes and not self._driver.full:
            self._follow(peer, fingerprint, text)
        if following is None or peer not in self.topology.homes or peer not in following.homes:
            return
        switch = view.heard_from(peer, fingerprint)
        if switch is not None and following.version == version and not self._driver.full:
            log.info("%s has switched to version %d, so we do too", peer, version)
            self._step(switch)

    def _follow(self, peer: str, fingerprint: str, text: str) -> None:
        try:
            topology = parse(text, f"the topology of {peer}")
            if topology.fingerprint == fingerprint:
                self._step(Follow(topology, (peer,), self._greetings(topology)))
        except (ConfigError, UsageError) as error:
            if str(error) != self._refused:
                log.warning("not going on with %s to its version: %s", peer, error)
            self._refused = str(error)

    def gone(self, peer: str) -> int:
        """Return with which version a server was declared lost; 0: it was not."""
        return self._member.view.state.gone.get(peer, 0)

    def expelled(self, peer: str, version: int) -> None:
        """A peer says that we were declared lost."""
        behind = self._member.view.left_behind(version, self.topology)
        if not self.left and behind and not self._driver.full:
            log.critical(
                "%s says that %s was declared lost: %s has gone on without it since version %d. It takes nothing more; what it "
                "has that others lack is lost. Start it as a new server, under a new name, with an empty store",
                peer,
                self._server,
                self.topology.name,
                version,
            )
            self._step(Expel(version))

    def tick(self) -> None:
        """Go back to normal if nobody leads any more."""
        state = self._member.view.state
        if state.phase == "holding" and time.monotonic() - self._heard_at > HOLD_LEASE_S and not self._driver.full:
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
            "gone": dict(self._member.view.state.gone),
            "waiting_submissions": standing.waiting,
            "on_the_way": standing.trouble,
            "led_seconds_ago": round(time.monotonic() - self._heard_at, 3) if standing.phase != "normal" else None,
            "paused_ms": round(1e3 * self._pause_s(), 3),
        }

    # Steps.

    def _step(self, change: ViewInput) -> None:
        view = self._member.view
        if self._driver.full:
            raise Busy(f"{self._server!r} takes nothing now: {self._driver.full}")
        if isinstance(change, Hold):
            self._check_memory(change.topology)
            self._check_greetings(change.topology)
            self._check_clients(change.topology)
        elif isinstance(change, Prepare) and view.next is not None:
            self._check_clients(view.next)  # One more may have come in, who was announced before we held.
        elif isinstance(change, Switch):
            if view.may_switch(change):
                self._peers.cut()
            change = Switch(change.attempt, self._greetings(view.next), change.without)
        elif isinstance(change, Expel):
            self._peers.cut()
        elif isinstance(change, Follow):
            if self._member.view.follow(change, self.topology, self._server) is None:
                return
            self._peers.cut()
        self.pending = True
        try:
            self._driver.step(change)
            if self.pending:
                self.followed(self._driver.store.appended, self._driver.clock.now())
        finally:
            self.pending = False
        if isinstance(change, Switch | Expel | Follow):
            entered = None if self.left else self.topology
            self._driver.when_durable(lambda: self._enter(entered))
        self._hooks.on_room()

    def _enter(self, topology: Topology | None) -> None:
        self._peers.enter(topology)
        if topology is not None:  # In places that go on we have come further than nothing.
            self._peers.reach.start(sent_to(self._member, self._peers.peers))

    def _greetings(self, following: Topology | None) -> tuple[bytes, ...]:
        """Return what servers that come in must be told of ours."""
        if following is None or all(name in self.topology.homes for name in following.processes):
            return ()
        return tuple(self._directory.greetings())

    def _check_memory(self, following: Topology) -> None:
        """Refuse to hold for a place in the fabric that could fill more than the memory of the server."""
        try:
            self.check_memory(following)
        except ConfigError as error:
            what = f"{self._server!r} has too little memory for version {following.version} of {following.name!r}"
            raise UsageError(f"{what}: {error}; restart it with that first") from error

    def _check_greetings(self, following: Topology) -> None:
        """Refuse to hold for a switch that could not be stored: nobody could go back from there."""
        size = sum(map(len, self._greetings(following)))
        if size > MAX_GREETINGS_BYTES:
            raise UsageError(
                f"{self._server!r} would have to tell new servers of its clients in {size} bytes; MAX_GREETINGS_BYTES is "
                f"{MAX_GREETINGS_BYTES}"
            )

    def _check_clients(self, following: Topology) -> None:
        """Refuse to become a replica, which sends nothing itself, as long as somebody here may want to."""
        clients = [name for name in self._directory.state.mailboxes if name != self._server]
        if clients and following.only_carries(self._server):
            more = f" and {len(clients) - SHOWN_CLIENTS} more" if len(clients) > SHOWN_CLIENTS else ""
            raise UsageError(
                f"{self._server!r} has clients or agents: {', '.join(clients[:SHOWN_CLIENTS])}{more}. In version "
                f"{following.version} it is a replica, which carries messages of others and has none: let them leave first"
            )

    def followed(self, sequence: int, at: int) -> None:
        """The member has made a step of a change, now or when it was brought back: the directory and the history go with it."""
        view = self._member.view
        before, self._phase = self._phase, view.state.phase
        self.pending = False
        if view.holding:
            if self._phase == "flushed" and before != "flushed":
                owed, lost = len(view.state.owed), ", ".join(view.state.lost)
                log.warning("without %s: %d messages that %s lacked were handed over", lost, owed, self._server)
            self._hold()
            return
        if before != "normal":
            self._paused_s = time.monotonic() - self._held_since if self._held_since is not None else 0.0
        self._held_since = None
        self._directory.routes.hold(())
        self._fit(self._member.topology)
        if self._phase == "left" and before != "left":
            log.warning("%s has left %s, which had version %d", self._server, self.topology.name, self.topology.version)
            self._history.note(sequence, LEAVE, at)
        elif self._member.topology is not self.topology:
            self.topology = self._member.topology
            self._directory.change(self.topology.processes)
            self._history.changed(self.topology)
            self.on_switched()
            log.info("%s switched to version %d, %s", self._server, self.topology.version, self.topology.fingerprint)

    def _hold(self) -> None:
        following = self._member.view.next
        if self._held_since is None and self._member.view.state.paused:
            self._held_since = time.monotonic()
        if following is not None:
            self._fit(following)
        staying = following.homes if following is not None else {}
        self._directory.routes.hold([name for name in self.topology.processes if name not in staying])

    def _fit(self, topology: Topology) -> None:
        if self.fit_memory(topology):
            log.warning(
                "the limits of %s follow version %d of its topology: thence status shows them", self._server, topology.version
            )

    def _pause_s(self) -> float:
        return time.monotonic() - self._held_since if self._held_since is not None else self._paused_s

    # Starting.

    def choose(self, given: Topology) -> None:
        """Go on with the topology that is stored, with the addresses that were given if these are of the same."""
        stored = self.topology = self._member.topology
        check_version(given, stored, self._server)
        if given.version < stored.version:
            log.warning("the file has version %d; the store is at version %d, which counts", given.version, stored.version)
        else:
            stored.addresses = {**stored.addresses, **given.addresses}
        if self._member.view.holding:
            self._hold()

    @property
    def left(self) -> bool:
        """Whether the server is in the fabric no more."""
        return self._member.view.state.phase == "left"


def _forgetful(peers: Peers) -> tuple[str, ...]:
    """Return who runs on an old copy of its store: peers that do, and we if we may."""
    found = {name if peer.behind == "peer" else peers.me for name, peer in peers.peers.items() if peer.behind != "nobody"}
    return tuple(sorted(found | {peers.me} if peers.epochs.fenced else found))


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


def _ignore_topology(_: Topology) -> bool:
    return False
