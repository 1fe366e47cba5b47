"""One client that is connected to a server: what it says goes to its session, to the server or to the agents.

Rules:

* Whatever a client says that cannot be ends its own connection and nothing else.
* With an access file (``net.security.access``) a client gets no further than its entry allows: what it may not do is refused,
  told to it and logged, and it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, NamedTuple

import msgspec

from thence.core.epochs.epoch import Epoch
from thence.errors import MalformedFrame
from thence.net.control import hang_up, ignore_frame, refuse, tell
from thence.net.framing import MAX_CLIENT_FRAME_BYTES, Connection
from thence.net.protocol import (
    MAX_SHORT_BYTES,
    Accepted,
    Acknowledge,
    AgentQuestion,
    ClientWelcome,
    ControlFrame,
    Deliver,
    Denied,
    Find,
    Leave,
    OperatorQuestion,
    Ping,
    Publish,
    Refused,
    SafetyWanted,
    Stable,
    StableQuestion,
    StatusQuestion,
    Subscribe,
    Undeliverable,
    ViewRequest,
    long_kind,
    understand,
    write_no_messages,
)
from thence.net.security.access import EVERYTHING, Guest, Rights
from thence.node.directory.homes import FENCED, rejected_before
from thence.node.node import Node
from thence.node.sessions.fair_turns import Rounds
from thence.node.sessions.in_flight import FEW_WAITING, InFlight
from thence.node.sessions.large_turns import LargeTurns
from thence.node.sessions.session import Session
from thence.runtime.offenders import place_of
from thence.server.admission import Asker
from thence.server.answers import ServerAnswers
from thence.server.chatter import IDLE_POINTS, LOOKUP_POINTS, Chatter, ChatterAccounts
from thence.server.churn import CHURN_PER_S, FREE_TOPICS, Churn
from thence.server.clients import NameSearches
from thence.server.outlet import ClientOutlet
from thence.server.revocation import Revocation
from thence.storage.bodies import Follows
from thence.storage.mailbox import Batch, Mailbox
from thence.words import article

MAX_BACKLOG_BYTES: Final = 1024 * 1024
"""How much of what a client sent may wait to be done before it is looked at whether there is memory for it."""
CHURNS: Final = f"slowed: it follows and leaves topics more often than its part of CHURN_PER_S ({CHURN_PER_S}) allows"
CROWDED_S: Final = 0.02
"""For how long a client is not read that has more waiting than is done by then."""


def reject(node: Node, connection: Connection, name: str, refused: Refused) -> None:
    """Refuse a program for good, or for now. If messages of it were accepted, it hears before which of them were rejected."""
    mailbox = node.directory.state.mailboxes.get(name)
    if mailbox is not None and refused.cause == FENCED:
        for rejected in rejected_before(mailbox, refused.accepted):
            tell(connection, Undeliverable(rejected.first, rejected.count, rejected.reason, rejected.forbidden))
    if refused.later:
        hang_up(connection, refused)
    else:
        refuse(connection, refused, claims=f"client {name!r}")


class Service(NamedTuple):
    """What the connections of all clients of one server use."""

    node: Node
    answers: ServerAnswers
    revocation: Revocation
    searches: NameSearches
    rounds: Rounds[Session]
    """In which clients are served whose messages have to wait."""
    large: LargeTurns
    """Which part of the time large messages have."""
    churn: Churn
    """The turns of those who follow and leave topics again and again."""
    senders: set[InFlight]
    """Those of whom something is on its way to the disk: they share ``MAX_IN_FLIGHT``."""
    accounts: ChatterAccounts
    """How much clients may still say that moves nothing."""
    forget: Callable[[str], None]
    """Gives up a client's name."""
    lost: Callable[[ClientConnection], None]
    """Notes that a connection is gone."""


