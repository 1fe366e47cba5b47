"""Accepts what clients, agents and the node itself send: routed by the directory, stepped into the member, answered when durable.

Rules:

* The directory says to which servers a batch goes, and the member gets it. Its client is answered when it is durable.
* What cannot be taken now is refused as ``Busy``, and ``NodeHooks.on_room`` says when it may be tried again.
* Where domains keep copies, its client is answered only when enough other servers have it, too (``core.failover.secured``).
* A batch for a client whose mailbox is closed, here or elsewhere, waits (``node.directory.closings``).
* A batch that is rejected for good is noted in the log, so that no crash makes it an accepted one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from thence.core.member.contract import Submit, SubmitAll
from thence.core.wire.messages import Envelope
from thence.errors import Busy, UsageError
from thence.node.directory.directory import Directory
from thence.node.driver.driver import Driver
from thence.node.history import TraceHistory
from thence.node.hooks import NodeHooks
from thence.node.messages.waiters import Waiters
from thence.node.peers.epochs import PeerEpochs
from thence.node.peers.stalls import Stalls
from thence.storage.bodies import Body, Closing, Left, read_body
from thence.storage.journal import Written
from thence.storage.mailbox import Batch
from thence.storage.rejections import Rejected


class Intake:
    """What a node accepts, from the call to the answer."""

    def __init__(self, directory: Directory, driver: Driver, history: TraceHistory, epochs: PeerEpochs, hooks: NodeHooks) -> None:
        """Accept for the server of ``directory``, unless the store or the history is full, or the server is fenced."""
        self.stalls = Stalls(driver.member)
        """For which peers nothing more is taken."""
        self.waiters = Waiters(driver.member)
        """Who waits until all have what was sent."""
        self.messages_accepted = 0
        """How many messages of clients were, since the start."""
        self._directory = directory
        self.driver = driver
        self._history = history
        self._epochs = epochs
        self._hooks = hooks
        self.submitted: deque[tuple[str, int, int, int] | None] = deque()
        """Of each message that is submitted and not accepted: client, number of its last message, how many, and how many bytes it
        takes in mailboxes here; None: a notice."""
        self._accepted: dict[str, int] = {}
        """The number of the last message of each client that was accepted or rejected."""
        self._unsecured: deque[tuple[int, Callable[[], None]]] = deque()
        """Answers that wait until our messages up to a number outlive us."""
        self._refused_some = False
        """Whether something was refused as busy since ``on_room`` was last told."""

    # What is asked for.

    def submit(self, batch: Batch) -> bool:
        """Send messages of a client on. Return whether they will be accepted later; if not, they are for nobody.

        ``Busy`` means: later. Any other ``UsageError`` means: never.
        """
        servers = self._directory.route(batch)
        if servers == ():
            return False
        self._submit(batch, servers)
        return True

    def reject(self, rejected: Rejected) -> None:
        """Never send these messages on. Their client is told when that is durable, so that no crash makes them accepted ones."""
        self._check_takes()
        self._directory.mailboxes.reject(rejected)
        number = self.driver.member.forwarder.number
        self.driver.write(
            [rejected], lambda: self._when_secured(number, lambda: self._answered(rejected.client, rejected.last, rejected))
        )

    def announce(self, notice: Body) -> None:
        """Tell all servers something about a client; ``UsageError`` if there are too many already, or as for messages."""
        with self._directory.announcing(notice):
            self._submit(notice, None)

    def write_together(self, submits: list[Submit], record: Written, then: Callable[[], None] | None) -> None:
        """Submit messages and store a record in one entry: all of it follows, or nothing."""
        if not submits:
            self.driver.write([record], then)
            return
        self.submitted.extend([None] * len(submits))
        try:
            self.driver.step(SubmitAll(tuple(submits)), (record,), then)
        except UsageError:
            for _ in submits:
                self.submitted.pop()
            raise

    def _submit(self, body: Body, servers: tuple[str, ...] | None) -> None:
        self._check_takes(body)
        notice = not isinstance(body, Batch)
        if isinstance(body, Batch) and (closed := self._directory.closings.to(body, self._directory.subscriptions)):
            self._refused_some = self._refused_some or closed in self._directory.mailboxes.closed
            raise Busy(f"the mailbox of {closed!r} at {self._directory.home(closed)!r} is full")
        self.stalls.check(servers, notice=notice)  # Before anything is made of it: it may be large, and is tried again.
        written, spans = self._directory.write(body), self._hooks.spans
        # Noted before the step, from which handlers may be called that send more.
        submitted, before, room = None, 0, 0
        if isinstance(body, Batch):
            try:
                room = self._directory.mailboxes.reserve(body)
            except Busy:
                self._refused_some = True
                raise
            submitted = (body.sender, body.first + body.count - 1, body.count, room)
            before = self._directory.mailboxes.sent(submitted[0], submitted[1])
            if spans is not None:
                spans.accepting(body)
        self.submitted.append(submitted)
        try:
            self.driver.step(Submit(servers, written, notice))
        except UsageError:
            self._refused_some = True
            self.submitted.pop()
            if submitted is not None:
                self._directory.mailboxes.arrived(room)
                self._directory.mailboxes.unsend(submitted[0], before)
                if spans is not None:
                    spans.accepted(submitted[0], submitted[1])  # They come again, with another span.
            raise

    # Room.

    @property
    def full(self) -> str:
        """Why nothing is taken now, if so, by the store or the trace."""
        driver = self.driver
        full = driver.full if not driver.volatile or driver.commits.stalled else ""
        return full or self._history.full

    def _check_takes(self, body: Body | None = None) -> None:
        if self._epochs.fenced:
            raise UsageError(self._epochs.fenced)
        directory = self._directory
        # What makes room needs none in a mailbox.
        full = self.full or (directory.mailboxes.full and not isinstance(body, Left | Closing) and directory.mailboxes.why_full)
        if full:
            self._refused_some = True
            raise Busy(f"{directory.server!r} takes nothing now: {full}")

    def tell_of_room(self) -> None:
        """Something has changed: what was refused may be tried again."""
        if self._refused_some:
            self._refused_some = False
            self._hooks.on_room()

    def look_for_room(self) -> None:
        """Something was acknowledged: see whether a queue to a peer has room again."""
        if self._refused_some or (self.stalls and self.stalls.look()):
            self._refused_some = False
            self._hooks.on_room()

    # What is accepted.

    def accepted(self, envelope: Envelope) -> None:
        """A message of ours is durable: tell its client, now or when others have it, too."""
        submitted = self.submitted.popleft()
        if submitted is not None:
            client, upto, messages, room = submitted
            self._directory.mailboxes.arrived(room)
            self.messages_accepted += messages
            if self._hooks.spans is not None:
                self._hooks.spans.accepted(client, upto)
            self._when_secured(envelope.number, lambda: self._answered(client, upto, None))

    def secured(self, upto: int) -> None:
        """Our messages up to this number outlive us."""
        while self._unsecured and self._unsecured[0][0] <= upto:
            self._unsecured.popleft()[1]()

    def _when_secured(self, number: int, answer: Callable[[], None]) -> None:
        """Answer when our messages up to a number outlive us, and everything before was answered."""
        secured = self.driver.member.attachment.secured
        if secured is None or (number <= secured.upto and not self._unsecured):
            answer()
        else:
            self._unsecured.append((number, answer))

    def _answered(self, client: str, upto: int, rejected: Rejected | None) -> None:
        self._accepted[client] = upto
        self._hooks.on_answered(client, upto, rejected)

    def accepted_of(self, client: str) -> int:
        """Return up to which number the messages of a client are accepted or rejected."""
        return self._accepted.get(client, 0)

    def forget(self, client: str) -> None:
        """Whoever gets this name next begins with nothing."""
        self._accepted.pop(client, None)

    # What was accepted before a restart.

    def again(self, envelope: Envelope) -> None:
        """Note a message of ours that is being brought back."""
        body = read_body(envelope.body, envelope.origin)
        if isinstance(body, Batch):
            self._directory.mailboxes.sent(body.sender, body.first + body.count - 1)

    def recovered(self) -> None:
        """Everything is brought back, and all of it was accepted, but what others were not known to have."""
        self._accepted = {name: mailbox.sent for name, mailbox in self._directory.state.mailboxes.items()}
        unsecured = [(envelope.number, read_body(envelope.body, envelope.origin)) for envelope in self.driver.member.unsecured()]
        batches = [(number, body) for number, body in unsecured if isinstance(body, Batch)]
        for number, body in batches:
            self._accepted[body.sender] = min(self._accepted.get(body.sender, 0), body.first - 1)
            answer = partial(self._answered, body.sender, body.first + body.count - 1, None)
            self._unsecured.append((number, answer))
