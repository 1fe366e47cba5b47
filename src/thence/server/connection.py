"""One client that is connected to a server: what it says goes to its session, to the server or to the agents, and back.

Rules:

* Whatever a client says that cannot be ends its own connection and nothing else.
* With an access file (``net.security.access``) a client gets no further than its entry allows: what it may not do is refused,
  told to it and logged, and it goes on.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from thence.core.epochs.epoch import Epoch
from thence.errors import MalformedFrame, StorageError
from thence.net.control import hang_up, ignore_frame, refuse, tell
from thence.net.framing import MAX_CLIENT_FRAME_BYTES, Connection
from thence.net.protocol import (
    MAX_SHORT_BYTES,
    Accepted,
    Acknowledge,
    AgentAnswer,
    AgentQuestion,
    ClientWelcome,
    Deliver,
    Denied,
    Find,
    Leave,
    OperatorQuestion,
    Ping,
    Publish,
    Refused,
    Safe,
    SafetyWanted,
    Said,
    Stable,
    StableQuestion,
    StatusAnswer,
    StatusQuestion,
    Subscribe,
    Subscribed,
    Undeliverable,
    ViewRequest,
    long_kind,
    understand,
    write_no_messages,
)
from thence.net.security.access import EVERYTHING, Guest, Rights
from thence.node.directory.homes import FENCED, rejected_before
from thence.node.node import Node
from thence.node.session import FEW_WAITING, Session
from thence.runtime.offenders import place_of
from thence.server.admission import Asker, Done
from thence.server.chatter import IDLE_POINTS, LOOKUP_POINTS, Chatter
from thence.server.churn import CHURN_PER_S, FREE_TOPICS
from thence.storage.bodies import Follows
from thence.storage.mailbox import Batch, Mailbox
from thence.words import article

if TYPE_CHECKING:
    from thence.server.server import Server

ACCEPTED_WITHIN_S: Final = 0.005
"""How much later a client for whose messages nobody waits is told that they are accepted, if nothing else goes to it before."""
MAX_BACKLOG_BYTES: Final = 1024 * 1024
"""How much of what a client sent may wait to be done before it is looked at whether there is memory for it."""
CROWDED_S: Final = 0.02
"""For how long a client is not read that has more waiting than is done by then."""
ACCEPTED_EVERY: Final = 4_096
"""After how many messages it is told at once all the same."""


def reject(node: Node, connection: Connection, name: str, refused: Refused) -> None:
    """Refuse a program for good, or for now. If messages of it were accepted, it hears before which of them were rejected."""
    mailbox = node.directory.state.mailboxes.get(name)
    if mailbox is not None and refused.cause == FENCED:
        for rejected in rejected_before(mailbox, refused.accepted):
            tell(connection, Undeliverable(rejected.first, rejected.count, rejected.reason, rejected.forbidden))
    if not refused.later:
        connection.complain(f"refused client {name!r}: {refused.reason}")
    hang_up(connection, refused)


class ClientConnection:
    """One connected client: the outlet of its session."""

    def __init__(self, server: Server, connection: Connection, name: str, guest: Guest | None, program: str = "") -> None:
        """Take over a connection that has said hello, and proved its token if it is a guest."""
        self.name = name
        self.program = program
        """Which program it is; nothing if it has no id."""
        self.guest = guest
        """Without an access file there are no guests, and all may do everything."""
        self.connection = connection
        self.session: Session | None = None
        self.since = time.time()
        self.finding: dict[str, None] = {}
        """The others that it is waiting for."""
        self._server = server
        self._accepted = 0
        self._told = 0
        """Up to which number the client was told that its messages are accepted,"""
        self._hurried = 0
        """and up to which somebody waits for that."""
        self._telling: asyncio.TimerHandle | None = None
        self._epoch: Epoch | None = None
        """What it was given by its welcome, until it says something."""
        self._session_before = False
        """Whether there was a session when the connection was silenced."""
        self._durable_asked = False
        """Whether the client is to be told that what it has done with is on disk,"""
        self._durable_wanted: Acknowledge | None = None
        """and what it wants to know after that."""
        self._asker = Asker(server.answering, connection)
        whose = name or place_of(connection.address.rpartition(":")[0])
        self._chatter = Chatter(server.accounts, whose, connection, self.complain, self._slow)
        connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
        connection.holding.enter(server.node.memory.pools.clients)
        connection.on_frame = self._frame
        connection.on_lost = self._lost
        connection.writer.on_writable = self._writable

    def welcome(self) -> None:
        """The client has its name: go on."""
        node = self._server.node
        mailbox = node.directory.state.mailboxes[self.name]
        guarded = self.guest is not None
        self.session = Session(
            *(node, self.name, self),
            self._objection_to_messages if guarded else None,
            self._withhold if guarded else None,
            lambda session: self._server.rounds.wake([session]),
            self._server.senders,
            self._may_follow,
        )
        node.directory.mailboxes.here.add(self.name)
        self._server.revocation.came(self)
        accepted, acknowledged = min(node.intake.accepted_of(self.name), mailbox.sent), node.acknowledgements.of(self.name)
        unheard = rejected_before(mailbox, accepted)  # Perhaps: that is the client's to know.
        answered = unheard[0].first - 1 if unheard else accepted
        self.greet(mailbox.sent, answered, acknowledged, mailbox)
        self._chatter.free = True
        for rejected in unheard:
            self.session.answered(self.name, rejected.last, rejected)
        self._chatter.free = False
        if unheard:
            tell(self.connection, Accepted(accepted, accepted))

    def greet(self, number: int = 0, accepted: int = 0, position: int = 0, mailbox: Mailbox | None = None) -> None:
        """Say who we are, and where the client stands."""
        node, proof = self._server.node, b"" if self.guest is None else self.guest.proof
        welcome = ClientWelcome(node.name, node.topology.name, number, accepted, position, proof=proof, answers=True)
        if mailbox is not None:
            *_, held = mailbox.shown.held
            which = (mailbox.id or mailbox.since) ^ node.peers.epochs.restored  # For clients that know no epochs.
            welcome = msgspec.structs.replace(welcome, mailbox=which, epoch=held.epoch, mailbox_id=mailbox.id)
            self._epoch = held.epoch
        tell(self.connection, welcome)

    def silence(self) -> None:
        """Another connection takes the place of this one: nothing more of it is heard."""
        self._session_before = self.session is not None
        if self.session is not None:
            self._server.churn.drop(self.session)
            self.session.leave()
        self.session = None
        self.connection.on_frame = ignore_frame

    def replaced(self) -> None:
        """The same program has another connection."""
        hang_up(self.connection, Refused(f"{self.name!r} has another connection", later=True))

    def fence(self, accepted: int) -> None:
        """Another program has the name; messages up to ``accepted`` of whoever had it were accepted."""
        reason = f"another program has the name {self.name!r} since"
        refused = Refused(reason, cause=FENCED, accepted=accepted if self._session_before else 0)
        reject(self._server.node, self.connection, self.name, refused)

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        connection.keep_back()
        said = understand(frame, self.name) if len(frame) <= MAX_SHORT_BYTES else self._understand_long(frame)
        session = self.session
        if type(said) is Publish and session is not None:  # First what comes most often.
            self._publish(session, said)
        elif isinstance(said, Ping):
            self._chatter.spend(IDLE_POINTS)
        elif isinstance(said, StatusQuestion | AgentQuestion | OperatorQuestion | ViewRequest):
            self._asker.ask(partial(self._question, connection, said))
        elif session is None:
            self._too_early(said)
        elif isinstance(said, Acknowledge):
            self._acknowledged(session, said)
        elif isinstance(said, Subscribe):
            self._subscribe(session, said)
        elif isinstance(said, Find):
            self._chatter.spend(LOOKUP_POINTS)
            if not self._denied("name", said.name, self.rights.objection_to_message((said.name,), None)):
                self._server.searches.find(self, said.name)
        else:
            self._seldom(connection, said)

    def _understand_long(self, frame: memoryview) -> Said:
        """Return what a long frame says, if it may be long: reading one can take thirty times its length."""
        kind = long_kind(frame)
        if kind is None:
            raise MalformedFrame(f"a frame of {len(frame)} bytes that is no long one; MAX_SHORT_BYTES is {MAX_SHORT_BYTES}")
        reason = self.rights.objection_to_change() if kind is ViewRequest else ""
        if reason:
            refuse(self.connection, reason, claims=f"client {self.name!r}")
            return Ping()
        return understand(frame, self.name)

    def _publish(self, session: Session, said: Publish) -> None:
        if said.hurry:
            self._hurried = said.first + said.count - 1
        if not session.publish(said):
            self._chatter.spend(IDLE_POINTS)
        if session.waiting:
            if session.crowded:
                self._rest()
            if session.backlog_bytes > MAX_BACKLOG_BYTES:
                self._wait_for_memory()

    def _subscribe(self, session: Session, said: Subscribe) -> None:
        if said.wanted and self._denied("topic", said.topic, self.rights.objection_to_subscription(said.topic)):
            return
        if not said.wanted and not self._server.node.directory.subscriptions.known(self.name, said.topic):
            self._chatter.spend(IDLE_POINTS)
        session.follow(said.topic, said.wanted)
        if session.churns and session.waiting == FEW_WAITING + 1:
            self._complain_of_churn()
        if session.crowded:
            self._rest()

    def _may_follow(self, session: Session, notice: Follows) -> bool:
        """Say whether what the client follows may change now (``server.churn``)."""
        subscriptions = self._server.node.directory.subscriptions
        is_new = notice.wanted and not subscriptions.known(self.name, notice.topic)
        if is_new and len(subscriptions.topics_of(self.name)) < FREE_TOPICS:
            return True
        may = self._server.churn.take(session)
        if not may and session.waiting > FEW_WAITING:
            self._complain_of_churn()
        return may

    def _complain_of_churn(self) -> None:
        self.complain(f"slowed: it follows and leaves topics more often than its part of CHURN_PER_S ({CHURN_PER_S}) allows")

    def _acknowledged(self, session: Session, said: Acknowledge) -> None:
        if self._epoch is not None:  # It says this first of all.
            self._server.node.homes.heard(self.name, self._epoch)
            self._epoch = None
        if not session.acknowledge(said.upto, said.limit):
            self._chatter.spend(IDLE_POINTS)
        if said.answer:
            self._durable_wanted = said
            self._ask_durable()

    def _ask_durable(self) -> None:
        """Tell the client when what it has done with is on disk: of all that it wants to know meanwhile, only the last."""
        wanted = self._durable_wanted
        if wanted is not None and not self._durable_asked:
            self._durable_wanted, self._durable_asked = None, True
            self._server.node.driver.when_durable(partial(self._tell_durable, wanted))

    def _tell_durable(self, wanted: Acknowledge) -> None:
        self._durable_asked = False
        tell(self.connection, Acknowledge(wanted.upto, wanted.limit))
        self._ask_durable()

    def _rest(self) -> None:
        """Read nothing for a moment: what would come waits here, too."""
        self.connection.pause("crowd")
        asyncio.get_running_loop().call_later(CROWDED_S, self.connection.resume, "crowd")

    def _slow(self, slowed: bool) -> None:
        if self.session is not None:
            self.session.slowed = slowed
            self._server.rounds.wake([self.session])

    def _too_early(self, said: Said) -> None:
        """Something was said by a client that is not let in, or that has no name and never will be."""
        if self.name:
            raise MalformedFrame(f"{article(type(said).__name__)} before it was welcome")
        why = f"{article(type(said).__name__)} from a client without a name, which can only ask questions: connect with a name"
        refuse(self.connection, why, claims="client ''")

    def _seldom(self, connection: Connection, said: Said) -> None:
        self._chatter.spend(LOOKUP_POINTS)
        if isinstance(said, StableQuestion):
            self._server.node.intake.waiters.ask(self, lambda reason: tell(connection, Stable(said.upto, reason)))
        elif isinstance(said, SafetyWanted) and self.session is not None:
            self.session.want_safety()
        elif isinstance(said, Leave):
            self._server.reception.forget(self.name)
        else:
            raise MalformedFrame(f"{article(type(said).__name__)}, which no client says")

    def _question(
        self, connection: Connection, said: StatusQuestion | AgentQuestion | OperatorQuestion | ViewRequest, done: Done
    ) -> None:
        """Answer what may be asked also by whoever has no name."""
        looks = False
        if isinstance(said, StatusQuestion):
            if not self._denied("question", "", self.rights.objection_to_status()):
                tell(connection, StatusAnswer(msgspec.json.encode(self._server.status.report())))
        elif isinstance(said, AgentQuestion):
            reason = self.rights.objection_to_agents()
            if reason:
                self.complain(reason)
                tell(connection, AgentAnswer(said.number, b"", reason, forbidden=True))
            else:
                looks = self._server.admin.ask(connection, said, "" if self.guest is None else self.rights.entry)
        elif isinstance(said, OperatorQuestion):
            self._server.operator_admin.ask(self, said)
        elif not self._denied("question", "", self.rights.objection_to_change()):
            self._server.node.reconfiguration.request(said, lambda answer: tell(connection, answer))
            looks = True
        if looks:
            self._server.node.driver.when_durable(done)  # Behind the answer, which is long and waits for the same.
        else:
            done()

    # What it may do.

    @property
    def rights(self) -> Rights:
        """What it may do."""
        return EVERYTHING if self.guest is None else self.guest.rights

    def _denied(self, asked: Literal["topic", "name", "question"], about: str, reason: str) -> bool:
        """Tell the client why it may not, if so, and return whether that is so."""
        if reason:
            self._chatter.spend(IDLE_POINTS)
            self.complain(reason)
            tell(self.connection, Denied(asked, about, reason))
        return bool(reason)

    def _objection_to_messages(self, publish: Publish) -> str:
        reason = self.rights.objection_to_message(publish.to, publish.topic)
        if reason:
            self.complain(reason)
        return reason

    def complain(self, what: object) -> None:
        """Write into the log what the client did that it should not have."""
        self.connection.complain(f"client {self.name!r}: {what}" if self.name else f"a client without a name: {what}")

    def _lost(self, connection: Connection, error: Exception | None) -> None:
        if error is not None:
            self.complain(error)
        self._asker.close()
        self._server.reception.lost(self)
        if self.session is not None:
            self._server.churn.drop(self.session)
            self.session.leave()

    def _writable(self) -> None:
        """The client takes more."""
        if self.session is not None:
            self.session.feed()
        self._asker.go_on()

    # Outlet.

    def accepted(self, upto: int) -> None:
        """Messages of the client are accepted."""
        self._accepted = upto
        if self._told < self._hurried or upto - self._told >= ACCEPTED_EVERY:
            self._tell_accepted()
        elif self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(ACCEPTED_WITHIN_S, self._tell_later)

    def _tell_later(self) -> None:
        self._telling = None
        self._tell_accepted()

    def _tell_accepted(self) -> None:
        if self._accepted > self._told:
            self._told = self._accepted
            tell(self.connection, Accepted(self._accepted, self._server.node.intake.accepted_of(self.name)))

    def undeliverable(self, first: int, count: int, reason: str, *, forbidden: bool) -> None:
        """Some never will be."""
        self._chatter.spend(IDLE_POINTS)
        self._tell_accepted()
        tell(self.connection, Undeliverable(first, count, reason, forbidden))

    def deliver(self, position: int, skip: int, batch: Batch) -> None:
        """Messages for the client."""
        everyone = batch.to is None and batch.topic is None
        tell(self.connection, Deliver(position, skip, batch.sender, batch.topic, batch.messages, everyone))

    def _withhold(self, position: int, skip: int, batch: Batch) -> bool:
        """Say whether the client does not get these messages, since it may not follow their topic any more; it is told so."""
        reason = self.rights.objection_to_subscription(batch.topic or "")
        if reason:
            self._server.revocation.withheld += batch.count - skip
            tell(self.connection, Deliver(position, skip, "", batch.topic, write_no_messages(batch.count), withheld=reason))
        return bool(reason)

    def told_safe(self, upto: int, reason: str) -> None:
        """Some of its messages are safe, or nobody finds out."""
        tell(self.connection, Safe(upto, reason))

    def damaged(self, error: StorageError) -> None:
        """What is kept for the client cannot be read: others may go on."""
        refuse(self.connection, f"the messages for {self.name!r} cannot be read: {error}")

    def subscribed(self, topic: str, wanted: bool) -> None:
        """The client follows a topic, or no longer."""
        tell(self.connection, Subscribed(topic, wanted))

    def not_subscribed(self, topic: str, reason: str) -> None:
        """It cannot be followed here any more, or no longer be followed."""
        tell(self.connection, Denied("topic", topic, reason, forbidden=False))

    @property
    def blocked(self) -> bool:
        """Whether its connection is full, or there is no memory for more that is on its way."""
        connection = self.connection
        if connection.writer.full:
            return True
        pool = connection.holding.pool
        if 2 * pool.used <= pool.limit or pool.has_room(connection.holding.bytes):  # Said again: it is asked with every batch.
            return False
        pool.wait(self._feed_later)
        return True

    # Memory.

    def _feed_later(self) -> None:
        """There may be memory for what is for the client."""
        if self.session is not None and self.connection.open:
            self.session.feed()

    def count_waiting(self) -> None:
        """Count what the client has sent and what has not been done."""
        self.connection.holding.note("waiting", 0 if self.session is None else self.session.backlog_bytes)

    def _wait_for_memory(self) -> None:
        """Much that the client sent waits to be done: read no more of it, if others need the memory too."""
        self.count_waiting()
        connection = self.connection
        if not connection.open or connection.holding.has_room():
            connection.resume("memory of what waits")
        else:
            connection.pause("memory of what waits")
            connection.holding.pool.wait(self._wait_for_memory)

    def show_out(self, why: str) -> None:
        """Others wait for the memory that is held for the client: end its connection. It may come again."""
        reason = f"{self.connection.holding.bytes} bytes are on their way to and from it, more than for any other client; {why}"
        if self.connection.writer.full:
            self.connection.fail(MalformedFrame(f"shown out: {reason}"))  # It reads nothing.
        else:
            refuse(self.connection, f"shown out: {reason}", claims=f"client {self.name!r}", later=True)