class ClientConnection:
    """One connected client, by what it says."""

    def __init__(self, service: Service, connection: Connection, name: str, guest: Guest | None, program: str = "") -> None:
        """Take over a connection that has said hello, and proved its token if it is a guest."""
        self.name = name
        self.program = program
        """Which program it is; nothing if it has no id."""
        self.guest = guest
        """Without an access file there are no guests, and all may do everything."""
        self.connection = connection
        self.session: Session | None = None
        self.finding: dict[str, None] = {}
        """The others that it is waiting for."""
        self._service = service
        self._epoch: Epoch | None = None
        """What it was given by its welcome, until it says something."""
        self._session_before = False
        """Whether there was a session when the connection was silenced."""
        self._asker = Asker(service.answers.turns, connection)
        whose = name or place_of(connection.address.rpartition(":")[0])
        self._chatter = Chatter(service.accounts, whose, connection, self.complain, self._slow)
        self._outlet = ClientOutlet(service.node, name, connection, self._chatter, self._feed)
        connection.max_frame_bytes = MAX_CLIENT_FRAME_BYTES
        connection.holding.enter(service.node.memory.pools.clients)
        connection.on_frame = self._frame
        connection.on_lost = self._lost
        connection.writer.on_writable = self._writable

    def welcome(self) -> None:
        """The client has its name: go on."""
        node = self._service.node
        mailbox = node.directory.state.mailboxes[self.name]
        limited = self.guest is not None
        self.session = Session(
            *(node, self.name, self._outlet),
            self._objection_to_messages if limited else None,
            self._withhold if limited else None,
            lambda session: self._service.rounds.wake([session]),
            self._service.senders,
            self._may_follow,
        )
        self.session.large = self._service.large
        node.directory.mailboxes.here.add(self.name)
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
        self._service.revocation.came(self)  # Behind the greeting: nothing is said before it.

    def greet(self, number: int = 0, accepted: int = 0, position: int = 0, mailbox: Mailbox | None = None) -> None:
        """Say who we are, and where the client stands."""
        node, proof = self._service.node, b"" if self.guest is None else self.guest.proof
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
            self._service.churn.drop(self.session)
            self.session.in_flight.leave()
        self.session = None
        self.connection.on_frame = ignore_frame

    def fence(self, accepted: int) -> None:
        """Another program has the name; messages up to ``accepted`` of whoever had it were accepted."""
        reason = f"another program has the name {self.name!r} since"
        refused = Refused(reason, cause=FENCED, accepted=accepted if self._session_before else 0)
        reject(self._service.node, self.connection, self.name, refused)

    def _frame(self, connection: Connection, frame: memoryview) -> None:
        connection.keep_back()
        said = understand(frame, self.name) if len(frame) <= MAX_SHORT_BYTES else self._understand_long(frame)
        session = self.session
        if type(said) is Publish and session is not None:  # First what comes most often.
            self._publish(session, said)
        elif isinstance(said, Ping):
            self._chatter.spend(IDLE_POINTS)
        elif isinstance(said, StatusQuestion | AgentQuestion | OperatorQuestion | ViewRequest):
            self._asker.ask(partial(self._service.answers.answer, self, said))
        elif session is None:
            self._too_early(said)
        elif isinstance(said, Acknowledge):
            self._acknowledged(session, said)
        elif isinstance(said, Subscribe):
            self._subscribe(session, said)
        elif isinstance(said, Find):
            self._chatter.spend(LOOKUP_POINTS)
            if not self.denied("name", said.name, self.rights.objection_to_message((said.name,), None)):
                self._service.searches.find(self, said.name)
        else:
            self._seldom(connection, said)

    def _understand_long(self, frame: memoryview) -> ControlFrame:
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
            self._outlet.hurried = said.first + said.count - 1
        if not session.publish(said):
            self._chatter.spend(IDLE_POINTS)
        if session.waiting:
            if session.crowded:
                self._rest()
            if session.backlog_bytes > MAX_BACKLOG_BYTES:
                self._wait_for_memory()
            if session.waits_for_large:  # What comes behind it waits too.
                self.connection.pause("large")
                self._service.large.when_free(self.name, partial(self.connection.resume, "large"))

    def _subscribe(self, session: Session, said: Subscribe) -> None:
        if said.wanted and self.denied("topic", said.topic, self.rights.objection_to_subscription(said.topic)):
            return
        if not said.wanted and not self._service.node.directory.subscriptions.known(self.name, said.topic):
            self._chatter.spend(IDLE_POINTS)
        session.follow(said.topic, said.wanted)
        if session.churns and session.waiting == FEW_WAITING + 1:
            self.complain(CHURNS)
        if session.crowded:
            self._rest()

    def _may_follow(self, session: Session, notice: Follows) -> bool:
        """Say whether what the client follows may change now (``server.churn``)."""
        subscriptions = self._service.node.directory.subscriptions
        is_new = notice.wanted and not subscriptions.known(self.name, notice.topic)
        if is_new and len(subscriptions.topics_of(self.name)) < FREE_TOPICS:
            return True
        may = self._service.churn.take(session)
        if not may and session.waiting > FEW_WAITING:
            self.complain(CHURNS)
        return may

    def _acknowledged(self, session: Session, said: Acknowledge) -> None:
        if self._epoch is not None:  # It says this first of all.
            self._service.node.homes.heard(self.name, self._epoch)
            self._epoch = None
        if not session.feed.acknowledge(said.upto, said.limit):
            self._chatter.spend(IDLE_POINTS)
        if said.answer:
            self._outlet.acknowledged(said)

    def _rest(self) -> None:
        """Read nothing for a moment: what would come waits here, too."""
        self.connection.pause("crowd")
        asyncio.get_running_loop().call_later(CROWDED_S, self.connection.resume, "crowd")

    def _slow(self, slowed: bool) -> None:
        if self.session is not None:
            self.session.slowed = slowed
            self._service.rounds.wake([self.session])

    def _too_early(self, said: ControlFrame) -> None:
        """Something was said by a client that is not let in, or that has no name and never will be."""
        if self.name:
            raise MalformedFrame(f"{article(type(said).__name__)} before it was welcome")
        why = f"{article(type(said).__name__)} from a client without a name, which can only ask questions: connect with a name"
        refuse(self.connection, why, claims="client ''")

    def _seldom(self, connection: Connection, said: ControlFrame) -> None:
        self._chatter.spend(LOOKUP_POINTS)
        if isinstance(said, StableQuestion):
            self._service.node.intake.waiters.ask(self, lambda reason: tell(connection, Stable(said.upto, reason)))
        elif isinstance(said, SafetyWanted) and self.session is not None:
            self.session.feed.want_safety()
        elif isinstance(said, Leave):
            self._service.forget(self.name)
        else:
            raise MalformedFrame(f"{article(type(said).__name__)}, which no client says")

    # What it may do.

    @property
    def rights(self) -> Rights:
        """What it may do."""
        return EVERYTHING if self.guest is None else self.guest.rights

    def denied(self, asked: Literal["topic", "name", "question"], about: str, reason: str) -> bool:
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
        self._service.lost(self)
        if self.session is not None:
            self._service.churn.drop(self.session)
            self.session.in_flight.leave()

    def _writable(self) -> None:
        self._feed()
        self._asker.go_on()

    def _feed(self) -> None:
        """Send the client what it may take now."""
        if self.session is not None and self.connection.open:
            self.session.feed.send()

    def _withhold(self, position: int, skip: int, batch: Batch) -> bool:
        """Say whether the client does not get these messages, since it may not follow their topic any more; it is told so."""
        reason = self.rights.objection_to_subscription(batch.topic or "")
        if reason:
            self._service.revocation.withheld += batch.count - skip
            tell(self.connection, Deliver(position, skip, "", batch.topic, write_no_messages(batch.count), withheld=reason))
        return bool(reason)

    # Memory.

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
