"""One server without its doors: member, office, store, driver and neighbours, put together.

A server for clients (``runtime.server``) and a member inside a program (``runtime.embedded``) are both made of this.

Rules:

* On the way out: a bundle of a client is routed by the office and submitted to the member. When it is durable, its client is
  told.
* On the way in: what the member delivers goes into boxes, unless one of them is full. Then deliveries wait, the member counts
  them as not consumed, takes no more frames when there are too many, and so its neighbours, and in the end the senders, wait.
* Records and office are brought back together: the member is restored, and what follows from each record goes to the office
  again, and to the ledger of the agents. Nothing waits for room meanwhile, whatever the limits are now: a letter is in memory
  either way, and a box that is there earlier than it was the first time misses nothing that was done with it. A node that comes
  back with a full box takes no frames until there is room.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from thence.core.codec import FORMAT_VERSION
from thence.core.contract import Arrived, Connected, Consumed, Delivery, Ready, Repeated, Restored, Submit, SubmitAll
from thence.core.member import Member
from thence.core.messages import Envelope, Packet
from thence.core.progress import Progress
from thence.core.records import Changed, Owed
from thence.core.topology import Topology
from thence.core.topology_text import write
from thence.errors import Busy, FrameRefused, StorageError, ThenceError, UsageError
from thence.runtime import journal, node_options
from thence.runtime.backlog import Backlog
from thence.runtime.backup import read_restored
from thence.runtime.boxes import Bundle, MailboxMet
from thence.runtime.driver import Clock, Driver
from thence.runtime.evolution import Evolution, stored_topology
from thence.runtime.handing import Handing
from thence.runtime.history import History
from thence.runtime.homes import Homes
from thence.runtime.journal import Acknowledged, EpochStored, Fenced, Met, Opened, Removed, Started, Written
from thence.runtime.ledger import Buried, Ledger, Reacted
from thence.runtime.meetings import Meetings
from thence.runtime.node_options import NodeOptions
from thence.runtime.office import Body, Handed, Left, read_body
from thence.runtime.patience import Patience
from thence.runtime.peers import Peers
from thence.runtime.refusals import note_refusal
from thence.runtime.rejections import Rejected
from thence.runtime.removal import Removal
from thence.runtime.returning import Returned, Returning
from thence.runtime.safety import BoxSafety, why_untold
from thence.runtime.security import Security
from thence.runtime.spans import ServerSpans
from thence.runtime.stalls import Stalls
from thence.runtime.watching import Watcher
from thence.trace.events import JOIN

log = logging.getLogger("thence.node")


class Node:
    """See the module's text."""

    coming_back = True
    """Whether what is in the store is being brought back; then nothing waits for room."""
    _came_back_full = False
    """Whether a box has been full since then: it may have more in it than it should."""
    _refused_some = False
    """Whether something was refused as busy since ``on_room`` was last told."""
    _held_bytes = 0
    """How many bytes of deliveries wait because a box is full."""
    _consumed = 0
    """The position of the last delivery that was handed over."""
    _handing = False
    """Whether deliveries are being put into boxes."""
    restored = 0
    """Which restoring from a copy the store comes from: for clients that were connected before it."""
    stalls: Stalls
    """For which neighbours nothing more is taken."""
    patience: Patience
    """Who waits until all have what was sent."""
    _watcher: Watcher | None = None
    spans: ServerSpans | None = None
    """What follows letters through here, if anything does."""
    letters_accepted = 0
    """How many letters of clients were, since the start."""
    letters_delivered = 0
    """How many were put into boxes; one for several clients counts for each of them."""

    def __init__(self, topology: Topology, name: str, options: NodeOptions) -> None:
        """Open the store and bring back what is in it."""
        if name not in topology.homes:
            raise UsageError(f"{name!r} is no server of {topology.name!r}; there are {', '.join(topology.processes)}")
        self.name = name
        self.options = options
        self.clock = Clock()
        self.security = Security(options.tls, options.access, insecure=options.insecure)
        self.limits, self.pools = node_options.budget_of(options, topology, name)
        self.store = node_options.open_store(options, topology, name)
        given, topology = topology, stored_topology(self.store) or topology
        self.topology = topology  # The one in force: what is stored, not what was given.
        self.backlog = Backlog(self.store, node_options.limits_of(options))
        self.office = node_options.open_office(options, topology, name, self.backlog.spill, self.limits)
        self.ledger = Ledger(self.limits.states_bytes)
        self.removal = Removal(self)
        self.member = Member(name, topology, node_options.member_options(options, self.limits))
        self.safety = BoxSafety()
        self.stalls, self.patience = Stalls(self.member), Patience(self.member)
        self._durable = options.data is not None
        self.history = History(options.trace, name, topology)
        self.on_answered: Callable[[str, int, Rejected | None], None] = _ignore
        """Told which client, up to which number its letters are accepted or rejected, and if so which."""
        self.on_letters: Callable[[Collection[str]], None] = _ignore
        """Told which clients have new letters."""
        self.on_bundle: Callable[[Bundle], bool] | None = None
        """Offered letters for the program itself, where it needs no box that would outlast it; says whether it has taken them."""
        self.on_notice: Callable[[Handed], None] = _ignore
        self.on_room: Callable[[], None] = _ignore
        """Told when something that was refused as busy may be tried again."""
        self.on_failed: Callable[[Exception], None] = _ignore
        self.refusals: dict[str, int] = {}
        self.on_safe: Callable[[Collection[str]], None] = _ignore
        """Told of which clients more letters are safe, or that nobody finds out any more."""
        self._held: deque[Delivery] = deque()
        self._handing_over = Handing(self)
        self.meetings = Meetings(self)
        """In which epoch it is with each neighbour, and whether it may go on at all."""
        self._submitted: deque[tuple[str, int, int] | None] = deque()
        """Of each message that is submitted and not accepted: client, number of its last letter, how many; None: a notice."""
        self._accepted: dict[str, int] = {}
        """The number of the last letter of each client that was accepted or rejected."""
        self._acknowledging: dict[str, int] = {}
        """What clients have acknowledged and is not durable yet."""
        self.driver = Driver(self.member, self.store, self, self.clock)
        self.backlog.keep_frames_of(self.member, self.driver)
        self.evolution = Evolution(self)
        self._go_on_from_store(given)
        self.peers = self._meet_peers()

    # Starting.

    def _meet_peers(self) -> Peers:
        peers = Peers(self.topology, self.name, self.meetings.met[self.name], self, self.security)
        peers.pool = self.pools.peers
        if self.evolution.left:
            peers.enter(None)
        self.meetings.begin(peers)
        return peers

    def start(self) -> None:
        """Call the neighbours, and watch over them."""
        self.peers.start()
        self._watcher = Watcher(self)
        self._watcher.start()

    def _go_on_from_store(self, given: Topology) -> None:
        self.homes, self.returning = Homes(self.name, self.office, self.driver.write), Returning(self)
        try:
            self._bring_back()
            self.topology = self.evolution.chosen(given)
            if self.name not in self.meetings.met:
                self.history.check_new()
        except ThenceError:
            self.store.close()
            raise
        self._begin(first=self.name not in self.meetings.met)

    def _bring_back(self) -> None:
        written, entries = self.store.take_recovered()
        restored = Ready()
        acknowledging, removing = dict[str, int](), dict[str, int]()
        now = self.clock.now()
        if written is None:
            self.member.step(Restored(None, (), 0), now)
            self.backlog.restore([], [])
        else:
            snapshot = journal.decode_snapshot(written)
            self.office.restore(snapshot.office)
            self.ledger.restore(snapshot.agents)
            self.safety.restore(snapshot.safety)
            self.returning.restore(snapshot.returning)
            self.meetings.restore(snapshot.met, snapshot.claims, snapshot.fenced)
            self._consumed = snapshot.consumed
            acknowledging = snapshot.acknowledging
            removing = snapshot.removing
            self.history.resume(snapshot.events)
            restored = self.member.step(Restored(snapshot.member, (), snapshot.consumed), now)
            self.backlog.restore(self.office.spilled() + self.returning.spilled(), snapshot.spilled_frames)
        self.deliver(restored.deliver)
        self.safe(restored.safe)
        for client, upto in acknowledging.items():
            self._acknowledged(client, upto)
        self.removal.restore(removing)
        for agent, since, done in list(self.ledger.done()):
            self.reacted(agent, since, done)
        for entry in entries:
            for record in journal.decode_entry(entry):
                self._again(record, now)
        self._accepted = {name: box.sent for name, box in self.office.state.boxes.items()}
        self.history.release(self.store.durable)
        self.coming_back = False
        self.office.look_for_room()
        self._came_back_full = bool(self.office.full)

    def _again(self, record: Written, now: int) -> None:
        """Let a record have its consequences once more."""
        if isinstance(record, Acknowledged):
            self._acknowledged(record.client, record.upto)
        elif isinstance(record, Rejected | MailboxMet):
            self.homes.again(record)
        elif isinstance(record, Reacted):
            self.ledger.reacted(record)
            self.reacted(record.agent, record.since, record.upto)
        elif isinstance(record, Returned):
            self.returning.again(record)
        elif isinstance(record, Buried):
            self.ledger.buried(record)
        elif isinstance(record, Removed):
            self.removal.removed(record.client, record.since)
        elif isinstance(record, Met | EpochStored | Fenced):
            self.meetings.again(record)
        elif isinstance(record, Started):
            self.meetings.started()
            self.history.started(0, record.at)
            self.homes.started()
        elif isinstance(record, Opened):
            self._note_opened(0, record.at or now)
        else:
            self._repeat(record, now)

    def _repeat(self, record: Any, now: int) -> None:
        at = self.history.time_of(record) or now
        ready = self.member.step(Repeated(record), now)
        for envelope in ready.accepted:
            self._note_sent(envelope)
        if isinstance(record, Changed | Owed):
            self.evolution.followed(0, at)
        self.history.record(0, ready.sent, ready.deliver, at)
        self.deliver(ready.deliver)
        self.safe(ready.safe)
        self.backlog.write_frames()

    def _begin(self, *, first: bool) -> None:
        now = self.clock.now()
        self.restored = 0 if self.options.data is None else read_restored(self.options.data)
        self.letters_delivered = self.member.forwarded = 0  # What was brought back happened long ago.
        if first:
            self.meetings.met[self.name] = os.urandom(8).hex()
            self.driver.write([Opened(write(self.topology), now), Met(self.name, self.meetings.met[self.name])])
            self._note_opened(self.store.appended, now)
            self.store.commit()  # Before any neighbour hears of it: one that dies now must not come back as somebody else.
        else:
            self.driver.write([Started(now)])
            self.homes.started()
            self.meetings.started()
            self.history.started(self.store.appended, now)

    def _note_opened(self, sequence: int, now: int) -> None:
        if self.topology.version > 1:
            self.history.note(sequence, JOIN, now)

    # Clients.

    def submit(self, bundle: Bundle) -> bool:
        """Send letters of a client on. Return whether they will be accepted later; if not, they are for nobody.

        ``Busy`` means: later. Any other ``UsageError`` means: never.
        """
        servers = self.office.route(bundle)
        if servers == ():
            return False
        self._submit(bundle, servers)
        return True

    def reject(self, rejected: Rejected) -> None:
        """Never send these letters on. Their client is told when that is durable, so that no crash makes them accepted ones."""
        self._check_takes()
        self.office.reject(rejected)
        self.driver.write([rejected], lambda: self._answered(rejected.client, rejected.last, rejected))

    def _answered(self, client: str, upto: int, rejected: Rejected | None) -> None:
        self._accepted[client] = upto
        self.on_answered(client, upto, rejected)

    def announce(self, notice: Body) -> None:
        """Tell all servers something about a client; ``UsageError`` if there are too many already, or as for letters."""
        with self.office.announcing(notice):
            self._submit(notice, None)

    @property
    def full(self) -> str:
        """Why nothing is taken now, if so, by the store or the trace."""
        full = self.driver.full if self._durable or self.driver.stalled else ""
        return full or self.history.full

    def _check_takes(self, body: Body | None = None) -> None:
        if self.meetings.fenced:
            raise UsageError(self.meetings.fenced)
        # What makes room needs none in a mailbox.
        full = self.full or (self.office.full and not isinstance(body, Left) and self.office.why_full)
        if full:
            self._refused_some = True
            raise Busy(f"{self.name!r} takes nothing now: {full}")

    def _submit(self, body: Body, servers: tuple[str, ...] | None) -> None:
        self._check_takes(body)
        notice = not isinstance(body, Bundle)
        self.stalls.check(servers, notice=notice)  # Before anything is made of it: it may be large, and is tried again.
        written = self.office.write(body)
        # Noted before the step, from which handlers may be called that send more.
        told, before = None, 0
        if isinstance(body, Bundle):
            told = (body.sender, body.first + body.count - 1, body.count)
            before = self.office.sent(told[0], told[1])
            if self.spans is not None:
                self.spans.accepting(body)
        self._submitted.append(told)
        try:
            self.driver.step(Submit(servers, written, notice))
        except UsageError:
            self._refused_some = True
            self._submitted.pop()
            if told is not None:
                self.office.unsend(told[0], before)
                if self.spans is not None:
                    self.spans.accepted(told[0], told[1])  # They come again, with another span.
            raise

    def _tell_of_room(self) -> None:
        """Something has changed: what was refused may be tried again."""
        if self._refused_some:
            self._refused_some = False
            self.on_room()

    def acknowledge(self, client: str, upto: int, then: Callable[[], None] | None = None) -> None:
        """A client has done with its letters up to a position; ``then``: when that is durable. Only then its box has room."""
        self._acknowledging[client] = upto
        self.driver.write([Acknowledged(client, upto)], lambda: self._acknowledged(client, upto, then))

    def acknowledged_of(self, client: str) -> int:
        """Return up to which position a client has done with its letters, durable or not."""
        return max(self.office.state.boxes[client].acknowledged, self._acknowledging.get(client, 0))

    def _acknowledged(self, client: str, upto: int, then: Callable[[], None] | None = None) -> None:
        if self._acknowledging.get(client) == upto:
            del self._acknowledging[client]
        was_full = self.office.full
        self.office.acknowledge(client, upto)
        (then or _ignore)()
        if was_full and not self.office.full:
            self.go_on_with_room()

    def go_on_with_room(self) -> None:
        """Go on with what waited for room in a mailbox."""
        self._came_back_full = False
        if not self.coming_back:
            self.deliver(())
            self._tell_of_room()

    def look_after_backlog(self) -> None:
        """Try again what could not be spilled, and let go of what is not needed any more; to be called now and then."""
        self.stalls.look()
        self.stalls.tell()
        try:
            self._look_for_room()
            self.backlog.try_frames_again()
            self.returning.go_on()
        except StorageError as error:
            self.failed(error)
        if self.backlog.release_overdue():
            self.driver.compact_soon()

    def _look_for_room(self) -> None:
        if self.office.full:
            self.office.look_for_room()
            if not self.office.full:
                self.go_on_with_room()

    # Agents.

    def write_together(self, submits: list[Submit], record: Written, then: Callable[[], None] | None) -> None:
        """Submit messages and store a record in one entry: all of it follows, or nothing."""
        if not submits:
            self.driver.write([record], then)
            return
        self._submitted.extend([None] * len(submits))
        try:
            self.driver.step(SubmitAll(tuple(submits)), (record,), then)
        except UsageError:
            for _ in submits:
                self._submitted.pop()
            raise

    def reacted(self, agent: str, since: int, upto: int) -> None:
        """An agent has done with its letters up to a position, unless it is another one of that name by now."""
        box = self.office.state.boxes.get(agent)
        if box is not None and box.since == since:
            self._acknowledged(agent, upto)

    # What the driver asks for.

    @property
    def records(self) -> bool:
        """Whether a history is written."""
        return self.history.active

    def stepped(self, sequence: int, ready: Ready) -> None:
        """Note what will have happened once the entry with this number is durable."""
        if self.member.topology is not self.topology or self.evolution.pending:
            self.evolution.followed(sequence, self.driver.stepped_at)
        if ready.sent or ready.deliver:
            self.history.record(sequence, ready.sent, ready.deliver, self.driver.stepped_at)

    def transmit(self, peer: str, packet: Packet[Any]) -> None:
        """Send a packet."""
        if self.spans is not None:
            self.spans.transmitting(peer, packet)
        self.peers.send(peer, packet)

    def accepted(self, envelope: Envelope) -> None:
        """A message of ours is durable: tell its client."""
        told = self._submitted.popleft()
        if told is not None:
            client, upto, letters = told
            self.letters_accepted += letters
            if self.spans is not None:
                self.spans.accepted(client, upto)
            self._answered(client, upto, None)

    def stable(self, upto: int) -> None:
        """All have our messages up to this number."""
        self.patience.heard(upto)

    def safe(self, upto: int) -> None:
        """All deliveries up to this position are safe."""
        self.on_safe(self.safety.safe(upto))

    def forget_client(self, client: str) -> None:
        """A client has lost its name: whoever gets it next begins with nothing."""
        self._accepted.pop(client, None)
        self.ledger.forget(client)
        self.safety.forget(client)

    def safe_of(self, client: str) -> int:
        """Return up to which position the letters of a client are safe."""
        return self.office.state.boxes[client].position - self.safety.unsafe_of(client)

    @property
    def why_untold(self) -> str:
        """Why nobody is told what is safe, if so."""
        return why_untold(self.topology, self.name)

    def accepted_of(self, client: str) -> int:
        """Return up to which number the letters of a client are accepted or rejected."""
        return self._accepted.get(client, 0)

    def refused(self, refusal: FrameRefused) -> None:
        """Say which frames were not taken, but not for ever."""
        note_refusal(self.refusals, refusal)

    def stored(self, durable: int) -> None:
        """All up to this entry is durable: it may be told."""
        self.history.release(durable)
        self._tell_of_room()
        if self.backlog.release_due():
            self.driver.compact_soon()

    def waiting_bytes(self) -> int:
        """Return how much waits for neighbours and in boxes, as far as it is in memory."""
        return self.member.queued_bytes + sum(box.bytes - box.spilled_bytes for box in self.office.state.boxes.values())

    def snapshot(self) -> bytes:
        """Return everything at this moment."""
        spilled_frames = self.backlog.snapshot_begun()
        saved = journal.Snapshot(
            FORMAT_VERSION,
            self.member.snapshot(),
            self.office.snapshot(),
            self._consumed,
            self.history.events,
            self.meetings.met,
            self._acknowledging,
            self.ledger.snapshot(),
            write(self.topology),
            spilled_frames,
            self.safety.snapshot(),
            self.removal.under_way,
            self.meetings.claims,
            self.meetings.fenced,
            self.returning.snapshot(),
        )
        return journal.encode_snapshot(saved)

    async def before_compaction(self) -> None:
        """What the log loses must be in the history, and what boxes spilled must be durable."""
        self.history.flush()
        await self.backlog.make_durable()

    def compacted(self) -> None:
        """Nobody needs what only earlier snapshots did."""
        self.backlog.snapshot_durable()
        self._look_for_room()

    def failed(self, error: Exception) -> None:
        """The store cannot go on."""
        log.critical("the store has failed: %s", error)
        self.on_failed(error)

    # What the neighbours cause.

    def progress(self, peer: str) -> dict[str, Progress]:
        """Return how far we are with a neighbour."""
        return self.member.progress(peer)

    @property
    def met(self) -> dict[str, str]:
        """On which store each runs whom we have met, ourselves among them."""
        return self.meetings.met

    def connected(self, peer: str, incarnation: str) -> None:
        """A neighbour is there, and nothing is wrong with what it said."""
        if peer not in self.meetings.met:
            self.meetings.met[peer] = incarnation
            self.driver.write([Met(peer, incarnation)])
        self.driver.step(Connected(peer))

    def arrived(self, peer: str, packet: Packet[Any]) -> None:
        """A packet came in."""
        if packet.frames and (self.full or (self.office.full and self._holds_too_many())):
            return  # It will come again. What cannot be stored or told, or waits for a box that is full, is not taken.
        self.driver.step(Arrived(peer, packet))
        if self._refused_some or (self.stalls and self.stalls.look()):
            self._refused_some = True
            self._tell_of_room()

    def _holds_too_many(self) -> bool:
        most, most_bytes = self.member.options.max_unconsumed, self.member.options.max_unconsumed_bytes
        too_many = len(self._held) >= most or self._held_bytes >= most_bytes
        return self._came_back_full or too_many

    def told(self, peer: str, version: int, fingerprint: str) -> None:
        """A neighbour has another version of the topology."""
        self.evolution.told(peer, version, fingerprint)

    def gone(self, peer: str) -> int:
        """Return with which version a server was declared lost; 0: it was not."""
        return self.member.view.state.gone.get(peer, 0)

    def expelled(self, peer: str, version: int) -> None:
        """We were declared lost, a neighbour says."""
        self.evolution.expelled(peer, version)

    # Boxes.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Put deliveries into boxes, as far as these take them; then tell whose they are."""
        held, office = self._held, self.office
        held.extend(deliveries)
        self._held_bytes += sum([delivery.frame.weight for delivery in deliveries])
        if self._handing:
            return  # Whoever was told has sent something that is for us too: it comes behind what is being handed over.
        self._handing = True
        try:
            while held and (not office.full or self.coming_back):
                boxes: dict[str, None] = {}
                while held and (not office.full or self.coming_back):
                    self._consumed = held[0].position
                    self._held_bytes -= held[0].frame.weight
                    self._handing_over.hand(held.popleft(), boxes)
                if self._durable:
                    self.member.step(Consumed(self._consumed), self.clock.now())
                if boxes:
                    self.on_letters(boxes)
        finally:
            self._handing = False

    def _note_sent(self, envelope: Envelope) -> None:
        body = read_body(envelope.body, envelope.origin)
        if isinstance(body, Bundle):
            self.office.sent(body.sender, body.first + body.count - 1)

    @property
    def held(self) -> int:
        """How many deliveries wait because a box is full."""
        return len(self._held)

    async def close(self) -> None:
        """Hang up, make durable what was taken, and stop."""
        if self._watcher is not None:
            self._watcher.stop()
        await self.peers.close()
        await self.driver.close()
        self.history.close()


def _ignore(*_: object) -> None:
    """Do nothing."""
